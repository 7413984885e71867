# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's Python that does not start, as a shim of pyenv without a version, in one sentence with its remedy."""

from __future__ import annotations

import typing as t

_NOT_STARTED = (126, 127)  # a shell's exit status for a program that cannot be run, and for one that it does not find
_SAID = 300  # characters


def fault(result: t.Mapping[str, t.Any], interpreter: str = "") -> str | None:
    """Return what a module's result says of the Python that was to run it, or None. interpreter: its path, if known."""
    if result.get("rc") not in _NOT_STARTED or not isinstance(result.get("module_stderr"), str):
        return None
    output = result["module_stderr"] or str(result.get("module_stdout") or "")
    said = next((line.strip() for line in output.splitlines() if line.strip()), "")[:_SAID].rstrip(".")
    return (
        f"The node's Python{f' {interpreter}' if interpreter else ''} does not start{f': {said}' if said else ''}. Name another one "
        "in the inventory, `ansible_python_interpreter: /usr/bin/python3`, or with -e ansible_python_interpreter=/usr/bin/python3."
    )
