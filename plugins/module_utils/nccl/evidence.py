# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence in plain form, so that every node can read its own logs and one place can judge them all."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import facts
from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl import lines
from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.log import (
    Evidence,
    Member,
    Process,
    Sign,
    link_key,
)
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, from_plain, to_plain

Plain = dict[str, t.Any]


def pack(evidence: Evidence) -> Plain:
    """Return evidence as dictionaries, lists, texts and numbers."""
    return {
        "sources": dict(evidence.sources),
        "versions": sorted(evidence.versions),
        "settings": dict(evidence.settings),
        "processes": [_pack_process(process) for process in evidence.processes],
        "signs": to_plain(evidence.signs),
        "gave_up": [list(each) for each in evidence.gave_up],
        "stray": sorted(evidence.stray),
    }


def _pack_process(process: Process) -> Plain:
    names = [f.name for f in dataclasses.fields(process) if f.name not in ("members", "loose", "fused")]
    return {
        **{name: to_plain(getattr(process, name)) for name in names},
        "fused": {str(index): name for index, name in process.fused.items()},
        "members": [_pack_member(member) for member in process.members],
        "loose": to_plain(list(process.loose.values())),
    }


def _pack_member(member: Member) -> Plain:
    plain = {f.name: getattr(member, f.name) for f in dataclasses.fields(member)}
    for name in ("rings", "hops", "trees"):
        plain[name] = {str(channel): list(value) for channel, value in plain[name].items()}
    plain |= {"connected": sorted(member.connected), "networks": sorted(member.networks)}
    return plain | {"links": to_plain(list(member.links.values()))}


def unpack(data: t.Any, where: str = "log") -> Evidence:
    """Rebuild evidence from its plain form; CollectionError for anything else."""
    data = facts(data, where)
    try:
        return Evidence(
            {str(name): int(count) for name, count in data["sources"].items()},
            set(map(str, data["versions"])),
            {str(name): str(value) for name, value in data["settings"].items()},
            [_unpack_process(process) for process in data["processes"]],
            [Sign(**sign) for sign in data["signs"]],
            [(int(number), str(place), int(code)) for number, place, code in data["gave_up"]],
            set(map(str, data["stray"])),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise CollectionError(
            f"{where}: this is not what nccl_transport returned under `log` ({type(exc).__name__}: {exc}). "
            "Pass that result on as it is."
        ) from exc


def _unpack_process(data: Plain) -> Process:
    plain = dict(data)
    plain["devices"] = {
        name: tuple(lines.Device(tuple((str(h), int(p), str(k)) for h, p, k in device["ports"])) for device in devices)
        for name, devices in data["devices"].items()
    }
    plain["fused"] = {int(index): name for index, name in data["fused"].items()}
    plain["gids"] = [from_plain(lines.LocalGid, gid) for gid in data["gids"]]
    plain["members"] = [_unpack_member(member) for member in data["members"]]
    loose = [from_plain(lines.Link, link) for link in data["loose"]]
    return Process(**{**plain, "loose": {link_key(link): link for link in loose}})


def _unpack_member(data: Plain) -> Member:
    plain = dict(data)
    for name in ("rings", "hops", "trees"):
        plain[name] = {int(channel): tuple(value) for channel, value in data[name].items()}
    plain |= {"connected": set(data["connected"]), "networks": set(data["networks"])}
    links = [from_plain(lines.Link, link) for link in data["links"]]
    return Member(**{**plain, "links": {link_key(link): link for link in links}})


def merge(parts: t.Sequence[Evidence]) -> Evidence:
    """Combine the evidence of several places."""
    merged = Evidence()
    for part in parts:
        before = len(merged.processes)
        for name, count in part.sources.items():
            merged.sources[name] = merged.sources.get(name, 0) + count
        merged.versions |= part.versions
        merged.settings = {**part.settings, **merged.settings}
        merged.processes += part.processes
        merged.signs += [
            dataclasses.replace(sign, process=None if sign.process is None else sign.process + before)
            for sign in part.signs
        ]
        merged.gave_up += [(number + before, place, code) for number, place, code in part.gave_up]
        merged.stray |= part.stray
    return merged
