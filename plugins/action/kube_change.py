# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read an instance's objects in the cluster, and decide what to change."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.modules.kube_change import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask, image, rollout, running

RBAC = "rbac.authorization.k8s.io/v1"
OWN = (
    ("apps/v1", "StatefulSet"),
    ("v1", "ConfigMap"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    (RBAC, "Role"),
    (RBAC, "RoleBinding"),
)
POD, NODE, ATTACHMENT = ("v1", "Pod"), ("v1", "Node"), ("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition")


class ActionModule(ControllerAction):
    """Ask, decide."""

    arguments = ARGUMENTS
    _requires_connection = True

    def act(self, args: Plain) -> Plain:
        """Return what happens to the instance, what it has, and why the planned ranks could not start."""
        there = ask.of_instance(self, args, OWN, self.task_vars)
        problems: list[str] = []
        ran: Plain = {}
        if args["judge"]:
            everywhere = ask.where({**args, "namespace": None})
            nodes, attachments = (
                ask.objects(self, kind, everywhere, (), self.task_vars) for kind in (NODE, ATTACHMENT)
            )
            problems = rollout.problems(args["served"], nodes, attachments + args["to_come"])
            found = {"Node": nodes, "Pod": ask.of_instance(self, args, [POD], self.task_vars)}
            found["ConfigMap"] = ask.objects(self, OWN[1], ask.where(args), image.OURS, self.task_vars)
            ran = running.ran(found, args["served"]["nodes"])
        # A group must not be kept if its ranks have different images, or another than the first one.
        decided = rollout.decide(args["served"], there, args["restart"] or bool(ran.get("problems")))
        before, switched = rollout.apart(args["served"]["common"], decided["action"])
        more = {"before": before, "switched": switched}
        return {**decided, **more, "there": there, "problems": problems, "ran": ran}
