#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: roce_gid
short_description: Check that every VF's own IPv4 is in its GID table as RoCE v2
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - For each planned VF, looks for the VF's own IPv4 address in the GID table of its RDMA device, as RoCE v2 and for the
    VF's own netdev, and returns the entry's index. The index differs by node and drifts, so it is never assumed.
  - Fails when a VF has no such entry, and names the cause - no IPv4 address, link down, only link-local entries, another address,
    RoCE v1 only, another netdev, a table that was not updated, no RDMA device, VF missing, stranded or without a driver.
  - Waits a bounded time for the entries. It does not wait for what waiting cannot fix, such as a missing VF.
  - A VF that is in a live pod is checked in the pod's network namespace.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.attributes.roots
  - dgxspark.cluster.attributes.netns_root
  - dgxspark.cluster.attributes.proc_root
options:
  functions:
    description: This host's functions as the plan has them.
    type: list
    elements: dict
    required: true
  device_ids:
    description: PCI C(vendor:device) of the fabric's physical functions, such as V(15b3:1021) for a ConnectX-7.
    type: list
    elements: str
    required: true
  timeout:
    description: How long to wait for all entries, in seconds. V(0) checks once.
    type: int
    default: 30
requirements:
  - iproute2 on the node
notes:
  - Needs root (C(become)) where a VF's netdev is not in the host's network namespace.
seealso:
  - module: dgxspark.cluster.roce_info
  - plugin: dgxspark.cluster.gid_index
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Validate the GID of every VF of this node
  dgxspark.cluster.roce_gid:
    functions: "{{ my_functions }}"
    device_ids: ["15b3:1021"]
  register: checked

- name: Show which index each RDMA device has
  ansible.builtin.debug:
    var: checked.indices
"""

RETURN = r"""
gids:
  description: The valid entry of each VF that has one.
  returned: always
  type: list
  elements: dict
  contains:
    slot:
      description: The function's slot.
      returned: always
      type: str
      sample: p0f0
    vf:
      description: The VF's index.
      returned: always
      type: int
      sample: 0
    hca:
      description: The RDMA device.
      returned: always
      type: str
      sample: rocep1s0f0v0
    port:
      description: The RDMA device's port.
      returned: always
      type: int
      sample: 1
    netdev:
      description: The netdev, by its name in its current network namespace.
      returned: always
      type: str
      sample: enp1s0f0v0
    address:
      description: The IPv4 address.
      returned: always
      type: str
      sample: 10.100.0.1
    index:
      description: The entry's index in the GID table.
      returned: always
      type: int
      sample: 3
    place:
      description: Where the VF is, V(host) or V(pod).
      returned: always
      type: str
      sample: host
indices:
  description: The index by RDMA device.
  returned: always
  type: dict
  sample: {rocep1s0f0v0: 3}
findings:
  description: What is wrong, each with a stable C(id), C(severity), C(subject), C(message) and C(remedy).
  returned: always
  type: list
  elements: dict
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import module_runner
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.gids import HOPELESS, judge
from ansible_collections.dgxspark.cluster.plugins.module_utils.facts import read_node
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    CollectionError,
    PlannedFunction,
    from_plain,
    lines,
    to_plain,
)


def main() -> None:
    """Poll until all GIDs are right, waiting cannot help, or the time is up."""
    module = AnsibleModule(
        argument_spec={
            "functions": {"type": "list", "elements": "dict", "required": True},
            "device_ids": {"type": "list", "elements": "str", "required": True},
            "timeout": {"type": "int", "default": 30},
            "sysfs_root": {"type": "path", "default": "/sys"},
            "proc_root": {"type": "path", "default": "/proc"},
            "netns_root": {"type": "path", "default": "/run/netns"},
        },
        supports_check_mode=True,
    )
    given = module.params
    deadline = time.monotonic() + given["timeout"]
    try:
        planned = [from_plain(PlannedFunction, f, f"functions[{i}]") for i, f in enumerate(given["functions"])]
        while True:
            node = read_node(
                Sysfs(given["sysfs_root"]),
                module_runner(module),
                device_ids=given["device_ids"],
                proc_root=given["proc_root"],
                netns_root=given["netns_root"],
                details=False,
            )
            entries, findings = judge(node, planned)
            if not findings or time.monotonic() >= deadline or HOPELESS & {finding.id for finding in findings}:
                break
            time.sleep(min(1.0, max(0.0, deadline - time.monotonic())))
    except CollectionError as exc:
        module.fail_json(msg=str(exc), gids=[], indices={}, findings=[])
    result = {
        "changed": False,
        "gids": to_plain(entries),
        "indices": {entry.hca: entry.index for entry in entries},
        "findings": to_plain(findings),
    }
    if findings:
        total = sum(len(function.vfs) for function in planned)
        head = f"{len(entries)} of {total} VFs have a valid GID."
        module.fail_json(msg=lines(" ".join([head, *map(str, findings)])), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
