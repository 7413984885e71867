# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The groups of a cluster, where each answers, and what its engine says of itself there."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import http_client, top
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import instances
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.running import running
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import INSTANCE_LABEL, Plain

KINDS = (*instances.KINDS, ("v1", "Service"))
SELECTORS = instances.SELECTORS
MOST = 64  # groups that are asked
_SECONDS, _ANSWER = 3.0, 8 * 2**20  # an engine's metrics are some hundred KiB


@dataclass(frozen=True, slots=True)
class Group:
    """A group: its name, its hosts by rank, the URL of its API, and why it has none."""

    name: str
    hosts: tuple[str, ...]
    url: str | None
    why: str = ""


def groups(objects: t.Mapping[str, t.Sequence[Plain]], node_names: t.Mapping[str, str]) -> list[Group]:
    """Return the groups of all namespaces. objects: by kind (see KINDS), with the labels SELECTORS."""
    found = []
    for each in instances.instances(objects, node_names)[:MOST]:
        instance = each.name.rpartition("/")[2]
        own = {
            kind: [made for made in listed if _is_of(made, each.namespace, instance)]
            for kind, listed in objects.items()
        }
        seen = running(instance, each.namespace, {"Node": [], **own}, node_names)
        url = seen["groups"][0]["url"] if seen["groups"] else None
        found.append(Group(each.name, tuple(rank.host for rank in each.ranks), url, str(seen["unreached"])))
    return found


def _is_of(made: Plain, namespace: str, instance: str) -> bool:
    about = made["metadata"]
    return about.get("namespace") == namespace and (about.get("labels") or {}).get(INSTANCE_LABEL) == instance


def scrape(group: Group, entries: t.Mapping[str, t.Any]) -> Plain:
    """Return what the group's engine says of itself, or `why` it says nothing."""
    if group.url is None:
        return {"why": group.why}
    url = group.url.removesuffix("/v1") + "/metrics"
    try:
        with http_client.client(_SECONDS) as asked:
            answer = http_client.small(asked, url, most=_ANSWER, seconds=_SECONDS)
    except CollectionError as exc:
        return {"why": str(exc)}
    return top.engine(answer.text if answer.status_code == 200 else "", entries)
