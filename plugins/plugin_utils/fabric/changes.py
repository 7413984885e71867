# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the roles would change on a node, and the reasons not to."""

from __future__ import annotations

import dataclasses
import functools
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import netplan, persist, vfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import read_in
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    Change,
    CollectionError,
    Finding,
    Node,
    PlannedHost,
    from_plain,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric import netplan_file
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.settings import near

PARTS = ("sriov", "netplan")

_program = functools.cache(persist.program)


class Difference(t.TypedDict):
    """The differences, and what the roles would refuse (severity `error`) or report about them."""

    changes: list[Change]
    findings: list[Finding]


def changes(
    planned: t.Any,
    node: t.Any,
    options: t.Mapping[str, t.Any] | None = None,
    parts: t.Sequence[str] = PARTS,
    path: str = netplan.PATH,
    foreign_stanzas: str = "refuse",
) -> Difference:
    """Return the differences between a node and its part of the plan, and the reasons not to apply them.

    planned, node: the plain forms of PlannedHost and Node. options: for the VFs, fields of `vfs.Options`. parts:
    `sriov` (functions, VFs and what restores them) and `netplan` (addresses). path: netplan's file. foreign_stanzas:
    `refuse` or `absorb` those of other netplan files for the same interfaces.
    """
    known = [field.name for field in dataclasses.fields(vfs.Options)]
    for option in options or {}:
        if option not in known:
            raise CollectionError(f"options.{option}: there is no such option. {near(option, known)}")
    for part in parts:
        if part not in PARTS:
            raise CollectionError(f"parts: there is no part {part!r}. {near(part, PARTS)}")
    host, seen = from_plain(PlannedHost, planned), read_in(Node, node, "node")
    found: Difference = {"changes": [], "findings": []}
    if not host.functions:
        return found
    if seen.changing:  # what was read may not last: the modules wait for that run, and look again
        found["changes"].append(Change("node", "the change of another run", seen.changing, None))
    if "sriov" in parts:
        chosen = from_plain(vfs.Options, dict(options or {}), "options")
        gone = vfs.gone(seen, host.functions)
        found["changes"] += vfs.compare(seen, gone) + vfs.drift(seen, host.functions, chosen, _program())
        found["findings"] += vfs.refusals(seen, host.functions, chosen) + vfs.removal_refusals(seen, gone)
    if "netplan" in parts:
        differs = netplan_file.changes(seen, host, path)
        found["changes"] += differs
        found["findings"] += netplan.interruptions(seen) if differs else []
        found["findings"] += netplan_file.refusals(seen, host, path, foreign_stanzas)
    return found
