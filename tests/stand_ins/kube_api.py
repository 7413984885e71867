"""A stand-in for a Kubernetes API server: enough of it for what the role k8s_dgx asks, and nothing it does not.

Usage: kube_api.py KUBECONFIG [NODE …] writes a kubeconfig and serves on loopback until it is stopped. It has discovery;
get, list (label selectors), pods' logs, server-side apply with ownership of fields (one manager) and dry run, merge patch, create and
delete; strict schemas where kubernetes-validate is installed; and two controllers: for each StatefulSet a pod on the node
that its selector names, for each DaemonSet one on every node, ready at once (a pod that runs once has ended well at once),
unless told otherwise by what a test POSTs to /_say, `{pod: status}`. Events tell what containers wait for. It is no API server:
no admission, no defaults beyond a few, no watches, no other controllers, no authorization. The lane with a real one proves those
(KUBECONFIG).
"""

from __future__ import annotations

import copy
import json
import pathlib
import sys
import threading
import typing as t
import urllib.parse
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import yaml

try:
    import kubernetes_validate
except ImportError:
    kubernetes_validate = None

Plain = dict[str, t.Any]

# group/version -> plural -> kind, whether it lies in a namespace
KINDS: dict[str, dict[str, tuple[str, bool]]] = {
    "v1": {
        "namespaces": ("Namespace", False),
        "nodes": ("Node", False),
        "pods": ("Pod", True),
        "events": ("Event", True),
        "configmaps": ("ConfigMap", True),
        "secrets": ("Secret", True),
        "services": ("Service", True),
        "serviceaccounts": ("ServiceAccount", True),
    },
    "apps/v1": {"statefulsets": ("StatefulSet", True), "daemonsets": ("DaemonSet", True)},
    "networking.k8s.io/v1": {"networkpolicies": ("NetworkPolicy", True)},
    "policy/v1": {"poddisruptionbudgets": ("PodDisruptionBudget", True)},
    "node.k8s.io/v1": {"runtimeclasses": ("RuntimeClass", False)},
    "scheduling.k8s.io/v1": {"priorityclasses": ("PriorityClass", False)},
    "rbac.authorization.k8s.io/v1": {
        "clusterroles": ("ClusterRole", False),
        "clusterrolebindings": ("ClusterRoleBinding", False),
        "roles": ("Role", True),
        "rolebindings": ("RoleBinding", True),
    },
    "apiextensions.k8s.io/v1": {"customresourcedefinitions": ("CustomResourceDefinition", False)},
}
VERBS = ["create", "delete", "get", "list", "patch", "update"]


