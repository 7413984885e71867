# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a site needs from outside: one list, with each artefact's identity. Pure data; sends no requests."""

from __future__ import annotations

import hashlib
import re
import typing as t
import urllib.parse
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, from_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bundle.reference import parse
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.k3s import config as k3s_config
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import platform
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import find_profile, resolve_profile

RELEASES = "https://github.com/k3s-io/k3s/releases/download"
INDEX = "https://pypi.org/simple"
ARCHITECTURES = ("arm64", "amd64")
HUB = "huggingface_hub"
_LEGIBLE = 100  # characters of an image's name; a file name in K3s's folder may have 255, with digest and extension


@dataclass(frozen=True, slots=True)
class Artefact:
    """One thing from outside.

    source: the URL of a file, the reference of an image, or a wheel's page in the package index. path: below the bundle's
    folder. arch: None if it serves all. sha256: of the file; None if only the release's list knows it. listed: that list's
    path in the bundle. digest: of an image. size: bytes; None if unknown. needed_by: the part that uses it.
    """

    kind: t.Literal["file", "image", "python"]
    name: str
    version: str
    source: str
    path: str
    needed_by: str
    arch: str | None = None
    sha256: str | None = None
    listed: str | None = None
    digest: str | None = None
    size: int | None = None


@dataclass(frozen=True)
class Choices:
    """The owner's choices that need something from outside. Anything left out is not needed.

    k3s: its version, for its hosts' architectures. kubernetes: the platform's choices, as for kube_platform; vfs: whether the
    fabric plans any. profile, shape, overrides, image: the model for a traffic shape, and the engine's image if not the profile's.
    hub: the version of huggingface_hub. bench: the image of the NCCL benchmark's pods, if the owner names one. gateway, webui: the
    images of the gateway and of the page before it.
    """

    k3s: str | None = None
    architectures: tuple[str, ...] = ("arm64",)
    checksums: dict[str, str] = field(default_factory=dict)
    kubernetes: dict[str, t.Any] | None = None
    vfs: bool = True
    spark: str = "arm64"
    profile: str | None = None
    shape: str | None = None
    overrides: dict[str, t.Any] = field(default_factory=dict)
    image: str | None = None
    hub: str | None = None
    bench: str | None = None
    gateway: str | None = None
    webui: str | None = None


def artefacts(choices: t.Mapping[str, t.Any], knowledge_dirs: t.Sequence[str] = ()) -> list[Artefact]:
    """Return the list in the order of fetching: a release's list of checksums comes before the files it vouches for.

    Raises CollectionError, with a remedy, for a choice about which nothing is known.
    """
    chosen, dirs = from_plain(Choices, dict(choices), "bundle"), list(knowledge_dirs)
    unknown = [each for each in (*chosen.architectures, chosen.spark) if each not in ARCHITECTURES]
    if unknown:
        raise CollectionError(f"architectures: {unknown[0]!r} is not one of {', '.join(ARCHITECTURES)}.")
    made = _k3s(chosen, dirs) if chosen.k3s else []
    if chosen.kubernetes is not None:
        made += _platform(chosen, dirs)
    engine = _engine(chosen, dirs)
    if engine:
        made.append(_image("engine", engine, chosen.spark, "k8s_dgx: ranks"))
    if chosen.bench:
        made.append(_image("nccl_bench", chosen.bench, chosen.spark, "nccl: benchmark"))
    for name, reference in (("gateway", chosen.gateway), ("webui", chosen.webui)):
        if reference:
            made.append(_image(name, reference, chosen.spark, "model_gateway"))
    if chosen.hub:
        made += _hub(chosen.hub, chosen.spark, dirs)
    return list({artefact.path: artefact for artefact in made}.values())


