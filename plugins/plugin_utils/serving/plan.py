# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model's launch in an owner's cluster: reads the cluster, asks the planner, adds the instance. Plain values in and out."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, from_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner import api
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import cluster as clusters
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import nodes
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.instance import Instance

Plain = dict[str, t.Any]


def _split(overrides: t.Mapping[str, t.Any] | None) -> tuple[Plain, t.Mapping[str, t.Any]]:
    """Return the overrides without the instance, and the instance."""
    overrides = overrides or {}
    if not isinstance(overrides, t.Mapping):
        raise CollectionError(f"overrides: a dictionary is needed, not {type(overrides).__name__}.")
    instance = overrides.get("instance")
    if not isinstance(instance or {}, t.Mapping):
        raise CollectionError(f"overrides: instance: a dictionary is needed, not {instance!r}.")
    return {key: value for key, value in overrides.items() if key != "instance"}, instance or {}


def launch_plan(
    profile: str | Plain,
    cluster: t.Mapping[str, t.Any] | None = None,
    overrides: t.Mapping[str, t.Any] | None = None,
    knowledge_dirs: t.Sequence[str] = (),
    build: api.BuildArgv | None = None,
    files: t.Mapping[str, t.Any] | None = None,
) -> Plain:
    """Plan a model's launch: verdict, findings, evidence, memory, estimated speed, start-up patches, ranks.

    cluster: hosts (names in rank order), nodes (roce_info's facts, by host), free_gib and taken_gib (a
    number, or by host: free before the load, and what other instances on the nodes hold; free_gib overrides what
    nodes report), platform (versions of nccl, kernel, driver; its kernel overrides what nodes report), fabric (planned
    hosts by name), nccl (options). overrides: variant, engine, parallel, settings, environment, instance (name,
    vf_index, port, dist_port), accept (ids of error rules that the owner overrules). build: makes argv. files: the model's
    own (`read_model_files`), for facts that the profile does not state.
    Raises CollectionError if nothing can be planned: an unknown profile, key or value, too few nodes.
    """
    place = clusters.read(cluster)
    profile_overrides, own = _split(overrides)
    request = api.request(profile, profile_overrides, knowledge_dirs, files)
    usual = {"port": request.profile.port} if request.profile.port else {}
    instance = from_plain(Instance, usual | dict(own), "overrides: instance")
    place = dataclasses.replace(place, instance=instance)
    _enough(request, place, knowledge_dirs)
    return api.plan_of(request, place, build) | {"instance": dict(vars(instance))}


def _enough(request: api.Request, place: clusters.OwnersCluster, dirs: t.Sequence[str]) -> None:
    """Raise CollectionError if the profile needs more hosts than there are; it names the nearest profiles that fit."""
    if not place.hosts or len(place.hosts) >= request.profile.nodes:
        return

    def runs(profile: str, variant: str) -> bool:
        made = launch_plan(profile, place.with_any_hosts(), {"variant": variant} if variant else {}, dirs)
        return bool(made["verdict"] != "blocked")

    raise api.too_few_nodes(request.profile, len(place.hosts), dirs, runs)


def memory_plan(
    profile: str | Plain,
    cluster: t.Mapping[str, t.Any] | None = None,
    overrides: t.Mapping[str, t.Any] | None = None,
    knowledge_dirs: t.Sequence[str] = (),
) -> Plain:
    """Return the memory plan of a single rank: the engine's knob with floor, ceiling and chosen value, and the pools."""
    place = clusters.read({**(cluster or {}), "hosts": (cluster or {}).get("hosts") or None})
    return api.memory_plan(profile, _split(overrides)[0], knowledge_dirs, place)


def new_profile(
    source: api.Source,
    request: api.ProfileRequest,
    cluster: t.Mapping[str, t.Any] | None = None,
    knowledge_dirs: t.Sequence[str] = (),
) -> api.NewProfile:
    """Build a complete profile from a model's files, and plan it for the owner's cluster (as for `launch_plan`).

    Raises CollectionError, naming file and key, for invalid files or if no split is possible.
    """
    place = clusters.read(cluster)
    free = nodes.gib(place.given, "free_gib", place.hosts or ["any"])
    size = api.ClusterSize(len(place.hosts) if place.hosts else None, min(free.values(), default=None))

    def plan(entry: Plain) -> Plain:
        return launch_plan(entry, cluster, knowledge_dirs=knowledge_dirs)

    return api.new_profile(source, request, plan, size, knowledge_dirs)
