"""A site that serves on the lab's nodes, whose guest has real components of Kubernetes (make_guest.py).

Kubelets, containerd, runc, the API server, the scheduler, the controllers, etcd and the CNI plugins are real (Kubernetes 1.20.2;
Debian's); the control plane's processes run beside the virtual machines (control_plane.py). Stand-ins: K3s itself, flannel and
kube-proxy, NVIDIA's device plugin, the engine; Multus and the SR-IOV device plugin where real ones are not given. REAL K3S IS NOT RUN HERE.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import secrets
import subprocess
import threading
import time
import typing as t
from collections.abc import Iterator

import yaml
from harness import NODES, Run, sh
from kube import SPARKS, Cluster, address, number

from ansible_collections.dgxspark.cluster.tests.nodes import cluster, image, lane
from ansible_collections.dgxspark.cluster.tests.nodes.asked import Asked, plain
from ansible_collections.dgxspark.cluster.tests.nodes.lane import ENGINE, PLATFORM_IMAGES, ROOT, Lane
from ansible_collections.dgxspark.cluster.tests.site import control_plane

STAND_IN = f"{cluster.DAEMONS}; {cluster.MADE_UP}, K3s (real K3s not run), flannel, kube-proxy"
ONE, TWO = "scripted-four", "scripted-four-other"
FIFTH = "spark5"
COMPONENTS = "/etc/dgxspark-stand-in/components"
# An archive like a release of the CNI plugins, made from Debian's; the same bytes on every node.
CNI = "/var/tmp/cni-plugins.tgz"
PACK_CNI = (
    "tar -C /usr/lib/cni --sort=name --mtime=@0 --owner=0 --group=0 -c ./host-device ./static ./tuning | gzip -n1"
)
API, KUBELET = 6443, 10250
FABRIC = {
    **SPARKS["dgxspark_fabric"],
    "management_networks": ["10.0.2.0/24", "10.77.0.0/24"],
}
# An emulated node that creates its VFs beside three others may not answer for 15 seconds.
PATIENT = "-o ControlMaster=auto -o ControlPersist=60s -o ServerAliveInterval=10 -o ServerAliveCountMax=9"

PLACES = (
    "/etc/rancher /etc/systemd/system /etc/tmpfiles.d /etc/netplan /etc/sysctl.d /usr/local /var/lib/rancher"
    " /var/lib/dgxspark /var/lib/kubelet /var/lib/cni /run/k3s"
)


def tree(node: str) -> str:
    """Return all files of a node in the places where roles write, and its network namespaces.

    The namespaces' folder itself is left out: any container runtime creates it, and a reboot removes it.
    """
    said = "-printf '%y %m %p %l\\n' 2>/dev/null"
    return sh(node, f"(find {PLACES} {said}; find /run/netns -mindepth 1 {said}) | sort", check=False)


def spelled(token: str) -> str:
    """Return a pattern for grep that finds the token, and not grep itself."""
    return f"'[{token[0]}]{token[1:]}'"


def why_not() -> str:
    """Return why this lab has no real nodes; empty where it has."""
    if reason := lane.why_not():
        return reason
    if sh("spark1", f"test -x {COMPONENTS} && echo there", check=False) != "there":
        return "not run: the lab's guest has no components of Kubernetes (tests/site/make_guest.py)"
    return ""


def has_a_fifth() -> bool:
    """Whether this lab has one machine more than the inventory has Sparks."""
    return sh(FIFTH, "echo here", check=False) == "here"


class Served(Cluster, Asked):
    """Four Sparks, with one of them or another machine as the server, and their owner's settings for the model.

    before: the files of each node before anything was put there. server_has: those of a server elsewhere, before the Sparks join it.
    """

    size = len(NODES)

    def __init__(self, folder: pathlib.Path, server: str = "spark1") -> None:
        built = Lane()
        joined = folder / "images.tar"
        image.join(joined, (built.images / f"{name}.tar" for name in ("pause", "plugin", "sriov", "multus")))
        packed = subprocess.run(["zstd", "--quiet", "--stdout", joined], check=True, capture_output=True).stdout
        super().__init__(folder, packed, server)
        self.of_hosts = {
            "dgxspark_fabric": FABRIC,
            "k8s_platform_components": {"images": PLATFORM_IMAGES, "hca": "virtual", "image_pull": "Never"},
        }
        self.before = {node: tree(node) for node in self.all}
        self.server_has = ""
        self.said = ""
        self.hf_token = "hf_" + secrets.token_hex(16)
        self.engine = built.images / "engine.tar"
        self.program = str(built.bin / "kubectl")
        self._knowledge()
        self.control_plane = control_plane.ControlPlane(folder, built.bin)
        self.tunnels: dict[str, subprocess.Popen[bytes]] = {}
        self.ways: dict[str, threading.Thread] = {}
        self.left = threading.Event()

    @property
    def elsewhere(self) -> bool:
        """Whether the server is a machine that is not a Spark, which the limit leaves out."""
        return self.server not in NODES

    def _knowledge(self) -> None:
        """Write the owner's knowledge: the guest's CNI plugins, with their checksum, and the scripted models."""
        known = yaml.safe_load((ROOT / "knowledge" / "platform" / "components.yml").read_text(encoding="utf-8"))
        entry = next(each for each in known["entries"] if each["id"] == "cni_plugins")
        (digest,) = {sh(node, f"{PACK_CNI} >{CNI}; sha256sum {CNI}").split()[0] for node in NODES}
        entry["files"]["amd64"] = {"url": f"file://{CNI}", "sha256": digest}
        place = self.folder / "knowledge" / "platform" / "stand_in.yml"
        place.parent.mkdir()
        place.write_text(yaml.safe_dump({"entries": [{**entry, "replaces": "cni_plugins"}]}), encoding="utf-8")
        profiles = self.folder / "knowledge" / "model_profiles"
        profiles.symlink_to(ROOT / "tests" / "nodes" / "knowledge" / "model_profiles")

    def run(self, *arguments: str, **choices: t.Any) -> Run:
        """Run site.yml, or another playbook, with all of the owner's settings."""
        given = {
            "k3s_start_timeout": 1200,
            "k8s_dgx_free_gib": dict.fromkeys(NODES, 100),
            "k8s_dgx_memory_check": False,
            "k8s_dgx_image": ENGINE,
            "k3s_image_archives": [{"path": str(self.engine)}],
            "k8s_dgx_image_room_gib": 0,
            "k8s_dgx_disk_reserve_gib": 1,
            "k8s_dgx_weights": "unmanaged",
            "k8s_dgx_hf_token": self.hf_token,
            "k8s_dgx_model_profile": ONE,
            "k8s_dgx_serving": {
                "image_pull": "Never",
                "requests": {"cpu": "500m", "memory": "64Mi"},
                "shm": "16Mi",
                "peers_timeout_s": 420,
                "load_timeout_s": 120,
                "hang_after_s": 120,
                # Beside Ansible, an emulated node is silent for longer than a real one.
                "lost_after_s": 40,
                # This server has no policy/v1.
                "max_unavailable": None,
            },
            "timeout": 5400,
            "tags": "",
        }
        began = time.monotonic()
        ran = super().run(*arguments, **{**given, **choices})
        asked = " ".join([*arguments, *(f"{key}={value}" for key, value in choices.items())]) or "site.yml"
        print(f"{asked}: {time.monotonic() - began:.0f} s, changed={sum(ran.changed.values())}, exit {ran.code}")
        self.said += ran.output
        return ran

    def good(self, *arguments: str, **choices: t.Any) -> int:
        """Run it, which must succeed; return how many tasks changed something."""
        ran = self.run(*arguments, **choices)
        assert ran.code == 0, ran.output
        return sum(ran.changed.values())

    def serve(self, *arguments: str, **choices: t.Any) -> int:
        """Run serve.yml, which must succeed."""
        return self.good(*arguments, playbook="playbooks/serve.yml", **choices)

    def ready(self) -> bool:
        """Whether there is a cluster, and all ranks are ready."""
        return self.kubeconfig.exists() and super().ready()

    def named_within(self, bound_s: int) -> str:
        """Run kube_wait on the current ranks with this timeout; return what it says. It must fail."""
        play = self.wait_play(str(self.kubeconfig), bound_s)
        place = self.folder / "wait.yml"
        place.write_text(yaml.safe_dump(play, sort_keys=False), encoding="utf-8")
        ran = self.run(playbook=str(place))
        assert ran.code != 0, ran.output
        return plain(ran.output)

    # --- reaching it --------------------------------------------------------------------------------------------------

    def reach(self) -> None:
        """Put the nodes' addresses on loopback: kubelets are reached there by ssh, and the API is there, as for an owner's machine."""
        for node in self.all:
            subprocess.run(["ip", "address", "replace", f"{address(node)}/32", "dev", "lo"], check=True)
            self.ways[node] = threading.Thread(target=self._keep_way, args=(node,), daemon=True)
            self.ways[node].start()

    def _keep_way(self, node: str) -> None:
        """Keep a node's ports forwarded, also after it was away."""
        base = int(os.environ.get("DGXSPARK_LAB_PORT") or 22200)
        cache = os.environ.get("DGXSPARK_LAB_CACHE") or str(pathlib.Path.home() / ".cache" / "dgxspark-lab")
        kubelet = f"{address(node)}:{KUBELET}"
        ways = ["-L", f"{kubelet}:{kubelet}", "-R", f"{control_plane.API_AWAY}:{address(self.server)}:{API}"]
        if node == self.server:
            ways += ["-R", f"{control_plane.STARTER_AWAY}:127.0.0.1:{self.control_plane.port}"]
        alive = ["-o", "ServerAliveInterval=20", "-o", "ServerAliveCountMax=3", "-o", "ExitOnForwardFailure=yes"]
        known = ["-o", "HostKeyAlias=dgxspark-lab", "-o", f"UserKnownHostsFile={cache}/known_hosts"]
        port = str(base + number(node))
        command = [
            "ssh",
            "-q",
            "-F",
            "none",
            "-N",
            "-i",
            f"{cache}/id_lab",
            *known,
            *alive,
            *ways,
            "-p",
            port,
            "root@127.0.0.1",
        ]
        while not self.left.is_set():
            self.tunnels[node] = subprocess.Popen(command, stdin=subprocess.DEVNULL)
            self.tunnels[node].wait()
            self.left.wait(2)

    def leave(self) -> None:
        """Undo reach()."""
        self.left.set()
        for node, way in self.ways.items():
            while way.is_alive():  # it may just have started another tunnel
                if node in self.tunnels:
                    self.tunnels[node].kill()
                way.join(1)
        self.control_plane.stop()
        for node in self.all:
            subprocess.run(["ip", "address", "delete", f"{address(node)}/32", "dev", "lo"], check=False)

    def kubectl(self, *arguments: str, check: bool = True) -> str:
        ran = subprocess.run(
            [self.program, "--kubeconfig", str(self.kubeconfig), *arguments],
            check=False,
            capture_output=True,
            text=True,
        )
        assert not check or ran.returncode == 0, f"{arguments}: {ran.stdout}{ran.stderr}"
        return ran.stdout


@contextlib.contextmanager
def standing(folder: pathlib.Path, server: str) -> Iterator[Served]:
    """The site, before anything is on its nodes; torn down at the end. KEEP=1 leaves what is there."""
    print(STAND_IN)
    os.environ["ANSIBLE_SSH_ARGS"] = PATIENT
    made = Served(folder, server)
    made.reach()
    try:
        yield made
        if not os.environ.get("KEEP"):
            made.run(playbook="playbooks/teardown.yml", limit="all")
    finally:
        made.leave()
