# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The K3s plan of one node: its role in the cluster, its configuration, what to fetch, and what prevents it.

Pure. Facts about other nodes come from the inventory; the server's release comes from what was read there.
"""

from __future__ import annotations

import hashlib
import json
import typing as t
import urllib.parse
from dataclasses import dataclass

import yaml

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import read_in
from ansible_collections.dgxspark.cluster.plugins.module_utils.k3s import layout
from ansible_collections.dgxspark.cluster.plugins.module_utils.k3s.machine import Installed, Machine
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Finding, to_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import hardware, ip
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.settings import hardware_name
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.k3s import archives as k3s_archives
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.k3s import config as k3s_config
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.k3s import joined as k3s_joined
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.k3s import releases as k3s_releases
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.k3s.config import Settings
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.known_bad import load_known_bad, platform_findings
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import SPARK
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.signatures import load_signatures

Plain = dict[str, t.Any]

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# The ports of K3s and its parts, beside the API's (docs.k3s.io, requirements).
PORTS = {"server": (k3s_config.PORT, 6444, 10250, 10257, 10259), "agent": (6444, 10250)}
ETCD_PORTS = (2379, 2380)
# With the embedded registry mirror, nodes share their images: peer to peer, and at the API's port (docs.k3s.io, registry-mirror).
MIRROR_PORTS = (5001, k3s_config.PORT)
DISK_MIB = {"binary": 160, "unpacked": 400, "images": 700}
# Further disk space of an imported archive, as a multiple of its size: its layers, packed and unpacked. A cautious assumption.
IMPORTED = 2
SIGN = ("id", "pattern", "cause", "remedy", "final")


def plan_of_inventory(name: str, given: t.Mapping[str, t.Any], hostvars: t.Any, knowledge_dirs: t.Any = ()) -> Plain:
    """Plan K3s for a host of an inventory.

    given: `settings` (the role's variables), `servers` and `agents` (hosts in order), `fabric` (dgxspark_fabric),
    `sparks` (the fabric's hosts), `machine` (what k3s_info read of the host; None if nothing was read), `server` (that of
    the first server; None likewise), `archives_seen` (the controller's stat of each of k3s_image_archives), `joined` (what k3s_join
    read of a cluster that the inventory does not manage; None without one). Raises CollectionError for values of the wrong shape.
    """
    dirs = [str(path) for path in knowledge_dirs or ()]
    fabric = given.get("fabric") or {}
    name_of_hardware = hardware_name(fabric)
    asked = NodeRequest(
        name=name,
        settings=k3s_config.read_settings(given["settings"]),
        servers=list(given["servers"]),
        agents=list(given["agents"]),
        variables={host: _variables(hostvars, host) for host in [*given["servers"], name]},
        fabric=fabric,
        sparks=list(given.get("sparks") or ()),
        machine=_machine(given.get("machine"), name),
        server=_machine(given.get("server"), "the first server"),
        releases=k3s_config.releases(dirs),
        known_bad=load_known_bad(dirs),
        guard=hardware.guard_if_any(name_of_hardware, dirs),
        signs=start_signs(dirs),
        archives_seen=[k3s_archives.seen(stat) for stat in given.get("archives_seen") or ()],
        joined=None
        if given.get("joined") is None
        else read_in(k3s_joined.Joined, given["joined"], "k3s_join: cluster"),
    )
    return plan(asked)


def start_signs(dirs: t.Sequence[str] = ()) -> list[Plain]:
    """Return the signatures for K3s's log at its start: those that state whether they are final."""
    entries = load_signatures(dirs).values()
    return [{key: entry[key] for key in SIGN} for entry in entries if "final" in entry]


def _variables(hostvars: t.Any, host: str) -> Plain:
    found = hostvars[host] if host in hostvars else {}  # noqa: SIM401 (Ansible's hostvars has no default)
    return {key: found.get(key) for key in ("k3s_node_ip", "ansible_host")}


def _machine(value: t.Any, where: str) -> Machine | None:
    return None if value is None else read_in(Machine, value, f"{where}: machine")


@dataclass(frozen=True, kw_only=True)
class NodeRequest:
    """What one node's plan depends on; see `plan_of_inventory`."""

    name: str
    settings: Settings
    servers: t.Sequence[str]
    agents: t.Sequence[str]
    variables: t.Mapping[str, t.Mapping[str, t.Any]]
    fabric: t.Mapping[str, t.Any]
    sparks: t.Sequence[str]
    machine: Machine | None
    server: Machine | None
    releases: t.Mapping[str, Plain]
    known_bad: t.Sequence[Plain]
    guard: Plain | None
    signs: t.Sequence[Plain] = ()
    archives_seen: t.Sequence[k3s_archives.Seen] = ()
    joined: k3s_joined.Joined | None = None

    @property
    def role(self) -> layout.Role:
        """What the node is in the cluster."""
        return "server" if self.name in self.servers else "agent"

    @property
    def first(self) -> bool:
        """Whether it is the server that the others join."""
        return self.name in self.servers[:1]

    @property
    def release(self) -> Plain:
        """What is known of the release; nothing for one that the knowledge does not have."""
        return self.releases.get(self.settings.version, {})


@dataclass(frozen=True)
class _Place:
    """A node's place in the cluster, as the inventory alone says it."""

    address: str | None
    url: str
    pods: str
    services: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class _Fit:
    """What the node itself decides. None where it cannot be planned."""

    architecture: str | None
    flannel: str | None
    step: k3s_releases.Step
    archives: list[Plain]
    findings: tuple[Finding, ...]


def _placed(asked: NodeRequest) -> _Place:
    """Find the node's address and the server's."""
    name, settings = asked.name, asked.settings
    k3s_releases.release(settings.version)
    wrong = k3s_config.check(settings, asked.role, name, _config_keys(asked.releases, settings.version))
    pods, services = k3s_config.networks(asked.fabric)
    address, of_address = k3s_config.node_ip(settings.node_ip, asked.variables[name].get("ansible_host"), name)
    if asked.joined:
        pods, services = next(iter(asked.joined.pods), pods), next(iter(asked.joined.services), services)
        overlaps = _address_findings(address, asked.fabric, pods, services, name)
        return _Place(address, asked.joined.url, pods, services, (*wrong, *of_address, *overlaps))
    head = asked.servers[0]
    of_first, of_server = k3s_config.node_ip(
        asked.variables[head].get("k3s_node_ip"), asked.variables[head].get("ansible_host"), head
    )
    joins = settings.url is None and not asked.first
    url = settings.url or f"https://{_host(of_first or 'unknown')}:{k3s_config.PORT}"
    overlaps = _address_findings(address, asked.fabric, pods, services, name)
    return _Place(address, url, pods, services, (*wrong, *of_address, *(of_server if joins else ()), *overlaps))


def _fitted(asked: NodeRequest, machine: Machine, address: str) -> _Fit:
    """Judge the node: its interface and architecture, and what prevents K3s there."""
    name, settings = asked.name, asked.settings
    flannel, of_flannel = settings.flannel_interface, list[Finding]()
    if flannel is None:
        flannel, of_flannel = k3s_config.interface(address, machine.addresses, name)
    architecture = ARCHITECTURES.get(machine.architecture)
    if architecture is None:
        message = f"K3s is not installed on its architecture, {machine.architecture}."
        known = f"Known: {', '.join(ARCHITECTURES)}."
        of_flannel.append(Finding("k3s.architecture", "error", name, message, known))
    if architecture is None or flannel is None:
        return _Fit(architecture, flannel, "refused", [], tuple(of_flannel))
    step, of_step = k3s_releases.step(machine.k3s.version, settings.version, name)
    listed, of_archives = k3s_archives.plan(settings.image_archives, asked.archives_seen, name)
    archives = [archive for archive in listed if archive["name"] not in machine.k3s.archives]
    laid = sum(archive["mib"] for archive in archives)
    new = {"k3s": settings.version} if step != "keep" else {}
    etcd, mirror = len(asked.servers) > 1, settings.embedded_registry or bool(asked.joined and asked.joined.mirror)
    found = (
        *of_flannel,
        *of_step,
        *of_archives,
        *node_findings(name, asked.role, settings, machine, asked.release, etcd=etcd, mirror=mirror, laid_mib=laid),
        *_platform(name, machine.platform | new, asked.known_bad, settings.known_bad),
        *_of_server(asked, step),
    )
    return _Fit(architecture, flannel, step, archives, found)


def _of_server(asked: NodeRequest, step: k3s_releases.Step) -> list[Finding]:
    """Find why the node cannot join its server, if the server was read."""
    if asked.joined and asked.machine:
        new = asked.machine.k3s.version is None
        return k3s_joined.findings(asked.joined, asked.name, asked.settings, asked.fabric, new=new)
    if asked.server is None or asked.first:
        return []
    there = asked.server.k3s
    skewed = asked.role == "agent" and there.version and step != "refused"
    skew = k3s_releases.skew(asked.settings.version, there.version, asked.name) if skewed and there.version else []
    return [*_server_findings(asked.servers[0], there, asked.name), *skew]


def plan(asked: NodeRequest) -> Plain:
    """Return the plan of one node: placed by the inventory, then fitted to what was read of it, then written."""
    if wrong := cluster_findings(asked.name, asked.servers, asked.agents, joins=asked.joined is not None):
        return _refused(wrong)
    place, machine = _placed(asked), asked.machine
    head = next(iter(asked.servers), "")
    if machine is None or place.address is None:
        unseen = {"role": asked.role, "first": asked.first, "server": head, "seen": False}
        return _refused(place.findings) if place.findings else unseen
    fit = _fitted(asked, machine, place.address)
    if fit.architecture is None or fit.flannel is None:
        return _refused([*place.findings, *fit.findings])
    settings, spark = asked.settings, asked.name in asked.sparks
    config = k3s_config.node_config(
        settings,
        name=asked.name,
        role=asked.role,
        first=asked.first,
        servers=len(asked.servers),
        address=place.address,
        flannel=fit.flannel,
        url=place.url,
        sans=[place.address, urllib.parse.urlsplit(place.url).hostname or place.address],
        pods=place.pods,
        services=place.services,
        kubelet=asked.guard["kubelet"] if asked.guard and spark else {},
        labels={SPARK: True} if spark else {},
    )
    files, of_files = release_files(settings, asked.release, fit.architecture, asked.name, machine.k3s)
    findings = [*place.findings, *fit.findings, *of_files]
    text, cdi = dump(config), _wants_cdi(settings, machine)
    differs = changed(asked.role, fit.step, bool(files["fetch"]) or cdi, text, machine)
    if asked.joined and differs:
        findings += k3s_joined.under_ranks(asked.joined, asked.name)
    return {
        "role": asked.role,
        "first": asked.first,
        "server": head,
        "seen": True,
        "node_name": asked.name,
        "node_ip": place.address,
        "url": place.url,
        "architecture": fit.architecture,
        "version": settings.version,
        "step": fit.step,
        "config": config,
        **files,
        "archives": fit.archives,
        "cdi": cdi,
        "installed": machine.k3s.version is not None,
        "text": text,
        "signs": list(asked.signs),
        "differs": differs,
        "refusals": [str(finding) for finding in findings if finding.severity == "error"],
        "notes": [str(finding) for finding in findings if finding.severity != "error"],
        "findings": to_plain(findings),
    }


def _refused(findings: t.Sequence[Finding]) -> Plain:
    return {
        "seen": False,
        "refusals": [str(f) for f in findings if f.severity == "error"],
        "notes": [str(f) for f in findings if f.severity != "error"],
        "findings": to_plain(list(findings)),
    }


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _config_keys(releases: t.Mapping[str, Plain], version: str) -> t.Mapping[str, t.Sequence[str]] | None:
    """Return the settings that K3s knows: those of this release, else of the newest known one of its minor."""
    wanted = k3s_releases.release(version)
    fitting = [name for name in releases if k3s_releases.release(name).minor == wanted.minor]
    known = releases.get(version) or (releases[max(fitting, key=k3s_releases.release)] if fitting else None)
    return known["config_keys"] if known else None


def cluster_findings(
    name: str, servers: t.Sequence[str], agents: t.Sequence[str], *, joins: bool = False
) -> list[Finding]:
    """Find what is wrong with the groups. joins: whether the nodes join a cluster that the inventory does not manage."""
    both = sorted(set(servers) & set(agents))
    if name not in servers and name not in agents:
        return [Finding("k3s.no-group", "error", name, "it is neither a server nor an agent.", "Put it in one group.")]
    if not servers and not joins:
        remedy = (
            "Put one Spark, or another machine, in the group of servers (k3s_server_group). To join an existing K3s, "
            "set k3s_url and k3s_token_file."
        )
        return [Finding("k3s.no-server", "error", "inventory", "no host is a K3s server.", remedy)]
    if both:
        message = f"{', '.join(both)}: in both groups. A server runs pods as well."
        return [Finding("k3s.both-groups", "error", "inventory", message, "Take it out of the agents' group.")]
    if servers and len(servers) % 2 == 0:
        message = f"{len(servers)} servers: etcd needs an odd number: an even one tolerates no more failures."
        return [Finding("k3s.even-servers", "error", "inventory", message, "Use one or three.")]
    return []


def _address_findings(
    address: str | None, fabric: t.Mapping[str, t.Any], pods: str, services: str, name: str
) -> list[Finding]:
    if address is None:
        return []
    findings = []
    reserved = {"the pods": pods, "the services": services}
    if fabric.get("address_pool"):
        reserved["the RoCE fabric"] = str(fabric["address_pool"])
    for whose, network in reserved.items():
        if ip.address(address) in ip.network(network):
            message = f"its address {address} is in the network of {whose}, {network}."
            findings.append(
                Finding(
                    "k3s.node-ip", "error", name, message, "Set k3s_node_ip to an address in the management network."
                )
            )
    return findings


def node_findings(
    name: str,
    role: layout.Role,
    settings: Settings,
    machine: Machine,
    release: Plain,
    *,
    etcd: bool,
    mirror: bool,
    laid_mib: int = 0,
) -> list[Finding]:
    """Find what prevents K3s on the node, and what its owner should know. laid_mib: of the archives still to copy there."""
    there = machine.k3s
    findings = []
    if there.version and there.ours is None:
        message = f"K3s {there.version} is installed on it, but this collection did not install it."
        findings.append(
            Finding(
                "k3s.foreign", "error", name, message, "Remove it with its k3s-uninstall.sh, or leave the node out."
            )
        )
    if there.role not in (None, role):
        message = f"it is a K3s {there.role}, but is planned as {role}."
        findings.append(
            Finding("k3s.role", "error", name, message, f"Run with k3s_state=absent for it first: -l {name}.")
        )
    old = str((there.ours or {}).get("data", settings.data_dir))
    if old != settings.data_dir:
        message = f"its data is in {old}, but k3s_data_dir is {settings.data_dir}: it is not moved."
        findings.append(Finding("k3s.data-dir", "error", name, message, f"Set k3s_data_dir to {old}."))
    if not machine.memory_controller:
        message = "its kernel offers no cgroup v2 memory controller, which the kubelet needs."
        findings.append(
            Finding(
                "k3s.cgroup", "error", name, message, "Boot with cgroup v2 and cgroup_enable=memory, and run again."
            )
        )
    ports = PORTS[role] + (ETCD_PORTS if etcd and role == "server" else ()) + (MIRROR_PORTS if mirror else ())
    taken = sorted(set(ports) & set(machine.listening)) if there.version is None else []
    if taken:
        message = f"something already listens on port {', '.join(map(str, taken))}, which K3s needs."
        findings.append(Finding("k3s.port", "error", name, message, "See ss -ltnp there, and stop it."))
    if machine.swap_mib:
        message = f"it has {machine.swap_mib} MiB of swap; K3s runs with it, and pods do not use it."
        findings.append(
            Finding("k3s.swap", "warning", name, message, "Turn it off if weights must not be swapped out.")
        )
    findings += _disk(name, settings, machine, release, laid_mib)
    gpu = machine.gpu
    if settings.gpu is True and gpu is None:
        message = "k3s_gpu is true, but no NVIDIA driver is running on it."
        findings.append(Finding("k3s.gpu", "error", name, message, "See nvidia-smi there, or set k3s_gpu to auto."))
    elif gpu and settings.gpu and not (gpu.toolkit and gpu.runtime):
        message = f"it has a GPU, but no {layout.TOOLKIT if not gpu.toolkit else layout.RUNTIME}: no pod could use it."
        remedy = "Install the package nvidia-container-toolkit, or set k3s_gpu to false."
        findings.append(Finding("k3s.gpu", "error", name, message, remedy))
    return findings


def _server_findings(server: str, there: Installed, name: str) -> list[Finding]:
    """Find why a node cannot join its server, which the limit excludes."""
    remedy = f"Include it in the limit, such as -l {server},{name}"
    if there.active != "active":
        message = "it is the server, the limit excludes it, and K3s is not running on it."
        return [Finding("k3s.server-down", "error", server, message, f"{remedy}.")]
    if not there.token:
        # Such as a server installed before this token existed: agents must not get the server's own.
        message = "it has no agent token yet, only the server token, with which anyone can join as a server."
        return [Finding("k3s.no-agent-token", "error", server, message, f"{remedy}: the role creates one there.")]
    return []


def _disk(name: str, settings: Settings, machine: Machine, release: Plain, archives_mib: int) -> list[Finding]:
    """Compare free room with what will be written, before anything is."""
    need = release.get("disk_mib", DISK_MIB)
    new = machine.k3s.version != settings.version
    images = need["images"] if settings.airgap and machine.k3s.images != settings.version else 0
    wanted = {
        layout.OURS: (need["binary"] if new else 0) + images,
        settings.data_dir: (need["unpacked"] if new else 0) + images + archives_mib * (1 + IMPORTED),
    }
    findings = []
    for path, mib in wanted.items():
        free = machine.free_mib.get(path)
        if free is not None and free < mib:
            message = f"{path} has {free} MiB free, and {mib} MiB are needed: the disk is full."
            findings.append(Finding("k3s.disk", "error", name, message, "Free space there. Nothing was changed."))
    return findings


def _platform(
    name: str, platform: t.Mapping[str, str], known_bad: t.Sequence[Plain], policy: t.Literal["refuse", "warn"]
) -> list[Finding]:
    """Find versions that are known to be bad; with `warn` none of them is an error."""
    found, _environment = platform_findings(platform, known_bad)
    findings = []
    for rule in found:
        severity: t.Literal["error", "warning", "info"] = "warning" if policy == "warn" else rule.severity
        component = rule.id.removeprefix("platform.")
        remedy = f"{rule.remedy} (k3s_known_bad=warn continues anyway.)" if severity == "error" else rule.remedy
        findings.append(Finding(f"k3s.{rule.id}", severity, f"{name}: {component}", rule.message, remedy))
    return findings


def _wants_cdi(settings: Settings, machine: Machine) -> bool:
    return bool(settings.gpu and machine.gpu and machine.gpu.toolkit and not machine.gpu.cdi)


def release_files(
    settings: Settings, release: Plain, architecture: str, name: str, installed: Installed
) -> tuple[Plain, list[Finding]]:
    """Return the files of the release that the node needs, and where each comes from."""
    binary = "k3s" if architecture == "amd64" else f"k3s-{architecture}"
    sums = f"sha256sum-{architecture}.txt"
    images = f"k3s-airgap-images-{architecture}.tar.zst"
    sha256 = settings.checksums.get(architecture) or release.get("sha256", {}).get(architecture)
    stale = installed.version != settings.version or bool(sha256 and installed.sha256 != sha256)
    laid = settings.airgap and installed.images != settings.version
    # For the archive of images only the release's own list has the checksum.
    needed = (
        ([binary] if stale else []) + ([sums] if laid or (stale and not sha256) else []) + ([images] if laid else [])
    )
    is_url = "://" in settings.source
    quoted = urllib.parse.quote(settings.version, safe="") if is_url else settings.version
    place = f"{settings.source.rstrip('/')}/{quoted}"
    missing = [] if settings.source_files is None else [file for file in needed if file not in settings.source_files]
    findings = []
    for file in missing:
        what = {images: "the archive of images", sums: "the release's list of checksums"}.get(file, "the binary")
        message = f"{what} is missing: {place}/{file} (k3s_source)."
        remedy = f"Put it there from the release {settings.version}."
        if file == sums and not laid:
            remedy += f" Or give its SHA-256: k3s_checksums.{architecture}."
        findings.append(Finding("k3s.source", "error", name, message, remedy))
    return {
        "file": binary,
        "sha256": sha256,
        "sums": sums if laid or not sha256 else None,
        "images": images if settings.airgap else None,
        "fetch": [{"name": file, "from": f"{place}/{file}", "url": is_url} for file in (needed if not missing else [])],
    }, findings


def dump(config: Plain) -> str:
    """Return `config.yaml` as text, with sorted keys, so that a later run writes the same bytes."""
    # Ansible's own strings and numbers are subclasses, which YAML libraries refuse to write.
    plain = json.loads(json.dumps(config))
    head = "# Written by the Ansible role dgxspark.cluster.k3s; its next run undoes changes by hand.\n"
    return head + yaml.safe_dump(plain, default_flow_style=False, sort_keys=True, width=1000)


def changed(role: layout.Role, step: k3s_releases.Step, fetch: bool, text: str, machine: Machine) -> bool:
    """Whether the node differs from its plan, judged on the controller by the digests that were read on the node."""
    there = machine.k3s
    if step != "keep" or fetch:
        return True
    wanted = {layout.CONFIG: (text, "0600")} | {path: (fixed, "0644") for path, fixed in layout.fixed(role).items()}
    seen = {state.path: (state.sha256, state.mode) for state in there.files}
    same = all(
        seen.get(path) == (hashlib.sha256(content.encode()).hexdigest(), mode)
        for path, (content, mode) in wanted.items()
    )
    running = there.active == "active" and there.enabled == "enabled"
    return not (same and running and there.token and there.registries)


def turns(plans: t.Mapping[str, Plain], order: t.Sequence[str]) -> list[list[str]]:
    """Return the order of changes: servers one by one, then all new agents at once, then the other agents one by one.

    plans: by host, with the key `differs`; order: servers, then agents.
    """
    due = [host for host in order if plans.get(host, {}).get("differs")]
    servers = [host for host in due if plans[host]["role"] == "server"]
    new = [host for host in due if plans[host]["role"] == "agent" and not plans[host]["installed"]]
    others = [host for host in due if host not in servers and host not in new]
    return [[host] for host in servers] + ([new] if new else []) + [[host] for host in others]
