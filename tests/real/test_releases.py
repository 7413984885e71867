"""Real K3s, Multus and SR-IOV device plugin, from their releases, on two lab nodes: bundle.yml fetches them, site.yml installs them.

Needs a machine that reaches GitHub and its registry (reach.py) and has KVM; the nodes themselves reach nothing. IT HAS NOT BEEN RUN
WHERE IT WAS WRITTEN. Not covered: NVIDIA's device plugin, which finds no GPU in a virtual machine, RDMA in pods (soft-RoCE does not
follow a VF into one), and an engine.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import time
import typing as t
from collections.abc import Iterator

import pytest
import yaml
from harness import ROOT, Run, play, sh, wait_for
from kube import SPARKS, address, management, number

pytestmark = pytest.mark.long

NODES = ("spark1", "spark2")
VERSION = yaml.safe_load((ROOT / "roles/k3s/defaults/main.yml").read_text(encoding="utf-8"))["k3s_version"]
API = 6443
PROBE = "vf-probe"


class Site:
    """Two lab nodes and an owner's folder: its inventory, the bundle, the kubeconfig."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.inventory = folder / "hosts.yml"
        own = {
            "dgxspark_fabric": {**SPARKS["dgxspark_fabric"], "management_networks": ["10.0.2.0/24", "10.77.0.0/24"]},
            "dgxspark_bundle": str(folder / "bundle"),
            "k3s_bundle_architectures": ["amd64"],
            "k8s_dgx_bundle_architecture": "amd64",
            "k8s_dgx_weights": "unmanaged",
            "k3s_gpu": False,
            "k3s_kubeconfig": str(folder / "kubeconfig"),
            "k8s_platform_parts": {"nvidia_device_plugin": "unmanaged", "runtime_class": "unmanaged"},
        }
        hosts = {node: {"lab_node": number(node), "k3s_node_ip": address(node)} for node in NODES}
        here = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
        spark = {"children": {"spark_controller": {"hosts": {"controller": here}}, "dgx": {"hosts": hosts}}}
        children: dict[str, t.Any] = {
            "spark": spark,
            "k3s_server": {"hosts": {NODES[0]: {}}},
            "k3s_agent": {"hosts": {NODES[1]: {}}},
        }
        children["dgx"] = {"vars": {**SPARKS, **own}}
        # The controller has to be the first member of its group.
        self.inventory.write_text(yaml.safe_dump({"all": {"children": children}}, sort_keys=False), encoding="utf-8")
        for node in NODES:
            management(node)

    def run(self, playbook: str, *arguments: str) -> Run:
        began = time.monotonic()
        ran = play(playbook, *arguments, limit="spark[1:2]", inventory=self.inventory, timeout=2400)
        print(f"{playbook} {' '.join(arguments)}: {time.monotonic() - began:.0f} s, exit {ran.code}")
        return ran

    def lay(self) -> Run:
        return self.run("site.yml", "--tags", "fabric,k3s,platform")

    def kubectl(self, *words: str) -> str:
        return sh(NODES[0], f"k3s kubectl {' '.join(words)}")

    def listed(self, *words: str) -> list[dict[str, t.Any]]:
        return t.cast(list[dict[str, t.Any]], json.loads(self.kubectl("get", *words, "-o", "json"))["items"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The site before anything is installed. The API is where an owner's machine finds it: at the server's own address, through ssh."""
    made = Site(tmp_path_factory.mktemp("real"))
    cache = os.environ.get("DGXSPARK_LAB_CACHE") or str(pathlib.Path.home() / ".cache" / "dgxspark-lab")
    port = int(os.environ.get("DGXSPARK_LAB_PORT") or 22200) + 1
    way = f"{address(NODES[0])}:{API}"
    known = ["-o", "HostKeyAlias=dgxspark-lab", "-o", f"UserKnownHostsFile={cache}/known_hosts"]
    subprocess.run(["ip", "address", "replace", f"{address(NODES[0])}/32", "dev", "lo"], check=True)
    reach = ["ssh", "-q", "-F", "none", "-N", "-i", f"{cache}/id_lab", *known, "-L", f"{way}:{way}", "-p", str(port)]
    tunnel = subprocess.Popen([*reach, "root@127.0.0.1"], stdin=subprocess.DEVNULL)
    try:
        yield made
        made.run("playbooks/teardown.yml")
    finally:
        tunnel.kill()
        subprocess.run(["ip", "address", "delete", f"{address(NODES[0])}/32", "dev", "lo"], check=False)


def test_a_bundle_of_the_releases_is_fetched(site: Site) -> None:
    fetched = site.run("playbooks/bundle.yml")
    assert fetched.code == 0, fetched.output
    assert (site.folder / "bundle/bundle.json").is_file()


def test_site_lays_them_and_a_second_run_changes_nothing(site: Site) -> None:
    first = site.lay()
    assert first.code == 0, first.output
    again = site.lay()
    assert again.code == 0 and not any(again.changed.values()), again.output
    versions = {node["metadata"]["name"]: node["status"]["nodeInfo"]["kubeletVersion"] for node in site.listed("nodes")}
    assert versions == dict.fromkeys(NODES, VERSION)


def test_the_sr_iov_device_plugin_offers_the_vfs(site: Site) -> None:
    for node in site.listed("nodes"):
        offered = {key: count for key, count in node["status"]["allocatable"].items() if re.search(r"/p0f[01]v0$", key)}
        assert len(offered) == 2 and set(offered.values()) == {"1"}, node["status"]["allocatable"]


def test_multus_gives_a_pod_its_vf_and_takes_it_back(site: Site) -> None:
    (network,) = [each for each in site.listed("net-attach-def", "-A") if each["metadata"]["name"] == "p0f0v0"]
    namespace = network["metadata"]["namespace"]
    resource = network["metadata"]["annotations"]["k8s.v1.cni.cncf.io/resourceName"]
    # From K3s's own archive: nothing is pulled.
    image = sh(NODES[1], "k3s crictl images -o json | grep -o '[^\"]*mirrored-library-busybox:[^\"]*' | head -n 1")
    asked = [{"name": "p0f0v0", "interface": "net1", "ips": ["10.99.0.2/24"]}]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": PROBE,
            "namespace": namespace,
            "annotations": {"k8s.v1.cni.cncf.io/networks": json.dumps(asked)},
        },
        "spec": {
            "nodeName": NODES[1],
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "probe",
                    "image": image,
                    "imagePullPolicy": "Never",
                    "command": ["sleep", "600"],
                    "resources": {"limits": {resource: "1"}, "requests": {resource: "1"}},
                }
            ],
        },
    }
    sh(NODES[0], f"cat >/tmp/pod.json <<'END'\n{json.dumps(pod)}\nEND\nk3s kubectl apply -f /tmp/pod.json")
    of_it = f"-n {namespace} {PROBE}"
    wait_for(lambda: "Running" in site.kubectl(f"get pod {of_it} -o jsonpath={{.status.phase}}"), 180, "the pod")
    inside = site.kubectl(f"exec {of_it} -- ip address show net1")
    assert "10.99.0.2/24" in inside and "mtu 9000" in inside
    driver = site.kubectl(f"exec {of_it} -- readlink /sys/class/net/net1/device/driver")
    assert driver.endswith("/igbvf")
    assert "enp1s0f0v0" not in sh(NODES[1], "ls /sys/class/net")
    site.kubectl(f"delete pod {of_it}")
    wait_for(lambda: "enp1s0f0v0" in sh(NODES[1], "ls /sys/class/net"), 60, "the VF, back on the node")
