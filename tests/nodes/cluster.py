"""The site of two real nodes, and what tests ask of its cluster."""

from __future__ import annotations

import json
import pathlib
import time
import typing as t

import yaml

from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.nodes import real
from ansible_collections.dgxspark.cluster.tests.nodes.asked import NAMESPACE, Asked, Plain, plain
from ansible_collections.dgxspark.cluster.tests.nodes.lane import ENGINE, LEASES, PLATFORM_IMAGES, ROOT, Lane

ONE, TWO = "scripted-one", "scripted-two"
NODES = {1: "vm1", 2: "vm2"}
VFS = {
    f"dgxspark.cluster/p0f{function}v{index}" for function in (0, 1) for index in (0, 1)
}  # what the plugin's files list
DAEMONS = (
    f"Multus: {real.version('DGXSPARK_REAL_MULTUS')}; SR-IOV device plugin: {real.version('DGXSPARK_REAL_SRIOVDP')}"
)
MADE_UP = "stand-ins: NVIDIA's device plugin, the engine (scripted)"
STAND_IN = f"{DAEMONS}; flannel's CNI plugin: {real.version('DGXSPARK_REAL_FLANNEL')}; {MADE_UP}"


class Site(harness.Site, Asked):
    """Two Sparks that are VMs reached by ssh, their fabric made by role sriov_roce, and the cluster that they are nodes of."""

    size = len(NODES)

    def __init__(self, folder: pathlib.Path, lane: Lane) -> None:
        self.lane = lane
        hosts = {
            f"spark{number}": {
                "ansible_host": "127.0.0.1",
                "ansible_port": 2200 + number,
                "ansible_user": "root",
                "ansible_ssh_private_key_file": str(lane.lab / "id_lab"),
                "ansible_ssh_common_args": "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR",
                "ansible_python_interpreter": "/usr/bin/python3",
                "ansible_pipelining": True,
                "dgxspark_fabric_functions": {"p0f0": {"netdev": "enp1s0"}, "p0f1": {"netdev": "enp2s0"}},
            }
            for number in NODES
        }
        super().__init__(
            folder,
            lane.kubeconfig,
            hosts,
            dgxspark_plan={},
            dgxspark_fabric={
                "hardware": "lab",
                "topology": "direct",
                "cables": [["spark1:0", "spark2:0"]],
                "vf_count": 2,
                "address_pool": "10.100.0.0/16",
                "management_networks": ["10.0.2.0/24", "10.77.0.0/24"],
            },
            # Netplan takes a minute on an emulated processor.
            netplan_vf_rollback_timeout=600,
            netplan_vf_gid_timeout=180,
            dgxspark_knowledge_dirs=[str(ROOT / "tests" / "nodes" / "knowledge")],
            k8s_dgx_node_names={f"spark{number}": name for number, name in NODES.items()},
            k8s_dgx_free_gib={"spark1": 100, "spark2": 100},
            k8s_dgx_image=ENGINE,
            # Debian's are in the image.
            k8s_platform_parts={"cni_plugins": "unmanaged"},
            k8s_platform_components={
                "images": PLATFORM_IMAGES,
                "hca": "virtual",
                "image_pull": "Never",
                "cni_bin_dir": "/usr/lib/cni",
                "cni_conf_dir": "/etc/cni/net.d",
            },
            k8s_dgx_serving={
                "image_pull": "Never",
                "requests": {"cpu": "100m", "memory": "64Mi"},
                "shm": "16Mi",
                "peers_timeout_s": 420,
                "load_timeout_s": 60,
                "hang_after_s": 60,
                # This server has no policy/v1.
                "max_unavailable": None,
            },
        )
        play = harness.playbook()
        made = {"when": "k8s_dgx_state | default('present') == 'present'"}
        play[0]["tasks"][:0] = [
            {"name": "Make the VFs", **self.role("sriov_roce"), **made},
            # As site.yml does; not in every run, since netplan takes a minute on an emulated processor.
            {"name": "Give them their addresses", **self.role("netplan_vf"), "when": "with_addresses | default(false)"},
        ]
        (folder / "nodes.yml").write_text(yaml.safe_dump(play, sort_keys=False), encoding="utf-8")
        self.playbook = "nodes.yml"

    @staticmethod
    def role(name: str) -> Plain:
        """Return the part of a task that includes a role."""
        return {"ansible.builtin.include_role": {"name": f"dgxspark.cluster.{name}"}}

    def kubectl(self, *arguments: str, check: bool = True) -> str:
        return self.lane.run(str(self.lane.bin / "kubectl"), *arguments, check=check)

    def run(self, *options: str, **variables: t.Any) -> tuple[int, str, int]:
        """Run the play, by default for the model that is served."""
        began = time.monotonic()
        done = super().run(*options, **{"k8s_dgx_model_profile": self.served(), **variables})
        asked = " ".join([*options, *(f"{key}={value}" for key, value in variables.items() if key[0] != "_")])
        print(
            f"{self.playbook} ({asked or 'serve'}): {time.monotonic() - began:.0f} s, changed={done[2]}, exit {done[0]}"
        )
        return done

    def served(self) -> str:
        """Return the profile of the model that is served; the first where none is."""
        argv = json.dumps([each.get("data") for each in self.listed("configmaps", "-n", NAMESPACE)])
        return TWO if f"dgxspark/{TWO}" in argv else ONE

    def daemons(self, part: str) -> dict[str, Plain]:
        """Return the pods of a part of the platform, by node."""
        pods = self.listed("pods", "-n", "kube-system", "-l", f"dgxspark.cluster/part={part}")
        return {pod["spec"].get("nodeName", ""): pod for pod in pods}

    def offers(self, name: str) -> set[str]:
        """Return the VFs that a node offers, by its `allocatable`."""
        (node,) = [each for each in self.listed("nodes") if each["metadata"]["name"] == name]
        return {key for key, count in node["status"]["allocatable"].items() if key in VFS and int(count) > 0}

    def leaked(self) -> dict[str, set[str]]:
        """Return by node the addresses of the cluster network that are leased there, but that no pod has."""
        pods = [pod["status"] for pod in self.listed("pods", "--all-namespaces")]
        held = {each["ip"] for status in pods for each in status.get("podIPs", ())}
        taken = {name: self.lane.ssh(node, f"ls {LEASES}", check=False).split() for node, name in NODES.items()}
        return {name: {each for each in found if each[0].isdigit()} - held for name, found in taken.items()}

    def drain(self, host: str, node: str) -> None:
        """Drain a node of its ranks as role k3s does before it changes K3s there, with the lane's kubectl."""
        told = {
            "__k3s_kubectl": [str(self.lane.bin / "kubectl"), f"--kubeconfig={self.lane.kubeconfig}"],
            "__k3s_first": "localhost",
            "__k3s_plan": {"node_name": node},
        }
        self.play(name="dgxspark.cluster.k3s", tasks_from="drain.yml")
        self._other("-l", host, **told)

    def remove(self) -> int:
        """Remove everything of ours; return how many tasks changed something."""
        self.include("remove")
        return self._other()

    def _other(self, *options: str, **variables: t.Any) -> int:
        """Run the other play that was chosen, which must succeed; return how many tasks changed something."""
        self.playbook = "play.yml"
        try:
            return self.good(*options, **variables)
        finally:
            self.playbook = "nodes.yml"

    def named_within(self, bound_s: int) -> str:
        """Run kube_wait on the current ranks with this timeout; return what it says. It must fail."""
        play = self.wait_play(str(self.lane.kubeconfig), bound_s)
        (self.folder / "wait.yml").write_text(yaml.safe_dump(play, sort_keys=False), encoding="utf-8")
        self.playbook = "wait.yml"
        try:
            code, said, _changed = self.run()
        finally:
            self.playbook = "nodes.yml"
        assert code != 0, said
        return plain(said)
