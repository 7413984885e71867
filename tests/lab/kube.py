"""K3s on the lab's nodes, with tests/stand_ins/k3s in place of the real one: REAL K3S IS NOT RUN HERE.

The lab's management addresses are the same on every node and lead nowhere, so the cluster's own network uses an address
on each node's first function, in place of the second NIC that a Spark has for it. (A VLAN on it would be cleaner, but QEMU's igb
does not pass VLANs to a function that has VFs.)
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import re
import shlex
import typing as t

import yaml
from harness import NODES, ROOT, Run, play, sh, wait_for

VERSION, NEXT, BAD = "v1.36.4+k3s1", "v1.36.5+k3s1", "v1.36.9+k3s1"
BINARY, SUMS, ARCHIVE = "k3s", "sha256sum-amd64.txt", "k3s-airgap-images-amd64.tar.zst"
UNITS = {"spark1": "k3s", "spark2": "k3s-agent", "spark3": "k3s-agent", "spark4": "k3s-agent"}


def number(node: str) -> int:
    return int(node.removeprefix("spark"))


def address(node: str) -> str:
    return f"10.77.0.{number(node)}"


# The variables of the lab's Sparks.
SPARKS = yaml.safe_load((ROOT / "inventories" / "lab" / "group_vars" / "dgx.yml").read_text(encoding="utf-8"))
FUNCTION, NETPLAN = "enp1s0f0np0", "dgx-p0f0"  # the netdev, and what our netplan file calls it
NETWORK = "/etc/systemd/network"


def management(node: str, given: str = "") -> None:
    """Give the node its address on the cluster's network, or the given one, whether or not netplan configures the function."""
    given = given or address(node)
    address_of_it = f"[Network]\nAddress={given}/24\n"
    files = {
        f"{NETWORK}/90-management.network": f"[Match]\nName={FUNCTION}\n{address_of_it}LinkLocalAddressing=no\n",
        f"{NETWORK}/10-netplan-{NETPLAN}.network.d/management.conf": address_of_it,
    }
    for path, text in files.items():
        sh(node, f"mkdir -p {pathlib.Path(path).parent} && printf %s {shlex.quote(text)} >{path}")
    sh(node, f"networkctl reload && networkctl reconfigure {FUNCTION}")
    wait_for(lambda: given in sh(node, f"ip -br address show {FUNCTION}"), 60, f"{node}: its address")


def release(folder: pathlib.Path, version: str, *, broken: str = "", images: bytes = b"images") -> str:
    """Write a release of the stand-in into a folder; return its digest."""
    place = folder / version
    place.mkdir(parents=True, exist_ok=True)
    known = yaml.safe_load((ROOT / "knowledge" / "k3s" / "releases.yml").read_text(encoding="utf-8"))
    text = (ROOT / "tests" / "stand_ins" / "k3s").read_text(encoding="utf-8") + f"# VERSION {version}\n"
    text += "".join(f"# KEYS {role} {' '.join(keys)}\n" for role, keys in known["common"]["config_keys"].items())
    text += f"# BROKEN {broken}\n" if broken else ""
    (place / BINARY).write_text(text, encoding="utf-8")
    digest = hashlib.sha256(text.encode()).hexdigest()
    sums = f"{digest}  {BINARY}\n{hashlib.sha256(images).hexdigest()}  {ARCHIVE}\n"
    (place / SUMS).write_text(sums, encoding="utf-8")
    (place / ARCHIVE).write_bytes(images)
    return digest


def overlay(folder: pathlib.Path, *shipped: str) -> None:
    """Write to the owner's knowledge how small the stand-in's releases are: a lab node has less disk space than the real ones need."""
    known = yaml.safe_load((ROOT / "knowledge" / "k3s" / "releases.yml").read_text(encoding="utf-8"))
    common = {
        "config_keys": known["common"]["config_keys"],
        "channel": "none",
        "sha256": {},
        "disk_mib": {"binary": 1, "unpacked": 1, "images": 1},
        "source": ["tests/stand_ins/k3s"],
        "verified": "measured",
    }
    entries = [{"id": version, "replaces": version} for version in shipped] + [{"id": BAD}]
    place = folder / "knowledge" / "k3s" / "stand_in.yml"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(yaml.safe_dump({"common": common, "entries": entries}), encoding="utf-8")


class Cluster:
    """The owner's K3s part of the lab's inventory, in a file beside it. images: the release's archive of images.

    server: its name; if it is not one of NODES, it is a machine that is not a Spark.
    """

    def __init__(self, folder: pathlib.Path, images: bytes = b"images", server: str = "spark1") -> None:
        self.server = server
        self.all = tuple(dict.fromkeys([*NODES, server]))
        self.folder, self.releases = folder, folder / "releases"
        self.digest = release(self.releases, VERSION, images=images)
        release(self.releases, NEXT, images=images)
        overlay(folder, VERSION, NEXT)
        self.kubeconfig = folder / "kubeconfig"
        self.of_hosts: dict[str, t.Any] = {}  # variables that override those of the lab's group
        for node in self.all:
            management(node)

    def run(
        self,
        *arguments: str,
        playbook: str = "site.yml",
        limit: str = "spark[1:4]",
        tags: str = "k3s",
        timeout: float = 900,
        **variables: t.Any,
    ) -> Run:
        """Run a playbook; tags: empty for all of it. variables: for all hosts."""
        common = {
            "k3s_source": str(self.releases),
            "k3s_checksums": {"amd64": self.digest},
            "k3s_airgap": True,
            "k3s_start_timeout": 90,
            "dgxspark_knowledge_dirs": [str(self.folder / "knowledge")],
            "k3s_kubeconfig": str(self.kubeconfig),
            **variables,
        }
        hosts = {node: {"k3s_node_ip": address(node), **self.of_hosts} for node in NODES}
        if self.server not in NODES:
            ways = {key: value for key, value in SPARKS.items() if key.startswith(("ansible_", "__"))}
            hosts[self.server] = {"k3s_node_ip": address(self.server), "lab_node": number(self.server), **ways}
        agents = {node: {} for node in self.all if node != self.server}
        groups = {"k3s_server": {"hosts": {self.server: {}}}, "k3s_agent": {"hosts": agents}}
        inventory = {"all": {"hosts": hosts, "vars": common, "children": groups}}
        path = self.folder / "k3s.yml"
        path.write_text(yaml.safe_dump(inventory), encoding="utf-8")
        chosen = ["--tags", tags] if tags else []
        return play(playbook, "-i", str(path), *chosen, *arguments, limit=limit, timeout=timeout)

    def nodes(self) -> dict[str, str]:
        listed = json.loads(sh("spark1", "k3s kubectl get nodes -o json"))["items"]
        return {node["metadata"]["name"]: node["status"]["nodeInfo"]["kubeletVersion"] for node in listed}


def plain(run: Run) -> str:
    return re.sub(r"\s+", " ", run.output)
