#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: doctor_report
short_description: Diagnose a running cluster from its nodes' readings
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Compares the nodes' readings with the plan, with each other, and with known problems. For each finding it gives
    symptom, cause and remedy.
  - The verdict is V(error) where anything of severity error was found, else V(warning), else V(well). What could not be
    judged is listed.
  - It reads the variables of the play's hosts itself. C(dgxspark_plan) is the plan; for each host, C(dgxspark_roce),
    C(__sriov_roce_read) and C(__doctor_fault) are what M(dgxspark.cluster.roce_info) returned or why it returned nothing, and
    C(__doctor_health) is the result of M(dgxspark.cluster.node_health). C(nccl_gid_index), C(sriov_roce_trust),
    C(sriov_roce_spoof_check), C(netplan_vf_path) and C(k8s_dgx_plan) are what the roles were run with. If the inventory has the role
    P(dgxspark.cluster.model_gateway#role) with a certificate, the one that a Spark's port shows is judged.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  started:
    description: When the diagnosis began, for the report.
    type: str
    required: true
  plan_fault:
    description: Why the plan refuses the nodes' readings, if it does.
    type: str
  kubeconfig_file:
    description: The controller's kubeconfig. When its client certificate ends is judged; nothing is asked with it.
    type: path
requirements:
  - jsonschema (Python library, on the controller)
seealso:
  - module: dgxspark.cluster.fabric_report
  - module: dgxspark.cluster.node_health
"""

EXAMPLES = r"""
- name: Diagnose the cluster
  dgxspark.cluster.doctor_report:
    started: "2026-01-01T00:00:00Z"
  register: outcome
  run_once: true
"""

RETURN = r"""
report:
  description: The report, whose C(verdict) is V(well), V(warning) or V(error). Its format is defined by a JSON Schema.
  type: dict
  returned: success
table:
  description: The report as lines for a terminal.
  type: list
  elements: str
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "started": {"type": "str", "required": True},
    "plan_fault": {"type": "str"},
    "kubeconfig_file": {"type": "path"},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
