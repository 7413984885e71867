# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turn the launch plan into the Kubernetes objects of one instance. Plain values in, plain objects out; no cluster access.

A rank is a StatefulSet of one pod, not a Deployment: a pod's VF and address are free only once it is gone, and only a StatefulSet
waits for that before it creates the next pod. It never rolls by itself (OnDelete): ranks of two plans do not work together, so a
group is stopped and started as a whole. Its files are in an immutable ConfigMap whose name contains the plan's checksum: a
container that restarts within an old group gets the old files.
"""

from __future__ import annotations

import dataclasses
import json
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.load_guard import FOLDER, SOCKET
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, PlannedHost, from_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.known import engines
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import networks, pod, programs, wiring
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.request import model_name
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import (
    COMPONENT_LABEL,
    INSTANCE_LABEL,
    MANAGER,
    MEMORY,
    NAME_LABEL,
    PLAN,
    RANK,
    REQUESTS,
    SERVED,
    Plain,
    Settings,
    checksum,
    image,
    label,
    labels,
    node_name,
    settings,
    thing,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import constant, refuse_secrets_in_command
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.instance import Instance

NAME_MOST = 40  # characters of an instance's name: suffixes must still fit into a label
BEAT_S = 2
PATCHES = "patches.json"
STOP_S = 30  # for an engine to stop: half of the pod's grace period
# vLLM's socket in place of a port, and TLS, which the proxy does not use towards the engine.
_OTHER_WAYS = ("--uds", "--ssl-certfile", "--ssl-keyfile")
_PLAN_KEYS = ("profile", "model", "engine", "instance", "ranks", "memory")


def serving(
    plan: t.Mapping[str, t.Any],
    fabric: t.Mapping[str, t.Any] | None = None,
    kubernetes: t.Mapping[str, t.Any] | None = None,
    knowledge_dirs: t.Sequence[str] = (),
) -> Plain:
    """Return the objects of a planned instance, in the order of their creation.

    plan: from launch_plan. fabric: the fabric plan's hosts; needed for more than one rank. kubernetes: an owner's Settings. The
    result has `name`, `namespace`, `plan` (checksum), `common` (before any rank), `workers`, `head`, `bounds` (seconds) and
    `needs` (memory in GiB that must be free on each node). Raises CollectionError for values that no manifest can express.
    """
    absent = [key for key in _PLAN_KEYS if not isinstance(plan, t.Mapping) or key not in plan]
    if absent:
        raise CollectionError(f"plan: {absent[0]} is missing. Give the plan as launch_plan returns it.")
    chosen = settings(kubernetes)
    instance = from_plain(Instance, plan["instance"], "plan: instance")
    name = f"serve-{label(instance.name, 'instance.name', NAME_MOST)}"
    planned = networks.hosts(fabric)
    members = [_member(rank, instance, planned, chosen, len(plan["ranks"])) for rank in plan["ranks"]]
    wiring.distinct(members)
    load_s = chosen.load_timeout_s or load_seconds(plan["memory"], knowledge_dirs)
    supervisor = instance.supervisor_port
    told = engines(knowledge_dirs).get(plan["engine"]["name"], {})
    work = [told[key] for key in ("output_tokens", "prompt_tokens", "cache")] if told.get("health") == "api" else []
    files = _files(plan, instance, members, chosen, load_s, supervisor, work)
    group = pod.Group(
        instance=instance.name,
        image=image(chosen.image or plan["engine"].get("image"), f"profile {plan['profile']!r}: engine.image"),
        launch=f"{name}-launch",
        port=instance.port,
        supervisor=supervisor,
        kernels=f"{plan['engine']['name']}-{plan['engine']['version']}",
        # The preflight, the rendezvous and the load may each take their full time.
        start_s=2 * chosen.peers_timeout_s + load_s + 60,
        settings=chosen,
    )
    account = thing(
        "v1", "ServiceAccount", name, chosen.namespace, labels(instance.name), automountServiceAccountToken=False
    )
    templates = [_template(member, group, instance, name, {}) for member in members]
    texts = {**programs.sources(), PATCHES: json.dumps(plan.get("patches", []), indent=1, sort_keys=True) + "\n"}
    stamp = checksum({"files": files, "templates": templates, "texts": texts})
    group = dataclasses.replace(group, launch=f"{name}-launch-{stamp[:10]}")
    files = {key: {**value, "plan": stamp} for key, value in files.items()}
    noted = {PLAN: stamp, f"{MANAGER}/profile": str(plan["profile"]), f"{MANAGER}/model": str(plan["model"])}
    for key, name_of in ((REQUESTS, "max_running_requests"), (MEMORY, "used_gib")):
        if figure := (plan.get("memory") or {}).get(name_of):
            noted[key] = str(figure)
    sets = [_rank_set(member, group, instance, name, noted) for member in members]
    attached = [member for member in members if member.attached]
    common = [
        thing("v1", "Namespace", chosen.namespace, None, labels()),
        _priority(chosen),
        account,
        *(_may_delete_own_pods(name, attached, chosen, instance) if attached else ()),
        _config_map(group.launch, chosen, instance, {**texts, **_texts(files)}),
        *_services(name, chosen, instance, supervisor, _told_gateway(plan, chosen, instance)),
        *([_reachable(name, chosen, instance, bool(attached))] if chosen.attachment != "host" else ()),
        *([_budget(name, chosen, instance)] if chosen.max_unavailable is not None else ()),
    ]
    return {
        "name": name,
        "namespace": chosen.namespace,
        "instance": instance.name,
        "plan": stamp,
        "nodes": {member.host: member.node for member in members},
        "common": common,
        "workers": sets[1:],
        "head": sets[:1],
        "bounds": {"start_s": group.start_s, "load_s": load_s, "lost_s": chosen.lost_after_s},
        "needs": {"free_gib": plan["memory"].get("free_gib")},
    }


def load_seconds(memory: t.Mapping[str, t.Any], knowledge_dirs: t.Sequence[str] = ()) -> int:
    """Return the time limit of a load in seconds: a minimum for small models, plus a share for the weights (GiB of one rank)."""
    weights = float(memory.get("load_peak_gib") or memory.get("weights_gib") or 0.0)
    return int(constant("load.least", knowledge_dirs) + weights / constant("load.rate", knowledge_dirs))


def _member(
    rank: t.Mapping[str, t.Any],
    instance: Instance,
    planned: t.Mapping[str, PlannedHost],
    chosen: Settings,
    ranks: int,
) -> pod.Member:
    host = str(rank["host"])
    if not rank.get("argv"):
        raise CollectionError(
            f"plan: rank {rank['rank']} has no argv, so the plan is blocked or has no flag table. See its findings."
        )
    node = node_name(chosen.node_names.get(host, host), f"host {host!r}")
    env = {str(key): str(value) for key, value in rank["env"].items()}
    return pod.Member(
        rank=int(rank["rank"]),
        host=host,
        node=node,
        env=env,
        argv=tuple(map(str, rank["argv"])),
        rails=wiring.rails(host, instance.vf_index, planned, chosen) if ranks > 1 else (),
    )


def _files(
    plan: t.Mapping[str, t.Any],
    instance: Instance,
    members: t.Sequence[pod.Member],
    chosen: Settings,
    load_s: int,
    supervisor: int,
    work: t.Sequence[str],
) -> dict[str, Plain]:
    """Return the input of each rank's supervisor and preflight."""
    applier = ["python3", f"{pod.PROGRAMS}/patches.py", f"{pod.PROGRAMS}/{PATCHES}"]
    first, name = members[0], f"serve-{instance.name}"
    rendezvous = f"{instance.rendezvous}.{chosen.namespace}.svc"
    verbs = any(key == "NCCL_NET" and value == "IB" for key, value in first.env.items())
    files: dict[str, Plain] = {}
    for member in members:
        for rail in member.rails:
            if verbs and rail.hca is None:
                raise CollectionError(
                    f"{member.host}: {rail.name}: the name of its HCA is not known. Create the VFs and gather roce_info first."
                )
        files[f"rank{member.rank}.json"] = {
            "instance": instance.name,
            "rank": member.rank,
            "ranks": len(members),
            "host": member.host,
            # The kubelet probes the pod's own address, other ranks use the VFs'.
            "listen": "0.0.0.0",
            "port": supervisor,
            # On a ring not all ranks share a wire: the others use the pod network.
            "head": wiring.way_to(first, member, rendezvous),
            "api": instance.port,
            "argv": _argv(member, instance, rendezvous, chosen),
            "before": [applier] if plan.get("patches") else [],
            "guard": {"folder": FOLDER, "socket": SOCKET, "name": f"serve-{instance.name}-rank{member.rank}"},
            "work": work,
            "verbs": verbs,
            "replace": {"namespace": chosen.namespace, "pod": _pod(name, member)} if member.attached else None,
            "rails": [
                {key: value for key, value in vars(rail).items() if key != "attachment"}
                | {
                    "peers": [
                        {"rank": other.rank, "host": other.host, "address": theirs.address}
                        for other in members
                        for theirs in other.rails
                        if other.rank != member.rank and wiring.subnet(theirs) == wiring.subnet(rail)
                    ]
                }
                for rail in member.rails
            ],
            "bounds": {
                "peers_s": chosen.peers_timeout_s,
                "load_s": load_s,
                "beat_s": min(BEAT_S, chosen.lost_after_s / 3),
                "lost_s": chosen.lost_after_s,
                "hang_s": chosen.hang_after_s,
                "stop_s": STOP_S,
            },
        }
    return files


