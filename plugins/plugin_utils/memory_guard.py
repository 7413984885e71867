# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the memory guard installs on a node, built from a hardware class's figures. Returns text; touches no files."""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs import load_guard
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.load_guard import CONFIG, FOLDER, SOCKET
from ansible_collections.dgxspark.cluster.plugins.module_utils.source import source_of
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import hardware, knowledge

Plain = dict[str, t.Any]

SCRIPT = "/usr/local/lib/dgxspark/load-guard"
UNIT = "dgxspark-load-guard"
EARLYOOM = "earlyoom.service"
PARTS = ("kill", "load", "protected")
_DROP_IN = "50-dgxspark-memory.conf"
_UNITS = "/etc/systemd/system"
_HEAD = "# Written by the Ansible role dgxspark.cluster.memory_guard; its next run undoes changes by hand.\n"
_SAFE = re.compile(r"^[A-Za-z0-9:_.?*+\[\]-]+$")
KIB_PER_MIB = 1024


def plan(profile: str, overrides: t.Any = None, parts: t.Sequence[str] = PARTS, dirs: t.Sequence[str] = ()) -> Plain:
    """Return `files` (path, content, mode), `enable` (units), `restart` (units), and `adjust` (unit -> OOM score).

    profile: a hardware class. overrides: figures that replace its own, such as {"kill": {"term_mib": 768}}. parts: any of
    `kill`, `load` and `protected`. Raises CollectionError if the schema refuses a figure or figures contradict each other.
    """
    try:
        entry = hardware.guard(profile, dirs)
    except CollectionError as exc:
        raise CollectionError(f"memory_guard_profile: {exc}") from None
    entry = knowledge.merged(entry, overrides or {})
    body = {key: value for key, value in entry.items() if key not in ("origin", "replaces")}
    knowledge.validate("memory_guard", body, "memory_guard_overrides")
    _check(entry)
    files: list[Plain] = []
    enable, restart = [], []
    if "protected" in parts:
        files += [_file(f"{_UNITS}/{p['unit']}.d/{_DROP_IN}", _protection(p)) for p in entry["protected"]]
    if "kill" in parts:
        files.append(_file(f"{_UNITS}/{EARLYOOM}.d/60-dgxspark-kill.conf", _kill(entry["kill"])))
        enable.append(EARLYOOM)
        restart.append(EARLYOOM)
    if "load" in parts:
        files += [_file(path, text, mode) for path, text, mode in _load(entry["load"])]
        enable.append(f"{UNIT}.socket")
        restart.append(f"{UNIT}.socket")
    adjust = {p["unit"]: p["oom_score_adjust"] for p in entry["protected"] if "oom_score_adjust" in p}
    return {
        "files": files,
        "enable": enable,
        "restart": restart,
        "adjust": adjust if "protected" in parts else {},
        "earlyoom": "kill" in parts,
    }


def _file(path: str, content: str, mode: str = "0644") -> Plain:
    return {"path": path, "content": content, "mode": mode}


def _check(entry: Plain) -> None:
    kill, load = entry["kill"], entry["load"]
    if kill["kill_mib"] >= kill["term_mib"]:
        raise CollectionError(
            f"memory_guard: kill.kill_mib {kill['kill_mib']} must be less than kill.term_mib {kill['term_mib']}: a process gets "
            "SIGTERM before SIGKILL."
        )
    if load["floor_mib"] <= kill["term_mib"]:
        raise CollectionError(
            f"memory_guard: load.floor_mib {load['floor_mib']} must be more than kill.term_mib {kill['term_mib']}: the page "
            "cache is dropped before a process is killed."
        )
    for key in ("prefer", "avoid"):
        for pattern in kill[key]:
            if not _SAFE.match(pattern):
                raise CollectionError(
                    f"memory_guard: kill.{key}: {pattern!r} has a character with a special meaning in unit files. Use letters, "
                    "digits and . ? * + [ ] - _ :"
                )
    slices = {p["unit"]: p.get("min_mib", 0) for p in entry["protected"]}
    needed = sum(mib for unit, mib in slices.items() if unit.endswith(".service") and unit != "k3s-agent.service")
    if slices.get("system.slice", 0) < needed:
        raise CollectionError(
            f"memory_guard: protected: system.slice has min_mib {slices.get('system.slice', 0)}, and its units together "
            f"{needed}: units cannot have more than their slice."
        )


def _protection(protected: Plain) -> str:
    kind = "Slice" if protected["unit"].endswith(".slice") else "Service"
    lines = [f"[{kind}]"]
    if "min_mib" in protected:
        lines.append(f"MemoryMin={protected['min_mib']}M")
    if "low_mib" in protected:
        lines.append(f"MemoryLow={protected['low_mib']}M")
    if "oom_score_adjust" in protected:
        lines.append(f"OOMScoreAdjust={protected['oom_score_adjust']}")
    return _HEAD + "\n".join(lines) + "\n"


def earlyoom_arguments(kill: Plain) -> list[str]:
    """Return earlyoom's arguments: sizes in KiB; swap is ignored, as it does not help the GPU; names, not paths."""
    sizes = f"{kill['term_mib'] * KIB_PER_MIB},{kill['kill_mib'] * KIB_PER_MIB}"
    return [
        *("-M", sizes, "-s", "100", "-r", "3600"),
        *("--prefer", f"^({'|'.join(kill['prefer'])})"),
        *("--avoid", f"^({'|'.join(kill['avoid'])})"),
    ]


def _kill(kill: Plain) -> str:
    arguments = " ".join(f'"{word}"' if "(" in word else word for word in earlyoom_arguments(kill))
    return f"{_HEAD}[Service]\nExecStart=\nExecStart=/usr/bin/earlyoom {arguments}\n"


def _load(load: Plain) -> t.Iterator[tuple[str, str, str]]:
    yield SCRIPT, f"#!/usr/bin/python3 -IS\n{source_of(load_guard)}", "0755"
    yield CONFIG, json.dumps(load, indent=1, sort_keys=True) + "\n", "0644"
    yield (
        f"{_UNITS}/{UNIT}.socket",
        # Ranks run as root in their pods; they mount the folder read-only and may connect.
        f"{_HEAD}[Unit]\nDescription=Loads of models on this node\n\n[Socket]\nListenStream={FOLDER}/{SOCKET}\n"
        "SocketMode=0600\nDirectoryMode=0755\n\n[Install]\nWantedBy=sockets.target\n",
        "0644",
    )
    yield (
        f"{_UNITS}/{UNIT}.service",
        f"{_HEAD}[Unit]\nDescription=Keep memory free while a model is loaded\n\n[Service]\nType=exec\n"
        f"ExecStart=/usr/bin/python3 -I -S {SCRIPT}\nMemoryMin=32M\nOOMScoreAdjust=-900\nNice=-10\n",
        "0644",
    )
