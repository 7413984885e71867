# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""List what a number of Sparks can run, on the controller, which has the profiles; asks no node."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import to_plain
from ansible_collections.dgxspark.cluster.plugins.modules.model_catalogue import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report import catalogue_page
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import catalogue, catalogue_text


class ActionModule(ControllerAction):
    """Plan every profile, report."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Return the list as data, lines and page."""
        made = catalogue(args["sparks"], args["sort"], args["knowledge_dirs"])
        return {
            "models": to_plain(made),
            "table": catalogue_text.lines(made),
            "page": catalogue_page.page(made),
        }
