#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: roce_counters
short_description: Read a node's RDMA port counters
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Reads what each RDMA port has sent and received, and lost, since its driver was loaded. It changes nothing.
  - A reading before and one after a request prove whether the request went over the fabric. On a ConnectX the data counters count
    RDMA alone; TCP does not move them.
  - In RDMA's shared mode the devices of VFs in pods are seen on the host, too.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.attributes.roots
options:
  hcas:
    description: RDMA devices to read, by name. By default all.
    type: list
    elements: str
    default: []
seealso:
  - module: dgxspark.cluster.fabric_report
"""

EXAMPLES = r"""
- name: Read the counters before a request
  dgxspark.cluster.roce_counters:
  register: before
"""

RETURN = r"""
counters:
  description: One entry for each port of each device.
  returned: success
  type: list
  elements: dict
  contains:
    hca:
      description: The RDMA device.
      returned: success
      type: str
      sample: rocep1s0f0v0
    port:
      description: Its port.
      returned: success
      type: int
      sample: 1
    guid:
      description: The device's node GUID, which tells whether it is still the same one.
      returned: success
      type: str
    counts:
      description: >-
        All counters of C(counters) and C(hw_counters) by name, as the kernel gives them. C(port_xmit_data) and
        C(port_rcv_data) count words of 4 bytes.
      returned: success
      type: dict
      sample: {port_xmit_data: 262144, port_rcv_data: 262144}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.counters import read_counters
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import to_plain


def main() -> None:
    """Read the counters and return them."""
    module = AnsibleModule(
        argument_spec={
            "hcas": {"type": "list", "elements": "str", "default": []},
            "sysfs_root": {"type": "path", "default": "/sys"},
        },
        supports_check_mode=True,
    )
    found = read_counters(Sysfs(module.params["sysfs_root"]), module.params["hcas"])
    module.exit_json(changed=False, counters=to_plain(found))


if __name__ == "__main__":
    main()
