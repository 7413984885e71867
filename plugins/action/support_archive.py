# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the archive on the controller, which has the inventory and its secrets, so that raw texts never reach a disk."""

from __future__ import annotations

import pathlib
import typing as t

from ansible.errors import AnsibleError

from ansible_collections.dgxspark.cluster.plugins.module_utils import node_files
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.modules.support_archive import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.support import archive, controller


class ActionModule(ControllerAction):
    """Check the arguments, redact, write."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Return what is in the archive; the result contains only redacted text."""
        most, base = args["most_kib"] * 1024, pathlib.Path.cwd()
        if not 1 <= args["most_kib"] <= 65536:
            raise CollectionError(f"most_kib: {args['most_kib']} must be between 1 and 65536.")
        private = controller.of_this_machine()
        for host in dict.fromkeys([*args["hosts"], *args["names"]]):
            spark = host in args["hosts"]
            private += controller.of_host(host, self._variables(host), spark, base)
            private += archive.identities(host, args["hosts"].get(host), spark)
        pieces = controller.reports(pathlib.Path(args["reports"]), 8 * most) if args["reports"] else []
        pieces += [controller.as_json(name, value) for name, value in args["plans"].items() if value]
        missing: dict[str, str] = {}
        for host, seen in args["hosts"].items():
            found, why = archive.pieces_of(host, seen, most)
            pieces += found
            missing |= {host: why} if why else {}
        about = {"collection": knowledge.collection_version(), "most_kib": args["most_kib"], **args["about"]}
        name = pathlib.Path(args["path"]).name.partition(".")[0]
        made = archive.build(name, private, pieces, missing, about)
        if not self._task.check_mode:
            node_files.write(str(pathlib.Path(args["path"]).absolute()), made.content, 0o600)
        told = {"files": list(made.files), "replaced": made.replaced, "lines": list(made.lines)}
        return {"changed": True, "path": args["path"], **told}

    def _variables(self, host: str) -> Plain:
        """Return a host's variables that may hold something private; the others are not even templated."""
        hostvars: t.Any = self.task_vars.get("hostvars") or {}
        if host not in hostvars:
            return {}
        found = {}
        for key in [key for key, raw in hostvars.raw_get(host).items() if controller.tells(key, raw)]:
            try:
                found[key] = hostvars[host][key]
            except AnsibleError:  # a variable that cannot be templated, such as an undefined one, was not used either
                continue
        return found
