#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_host
short_description: Configure NCCL for a node's own processes
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Writes NCCL's environment, limits on locked memory and stack, and sysctls, each into its own file, and skips those
    for which nothing is set.
  - An existing file that this module did not write is never touched. The module then fails, names it, and changes
    nothing.
  - With O(state=absent) its files are removed, sysctls return to their previous values, and folders that it created are
    removed if empty.
  - Running services and logins keep their limits. RV(restart) says whether they have to be restarted.
extends_documentation_fragment:
  - dgxspark.cluster.attributes
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.attributes.proc_root
  - dgxspark.cluster.attributes.system_root
options:
  state:
    description: Whether the node has these settings, or those that it had before.
    type: str
    choices: [present, absent]
    default: present
  environment:
    description:
      - Variables by name, as P(dgxspark.cluster.nccl_env#filter) returns them. None may be empty.
      - All are written to C(/etc/dgxspark/nccl.env), which a shell, C(EnvironmentFile=) of systemd and C(--env-file) of Docker
        read. Those of NCCL are also written to C(/etc/nccl.conf), which NCCL reads by itself; a process's own environment wins over
        it.
    type: dict
    default: {}
  memlock:
    description:
      - Memory that a process may lock, in KiB, or V(unlimited). NCCL's buffers are locked when they are registered with the HCA.
      - Set for logins in C(/etc/security/limits.d), and for services and the containers that they start with
        C(DefaultLimitMEMLOCK).
      - Left alone where this is not set.
    type: str
  stack:
    description:
      - The stack of a thread in KiB, 8192 or more, as the soft limit of logins. Left alone where this is not set.
      - V(unlimited) is not accepted, since glibc then gives threads 2 MiB, with which NCCL is known to crash.
    type: int
  domains:
    description: Whose logins the limits are for, as in limits.conf(5). V(*) does not include root.
    type: list
    elements: str
    default: ["*", root]
  sysctls:
    description: Sysctls by name. They are also set immediately.
    type: dict
    default: {}
notes:
  - Needs root (C(become)).
seealso:
  - plugin: dgxspark.cluster.nccl_env
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Configure NCCL for processes of this node
  dgxspark.cluster.nccl_host:
    environment: "{{ (dgxspark_plan.hosts | dgxspark.cluster.nccl_env(options={'attachment': 'host'}))[inventory_hostname] }}"
    memlock: unlimited
    stack: 65536

- name: Restore the previous settings
  dgxspark.cluster.nccl_host:
    state: absent
"""

RETURN = r"""
changes:
  description: What was changed, or would be.
  returned: success
  type: list
  elements: dict
  contains:
    subject:
      description: The file or sysctl.
      type: str
    what:
      description: V(file), V(mode) or V(sysctl).
      type: str
    before:
      description: The previous value. Null if there was no file.
      type: raw
    after:
      description: The new value. Null if there is no file.
      type: raw
restart:
  description: Whether limits have changed, so that services have to be restarted and users have to log in again.
  returned: success
  type: bool
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.host import HostSettings, NcclHost
from ansible_collections.dgxspark.cluster.plugins.module_utils.oserrors import reason
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.fabric.rollback import Host
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, lines, text_diff, to_plain

ARGUMENTS: dict[str, t.Any] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "environment": {"type": "dict", "default": {}},
    "memlock": {"type": "str"},
    "stack": {"type": "int"},
    "domains": {"type": "list", "elements": "str", "default": ["*", "root"]},
    "sysctls": {"type": "dict", "default": {}},
    "system_root": {"type": "path", "default": "/"},
    "proc_root": {"type": "path", "default": "/proc"},
}


def wish(given: t.Mapping[str, t.Any]) -> HostSettings | None:
    """Return the wanted settings; None to restore the previous ones."""
    if given["state"] == "absent":
        return None
    texts = {key: {str(k): str(v) for k, v in given[key].items()} for key in ("environment", "sysctls")}
    return HostSettings(
        texts["environment"], given["memlock"], given["stack"], tuple(given["domains"]), texts["sysctls"]
    )


def main() -> None:
    """Run as a module."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    root = module.params["system_root"].rstrip("/")
    node = NcclHost(Host(root), module.params["proc_root"], reload=not root)
    try:
        outcome = node.run(wish(module.params), check_mode=module.check_mode)
    except CollectionError as exc:
        module.fail_json(msg=str(exc))
    except OSError as exc:
        module.fail_json(msg=lines(f"{exc.filename or 'A file'}: {reason(exc)}"))
    module.exit_json(
        changed=bool(outcome.changes),
        changes=to_plain(list(outcome.changes)),
        restart=outcome.restart,
        diff=[text_diff(*changed) for changed in outcome.texts],
    )


if __name__ == "__main__":
    main()
