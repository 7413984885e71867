# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From an image in a registry (the distribution's v2 API) to an archive that containerd imports, every byte checked by digest."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import pathlib
import re
import shutil
import tarfile
import typing as t
import urllib.parse
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import from_json
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import http_client
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bundle import transfer
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bundle.reference import Reference
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.image import DIGEST

if t.TYPE_CHECKING:
    import httpx

Plain = dict[str, t.Any]
HUB = "https://registry-1.docker.io"
INDEX = "application/vnd.oci.image.index.v1+json"
KINDS = (
    INDEX,
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
NAME = "io.containerd.image.name"  # annotation, see containerd's core/images/annotations.go
TAG = "org.opencontainers.image.ref.name"  # annotation of the OCI image layout
_DOCKER = ("docker.io", "index.docker.io", "registry-1.docker.io")
_HERE = ("127.0.0.1", "::1", "localhost")  # nobody listens between
_VARIANTS = {"arm64": (None, "", "v8"), "amd64": (None, "", "v1")}
_PARTS = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Image:
    """The parts of an image for one architecture. digest, kind: of its top manifest or index. small: manifests. blobs: size by digest."""

    digest: str
    kind: str
    small: t.Mapping[str, bytes]
    blobs: t.Mapping[str, int]

    @property
    def size(self) -> int:
        """Compressed size in bytes, as transferred."""
        return sum(self.blobs.values()) + sum(map(len, self.small.values()))


@dataclass
class Registry:
    """A registry's client. mirrors: base URL by registry name. logins: `user:password` by registry name, a mirror's by its host."""

    asked: httpx.Client
    mirrors: t.Mapping[str, str] = field(default_factory=dict)
    logins: t.Mapping[str, str] = field(default_factory=dict)
    _passes: dict[str, str] = field(default_factory=dict)

    def image(self, wanted: Reference, arch: str) -> Image:
        """Return an image's parts for an architecture. CollectionError if it has none for it, or does not match its digest."""
        kind, data = self._manifest(wanted, wanted.tag_or_digest)
        digest = _digest(data)
        top, small = _json(data, wanted.name), {digest: data}
        if "manifests" in top:
            fit = [each for each in top["manifests"] if _fits(each.get("platform"), arch)]
            if not fit:
                has = {str((each.get("platform") or {}).get("architecture")) for each in top["manifests"]} - {"unknown"}
                raise CollectionError(
                    f"{wanted.name} is not for {arch}; it is for {', '.join(sorted(has)) or 'nothing known'}."
                )
            for each in fit:
                if not DIGEST.match(str(each.get("digest"))):
                    raise CollectionError(f"{wanted.name}: {each.get('digest')!r} is not a digest.")
                small[each["digest"]] = self._manifest(wanted, each["digest"])[1]
        blobs: dict[str, int] = {}
        for each, text in small.items():
            manifest = _json(text, each)
            if "manifests" in manifest:
                continue
            try:
                blobs |= {str(part["digest"]): int(part["size"]) for part in (manifest["config"], *manifest["layers"])}
            except (KeyError, TypeError, ValueError) as exc:
                raise CollectionError(f"{wanted.name}: {each} is not an image manifest ({exc}).") from exc
        wrong = [each for each in blobs if not DIGEST.match(each)]
        if wrong:
            raise CollectionError(f"{wanted.name}: {wrong[0]!r} is not a digest.")
        return Image(digest, str(top.get("mediaType") or kind), small, blobs)

    def archive(self, wanted: Reference, image: Image, arch: str, target: pathlib.Path) -> str:
        """Write an image to an archive; return its SHA-256. After an interruption, complete blobs are kept."""
        blobs = target.parent / ".blobs"
        for digest in image.blobs:
            path = blobs / digest.partition(":")[2]
            if not path.is_file():
                self._blob(wanted, digest, path)
        if "manifests" not in _json(image.small[image.digest], image.digest):
            self._config_fits(wanted, image, arch, blobs)
        seen = _pack(wanted, image, blobs, target)
        shutil.rmtree(blobs)
        return seen

    def _config_fits(self, wanted: Reference, image: Image, arch: str, blobs: pathlib.Path) -> None:
        digest = _json(image.small[image.digest], image.digest)["config"]["digest"]
        config = _json((blobs / digest.partition(":")[2]).read_bytes(), digest)
        if not _fits(config, arch):
            raise CollectionError(
                f"{wanted.name} is not for {arch}; it is for {config.get('architecture') or 'nothing known'}."
            )

    def _named(self, wanted: Reference) -> str:
        """Return the name whose login is used: the mirror's host if there is a mirror. A mirror never gets its registry's login."""
        mirror = self.mirrors.get(wanted.registry)
        if mirror and "@" in urllib.parse.urlsplit(mirror).netloc:
            raise CollectionError(
                f"dgxspark_bundle_mirrors.{wanted.registry}: the address has a login in it. Give that in dgxspark_bundle_logins."
            )
        return urllib.parse.urlsplit(mirror).netloc if mirror else wanted.registry

    def _base(self, wanted: Reference) -> str:
        self._named(wanted)
        usual = HUB if wanted.registry == "docker.io" else f"https://{wanted.registry}"
        return self.mirrors.get(wanted.registry, usual).rstrip("/") + f"/v2/{wanted.repository}"

    def _manifest(self, wanted: Reference, what: str) -> tuple[str, bytes]:
        url = f"{self._base(wanted)}/manifests/{what}"
        answer = http_client.small(self.asked, url, {"Accept": ", ".join(KINDS), **self._pass(wanted)})
        if answer.status_code == 401:
            self._enter(wanted, answer)
            answer = http_client.small(self.asked, url, {"Accept": ", ".join(KINDS), **self._pass(wanted)})
        if answer.status_code in (401, 403, 404):
            raise CollectionError(
                f"{wanted.name}: the registry says {answer.status_code} to {what}. Check that the name is right"
                + (
                    f", and that the login of {self._named(wanted)} may read it (dgxspark_bundle_logins)."
                    if self._named(wanted) in self.logins
                    else f"; a private image needs a login for {self._named(wanted)} (dgxspark_bundle_logins)."
                )
            )
        if answer.status_code != 200:
            raise CollectionError(f"{wanted.name}: the registry says {answer.status_code}. Try again later.")
        kind, data = answer.headers.get("content-type", "").partition(";")[0], answer.content
        if DIGEST.match(what) and _digest(data) != what:
            raise CollectionError(
                f"{wanted.name}: the registry gave {_digest(data)} for {what}. Nothing of it was kept."
            )
        if kind not in KINDS:
            raise CollectionError(
                f"{wanted.name}: the registry gave {kind or 'nothing named'}, which is not an OCI or Docker v2 manifest."
            )
        return kind, data

    def _blob(self, wanted: Reference, digest: str, path: pathlib.Path) -> None:
        url, sha256 = f"{self._base(wanted)}/blobs/{digest}", digest.partition(":")[2]
        try:
            transfer.download(self.asked, url, path, sha256, self._pass(wanted))
        except CollectionError as exc:
            if getattr(getattr(exc.__cause__, "response", None), "status_code", None) not in (401, 403):
                raise
            # A token is valid for some minutes, and a large image takes longer: get a new one once.
            self._passes.pop(wanted.repository, None)
            self._manifest(wanted, wanted.tag_or_digest)
            transfer.download(self.asked, url, path, sha256, self._pass(wanted))

    def _pass(self, wanted: Reference) -> dict[str, str]:
        held = self._passes.get(wanted.repository)
        return {"Authorization": held} if held else {}

    def _enter(self, wanted: Reference, answer: httpx.Response) -> None:
        """Get a token for a repository, as the registry's 401 demands. A login goes only where it is for, and encrypted."""
        said = answer.headers.get("www-authenticate", "")
        scheme, parts = said.partition(" ")[0].lower(), dict(_PARTS.findall(said))
        login = self.logins.get(self._named(wanted))
        base = urllib.parse.urlsplit(self._base(wanted))
        if login and base.scheme != "https" and base.hostname not in _HERE:
            raise CollectionError(
                f"{wanted.name}: {base.scheme}://{base.netloc} would get its login in clear. Give its address with https:// "
                "(dgxspark_bundle_mirrors), or remove the login (dgxspark_bundle_logins) if it needs none."
            )
        basic = f"Basic {base64.b64encode(login.encode()).decode()}" if login else None
        if scheme == "basic" and basic:
            self._passes[wanted.repository] = basic
        if scheme != "bearer" or "realm" not in parts:
            return
        realm = urllib.parse.urlsplit(parts["realm"])
        if realm.scheme != "https" and realm.netloc != base.netloc:
            raise CollectionError(f"{wanted.name}: the registry sends logins to {realm.netloc} without encryption.")
        query = {"scope": parts.get("scope") or f"repository:{wanted.repository}:pull"}
        query |= {"service": parts["service"]} if "service" in parts else {}
        url = urllib.parse.urlunsplit((realm.scheme, realm.netloc, realm.path, urllib.parse.urlencode(query), ""))
        given = http_client.small(self.asked, url, {"Authorization": basic} if basic else {})
        if given.status_code == 200:
            body = _json(given.content, realm.netloc)
            self._passes[wanted.repository] = f"Bearer {body.get('token') or body.get('access_token')}"


def logins(path: str | None) -> dict[str, str]:
    """Return `user:password` by registry, from a file like Docker's config.json (`auths`). None: no logins."""
    if not path:
        return {}
    try:
        given = json.loads(pathlib.Path(path).read_text(encoding="utf-8")).get("auths", {})
        found = {host: base64.b64decode(entry["auth"]).decode() for host, entry in given.items() if entry.get("auth")}
    except (OSError, ValueError, AttributeError, TypeError) as exc:
        raise CollectionError(
            f"{path} has no logins in the form of Docker's config.json ({type(exc).__name__})."
        ) from exc
    named = {re.sub(r"^https?://|/.*$", "", host): login for host, login in found.items()}
    return {"docker.io" if host in _DOCKER else host: login for host, login in named.items()}


def _pack(wanted: Reference, image: Image, blobs: pathlib.Path, target: pathlib.Path) -> str:
    """Write the archive; the same image gives the same bytes. K3s skips manifests of the index that are absent."""
    entry = {
        "mediaType": image.kind,
        "digest": image.digest,
        "size": len(image.small[image.digest]),
        "annotations": {NAME: wanted.name, TAG: wanted.tag},
    }
    texts = {
        "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
        "index.json": json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}).encode(),
    }
    texts |= {f"blobs/sha256/{digest.partition(':')[2]}": data for digest, data in sorted(image.small.items())}
    part = target.with_name(f".{target.name}.part")
    with part.open("wb") as file:
        out = _Summed(file)
        with tarfile.open(fileobj=t.cast(t.IO[bytes], out), mode="w|", format=tarfile.PAX_FORMAT) as tar:
            for name, data in texts.items():
                tar.addfile(_entry(name, len(data)), io.BytesIO(data))
            for digest in sorted(image.blobs):
                path = blobs / digest.partition(":")[2]
                with path.open("rb") as blob:
                    tar.addfile(_entry(f"blobs/sha256/{path.name}", path.stat().st_size), blob)
    part.replace(target)
    return out.sum.hexdigest()


def _entry(name: str, size: int) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.size = size
    return made


class _Summed:
    """A file that computes its SHA-256 as it is written."""

    def __init__(self, file: t.IO[bytes]) -> None:
        self.file, self.sum = file, hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.sum.update(data)
        return self.file.write(data)


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _json(data: bytes, what: str) -> Plain:
    try:
        found = from_json(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise CollectionError(f"{what}: the answer is not a JSON object.")
    return found


def _fits(given: t.Mapping[str, t.Any] | None, arch: str) -> bool:
    if given is None:
        return True
    return (given.get("os"), given.get("architecture")) == ("linux", arch) and given.get("variant") in _VARIANTS[arch]
