# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge the nodes' facts together with the roles' variables."""

from __future__ import annotations

import time

from ansible_collections.dgxspark.cluster.plugins.modules.doctor_report import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import (
    doctor_certificates,
    doctor_report,
    knowledge,
    power,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.settings import hardware_name

OF_HOST = ("dgxspark_roce", "__sriov_roce_read", "__doctor_fault", "__doctor_health")


class ActionModule(ControllerAction):
    """Gather, judge."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Return the report and its table."""
        plan = self.variable("dgxspark_plan")
        read = {name: self.of_hosts(name, only=plan["hosts"]) for name in OF_HOST}
        hosts = {host: doctor_report.seen(*(read[name][host] for name in OF_HOST)) for host in read[OF_HOST[0]]}
        options = {key: self.variable(f"sriov_roce_{key}") for key in ("trust", "spoof_check")}
        meta = {
            **args,
            "finished": knowledge.now(),
            "versions": self.versions(),
            "vf_options": {key: value for key, value in options.items() if value is not None},
            "netplan_path": self.variable("netplan_vf_path"),
            "foreign_stanzas": self.variable("netplan_vf_foreign_stanzas"),
            "now_s": time.time(),
            "pinned_gid": self.variable("nccl_gid_index") is not None,
            "needed_gib": ((self.variable("k8s_dgx_plan") or {}).get("memory") or {}).get("free_gib"),
        }
        hardware, dirs = hardware_name(self.variable("dgxspark_fabric", {})), self.owner_dirs()
        if self.variable("spark_power_state") == "present":
            meta["clock_limit"] = power.limit(hardware, self.variable("spark_power_clock_mhz"), dirs)
        meta["certificates"] = self._certificates(args["kubeconfig_file"], list(plan["hosts"]))
        return doctor_report.build(plan, hosts, hardware, meta, dirs)

    def _certificates(self, kubeconfig: str | None, hosts: list[str]) -> Plain:
        """Return when the certificates end that the controller sees: of its kubeconfig, and of the gateway, at any Spark's port."""
        found = {doctor_certificates.KUBECONFIG: doctor_certificates.of_kubeconfig(kubeconfig) if kubeconfig else None}
        if self.variable("model_gateway_state") == "present" and self.variable("model_gateway_tls_certificate"):
            places = [str(self.of_host(host, "ansible_host", host)) for host in hosts]
            port = int(self.variable("model_gateway_node_port", doctor_certificates.PORT))
            found[doctor_certificates.GATEWAY] = doctor_certificates.shown_at(places, port)
        return {name: end for name, end in found.items() if end is not None}
