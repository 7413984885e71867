# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who has an engine's image, who pulls it, who copies it from whom, and whether there is room: decided before anything moves."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.images.reference import Reference, parse
from ansible_collections.dgxspark.cluster.plugins.module_utils.images.room import bytes_needed, short
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import GIB, FabricError, from_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import networks
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.parcels import chain as chains

Plain = dict[str, t.Any]
Seen = t.Mapping[str, t.Mapping[str, t.Any]]


@dataclass(frozen=True)
class Choices(chains.Choices):
    """What an owner chooses. refresh: ask the registry anew what a tag stands for. pull: imagePullPolicy of the ranks."""

    refresh: bool = False
    pull: str | None = None


def decide(
    reference: str,
    seen: Seen,
    fabric: t.Mapping[str, t.Any] | None = None,
    choices: t.Mapping[str, t.Any] | None = None,
    prospect: t.Mapping[str, t.Any] | None = None,
) -> Plain:
    """Return what to do.

    seen: host → what image_info returned, in the order of ranks. prospect: what the registry or the archive said where somebody
    has to fetch it: `digest`, `total`, `listing`, and `bytes` of an archive that is copied to the node (before they were asked:
    none, and room is not judged).

    `reference` is what pods shall ask for (None before anybody knows the digest), `fetch` whether the `holder` has to get it,
    `have` who has to work before the copy (the holder, and who has it under another name alone), `lacking` who copies, `chain`
    their links, `need_gib` the most that one of them needs on its disks, `clean` who has something left of an interrupted run;
    `moves` and `problems` are in words.
    """
    chosen, asked, hosts = from_plain(Choices, dict(choices or {}), "image"), parse(reference), list(seen)
    order = chains.order(hosts, chosen.source, "k8s_dgx_image_host")
    digest = prospect["digest"] if prospect else _known(asked, seen, order, chosen.refresh)
    whole = [host for host in order if digest and seen[host]["here"] and seen[host]["digest"] == digest]
    holder = whole[0] if whole else order[0]
    lacking = [host for host in hosts if host != holder and host not in whole]
    unnamed = [host for host in whole if host != holder and not seen[host]["kept"]]
    size = prospect["total"] if prospect else (seen[holder]["total"] if whole else 0)
    work = not whole or bool(lacking) or not seen[holder]["kept"]
    problems = _ways(chosen, asked)
    links: Plain = {}
    if lacking:
        try:
            links = chains.chain(holder, lacking, hosts, networks.hosts(fabric), chosen)
        except FabricError as exc:
            problems.append(str(exc))
    needs = _needs(holder, lacking, int((prospect or {}).get("bytes") or 0), not whole)
    for host, need in needs.items():
        if words := short(seen[host]["rooms"], size, chosen.reserve_gib, **need):
            problems.append(f"{host}: {words}")
    have = [*([holder] if work else []), *unnamed]
    return {
        "reference": asked.pinned(digest) if digest else None,
        "asked": reference,
        "digest": digest,
        "holder": holder,
        "fetch": not whole,
        "have": have,
        "lacking": lacking,
        "clean": [host for host in hosts if seen[host]["staged"] and host not in (*have, *lacking)],
        "chain": links,
        "need_gib": max(sum(bytes_needed(size, **need).values()) for need in needs.values()) / GIB,
        "listing": (prospect or seen[holder]).get("listing"),
        "moves": _moves(asked, seen, digest, whole, holder, lacking, links, size),
        "problems": problems,
    }


def _known(asked: Reference, seen: Seen, order: t.Sequence[str], refresh: bool) -> str | None:
    """Return the digest that is meant, as far as names and nodes say it; a whole image says more than a mere record."""
    if asked.digest or refresh:
        return asked.digest
    first = sorted(order, key=lambda host: not seen[host]["here"])
    return next((str(seen[host]["digest"]) for host in first if seen[host]["digest"]), None)


def _ways(chosen: Choices, asked: Reference) -> list[str]:
    if chosen.pull == "Always":
        return [
            f"k8s_dgx_serving.image_pull is Always: each Spark would ask the registry for {asked.spelled} at each start. Leave it out "
            "(IfNotPresent), or say k8s_dgx_image_state=unmanaged."
        ]
    return []


def _needs(holder: str, lacking: t.Sequence[str], archive: int, fetch: bool) -> dict[str, dict[str, t.Any]]:
    """Return host → what it has to take, as images/room.py wants it."""
    needs: dict[str, dict[str, t.Any]] = {host: {"keep": True, "lay": True} for host in lacking}
    needs[holder] = {"keep": fetch, "lay": bool(lacking) or bool(archive), "more": archive}
    return needs


def _moves(
    asked: Reference,
    seen: Seen,
    digest: str | None,
    whole: t.Sequence[str],
    holder: str,
    lacking: t.Sequence[str],
    links: t.Mapping[str, t.Any],
    size: int,
) -> list[str]:
    what = f"{size / GIB:.1f} GiB of {asked.spelled}" if size else asked.spelled
    what += f" ({digest[:19]}…)" if digest else ""
    made = [f"{holder}: {what} to be fetched"] if not whole else []
    made += [
        f"{host}: {asked.spelled} gets the name for which the kubelet looks" for host in whole if not seen[host]["kept"]
    ]
    return made + [
        f"{host}: {what} to be copied from {links.get(host, {}).get('parent', ['?'])[0]}" for host in lacking
    ]
