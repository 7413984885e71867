# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask the API for an instance's objects, and return what runs."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.modules.kube_running import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask, image
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.running import KINDS, running


class ActionModule(ControllerAction):
    """Ask, judge."""

    arguments = ARGUMENTS
    _requires_connection = True

    def act(self, args: Plain) -> Plain:
        """Return what runs; failed with the reason if nothing does or the API does not answer."""
        found = {kind[1]: ask.of_instance(self, args, [kind], self.task_vars) for kind in KINDS}
        found["ConfigMap"] = ask.objects(self, ("v1", "ConfigMap"), ask.where(args), image.OURS, self.task_vars)
        found["Node"] = ask.objects(self, ("v1", "Node"), ask.where({**args, "namespace": None}), (), self.task_vars)
        return running(args["instance"], args["namespace"], found, args["node_names"])
