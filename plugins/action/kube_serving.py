# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Render a planned launch as Kubernetes objects, with the fabric plan and the owner's folders."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.modules.kube_serving import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.serving import serving


class ActionModule(ControllerAction):
    """Gather, render."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Return the objects; applies nothing."""
        fabric = self.variable("dgxspark_plan", {}).get("hosts", {})
        return serving(args["plan"], fabric, args["kubernetes"], self.owner_dirs())
