# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge the values that an owner gives a playbook itself, before anything else runs: a refusal names the variable that was typed.

The variables of roles are judged by role_arguments.
"""

from __future__ import annotations

import os
import pathlib
import shlex
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils import bench
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Finding
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import near_names

MOST_SPARKS = 1000
VERIFY_MODE = "dgxspark_verify_mode"
_ALLOWED: dict[str, tuple[str, ...]] = {
    "dgxspark_bench_from": ("controller", "pod"),
    "dgxspark_bench_mode": tuple(bench.ARGUMENTS["mode"]["choices"]),
    "dgxspark_top_show": ("table", "json"),
}
# Least and largest, and what is said of another value.
_WHOLE: dict[str, tuple[int, int, str]] = {
    "sparks": (1, MOST_SPARKS, "Say how many you have, such as sparks=2."),
    "k8s_dgx_replicas": (
        0,
        MOST_SPARKS,
        "Say how many groups there are to be; 0, or nothing, leaves it to the traffic shape.",
    ),
    "dgxspark_top_rounds": (1, 10**6, "Say how many readings there are to be, such as 10."),
    "dgxspark_top_seconds": (1, 86400, "Say how many seconds lie between two readings, such as 10."),
}
# Files that the owner asks for. Before all the work, not after it, something says that one cannot be written.
_FILES = ("dgxspark_models_file", "dgxspark_plan_file", "dgxspark_report_file", "dgxspark_top_file")
_MAKES_FOLDER = frozenset({"dgxspark_report_file"})
NAMES = (VERIFY_MODE, *_WHOLE, *_ALLOWED, *_FILES)


def is_count(value: t.Any, name: str = "sparks") -> bool:
    """Return whether this is a whole number that the variable may have, as a number or as the text that `-e` makes of it."""
    least, most, _remedy = _WHOLE[name]
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    digits = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    return digits and least <= int(text) <= most


def wrong_count(value: t.Any, name: str = "sparks") -> Finding:
    """Return the refusal of such a number."""
    least, most, remedy = _WHOLE[name]
    what = "a number of Sparks" if name == "sparks" else f"a whole number from {least} to {most}"
    return Finding("arguments.wrong", "error", name, f"{_shown(value)} is not {what}.", remedy)


def judge(given: t.Mapping[str, t.Any], verify_modes: t.Iterable[str]) -> list[Finding]:
    """Return what is wrong with values. given: those of NAMES that are set; verify_modes: the names of all modes of verify."""
    found = [wrong_count(value, name) for name, value in given.items() if name in _WHOLE and not is_count(value, name)]
    allowed = {**_ALLOWED, VERIFY_MODE: tuple(verify_modes)}
    for name, value in given.items():
        if name in allowed and value not in allowed[name]:
            message = f"{_shown(value)} is not one of {', '.join(allowed[name])}."
            remedy = near_names.meant(value, allowed[name], 1) if isinstance(value, str) else ""
            found.append(Finding("arguments.wrong", "error", name, message, remedy or "Correct it."))
    return [*found, *(wrong for name in _FILES if name in given for wrong in _no_file(name, given[name]))]


def _no_file(name: str, value: t.Any) -> list[Finding]:
    """Return why a file cannot be written on this machine, if that is so already."""
    if not isinstance(value, str) or not value.strip():
        return [Finding("arguments.wrong", "error", name, f"{_shown(value)} is not a path.", "Name a file.")]
    path = pathlib.Path(os.path.abspath(os.path.expanduser(value)))  # noqa: PTH100, PTH111 - as owner_path does
    there = next(each for each in path.parents if os.path.exists(each))  # noqa: PTH110 - raises nothing
    if os.path.isdir(path):  # noqa: PTH112
        message, remedy = f"{path} is a folder.", "Name a file in it."
    elif not there.is_dir():
        message, remedy = f"{there} is no folder, so no file can be in it.", "Name another path."
    elif there != path.parent and name not in _MAKES_FOLDER:
        message, remedy = (
            f"there is no folder {path.parent}.",
            f"Make it first: mkdir -p {shlex.quote(str(path.parent))}",
        )
    elif not os.access(there, os.W_OK | os.X_OK):
        message, remedy = f"no file can be written in {there}, by this user.", "Name another path."
    else:
        return []
    return [Finding("arguments.wrong", "error", name, message, remedy)]


def _shown(value: t.Any) -> str:
    return repr(value)[:60]
