# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which node downloads weights, which copies them from which, and whether there is room: decided before anything moves."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import GIB, CollectionError, from_plain
from ansible_collections.dgxspark.cluster.plugins.module_utils.weights import cache
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import networks
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import INSTANCE_LABEL
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.transfer import chain as chains

Plain = dict[str, t.Any]


def repos(plan: t.Mapping[str, t.Any], revisions: t.Mapping[str, str] | None = None) -> list[Plain]:
    """Return what the ranks of a launch plan load: `repo` and `revision` (the owner's, the profile's, or None)."""
    chosen = dict(revisions or {})
    for repo, revision in chosen.items():
        if not re.match(r"^[0-9a-f]{40}$", str(revision)):
            raise CollectionError(
                f"model_weights_revisions: {repo}: {revision!r} is not a commit: 40 hexadecimal digits, as the hub shows them under "
                "Files, History. Branches and tags move."
            )
    return [
        {"repo": each["repo"], "revision": chosen.get(each["repo"], each.get("revision"))} for each in plan["weights"]
    ]


def loaded_by(wanted: t.Sequence[t.Mapping[str, t.Any]], served: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    """Return the instances (NAMESPACE/NAME) whose objects name one of the repositories: an engine's command names what it loads."""
    names = "|".join(re.escape(each["repo"]) for each in wanted)
    named = re.compile(rf"(?<![\w./-])(?:{names})(?![\w./-])")
    return sorted(
        {
            f"{each['metadata']['namespace']}/{(each['metadata'].get('labels') or {}).get(INSTANCE_LABEL, each['metadata']['name'])}"
            for each in served
            if any(named.search(text) for text in (each.get("data") or {}).values())
        }
    )


def decide(
    wanted: t.Sequence[t.Mapping[str, t.Any]],
    seen: t.Mapping[str, t.Mapping[str, t.Any]],
    fabric: t.Mapping[str, t.Any] | None = None,
    choices: t.Mapping[str, t.Any] | None = None,
    prospects: t.Mapping[str, t.Mapping[str, t.Any]] | None = None,
) -> Plain:
    """Return `repos` (what to do for each), `moves` (in words) and `problems` (in words; any of them prevents a start).

    wanted: from `repos`. seen: host → result of weights_info, in rank order. prospects: what the hub or the folder reported
    about repositories to fetch (before that: none, and room is not judged).
    """
    chosen = from_plain(chains.Choices, dict(choices or {}), "weights")
    hosts = list(seen)
    order = chains.order(hosts, chosen.source, "model_weights_host")
    planned = networks.hosts(fabric)
    made, moves, problems = [], [], []
    needs = dict.fromkeys(hosts, 0)
    for each in wanted:
        entry = _one(each, seen, order, chosen.verify)
        entry["chain"] = {}
        prospect = (prospects or {}).get(entry["repo"])
        if entry["lacking"]:
            try:
                entry["chain"] = chains.chain(entry["holder"], entry["lacking"], hosts, planned, chosen)
            except CollectionError as exc:
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
    each: t.Mapping[str, t.Any], seen: t.Mapping[str, t.Mapping[str, t.Any]], order: t.Sequence[str], verify: bool
) -> Plain:
    """Return who holds a repository (or must fetch it) and who lacks it. order: all hosts; the first that has it holds it."""
    repo, revision = str(each["repo"]), each.get("revision")
    have = {host: seen[host]["weights"].get(repo) or {} for host in seen}
    whole = [
        host for host in order if have[host].get("whole") and revision in (None, have[host]["manifest"]["revision"])
    ]
    holder = whole[0] if whole else order[0]
    manifest = have[holder]["manifest"] if whole else None
    commit = manifest["revision"] if manifest else None
    lacking = [
        host
        for host in seen
        if host != holder and (verify or not (have[host].get("whole") and have[host]["manifest"]["revision"] == commit))
    ]
    return {
        "repo": repo,
        "revision": commit if manifest else revision,
        "holder": holder,
        "fetch": not whole or verify,
        "manifest": manifest,
        "lacking": lacking,
    }


def _room(needs: t.Mapping[str, int], seen: t.Mapping[str, t.Mapping[str, t.Any]], reserve_gib: float) -> list[str]:
    return [
        f"{host}: {seen[host]['free_mib'] / 1024:.1f} GiB are free where weights are kept, but {need / GIB:.1f} GiB are still to come and "
        f"{reserve_gib:g} GiB must stay free. Free space, or put the caches on another disk (k8s_dgx_serving.cache_dir)."
        for host, need in needs.items()
        if need and seen[host]["free_mib"] / 1024 < need / GIB + reserve_gib
    ]
