# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of what a node's functions had before the first change: `sriov_vf` restores it at the end, so it must be whole."""

from __future__ import annotations

import pathlib
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.fabric.document import MOST, document_of
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Finding

JOURNAL = "/var/lib/dgxspark/fabric-before.json"
CONFIG = "/etc/dgxspark/fabric.json"  # what the functions have now
MISSING = "missing"
_THEN = "The kernel's defaults then count as a function's previous state: no VFs, MTU 1500, default sysctls, link down."


def read(path: str, system_root: str = "") -> t.Mapping[str, t.Any] | None:
    """Return a document; None if there is none. Raises OSError, and ValueError that says what is damaged."""
    try:
        with pathlib.Path(system_root + path).open(encoding="utf-8") as file:
            return document_of(file.read(MOST + 1))
    except FileNotFoundError:
        return None


def fault(system_root: str = "") -> str | None:
    """Return what is wrong with the record: what is damaged, or MISSING although functions were changed; None if it is well."""
    try:
        there = read(JOURNAL, system_root) is not None
    except (OSError, ValueError) as exc:
        return str(exc)
    return MISSING if not there and pathlib.Path(system_root + CONFIG).exists() else None


def finding(what: str | None) -> list[Finding]:
    """Return the finding for such a fault."""
    if what is None:
        return []
    if what == MISSING:
        message = "the record of the node's state before the first change is missing."
        return [Finding("sriov.record-missing", "warning", JOURNAL, message, _THEN)]
    message = f"the record of the node's state before the first change is damaged ({what})."
    remedy = f"Put a copy of it back, or move it away (`mv {JOURNAL} /root/`), and run again. {_THEN}"
    return [Finding("sriov.record-damaged", "error", JOURNAL, message, remedy)]
