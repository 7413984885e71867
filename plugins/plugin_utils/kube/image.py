# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An engine's image on the nodes: what they list of it, whether its tag has moved, and the disk space that it needs."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import GIB, CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import (
    COMPONENT_LABEL,
    HOSTNAME,
    Plain,
    labels,
    thing,
)

Object = t.Mapping[str, t.Any]

RECORD = "dgxspark-images"  # the ConfigMap in which digests are kept
COMPONENT = {COMPONENT_LABEL: "image-record"}
OURS = [f"{key}={value}" for key, value in COMPONENT.items()]
DIGEST = re.compile(r"sha256:[0-9a-f]{64}$")
_HEX = re.compile(r"\b(?:sha256:)?[0-9a-f]{12,}\b")
# Layers come compressed, and no list gives their unpacked size. Engine images double or treble; nobody publishes a figure for
# them, so this is an assumption, on the safe side.
UNPACKED = 3
GC_PERCENT = 85.0  # of the disk: the kubelet then removes unused images (imageGCHighThresholdPercent)


@dataclass(frozen=True, slots=True)
class Cause:
    """What a kubelet's message means. final: a retry does not help."""

    pattern: str
    says: str
    remedy: str
    final: bool = True


# The order matters: for a private repository a registry says that it does not exist "or may require authorization", and containerd
# reports a missing platform as "not found". Digests, of which 4 in 100 contain "401" or "403", are removed before the match.
CAUSES = (
    Cause(
        r"no match for platform|exec format error",
        "it is not built for these nodes (linux/arm64)",
        "Name an image that is (k8s_dgx_image).",
    ),
    Cause(
        r"no space left on device|disk quota exceeded",
        "the disk is full",
        "Free space there: `k3s crictl rmi --prune` removes unused images.",
    ),
    Cause(
        r"\b40[13] (?:Unauthorized|Forbidden)|authorization failed|access denied|insufficient_scope|no basic auth"
        r"|unauthorized|authentication required|may require authorization",
        "the registry requires authentication, or does not allow this login to read the repository",
        "Give a login for the registry in k3s_registries (role k3s), or a Secret in k8s_dgx_serving.image_pull_secrets.",
    ),
    Cause(
        r"\b429 Too Many Requests|toomanyrequests",
        "the registry limits the rate of pulls (429)",
        "Run again later, or give a login (k3s_registries).",
        final=False,
    ),
    Cause(
        r"ErrImageNeverPull|is not present with pull policy of Never",
        "it is missing, and k8s_dgx_serving.image_pull is Never",
        "Provide it as an archive (k3s_image_archives of role k3s), or let the kubelet pull it.",
    ),
    Cause(
        r"dial tcp|\blookup\b|i/o timeout|connection refused|connection reset|unreachable|no route to host|\bEOF\b|\btls:|x509"
        r"|context deadline exceeded|\b50[234] ",
        "the registry cannot be reached from there",
        "Check the node's network, proxy and mirrors (k3s_registries), or provide the image as an archive (k3s_image_archives).",
        final=False,
    ),
    Cause(
        r"not found|manifest unknown|name unknown|does not exist|InvalidImageName|couldn't parse image|invalid reference",
        "there is no such image",
        "Check its name, tag or digest (k8s_dgx_image).",
    ),
)
UNKNOWN = Cause("", "it cannot be pulled", "Name an image that can be pulled (k8s_dgx_image).", final=False)


def cause(text: str) -> Cause:
    """Return what a kubelet's message about a pull means."""
    plain = _HEX.sub("…", text)
    return next((each for each in CAUSES if re.search(each.pattern, plain, re.IGNORECASE)), UNKNOWN)


