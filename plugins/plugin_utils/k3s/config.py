# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role's settings for one node, and K3s's `config.yaml` built from them: plain data in, plain data and findings out."""

from __future__ import annotations

import pathlib
import re
import typing as t
from dataclasses import dataclass, field, fields

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.dgxspark.cluster.plugins.module_utils.k3s import layout
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, Finding, from_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import ip, knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.settings import RESERVED, near
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.k3s.archives import Archive

Config = dict[str, t.Any]

PORT = 6443
# Keys with a secret value: config.yaml is shown in diffs.
SECRET_KEYS = {
    "token": "the role makes the token and writes it to its own file",
    "agent-token": "the role makes it and writes it to its own file (agent-token-file)",
    "cluster-secret": "the role makes the token and writes it to its own file",
    "vpn-auth": "give vpn-auth-file, with a file of mode 0600 on the node",
    "datastore-endpoint": "the role keeps the data in SQLite or, for three servers, in embedded etcd",
    "etcd-s3-access-key": "give etcd-s3-config-secret, the name of a Secret in kube-system",
    "etcd-s3-secret-key": "give etcd-s3-config-secret, the name of a Secret in kube-system",
    "etcd-s3-session-token": "give etcd-s3-config-secret, the name of a Secret in kube-system",
}
# Keys that follow from the inventory: if set twice, it is unclear which value counts.
OWN_KEYS = {
    "node-name": "the host's name in the inventory",
    "node-ip": "k3s_node_ip",
    "flannel-iface": "k3s_flannel_interface",
    "token-file": "the role's own file",
    "agent-token-file": "the role's own file",
    "server": "k3s_url",
    "cluster-init": "the number of servers",
    "cluster-cidr": "dgxspark_fabric.reserved_networks.pods",
    "service-cidr": "dgxspark_fabric.reserved_networks.services",
    "cluster-dns": "dgxspark_fabric.reserved_networks.services",
    "data-dir": "k3s_data_dir",
    "disable": "k3s_disable",
    "kubelet-arg": "k3s_kubelet_args",
    "node-label": "k3s_labels",
    "node-taint": "k3s_taints",
    "private-registry": "k3s_registries",
    "embedded-registry": "k3s_embedded_registry",
    "config": "the role's own file",
}
_NAME = re.compile(r"^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$")
_LABEL = re.compile(r"^(?:[a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")
_VALUE = re.compile(r"^(?:[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")
# The labels of Kubernetes's own namespaces that a kubelet may set on its node (NodeRestriction).
_ALLOWED = re.compile(r"^(?:[^/]*\.)?(?:kubelet\.kubernetes\.io|node\.kubernetes\.io)/")


@dataclass(frozen=True, slots=True)
class Settings:
    """The role's variables for one host, without their prefix."""

    version: str
    source: str
    data_dir: str = layout.DATA
    airgap: bool = False
    image_archives: tuple[Archive, ...] = ()
    embedded_registry: bool = False
    source_files: tuple[str, ...] | None = None  # names below source/version if source is a local folder
    checksums: dict[str, str] = field(default_factory=dict)
    node_ip: str | None = None
    flannel_interface: str | None = None
    url: str | None = None
    disable: tuple[str, ...] = ()
    kubelet_args: dict[str, t.Any] = field(default_factory=dict)
    labels: dict[str, t.Any] = field(default_factory=dict)
    taints: tuple[str, ...] = ()
    config: dict[str, t.Any] = field(default_factory=dict)
    gpu: t.Any = "auto"
    known_bad: t.Literal["refuse", "warn"] = "refuse"


def releases(overlays: t.Sequence[str] = ()) -> t.Mapping[str, knowledge.Entry]:
    """Return the known releases of K3s by version. Treat the entries as read-only."""
    return knowledge.shared("k3s", tuple(overlays))


def settings_of(variable: t.Callable[[str], t.Any]) -> Config:
    """Return the raw settings. variable: returns a role variable, evaluated. A source folder is relative to the owner's directory."""
    raw = {key.name: variable(f"k3s_{key.name}") for key in fields(Settings) if key.name != "source_files"}
    raw["embedded_registry"] = boolean(raw["embedded_registry"], strict=False)
    raw["gpu"] = raw["gpu"] if raw["gpu"] == "auto" else boolean(raw["gpu"], strict=False)
    if "://" not in raw["source"]:
        # The contents of a folder are known before any node is contacted.
        folder = pathlib.Path(raw["source"]).expanduser().absolute() if raw["source"] else None
        place = folder / str(raw["version"]) if folder else None
        raw["source"] = str(folder or "")
        raw["source_files"] = sorted(file.name for file in place.glob("*") if file.is_file()) if place else []
    return raw


def read_settings(raw: t.Any) -> Settings:
    """Read the role's variables; CollectionError names the wrong one."""
    try:
        return from_plain(Settings, raw, "k3s")
    except CollectionError as exc:
        raise CollectionError(str(exc).replace("k3s.", "k3s_", 1)) from None


def networks(fabric: t.Mapping[str, t.Any]) -> tuple[str, str]:
    """Return the networks of pods and services, which the fabric plan avoids."""
    given = fabric.get("reserved_networks") or {}
    return str(given.get("pods") or RESERVED["pods"]), str(given.get("services") or RESERVED["services"])


def cluster_dns(services: str) -> str:
    """Return the tenth address of the services' network, K3s's choice for its default network."""
    return str(ip.network(services)[10])


