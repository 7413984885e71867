#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: node_survey
short_description: Read what else is on a node that a fabric must not disturb
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Reads the IPv4 networks in use (routes, Docker's and K3s's configuration), the LLDP neighbours of interfaces, and which other
    stacks are present, with the ports and the memory that they hold, in one step. It changes nothing.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.attributes.roots
  - dgxspark.cluster.attributes.proc_root
  - dgxspark.cluster.attributes.system_root
options:
  netdevs:
    description: Interfaces whose LLDP neighbours to return.
    type: list
    elements: str
    default: []
  stacks:
    description:
      - How other stacks are recognized, by name. Each has lists of C(units), of C(files) (paths), and of regular expressions that
        are searched for in the name and image of a container (C(containers)), in a process's cgroup (C(cgroups)) or in its command
        line (C(commands)).
    type: dict
    default: {}
requirements:
  - iproute2 on the node; C(networkctl), C(lldpctl), C(docker) and C(nvidia-smi) are used where they are installed
notes:
  - Needs root (C(become)) for the ports of other users' processes, and for C(docker).
seealso:
  - module: dgxspark.cluster.roce_info
  - module: dgxspark.cluster.node_health
"""

EXAMPLES = r"""
- name: See what is on the node
  dgxspark.cluster.node_survey:
    netdevs: [enp1s0f0np0]
    stacks:
      spark-vllm-docker: {containers: ["^vllm_node "]}
  register: node
"""

RETURN = r"""
survey:
  description: What is on the node.
  returned: success
  type: dict
  contains:
    networks:
      description: C(network), C(dev) of its route and C(why) for each IPv4 network in use.
      returned: success
      type: list
      elements: dict
    uplink:
      description: The interface of the default route.
      returned: success
      type: str
    k3s:
      description: The networks of C(pods) and C(services) that K3s's configuration names. Null where it has none.
      returned: success
      type: dict
    neighbours:
      description: C(netdev), C(chassis), C(port), C(system) and C(bridge) (whether it is a switch) of each LLDP neighbour.
      returned: success
      type: list
      elements: dict
    stacks:
      description: C(id), C(signs), C(processes), C(memory_mib), C(ports) and C(pids) of each stack that was seen.
      returned: success
      type: list
      elements: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import module_runner
from ansible_collections.dgxspark.cluster.plugins.module_utils.survey import Signs, read_survey
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, from_plain, to_plain


def main() -> None:
    """Read the node and return the result."""
    module = AnsibleModule(
        argument_spec={
            "netdevs": {"type": "list", "elements": "str", "default": []},
            "stacks": {"type": "dict", "default": {}},
            "sysfs_root": {"type": "path", "default": "/sys"},
            "proc_root": {"type": "path", "default": "/proc"},
            "system_root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    given = module.params
    try:
        survey = read_survey(
            Sysfs(given["sysfs_root"]),
            module_runner(module),
            netdevs=given["netdevs"],
            stacks={name: from_plain(Signs, signs, f"stacks.{name}") for name, signs in given["stacks"].items()},
            proc_root=given["proc_root"],
            system_root=given["system_root"].rstrip("/"),
        )
    except CollectionError as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(changed=False, survey=to_plain(survey))


if __name__ == "__main__":
    main()