def _k3s(chosen: Choices, dirs: t.Sequence[str]) -> list[Artefact]:
    version = str(chosen.k3s)
    release = k3s_config.releases(dirs).get(version, {})
    place = f"{RELEASES}/{urllib.parse.quote(version, safe='')}"
    made = []
    for arch in dict.fromkeys(chosen.architectures):
        listed = f"k3s/{version}/sha256sum-{arch}.txt"
        binary = "k3s" if arch == "amd64" else f"k3s-{arch}"
        known = chosen.checksums.get(arch) or release.get("sha256", {}).get(arch)
        images = release.get("images_sha256", {}).get(arch)
        files = {
            f"sha256sum-{arch}.txt": (None, None),
            binary: (known, listed),
            f"k3s-airgap-images-{arch}.tar.zst": (images, listed),
        }
        for file, (sha256, by) in files.items():
            made.append(
                Artefact(
                    kind="file",
                    name=file,
                    version=version,
                    source=f"{place}/{file}",
                    path=f"k3s/{version}/{file}",
                    needed_by="k3s",
                    arch=arch,
                    sha256=sha256,
                    listed=by,
                )
            )
    return made


def _platform(chosen: Choices, dirs: t.Sequence[str]) -> list[Artefact]:
    kubernetes = from_plain(platform.Platform, dict(chosen.kubernetes or {}), "kubernetes")
    known = platform.known_parts(dirs)
    made = []
    for part, state in platform.states(kubernetes, chosen.vfs).items():
        entry = known.get(part)
        if state != "present" or entry is None:
            continue
        if "image" in entry:
            reference = kubernetes.images.get(part) or platform.reference(entry)
            made.append(_image(part, reference, chosen.spark, "k8s_platform", entry["version"]))
        else:
            made.append(_archive(part, entry, chosen.spark))
    return made


def _archive(part: str, entry: t.Mapping[str, t.Any], arch: str) -> Artefact:
    file = entry["files"].get(arch)
    if file is None:
        raise CollectionError(f"{part} {entry['version']} has no archive for {arch} (knowledge/platform).")
    name = file["url"].rpartition("/")[2]
    return Artefact(
        kind="file",
        name=part,
        version=entry["version"],
        source=file["url"],
        path=f"files/{name}",
        needed_by="k8s_platform",
        arch=arch,
        sha256=file["sha256"],
    )


def _image(name: str, reference: str, arch: str, needed_by: str, version: str | None = None) -> Artefact:
    image = parse(reference)
    # A readable stem for people; the hash makes the name unique.
    stem = re.sub(r"[^a-z0-9.]+", "-", image.name.lower())[:_LEGIBLE].strip("-.")
    mark = hashlib.sha256(f"{image.name}@{image.digest or ''}".encode()).hexdigest()[:12]
    return Artefact(
        kind="image",
        name=name,
        version=version or image.tag,
        source=reference,
        path=f"images/{stem}-{mark}-{arch}.tar",
        needed_by=needed_by,
        arch=arch,
        digest=image.digest,
    )


def _engine(chosen: Choices, dirs: t.Sequence[str]) -> str | None:
    if chosen.image or not chosen.profile:
        return chosen.image
    entry = find_profile(chosen.profile, dirs)
    variant = entry.get("shapes", {}).get(chosen.shape)
    found = resolve_profile(entry, ({"variant": variant} if variant else {}) | chosen.overrides)
    if not found.engine.image:
        raise CollectionError(
            f"profile {found.id!r} names no image that can be pulled. Build or choose one, and name it in k8s_dgx_image."
        )
    return found.engine.image


def _hub(version: str, arch: str, dirs: t.Sequence[str]) -> list[Artefact]:
    known = [entry for entry in knowledge.load("python", dirs).values() if entry["package"] == HUB]
    entry = next((each for each in known if (each["version"], each["architecture"]) == (version, arch)), None)
    if entry is None:
        has = ", ".join(f"{each['version']} ({each['architecture']})" for each in known)
        raise CollectionError(
            f"model_weights_hub_version: the wheels of {HUB} {version} for {arch} are not known, only those of {has}. Use such a version, or "
            "add an entry to knowledge/python."
        )
    return [
        Artefact(
            kind="python",
            name=wheel["file"].partition("-")[0],
            version=wheel["file"].split("-")[1],
            source=f"{INDEX}/{wheel['file'].partition('-')[0].replace('_', '-').lower()}/",
            path=f"python/{HUB}-{version}/{wheel['file']}",
            needed_by="model_weights",
            arch=arch,
            sha256=wheel["sha256"],
            size=wheel["size"],
        )
        for wheel in entry["wheels"]
    ]
