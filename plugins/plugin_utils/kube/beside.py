# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster that was there before: which parts of the platform others have put into it, and whether ranks can use them.

A part is ours to make, used as it is, or refused with a reason. What lacks our label is neither changed nor removed.
"""

from __future__ import annotations

import contextlib
import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, PlannedHost, from_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import ip
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import multus, networks
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import platform as parts_of
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.apply import title
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import (
    GPU,
    HOSTNAME,
    MANAGED_BY_LABEL,
    MANAGER,
    Plain,
)

Object = t.Mapping[str, t.Any]

DAEMONS = ("multus", "sriov_device_plugin", "nvidia_device_plugin")
SAID = {
    "multus": "Multus",
    "sriov_device_plugin": "SR-IOV device plugin",
    "nvidia_device_plugin": "NVIDIA device plugin",
}
# Objects of which a cluster has one under a name that we cannot choose: others' are used as they are.
SHARED = ("Namespace", "CustomResourceDefinition")
POLICY = "pod-security.kubernetes.io/enforce"
SHOWN = 6


@dataclass
class Found:
    """What was decided. used: part → a line that says what is used. refused: every reason against going on.

    cni: bin and configuration folder of the nodes, where they are not K3s's.
    """

    used: dict[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    cni: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Seen:
    """What is decided upon. hosts: of this run, as planned; sparks: their Nodes; paths: the nodes' folders, by what they hold."""

    chosen: parts_of.Platform
    hosts: t.Mapping[str, PlannedHost]
    sparks: t.Mapping[str, Object]
    there: t.Sequence[Object]
    known: Object
    paths: t.Mapping[str, str]


def ours(each: Object) -> bool:
    """Whether an object has our label."""
    return (each["metadata"].get("labels") or {}).get(MANAGED_BY_LABEL) == MANAGER


def daemons(part: str, there: t.Iterable[Object], known: Object) -> list[Object]:
    """Return others' DaemonSets that do the work of a part. known: knowledge/platform."""
    marks = known[part]["others"]
    found = []
    for each in there:
        if each.get("kind") != "DaemonSet" or ours(each):
            continue
        named = any(
            re.fullmatch(rf"{re.escape(name)}(-(amd64|arm64))?", each["metadata"]["name"]) for name in marks["names"]
        )
        images = [_repository(image) for image in _images(each)]
        if named or any(f"/{image}".endswith(f"/{mark}") for image in images for mark in marks["images"]):
            found.append(each)
    return found


def find(
    fabric: Object | None, kubernetes: Object | None, there: t.Sequence[Object], knowledge_dirs: t.Sequence[str] = ()
) -> Found:
    """Decide which parts others provide, from the cluster's objects; see `platform()` for the arguments.

    there: Nodes, DaemonSets, Namespaces, Multus's CRD and the ConfigMap cilium-config, as far as there are any.
    """
    chosen = from_plain(parts_of.Platform, dict(kubernetes or {}), "kubernetes")
    known = parts_of.known_parts(knowledge_dirs)
    planned = networks.hosts(fabric)
    hosts = {name: host for name, host in planned.items() if not chosen.hosts or name in chosen.hosts}
    wanted = parts_of.states(chosen, any(function.vfs for host in planned.values() for function in host.functions))
    sparks = _sparks(chosen, hosts, there)
    found = Found()
    _folders(chosen, sparks, known, found)
    seen = _Seen(chosen, hosts, sparks, there, known, parts_of.folders(chosen, known) | found.cni)
    for part in DAEMONS:
        if wanted[part] == "present":
            _daemon(part, seen, found)
    _cluster(seen, wanted, found)
    return found


def refusal(found: Found) -> str:
    """Return the message for what was refused."""
    return f"{' '.join(found.refused)} Nothing was changed in the cluster."


def kept(objects: t.Sequence[Plain], there: t.Iterable[Object]) -> tuple[list[Plain], list[str]]:
    """Return the objects to apply, and a line for each that exists and is another's, which stays as it is.

    there: what exists under these names. Raises CollectionError for an object that would overwrite another's.
    """
    others = {_key(each) for each in there if not ours(each)}
    theirs = [each for each in objects if ours(each) and _key(each) in others]
    taken = [title(each) for each in theirs if each["kind"] not in SHARED]
    if taken:
        label = f"{MANAGED_BY_LABEL}={MANAGER}"
        raise CollectionError(
            f"{', '.join(taken[:SHOWN])}{' and more' if len(taken) > SHOWN else ''} exists and is not this collection's: it "
            f"lacks the label {label}. It was not changed. Rename or remove it; if it is yours to give, add the label."
        )
    return [each for each in objects if each not in theirs], [f"{title(each)}: used as it is" for each in theirs]


