#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: node_health
short_description: Read a node's health apart from its fabric
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Reads versions, memory, the GPU's clock and power, temperature and PCIe links, and looks for known lines in the journal, in one
    step. It changes nothing.
  - The journal is searched on the node. Only the lines that matched are returned, with secrets masked.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.attributes.roots
options:
  signatures:
    description:
      - What to look for in the journal, by the name of a signature (of the knowledge base's kind C(signatures)). Each is a Python
        regular expression that is searched for in each line.
    type: dict
    default: {}
  device_ids:
    description: PCI C(vendor:device) of the functions whose PCIe links are read, such as V(15b3:1021).
    type: list
    elements: str
    default: []
  packages:
    description: Packages whose versions are returned where they are installed.
    type: list
    elements: str
    default: []
  units:
    description: Systemd units whose journal is read in addition to the kernel's.
    type: list
    elements: str
    default: []
  since:
    description:
      - How far back to look, in journalctl's syntax, such as V(2 hours ago).
      - By default to the beginning of this boot, and in the kernel's journal also into the boot before it.
    type: str
  certificates:
    description: Folders with certificates (C(*.crt)) whose end is returned; CAs are left out.
    type: list
    elements: path
    default: []
  firmware:
    description: Whether fwupd is asked for the firmware's versions, and what awaits a restart; that takes some seconds.
    type: bool
    default: false
  max_lines:
    description: How many lines of each journal are read, the newest.
    type: int
    default: 5000
  proc_root:
    description: Where procfs is. Tests use their own tree.
    type: path
    default: /proc
  system_root:
    description: Prefix of other file paths. Tests use their own tree.
    type: path
    default: /
requirements:
  - C(journalctl) (or C(dmesg)), C(nvidia-smi) and C(k3s) are used where they are installed
notes:
  - Needs root (C(become)), or a user who may read the journal.
seealso:
  - module: dgxspark.cluster.roce_info
"""

EXAMPLES = r"""
- name: See how the node is doing
  dgxspark.cluster.node_health:
    signatures: {kernel.oom-kill: "Out of memory: Killed process"}
    packages: [libnccl2]
  register: node
"""

RETURN = r"""
health:
  description: How the node is doing. An unknown value is null.
  returned: success
  type: dict
  contains:
    uptime_s:
      description: Seconds since the last boot.
      returned: success
      type: float
    time_s:
      description: The node's clock, in seconds since 1970.
      returned: success
      type: float
    cmdline:
      description: The kernel's command line.
      returned: success
      type: str
    versions:
      description: Versions by component, such as C(kernel), C(driver), C(bios), C(nccl), C(k3s), and of packages by name.
      returned: success
      type: dict
    memory:
      description: The most important values of C(/proc/meminfo), in KiB.
      returned: success
      type: dict
    gpus:
      description: >-
        C(name), C(pstate), C(clock_mhz), C(max_clock_mhz), C(power_w), C(temperature_c) and C(utilisation) of each GPU.
      returned: success
      type: list
      elements: dict
    gpu_error:
      description: Why C(nvidia-smi) reported no GPU.
      returned: success
      type: str
    hottest_c:
      description: The highest temperature of the kernel's thermal zones, in degrees Celsius.
      returned: success
      type: float
    links:
      description: C(pci), C(width) and C(gtps) of the PCIe link of each function asked for.
      returned: success
      type: list
      elements: dict
    journals:
      description: >-
        C(name), C(lines), C(hits) and C(error) of each journal; a hit has C(id), C(first), C(last), C(count), C(excerpt)
        and C(values).
      returned: success
      type: list
      elements: dict
    reboot_for:
      description: The packages that ask for a restart of the node, which may be none by name; null if no restart is pending.
      returned: success
      type: list
      elements: str
    clock_limit:
      description: C(mhz) of the role spark_power's limit, and whether its unit is C(active); null without one.
      returned: success
      type: dict
    blocks_mib:
      description: The free memory in MiB, by the least size of its blocks in MiB.
      returned: success
      type: dict
    certificates:
      description: When each certificate ends, in seconds since 1970, by path.
      returned: success
      type: dict
    firmware:
      description: As M(dgxspark.cluster.node_firmware) returns it; null if it was not asked for.
      returned: success
      type: dict
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import module_runner
from ansible_collections.dgxspark.cluster.plugins.module_utils.health import read_health
from ansible_collections.dgxspark.cluster.plugins.module_utils.signatures import compile_patterns
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, to_plain

ARGUMENTS: dict[str, t.Any] = {
    "signatures": {"type": "dict", "default": {}},
    "device_ids": {"type": "list", "elements": "str", "default": []},
    "packages": {"type": "list", "elements": "str", "default": []},
    "units": {"type": "list", "elements": "str", "default": []},
    "since": {"type": "str"},
    "certificates": {"type": "list", "elements": "path", "default": []},
    "firmware": {"type": "bool", "default": False},
    "max_lines": {"type": "int", "default": 5000},
    "sysfs_root": {"type": "path", "default": "/sys"},
    "proc_root": {"type": "path", "default": "/proc"},
    "system_root": {"type": "path", "default": "/"},
}


def main() -> None:
    """Read the node and return its health."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    given = module.params
    if not 1 <= given["max_lines"] <= 1000000:
        module.fail_json(msg=f"max_lines: {given['max_lines']} must be between 1 and 1000000.")
    try:
        health = read_health(
            Sysfs(given["sysfs_root"]),
            module_runner(module),
            compile_patterns({"id": name, "pattern": given["signatures"][name]} for name in given["signatures"]),
            device_ids=given["device_ids"],
            packages=given["packages"],
            units=given["units"],
            since=given["since"],
            certificates=given["certificates"],
            firmware=given["firmware"],
            max_lines=given["max_lines"],
            proc_root=given["proc_root"],
            system_root=given["system_root"].rstrip("/"),
        )
    except CollectionError as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(changed=False, health=to_plain(health))


if __name__ == "__main__":
    main()
