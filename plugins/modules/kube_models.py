#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: kube_models
short_description: Show all models that a cluster serves, and which profiles would fit next to them
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Reads the ranks of all instances and the nodes, and returns for each Spark its memory, each instance's share, VFs and shares of
    the GPU, taken and free; and for each profile whether it would fit now, or what stands in its way.
  - M(dgxspark.cluster.launch_plan) decides whether a profile fits into the free memory. What was not seen is listed,
    and what depends on it is V(not known).
  - Fails if the API cannot be reached. Runs on the controller through its action plugin.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.kube
  - dgxspark.cluster.serving.knowledge
options:
  cluster:
    description: The option O(dgxspark.cluster.launch_plan#module:cluster), with what the nodes report now.
    type: dict
    required: true
  node_names:
    description: A host's Kubernetes node name, if it differs.
    type: dict
    default: {}
  hardware:
    description: The hardware class, for the floor that its memory guard keeps free.
    type: str
    default: spark
  traffic_shape:
    description: The traffic shape whose variant of each profile is planned. Empty for the profile itself.
    type: str
    default: ""
  without:
    description: An instance to treat as stopped, to see what could take its place.
    type: str
    default: ""
requirements:
  - jsonschema, jmespath and packaging (Python libraries, on the controller)
seealso:
  - module: dgxspark.cluster.kube_running
  - module: dgxspark.cluster.launch_plan
"""

EXAMPLES = r"""
- name: See what else would fit
  dgxspark.cluster.kube_models:
    cluster:
      hosts: "{{ groups['dgx'] }}"
      fabric: "{{ dgxspark_plan.hosts }}"
      nodes: "{{ dict(groups['dgx'] | zip(groups['dgx'] | map('extract', hostvars, 'dgxspark_roce'))) }}"
  register: models
  run_once: true
  delegate_to: localhost
"""

RETURN = r"""
models:
  description: >-
    C(sparks), C(instances), C(fits) (each with C(profile), C(state) (V(fits), V(tight), V(does not fit) or V(not known)), C(hosts), C(gib),
    C(missing_gib), C(reasons) and C(start), the variables it is started with) and C(unseen). Memory in GiB.
  type: dict
  returned: success
table:
  description: RV(models) as lines for a terminal.
  type: list
  elements: str
  returned: success
page:
  description: RV(models) as a self-contained HTML page.
  type: str
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "cluster": {"type": "dict", "required": True},
    "node_names": {"type": "dict", "default": {}},
    "hardware": {"type": "str", "default": "spark"},
    "traffic_shape": {"type": "str", "default": ""},
    "without": {"type": "str", "default": ""},
    "knowledge_dirs": {"type": "list", "elements": "path", "default": []},
    "kubeconfig": {"type": "path"},
    "context": {"type": "str"},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
