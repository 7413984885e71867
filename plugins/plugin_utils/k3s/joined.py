# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A K3s cluster that the inventory does not manage: its owner's token, what its server says before a node joins, and why none can."""

from __future__ import annotations

import base64
import hashlib
import pathlib
import re
import ssl
import stat
import typing as t
import urllib.parse
from dataclasses import dataclass, field, replace

try:
    import httpx
except ImportError:
    httpx = None  # type: ignore[assignment,unused-ignore]

from ansible_collections.dgxspark.cluster.plugins.module_utils import foreign
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, Finding
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import http_client, ip
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.settings import DEFAULTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.k3s import releases
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.k3s.config import Settings
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import MANAGED_BY_LABEL, MANAGER, RANK

# K10<SHA-256 of the CA>::<user>:<password>, or ::<id>.<secret> of `k3s token create` (k3s-io/k3s pkg/clientaccess/token.go).
_TOKEN = re.compile(r"K10(?P<ca>[0-9a-f]{64})::(?:(?P<user>[a-z]+):(?P<word>\S+)|(?P<made>[a-z0-9]{6}\.[a-z0-9]{16}))")
_LARGEST = 4096  # bytes of a token's file
_ANSWER = 2**20  # bytes of an answer that is read
_SECONDS = 20.0
_CREATE = "Make one for agents on a server of that cluster: k3s token create"
RANKS = (f"{MANAGED_BY_LABEL}={MANAGER}", RANK)  # selectors of pods
_CONTROL = "node-role.kubernetes.io/control-plane"
_MANY = 5000  # nodes, more than Kubernetes allows in a cluster

Plain = dict[str, t.Any]


@dataclass(frozen=True, slots=True, repr=False)
class Token:
    """A join token for agents. authority: the digest of the cluster's CA; header: what K3s wants to see of it."""

    authority: str
    header: str


@dataclass(frozen=True, slots=True)
class Joined:
    """What a cluster says of itself. accepted: whether it knows the token; None without one. The rest is empty unless it does.

    server: the oldest release among its servers, None if the API does not say. nodes: the names that are taken. ranks: the names of
    ranks of models and benchmarks, by node. mirror: whether its servers have the embedded registry mirror, which every agent then runs, too.
    """

    url: str
    accepted: bool | None = None
    pods: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    server: str | None = None
    nodes: tuple[str, ...] = ()
    ranks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    mirror: bool | None = None


def read_token(path: str) -> Token:
    """Return the token of a file on the controller. CollectionError says why it is none; it never has the file's content."""
    try:
        seen = pathlib.Path(path).stat()
        if not stat.S_ISREG(seen.st_mode) or seen.st_size > _LARGEST:
            raise CollectionError(f"{path} (k3s_token_file) is not a file with a token. {_CREATE} > FILE")
        if seen.st_mode & 0o077:
            raise CollectionError(
                f"{path} (k3s_token_file) has mode {stat.S_IMODE(seen.st_mode):04o}: others can read the token. chmod 600 {path}"
            )
        text = pathlib.Path(path).read_text(encoding="ascii", errors="replace").strip()
    except OSError as exc:
        raise CollectionError(f"{path} (k3s_token_file) cannot be read: {exc.strerror}. {_CREATE} > FILE") from None
    return parse_token(text, path)


def parse_token(text: str, path: str) -> Token:
    """Return a token for agents; CollectionError for any other text."""
    found = _TOKEN.fullmatch(text)
    if not found:
        why = (
            "the token lacks the digest of the cluster's CA" if re.fullmatch(r"\S{1,200}", text) else "that is no token"
        )
        raise CollectionError(f"{path} (k3s_token_file): {why}. It must begin with K10. {_CREATE}")
    if found["user"] == "server":
        raise CollectionError(
            f"{path} (k3s_token_file): this is the servers' token, with which a node could become a server and read every Secret. {_CREATE}"
        )
    if found["made"]:
        return Token(found["ca"], f"Bearer {found['made']}")
    # Whatever user a token names, an agent joins as `node` (pkg/agent/config/config.go).
    return Token(found["ca"], "Basic " + base64.b64encode(f"node:{found['word']}".encode()).decode())


