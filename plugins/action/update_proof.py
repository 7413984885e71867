# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure the cluster, look at the node that was updated, compare."""

from __future__ import annotations

import json
import pathlib

from ansible_collections.dgxspark.cluster.plugins.module_utils.firmware import Firmware
from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import line, read_in
from ansible_collections.dgxspark.cluster.plugins.module_utils.health import Health
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, from_plain, to_plain
from ansible_collections.dgxspark.cluster.plugins.modules.update_proof import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import (
    children,
    hardware,
    update,
    update_firmware,
    update_proof,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.known_bad import load_known_bad


class ActionModule(ControllerAction):
    """Measure, judge."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Return why it is not good."""
        if self._task.check_mode:
            return {"reasons": [], "notes": ["Measured nothing: check mode."]}
        folder, wanted = pathlib.Path(args["folder"]), json.loads(json.dumps(args["wanted"]))
        first, play = folder / "first.json", update_proof.player(children.options() if args["run"] else [])
        if args["turn"] is None:
            kept = update_proof.kept(first, wanted)
            before = kept or update_proof.prove(play, folder, "first", args["run"])
            reasons = update.unfit(before)
            if kept is None and not reasons:
                update_proof.keep(first, wanted, before)
            return {"reasons": reasons, "notes": list(before.why)}
        turn = from_plain(update.Turn, json.loads(json.dumps(args["turn"])), "turn")
        known = update_proof.kept(first, wanted)
        if known is None:
            raise CollectionError(
                f"{first}: the first measurement of this update is gone, and nothing can be compared with it."
            )
        reasons = self._node(turn, args["profile"])
        # A node that is not what it should be needs no benchmark.
        run = [] if reasons else [step for step in args["run"] if step != "bench" or known.tokens is not None]
        after = update_proof.prove(play, folder, turn.host, run, args["wait_s"])
        if not reasons:
            reasons = update.worse(known if run else update.Proof(), after, args["tolerance_percent"])
        return {"reasons": reasons, "notes": list(after.why), "proof": to_plain(after)}

    def _node(self, turn: update.Turn, profile: str) -> list[str]:
        """Return what is wrong on the node itself."""
        read = {
            name: self.of_host(turn.host, f"__spark_update_{name}") or {} for name in ("health", "after", "relisted")
        }
        if not read["after"].get("health"):
            return [f"it could not be read: {read['after'].get('msg') or 'no answer'}"]
        then, now = (read_in(Health, read[name]["health"], f"{turn.host}: health") for name in ("health", "after"))
        dirs = self.owner_dirs()
        rules, bad = hardware.update_rules(profile, dirs), load_known_bad(dirs)
        there = update.machine(read["relisted"].get("stdout", ""), "", now)
        tried = ((self.of_host(turn.host, "__spark_update_trial") or {}).get("trial") or {}).get("kernel")
        found = update.awry(turn, there, rules, bad, (then.gpu_error, now.gpu_error), line(tried) if tried else None)
        flashed = (self.of_host(turn.host, "__spark_update_flashed") or {}).get("firmware")
        return found + update_firmware.awry(
            turn.parts.get(update_firmware.NAME),
            read_in(Firmware, flashed, f"{turn.host}: firmware") if flashed else None,
        )