def _argv(member: pod.Member, instance: Instance, rendezvous: str, chosen: Settings) -> list[str]:
    """Return the engine's command, wrapped as needed: in a program that finds the first rank's address, and in the API's proxy."""
    argv = list(member.argv)
    refuse_secrets_in_command(member.rank, argv, member.env)
    if any(instance.rendezvous in word for word in argv):
        named = [word.replace(instance.rendezvous, rendezvous) for word in argv]
        argv = ["python3", f"{pod.PROGRAMS}/rendezvous.py", str(chosen.peers_timeout_s), rendezvous, *named]
    if chosen.api_key_secret:
        argv = _inside(argv, member, instance)
    if pod.has_auth_proxy(member, chosen):
        argv = ["python3", f"{pod.PROGRAMS}/auth_proxy.py", str(instance.port), str(instance.inner_port), *argv]
    return argv


def _inside(argv: t.Sequence[str], member: pod.Member, instance: Instance) -> list[str]:
    """Return the engine's command with its API on loopback, and a worker's too, if its command names a host or port."""
    told = {"--host": "127.0.0.1", "--port": str(instance.inner_port)}
    counts = {flag: sum(word.partition("=")[0] == flag for word in argv) for flag in told}
    made = list(argv)
    for flag, value in told.items():
        if made.count(flag) == 1 == counts[flag]:
            made[made.index(flag) + 1] = value
        elif member.rank == 0 or counts[flag]:
            raise CollectionError(
                f"plan: rank {member.rank}: its command has {flag} {counts[flag]} times, so its API cannot be protected by the API "
                "key. Let only the plan set it, or leave k8s_dgx_api_key out."
            )
    own = next((word for word in made if word.partition("=")[0] in _OTHER_WAYS), None)
    if own:
        raise CollectionError(
            f"plan: rank {member.rank}: {own} opens another way into the API, without the API key. Remove it, or leave "
            "k8s_dgx_api_key out."
        )
    return made


