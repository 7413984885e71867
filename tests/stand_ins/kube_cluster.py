"""What the stand-in of an API server (kube_api.py) keeps, and stand-ins for who acts on it.

Imitated, by the sources of Kubernetes 1.37: selectors of labels (apimachinery, pkg/labels) and of fields (pkg/apis/core/v1/conversion.go:
some of pods and events); the controllers of StatefulSets (one pod each, which with OnDelete stays as it is) and of DaemonSets (a pod on
each node that the template's nodeSelector and node affinity fit, cordoned or not), with `ownerReferences`; of the scheduler: node
selector, node affinity and cordons; evictions, which a PodDisruptionBudget's maxUnavailable can hold up; deletion of what an object owns.
Not imitated, so that tests must not lean on it: admission, resources and quotas, taints, finalizers but foregroundDeletion, watches.
Kubelets are always at once done. They pull (pkg/kubelet/images/image_manager.go, its events and messages; containerd's words for
what a registry says): by name and pull policy, into `status.images` of the node and `imageID` of the container, from a registry that
has every image, but for what a test says in `registry` and `faults`; a pod that runs once and asks for a program that no image has
ends with StartError (containerd, internal/cri/server/container_start.go). Not imitated: how long a pull takes, the collection of images.
The SR-IOV device plugin's offer what its file lists and the node had when the pod was made (v3.11.0: it discovers once, and passes over
an empty pool); what a node has not, a test says in `late`.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
import threading
import typing as t
import uuid

Plain = dict[str, t.Any]
Key = tuple[str, str, str, str]  # group/version, plural, namespace, name

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
        "persistentvolumeclaims": ("PersistentVolumeClaim", True),
    },
    "apps/v1": {
        "statefulsets": ("StatefulSet", True),
        "daemonsets": ("DaemonSet", True),
        "deployments": ("Deployment", True),
    },
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
IMAGE_BYTES = 9 * 2**20  # small, since the machine that runs the tests is judged for its room
NO_PROGRAM = (
    'failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start \
container process: error during container init: exec: "{0}": stat {0}: no such file or directory: unknown'
)
SRIOV, SRIOV_CONFIG = "dgxspark-sriov-device-plugin", "/etc/pcidp/"
FIELDS = {
    "pods": ("spec.nodeName", "status.phase"),
    "events": tuple(f"involvedObject.{key}" for key in ("kind", "name", "namespace", "uid")),
}
_KEY = r"[A-Za-z0-9][-A-Za-z0-9_./]*"


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


def holds(wish: t.Mapping[str, t.Any], labels: t.Mapping[str, str]) -> bool:
    """Whether one requirement (key, operator, values) holds."""
    value, values = labels.get(wish["key"]), wish.get("values") or []
    if wish["operator"] in ("Exists", "DoesNotExist"):
        return (value is not None) == (wish["operator"] == "Exists")
    if wish["operator"] in ("In", "NotIn"):
        return (value in values) == (wish["operator"] == "In")
    raise Refused(422, "Invalid", f"operator {wish['operator']!r} is not known to this stand-in")


def selected(selector: str, labels: t.Mapping[str, str]) -> bool:
    """Whether a selector of labels, as it is written in a URL, takes these labels in. All of it is read first, as it is refused whatever there is."""
    wishes: list[Plain] = []
    for part in re.split(r",(?![^(]*\))", selector) if selector.strip() else ():
        text = part.strip()
        if found := re.fullmatch(rf"({_KEY})\s*(==|=|!=)\s*([-A-Za-z0-9_.]*)", text):
            wish: Plain = {"key": found[1], "operator": "NotIn" if found[2] == "!=" else "In", "values": [found[3]]}
        elif found := re.fullmatch(rf"({_KEY})\s+(in|notin)\s+\(([^()]+)\)", text):
            values = [value.strip() for value in found[3].split(",")]
            wish = {"key": found[1], "operator": "In" if found[2] == "in" else "NotIn", "values": values}
        elif found := re.fullmatch(rf"(!?)\s*({_KEY})", text):
            wish = {"key": found[2], "operator": "DoesNotExist" if found[1] else "Exists"}
        else:
            raise Refused(400, "BadRequest", f"unable to parse requirement: found {text!r}")
        wishes.append(wish)
    return all(holds(wish, labels) for wish in wishes)


def in_fields(selector: str, plural: str, made: Plain) -> bool:
    """Whether a selector of fields takes an object in."""
    known = {"metadata.name", "metadata.namespace", *FIELDS.get(plural, ())}
    taken = True
    for part in filter(None, selector.split(",")):
        field, operator, value = [*re.split(r"(!=|==|=)", part, maxsplit=1), "", ""][:3]
        if not operator:
            raise Refused(400, "BadRequest", f"invalid selector: {selector!r}; can't understand {part!r}")
        if field not in known:
            raise Refused(400, "BadRequest", f"field label not supported: {field}")
        outer, inner = field.split(".")
        taken &= (str((made.get(outer) or {}).get(inner, "")) == value) != (operator == "!=")
    return taken


def fits(spec: Plain, node: Plain) -> bool:
    """Whether a pod's node selector and required node affinity fit a node."""
    labels = node["metadata"].get("labels") or {}
    if not (spec.get("nodeSelector") or {}).items() <= labels.items():
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    needed = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    terms = needed["nodeSelectorTerms"] if needed else [{}]
    return any(all(holds(wish, labels) for wish in term.get("matchExpressions") or ()) for term in terms)


