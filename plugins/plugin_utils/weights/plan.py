# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who has which weights, who downloads, who copies from whom, and whether there is room: decided before anything is moved."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import GIB, FabricError, PlannedHost, from_plain
from ansible_collections.dgxspark.cluster.plugins.module_utils.weights import cache
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import networks

Plain = dict[str, t.Any]


@dataclass(frozen=True)
class Choices:
    """What an owner chooses. source: the host that downloads (None: the first).

    vf_index: of the instance, whose VFs may be in pods. addresses: host → address for copies, instead of the fabric's.
    """

    source: str | None = None
    reserve_gib: float = 20.0
    port: int = 47110
    patience_s: float = 60.0
    vf_index: int = 0
    addresses: dict[str, str] = field(default_factory=dict)
    verify: bool = False


def repos(plan: t.Mapping[str, t.Any], revisions: t.Mapping[str, str] | None = None) -> list[Plain]:
    """Return what the ranks of a launch plan load: `repo` and `revision` (the owner's, the profile's, or None)."""
    chosen = dict(revisions or {})
    for repo, revision in chosen.items():
        if not re.match(r"^[0-9a-f]{40}$", str(revision)):
            raise FabricError(
                f"k8s_dgx_revisions: {repo}: {revision!r} is no commit: 40 hexadecimal digits, as the hub shows them under "
                "Files, History. Branches and tags move."
            )
    return [
        {"repo": each["repo"], "revision": chosen.get(each["repo"], each.get("revision"))} for each in plan["weights"]
    ]


def decide(
    wanted: t.Sequence[t.Mapping[str, t.Any]],
    seen: t.Mapping[str, t.Mapping[str, t.Any]],
    fabric: t.Mapping[str, t.Any] | None = None,
    choices: t.Mapping[str, t.Any] | None = None,
    prospects: t.Mapping[str, t.Mapping[str, t.Any]] | None = None,
) -> Plain:
    """Return `repos` (what to do for each), `moves` (in words) and `problems` (in words; nothing may begin with one).

    wanted: as `repos` returns it. seen: host → what weights_info returned, in the order of ranks. prospects: what the hub
    or the folder said of repositories that have to be fetched (before they were asked: none, and room is not judged).
    """
    chosen = from_plain(Choices, dict(choices or {}), "weights")
    hosts = list(seen)
    if chosen.source is not None and chosen.source not in hosts:
        raise FabricError(
            f"k8s_dgx_weights_host: {chosen.source!r} has no rank of this model. Those that have: {', '.join(hosts)}."
        )
    planned = networks.hosts(fabric)
    made, moves, problems = [], [], []
    needs = dict.fromkeys(hosts, 0)
    for each in wanted:
        entry = _one(each, seen, chosen, hosts)
        entry["chain"] = {}
        prospect = (prospects or {}).get(entry["repo"])
        if entry["lacking"]:
            try:
                entry["chain"] = chain(entry["holder"], entry["lacking"], hosts, planned, chosen)
            except FabricError as exc:
                problems.append(str(exc))
        if entry["fetch"]:
            size = prospect["total"] if prospect else 0
            needs[entry["holder"]] += prospect["missing"] if prospect else 0
            moves.append(
                f"{entry['holder']}: {_amount(prospect['missing'] if prospect else None)}{entry['repo']} to be fetched"
            )
        else:
            size = cache.checked(entry["manifest"], entry["repo"]).size
        for host in entry["lacking"]:
            there = seen[host]["weights"].get(entry["repo"], {})
            same = there.get("manifest") and entry["manifest"] and there["manifest"]["revision"] == entry["revision"]
            missing = there["missing"] if same else size
            needs[host] += missing
            moves.append(
                f"{host}: {_amount(missing)}{entry['repo']} to be copied from {entry['chain'].get(host, {}).get('parent', ['?'])[0]}"
            )
        made.append(entry)
    problems += _room(needs, seen, chosen.reserve_gib)
    return {"repos": made, "moves": moves, "problems": problems}


def _amount(count: int | None) -> str:
    return f"{count / GIB:.1f} GiB of " if count else ""