def selectors(daemon: Object) -> list[str]:
    """Return the selectors of a DaemonSet's pods."""
    chosen = daemon["spec"]["selector"]
    made = [f"{key}={value}" for key, value in (chosen.get("matchLabels") or {}).items()]
    for wish in chosen.get("matchExpressions") or ():
        if wish["operator"] in ("In", "NotIn"):
            made.append(f"{wish['key']} {wish['operator'].lower()} ({','.join(wish['values'])})")
        else:
            made.append(f"{'!' * (wish['operator'] == 'DoesNotExist')}{wish['key']}")
    return made


def _key(each: Object) -> tuple[str, str, str]:
    return (each["kind"], each["metadata"].get("namespace") or "", each["metadata"]["name"])


def _images(each: Object) -> list[str]:
    containers = ((each.get("spec") or {}).get("template") or {}).get("spec", {}).get("containers") or ()
    return [str(container.get("image") or "") for container in containers]


def _repository(image: str) -> str:
    """Return an image's repository, without tag and digest."""
    return re.sub(r":[^/:]*$", "", image.partition("@")[0])


def _names(node: Object) -> set[str]:
    return {str(node["metadata"]["name"]), str((node["metadata"].get("labels") or {}).get(HOSTNAME) or "")} - {""}


def _sparks(chosen: parts_of.Platform, hosts: t.Iterable[str], there: t.Iterable[Object]) -> dict[str, Object]:
    """Return host → Node of this run. A host that is not a node is reported when ranks are placed."""
    nodes = {name: each for each in there if each.get("kind") == "Node" for name in _names(each)}
    wanted = {host: chosen.node_names.get(host, host) for host in (*hosts, *chosen.hosts)}
    return {host: nodes[name] for host, name in wanted.items() if name in nodes}


def covers(daemon: Object, node: Object) -> bool:
    """Whether a DaemonSet's selector and required affinity admit a node. Taints are not looked at."""
    spec = daemon["spec"]["template"]["spec"]
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    terms = (affinity or {}).get("nodeSelectorTerms") or ()
    return not terms or any(_admits(term, node, labels) for term in terms)


def _admits(term: Object, node: Object, labels: Object) -> bool:
    wishes = [(wish, labels.get(wish["key"])) for wish in term.get("matchExpressions") or ()]
    wishes += [(wish, node["metadata"]["name"]) for wish in term.get("matchFields") or ()]
    return bool(wishes) and all(_holds(wish, value) for wish, value in wishes)


def _holds(wish: Object, value: str | None) -> bool:
    values = wish.get("values") or ()
    if wish["operator"] in ("In", "NotIn"):
        return bool((value in values) == (wish["operator"] == "In"))
    if wish["operator"] in ("Gt", "Lt"):
        numbers = [str(each) for each in (value, *values)]
        if len(numbers) != 2 or not all(re.fullmatch(r"-?\d{1,18}", each) for each in numbers):
            return False
        return int(numbers[0]) > int(numbers[1]) if wish["operator"] == "Gt" else int(numbers[0]) < int(numbers[1])
    return bool((value is not None) == (wish["operator"] == "Exists"))