def full(image: str) -> str:
    """Return an image's name as containerd keeps it: with its registry, and by digest if it has one, else by tag.

    The first word is a registry if it has a dot or a port, or is localhost; else the registry is Docker Hub, whose one-word
    repositories lie below library/ (the reference grammar of distribution/reference).
    """
    name, _at, digest = image.partition("@")
    repository, tag = name, "latest"
    if ":" in name.rpartition("/")[2]:
        repository, _colon, tag = name.rpartition(":")
    registry, slash, rest = repository.partition("/")
    if not slash or not (set(registry) & {".", ":"} or registry == "localhost"):
        registry, rest = "docker.io", repository
    registry = "docker.io" if registry == "index.docker.io" else registry
    rest = f"library/{rest}" if registry == "docker.io" and "/" not in rest else rest
    return f"{registry}/{rest}@{digest}" if digest else f"{registry}/{rest}:{tag}"


@dataclass(frozen=True, slots=True)
class Listed:
    """An image in the list of a node's kubelet. digest: of its repository; None if it was imported."""

    digest: str | None
    size: int


def listed(node: Object, image: str) -> Listed | None:
    """Return what a node lists of an image; None if it lists nothing (a kubelet lists the largest 50)."""
    wanted = full(image)
    repository = wanted.partition("@")[0] if "@" in wanted else wanted.rpartition(":")[0]
    for each in (node.get("status") or {}).get("images") or ():
        names = [str(name) for name in each.get("names") or ()]
        if wanted in names or wanted in map(full, names):
            own = (name for name in names if name.startswith(f"{repository}@"))
            found = next((m[0] for name in own if (m := DIGEST.search(name))), None)
            return Listed(found, int(each.get("sizeBytes") or 0))
    return None


def digest_of(pod: Object) -> str | None:
    """Return the digest of the image of a pod's container; None before there is one.

    An image from an archive has no registry digest: this is then its configuration's.
    """
    for each in (pod.get("status") or {}).get("containerStatuses") or ():
        if found := DIGEST.search(str(each.get("imageID") or "")):
            return found[0]
    return None


def alike(nodes: t.Iterable[Object]) -> dict[str, str]:
    """Map every digest to one that stands for its image: nodes list several for one image (index and manifest, or two repositories).

    A kubelet lists them in no particular order, and may report any of them for a container.
    """
    groups: list[set[str]] = []
    for node in nodes:
        for each in (node.get("status") or {}).get("images") or ():
            own = {found[0] for name in each.get("names") or () if (found := DIGEST.search(str(name)))}
            met = [group for group in groups if group & own]
            groups = [group for group in groups if not group & own] + [own.union(*met)]
    return {digest: min(group) for group in groups for digest in group}


def find(nodes: t.Iterable[Object], name: str) -> Object | None:
    """Return a node by its name, or by its host name."""
    return next(
        (
            node
            for node in nodes
            if name in (node["metadata"]["name"], (node["metadata"].get("labels") or {}).get(HOSTNAME))
        ),
        None,
    )


def judge(
    image: str,
    digests: t.Mapping[str, str],
    recorded: t.Mapping[str, str],
    accept: bool,
    same: t.Mapping[str, str] | None = None,
) -> Plain:
    """Return the `digest` that all hosts have, the `record` to keep (image → digest), and `problems` in words.

    recorded: the digests of the first pulls. accept: a digest that differs from its record replaces it. same: digests that stand
    for one image, from `alike`.
    """
    same = same or {}
    kinds: dict[str, list[str]] = {}
    for host, digest in digests.items():
        kinds.setdefault(same.get(digest, digest), []).append(host)
    if len(kinds) > 1:
        told = "; ".join(f"{', '.join(hosts)}: {digests[hosts[0]][:19]}…" for hosts in kinds.values())
        return {
            "digest": None,
            "record": dict(recorded),
            "problems": [
                f"{image} is not the same image on all nodes ({told}): its tag moved between two pulls. Remove it where it is "
                f"the older one (`k3s crictl rmi {full(image)}`) and serve again a minute later, or name a digest in k8s_dgx_image."
            ],
        }
    one = next(iter(digests.values()), None)
    key, problems = full(image), []
    before = recorded.get(key)
    if one and before and same.get(before, before) in kinds:
        one = before
    if one and "@" not in image and before not in (None, one) and not accept:
        problems.append(
            f"{image} is {one} now, and was {before} at the first pull: its tag moved. Look at what changed, then "
            "serve again with k8s_dgx_image_digest_change=accept and k8s_dgx_restart=true, once, or name the digest that you trust in "
            "k8s_dgx_image."
        )
    kept = {key: one} if one and "@" not in image and not problems else {}
    return {"digest": one, "record": {**recorded, **kept}, "problems": problems}


