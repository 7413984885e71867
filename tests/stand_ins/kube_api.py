"""A stand-in for a Kubernetes API server: enough of it for what the role k8s_dgx and kubectl ask, and nothing they do not.

Imitated, by the sources of Kubernetes 1.37: discovery; get, list (selectors of labels and fields), pods' logs, evictions, server-side
apply with ownership of fields (one manager) and dry run, merge patch (a strategic one without lists is the same), create and delete;
strict schemas where kubernetes-validate is installed. What it keeps, and its controllers, are kube_cluster.py's. Pods are ready at once (one that runs
once has ended well at once), unless told otherwise by what a test POSTs to /_say, `{pod: status}`. Events tell what containers
wait for. It is no API server: no admission, no defaults beyond a few, no watches, no authorization, and a path, verb or
selector that is not named here is refused. The lane with a real one proves those (KUBECONFIG); kubectl itself asks it in
tests/api/test_kubectl.py.
"""

from __future__ import annotations

import copy
import functools
import json
import pathlib
import threading
import typing as t
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import yaml

from ansible_collections.dgxspark.cluster.tests.stand_ins.kube_cluster import (
    Cluster,
    Key,
    Plain,
    Refused,
    in_fields,
    merged,
    selected,
    without,
)

try:
    import kubernetes_validate.utils

    # It would read its definitions, megabytes of them, for every object.
    kubernetes_validate.utils.schema_contents = functools.cache(kubernetes_validate.utils.schema_contents)
except ImportError:
    kubernetes_validate = None

APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
PATCHES = (APPLY, MERGE, STRATEGIC)
ON_ALL, ON_ONE = ("GET", "POST"), ("GET", "PUT", "PATCH", "DELETE")
VERBS = ["create", "delete", "get", "list", "patch", "update"]


