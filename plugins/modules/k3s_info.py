#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: k3s_info
short_description: Read a node's K3s installation and what K3s needs to know about the node
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Reads architecture, platform versions, cgroups, addresses, open ports, free disk, the GPU's driver, and the installed
    K3s with the digests of its files, in one step. It changes nothing.
  - No token or password is returned. For secret files it only says whether they are as planned.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  data_dir:
    description: K3s's data folder.
    type: path
    default: /var/lib/rancher/k3s
  registries:
    description: Planned content of C(registries.yaml), as text. If unset, no such file is planned.
    type: str
notes:
  - Needs root (C(become)), for K3s's files.
seealso:
  - module: dgxspark.cluster.k3s_node
"""

EXAMPLES = r"""
- name: Read what the node has
  dgxspark.cluster.k3s_info:
  register: node

- name: Show the installed release
  ansible.builtin.debug:
    msg: "{{ node.machine.k3s.version }}"
"""

RETURN = r"""
machine:
  description: What was read from the node.
  returned: success
  type: dict
  contains:
    architecture:
      description: The machine's architecture as the kernel names it.
      returned: success
      type: str
      sample: aarch64
    platform:
      description: Versions by component (C(kernel), C(driver), C(firmware), C(nccl), C(bios)), and the kernel's C(cmdline).
      returned: success
      type: dict
    memory_mib:
      description: The memory in MiB.
      returned: success
      type: int
    swap_mib:
      description: The swap space in MiB.
      returned: success
      type: int
    memory_controller:
      description: Whether cgroup v2 has its memory controller.
      returned: success
      type: bool
    addresses:
      description: The global addresses of each interface.
      returned: success
      type: dict
    listening:
      description: TCP ports that something listens on.
      returned: success
      type: list
      elements: int
    free_mib:
      description: Free disk space in MiB, by path.
      returned: success
      type: dict
    gpu:
      description: >-
        The C(driver), and whether it has NVIDIA's container C(toolkit) and C(runtime) and a C(cdi) specification for this driver;
        null without a GPU.
      returned: success
      type: dict
    k3s:
      description: >-
        The installed C(version) (null without one), its C(role), C(sha256), whether its unit is C(active) and C(enabled), what this
        collection recorded about it (C(ours)), whether C(token) and C(registries) are as planned, the release whose C(images) were
        installed, the C(archives) in its images folder, whether there is C(data), and the digests of C(files).
      returned: success
      type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import module_runner
from ansible_collections.dgxspark.cluster.plugins.module_utils.k3s.layout import DATA
from ansible_collections.dgxspark.cluster.plugins.module_utils.k3s.machine import read_machine
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, to_plain


def main() -> None:
    """Read the node and return the result."""
    module = AnsibleModule(
        argument_spec={
            "data_dir": {"type": "path", "default": DATA},
            "registries": {"type": "str", "no_log": True},
        },
        supports_check_mode=True,
    )
    try:
        given = module.params
        machine = read_machine(module_runner(module), data=given["data_dir"], registries=given["registries"])
    except CollectionError as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(changed=False, machine=to_plain(machine))


if __name__ == "__main__":
    main()
