"""A stand-in for the hub: enough of its API for huggingface_hub to list and download small repositories, and its faults.

Imitated: the hub as huggingface_hub 2.4.0 asks it, which the tests run against it. It answers by what the library
reads: `model_info` with blobs, the tree, `auth-check`, HEAD and GET of `resolve` with `X-Repo-Commit`, `X-Linked-Etag`
and `X-Linked-Size`, a redirect to the bytes of LFS files, ranges, and refusals with `X-Error-Code`. It has no Xet, no
search, no other kinds of repository.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import typing as t
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Plain = dict[str, t.Any]
LFS = (".safetensors", ".bin")


@dataclass
class Repo:
    """A repository. gated: whoever has no token of `allowed` is refused as the hub does it. Faults by path:

    cut: the connection ends after so many bytes, once. spoiled: other bytes of the same length.
    """

    files: dict[str, bytes]
    commit: str = "a" * 40
    gated: bool = False
    private: bool = False
    allowed: tuple[str, ...] = ()
    cut: dict[str, int] = field(default_factory=dict)
    spoiled: set[str] = field(default_factory=set)


def git_blob(data: bytes) -> str:
    """Return git's id of a file."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub:
    """All repositories, and what was asked for."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.sent: dict[str, int] = {}  # bytes by path
        self.requests: list[str] = []
        bound = type("Bound", (_Handler,), {"hub": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), bound)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        # Another host, as the real one: the library follows redirects to the hub itself, and asks for the bytes elsewhere.
        self.cdn = f"http://localhost:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Serve no more."""
        self.server.shutdown()
        self.server.server_close()


def _sibling(path: str, data: bytes) -> Plain:
    found: Plain = {"rfilename": path, "size": len(data), "blobId": git_blob(data)}
    if path.endswith(LFS):
        found["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
    return found


def _leaf(path: str, data: bytes) -> Plain:
    found: Plain = {"type": "file", "path": path, "size": len(data), "oid": git_blob(data)}
    if path.endswith(LFS):
        found["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
    return found


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_arguments: t.Any) -> None:
        pass

    def answer(self, code: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, code: int, error: str) -> None:
        self.answer(code, b"{}", X_Error_Code=error, X_Error_Message=error)

    def refused(self, repo: Repo, files: bool) -> bool:
        """Whether the asker may not read: nothing of a private repository, of a gated one everything but the list."""
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token and token in repo.allowed:
            return False
        if repo.private:
            self.refuse(401, "RepoNotFound")
        elif repo.gated and files:
            self.refuse(403 if token else 401, "GatedRepo")
        else:
            return False
        return True

    def do_GET(self) -> None:
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        if found := re.fullmatch(r"/cdn/([^/]+/[^/]+)/(.+)", path):
            self.send_file(self.hub.repos.get(found[1]), found[2])
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree|auth-check)(?:/([^/]+))?)?", path):
            self.api(*found.groups())
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self.resolve(*found.groups())
        else:
            self.refuse(404, "EntryNotFound")

    do_HEAD = do_GET

    def api(self, name: str, what: str | None, revision: str | None) -> None:
        repo = self.hub.repos.get(name)
        if repo is None:
            self.refuse(401, "RepoNotFound")
        elif self.refused(repo, what == "auth-check"):
            pass
        elif revision not in (None, "main", repo.commit):
            self.refuse(404, "RevisionNotFound")
        elif what == "tree":
            self.answer(200, json.dumps([_leaf(*each) for each in repo.files.items()]).encode())
        else:
            said = {"id": name, "sha": repo.commit, "siblings": [_sibling(*each) for each in repo.files.items()]}
            self.answer(200, json.dumps(said).encode(), Content_Type="application/json")

    def resolve(self, name: str, revision: str, path: str) -> None:
        repo = self.hub.repos.get(name)
        if repo is None:
            self.refuse(401, "RepoNotFound")
            return
        if self.refused(repo, True):
            return
        data = repo.files.get(path)
        if data is None or revision not in ("main", repo.commit):
            self.refuse(404, "RevisionNotFound" if data is not None else "EntryNotFound")
            return
        headers = {"X_Repo_Commit": repo.commit, "Accept_Ranges": "bytes"}
        if path.endswith(LFS):
            headers |= {"X_Linked_Etag": f'"{hashlib.sha256(data).hexdigest()}"', "X_Linked_Size": str(len(data))}
            self.answer(302, b"", Location=f"{self.hub.cdn}/cdn/{name}/{path}", **headers)
        elif self.command == "HEAD":
            self.send_response(200)
            for key, value in {**headers, "ETag": f'"{git_blob(data)}"', "Content_Length": str(len(data))}.items():
                self.send_header(key.replace("_", "-"), value)
            self.end_headers()
        else:
            self.send_file(repo, path)

    def send_file(self, repo: Repo | None, path: str) -> None:
        if repo is None or path not in repo.files:
            self.refuse(404, "EntryNotFound")
            return
        data = repo.files[path]
        if path in repo.spoiled:
            data = bytes(255 - byte for byte in data)
        asked = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(asked[1]) if asked else 0
        whole = data[start:]
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(whole)))
        self.end_headers()
        if self.command == "HEAD":
            return
        end = repo.cut.pop(path, None)
        self.wfile.write(whole[:end])
        self.hub.sent[path] = self.hub.sent.get(path, 0) + len(whole[:end])
        if end is not None:
            self.close_connection = True