def room(
    image: str,
    nodes: t.Sequence[Object],
    names: t.Mapping[str, str],
    mounts: t.Mapping[str, t.Sequence[t.Mapping[str, t.Any]]],
    choices: t.Mapping[str, t.Any],
) -> Plain:
    """Return which hosts are `lacking` an image, the disk space in GiB that it takes there (`need_gib`), and `problems` in words.

    names: host → node. mounts: host → its mounts, from Ansible's facts; a host without an entry is not judged. choices: `path`
    (where containerd keeps images), `reserve_gib` (to stay free), `assumed_gib` (the size of an image that no node lists),
    `gc_percent` (of the disk, where the kubelet begins to remove images).
    """
    found = {host: listed(node, image) for host, name in names.items() if (node := find(nodes, name)) is not None}
    lacking = [host for host in names if not found.get(host)]
    size = max((each.size for node in nodes if (each := listed(node, image))), default=0)
    need = size * (1 + UNPACKED) / GIB if size else float(choices.get("assumed_gib", 0))
    reserve, percent = float(choices.get("reserve_gib", 0)), float(choices.get("gc_percent") or GC_PERCENT)
    problems = []
    for host in lacking if need else ():
        disk = _disk(mounts.get(host) or (), str(choices["path"]))
        if disk is None:
            continue
        free, total = disk
        left = free - need
        words = f"{host}: {free:.1f} GiB are free where containerd keeps images, and {image} takes about {need:.1f} GiB"
        words += "" if size else " (an assumption: k8s_dgx_image_room_gib)"
        prune = "Free space there: `k3s crictl rmi --prune` removes unused images."
        if left < reserve:
            problems.append(f"{words}; {reserve:g} GiB must stay free. Nothing was stopped. {prune}")
        elif (full_percent := 100 * (1 - left / total)) >= percent:
            problems.append(
                f"{words}: its disk would be {full_percent:.0f} % full, and from {percent:g} % on, the "
                f"kubelet removes images that no container uses yet. Nothing was stopped. {prune}"
            )
    shown = max(round(need, 1), 0.1) if lacking and need else 0.0  # 0: nothing to judge; a small image shows 0.1
    return {"lacking": lacking, "need_gib": shown, "problems": problems}


def _disk(mounts: t.Sequence[t.Mapping[str, t.Any]], path: str) -> tuple[float, float] | None:
    """Return free room and size (GiB) of the disk that holds a path; None if no mount of it is known."""
    over = [
        each
        for each in mounts
        if f"{path}/".startswith(f"{str(each['mount']).rstrip('/')}/") and each.get("size_total")
    ]
    own = max(over, key=lambda each: len(str(each["mount"])), default=None)
    return (int(own["size_available"]) / GIB, int(own["size_total"]) / GIB) if own else None


def record(config_maps: t.Sequence[Object]) -> dict[str, str]:
    """Return the digests of the first pulls (image → digest) from the ConfigMap. Raises CollectionError for a line without a digest."""
    own = next((each for each in config_maps if each["metadata"]["name"] == RECORD), {})
    text = str((own.get("data") or {}).get("digests", ""))
    found = {image: digest for image, _space, digest in (line.rpartition(" ") for line in text.splitlines())}
    wrong = next((image for image, digest in found.items() if not DIGEST.fullmatch(digest)), None)
    if wrong is not None:
        raise CollectionError(
            f"ConfigMap {RECORD}: {wrong or 'a line'} has no digest. Correct it, or delete it: the next pull is then trusted."
        )
    return found


def record_object(namespace: str, known: t.Mapping[str, str]) -> Plain:
    """Return the ConfigMap that keeps the digests: it outlives the instances."""
    text = "".join(f"{image} {digest}\n" for image, digest in sorted(known.items()))
    return thing("v1", "ConfigMap", RECORD, namespace, labels(**COMPONENT), data={"digests": text})
