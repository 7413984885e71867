# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Get one artefact into a bundle's folder: intact files stay; others are fetched, checked and recorded."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import shutil
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import MIB, CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import http_client
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bundle import manifest, transfer
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bundle.reference import parse
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bundle.registry import Registry
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bundle.wanted import Artefact

if t.TYPE_CHECKING:
    import httpx

_LINK = re.compile(r'<a\s[^>]*href="([^"]+)"[^>]*>\s*([^<]+?)\s*</a>', re.IGNORECASE)


@dataclass(frozen=True)
class Way:
    """Access to the internet. mirrors: by registry name, or by URL prefix. refresh: resolve tags again."""

    asked: httpx.Client
    mirrors: t.Mapping[str, str] = field(default_factory=dict)
    logins: t.Mapping[str, str] = field(default_factory=dict)
    refresh: bool = False

    @property
    def registry(self) -> Registry:
        """The registries, reached this way."""
        return Registry(self.asked, self.mirrors, self.logins)


@dataclass(frozen=True, slots=True)
class Had:
    """The outcome for an artefact. said: in words, without its name. there: its manifest entry, or None if it was not fetched."""

    changed: bool
    said: str
    there: Artefact | None = None


def have(folder: str, artefact: Artefact, way: Way, *, check: bool = False) -> Had:
    """Get an artefact, or with `check` say what would be fetched. CollectionError if it cannot be fetched or is not as expected."""
    there = manifest.noted(folder, artefact)
    if there:
        artefact = dataclasses.replace(artefact, path=there.path)
    problem = manifest.wrong(folder, there) if there else None
    if there and not problem and not (way.refresh and artefact.kind == "image" and artefact.digest is None):
        return Had(False, _words(there.size), there)
    if check:
        size = artefact.size or _size(artefact, way)
        return Had(True, f"{_words(size)} to be fetched from {artefact.source}" + (f" ({problem})" if problem else ""))
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    made = {"file": _file, "python": _wheel, "image": _image}[artefact.kind](
        folder, artefact, way, None if problem else there
    )
    manifest.note(folder, made)
    return Had(made != there or bool(problem), _words(made.size), made)


def _words(size: int | None) -> str:
    return "of unknown size" if size is None else f"{size / MIB:.1f} MiB"


def _size(artefact: Artefact, way: Way) -> int | None:
    if artefact.kind == "image":
        return way.registry.image(parse(artefact.source), str(artefact.arch)).size
    return http_client.size_of(way.asked, transfer.mirrored(artefact.source, way.mirrors))


def _done(folder: str, artefact: Artefact, sha256: str, **more: t.Any) -> Artefact:
    size = pathlib.Path(folder, artefact.path).stat().st_size
    return dataclasses.replace(artefact, sha256=sha256, size=size, **more)


def _file(folder: str, artefact: Artefact, way: Way, _there: Artefact | None) -> Artefact:
    expected, target = _expected(folder, artefact), pathlib.Path(folder, artefact.path)
    seen = transfer.download(way.asked, transfer.mirrored(artefact.source, way.mirrors), target, expected)
    return _done(folder, artefact, seen)


def _expected(folder: str, artefact: Artefact) -> str | None:
    """Return a file's expected SHA-256: the known one, which its release's list must confirm, else the list's."""
    if artefact.listed is None:
        return artefact.sha256
    path, name = pathlib.Path(folder, artefact.listed), pathlib.PurePosixPath(artefact.path).name
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as exc:
        raise CollectionError(f"{path}, the list of checksums for {name}, cannot be read: {exc}.") from exc
    said = {parts[1].removeprefix("*"): parts[0] for line in lines if len(parts := line.split()) == 2}
    listed = said.get(name)
    if not listed or (artefact.sha256 and listed != artefact.sha256):
        raise CollectionError(
            f"{path} is not the list of {artefact.version}: for {name} SHA-256 {listed or 'nothing'} was found, and "
            f"{artefact.sha256 or 'one'} is expected. Remove the list, and check the mirror or k3s_checksums."
        )
    return listed


def _wheel(folder: str, artefact: Artefact, way: Way, _there: Artefact | None) -> Artefact:
    """Fetch a wheel from the location in the package index (PEP 503)."""
    url, name = transfer.mirrored(artefact.source, way.mirrors), pathlib.PurePosixPath(artefact.path).name
    answer = http_client.page(way.asked, url, {"Accept": "text/html"})
    links = {text: link for link, text in _LINK.findall(answer.text)}
    if name not in links:
        raise CollectionError(f"{url} has no {name}. The index or mirror is not complete.")
    link = str(answer.url.join(links[name].partition("#")[0]))
    seen = transfer.download(
        way.asked, transfer.mirrored(link, way.mirrors), pathlib.Path(folder, artefact.path), artefact.sha256
    )
    return _done(folder, artefact, seen)


def _image(folder: str, artefact: Artefact, way: Way, there: Artefact | None) -> Artefact:
    wanted, arch, target = parse(artefact.source), str(artefact.arch), pathlib.Path(folder, artefact.path)
    registry = way.registry
    image = registry.image(wanted, arch)
    if there and there.digest == image.digest:
        return there
    target.parent.mkdir(parents=True, exist_ok=True)
    free, need = shutil.disk_usage(target.parent).free, 2 * image.size
    if free < need:
        raise CollectionError(
            f"{target}: {wanted.name} has {image.size / MIB:.0f} MiB and takes twice that while its archive is created; {free / MIB:.0f} MiB "
            "are free there. Free space there, or choose another folder."
        )
    return _done(folder, artefact, registry.archive(wanted, image, arch, target), digest=image.digest)
