"""VFs inside network namespaces, as pods have them: live ones are left alone, dead ones are freed when told to.

They are moved as on a cluster: by Debian's CNI plugins, with the configuration of our own attachments. Here the stand-in for Multus
runs the plugins one after the other, and there is no pod.
"""

from __future__ import annotations

import json
import pathlib
import shlex
import typing as t
from collections.abc import Iterator

import pytest
from harness import NODES, ROOT, make_so, play, prove, sh, wait_for

pytestmark = pytest.mark.long

Plain = dict[str, t.Any]
NODE = "spark1"
VFS = {"enp1s0f0v0": "rocep1s0f0v0", "enP2p1s0f0v0": "roceP2p1s0f0v0"}
INSIDE = dict(zip(VFS, ("net1", "net2"), strict=True))
SYSCTLS = {"arp_ignore": "1", "arp_announce": "2", "rp_filter": "2"}
# Runs on the node, beside the stand-in.
RUNNER = """
import json, pathlib, sys
from importlib import machinery, util
loader = machinery.SourceFileLoader("multus", "/root/multus")
multus = util.module_from_spec(util.spec_from_loader("multus", loader))
loader.exec_module(multus)
def check(each):
    # No kubelet asks for CHECK, and Multus asks no plugin. The plugin tuning puts the interface's name for IFNAME at ADD only.
    named = json.loads(json.dumps(each["network"]).replace("IFNAME", each["ifname"]))
    for plugin in multus.plugins(named):
        multus.call("CHECK", each["ifname"], named, plugin, each["runtime"], each["result"])
place = pathlib.Path("/root/delegates.json")
delegates = json.loads(place.read_text())
try:
    if sys.argv[1] == "DEL":
        multus.delete([{"network": {"plugins": []}}, *delegates])  # the first is the cluster's own network
    for each in delegates if sys.argv[1] != "DEL" else ():
        {"ADD": multus.add, "CHECK": check}[sys.argv[1]](each)
except multus.Fault as exc:
    sys.exit(f"{sys.argv[1]}: {exc}")
place.write_text(json.dumps(delegates))
print("done")
"""


def put(path: str, text: str) -> None:
    sh(NODE, f"printf %s {shlex.quote(text)} >{path}")


def cni(command: str) -> str:
    """Run ADD, CHECK or DEL of both attachments; return `done`, or what is wrong."""
    own = "CNI_CONTAINERID=cni-test CNI_NETNS=/run/netns/cni-test CNI_PATH=/usr/lib/cni CNI_ARGS="
    return sh(NODE, f"{own} python3 -B /root/run-cni.py {command} 2>&1", check=False)


def address(node: str, device: str) -> str:
    return sh(node, f"ip -4 -o address show dev {device} | awk '{{print $4}}'")


