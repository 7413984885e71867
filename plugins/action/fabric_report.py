# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge the evidence on the controller, which has the thresholds, the bands and the owner's folders."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.modules.fabric_report import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import hardware, knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.settings import hardware_name
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.modes import entry, mode_of
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.report import STEP_IDS, build_report
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.values import EARLIER, evidence_of

RESULTS = ("nccl", "pod", "tokens", "wire")


class ActionModule(ControllerAction):
    """Gather, judge."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Return the report and the table."""
        strangers = [name for name in args["results"] if name not in RESULTS]
        if strangers:
            raise CollectionError(f"results: there is no step {strangers[0]!r}. Known: {', '.join(RESULTS)}.")
        plan, name = self.variable("dgxspark_plan"), hardware_name(self.variable("dgxspark_fabric", {}))
        dirs = self.owner_dirs()
        meta = {key: args[key] for key in ("started", "plan_fault")}
        meta |= {"finished": knowledge.now(), "versions": self.versions()}
        known = {"bands": knowledge.load("bands", dirs), "knowledge_dirs": tuple(dirs)}
        thresholds = hardware.thresholds(name, dirs)
        seen = self.of_hosts("__verify_seen", EARLIER, only=plan["hosts"])
        evidence = evidence_of(plan, seen, thresholds, {**args["results"], **meta, **known})
        return build_report(evidence, meta, mode=mode_of(entry(args["mode"], dirs), STEP_IDS))
