# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what the cluster has of an instance, and decide."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.modules.kube_change import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask, rollout

OWN = (("apps/v1", "StatefulSet"), ("v1", "ConfigMap"), ("networking.k8s.io/v1", "NetworkPolicy"))
NODE, ATTACHMENT = ("v1", "Node"), ("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition")


class ActionModule(ControllerAction):
    """Ask, decide."""

    arguments = ARGUMENTS
    _requires_connection = True

    def act(self, asked: Plain) -> Plain:
        """Return what happens to the instance, what it has, and why the planned ranks could not start."""
        there = ask.of_instance(self, asked, OWN, self.task_vars)
        problems: list[str] = []
        if asked["judge"]:
            everywhere = ask.where({**asked, "namespace": None})
            nodes, attachments = (
                ask.objects(self, kind, everywhere, (), self.task_vars) for kind in (NODE, ATTACHMENT)
            )
            problems = rollout.problems(asked["served"], nodes, attachments + asked["to_come"])
        return {**rollout.decide(asked["served"], there, asked["restart"]), "there": there, "problems": problems}
