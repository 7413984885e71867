# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Say how to ask the model that was just served."""

from __future__ import annotations

import pathlib

from ansible_collections.dgxspark.cluster.plugins.modules.serving_request import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import request
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.terminal import say


class ActionModule(ControllerAction):
    """Format, print."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Print; changes nothing."""
        told = request.lines(
            args["running"],
            args["plan"],
            args["instance"],
            key_file=args["key_file"],
            has_key=args["has_key"],
            reach=args["kubectl"],
        )
        here = pathlib.Path.cwd()
        sources = [pathlib.Path(each) for each in self.variable("ansible_inventory_sources", []) or []]
        typed = [str(path.relative_to(here) if path.is_relative_to(here) else path) for path in sources]
        told += request.measured(typed, args["running"])
        say("\n".join(told))
        return {"lines": told}