def check(made: Plain) -> None:
    """Refuse what a server of the newest version would not know."""
    if kubernetes_validate is None:
        return
    try:
        kubernetes_validate.validate(made, "1.37", strict=True)
    except kubernetes_validate.ValidationError as exc:
        raise Refused(422, "Invalid", f"{'.'.join(map(str, exc.path))}: {exc.message}") from exc
    except kubernetes_validate.SchemaNotFoundError:
        pass


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    cluster: Cluster

    def log_message(self, *_arguments: t.Any) -> None:
        pass

    def answer(self, code: int, body: t.Any) -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/plain" if isinstance(body, str) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def body(self) -> t.Any:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return yaml.load(data, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if data else None

    def handle_one(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        query = {key: values[-1] for key, values in urllib.parse.parse_qs(url.query).items()}
        body = self.body()
        with self.cluster.lock:
            try:
                code, result = self.route(url.path.strip("/").split("/"), query, body)
            except Refused as exc:
                code = exc.code
                result = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": exc.reason}
                result |= {"message": str(exc), "code": exc.code}
        self.answer(code, result)

    do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = handle_one

    def route(self, path: list[str], query: dict[str, str], body: t.Any) -> tuple[int, t.Any]:
        cluster = self.cluster
        if path == ["_say"]:
            cluster.said = body
            return 200, {}
        if path == ["_writes"]:
            return 200, cluster.writes
        if path == ["version"]:
            return 200, {"major": "1", "minor": "37", "gitVersion": "v1.37.0-stand-in"}
        if path == ["api"]:
            return 200, {"kind": "APIVersions", "versions": ["v1"]}
        if path == ["apis"]:
            groups = [self.group(name) for name in cluster.kinds if "/" in name]
            return 200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        group, rest = ("v1", path[2:]) if path[0] == "api" else ("/".join(path[1:3]), path[3:])
        if path[0] not in ("api", "apis") or group not in cluster.kinds:
            if path[0] == "apis" and len(path) == 2:
                found = [self.group(name) for name in cluster.kinds if name.startswith(f"{path[1]}/")]
                if found:
                    return 200, found[0]
            raise Refused(404, "NotFound", f"there is no {'/'.join(path)}")
        if not rest:
            return 200, self.resources(group)
        space = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            space, rest = rest[1], rest[2:]
        return self.act(group, rest, space, query, body)

    def group(self, name: str) -> Plain:
        group, version = name.split("/")
        entry = {"groupVersion": name, "version": version}
        return {"kind": "APIGroup", "apiVersion": "v1", "name": group, "versions": [entry], "preferredVersion": entry}

    def resources(self, group: str) -> Plain:
        found = [
            {"name": plural, "singularName": kind.lower(), "kind": kind, "namespaced": spaced, "verbs": VERBS}
            for plural, (kind, spaced) in self.cluster.kinds[group].items()
        ]
        if group == "v1":
            found.append({"name": "pods/log", "singularName": "", "kind": "Pod", "namespaced": True, "verbs": ["get"]})
            eviction = {
                "name": "pods/eviction",
                "singularName": "",
                "kind": "Eviction",
                "group": "policy",
                "version": "v1",
            }
            found.append({**eviction, "namespaced": True, "verbs": ["create"]})
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": found}

    def act(self, group: str, rest: list[str], space: str, query: dict[str, str], body: t.Any) -> tuple[int, t.Any]:
        cluster, plural = self.cluster, rest[0]
        if plural not in cluster.kinds[group]:
            raise Refused(404, "NotFound", f"there is no resource {plural}")
        kind, spaced = cluster.kinds[group][plural]
        if not rest[2:] and self.command not in (ON_ALL if len(rest) == 1 else ON_ONE):
            raise Refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
        if query.get("watch") in ("true", "1"):
            raise Refused(405, "MethodNotAllowed", "this stand-in has no watches")
        if self.command == "GET" and len(rest) == 1:
            return 200, self.listed(group, plural, kind, space, query)
        name = rest[1] if len(rest) > 1 else body["metadata"]["name"]
        key = (group, plural, space if spaced else "", name)
        if (self.command in ("GET", "DELETE") or rest[2:]) and key not in cluster.objects:
            raise Refused(404, "NotFound", f'{plural} "{name}" not found')
        if rest[2:] == ["eviction"] and self.command == "POST" and plural == "pods":
            cluster.evict(key)
            return 201, {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}
        if rest[2:] and (self.command, plural, rest[2:]) != ("GET", "pods", ["log"]):
            raise Refused(404, "NotFound", f"the stand-in has no {'/'.join(rest)}")
        if self.command == "GET" and rest[2:] == ["log"]:
            return 200, cluster.logs.get(name, "")
        if self.command == "GET":
            return 200, cluster.objects[key]
        dry = query.get("dryRun") == "All" or (isinstance(body, dict) and body.get("dryRun") == ["All"])
        if self.command == "DELETE":
            if dry or "deletionTimestamp" in cluster.objects[key]["metadata"]:
                return 200, cluster.objects[key]
            foreground = isinstance(body, dict) and body.get("propagationPolicy") == "Foreground"
            if foreground and cluster.slow_collector:
                return 200, cluster.leave(key)
            gone = cluster.delete(key)
            if plural == "pods":  # whose owner replaces it
                cluster.control()
            return 200, gone
        if spaced and ("v1", "namespaces", "", space) not in cluster.objects:
            raise Refused(404, "NotFound", f'namespaces "{space}" not found')
        self.acceptable(key, kind, query, body)
        return self.write(key, body, dry)

    def acceptable(self, key: Key, kind: str, query: dict[str, str], body: t.Any) -> None:
        """Refuse what a server does not take (apiserver/pkg/endpoints/handlers), and forms of patches that are not imitated."""
        form, there = self.headers.get("Content-Type", ""), key in self.cluster.objects
        if self.command == "PATCH" and form not in PATCHES:
            raise Refused(415, "UnsupportedMediaType", f"the stand-in takes no patch in the form {form}")
        if self.command == "PATCH" and form == STRATEGIC and "[" in json.dumps(body):
            raise Refused(415, "UnsupportedMediaType", "the stand-in merges no lists of a strategic patch")
        if self.command in ("PATCH", "PUT") and form != APPLY and not there:
            raise Refused(404, "NotFound", f'{key[1]} "{key[3]}" not found')
        if form == APPLY and not query.get("fieldManager"):
            raise Refused(422, "Invalid", "fieldManager: Required value: is required for apply patch")
        name = body.get("metadata", {}).get("name")
        if form == APPLY and name != key[3]:
            text = f"the name of the object ({name}) does not match the name on the URL ({key[3]})"
            raise Refused(400, "BadRequest", text)
        if form in (STRATEGIC, MERGE):
            return
        if (body.get("apiVersion"), body.get("kind")) != (key[0], kind):
            text = f"{body.get('kind')} in version {body.get('apiVersion')!r} cannot be handled as a {kind}"
            raise Refused(400, "BadRequest", text)

    def listed(self, group: str, plural: str, kind: str, space: str, query: dict[str, str]) -> Plain:
        there = sorted(key for key in self.cluster.objects if key[:2] == (group, plural))
        objects = [(key[2], self.cluster.objects[key]) for key in there]
        if plural == "events":
            objects = [
                (event["metadata"]["namespace"], event) for event in [*self.cluster.failures(), *self.cluster.told]
            ]
        labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
        selected(labels, {}), in_fields(fields, plural, {})  # refused where nothing is there, too
        found = [
            made
            for s, made in objects
            if (not space or s == space)
            and selected(labels, made["metadata"].get("labels") or {})
            and in_fields(fields, plural, made)
        ]
        for made in found:
            if "deletionTimestamp" in made["metadata"]:
                del self.cluster.objects[group, plural, made["metadata"]["namespace"], made["metadata"]["name"]]
        return {"kind": f"{kind}List", "apiVersion": group, "metadata": {"resourceVersion": "1"}, "items": found}

    def write(self, key: Key, body: Plain, dry: bool) -> tuple[int, Plain]:
        cluster = self.cluster
        old = cluster.objects.get(key)
        apply = self.headers.get("Content-Type", "") == APPLY
        if self.command == "POST" and old is not None:
            raise Refused(409, "AlreadyExists", f'{key[1]} "{key[3]}" already exists')
        if apply:
            check({k: v for k, v in body.items() if k != "status"})
            base = without(old or {}, cluster.applied.get(key, {}), body)
            made = merged(base, body)
        else:
            made = merged(old or {}, body) if self.command == "PATCH" else body
        if old and old.get("immutable") and made.get("data") != old.get("data"):
            raise Refused(422, "Invalid", "data: Forbidden: field is immutable when `immutable` is set")
        if dry:
            return 200, {**made, "metadata": {**(old or {}).get("metadata", {}), **made["metadata"]}}
        if apply:
            cluster.applied[key] = copy.deepcopy(body)
        written = cluster.put(key, made)
        if "deletionTimestamp" in written["metadata"]:
            cluster.delete(key)
        return (200 if old else 201), written


def serve(cluster: Cluster, kubeconfig: pathlib.Path) -> ThreadingHTTPServer:
    """Listen on loopback, and write down how to get there."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"cluster": cluster}))
    place = f"http://127.0.0.1:{server.server_port}"
    text = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "stand-in",
        "clusters": [{"name": "c", "cluster": {"server": place}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "stand-in", "context": {"cluster": "c", "user": "u"}}],
    }
    kubeconfig.write_text(yaml.safe_dump(text), encoding="utf-8")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
