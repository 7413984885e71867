# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A page for people before the gateway: Open WebUI, as Kubernetes objects. Plain values in, plain objects out; no cluster access.

Nobody can sign up: the owner's account is made at the first start, and makes the others. The page reaches the gateway and DNS, nothing
else. Its settings are the environment's at every start (ENABLE_PERSISTENT_CONFIG), so that a replaced key is taken over; accounts and
chats are in its volume.
"""

from __future__ import annotations

import base64
import json
import re
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, from_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import api_key, gateway
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import (
    MANAGED_BY_LABEL,
    MANAGER,
    NAME_LABEL,
    Plain,
    labels,
    thing,
)

NAME = "model-gateway-webui"
PORT = 8080
DATA = "/app/backend/data"  # of the image
FILES = "/etc/dgxspark-webui"
SESSION = "session-key"  # in the Secret; made once, since sessions are signed with it
LEAST, MOST = 12, 72  # of a password, in characters and bytes: bcrypt takes no more
_MAIL = re.compile(r"^[^@\s]{1,64}@[^@\s]{1,190}$")
_SIZE = re.compile(r"^[1-9][0-9]{0,5}(Mi|Gi|Ti)$")
_OWN = {MANAGED_BY_LABEL: MANAGER, NAME_LABEL: NAME}
_SETTINGS = {
    "WEBUI_AUTH": "True",
    "ENABLE_SIGNUP": "False",
    "DEFAULT_USER_ROLE": "pending",
    "ENABLE_PERSISTENT_CONFIG": "False",
    # All accounts are the owner's, and the gateway has one key for all of its models.
    "BYPASS_MODEL_ACCESS_CONTROL": "True",
    "ENABLE_OLLAMA_API": "False",
    "ENABLE_DIRECT_CONNECTIONS": "False",
    "ENABLE_COMMUNITY_SHARING": "False",
    "ENABLE_EVALUATION_ARENA_MODELS": "False",
    # It can reach no other host. Without an embedding model a file that is attached goes into the prompt as it is.
    "OFFLINE_MODE": "True",
    "HF_HUB_OFFLINE": "1",
    "ENABLE_VERSION_UPDATE_CHECK": "False",
    "RAG_EMBEDDING_ENGINE": "openai",
    "BYPASS_EMBEDDING_AND_RETRIEVAL": "True",
    "ANONYMIZED_TELEMETRY": "False",
    "DO_NOT_TRACK": "True",
    "SCARF_NO_ANALYTICS": "True",
}


@dataclass(frozen=True)
class WebUi(gateway.Pinned):
    """An owner's choices. gateway_port: of the gateway's Service. storage: of the volume with accounts and chats. admin: an address."""

    repository: str = "ghcr.io/open-webui/open-webui"
    memory_limit: str = "3Gi"
    admin: str = ""
    gateway_port: int = gateway.PORT
    storage: str = "10Gi"
    storage_class: str = ""


@dataclass(frozen=True)
class Keys:
    """What no result shows: the gateway's key, the first account's password, what signs sessions, the certificate and its key."""

    gateway: str
    password: str
    session: str
    certificate: str = ""
    private: str = ""


def webui(asked: t.Mapping[str, t.Any], keys: Keys) -> Plain:
    """Return `secret` (its data is secret) and `objects` in the order of their creation.

    asked: a WebUi. Raises CollectionError for what cannot be run safely.
    """
    chosen = _chosen(asked, keys)
    hidden = {"gateway-key": keys.gateway, "password": keys.password, SESSION: keys.session}
    if keys.certificate:
        hidden |= {"tls.crt": keys.certificate, "tls.key": keys.private}
    # Kubernetes hands a changed Secret to no pod that runs: a new mark starts a new one.
    told = {f"{MANAGER}/keys": api_key.mark(json.dumps(hidden, sort_keys=True), chosen.namespace, NAME)}
    own = labels() | _OWN
    coded = {name: base64.b64encode(text.encode()).decode() for name, text in hidden.items()}
    return {
        "secret": thing("v1", "Secret", NAME, chosen.namespace, own, type="Opaque", data=coded),
        "objects": [
            thing("v1", "PersistentVolumeClaim", NAME, chosen.namespace, own, spec=_claim(chosen)),
            _reachable(chosen, own),
            gateway.service(NAME, chosen, PORT, own),
            _deployment(chosen, own, told, bool(keys.certificate)),
        ],
    }


def _chosen(asked: t.Mapping[str, t.Any], keys: Keys) -> WebUi:
    chosen = from_plain(WebUi, dict(asked), "model_gateway_webui")
    gateway.pinned(chosen, "model_gateway_webui_", "0.12.4")
    if not _MAIL.match(chosen.admin) or not chosen.admin.isprintable():
        raise CollectionError(
            "model_gateway_webui_admin: name the account that is made at the first start, by an e-mail address (none is sent there). "
            "Without one the first visitor would become the administrator."
        )
    size = len(keys.password.encode())
    if len(keys.password) < LEAST or size > MOST or not keys.password.isprintable():
        raise CollectionError(
            f"model_gateway_webui_password: {LEAST} characters or more are needed, and at most {MOST} bytes; this has {size}."
        )
    if not _SIZE.match(chosen.storage):
        raise CollectionError(f"model_gateway_webui_storage: {chosen.storage!r} is not a size, such as 10Gi.")
    return chosen


def _claim(chosen: WebUi) -> Plain:
    spec: Plain = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": chosen.storage}}}
    return spec | ({"storageClassName": chosen.storage_class} if chosen.storage_class else {})


def _reachable(chosen: WebUi, own: t.Mapping[str, str]) -> Plain:
    """Let everyone reach the page, and it only DNS and the gateway."""
    behind = {
        "to": [{"podSelector": {"matchLabels": dict(gateway.OWN)}}],
        "ports": [{"port": "http", "protocol": "TCP"}],
    }
    spec = {
        "podSelector": {"matchLabels": dict(_OWN)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": [{"port": "http", "protocol": "TCP"}]}],
        "egress": [gateway.DNS, behind],
    }
    return thing("networking.k8s.io/v1", "NetworkPolicy", NAME, chosen.namespace, own, spec=spec)


def _environment(chosen: WebUi, secure: bool) -> list[Plain]:
    scheme = "https" if secure else "http"
    plain = {
        **_SETTINGS,
        "PORT": str(PORT),
        "OPENAI_API_BASE_URL": f"{scheme}://{gateway.NAME}.{chosen.namespace}.svc:{chosen.gateway_port}/v1",
        "AIOHTTP_CLIENT_TIMEOUT": str(chosen.timeout_s),
        "WEBUI_ADMIN_EMAIL": chosen.admin,
    }
    if secure:
        # The gateway's certificate has the names that owners use, not its Service's: encrypted, and not checked.
        plain |= {"AIOHTTP_CLIENT_SESSION_SSL": "False", "WEBUI_SESSION_COOKIE_SECURE": "True"}
        plain |= {"UVICORN_SSL_CERTFILE": f"{FILES}/tls.crt", "UVICORN_SSL_KEYFILE": f"{FILES}/tls.key"}
    secret = {"OPENAI_API_KEY": "gateway-key", "WEBUI_ADMIN_PASSWORD": "password", "WEBUI_SECRET_KEY": SESSION}
    return [
        *({"name": name, "value": value} for name, value in sorted(plain.items())),
        *({"name": name, "valueFrom": {"secretKeyRef": {"name": NAME, "key": key}}} for name, key in secret.items()),
    ]


def _deployment(chosen: WebUi, own: t.Mapping[str, str], told: t.Mapping[str, str], secure: bool) -> Plain:
    def probe(path: str, failures: int) -> Plain:
        get = {"path": path, "port": "http", "scheme": "HTTPS" if secure else "HTTP"}
        return {"httpGet": get, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": failures}

    mounts: list[Plain] = [{"name": "data", "mountPath": DATA}]
    volumes: list[Plain] = [{"name": "data", "persistentVolumeClaim": {"claimName": NAME}}]
    if secure:
        items = [{"key": each, "path": each, "mode": 0o400} for each in ("tls.crt", "tls.key")]
        mounts.append({"name": "files", "mountPath": FILES, "readOnly": True})
        volumes.append({"name": "files", "secret": {"secretName": NAME, "items": items}})
    container: Plain = {
        "name": "webui",
        "image": f"{chosen.repository}:v{chosen.version}@{chosen.digest}",
        "imagePullPolicy": "IfNotPresent",
        "env": _environment(chosen, secure),
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        "volumeMounts": mounts,
        "startupProbe": probe("/health", 120),
        "readinessProbe": probe("/ready", 2),
        "livenessProbe": probe("/health", 6),
        "resources": {"requests": dict(chosen.requests), "limits": {"memory": chosen.memory_limit}},
        "securityContext": dict(gateway.UNPRIVILEGED),
    }
    pod = gateway.placed({"containers": [container], "volumes": volumes}, chosen)
    spec = {
        "replicas": 1,
        "revisionHistoryLimit": 1,
        "selector": {"matchLabels": dict(_OWN)},
        # Its database is a file: never two of them.
        "strategy": {"type": "Recreate"},
        "template": {"metadata": {"labels": dict(own), "annotations": dict(told)}, "spec": pod},
    }
    return thing("apps/v1", "Deployment", NAME, chosen.namespace, own, spec=spec)
