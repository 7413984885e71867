# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NCCL's environment for a plan's ranks, from the fabric plan and the known-bad versions."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    CollectionError,
    Finding,
    PlannedHost,
    from_plain,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.known_bad import load_known_bad, platform_findings
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl import environment as nccl
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import Profile
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.instance import Instance

Plain = dict[str, t.Any]


def of_plan(
    profile: Profile,
    cluster: t.Mapping[str, t.Any],
    hosts: t.Sequence[str],
    instance: Instance,
    workarounds: t.Mapping[str, str],
) -> tuple[dict[str, dict[str, str]], str, list[Finding]]:
    """Return each rank's NCCL environment, the head's address, and findings.

    They come from the fabric plan if there is one. Until the VFs exist, or while a node is down, the HCAs' names
    are unknown: such a plan is otherwise complete, and a finding says that it cannot be started this way.
    """
    fabric = cluster.get("fabric") or {}
    bare = {host: dict(workarounds) for host in hosts}
    if not fabric or profile.nodes == 1:
        return bare, hosts[0] if hosts else "127.0.0.1", []
    missing = [host for host in hosts if host not in fabric]
    if missing:
        raise CollectionError(
            f"cluster: fabric: {missing[0]} is not in the fabric plan. Plan the fabric of all ranks first."
        )
    planned = [from_plain(PlannedHost, fabric[host], f"cluster: fabric.{host}") for host in hosts]
    chosen = {"vf_index": instance.vf_index, "transport": profile.settings.get("nccl_transport", "roce")}
    options = from_plain(nccl.Options, chosen | dict(cluster.get("nccl") or {}), "cluster: nccl")
    if options.transport != chosen["transport"]:
        raise CollectionError(
            f"cluster: nccl: transport: {options.transport!r} is not what the plan judges, {chosen['transport']!r}. "
            "Give settings.nccl_transport in the overrides, and leave it out here."
        )
    if not nccl.joined(planned, options):
        options = _over_the_pod_network(options, instance)
    head = nccl.address(planned, options)
    if unseen := nccl.unseen(planned, options):
        return bare, head, [_unseen(unseen)]
    return nccl.environment(planned, options, engine=profile.engine.name, workarounds=workarounds), head, []


def _over_the_pod_network(options: nccl.Options, instance: Instance) -> nccl.Options:
    """If cables lead to different neighbours, let NCCL bootstrap over the cluster's pod network."""
    start_up = options.bootstrap or ("eth0" if options.attachment == "vf" else None)
    if start_up is None:
        raise CollectionError(
            "cluster: nccl: the ranks' cables lead to different neighbours, so no VF reaches all of them for start-up. Name the "
            "hosts' interface that does (k8s_dgx_nccl_bootstrap, the management network's), or let pods have VFs of "
            "their own (k8s_dgx_attachment=vf)."
        )
    return replace(options, bootstrap=start_up, head=options.head or instance.rendezvous)


def _unseen(unseen: t.Mapping[str, str]) -> Finding:
    return Finding(
        "nccl.unseen",
        "warning",
        "",
        f"NCCL's variables are left out for all ranks: {next(iter(unseen.values()))}"
        + (f" The same applies to {', '.join(list(unseen)[1:])}." if len(unseen) > 1 else ""),
        "Create the VFs, make sure that every node answers, and plan again. Without these variables NCCL falls back to sockets.",
        ("fabric",),
        ("docs/docsite/rst/guide_nccl.rst",),
    )


def nccl_environment(
    hosts: t.Mapping[str, t.Any],
    ranks: t.Sequence[str] | None = None,
    options: t.Mapping[str, t.Any] | None = None,
    engine: str = "sglang",
    nccl_version: str | None = None,
    knowledge_dirs: t.Sequence[str] = (),
    only: t.Sequence[str] | None = None,
) -> dict[str, dict[str, str]]:
    """Return NCCL's environment by host, from the fabric plan's hosts; ranks: which of them, in order.

    only: the ranks whose environment is wanted; the others' names may be unknown.
    """
    if not isinstance(hosts, t.Mapping):
        raise CollectionError(
            f"nccl_env: the fabric plan's hosts are needed as a dictionary, not {type(hosts).__name__}."
        )
    names = list(hosts) if ranks is None else list(ranks)
    for what, chosen, known in (("ranks", names, hosts), ("only", names if only is None else only, names)):
        missing = [name for name in chosen if name not in known]
        if missing:
            raise CollectionError(
                f"nccl_env: {what}: {missing[0]} is not in the fabric plan's ranks. Known: {', '.join(known)}."
            )
    planned = [from_plain(PlannedHost, hosts[name], f"nccl_env: {name}") for name in names]
    _findings, workarounds = platform_findings(
        {"nccl": nccl_version} if nccl_version else {}, load_known_bad(knowledge_dirs)
    )
    own = from_plain(nccl.Options, dict(options or {}), "nccl_env: options")
    return nccl.environment(planned, own, engine=engine, workarounds=workarounds, only=only)
