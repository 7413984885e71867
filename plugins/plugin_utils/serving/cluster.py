# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An owner's cluster, as playbooks and filters name it, in the form in which the planner asks for it."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import Free, Machines, Profile, Start
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import environment, nodes
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.instance import Instance

KEYS = ("hosts", "nodes", "free_gib", "taken_gib", "platform", "fabric", "nccl")
# Without the hosts' names and their network: any of them.
_ANY_HOSTS = ("nodes", "free_gib", "taken_gib", "platform")


@dataclass(frozen=True)
class OwnersCluster:
    """A cluster. given: its keys, checked by `read`; instance: the model's place in it."""

    given: t.Mapping[str, t.Any]
    instance: Instance = field(default_factory=Instance)

    @property
    def hosts(self) -> list[str] | None:
        """The names of its hosts; None if none are named."""
        return None if self.given.get("hosts") is None else list(self.given["hosts"])

    @property
    def platform(self) -> t.Mapping[str, str]:
        """The versions that the owner states."""
        stated: t.Mapping[str, str] = self.given.get("platform") or {}
        return stated

    def machines(self, hosts: t.Sequence[str], usual: Free) -> Machines:
        """Return what the hosts have: the owner's figures, else what they reported, else the usual."""
        own = nodes.gib(self.given, "free_gib", hosts)
        seen = nodes.look(self.given.get("nodes") or {}, hosts, own, usual.sure)
        taken = nodes.gib(self.given, "taken_gib", hosts)
        return Machines(nodes.poorest(seen.free_gib | own, taken, hosts, usual), seen.kernels, seen.findings)

    def start(self, profile: Profile, hosts: t.Sequence[str], workarounds: t.Mapping[str, str]) -> Start:
        """Return the ranks' network, from the fabric plan if there is one."""
        env, head, findings = environment.of_plan(profile, self.given, hosts, self.instance, workarounds)
        return Start(head, env, self.instance.port, self.instance.dist_port, tuple(findings))

    def with_any_hosts(self) -> dict[str, t.Any]:
        """Return what is known of the cluster but for its hosts' names and network."""
        return {key: value for key, value in self.given.items() if key in _ANY_HOSTS}


def read(given: t.Mapping[str, t.Any] | None) -> OwnersCluster:
    """Check a cluster's keys. CollectionError for an unknown key and a value of the wrong shape."""
    given = given or {}
    unknown = sorted(set(given) - set(KEYS))
    if unknown:
        raise CollectionError(f"cluster: unknown key {unknown[0]!r}. Known keys: {', '.join(KEYS)}.")
    for key in ("platform", "fabric"):
        if not isinstance(given.get(key) or {}, t.Mapping):
            raise CollectionError(f"cluster: {key}: a dictionary is needed, not {given[key]!r}.")
    hosts = given.get("hosts") or []
    if not isinstance(hosts, (list, tuple)) or not all(isinstance(host, str) for host in hosts):
        raise CollectionError(f"cluster: hosts: a list of names is needed, not {hosts!r}.")
    return OwnersCluster({**given, "hosts": hosts} if given.get("hosts") is not None else given)