def _version(node: Object) -> str:
    """Return the release of a node's kubelet, such as v1.36.4+k3s1; empty if it does not say."""
    said = str(((node.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion") or "")
    return "".join(re.findall(r"[\w.+-]", said))[:40]


def _folders(chosen: parts_of.Platform, sparks: t.Mapping[str, Object], known: Object, found: Found) -> None:
    """Find where the nodes' CNI folders are: K3s's, or the usual ones. A node that does not say counts as K3s's."""
    versions = {host: _version(node) for host, node in sparks.items()}
    other = sorted(host for host, version in versions.items() if version and "+k3s" not in version)
    k3s = sorted(host for host, version in versions.items() if "+k3s" in version)
    if chosen.cni_bin_dir and chosen.cni_conf_dir:
        return
    if other and k3s:
        found.refused.append(
            f"{k3s[0]} runs K3s ({versions[k3s[0]]}) and {other[0]} does not ({versions[other[0]]}): their CNI folders differ, and one "
            "Multus has one pair for all. Name folders that both have in k8s_platform_components (cni_bin_dir, cni_conf_dir)."
        )
    elif other:
        usual = known["usual_cni"]["paths"]
        found.cni = {
            "cni_bin": chosen.cni_bin_dir or usual["cni_bin"],
            "cni_bin_parent": chosen.cni_bin_dir or usual["cni_bin_parent"],
            "cni_conf": chosen.cni_conf_dir or usual["cni_conf"],
        }


def _daemon(part: str, seen: _Seen, found: Found) -> None:
    """Decide about one part."""
    for each in daemons(part, seen.there, seen.known):
        covered = [host for host, node in seen.sparks.items() if covers(each, node)]
        if not covered:
            continue
        what = f"{SAID[part]} of others ({title(each)})"
        own = [
            title(one)
            for one in seen.there
            if one.get("kind") == "DaemonSet" and ours(one) and one["metadata"]["name"] in OURS[part]
        ]
        if part == "sriov_device_plugin" and seen.chosen.parts.get(part) == "present":
            continue  # the owner's word that its pools leave our VFs out
        if own:
            found.refused.append(
                f"{what} runs on the Sparks, and so does ours ({own[0]}): two would get in each other's way. Remove one; ours goes "
                f"with k8s_platform_parts.{part}: absent."
            )
        elif len(covered) < len(seen.sparks):
            found.refused.append(
                f"{what} runs on {', '.join(covered)} but not on {', '.join(sorted(set(seen.sparks) - set(covered)))}: ours would run on all "
                "of them. Have it select all Sparks or none of them."
            )
        elif seen.chosen.parts.get(part) == "present":
            found.refused.append(
                f"{what} runs on the Sparks: a second one would get in its way. Leave k8s_platform_parts.{part} out to use it."
            )
        else:
            faults = _faults(part, each, seen)
            if faults:
                found.refused.append(
                    f"{what} runs on the Sparks, but ranks cannot use it: {'; '.join(faults)}. Change it, or keep it off the Sparks; "
                    f"if you know better, k8s_platform_parts.{part}: unmanaged."
                )
            else:
                found.used[part] = f"{what} is used as it is."


OURS = {
    "multus": (multus.NAME,),
    "sriov_device_plugin": (parts_of.SRIOV,),
    "nvidia_device_plugin": ("dgxspark-nvidia-device-plugin",),
}


def _faults(part: str, daemon: Object, seen: _Seen) -> list[str]:
    """Return why ranks cannot use it."""
    if part == "multus":
        return _multus_faults(daemon, seen)
    made = []
    for host, node in seen.sparks.items():
        allocatable = (node.get("status") or {}).get("allocatable") or {}
        if part == "nvidia_device_plugin":
            wanted = {GPU: seen.chosen.gpu_shares}
        else:
            wanted = {
                networks.resource(networks.vf_name(function, vf)): 1
                for function in (seen.hosts[host].functions if host in seen.hosts else ())
                for vf in function.vfs
                if seen.chosen.vf_indexes is None or vf.index in seen.chosen.vf_indexes
            }
        lacking = sorted(name for name, least in wanted.items() if _count(allocatable.get(name)) < least)
        if lacking:
            offers = sorted(f"{_count(allocatable[name])} × {name}" for name in allocatable if "/" in name)
            needed = ", ".join(f"{wanted[name]} × {name}" for name in lacking[:SHOWN])
            made.append(f"{host} offers {', '.join(offers[:SHOWN]) or 'no device'}, and ranks need {needed}")
    return made


def _count(value: t.Any) -> int:
    text = str(value or 0)
    return int(text) if re.fullmatch(r"\d{1,9}", text) else 0


def _multus_faults(daemon: Object, seen: _Seen) -> list[str]:
    made = []
    least = str(seen.known["multus"]["others"]["least"])
    for image in _images(daemon):
        tag = re.search(r":v?(\d{1,4})\.(\d{1,4})", image.partition("@")[0])
        if tag and (int(tag[1]), int(tag[2])) < tuple(map(int, least.split("."))):
            made.append(
                f"it is {tag[1]}.{tag[2]}, and attachments are of CNI version {networks.CNI_VERSION}, which {least} and later have"
            )
    volumes = daemon["spec"]["template"]["spec"].get("volumes") or ()
    mounted = {str((volume.get("hostPath") or {}).get("path") or "").rstrip("/") for volume in volumes} - {""}
    if seen.paths["cni_conf"].rstrip("/") not in mounted:
        made.append(f"it does not write to {seen.paths['cni_conf']}, where the Sparks' runtime looks for networks")
    folder = seen.paths["cni_bin"].rstrip("/")
    if not any(f"{folder}/".startswith(f"{path}/") for path in mounted):
        made.append(f"it does not see {folder}, where the Sparks' plugins are")
    definition = next(
        (
            each
            for each in seen.there
            if each["kind"] == "CustomResourceDefinition" and each["metadata"]["name"] == multus.CRD
        ),
        None,
    )
    if definition is None:
        made.append(f"there is no CustomResourceDefinition {multus.CRD}")
    return made


def _cluster(seen: _Seen, wanted: t.Mapping[str, str], found: Found) -> None:
    """Look at what is no part: the pods' network, the kind of attachments, the namespace, runtimes."""
    present = {part for part, state in wanted.items() if state == "present"}
    if "multus" in present:
        for each in seen.there:
            exclusive = (each.get("data") or {}).get("cni-exclusive") if each["kind"] == "ConfigMap" else None
            if each["metadata"]["name"] == "cilium-config" and str(exclusive).lower() == "true":
                found.refused.append(
                    "Cilium removes every other CNI configuration from the nodes, Multus's included. Set cni.exclusive=false in its "
                    "Helm values, or k8s_dgx_attachment: host."
                )
            if (
                each["kind"] == "CustomResourceDefinition"
                and each["metadata"]["name"] == multus.CRD
                and not _serves(each)
            ):
                found.refused.append(
                    f"CustomResourceDefinition {multus.CRD} does not serve v1 in namespaces, which attachments need."
                )
    if "networks" in present:
        addresses = [
            (host.name, ip.address(vf.address))
            for host in seen.hosts.values()
            for function in host.functions
            for vf in function.vfs
        ]
        taken = [
            (name, pods, host) for name, pods in _pods(seen.there) for host, address in addresses if address in pods
        ]
        for name, pods, host in taken[:1]:
            found.refused.append(
                f"The pods of node {name} have {pods}, and VFs of {host} have addresses in it. Give the fabric another address_pool "
                "(dgxspark_fabric)."
            )
    for each in seen.there:
        level = (each["metadata"].get("labels") or {}).get(POLICY) if each["kind"] == "Namespace" else None
        if each["metadata"]["name"] == seen.chosen.namespace and level in ("baseline", "restricted"):
            found.refused.append(
                f"Namespace {seen.chosen.namespace} enforces Pod Security {level}, and ranks mount folders of their node. Name another "
                "namespace (k8s_dgx_namespace), or have it enforce privileged."
            )
    if "runtime_class" in present:
        for host, node in seen.sparks.items():
            handlers = [one.get("name") for one in (node.get("status") or {}).get("runtimeHandlers") or ()]
            if handlers and "nvidia" not in handlers:
                found.refused.append(
                    f"The container runtime of {host} has no handler nvidia, so no rank could use its GPU. Run `nvidia-ctk runtime "
                    "configure` there and restart the runtime, or set k8s_platform_parts.runtime_class: unmanaged."
                )


def _pods(there: t.Iterable[Object]) -> t.Iterator[tuple[str, t.Any]]:
    """Yield each node's name with each of its pods' networks."""
    for node in there:
        spec = (node.get("spec") or {}) if node["kind"] == "Node" else {}
        for text in spec.get("podCIDRs") or filter(None, [spec.get("podCIDR")]):
            with contextlib.suppress(ValueError):  # what is no network holds no address
                yield str(node["metadata"]["name"]), ip.network(str(text))


def _serves(definition: Object) -> bool:
    spec = definition.get("spec") or {}
    versions = {each.get("name") for each in spec.get("versions") or () if each.get("served")}
    return spec.get("scope") == "Namespaced" and "v1" in versions


def extra(found: Found) -> Plain:
    """Return the choices that follow for `platform()`: parts that are not ours, and the nodes' folders."""
    more: Plain = {"parts": dict.fromkeys(found.used, "unmanaged")}
    if found.cni:
        more |= {"cni_bin_dir": found.cni["cni_bin"], "cni_conf_dir": found.cni["cni_conf"]}
    return more