def _one(
    each: t.Mapping[str, t.Any], seen: t.Mapping[str, t.Mapping[str, t.Any]], chosen: Choices, hosts: t.Sequence[str]
) -> Plain:
    """Return who holds a repository (or is to fetch it) and who lacks it."""
    repo, revision = str(each["repo"]), each.get("revision")
    have = {host: seen[host]["weights"].get(repo) or {} for host in hosts}
    first = [chosen.source] if chosen.source else []
    order = [*first, *(host for host in hosts if host not in first)]
    whole = [
        host for host in order if have[host].get("whole") and revision in (None, have[host]["manifest"]["revision"])
    ]
    holder = whole[0] if whole else order[0]
    manifest = have[holder]["manifest"] if whole else None
    commit = manifest["revision"] if manifest else None
    lacking = [
        host
        for host in hosts
        if host != holder
        and (chosen.verify or not (have[host].get("whole") and have[host]["manifest"]["revision"] == commit))
    ]
    return {
        "repo": repo,
        "revision": commit if manifest else revision,
        "holder": holder,
        "fetch": not whole or chosen.verify,
        "manifest": manifest,
        "lacking": lacking,
    }


def chain(
    holder: str,
    lacking: t.Sequence[str],
    hosts: t.Sequence[str],
    planned: t.Mapping[str, PlannedHost],
    chosen: Choices,
) -> dict[str, Plain]:
    """Return host → its link (see module_utils/weights/relay.py). FabricError where the fabric leads to nobody.

    Each pulls from the one that joined last where a wire leads there: a chain on a switch, along the cables on a ring. Others
    that have it hand it on only where the chain does not reach.
    """
    start = list(hosts).index(holder)
    waiting = [host for host in (*hosts[start:], *hosts[:start]) if host in lacking]
    joined = [*(host for host in hosts if host != holder and host not in lacking), holder]
    parents: dict[str, tuple[str, str]] = {}
    while waiting:
        found = next(
            (
                (host, parent, way)
                for parent in reversed(joined)
                for host in waiting
                if (way := _way(parent, host, planned, chosen))
            ),
            None,
        )
        if found is None:
            raise FabricError(
                f"{waiting[0]} and {holder} share no wire of the fabric, nor does any other node lead there. Lay the fabric "
                "first (site.yml --tags fabric), or name addresses for copies in k8s_dgx_copy_addresses."
            )
        host, parent, address = found
        parents[host] = (parent, address)
        joined.append(host)
        waiting.remove(host)
    return {
        host: {
            "name": host,
            "port": chosen.port,
            "patience_s": chosen.patience_s,
            "parent": list(parents[host]) if host in parents else None,
            "children": [child for child, (parent, _address) in parents.items() if parent == host],
            "listen": sorted({address for parent, address in parents.values() if parent == host}),
        }
        for host in joined
        if host == holder or host in parents or any(parent == host for parent, _address in parents.values())
    }


def _way(parent: str, host: str, planned: t.Mapping[str, PlannedHost], chosen: Choices) -> str | None:
    """Return the address at which a host reaches its parent: by VFs that no pod takes, else by any others."""
    if parent in chosen.addresses:
        return chosen.addresses[parent]
    if parent not in planned or host not in planned:
        return None
    own = {vf.subnet for function in planned[host].functions for vf in function.vfs}
    shared = [vf for function in planned[parent].functions for vf in function.vfs if vf.subnet in own]
    free = [vf for vf in shared if vf.index != chosen.vf_index and vf.purpose != "serving"]
    best = sorted(free or shared, key=lambda vf: vf.purpose != "bench")
    return best[0].address if best else None


def _room(needs: t.Mapping[str, int], seen: t.Mapping[str, t.Mapping[str, t.Any]], reserve_gib: float) -> list[str]:
    return [
        f"{host}: {seen[host]['free_mib'] / 1024:.1f} GiB are free where weights are kept, but {need / GIB:.1f} GiB are to come and "
        f"{reserve_gib:g} GiB are to stay free. Free room, or put the caches on another disk (k8s_dgx_serving.cache_dir)."
        for host, need in needs.items()
        if need and seen[host]["free_mib"] / 1024 < need / GIB + reserve_gib
    ]
