# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which host gets weights from where, from the hosts' state."""

from __future__ import annotations

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, to_plain
from ansible_collections.dgxspark.cluster.plugins.modules.weights_plan import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.weights import plan


class ActionModule(ControllerAction):
    """Gather, decide."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Return the repositories, and what to do for each."""
        launch = self.variable("model_weights_plan")
        wanted = plan.repos(launch, self.variable("model_weights_revisions"))
        loaded = {} if args["served"] is None else {"loaded_by": plan.loaded_by(wanted, args["served"])}
        if not args["seen"]:
            return {"wanted": wanted, **loaded}
        hosts = [rank["host"] for rank in launch["ranks"]]
        seen = {host: self.of_host(host, args["seen"]) for host in hosts}
        unseen = [host for host in hosts if not seen[host]]
        if unseen:
            raise CollectionError(
                f"{', '.join(unseen)}: the weights there were not read. The limit must include the host of every rank."
            )
        answers = [self.of_host(host, args["asked"], {}) for host in hosts if args["asked"]]
        prospects = {
            result["item"]["repo"]: result["prospect"]
            for answer in answers
            for result in answer.get("results", [])
            if "prospect" in result
        }
        fabric = (self.variable("dgxspark_plan") or {}).get("hosts", {})
        choices = self._choices(launch, args["image_gib"])
        return {"wanted": wanted, **loaded, **to_plain(plan.decide(wanted, seen, fabric, choices, prospects))}

    def _choices(self, launch: Plain, image_gib: float) -> Plain:
        source = self.variable("model_weights_host")
        return {
            "reserve_gib": float(self.variable("model_weights_disk_reserve_gib")) + image_gib,
            "port": int(self.variable("model_weights_copy_port")),
            "patience_s": float(self.variable("model_weights_copy_patience")),
            "vf_index": (launch.get("instance") or {}).get("vf_index", 0),
            "addresses": self.variable("model_weights_copy_addresses"),
            "verify": boolean(self.variable("model_weights_verify"), strict=False),
            **({"source": source} if source else {}),
        }