def ask(url: str, token: Token | None) -> Joined:
    """Ask a K3s server for what its agents get. CollectionError if it does not answer, is no K3s, or is not the token's cluster."""
    http_client.needed()
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https" or not parts.hostname or parts.path.strip("/"):
        raise CollectionError(f"k3s_url {url!r} is not the URL of a K3s server, such as https://192.0.2.1:6443.")
    place = url.rstrip("/")
    authority = _get(place, "/cacerts", _unproven(), {})
    if authority.status_code != 200 or b"BEGIN CERTIFICATE" not in authority.content:
        raise CollectionError(
            f"{place} answers, but not as a K3s server ({authority.status_code} for /cacerts). Nodes of another Kubernetes join by its "
            "own means (kubeadm join, RKE2's agent): leave k3s_agent empty and name its kubeconfig in k8s_dgx_kubeconfig."
        )
    if token is None:
        return Joined(place)
    if not _is_authority(authority.text, token.authority):
        raise CollectionError(
            f"{place}: the token belongs to another cluster, or something else answers there: the CA is not the one whose digest it has. "
            f"{_CREATE}"
        )
    told = _get(place, "/v1-k3s/config", _proven(authority.text), {"Authorization": token.header})
    if told.status_code in (401, 403):
        return Joined(place, accepted=False)
    if told.status_code != 200:
        raise CollectionError(
            f"{place} is not ready: {told.status_code} for /v1-k3s/config. Look at journalctl -u k3s there."
        )
    pods, services, mirror = _config(place, told.text)
    return Joined(place, True, pods, services, mirror=mirror)


def _get(place: str, path: str, context: ssl.SSLContext, headers: t.Mapping[str, str]) -> httpx.Response:
    """Return a server's answer, whatever its status."""
    with http_client.named(place), httpx.Client(verify=context, timeout=_SECONDS, trust_env=False) as asked:
        try:
            return http_client.small(asked, place + path, headers, _ANSWER, _SECONDS)
        except CollectionError as exc:
            why = str(exc.__cause__ or exc)
            raise CollectionError(
                f"the K3s server {place} (k3s_url) cannot be reached from the controller: {foreign.line(why)}. Is it up, and is this its address?"
            ) from None


def _unproven() -> ssl.SSLContext:
    """Return a context for the CA itself, which the token's digest proves."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _proven(authority: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=authority)
    except ssl.SSLError as exc:
        raise CollectionError(f"the K3s server's CA cannot be read: {exc.reason}.") from None


def _is_authority(text: str, digest: str) -> bool:
    """Whether the CA has this digest: of the text, or, in a bundle, of one of its certificates (the root)."""
    if hashlib.sha256(text.encode()).hexdigest() == digest:
        return True
    listed = re.findall(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", text, re.DOTALL)
    try:
        return any(hashlib.sha256(ssl.PEM_cert_to_DER_cert(each)).hexdigest() == digest for each in listed[:20])
    except ValueError:
        return False


def _config(place: str, text: str) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """Return the networks of pods and services, and whether there is a mirror. The answer has much more, secrets too (IPSECPSK)."""
    try:
        told = foreign.from_json(text, place)
        pods = [_network(each) for each in told.get("ClusterIPRanges") or [told["ClusterIPRange"]]]
        services = [_network(each) for each in told.get("ServiceIPRanges") or [told["ServiceIPRange"]]]
        # pkg/daemons/config/types.go, CriticalControlArgs; releases before 1.29 have none.
        return tuple(pods), tuple(services), told.get("EmbeddedRegistry") is True
    except (AttributeError, LookupError, TypeError, ValueError):
        raise CollectionError(f"{place} does not say which networks its pods and services have.") from None


def _network(value: t.Mapping[str, t.Any]) -> str:
    """Return a network as Go writes it: an address, and a mask in base64."""
    mask = base64.b64decode(str(value["Mask"]), validate=True)
    return str(ip.network(f"{ip.address(value['IP'])}/{sum(byte.bit_count() for byte in mask)}"))


def with_nodes(
    seen: Joined, nodes: t.Sequence[t.Mapping[str, t.Any]], pods: t.Sequence[t.Mapping[str, t.Any]] = ()
) -> Joined:
    """Add what the API says of the nodes, and of the pods that are ranks: names, places, and the oldest release of a server."""
    names, servers = [], []
    for node in nodes[:_MANY]:
        metadata = node.get("metadata") or {}
        names.append(str(metadata.get("name"))[:253])
        if (metadata.get("labels") or {}).get(_CONTROL) is not None:
            servers.append(str(((node.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion"))[:60])
    known = sorted(servers, key=_order)
    ranks: dict[str, tuple[str, ...]] = {}
    for pod in pods[:_MANY]:
        place, name = (pod.get("spec") or {}).get("nodeName"), (pod.get("metadata") or {}).get("name")
        if place:
            ranks[str(place)[:253]] = (*ranks.get(str(place)[:253], ()), str(name)[:253])
    return replace(seen, server=known[0] if known else None, nodes=tuple(names), ranks=ranks)


def _order(release: str) -> tuple[bool, t.Any]:
    """Sort what is no release of K3s first."""
    try:
        return True, releases.release(release)
    except CollectionError:
        return False, release


def findings(seen: Joined, name: str, settings: Settings, fabric: t.Mapping[str, t.Any], *, new: bool) -> list[Finding]:
    """Find why a node cannot join. settings: the role's. fabric: dgxspark_fabric. new: whether it has no K3s yet."""
    found = list(_collisions(seen, fabric)) + _skew(seen, name, settings.version)
    found += _mirror(seen, name, settings.embedded_registry)
    if new and seen.accepted is None:
        found.append(
            _error("token", name, "k3s_token_file is not set, and the node has not joined yet.", f"{_CREATE} > FILE")
        )
    elif new and not seen.accepted:
        message = f"{seen.url} does not know the token in k3s_token_file: it is wrong, or has expired."
        found.append(_error("token", name, message, _CREATE))
    if new and name in seen.nodes:
        message = "the cluster has a node of this name already, and K3s would refuse another."
        found.append(
            _error("name", name, message, f"If it was this machine: kubectl delete node {name}. Or rename the host.")
        )
    return found


