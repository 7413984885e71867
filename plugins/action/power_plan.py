# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide a node's clock limit on the controller, which has the owner's folders."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.modules.power_plan import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import power
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain


class ActionModule(ControllerAction):
    """Decide."""

    arguments = ARGUMENTS

    def act(self, asked: Plain) -> Plain:
        """Return the unit."""
        return power.plan(asked["profile"], asked["clock_mhz"], self.owner_dirs())
