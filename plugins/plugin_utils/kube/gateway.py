# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gateway: one address for every served model, as Kubernetes objects. Plain values in, plain objects out; no cluster access.

Its configuration follows from the Services of the instances (annotation SERVED). It has no database and no administration: models and
keys are what the files say. A change rolls the Deployment: the new pod answers before the old one is told to end, and the old one goes
on until its streams have ended.
"""

from __future__ import annotations

import base64
import datetime
import json
import re
import typing as t
from dataclasses import dataclass, field, replace

import yaml

from ansible_collections.dgxspark.cluster.plugins.module_utils.certificates import not_after
from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import MIB, from_json
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, from_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import known_bad
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import api_key
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import (
    HOSTNAME,
    MANAGED_BY_LABEL,
    MANAGER,
    NAME_LABEL,
    SERVED,
    Plain,
    checksum,
    image,
    label,
    labels,
    node_name,
    thing,
)

NAME = "model-gateway"
FOLDER = "/etc/dgxspark-gateway"
PORT = 4000
HANDLER = "group_down"  # the file and module that turns an unreachable group into a 503
STOP_S = 5  # until every node's rules know that the pod leaves
COOL_S = 15  # a group that failed is passed over for so long, if its name has others
MOST_NAMES, MOST_CHARACTERS = 64, 256
_DIGEST = re.compile(r"^sha256:[0-9a-f]{64}$")
_VERSION = re.compile(r"^[0-9]+\.[0-9]+\.[0-9]+[a-z0-9.-]{0,30}$")
_CERTIFICATE, _PRIVATE = "-----BEGIN CERTIFICATE-----", "PRIVATE KEY-----"
OWN = {MANAGED_BY_LABEL: MANAGER, NAME_LABEL: NAME}
DNS: Plain = {
    "to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}],
    "ports": [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")],
}
UNPRIVILEGED: Plain = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@dataclass(frozen=True)
class Pinned:
    """What an owner chooses for the gateway and for a page before it. digest: of the image, stated by the owner.

    timeout_s: of a request, its stream included.
    """

    namespace: str = "dgx-serving"
    repository: str = ""
    version: str = ""
    digest: str = ""
    service_type: t.Literal["ClusterIP", "NodePort", "LoadBalancer"] = "NodePort"
    node_port: int | None = None
    timeout_s: int = 3600
    node: str = ""
    requests: dict[str, str] = field(default_factory=lambda: {"cpu": "250m", "memory": "1Gi"})
    memory_limit: str = "2Gi"
    image_pull_secrets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Gateway(Pinned):
    """An owner's choices. port: of the Service."""

    repository: str = "ghcr.io/berriai/litellm"
    port: int = PORT


@dataclass(frozen=True)
class Backend:
    """A served instance: its Service, the names that reach it (the first is the engine's own), its port, the Secret with its key.

    leaves: names under which it gets no new requests, as it is about to stop.
    """

    service: str
    namespace: str
    names: tuple[str, ...]
    service_port: int
    port: int
    key: str | None = None
    leaves: frozenset[str] = frozenset()

    @property
    def place(self) -> str:
        """The name of its entry among the credentials."""
        return f"{self.namespace}/{self.service}"

    @property
    def offered(self) -> tuple[str, ...]:
        """The names under which it gets requests."""
        return tuple(name for name in self.names if name not in self.leaves)


@dataclass(frozen=True)
class Keys:
    """What no result shows: the gateway's own key, each backend's by its place, the certificate and its key."""

    own: str
    of: t.Mapping[str, str]
    certificate: str = ""
    private: str = ""


def backends(services: t.Sequence[Plain]) -> tuple[Backend, ...]:
    """Return what is served, by namespace and name. services: with the labels of instances; others than their APIs are left out."""
    found = [_backend(each) for each in services if SERVED in (each["metadata"].get("annotations") or {})]
    return tuple(sorted(found, key=lambda each: each.place))