def node_ip(own: str | None, ansible_host: t.Any, name: str) -> tuple[str | None, list[Finding]]:
    """Return a node's address: the owner's setting, else `ansible_host` if that is an address that others can reach."""
    text = own if own is not None else ansible_host
    address = ip.address(text)
    if address is None or address.is_loopback() or not int(address) or address.is_link_local():
        found = (
            f"its address on the management network is not known: k3s_node_ip is not set and ansible_host is {text!r}."
        )
        if own is not None:
            found = f"k3s_node_ip {own!r} is not an address that other nodes can reach."
        return None, [Finding("k3s.node-ip", "error", name, found, "Set k3s_node_ip for this host.")]
    return str(address), []


def interface(address: str, addresses: t.Mapping[str, t.Sequence[str]], name: str) -> tuple[str | None, list[Finding]]:
    """Return the interface that has the node's address."""
    for interface_name, listed in addresses.items():
        if address in listed:
            return interface_name, []
    there = ", ".join(f"{name} {' '.join(listed)}" for name, listed in addresses.items()) or "none"
    message = f"none of its interfaces has the address {address}. Addresses there: {there}."
    return None, [Finding("k3s.node-ip", "error", name, message, "Correct k3s_node_ip.")]


def word(value: t.Any) -> str:
    """Format a YAML value for K3s's flags."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def node_config(
    settings: Settings,
    *,
    name: str,
    role: layout.Role,
    first: bool,
    servers: int,
    address: str,
    flannel: str,
    url: str,
    sans: t.Sequence[str],
    pods: str,
    services: str,
    kubelet: t.Mapping[str, t.Any],
    labels: t.Mapping[str, t.Any],
) -> Config:
    """Return a node's `config.yaml` as data. kubelet and labels: the defaults; the owner's values override them (null drops one)."""
    arguments = {k: v for k, v in {**kubelet, **settings.kubelet_args}.items() if v is not None}
    all_labels = {k: v for k, v in {**labels, **settings.labels}.items() if v is not None}
    config: Config = {
        "node-name": name,
        "node-ip": address,
        "flannel-iface": flannel,
        "token-file": layout.TOKEN,
        "node-label": [f"{key}={word(value)}" for key, value in sorted(all_labels.items())],
        "node-taint": list(settings.taints),
        "kubelet-arg": [f"{key}={word(value)}" for key, value in sorted(arguments.items())],
    }
    if settings.data_dir != layout.DATA:
        config["data-dir"] = settings.data_dir
    if role == "server":
        config |= {
            "agent-token-file": layout.AGENT_TOKEN,
            "cluster-cidr": pods,
            "service-cidr": services,
            "cluster-dns": cluster_dns(services),
            "tls-san": list(dict.fromkeys(sans)),
            "write-kubeconfig-mode": "0600",
            "disable": list(settings.disable),
        }
        if servers > 1 and first:
            config["cluster-init"] = True
        # Agents learn this from the server. Each node's registries.yaml lists the registries whose images it shares.
        if settings.embedded_registry:
            config["embedded-registry"] = True
    if role == "agent" or not first:
        config["server"] = url
    config |= settings.config
    return {key: value for key, value in config.items() if value not in ([], None)}


def check(
    settings: Settings, role: layout.Role, name: str, keys: t.Mapping[str, t.Sequence[str]] | None
) -> list[Finding]:
    """Find what is wrong with the settings themselves. keys: the settings of this K3s release, by role; None if unknown."""

    def wrong(kind: str, variable: str, message: str, remedy: str) -> None:
        findings.append(Finding(f"k3s.{kind}", "error", f"{name}: {variable}", message, remedy))

    findings: list[Finding] = []
    if not _NAME.match(name):
        wrong(
            "name", "the host's name", "Kubernetes allows only lower-case letters, digits, - and . here.", "Rename it."
        )
    for key in settings.config:
        plain_key = key.removesuffix("+")
        if plain_key in SECRET_KEYS:
            wrong("secret", f"k3s_config.{key}", "it is a secret, and config.yaml is shown in diffs.", _cap(plain_key))
        elif plain_key in OWN_KEYS:
            wrong("own-key", f"k3s_config.{key}", "the role sets this key.", f"Use {OWN_KEYS[plain_key]}.")
        elif keys is not None and plain_key not in keys[role]:
            wrong("unknown-key", f"k3s_config.{key}", f"K3s {role} has no such setting.", near(plain_key, keys[role]))
        elif plain_key == "https-listen-port" and settings.config[key] != PORT:
            message = f"agents, the kubeconfig and the ranks' NetworkPolicy use port {PORT}."
            wrong("own-key", f"k3s_config.{key}", message, "Leave it out.")
        elif plain_key == "disable-network-policy" and settings.config[key]:
            message = "ranks' NetworkPolicy is then not enforced: a model's code reaches the whole network."
            remedy = "Leave it out, or run another NetworkPolicy controller."
            findings.append(Finding("k3s.no-policies", "warning", f"{name}: k3s_config.{key}", message, remedy))
    for label, value in settings.labels.items():
        if not _LABEL.match(label) or (value is not None and not _VALUE.match(word(value))):
            wrong(
                "label", f"k3s_labels.{label}", f"{label}={value} is not a label.", "Letters, digits, - _ . and one /."
            )
        elif re.match(r"^(?:[^/]*\.)?(?:kubernetes\.io|k8s\.io)/", label) and not _ALLOWED.match(label):
            remedy = "Choose another prefix, such as dgxspark.cluster/."
            wrong("label", f"k3s_labels.{label}", "a node may not set Kubernetes's own labels on itself.", remedy)
    if settings.gpu not in ("auto", True, False):
        wrong("type", "k3s_gpu", f"{settings.gpu!r} is not auto, true or false.", "Leave it out for auto.")
    return findings


def _cap(key: str) -> str:
    remedy = SECRET_KEYS[key]
    return f"{remedy[0].upper()}{remedy[1:]}."