def _mirror(seen: Joined, name: str, wanted: bool) -> list[Finding]:
    """Find a mirror that only one of the two sides has: the servers decide whether agents run it, registries.yaml whether a node asks it."""
    if seen.mirror is None or seen.mirror == wanted:
        return []
    if wanted:
        message = "k3s_embedded_registry is true, but the cluster's servers run no embedded registry mirror, so its nodes share no images."
        remedy = (
            "Leave k3s_embedded_registry out. Its owner could start all of its servers with embedded-registry: true."
        )
        return [_error("mirror", seen.url, message, remedy)]
    message = (
        "the cluster's nodes share images by K3s's embedded registry mirror, and this node would download its own."
    )
    remedy = "Set k3s_embedded_registry: true."
    return [Finding("k3s.join-mirror", "warning", name, message, remedy)]


def under_ranks(seen: Joined, name: str) -> list[Finding]:
    """Refuse to restart K3s of a node with ranks: nodes of somebody else's cluster are neither cordoned nor drained from here."""
    there = ", ".join(foreign.line(rank, 80) for rank in seen.ranks.get(name, ())[:4])
    message = f"it runs ranks ({there}), and K3s is not restarted under them."
    return [_error("ranks", name, message, "Stop the model first (k8s_dgx_state=absent).")] if there else []


def _error(kind: str, subject: str, message: str, remedy: str) -> Finding:
    return Finding(f"k3s.join-{kind}", "error", subject, message, remedy)


def _collisions(seen: Joined, fabric: t.Mapping[str, t.Any]) -> t.Iterator[Finding]:
    """Find networks of the cluster that overlap with the rails: pods could then not be told from RoCE addresses."""
    if not fabric:
        return
    pool = str(fabric.get("address_pool") or DEFAULTS["address_pool"])
    rails = [pool, *map(str, (fabric.get("subnets") or {}).values())]
    for key, networks in (("pods", seen.pods), ("services", seen.services)):
        for network in networks:
            taken = next((rail for rail in rails if _overlap(network, rail)), None)
            if taken:
                message = f"the network of the cluster's {key}, {network}, overlaps with the fabric's, {taken}."
                remedy = (
                    f"Choose another dgxspark_fabric.address_pool, state dgxspark_fabric.reserved_networks.{key}: {network}, and "
                    "run the fabric first (dgxspark.cluster.site --tags fabric)."
                )
                yield _error("network", seen.url, message, remedy)


def _overlap(one: str, other: str) -> bool:
    a, b = ip.network(one), ip.network(other)
    return bool(a.version == b.version and (a in b or b in a))


def _skew(seen: Joined, name: str, version: str) -> list[Finding]:
    """Find a release that the cluster's servers do not take."""
    if seen.server is None:
        return []
    try:
        releases.release(seen.server)
    except CollectionError:
        message = f"the cluster's server runs {foreign.line(seen.server)}, which is not a release of K3s."
        return [
            _error(
                "release", seen.url, message, "Join the node by that cluster's own means, and leave k3s_agent empty."
            )
        ]
    wrong = releases.skew(version, seen.server, name)
    return [_error("release", name, each.message, f"Set k3s_version to {seen.server}.") for each in wrong]
