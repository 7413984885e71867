# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status prediction without modifying the target.
    support: full
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in C(check_mode)), when in diff mode.
    support: full
  idempotent:
    description: When run twice in a row with the same arguments, the second run changes nothing.
    support: full
"""

    # For modules that only read.
    INFO = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status prediction without modifying the target.
    support: full
    details:
      - This module only reads.
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in C(check_mode)), when in diff mode.
    support: N/A
    details:
      - This module only reads.
  idempotent:
    description: When run twice in a row with the same arguments, the second run changes nothing.
    support: full
"""

    ACTIONGROUP = r"""
options: {}
attributes:
  action_group:
    description: Use C(group/dgxspark.cluster.dgxspark) in C(module_defaults) to set defaults for this module.
    support: full
    membership:
      - dgxspark.cluster.dgxspark
"""

    # Where a test puts a tree of its own in place of the node's, one by one.
    ROOTS = r"""
options:
  sysfs_root:
    description: Where sysfs is. Tests use their own tree.
    type: path
    default: /sys
"""

    PROC_ROOT = r"""
options:
  proc_root:
    description: Where procfs is. Tests use their own tree.
    type: path
    default: /proc
"""

    NETNS_ROOT = r"""
options:
  netns_root:
    description: Where named network namespaces are mounted. Tests use their own folder.
    type: path
    default: /run/netns
"""

    SYSTEM_ROOT = r"""
options:
  system_root:
    description: Prefix of file paths on the node. Tests use their own tree.
    type: path
    default: /
"""

    RUN = r"""
options:
  run:
    description: This run, and when it was started. The action plugin sets it; leave it out.
    type: dict
    suboptions:
      id:
        description: Its identity.
        type: str
        required: true
      controller:
        description: Its controller, and the boot of that.
        type: str
        required: true
      started:
        description: When it was started, in seconds on the controller's clock.
        type: float
        required: true
      age:
        description: How long ago that was, in seconds.
        type: float
        required: true
      by:
        description: The run in words, for other runs on the node.
        type: str
        required: true
"""