def ready(pod: Plain) -> bool:
    """Whether a pod's condition says so."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


class Cluster:
    """All objects by their keys."""

    def __init__(self, nodes: t.Sequence[str]) -> None:
        self.lock = threading.RLock()
        self.kinds = copy.deepcopy(KINDS)
        self.objects: dict[Key, Plain] = {}
        self.applied: dict[Key, Plain] = {}
        self.said: dict[str, Plain] = {}
        self.logs: dict[str, str] = {}  # what pods have logged, by their names
        self.version = 0
        # What a registry has under a name in full (digest), and what a pull fails with, by node ("" for all) and part of the name.
        self.registry: dict[str, str] = {}
        self.faults: dict[tuple[str, str], str] = {}
        self.told: list[Plain] = []  # events
        self.late: set[tuple[str, str]] = set()  # node and resource of VFs that are not there yet
        self.discovered: dict[str, dict[str, str]] = {}  # by uid of a plugin's pod
        # What is deleted in the foreground then stays until somebody has seen it leave, or has written to it.
        self.slow_collector = False
        # Where nodes are reached from outside, and the port on them that a Service of type NodePort gets, if a test answers there.
        self.addresses: dict[str, str] = {}
        self.node_port: int | None = None
        self.writes: list[str] = []  # what was really written, for tests
        for name in nodes:
            node = {
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }
            self.put(("v1", "nodes", "", name), node)
        self.put(("v1", "namespaces", "", "kube-system"), {"metadata": {"name": "kube-system"}})
        self.writes.clear()

    def put(self, key: Key, made: Plain) -> Plain:
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
            "uid": (old or {}).get("metadata", {}).get("uid") or made["metadata"].get("uid") or str(uuid.uuid4()),
            "resourceVersion": str(self.version),
        }
        made["metadata"] = {"creationTimestamp": "2026-01-01T00:00:00Z", **made["metadata"], **own}
        if made["kind"] == "Service" and made["spec"].get("type") == "NodePort":
            for port in made["spec"]["ports"]:
                port.setdefault(
                    "nodePort", self.node_port or 30000 + port["port"] % 2768
                )  # the range of Kubernetes: 30000 to 32767
        self.objects[key] = made
        self.writes.append(f"{made['kind']}/{key[3]}")
        if made["kind"] == "CustomResourceDefinition":
            made["status"] = {"conditions": [{"type": "Established", "status": "True"}]}
            spec = made["spec"]
            group = f"{spec['group']}/{spec['versions'][0]['name']}"
            self.kinds.setdefault(group, {})[spec["names"]["plural"]] = (spec["names"]["kind"], True)
        if made["kind"] == "Deployment":  # at once rolled out; it makes no pods
            made["status"] = {"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}
        if made["kind"] == "Pod" and "status" not in made:
            self.run_once(made)
        if made["kind"] in ("Node", "StatefulSet", "DaemonSet"):
            self.control()
        return made

    def run_once(self, made: Plain) -> None:
        """Stand in for the kubelet of a pod that nobody starts again."""
        node = next((name for name, node in self.nodes().items() if fits(made["spec"], node)), None)
        if node is None:
            text = f"0/{len(self.nodes())} nodes are available: didn't match node selector."
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": text}
            made["status"] = {"phase": "Pending", "conditions": [condition]}
            return
        made["spec"] = {**made["spec"], "nodeName": node}
        container = made["spec"]["containers"][0]
        seen = self.pull(made, container, node)
        phase = "Pending"
        if seen["imageID"]:
            program = str((container.get("command") or [""])[0])
            ended: Plain = {"exitCode": 0, "reason": "Completed"}
            if program.startswith("/dgxspark-"):
                ended = {"exitCode": 128, "reason": "StartError", "message": NO_PROGRAM.format(program)}
            phase, seen["state"] = "Failed" if ended["exitCode"] else "Succeeded", {"terminated": ended}
        made["status"] = {"phase": phase, "containerStatuses": [seen]}
        for wanted, said in self.said.items():
            if made["metadata"]["name"].startswith(wanted):
                made["status"] = copy.deepcopy(said)

    def pull(self, pod: Plain, container: Plain, node: str) -> Plain:
        """Stand in for the kubelet that has a container's image, or not; return the container's status, with `imageID` or `waiting`."""
        image, policy = str(container["image"]), container.get("imagePullPolicy", "IfNotPresent")
        status: Plain = {"name": container["name"], "image": image, "ready": False, "restartCount": 0, "imageID": ""}
        registry = image.partition("/")[0]
        name = image if {".", ":"} & set(registry) else f"docker.io/{image}"
        name = name if "@" in name or ":" in name.rpartition("/")[2] else f"{name}:latest"
        repository = name.partition("@")[0] if "@" in name else name.rpartition(":")[0]
        held = self.nodes()[node].setdefault("status", {}).setdefault("images", [])
        there = next((each for each in held if name in each["names"]), None)
        if policy == "Never" and there is None:
            text = f'Container image "{image}" is not present with pull policy of Never'
            self.tell(pod, "ErrImageNeverPull", text)
            return {**status, "state": {"waiting": {"reason": "ErrImageNeverPull", "message": text}}}
        if there is not None and policy != "Always":
            self.tell(pod, "Pulled", f'Container image "{image}" already present on machine')
        else:
            self.tell(pod, "Pulling", f'Pulling image "{image}"')
            wrong = next((text for (on, part), text in self.faults.items() if on in ("", node) and part in image), None)
            if wrong is not None:
                self.tell(pod, "Failed", f'Failed to pull image "{image}": {wrong}')
                self.tell(pod, "Failed", "Error: ErrImagePull")
                self.tell(pod, "BackOff", f'Back-off pulling image "{image}"')
                text = f'Back-off pulling image "{image}": ErrImagePull: {wrong}'
                return {**status, "state": {"waiting": {"reason": "ImagePullBackOff", "message": text}}}
            digest = (
                name.partition("@")[2]
                or self.registry.get(name)
                or f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"
            )
            for each in held:
                each["names"] = [other for other in each["names"] if other != name]
            there = {"names": [f"{repository}@{digest}", *([] if "@" in name else [name])], "sizeBytes": IMAGE_BYTES}
            held.append(there)
            self.tell(
                pod,
                "Pulled",
                f'Successfully pulled image "{image}" in 1.2s (1.2s including waiting). Image size: {IMAGE_BYTES} bytes.',
            )
        # Of what an archive brought there is no digest but that of its configuration.
        digest = next(
            (each for each in there["names"] if "@" in each), f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"
        )
        return {**status, "imageID": digest, "ready": True, "state": {"running": {}}}

    def tell(self, pod: Plain, reason: str, message: str) -> None:
        """Note an event of a pod."""
        self.version += 1
        about = pod["metadata"]
        self.told.append(
            {
                "metadata": {
                    "name": f"{about['name']}.{self.version}",
                    "namespace": about.get("namespace", ""),
                    "uid": str(uuid.uuid4()),
                },
                "involvedObject": {"kind": "Pod", "name": about["name"], "uid": about.get("uid")},
                "type": "Warning" if reason in ("Failed", "BackOff", "ErrImageNeverPull") else "Normal",
                "reason": reason,
                "message": message,
                "lastTimestamp": f"2026-01-01T{self.version // 3600:02}:{self.version // 60 % 60:02}:{self.version % 60:02}Z",
            }
        )

    def of(self, kind: str) -> dict[Key, Plain]:
        """Return the objects of a kind."""
        return {key: made for key, made in self.objects.items() if made["kind"] == kind}

    def nodes(self) -> dict[str, Plain]:
        """Return the nodes by name."""
        return {key[3]: made for key, made in self.of("Node").items()}

    def pods(self) -> dict[str, Plain]:
        """Return the pods by name, those of the platform's DaemonSets left out."""
        return {key[3]: made for key, made in self.of("Pod").items() if key[2] != "kube-system"}

    def control(self) -> None:
        """Stand in for controllers, scheduler and kubelets: look at everything once."""
        for key, made in self.of("StatefulSet").items():
            if "deletionTimestamp" not in made["metadata"]:
                self.pod_of(key, made, f"{key[3]}-0", self.node_for(made["spec"]["template"]["spec"]))
        for key, made in self.of("DaemonSet").items():
            wanted = {name for name, node in self.nodes().items() if fits(made["spec"]["template"]["spec"], node)}
            for name in wanted:
                self.pod_of(key, made, f"{key[3]}-{name}", name)
            for owned, pod in self.owned(made).items():
                if pod["spec"].get("nodeName") not in wanted:
                    self.delete(owned)
        self.offer()

    def node_for(self, spec: Plain) -> str | None:
        """Stand in for the scheduler."""
        open_ones = {
            name: node for name, node in self.nodes().items() if not (node.get("spec") or {}).get("unschedulable")
        }
        return next((name for name, node in open_ones.items() if fits(spec, node)), None)

    def owned(self, owner: Plain) -> dict[Key, Plain]:
        """Return the pods of an owner."""
        uid = owner["metadata"]["uid"]
        return {
            key: pod
            for key, pod in self.of("Pod").items()
            if any(each["uid"] == uid for each in pod["metadata"].get("ownerReferences") or ())
        }

    def pod_of(self, owner: Key, made: Plain, name: str, node: str | None) -> None:
        """Make a pod of an owner's template where there is none, or an old one that its owner replaces."""
        template, space = made["spec"]["template"], made["metadata"]["namespace"]
        key = ("v1", "pods", space, name)
        old = self.objects.get(key)
        if old and "nodeName" in old["spec"] and made["spec"].get("updateStrategy", {}).get("type") == "OnDelete":
            return
        if old and old["spec"].get("nodeName") == node and self.applied.get(key) == template:
            return
        container = template["spec"]["containers"][0]
        image = container["image"]
        about = {"name": name, "namespace": space, "uid": str(uuid.uuid4())}
        running = self.pull({"metadata": about}, container, node) if node is not None else {}
        waits = "waiting" in running.get("state", {})
        status: Plain = {"phase": "Pending" if waits else "Running", "containerStatuses": [running]}
        status["conditions"] = [
            {"type": "Ready", "status": "False" if waits else "True"},
            {"type": "PodScheduled", "status": "True"},
        ]
        if node is None:
            text = f"0/{len(self.nodes())} nodes are available: didn't match node selector."
            status = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": text}]}
        for wanted, said in self.said.items():
            if name.startswith(wanted) or wanted in image:
                status = copy.deepcopy(said)
        if node in self.addresses:
            status["hostIP"] = self.addresses[node]
        reference = {"apiVersion": owner[0], "kind": made["kind"], "name": owner[3], "uid": made["metadata"]["uid"]}
        metadata = {**copy.deepcopy(template["metadata"]), **about}
        metadata["ownerReferences"] = [{**reference, "controller": True, "blockOwnerDeletion": True}]
        spec = copy.deepcopy(template["spec"]) | ({"nodeName": node} if node is not None else {})
        self.applied[key] = copy.deepcopy(template)
        self.put(key, {"metadata": metadata, "spec": spec, "status": status})

    def offer(self) -> None:
        """Stand in for the SR-IOV device plugin's pods and their kubelets: a ready one offers what its node's file lists."""
        for name, node in self.nodes().items():
            found: dict[str, str] = {}
            pod = self.objects.get(("v1", "pods", "kube-system", f"{SRIOV}-{name}"))
            if pod and ready(pod):
                found = self.discovered.setdefault(pod["metadata"]["uid"], self.pool(name))
            others = {k: v for k, v in ((node.get("status") or {}).get("allocatable") or {}).items() if "/p" not in k}
            node["status"] = {**(node.get("status") or {}), "allocatable": others | found}

    def pool(self, node: str) -> dict[str, str]:
        """Return the resources of the node's file, each of one device."""
        for key, made in self.of("ConfigMap").items():
            if key[2] == "kube-system" and f"{node}.json" in (made.get("data") or {}) and SRIOV in key[3]:
                listed = json.loads(made["data"][f"{node}.json"])["resourceList"]
                names = [f"{each['resourcePrefix']}/{each['resourceName']}" for each in listed]
                return {name: "1" for name in names if (node, name) not in self.late}
        return {}

    def evict(self, key: Key) -> None:
        """Delete a pod where no budget holds it up, as the API server does (registry/core/pod/storage/eviction.go)."""
        pod = self.objects[key]
        for (_g, _p, space, _n), budget in self.of("PodDisruptionBudget").items():
            wanted = budget["spec"]["selector"].get("matchLabels") or {}
            covered = [
                each
                for other, each in self.of("Pod").items()
                if other[2] == space and wanted.items() <= (each["metadata"].get("labels") or {}).items()
            ]
            if space != key[2] or pod not in covered:
                continue
            if not ready(pod) and budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
                continue
            lost = len([each for each in covered if not ready(each)])
            if lost >= budget["spec"].get("maxUnavailable", len(covered)):
                raise Refused(
                    429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget."
                )
        self.delete(key)
        self.control()

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
            for key, pod in self.of("Pod").items()
            for status in pod["status"].get("containerStatuses", ())
            if (waiting := status["state"].get("waiting")) and waiting.get("message")
        ]

    def leave(self, key: Key) -> Plain:
        """Take away what belongs to an object, and leave itself to the garbage collector."""
        made = self.objects[key] = self.delete(key)
        made["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["foregroundDeletion"]}
        return made

    def delete(self, key: Key) -> Plain:
        """Take an object away, and what belongs to it."""
        gone = self.objects.pop(key)
        self.applied.pop(key, None)
        self.writes.append(f"-{gone['kind']}/{key[3]}")
        for owned in self.owned(gone):
            del self.objects[owned]
            self.applied.pop(owned, None)
        if gone["kind"] == "Namespace":
            for other in [each for each in self.objects if each[2] == key[3]]:
                del self.objects[other]
        if gone["kind"] in ("Node", "DaemonSet"):
            self.control()
        return gone