def _texts(files: t.Mapping[str, Plain]) -> dict[str, str]:
    return {name: json.dumps(value, indent=1, sort_keys=True) + "\n" for name, value in files.items()}


def _own(instance: Instance, member: pod.Member) -> dict[str, str]:
    component = "head" if member.rank == 0 else "worker"
    return labels(instance.name, **{COMPONENT_LABEL: component, RANK: str(member.rank)})


def _template(member: pod.Member, group: pod.Group, instance: Instance, name: str, told: t.Mapping[str, str]) -> Plain:
    return pod.template(member, group, _own(instance, member), told, name)


def _rank_set(member: pod.Member, group: pod.Group, instance: Instance, name: str, told: t.Mapping[str, str]) -> Plain:
    own = _own(instance, member)
    made = thing("apps/v1", "StatefulSet", f"{name}-rank{member.rank}", group.settings.namespace, own)
    made["metadata"]["annotations"] = dict(told)
    made["spec"] = {
        "replicas": 1,
        "serviceName": f"{name}-ranks",
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "revisionHistoryLimit": 1,
        "selector": {"matchLabels": {key: own[key] for key in (NAME_LABEL, INSTANCE_LABEL, RANK)}},
        "template": _template(member, group, instance, name, told),
    }
    return made


def _pod(name: str, member: pod.Member) -> str:
    return f"{name}-rank{member.rank}-0"


