#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: weights_wait
short_description: Wait for a download or a copy on a node, and show its progress
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Waits for a task that was started with C(async) and C(poll=0), and prints on the controller's terminal how many bytes have
    arrived. Its result is that task's own, and so is its failure.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  jid:
    description: C(ansible_job_id) of the task.
    type: str
    required: true
  progress:
    description: The file that the task writes its progress to.
    type: path
    required: true
  what:
    description: What is transferred, for the line on the terminal.
    type: str
    required: true
  interval:
    description: Minimum seconds between checks. A node that answers slowly is checked less often.
    type: float
    default: 5
seealso:
  - module: ansible.builtin.async_status
"""

EXAMPLES = r"""
- name: Wait for the weights
  dgxspark.cluster.weights_wait:
    jid: "{{ started.ansible_job_id }}"
    progress: /run/dgxspark-weights.json
    what: example-org/example-model
"""

RETURN = r"""
finished:
  description: Always true. Everything else is the task's own result.
  returned: success
  type: bool
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "jid": {"type": "str", "required": True},
    "progress": {"type": "path", "required": True},
    "what": {"type": "str", "required": True},
    "interval": {"type": "float", "default": 5},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
