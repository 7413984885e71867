"""Releases of the K3s stand-in (tests/stand_ins/k3s), laid out like real ones."""

from __future__ import annotations

import hashlib
import pathlib
import platform

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.tests.unit.namespaces import STAND_INS

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
BINARY = "k3s" if ARCHITECTURE == "amd64" else f"k3s-{ARCHITECTURE}"
ARCHIVE = f"k3s-airgap-images-{ARCHITECTURE}.tar.zst"
# The first has config keys in knowledge/k3s; the others have no entry there, so the owner's checksums count.
OLD, NEW, NEWER = "v1.36.4+k3s1", "v1.36.104+k3s1", "v1.36.105+k3s1"


def release(
    folder: pathlib.Path, version: str, *, broken: str = "", corrupt: bool = False, images: bool = True
) -> None:
    """Write a release of the stand-in to a folder, laid out like a real one."""
    place = folder / version
    place.mkdir(parents=True, exist_ok=True)
    keys = knowledge.get("k3s", OLD)["config_keys"]
    text = (STAND_INS / "k3s").read_text(encoding="utf-8") + f"# VERSION {version}\n"
    text += "".join(f"# KEYS {role} {' '.join(listed)}\n" for role, listed in keys.items())
    text += f"# BROKEN {broken}\n" if broken else ""
    (place / BINARY).write_text(text, encoding="utf-8")
    digest = hashlib.sha256((place / BINARY).read_bytes()).hexdigest()
    archive = b"images of " + version.encode()
    sums = f"{digest}  {BINARY}\n{hashlib.sha256(archive).hexdigest()}  {ARCHIVE}\n"
    (place / f"sha256sum-{ARCHITECTURE}.txt").write_text(sums, encoding="utf-8")
    if corrupt:
        (place / BINARY).write_text(text.replace("STAND-IN", "STAND-OUT"), encoding="utf-8")
    if images:
        (place / ARCHIVE).write_bytes(archive)
