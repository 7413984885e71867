# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Divide the Sparks into groups, and run `serve` for each of them, one after the other."""

from __future__ import annotations

import json
import pathlib

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.modules.serving_groups import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import children
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import launch_plan
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import groups
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.terminal import say

LIMIT_S = 6 * 3600.0


class ActionModule(ControllerAction):
    """Divide, serve."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Return the groups, and what speaks for their number."""
        plain = json.loads(json.dumps(args))  # Ansible's strings carry their origin
        hosts, overrides = plain["hosts"], plain["overrides"]

        def plan(sparks: int) -> Plain:
            of_group = groups.overrides_of(overrides, sparks)
            return launch_plan(plain["profile"], of_group, plain["knowledge_dirs"])

        found = groups.divisions(len(hosts), plan)
        count = plain["groups"] or groups.choose(found, plain["traffic_shape"]).groups
        divided = groups.members(hosts, count)
        made = groups.instances(divided, overrides, plain["state"])
        chosen = next(one for one in found if one.groups == count)
        told: Plain = {"groups": [{"name": one.name, "hosts": list(one.hosts)} for one in made]}
        told["table"] = groups.table(found, chosen)
        if chosen.refused and plain["state"] == "present":
            raise CollectionError(f"{count} groups of {chosen.sparks} Sparks: {chosen.refused}")
        if self._task.check_mode:
            return told
        options, folder = children.options(), pathlib.Path(plain["folder"])
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for one in made:
            say(f"{one.name}: {plain['state']} on {', '.join(one.hosts)} …")
            more = ["-l", ",".join(one.hosts), "-e", json.dumps(one.variables), "dgxspark.cluster.serve"]
            log = folder / f"{one.name}.log"
            status, late = children.run([*children.PROGRAM, *options, *more], log, LIMIT_S)
            if status or late:
                raise CollectionError(
                    f"{one.name} on {', '.join(one.hosts)}: see {log}. The groups after it were not touched."
                )
        return {**told, "changed": True}