def _backend(service: Plain) -> Backend:
    about = service["metadata"]
    try:
        told = from_json(about["annotations"][SERVED], "annotation", most=MIB)
        names, key = told["names"], told["key"]
        ports = {each["name"]: int(each["port"]) for each in service["spec"]["ports"]}
        good = isinstance(names, list) and 0 < len(names) <= MOST_NAMES and (key is None or isinstance(key, str))
        if not good or not all(
            isinstance(name, str) and 0 < len(name) <= MOST_CHARACTERS and name.isprintable() for name in names
        ):
            raise ValueError("names or key")
        return Backend(
            about["name"], about["namespace"], tuple(dict.fromkeys(names)), ports["http"], int(told["port"]), key
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise CollectionError(
            f"Service {about['namespace']}/{about['name']}: its annotation {SERVED} is not as the role k8s_dgx writes it "
            f"({type(exc).__name__}). Serve the instance again, or remove the annotation."
        ) from exc


def spared(served: t.Sequence[Backend], without: t.Collection[str]) -> tuple[Backend, ...]:
    """Return the backends; some, by their places, are about to stop, and leave each name that has another group."""
    others = {name for each in served if each.place not in without for name in each.names}
    return tuple(
        replace(each, leaves=frozenset(others.intersection(each.names))) if each.place in without else each
        for each in served
    )


def gateway(
    asked: t.Mapping[str, t.Any],
    served: t.Sequence[Backend],
    keys: Keys,
    handler: str,
    versions: t.Sequence[Plain] = (),
    now_s: float = 0.0,
) -> Plain:
    """Return `secret` (its data is secret), `objects` in the order of their creation, and `models` (each name's groups).

    asked: a Gateway. handler: the text of HANDLER. versions: the known-bad ones. now_s: the time, in seconds since 1970. Raises
    CollectionError for what cannot be run safely.
    """
    chosen = _chosen(asked, versions)
    if len(keys.own) < api_key.LEAST or not keys.own.isprintable() or " " in keys.own:
        raise CollectionError(
            f"model_gateway_api_key: this is not a valid key ({len(keys.own)} characters): at least {api_key.LEAST} without spaces are "
            "needed, since LiteLLM without a key is open to all, its administration too."
        )
    if bool(keys.certificate) != bool(keys.private):
        raise CollectionError("model_gateway_tls_certificate and model_gateway_tls_key: give both, or neither.")
    if keys.certificate and (_CERTIFICATE not in keys.certificate or _PRIVATE not in keys.private):
        raise CollectionError(
            "model_gateway_tls_certificate, model_gateway_tls_key: these are not PEM files of a certificate and its key."
        )
    ended = not_after(keys.certificate.encode())
    if ended is not None and ended <= now_s:
        date = datetime.datetime.fromtimestamp(ended, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
        raise CollectionError(
            f"model_gateway_tls_certificate: it has expired on {date}, and clients that check it refuse the gateway. Write the renewed "
            "certificate and its key there, and run this again. The gateway and its streams are as they were."
        )
    files = {"config.yaml": configuration(chosen, served), f"{HANDLER}.py": handler}
    hidden = {"keys.yaml": _credentials(served, keys)}
    if keys.certificate:
        hidden |= {"tls.crt": keys.certificate, "tls.key": keys.private}
    told = {
        f"{MANAGER}/configuration": checksum(files),
        f"{MANAGER}/keys": api_key.mark(json.dumps(hidden, sort_keys=True), chosen.namespace, NAME),
    }
    own = labels() | OWN
    coded = {name: base64.b64encode(text.encode()).decode() for name, text in hidden.items()}
    groups: dict[str, list[str]] = {}
    for each in served:
        for name in each.offered:
            groups.setdefault(name, []).append(each.place)
    return {
        "secret": thing("v1", "Secret", NAME, chosen.namespace, own, type="Opaque", data=coded),
        "objects": [
            thing("v1", "Namespace", chosen.namespace, None, labels()),
            thing("v1", "ConfigMap", NAME, chosen.namespace, own, data=files),
            _reachable(chosen, served, own),
            service(NAME, chosen, chosen.port, own),
            _deployment(chosen, own, told, sorted(hidden)),
        ],
        "models": dict(sorted(groups.items())),
    }


def _chosen(asked: t.Mapping[str, t.Any], versions: t.Sequence[Plain]) -> Gateway:
    chosen = from_plain(Gateway, dict(asked), "model_gateway")
    pinned(chosen, "model_gateway_", "1.108.7")
    for name, value, least in (("timeout_s", chosen.timeout_s, 10), ("port", chosen.port, 1)):
        if value < least:
            raise CollectionError(f"model_gateway_{name}: {value} is too small.")
    found, _environment = known_bad.platform_findings({"gateway": chosen.version}, versions)
    for finding in found:
        if finding.severity == "error":
            raise CollectionError(f"model_gateway_version: {finding.message} {finding.remedy}")
    return chosen


def pinned(chosen: Pinned, prefix: str, example: str) -> None:
    """Raise CollectionError unless it names one image, and where it runs. prefix: of the variables; example: of a version."""
    label(chosen.namespace, "model_gateway_namespace")
    if chosen.node:
        node_name(chosen.node, "model_gateway_node")
    if not _VERSION.match(chosen.version):
        raise CollectionError(f"{prefix}version: {chosen.version!r} is not a release, such as {example}.")
    image(f"{chosen.repository}:v{chosen.version}", f"{prefix}repository")
    if not _DIGEST.match(chosen.digest):
        raise CollectionError(
            f"{prefix}digest: state the digest of the image that you have checked, sha256: and 64 hexadecimal digits. A tag can be "
            f"moved. `docker buildx imagetools inspect {chosen.repository}:v{chosen.version}` shows it."
        )


def configuration(chosen: Gateway, served: t.Sequence[Backend]) -> str:
    """Return LiteLLM's config.yaml: each name with its groups. A name of one group is never retried: its group is down, or it is not."""
    count: dict[str, int] = {}
    for each in served:
        for name in each.offered:
            count[name] = count.get(name, 0) + 1
    models = [
        {
            "model_name": name,
            "litellm_params": {
                "model": f"hosted_vllm/{each.names[0]}",
                "api_base": f"http://{each.service}.{each.namespace}.svc:{each.service_port}/v1",
                "litellm_credential_name": each.place,
                "timeout": chosen.timeout_s,
                "stream_timeout": chosen.timeout_s,
                "num_retries": count[name] - 1,
            },
            "model_info": {"id": f"{each.place}/{name}"},
        }
        for each in served
        for name in each.offered
    ]
    made: Plain = {
        "include": ["keys.yaml"],
        "model_list": models,
        "litellm_settings": {"callbacks": [f"{HANDLER}.handler"], "request_timeout": chosen.timeout_s},
        "router_settings": {
            "routing_strategy": "least-busy",
            "num_retries": 0,
            "retry_after": 0,
            "allowed_fails": 0,
            "cooldown_time": COOL_S,
        },
    }
    return yaml.safe_dump(made, sort_keys=False, width=200)


def _credentials(served: t.Sequence[Backend], keys: Keys) -> str:
    # An engine without a key is sent a word, since the client library wants one.
    listed = [
        {
            "credential_name": each.place,
            "credential_info": {},
            "credential_values": {"api_key": keys.of.get(each.place, "none")},
        }
        for each in served
    ]
    # Nobody signs in: a session of the administration is what CVE-2026-12772 and CVE-2026-12796 are about.
    settings = {"master_key": keys.own, "disable_env_credential_login": True}
    made = {"credential_list": listed, "general_settings": settings}
    return json.dumps(made, indent=1, sort_keys=True) + "\n"


def _reachable(chosen: Gateway, served: t.Sequence[Backend], own: t.Mapping[str, str]) -> Plain:
    """Let everyone reach the gateway, and it only DNS and the ports of what is served: it holds every model's key."""
    ports = [{"port": port, "protocol": "TCP"} for port in sorted({each.port for each in served})]
    spec = {
        "podSelector": {"matchLabels": dict(OWN)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": [{"port": "http", "protocol": "TCP"}]}],
        # Not by the ranks' labels: no rule for pods applies to ranks on the hosts' network.
        "egress": [DNS, *([{"ports": ports}] if ports else [])],
    }
    return thing("networking.k8s.io/v1", "NetworkPolicy", NAME, chosen.namespace, own, spec=spec)


def service(name: str, chosen: Pinned, port: int, own: t.Mapping[str, str]) -> Plain:
    """Return a Service with these labels for the port `http` of the pods called so."""
    listed: Plain = {"name": "http", "port": port, "targetPort": "http", "protocol": "TCP"}
    if chosen.node_port and chosen.service_type != "ClusterIP":
        listed["nodePort"] = chosen.node_port
    selector = {**OWN, NAME_LABEL: name}
    spec = {"type": chosen.service_type, "selector": selector, "ports": [listed]}
    return thing("v1", "Service", name, chosen.namespace, own, spec=spec)


def placed(pod: Plain, chosen: Pinned) -> Plain:
    """Return the pod's spec where the owner wants it, without a token of the cluster."""
    pod = {"automountServiceAccountToken": False, "enableServiceLinks": False, **pod}
    pod |= {"nodeSelector": {HOSTNAME: chosen.node}} if chosen.node else {}
    pod |= (
        {"imagePullSecrets": [{"name": name} for name in chosen.image_pull_secrets]}
        if chosen.image_pull_secrets
        else {}
    )
    return pod


def _deployment(chosen: Gateway, own: t.Mapping[str, str], told: t.Mapping[str, str], hidden: t.Sequence[str]) -> Plain:
    secure = "tls.crt" in hidden

    def probe(path: str, **more: int) -> Plain:
        get = {"path": path, "port": "http", "scheme": "HTTPS" if secure else "HTTP"}
        return {"httpGet": get, "periodSeconds": 5, "timeoutSeconds": 5, **more}

    tls = ["--ssl_certfile_path", f"{FOLDER}/tls.crt", "--ssl_keyfile_path", f"{FOLDER}/tls.key"] if secure else []
    files = [f"{HANDLER}.py", "config.yaml"]
    sources = [
        {"configMap": {"name": NAME, "items": [{"key": each, "path": each} for each in files]}},
        # Files that only root can read: in the environment every child and /proc would show them.
        {"secret": {"name": NAME, "items": [{"key": each, "path": each, "mode": 0o400} for each in hidden]}},
    ]
    container: Plain = {
        "name": "gateway",
        "image": f"{chosen.repository}:v{chosen.version}@{chosen.digest}",
        "imagePullPolicy": "IfNotPresent",
        "args": ["--config", f"{FOLDER}/config.yaml", "--port", str(PORT), "--telemetry", "False", *tls],
        "env": [
            {"name": "DISABLE_ADMIN_UI", "value": "True"},
            # It would ask the internet for a list of prices.
            {"name": "LITELLM_LOCAL_MODEL_COST_MAP", "value": "True"},
            {"name": "NO_DOCS", "value": "True"},
            {"name": "NO_REDOC", "value": "True"},
        ],
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        "volumeMounts": [{"name": "files", "mountPath": FOLDER, "readOnly": True}],
        "startupProbe": probe("/health/liveliness", failureThreshold=60),
        "readinessProbe": probe("/health/readiness", failureThreshold=2),
        "livenessProbe": probe("/health/liveliness", failureThreshold=6),
        "lifecycle": {"preStop": {"sleep": {"seconds": STOP_S}}},
        "resources": {"requests": dict(chosen.requests), "limits": {"memory": chosen.memory_limit}},
        "securityContext": dict(UNPRIVILEGED),
    }
    pod: Plain = {
        "containers": [container],
        # It ends as soon as its last stream has.
        "terminationGracePeriodSeconds": chosen.timeout_s + STOP_S,
        "volumes": [{"name": "files", "projected": {"sources": sources}}],
    }
    spec = {
        "replicas": 1,
        "revisionHistoryLimit": 1,
        "selector": {"matchLabels": dict(OWN)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "template": {"metadata": {"labels": dict(own), "annotations": dict(told)}, "spec": placed(pod, chosen)},
    }
    return thing("apps/v1", "Deployment", NAME, chosen.namespace, own, spec=spec)
