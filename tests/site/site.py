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
import time
import typing as t
from collections.abc import Iterator

import yaml
from harness import NODES, Run, sh
from kube import SPARKS, Cluster, address

from ansible_collections.dgxspark.cluster.tests.nodes import cluster, image, lane
from ansible_collections.dgxspark.cluster.tests.nodes.asked import Asked, plain
from ansible_collections.dgxspark.cluster.tests.nodes.lane import ENGINE, PLATFORM_IMAGES, ROOT, Lane
from ansible_collections.dgxspark.cluster.tests.site.ways import Ways

STAND_IN = f"{cluster.DAEMONS}; {cluster.MADE_UP}, K3s (real K3s not run), flannel, kube-proxy"
ONE, TWO = "scripted-four", "scripted-four-other"
FIFTH = "spark5"
COMPONENTS = "/etc/dgxspark-stand-in/components"
# An archive like a release of the CNI plugins, made from Debian's; the same bytes on every node.
CNI = "/var/tmp/cni-plugins.tgz"
PACK_CNI = (
    "tar -C /usr/lib/cni --sort=name --mtime=@0 --owner=0 --group=0 -c ./host-device ./static ./tuning | gzip -n1"
)
FABRIC = {
    **SPARKS["dgxspark_fabric"],
    "management_networks": ["10.0.2.0/24", "10.77.0.0/24"],
}
# Their kubelets say 1.20.2, not +k3s, which is how K3s's folders are told from the usual ones: they are named.
K3S_CNI = {"cni_bin_dir": "/var/lib/rancher/k3s/data/cni", "cni_conf_dir": "/var/lib/rancher/k3s/agent/etc/cni/net.d"}
COMPONENTS_OF_IT = {"images": PLATFORM_IMAGES, "hca": "virtual", "image_pull": "Never", **K3S_CNI}
# What serving on emulated nodes is told, whatever the model; each with its reason.
EMULATED: dict[str, tuple[t.Any, str]] = {
    "k3s_start_timeout": (1200, "an emulated node takes minutes to start its containers"),
    "k8s_dgx_memory_check": (False, "the nodes have 2 GiB"),
    "k8s_dgx_image": (ENGINE, "a scripted engine in the model's place"),
    "k8s_dgx_image_room_gib": (0, "that image has 50 MB"),
    "k8s_dgx_disk_reserve_gib": (1, "the nodes have small disks"),
    "k8s_dgx_weights": ("unmanaged", "a scripted engine reads none"),
}
SERVING: dict[str, t.Any] = {
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


def images(folder: pathlib.Path) -> bytes:
    """Return the release's archive of images: those of the platform."""
    built, joined = Lane(), folder / "images.tar"
    image.join(joined, (built.images / f"{name}.tar" for name in ("pause", "plugin", "sriov", "multus")))
    return subprocess.run(["zstd", "--quiet", "--stdout", joined], check=True, capture_output=True).stdout


def knowledge(folder: pathlib.Path, nodes: t.Iterable[str]) -> None:
    """Write the guest's CNI plugins, with their checksum, to the owner's knowledge."""
    known = yaml.safe_load((ROOT / "knowledge" / "platform" / "components.yml").read_text(encoding="utf-8"))
    entry = next(each for each in known["entries"] if each["id"] == "cni_plugins")
    (digest,) = {sh(node, f"{PACK_CNI} >{CNI}; sha256sum {CNI}").split()[0] for node in nodes}
    entry["files"]["amd64"] = {"url": f"file://{CNI}", "sha256": digest}
    place = folder / "knowledge" / "platform" / "stand_in.yml"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(yaml.safe_dump({"entries": [{**entry, "replaces": "cni_plugins"}]}), encoding="utf-8")


class Served(Cluster, Asked):
    """Four Sparks, with one of them or another machine as the server, and their owner's settings for the model.

    before: the files of each node before anything was put there. server_has: those of a server elsewhere, before the Sparks join it.
    """

    size = len(NODES)

    def __init__(self, folder: pathlib.Path, server: str = "spark1") -> None:
        built = Lane()
        super().__init__(folder, images(folder), server)
        self.of_hosts = {
            "dgxspark_fabric": FABRIC,
            "k8s_platform_components": COMPONENTS_OF_IT,
        }
        self.before = {node: tree(node) for node in self.all}
        self.server_has = ""
        self.said = ""
        self.hf_token = "hf_" + secrets.token_hex(16)
        self.engine = built.images / "engine.tar"
        self.program = str(built.bin / "kubectl")
        knowledge(folder, NODES)
        (folder / "knowledge" / "model_profiles").symlink_to(ROOT / "tests" / "nodes" / "knowledge" / "model_profiles")
        self.ways = Ways(folder, {node: address(node) for node in self.all}, server)

    @property
    def elsewhere(self) -> bool:
        """Whether the server is a machine that is not a Spark, which the limit leaves out."""
        return self.server not in NODES

    def run(self, *arguments: str, **choices: t.Any) -> Run:
        """Run site.yml, or another playbook, with all of the owner's settings."""
        given = {
            **{key: value for key, (value, _why) in EMULATED.items()},
            "k8s_dgx_free_gib": dict.fromkeys(NODES, 100),
            "k3s_image_archives": [{"path": str(self.engine)}],
            "k8s_dgx_hf_token": self.hf_token,
            "k8s_dgx_model_profile": ONE,
            "k8s_dgx_serving": SERVING,
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
    made.ways.reach()
    try:
        yield made
        if not os.environ.get("KEEP"):
            made.run(playbook="playbooks/teardown.yml", limit="all")
    finally:
        made.ways.leave()
