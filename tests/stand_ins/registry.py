"""A stand-in for a registry: what a client asks for when it pulls, and its faults; and images of a few MiB to pull.

Imitated: the OCI distribution specification 1.1, of it end-1 to end-3 (HEAD and GET of manifests by tag and digest, GET of blobs),
with manifests and indexes of the OCI image specification 1.1; and, where it requires authentication, 401 with a Bearer challenge
and a token for a name and a password (as Docker Hub and ghcr.io do). Not imitated: uploads, lists of tags, referrers, ranges. It
serves a folder of blobs with `tags.json` (`repository:tag` → digest) and, where only a known user may pull, `login`
(`name:password`); what was sent is appended to `sent` there.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import pathlib
import re
import tarfile
import typing as t
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Plain = dict[str, t.Any]
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


@dataclass
class Image:
    """An image as a registry has it. digest: what its name stands for. wanted: the digests that one architecture needs."""

    digest: str = ""
    blobs: dict[str, bytes] = field(default_factory=dict)
    wanted: dict[str, list[str]] = field(default_factory=dict)

    def add(self, data: bytes) -> tuple[str, int]:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.blobs[digest] = data
        return digest, len(data)

    def described(self, kind: str, data: bytes, **more: t.Any) -> Plain:
        digest, size = self.add(data)
        return {"mediaType": kind, "digest": digest, "size": size, **more}


def layer(files: t.Mapping[str, bytes]) -> tuple[bytes, str]:
    """Return a layer and the digest of its tar."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            tar.addfile(entry, io.BytesIO(data))
    return gzip.compress(made.getvalue(), 1, mtime=0), f"sha256:{hashlib.sha256(made.getvalue()).hexdigest()}"


def manifest(image: Image, architecture: str, layers: t.Sequence[t.Mapping[str, bytes]]) -> Plain:
    """Put the image of one architecture there; return its description."""
    made = [layer(files) for files in layers]
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Cmd": ["/engine"]},
        "rootfs": {"type": "layers", "diff_ids": [diff for _data, diff in made]},
    }
    whole = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": image.described(CONFIG, json.dumps(config).encode()),
        "layers": [image.described(LAYER, data) for data, _diff in made],
    }
    found = image.described(MANIFEST, json.dumps(whole).encode())
    image.wanted[architecture] = [
        found["digest"],
        whole["config"]["digest"],
        *(each["digest"] for each in whole["layers"]),
    ]
    return found


def single(layers: t.Sequence[t.Mapping[str, bytes]], architecture: str = "amd64") -> Image:
    """Return an image of one architecture, without an index."""
    made = Image()
    made.digest = manifest(made, architecture, layers)["digest"]
    return made


def several(layers: t.Sequence[t.Mapping[str, bytes]]) -> Image:
    """Return an image as build services make them: an index of two architectures, each with an attestation."""
    made = Image()
    entries = []
    for architecture in ("amd64", "arm64"):
        found = manifest(made, architecture, [*layers, {"arch": architecture.encode()}])
        statement = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": made.described(CONFIG, json.dumps({"architecture": "unknown", "os": "unknown"}).encode()),
            "layers": [made.described("application/vnd.in-toto+json", f'"{architecture}"'.encode())],
        }
        entries += [
            {**found, "platform": {"architecture": architecture, "os": "linux"}},
            made.described(
                MANIFEST,
                json.dumps(statement).encode(),
                annotations={"vnd.docker.reference.type": "attestation-manifest"},
                platform={"architecture": "unknown", "os": "unknown"},
            ),
        ]
    whole = {"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}
    made.digest = made.add(json.dumps(whole).encode())[0]
    for architecture in made.wanted:
        made.wanted[architecture].insert(0, made.digest)
    return made


def lay(folder: pathlib.Path, images: t.Mapping[str, Image], login: str = "") -> None:
    """Write what the program serves. images: `repository:tag` → image."""
    folder.mkdir(parents=True, exist_ok=True)
    for image in images.values():
        for digest, data in image.blobs.items():
            (folder / digest).write_bytes(data)
    (folder / "tags.json").write_text(
        json.dumps({tag: image.digest for tag, image in images.items()}), encoding="utf-8"
    )
    if login:
        (folder / "login").write_text(login, encoding="utf-8")


def sent(folder: pathlib.Path) -> list[str]:
    """Return what was asked for and sent: paths of manifests and blobs."""
    place = folder / "sent"
    return place.read_text(encoding="utf-8").split() if place.exists() else []


class Handler(BaseHTTPRequestHandler):
    """One request. folder: what is served."""

    protocol_version = "HTTP/1.1"
    folder = pathlib.Path()

    def log_message(self, *_arguments: t.Any) -> None:
        pass

    def answer(self, code: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, code: int, error: str, **headers: str) -> None:
        self.answer(code, json.dumps({"errors": [{"code": error, "message": error.lower()}]}).encode(), **headers)

    def known(self) -> bool:
        """Whether the asker may pull; else it is told where a token is to be had."""
        place = self.folder / "login"
        if not place.exists():
            return True
        token = base64.b64encode(place.read_bytes()[::-1]).decode()
        if self.headers.get("Authorization") == f"Bearer {token}":
            return True
        here = f"http://{self.headers['Host']}"
        challenge = f'Bearer realm="{here}/token",service="stand-in"'
        self.refuse(401, "UNAUTHORIZED", WWW_Authenticate=challenge)
        return False

    def token(self) -> None:
        login = (self.folder / "login").read_bytes()
        if self.headers.get("Authorization") == f"Basic {base64.b64encode(login).decode()}":
            self.answer(200, json.dumps({"token": base64.b64encode(login[::-1]).decode()}).encode())
        else:
            self.refuse(401, "UNAUTHORIZED")

    def do_GET(self) -> None:
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        if path == "/token":
            self.token()
            return
        if not self.known():
            return
        found = re.fullmatch(r"/v2/(.+)/(manifests|blobs)/([^/]+)", path)
        if not found:
            self.answer(200 if path == "/v2/" else 404)
            return
        tags = json.loads((self.folder / "tags.json").read_text(encoding="utf-8"))
        digest = found[3] if found[3].startswith("sha256:") else tags.get(f"{found[1]}:{found[3]}", "none")
        place = self.folder / digest
        if not place.exists() or not any(tag.startswith(f"{found[1]}:") for tag in tags):
            self.refuse(404, "MANIFEST_UNKNOWN")
            return
        data = place.read_bytes()
        kind = json.loads(data)["mediaType"] if found[2] == "manifests" else "application/octet-stream"
        if self.command == "GET":
            with (self.folder / "sent").open("a", encoding="utf-8") as file:
                file.write(f"{found[2]}/{digest}\n")
        self.answer(200, data, Content_Type=kind, Docker_Content_Digest=digest)

    do_HEAD = do_GET


def serve(folder: pathlib.Path, port: int = 0) -> ThreadingHTTPServer:
    """Return a server on loopback that is not served yet."""
    return ThreadingHTTPServer(("127.0.0.1", port), type("Bound", (Handler,), {"folder": folder}))
