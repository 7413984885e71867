# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""List a cluster's objects of several kinds in one step."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.modules.kube_objects import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask, rollout
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.running import selectors


class ActionModule(ControllerAction):
    """Ask kind by kind."""

    arguments = ARGUMENTS
    _requires_connection = True

    def act(self, args: Plain) -> Plain:
        """Return the objects; failed with the reason if the API does not answer."""
        instance = args["instance"]
        if instance:
            args = {**args, "label_selectors": [*args["label_selectors"], *selectors(instance)]}
        found = [self._list(args, each) for each in args["kinds"]]
        objects = [each for kind in found for each in kind]
        kept = {"kept": rollout.kept(objects, instance)} if instance else {}
        return {"found": found, "objects": objects, **kept}

    def _list(self, args: Plain, each: Plain) -> list[Plain]:
        place = ask.where({**args, "namespace": each["namespace"] or args["namespace"]})
        labels = args["label_selectors"] if each["label_selectors"] is None else each["label_selectors"]
        fields = [f"metadata.name={each['name']}"] if each["name"] else []
        return ask.objects(self, (each["api_version"], each["kind"]), place, labels, self.task_vars, fields)
