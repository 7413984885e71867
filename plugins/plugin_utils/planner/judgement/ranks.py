# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each rank of a plan: settings under canonical names, environment, and argv if there is a flag table."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

from ..profile.profile import Profile
from ..vocabulary.builder import BuildArgv
from .cluster import Start

RANK_FLAG = "--node-rank"  # in both engines; the argv of ranks that differ only in it is built once


@dataclass(frozen=True)
class Rank:
    """One rank. settings: the source of argv and env, by our names; argv: None without a flag table."""

    rank: int
    host: str
    settings: dict[str, t.Any]
    env: dict[str, str]
    argv: list[str] | None = None


def _spread(profile: Profile, rank: int, start: Start) -> dict[str, t.Any]:
    """Return what the plan itself sets for a rank, by canonical names."""
    parallelism = profile.parallelism
    own: dict[str, t.Any] = {"model": profile.model, "tp_size": parallelism.tp}
    vllm = profile.engine.name == "vllm"
    if parallelism.pp > 1 or not vllm:
        own["pp_size"] = parallelism.pp
    if parallelism.ep > 1:
        own["ep_size"] = parallelism.ep
    if vllm and rank > 0:
        own["headless"] = True
    else:
        own |= {"host": "0.0.0.0", "port": start.port}
    if profile.nodes > 1:
        own |= {"nnodes": profile.nodes, "node_rank": rank, "dist_init_addr": f"{start.head}:{start.dist_port}"}
    return own


def ranks(
    profile: Profile,
    settings: t.Mapping[str, t.Any],
    hosts: t.Sequence[str],
    start: Start,
    build: BuildArgv | None = None,
) -> tuple[list[Rank], list[t.Any]]:
    """Return all ranks in order, and the flag tables' findings.

    A profile's own variables override those derived from its settings; the network's override both.
    """
    if len(hosts) < profile.nodes:
        raise CollectionError(
            f"profile {profile.id!r}: parallel.nodes: {profile.nodes} nodes are needed, the cluster has {len(hosts)}. "
            "Use a profile for fewer nodes, or override parallel."
        )
    made: list[Rank] = []
    findings: list[t.Any] = []
    last: tuple[dict[str, t.Any], list[str], dict[str, str]] | None = None
    for rank, host in enumerate(hosts[: profile.nodes]):
        spread = _spread(profile, rank, start)
        complete = spread | dict(settings)
        argv, more = None, {}
        if build:
            rest = {key: value for key, value in spread.items() if key != "node_rank"}
            if last and last[0] == rest and last[1].count(RANK_FLAG) == 1:
                argv, more = list(last[1]), last[2]
                argv[argv.index(RANK_FLAG) + 1] = str(rank)
            else:
                built = build(profile.engine.name, profile.engine.version, complete)
                argv, more = list(built.argv), dict(built.env)
                findings += [f for f in built.findings if f not in findings]
                last = rest, argv, more
        made.append(
            Rank(rank, host, complete, more | dict(profile.environment) | dict(start.environment.get(host, {})), argv)
        )
    return made, findings
