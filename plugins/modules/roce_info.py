#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: roce_info
short_description: Read a node's RoCE fabric functions, VFs and network configuration
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Reads the fabric's physical functions (PFs), their virtual functions (VFs) with RDMA devices and GID tables, netplan's
    configuration, and the digests of files, in one step. It changes nothing.
  - RDMA devices are matched to netdevs by the kernel's links, never by name.
  - A VF whose netdev is in another network namespace is read there. V(pod) means that processes run in that namespace, V(stranded)
    that none did for 20 seconds (a pod's namespace gets its VFs before its first process), V(unbound) that the VF has no driver or
    no netdev anywhere.
  - From netplan's files, only what is needed to find conflicts is returned, never a password.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.attributes.roots
  - dgxspark.cluster.attributes.netns_root
  - dgxspark.cluster.attributes.proc_root
  - dgxspark.cluster.attributes.system_root
  - dgxspark.cluster.attributes.run
options:
  device_ids:
    description: PCI C(vendor:device) of the fabric's physical functions, such as V(15b3:1021) for a ConnectX-7.
    type: list
    elements: str
    required: true
  files:
    description: Absolute paths of files whose SHA-256 and mode to return.
    type: list
    elements: str
    default: []
  units:
    description: Systemd units whose enablement to return.
    type: list
    elements: str
    default: []
  claim:
    description:
      - Whether this run is going to change the node. Runs that were started earlier then no longer do, even if this one finds nothing
        to change.
    type: bool
    default: false
requirements:
  - iproute2 on the node; C(ibv_devinfo), C(rdma) and C(devlink) are used where they are installed
notes:
  - Needs root (C(become)) where a VF's netdev is not in the host's network namespace, and for netplan's files.
seealso:
  - module: dgxspark.cluster.roce_gid
"""

EXAMPLES = r"""
- name: Read what the node has
  dgxspark.cluster.roce_info:
    device_ids: ["15b3:1021"]
    units: [systemd-networkd.service]
  register: node

- name: Show where the first function's VFs are
  ansible.builtin.debug:
    msg: "{{ node.roce.functions[0].vfs | map(attribute='place') | list }}"
"""

RETURN = r"""
roce:
  description: What the node has. An unknown value is null, never a guess.
  returned: success
  type: dict
  contains:
    kernel:
      description: The kernel's release.
      returned: success
      type: str
      sample: 6.14.0-1013-nvidia
    mem_available_kib:
      description: C(MemAvailable) of C(/proc/meminfo), in KiB.
      returned: success
      type: int
      sample: 117440512
    ranks:
      description: Ranks of models that the collection serves here, as C(rank0 (pid)).
      returned: success
      type: list
      elements: str
      sample: ["rank0 (4711)"]
    functions:
      description: >-
        The physical functions in order of their PCI address, each with C(pci), C(device_id), C(driver),
        C(driver_version), C(firmware), C(phys_port), C(phys_switch), C(netdev), C(hca), C(totalvfs), C(numvfs),
        C(eswitch) and C(vfs).
      returned: success
      type: list
      elements: dict
      contains:
        pci:
          description: The PCI address.
          returned: success
          type: str
          sample: "0000:01:00.0"
        netdev:
          description: The netdev with C(name), C(mac), C(mtu), C(operstate), C(carrier), C(speed_mbps), C(ipv4), C(arp), C(routes).
          returned: success
          type: dict
        hca:
          description: The RDMA device with C(name), C(node_guid) and C(ports), each with its C(gids).
          returned: success
          type: dict
        vfs:
          description: >-
            The VFs by index, each with C(pci), C(driver), C(netdev), C(hca), C(admin_mac), C(trust), C(spoof_check),
            C(place), C(users), the processes that have queue pairs on it, and C(open_by), those that have its device open.
          returned: success
          type: list
          elements: dict
    netplan:
      description: Netplan's C(renderer), the state of its C(service), C(version), C(files), and the id of an unconfirmed change in C(pending).
      returned: success
      type: dict
    other:
      description: The node's other interfaces that have an IPv4 address.
      returned: success
      type: list
      elements: dict
    files:
      description: C(path), C(sha256) and C(mode) of the files asked for; digest and mode are null for an absent one.
      returned: success
      type: list
      elements: dict
    units:
      description: The enablement of the units asked for, such as C(enabled), C(disabled), C(not-found).
      returned: success
      type: dict
    failed:
      description: The collection's units that have failed.
      returned: success
      type: list
      elements: str
    changing:
      description: The run that is changing the node at this moment, in words. Null if there is none.
      returned: success
      type: str
    record_fault:
      description: What is wrong with the record of the state before the first change, or C(missing). Null if nothing is.
      returned: success
      type: str
    rdma_netns:
      description: How RDMA devices relate to network namespaces, C(shared) or C(exclusive). Null without RDMA.
      returned: success
      type: str
"""

import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import module_runner
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.turn import RUN_OPTIONS, Turn
from ansible_collections.dgxspark.cluster.plugins.module_utils.facts import read_node
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, to_plain

ARGUMENTS: dict[str, t.Any] = {
    "device_ids": {"type": "list", "elements": "str", "required": True},
    "files": {"type": "list", "elements": "str", "default": []},
    "units": {"type": "list", "elements": "str", "default": []},
    "claim": {"type": "bool", "default": False},
    "run": {"type": "dict", "options": RUN_OPTIONS},
    "sysfs_root": {"type": "path", "default": "/sys"},
    "proc_root": {"type": "path", "default": "/proc"},
    "netns_root": {"type": "path", "default": "/run/netns"},
    "system_root": {"type": "path", "default": "/"},
}


def main() -> None:
    """Read the node and return the result."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    given = module.params
    try:
        if given["claim"] and given["run"] and not module.check_mode:
            Turn(given["run"], time.monotonic, given["system_root"]).enter()
        node = read_node(
            Sysfs(given["sysfs_root"]),
            module_runner(module),
            device_ids=given["device_ids"],
            files=given["files"],
            units=given["units"],
            proc_root=given["proc_root"],
            netns_root=given["netns_root"],
            system_root=given["system_root"].rstrip("/"),
        )
    except PermissionError as exc:
        why = "reading the fabric and changing it needs root: set ansible_become: true (and give -K where sudo asks for a password)."
        module.fail_json(msg=str(CollectionError(f"{exc.filename}: {exc.strerror}; {why}")))
    except CollectionError as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(changed=False, roce=to_plain(node))


if __name__ == "__main__":
    main()
