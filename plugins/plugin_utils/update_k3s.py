# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""K3s in an update: the nodes whose release differs, servers first, from the plans of the role k3s, which has refused what must not be."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.update import Begun, Part, Share

NAME = "k3s"
Plans = t.Mapping[str, t.Mapping[str, t.Any]]


def check(servers: t.Sequence[str], others: t.Sequence[str]) -> None:
    """Refuse K3s of a cluster that the inventory does not manage, and K3s beside other parts. Raises CollectionError."""
    if others:
        raise CollectionError(
            "spark_update_k3s: K3s is updated by itself, servers first. Leave out spark_update_packages and spark_update_firmware "
            f"({', '.join(others[:3])}), and run update again for those."
        )
    if not servers:
        raise CollectionError(
            "spark_update_k3s: the inventory has no K3s server. Who manages the cluster updates its K3s."
        )


def installed(read: t.Mapping[str, t.Any]) -> dict[str, str | None]:
    """Return the release that each host has, of what k3s_info read there."""
    return {host: ((seen or {}).get("machine") or {}).get("k3s", {}).get("version") for host, seen in read.items()}


def plan(
    plans: Plans,
    there: t.Mapping[str, str | None],
    order: t.Sequence[str],
    canary: str | None,
    begun: t.Mapping[str, Begun],
) -> Part:
    """Return what each node gets.

    plans: by host, of the role k3s. there: the release that each has. order: servers, then agents. canary: the host that the owner
    wants first: an agent is not, while a server differs. begun: what earlier runs noted.
    """
    plans = {host: planned for host, planned in plans.items() if planned}
    refusals = [
        f"{host}: K3s is not installed there. dgxspark.cluster.site --tags k3s does that first."
        for host, planned in plans.items()
        if not planned.get("installed")
    ]
    due = [host for host in order if host in plans and plans[host].get("step") == "upgrade"]
    servers = tuple(host for host in due if plans[host]["role"] == "server")
    notes = [
        f"{host}: K3s's settings differ from the inventory's. dgxspark.cluster.site --tags k3s applies them."
        for host, planned in plans.items()
        if planned.get("differs") and planned.get("step") == "keep"
    ]
    if canary in due and servers and canary not in servers:
        notes.append(f"{canary} does not go first: no agent may be newer than its server ({', '.join(servers)}).")
    shares = {}
    for host in (host for host in order if host in plans and not refusals):
        new, role = str(plans[host]["version"]), plans[host]["role"]
        noted = begun[host].parts.get(NAME, {}).get(NAME) if host in begun and not begun[host].proven else None
        old = noted or there.get(host)
        if host in due or (noted and noted != new):
            does = (f"K3s {old} -> {new}",) if host in due else ()
            shares[host] = Share(does, (), {NAME: old}, {NAME: new}, tuple(_back(host, old, role)))
    if servers:
        notes.append(
            "A server's K3s cannot be taken back without a backup of its data store, made before (guide_update)."
        )
    wanted = {NAME: str(next(iter(plans.values()))["version"])} if plans else {}
    return Part(NAME, wanted, shares, tuple(notes), tuple(refusals), servers)


def _back(host: str, old: str | None, role: str) -> t.Iterator[str]:
    """Yield the commands, on the controller, that lead back."""
    if role == "server":
        yield f"K3s {old} on {host}: restore the backup of its data store that was made with {old} (guide_update)"
    else:
        yield (
            f"K3s {old} on {host}, which an agent may be older by: ansible-playbook dgxspark.cluster.site --tags k3s -l {host} "
            f"-e k3s_state=absent, then the same with -e k3s_version={old}"
        )