def delegates(folder: pathlib.Path) -> list[Plain]:
    """Return what a pod on the node is given: the networks of VF 0 of each function, from our attachments and plan."""
    file = folder / "attachments.json"
    run = play("tests/lab/playbooks/attachments.yml", "-e", f"attachments_file={file}")
    assert run.code == 0, run.output
    made = json.loads(file.read_text())
    configurations = {each["metadata"]["name"]: json.loads(each["spec"]["config"]) for each in made["attachments"]}
    found: list[Plain] = []
    for device, function in zip(VFS, made["hosts"][NODE]["functions"], strict=True):
        (vf,) = [each for each in function["vfs"] if each["index"] == 0]
        planned = f"{vf['address']}/{vf['prefix']}"
        assert planned == address(NODE, device)
        network = configurations[f"{function['slot']}v0"]
        pci = sh(NODE, f"basename $(readlink /sys/class/net/{device}/device)")
        network["plugins"][0] |= {
            "deviceID": pci,
            "pciBusID": pci,
        }  # as Multus does from what the device plugin allocated
        found.append({"ifname": INSIDE[device], "network": network, "runtime": {"ips": [planned]}})
    return found


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Move VF 0 of both functions of spark1 into a namespace with a process; recreate their GIDs there."""
    make_so()
    addresses = {device: address(NODE, device) for device in VFS}
    put("/root/multus", (ROOT / "tests" / "stand_ins" / "multus").read_text(encoding="utf-8"))
    put("/root/run-cni.py", RUNNER)
    put("/root/delegates.json", json.dumps(delegates(tmp_path_factory.mktemp("cni"))))
    sh(NODE, "ip netns add cni-test; systemd-run -q --unit=pod ip netns exec cni-test sleep infinity")
    try:
        assert cni("ADD") == "done", cni("DEL")
        for device, hca in VFS.items():
            sh(NODE, f"ip netns exec cni-test rdma link add {hca} type rxe netdev {INSIDE[device]}")
        yield addresses
    finally:
        sh(
            NODE,
            "systemctl stop pod; ip netns delete cni-test 2>/dev/null; rm -f /root/multus /root/run-cni.py /root/delegates.json",
        )


def test_the_attachments_move_a_vf_with_address_mtu_and_arp_settings(serving: dict[str, str]) -> None:
    for device, name in INSIDE.items():
        assert sh(NODE, f"ip -n cni-test -4 -o address show dev {name} | awk '{{print $4}}'") == serving[device]
        assert " mtu 9000 " in sh(NODE, f"ip -n cni-test -o link show dev {name}")
        for key, value in SYSCTLS.items():
            assert sh(NODE, f"ip netns exec cni-test cat /proc/sys/net/ipv4/conf/{name}/{key}") == value
        assert device not in sh(NODE, "ls /sys/class/net").split()
    assert cni("CHECK") == "done"
    sh(NODE, "ip -n cni-test link set net2 mtu 1500")
    assert "mtu" in cni("CHECK").lower()
    sh(NODE, "ip -n cni-test link set net2 mtu 9000")
    assert cni("CHECK") == "done"


def test_a_run_over_a_serving_node_changes_nothing(serving: dict[str, str]) -> None:
    run = make_so()
    assert run.changed == dict.fromkeys(run.changed, 0)
    assert set(NODES) <= set(run.changed)
    for name in INSIDE.values():
        assert sh(NODE, f"ip -n cni-test -br link show {name}"), "the live pod's VF was taken away"
    assert cni("CHECK") == "done"


def test_the_count_is_not_changed_under_a_live_pod(serving: dict[str, str]) -> None:
    refused = play(
        "site.yml",
        "--tags",
        "fabric",
        "-e",
        '{"dgxspark_fabric": {"hardware": "lab", "topology": "switch", "vf_count": 1}}',
    )
    assert refused.code != 0
    assert "cni-test" in refused.output
    assert sh(NODE, "cat /sys/class/net/enp1s0f0np0/device/sriov_numvfs") == "2"


def test_a_vf_that_comes_back_gets_its_settings_by_itself(serving: dict[str, str]) -> None:
    """The plugins leave it down, with MTU 1500 and no address. (The namespace is empty from here on.)"""
    for hca in VFS.values():
        sh(NODE, f"ip netns exec cni-test rdma link delete {hca}")
    assert cni("DEL") == "done"
    for device, hca in VFS.items():
        wait_for(lambda d=device: address(NODE, d) == serving[d], 60, f"address of {device}")
        wait_for(lambda d=device: "mtu 9000" in sh(NODE, f"ip link show {d}"), 30, f"MTU of {device}")
        wanted = serving[device].split("/")[0].split(".")
        mapped = f"0000:0000:0000:0000:0000:ffff:{int(wanted[0]):02x}{int(wanted[1]):02x}:{int(wanted[2]):02x}{int(wanted[3]):02x}"
        wait_for(
            lambda h=hca, m=mapped: (
                m in sh(NODE, f"head -q -n1 /sys/class/infiniband/{h}/ports/1/gids/[0-9]", check=False)
            ),
            60,
            f"GID of {device}",
        )


def test_a_vf_of_a_dead_namespace_is_named_and_freed_on_request(report: pathlib.Path) -> None:
    make_so()
    sh(NODE, "ip netns add cni-dead; ip link set enp1s0f0v0 netns cni-dead")
    proof = prove(report, "spark[1:2]")
    assert proof.verdict == "failed"
    assert "stranded" in proof.causes and "spark1 p0f0v0" in proof.causes
    assert proof.told_on_the_page()
    refused = play("site.yml", "--tags", "fabric")
    assert refused.code != 0
    assert "cni-dead" in refused.output
    assert "sriov_roce_reset_stranded" in refused.output
    freed = play("site.yml", "--tags", "fabric", "-e", "sriov_roce_reset_stranded=true")
    assert freed.code == 0, freed.output
    assert address(NODE, "enp1s0f0v0").startswith("10.100.")
    assert "cni-dead" not in sh(NODE, "ls /run/netns 2>/dev/null; true")
