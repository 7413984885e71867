# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Order the nodes that differ from their plans."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.modules.k3s_turns import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.k3s.plan import turns


class ActionModule(ControllerAction):
    """Order."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Return the turns."""
        groups, plans = self.variable("groups"), self.of_hosts(args["plans"], {})
        order = [host for name in ("server", "agent") for host in groups.get(self.variable(f"k3s_{name}_group"), [])]
        return {"turns": turns(plans, [host for host in order if host in self.variable("ansible_play_hosts")])}
