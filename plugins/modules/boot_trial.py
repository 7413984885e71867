#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: boot_trial
short_description: Let GRUB boot a kernel once, with the running one as the default until that is proven
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - With O(state=present) the next boot is of the kernel that GRUB's default leads to, but only once, and the running kernel is the default
    meanwhile. A node whose new kernel does not come up gets back to the older one when its power is cut and given again.
  - The default is in C(/etc/default/grub.d/zz-dgxspark-update.cfg). O(state=absent) removes it; no other file is written.
  - A node without GRUB, with C(GRUB_DEFAULT=saved), or whose C(/boot) GRUB cannot write to, is left as it is; RV(reason) says why.
extends_documentation_fragment:
  - dgxspark.cluster.attributes
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.attributes.proc_root
  - dgxspark.cluster.attributes.system_root
options:
  state:
    description: V(absent) ends the trial.
    type: str
    choices: [present, absent]
    default: present
  kernel:
    description: The release of the kernel that is to boot; the running one is allowed. Omitted, what the owner's default leads to.
    type: str
notes:
  - Needs root (C(become)).
"""

EXAMPLES = r"""
- name: Boot the new kernel once
  dgxspark.cluster.boot_trial:

- name: It is proven
  dgxspark.cluster.boot_trial:
    state: absent
"""

RETURN = r"""
changes:
  description: What differed, each with C(subject), C(what), C(before) and C(after).
  returned: always
  type: list
  elements: dict
trial:
  description: The trial that is under way, with C(kernel), C(before) (the kernel that is the default meanwhile) and C(entry) (of GRUB's menu);
    empty if there is none.
  returned: success
  type: dict
reason:
  description: Why there can be no trial.
  returned: success
  type: str
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.dgxspark.cluster.plugins.module_utils import grub
from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import module_runner
from ansible_collections.dgxspark.cluster.plugins.module_utils.system import read_kernel
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, change_result


def run(module: t.Any) -> dict[str, t.Any]:
    """Begin or end the trial; return what differed."""
    given = module.params
    boot = grub.Boot(module_runner(module), given["system_root"].rstrip("/"))
    if given["state"] == "absent":
        return {**change_result(boot.absent(check=module.check_mode)), "trial": {}, "reason": None}
    changes, trial, reason = boot.present(
        read_kernel(given["proc_root"]) or "", given["kernel"], check=module.check_mode
    )
    return {**change_result(changes), "trial": trial, "reason": reason}


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "kernel": {"type": "str"},
            "proc_root": {"type": "path", "default": "/proc"},
            "system_root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    try:
        result = run(module)
    except CollectionError as exc:
        module.fail_json(msg=str(exc), changes=[])
    module.exit_json(**result)


if __name__ == "__main__":
    main()
