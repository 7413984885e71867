# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare two logs on the controller, which has them and the owner's folders."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.modules.matrix_compare import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import compare


class ActionModule(ControllerAction):
    """Read, compare."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Return the comparison and its table."""
        return compare.matrix_compare(args["before"], args["after"], self.owner_dirs())