def _may_delete_own_pods(
    name: str, members: t.Sequence[pod.Member], chosen: Settings, instance: Instance
) -> list[Plain]:
    """Let the ranks delete the pods of their instance, and nothing else: a pod that was created without its VFs never gets them.

    They share an account, so each may delete its siblings' pods, too: any rank can take the group down anyway.
    """
    pods = {"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]}
    rules = [{**pods, "resourceNames": [_pod(name, member) for member in members]}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": chosen.namespace}]
    api, own = "rbac.authorization.k8s.io/v1", labels(instance.name)
    return [
        thing(api, "Role", name, chosen.namespace, own, rules=rules),
        thing(api, "RoleBinding", name, chosen.namespace, own, roleRef=role, subjects=subjects),
    ]


def _config_map(name: str, chosen: Settings, instance: Instance, data: t.Mapping[str, str]) -> Plain:
    return thing("v1", "ConfigMap", name, chosen.namespace, labels(instance.name), immutable=True, data=dict(data))


def _priority(chosen: Settings) -> Plain:
    # Not `globalDefault: false`: the server does not store a false here, so every apply would be reported as a change.
    return thing(
        "scheduling.k8s.io/v1",
        "PriorityClass",
        pod.priority_class(chosen),
        None,
        labels(),
        value=chosen.priority,
        description="Ranks of a model server: one that is evicted takes its whole group down.",
    )


def _told_gateway(plan: t.Mapping[str, t.Any], chosen: Settings, instance: Instance) -> dict[str, str]:
    """Return the annotation that tells a gateway what the Service serves. Not the pods': a new alias must not restart them."""
    names = list(dict.fromkeys([model_name(dict(plan)), *chosen.aliases]))
    told = {"names": names, "port": instance.port, "key": chosen.api_key_secret}
    return {SERVED: json.dumps(told, sort_keys=True, ensure_ascii=False)}


def _services(
    name: str, chosen: Settings, instance: Instance, supervisor: int, told: t.Mapping[str, str]
) -> list[Plain]:
    select = {key: labels(instance.name)[key] for key in (NAME_LABEL, INSTANCE_LABEL)}
    api = {
        "type": chosen.service_type,
        "selector": {**select, RANK: "0"},
        "ports": [
            {"name": "http", "port": chosen.service_port or instance.port, "targetPort": "http", "protocol": "TCP"}
        ],
    }
    rendezvous = {
        "clusterIP": "None",
        # Ranks look for each other before any of them is ready.
        "publishNotReadyAddresses": True,
        "selector": select,
        "ports": [
            {"name": "supervisor", "port": supervisor, "targetPort": supervisor, "protocol": "TCP"},
            {"name": "rendezvous", "port": instance.dist_port, "targetPort": instance.dist_port, "protocol": "TCP"},
        ],
    }
    made = thing("v1", "Service", name, chosen.namespace, labels(instance.name), spec=api)
    made["metadata"]["annotations"] = dict(told)
    return [
        made,
        thing("v1", "Service", f"{name}-ranks", chosen.namespace, labels(instance.name), spec=rendezvous),
    ]


def _reachable(name: str, chosen: Settings, instance: Instance, attached: bool) -> Plain:
    """Let ranks reach each other, and everyone reach the API. The node's own probes always pass.

    Ranks that do not use the hub reach only each other and DNS, and with VFs (`attached`) an API server, to delete their pods.
    No cluster rule applies to traffic over a VF, or to a pod on the host's network.
    """
    select = {key: labels(instance.name)[key] for key in (NAME_LABEL, INSTANCE_LABEL)}
    group = [{"podSelector": {"matchLabels": select}}]
    api = {"ports": [{"port": "http", "protocol": "TCP"}]}
    spec: Plain = {
        "podSelector": {"matchLabels": select},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": group}, api],
    }
    if chosen.hub_offline:
        system = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}
        dns = {"to": [system], "ports": [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]}
        # A plan cannot know the API server's address: its port is open to any address. It is the server's own port, not its
        # Service's (443), since rules apply after the Service's address has been translated to the server's.
        server = {"ports": [{"port": port, "protocol": "TCP"} for port in chosen.api_ports]}
        spec["policyTypes"] = ["Ingress", "Egress"]
        spec["egress"] = [{"to": group}, dns, *([server] if attached else [])]
    return thing(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        name,
        chosen.namespace,
        labels(instance.name),
        spec=spec,
    )


def _budget(name: str, chosen: Settings, instance: Instance) -> Plain:
    """Ready ranks may be drained one at a time, and only from a whole group; others always: a broken group needs no protection."""
    select = {key: labels(instance.name)[key] for key in (NAME_LABEL, INSTANCE_LABEL)}
    return thing(
        "policy/v1",
        "PodDisruptionBudget",
        name,
        chosen.namespace,
        labels(instance.name),
        spec={
            "maxUnavailable": chosen.max_unavailable,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": select},
        },
    )