class Refused(Exception):
    """An answer that is not 2xx."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason


def merged(base: t.Any, patch: t.Any) -> t.Any:
    """Lay one on the other; null takes a key away (RFC 7386)."""
    if not isinstance(base, dict) or not isinstance(patch, dict):
        return copy.deepcopy(patch)
    laid = {key: value for key, value in base.items() if key not in patch}
    laid |= {key: merged(base.get(key), value) for key, value in patch.items() if value is not None}
    return laid


def without(base: t.Any, old: t.Any, new: t.Any) -> t.Any:
    """Take away what a manager applied before and applies no more."""
    if not (isinstance(base, dict) and isinstance(old, dict) and isinstance(new, dict)):
        return base
    kept = {key: value for key, value in base.items() if not (key in old and key not in new)}
    return {key: without(value, old.get(key), new.get(key)) for key, value in kept.items()}


class Cluster:
    """All objects, by (group/version, plural, namespace, name)."""

    def __init__(self, nodes: t.Sequence[str]) -> None:
        self.lock = threading.RLock()
        self.kinds = copy.deepcopy(KINDS)
        self.objects: dict[tuple[str, str, str, str], Plain] = {}
        self.applied: dict[tuple[str, str, str, str], Plain] = {}
        self.said: dict[str, Plain] = {}
        self.logs: dict[str, str] = {}  # what pods have logged, by their names
        self.version = 0
        # What is deleted in the foreground then stays until somebody has seen it leave, or has written to it.
        self.slow_collector = False
        self.writes: list[str] = []  # what was really written, for tests
        for name in nodes:
            node = {
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }
            self.put(("v1", "nodes", "", name), node)
        self.put(("v1", "namespaces", "", "kube-system"), {"metadata": {"name": "kube-system"}})
        self.writes.clear()

    def put(self, key: tuple[str, str, str, str], made: Plain) -> Plain:
        """Write an object down, with what a server adds."""
        old = self.objects.get(key)
        made = {**made, "apiVersion": key[0], "kind": self.kinds[key[0]][key[1]][0]}
        plain = {k: v for k, v in made["metadata"].items() if k != "resourceVersion"}
        if old is not None and {**made, "metadata": plain} == {
            **old,
            "metadata": {k: v for k, v in old["metadata"].items() if k != "resourceVersion"},
        }:
            return old
        self.version += 1
        own = {
            "uid": (old or {}).get("metadata", {}).get("uid") or str(uuid.uuid4()),
            "resourceVersion": str(self.version),
        }
        made["metadata"] = {"creationTimestamp": "2026-01-01T00:00:00Z", **made["metadata"], **own}
        self.objects[key] = made
        self.writes.append(f"{made['kind']}/{key[3]}")
        if made["kind"] == "CustomResourceDefinition":
            made["status"] = {"conditions": [{"type": "Established", "status": "True"}]}
            spec = made["spec"]
            group = f"{spec['group']}/{spec['versions'][0]['name']}"
            self.kinds.setdefault(group, {})[spec["names"]["plural"]] = (spec["names"]["kind"], True)
        if made["kind"] == "StatefulSet":
            node = made["spec"]["template"]["spec"].get("nodeSelector", {}).get("kubernetes.io/hostname")
            self.pod_of(made, f"{key[3]}-0", node)
        if made["kind"] == "DaemonSet":
            for node in self.nodes():
                self.pod_of(made, f"{key[3]}-{node}", node)
        if made["kind"] == "Pod" and "status" not in made:
            self.run_once(made)
        return made

    def run_once(self, made: Plain) -> None:
        """Stand in for the kubelet of a pod that nobody starts again."""
        ended = {"name": made["spec"]["containers"][0]["name"], "state": {"terminated": {"exitCode": 0}}}
        made["status"] = {"phase": "Succeeded", "containerStatuses": [ended]}
        for wanted, said in self.said.items():
            if made["metadata"]["name"].startswith(wanted):
                made["status"] = copy.deepcopy(said)

    def nodes(self) -> list[str]:
        return [key[3] for key in self.objects if key[1] == "nodes"]

    def pods(self) -> dict[str, Plain]:
        """Return the pods by name, those of the platform's DaemonSets left out."""
        return {key[3]: made for key, made in self.objects.items() if key[1] == "pods" and key[2] != "kube-system"}

    def pod_of(self, made: Plain, name: str, node: str | None) -> None:
        """Stand in for controller, scheduler and kubelet."""
        template, space = made["spec"]["template"], made["metadata"]["namespace"]
        there = node in self.nodes()
        container = template["spec"]["containers"][0]
        image = container["image"]
        running = {
            "name": container["name"],
            "image": image,
            "ready": True,
            "restartCount": 0,
            "state": {"running": {}},
        }
        status: Plain = {"phase": "Running", "containerStatuses": [running]}
        status["conditions"] = [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}]
        if not there:
            text = f"0/{len(self.nodes())} nodes are available: didn't match node selector."
            status = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": text}]}
        for wanted, said in self.said.items():
            if name.startswith(wanted) or wanted in image:
                status = copy.deepcopy(said)
        body = {"metadata": {**copy.deepcopy(template["metadata"]), "name": name, "namespace": space}}
        body["spec"] = copy.deepcopy(template["spec"]) | ({"nodeName": node} if there else {})
        self.put(("v1", "pods", space, name), {**body, "status": status})

    def failures(self) -> list[Plain]:
        """Stand in for kubelets that try what waits again, in vain: one more event whenever somebody looks."""
        self.version += 1
        return [
            {
                "metadata": {"name": f"{key[3]}.failed", "namespace": key[2], "resourceVersion": str(self.version)},
                "involvedObject": {"kind": "Pod", "name": key[3], "uid": pod["metadata"]["uid"]},
                "type": "Warning",
                "reason": "Failed",
                "message": waiting["message"],
            }
            for key, pod in self.objects.items()
            if key[1] == "pods"
            for status in pod["status"].get("containerStatuses", ())
            if (waiting := status["state"].get("waiting")) and waiting.get("message")
        ]

    def leave(self, key: tuple[str, str, str, str]) -> Plain:
        """Take away what belongs to an object, and leave itself to the garbage collector."""
        made = self.objects[key] = self.delete(key)
        made["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["foregroundDeletion"]}
        return made

    def delete(self, key: tuple[str, str, str, str]) -> Plain:
        """Take an object away, and what belongs to it."""
        gone = self.objects.pop(key)
        self.applied.pop(key, None)
        self.writes.append(f"-{gone['kind']}/{key[3]}")
        if gone["kind"] in ("StatefulSet", "DaemonSet"):
            for end in ("0", *self.nodes()):
                self.objects.pop(("v1", "pods", key[2], f"{key[3]}-{end}"), None)
        if gone["kind"] == "Namespace":
            for other in [each for each in self.objects if each[2] == key[3]]:
                del self.objects[other]
        return gone


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
        return yaml.safe_load(data) if data else None

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
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": found}

    def act(self, group: str, rest: list[str], space: str, query: dict[str, str], body: t.Any) -> tuple[int, t.Any]:
        cluster, plural = self.cluster, rest[0]
        if plural not in cluster.kinds[group]:
            raise Refused(404, "NotFound", f"there is no resource {plural}")
        kind, spaced = cluster.kinds[group][plural]
        if self.command == "GET" and len(rest) == 1:
            return 200, self.listed(group, plural, kind, space, query)
        name = rest[1] if len(rest) > 1 else body["metadata"]["name"]
        key = (group, plural, space if spaced else "", name)
        if self.command in ("GET", "DELETE") and key not in cluster.objects:
            raise Refused(404, "NotFound", f'{plural} "{name}" not found')
        if self.command == "GET" and rest[2:] == ["log"]:
            return 200, cluster.logs.get(name, "")
        if self.command == "GET":
            return 200, cluster.objects[key]
        dry = query.get("dryRun") == "All" or (isinstance(body, dict) and body.get("dryRun") == ["All"])
        if self.command == "DELETE":
            if dry or "deletionTimestamp" in cluster.objects[key]["metadata"]:
                return 200, cluster.objects[key]
            foreground = isinstance(body, dict) and body.get("propagationPolicy") == "Foreground"
            return 200, cluster.leave(key) if foreground and cluster.slow_collector else cluster.delete(key)
        if spaced and ("v1", "namespaces", "", space) not in cluster.objects:
            raise Refused(404, "NotFound", f'namespaces "{space}" not found')
        return self.write(key, body, dry)

    def listed(self, group: str, plural: str, kind: str, space: str, query: dict[str, str]) -> Plain:
        wanted = dict(
            part.split("=", 1) for part in query.get("labelSelector", "").replace("==", "=").split(",") if part
        )
        objects = [(key[2], made) for key, made in self.cluster.objects.items() if key[:2] == (group, plural)]
        if plural == "events":
            objects = [(event["metadata"]["namespace"], event) for event in self.cluster.failures()]
        found = [
            made
            for s, made in objects
            if (not space or s == space) and wanted.items() <= (made["metadata"].get("labels") or {}).items()
        ]
        for made in found:
            if "deletionTimestamp" in made["metadata"]:
                del self.cluster.objects[group, plural, made["metadata"]["namespace"], made["metadata"]["name"]]
        return {"kind": f"{kind}List", "apiVersion": group, "metadata": {"resourceVersion": "1"}, "items": found}

    def write(self, key: tuple[str, str, str, str], body: Plain, dry: bool) -> tuple[int, Plain]:
        cluster = self.cluster
        old = cluster.objects.get(key)
        apply = "apply-patch" in self.headers.get("Content-Type", "")
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


if __name__ == "__main__":
    serve(Cluster(sys.argv[2:]), pathlib.Path(sys.argv[1]))
    threading.Event().wait()
