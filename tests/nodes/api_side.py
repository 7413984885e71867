"""STAND-IN for an API server as Multus uses it, behind TLS, inside a machine apart; our ClusterRole alone decides what is allowed.

Imitated, after the sources of Kubernetes 1.37: get, list and watch of pods and attachments, with a field selector for the
node and initial events with their bookmark; update of a pod's status, whose protobuf is read only for the
annotations; events, which are accepted and counted; RBAC, which refuses with a Status of 403. Anything else is 404. The real API
server asks for the same in tests/nodes' virtual machines.
"""

from __future__ import annotations

import json
import os
import pathlib
import ssl
import subprocess
import threading
import time
import typing as t
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ansible_collections.dgxspark.cluster.tests.nodes.protobuf import read, text

Plain = dict[str, t.Any]
PREFIX = b"k8s\0"
WATCH_S = 60.0
KINDS = {
    "pods": {"apiVersion": "v1", "kind": "Pod"},
    "network-attachment-definitions": {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition"},
}


class Api:
    """objects: plural → (namespace, name) → object. rules: of the client's ClusterRole; refused: what those did not allow."""

    def __init__(self, rules: t.Sequence[Plain]) -> None:
        self.rules = rules
        self.lock = threading.Condition()
        self.objects: dict[str, dict[tuple[str, str], Plain]] = {"pods": {}, "network-attachment-definitions": {}}
        self.changes: list[tuple[int, str, str, Plain]] = []
        self.asked: set[tuple[str, str]] = set()
        self.refused: list[str] = []
        self.events = 0

    def put(self, plural: str, made: Plain, how: str = "") -> None:
        """Store an object; how: DELETED removes it."""
        with self.lock:
            key = (made["metadata"]["namespace"], made["metadata"]["name"])
            known = key in self.objects[plural]
            version = len(self.changes) + 1
            made = {**made, "metadata": {**made["metadata"], "resourceVersion": str(version)}}
            if how:
                del self.objects[plural][key]
            else:
                self.objects[plural][key] = made
            self.changes.append((version, how or ("MODIFIED" if known else "ADDED"), plural, made))
            self.lock.notify_all()

    def delete(self, plural: str, namespace: str, name: str) -> None:
        self.put(plural, self.objects[plural][namespace, name], "DELETED")

    def allowed(self, group: str, resource: str, verb: str) -> bool:
        self.asked.add((verb, resource))
        return any(
            group in rule["apiGroups"] and {"*", resource} & set(rule["resources"]) and verb in rule["verbs"]
            for rule in self.rules
        )

    def serve(self, pid: int, port: int, folder: pathlib.Path) -> pathlib.Path:
        """Listen on the loopback of a process's network namespace; return the authority's certificate."""
        command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=api -keyout key.pem -out ca.pem"
        subprocess.run(
            [*command.split(), "-addext", "subjectAltName=IP:127.0.0.1"], check=True, cwd=folder, capture_output=True
        )
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(folder / "ca.pem", folder / "key.pem")
        made: list[ThreadingHTTPServer] = []

        def listen() -> None:
            with pathlib.Path(f"/proc/{pid}/ns/net").open(encoding="ascii") as namespace:
                os.setns(namespace.fileno(), os.CLONE_NEWNET)  # for this thread only
            server = ThreadingHTTPServer(("127.0.0.1", port), type("Bound", (Handler,), {"api": self}))
            server.daemon_threads = True
            server.handle_error = lambda *_who: None  # type: ignore[method-assign] (a daemon that is stopped leaves its watches)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
            made.append(server)

        thread = threading.Thread(target=listen)
        thread.start()
        thread.join()
        threading.Thread(target=made[0].serve_forever, daemon=True).start()
        self.stop = made[0].shutdown
        return folder / "ca.pem"


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    api: Api

    def log_message(self, *_arguments: t.Any) -> None:
        pass

    def answer(self, code: int, body: Plain) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def failed(self, code: int, reason: str, message: str) -> None:
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message}
        self.answer(code, {**status, "code": code})

    def handle_one(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        query = {key: values[-1] for key, values in urllib.parse.parse_qs(url.query).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = url.path.strip("/").split("/")
        group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
        space = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            space, rest = rest[1], rest[2:]
        plural, name, resource = rest[0], "".join(rest[1:2]), "/".join([rest[0], *rest[2:]])
        verb = {"GET": "get" if name else "list", "PUT": "update", "POST": "create", "PATCH": "patch"}[self.command]
        verb = "watch" if query.get("watch") in ("true", "1") else verb
        if not self.api.allowed(group, resource, verb):
            self.api.refused.append(f"{verb} {group}/{resource}")
            return self.failed(403, "Forbidden", f'{resource} is forbidden: User cannot {verb} resource "{resource}"')
        if plural == "events" and verb in ("create", "patch"):
            self.api.events += 1
            return self.answer(
                201, {"kind": "Event", "apiVersion": "v1", "metadata": {"name": "event", "namespace": space}}
            )
        if plural not in self.api.objects or verb == "patch":
            return self.failed(404, "NotFound", f"there is no {self.command} {self.path}")
        if verb == "watch":
            return self.watch(plural, space, query)
        with self.api.lock:
            found = self.api.objects[plural]
            if not name:
                items = [each for each in found.values() if self.fits(each, space, query)]
                kind = "PodList" if plural == "pods" else "NetworkAttachmentDefinitionList"
                version = {"resourceVersion": str(len(self.api.changes))}
                group_version = f"{group}/v1".strip("/")
                return self.answer(
                    200, {"kind": kind, "apiVersion": group_version, "metadata": version, "items": items}
                )
            if (space, name) not in found:
                return self.failed(404, "NotFound", f'{plural}{"." * bool(group)}{group} "{name}" not found')
            made = found[space, name]
        if verb == "update":
            made = {
                **made,
                "metadata": {**made["metadata"], "annotations": annotations(body, self.headers["Content-Type"])},
            }
            self.api.put(plural, made)
        return self.answer(200, self.api.objects[plural][space, name])

    do_GET = do_PUT = do_POST = do_PATCH = handle_one

    @staticmethod
    def fits(made: Plain, space: str, query: dict[str, str]) -> bool:
        node = query.get("fieldSelector", "").partition("spec.nodeName=")[2]
        return (not space or made["metadata"]["namespace"] == space) and (
            not node or made["spec"].get("nodeName") == node
        )

    def watch(self, plural: str, space: str, query: dict[str, str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        seen, end = int(query.get("resourceVersion") or 0), time.monotonic() + WATCH_S
        if query.get("sendInitialEvents") == "true":
            with self.api.lock:
                seen = len(self.api.changes)
                there = [each for each in self.api.objects[plural].values() if self.fits(each, space, query)]
            for made in there:
                self.event("ADDED", made)
            mark = {"resourceVersion": str(seen), "annotations": {"k8s.io/initial-events-end": "true"}}
            self.event("BOOKMARK", {**KINDS[plural], "metadata": mark})
        while time.monotonic() < end:
            with self.api.lock:
                if len(self.api.changes) <= seen:
                    self.api.lock.wait(1)
                new, seen = self.api.changes[seen:], len(self.api.changes)
            for _version, how, kind, made in new:
                if kind == plural and self.fits(made, space, query):
                    self.event(how, made)
        self.wfile.write(b"0\r\n\r\n")

    def event(self, how: str, made: Plain) -> None:
        line = json.dumps({"type": how, "object": made}).encode() + b"\n"
        self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")


def annotations(body: bytes, kind: str) -> dict[str, str]:
    """Return a pod's annotations from a request's body: runtime.Unknown.raw (2), Pod.metadata (1), ObjectMeta.annotations (12)."""
    if "protobuf" not in kind:
        return dict(json.loads(body)["metadata"].get("annotations") or {})
    assert body.startswith(PREFIX), body[:20]
    pod = read(read(body[len(PREFIX) :])[2][0])
    pairs = [read(entry) for entry in read(pod[1][0]).get(12, ())]
    return {text(pair, 1): text(pair, 2) for pair in pairs}
