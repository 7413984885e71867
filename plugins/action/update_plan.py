# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what each Spark gets, from what the role has registered and earlier runs have noted."""

from __future__ import annotations

import pathlib
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import MIB, read_in, read_json
from ansible_collections.dgxspark.cluster.plugins.module_utils.health import Health
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, from_plain, to_plain
from ansible_collections.dgxspark.cluster.plugins.modules.update_plan import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import hardware, update, update_firmware, update_k3s
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.knowledge import Entry
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.known_bad import load_known_bad


class ActionModule(ControllerAction):
    """Gather, decide."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Return the update and its lines."""
        listed, offered = self.of_hosts("__spark_update_listed"), self.of_hosts("__spark_update_offered")
        machines, begun = {}, {}
        for host, health in self.of_hosts("__spark_update_health").items():
            if not (health or {}).get("health"):
                raise CollectionError(
                    f"{host} could not be read. Leave it out (-l), or see why: dgxspark.cluster.doctor."
                )
            read = read_in(Health, health["health"], f"{host}: health")
            machines[host] = update.machine(listed[host]["stdout"], (offered[host] or {}).get("stdout", ""), read)
            note = pathlib.Path(args["folder"]) / f"node-{host}.json"
            if note.exists():
                try:
                    begun[host] = from_plain(update.Begun, read_json(note, most=MIB), str(note))
                except (OSError, ValueError) as exc:
                    raise CollectionError(f"{note}: it is not the record of an update ({exc}). Remove it.") from exc
        dirs = self.owner_dirs()
        known_bad = load_known_bad(dirs)
        made = update.plan(
            machines,
            _versions(args["packages"]),
            hardware.update_rules(args["profile"], dirs),
            known_bad,
            begun,
            canary=args["canary"] or None,
            restarts=args["restarts"] and not args["k3s"],
            parts=[self._k3s(args, begun) if args["k3s"] else self._firmware(args, known_bad, begun)],
            only_stated=args["only_stated"] or args["k3s"],
        )
        return {**to_plain(made), "lines": update.plan_lines(made)}

    def _k3s(self, args: Plain, begun: t.Mapping[str, update.Begun]) -> update.Part:
        """Return K3s's part."""
        groups = self.variable("groups")
        servers, agents = (groups.get(self.variable(f"k3s_{x}_group", f"k3s_{x}"), []) for x in ("server", "agent"))
        update_k3s.check(servers, [*args["packages"], *args["firmware"]])
        there = update_k3s.installed(self.of_hosts("__k3s_read", {}))
        return update_k3s.plan(self.of_hosts("__k3s_plan", {}), there, [*servers, *agents], args["canary"], begun)

    def _firmware(self, args: Plain, known_bad: t.Sequence[Entry], begun: t.Mapping[str, update.Begun]) -> update.Part:
        """Return the firmware's part."""
        stated = _versions(args["firmware"])
        machines, stale = update_firmware.reported(self.of_hosts("__spark_update_firmware") if stated else {})
        return update_firmware.plan(machines, stated, known_bad, begun, restarts=args["restarts"], stale=stale)


def _versions(given: Plain) -> dict[str, str]:
    return {str(name): str(version) for name, version in given.items()}
