"""The actions nccl_environment and nccl_bench_plan: hosts' facts and the role's variables in, NCCL's variables out."""

from __future__ import annotations

import copy
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Netdev, to_plain
from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs
from ansible_collections.dgxspark.cluster.tests.unit.actions import play, run
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import node

Plain = dict[str, t.Any]
OTHER = (Netdev("docker0", ipv4=("172.17.0.1/16",)), Netdev("enP7s7", ipv4=("192.0.2.1/24",)))


def environment(
    count: int = 2, topology: str = "switch", unseen: bool = False, check: bool = False, **more: t.Any
) -> Plain:
    arguments = {key: more.pop(key) for key in ("attachment", "gids") if key in more}
    hosts = copy.deepcopy(kube_inputs.fabric(count, topology=topology))
    if unseen:
        hosts["spark1"]["functions"][0]["vfs"][1]["hca"] = None
    variables = play(
        {host: {} for host in hosts},
        dgxspark_plan={"hosts": hosts, "topology": topology},
        dgxspark_roce=to_plain(node(other=OTHER)),
        ansible_host="192.0.2.1",
        **{"nccl_transport": "roce", **more},
    )
    return run("nccl_environment", variables, check=check, **arguments)


def test_the_host_s_own_processes_are_told_its_vfs_that_do_not_serve() -> None:
    made = environment(nccl_version="2.30.4", nccl_extra_environment={"NCCL_IB_TC": 106, "NCCL_NVLS_ENABLE": "1"})
    env = made["environment"]
    assert made["seen"] and env["NCCL_NET"] == "IB" and env["NCCL_IB_HCA"].count("v1:1") == 2
    assert (env["NCCL_IB_TC"], env["NCCL_NVLS_ENABLE"]) == (106, "1")
    assert {"TP_SOCKET_IFNAME", "VLLM_HOST_IP"} <= set(env)
    assert environment(attachment="vf")["environment"]["GLOO_SOCKET_IFNAME"] == "net1"


def test_where_cables_part_start_up_takes_the_management_network() -> None:
    assert environment(3, "triangle")["environment"]["NCCL_SOCKET_IFNAME"] == "=enP7s7"
    assert environment(3, "triangle", attachment="vf")["environment"]["NCCL_SOCKET_IFNAME"] == "=eth0"


def test_vfs_that_are_not_there_yet_are_no_fault_in_check_mode_alone() -> None:
    assert environment(unseen=True, check=True)["seen"] is False
    made = environment(unseen=True)
    assert made["failed"] and "is not known. Create the VFs" in made["msg"]
    assert environment(check=True)["environment"]["NCCL_NET"] == "IB"


def test_a_pinned_index_is_proven_by_what_was_read() -> None:
    assert "nothing proves it" in environment(nccl_gid_index=3)["msg"]
    gids = [
        {
            "slot": function["slot"],
            "vf": vf["index"],
            "hca": vf["hca"],
            "port": 1,
            "netdev": vf["netdev"],
            "address": vf["address"],
            "index": 3,
            "place": "host",
        }
        for function in kube_inputs.fabric(2)["spark1"]["functions"]
        for vf in function["vfs"]
    ]
    assert environment(nccl_gid_index="3", gids=gids)["environment"]["NCCL_IB_GID_INDEX"] == "3"


def test_a_host_that_was_not_planned_is_named() -> None:
    made = run("nccl_environment", play({"spark1": {}}))
    assert made["msg"].startswith("dgxspark.cluster.nccl_environment: spark1 is not in the fabric's plan")


ROLE: Plain = {
    "nccl_transport": "socket",
    "nccl_bench_python": "/opt/python",
    "nccl_bench_operations": ["all_reduce"],
    "nccl_bench_port": 29530,
    "nccl_bench_timeout": 900,
}


def test_the_ranks_meet_at_the_first_and_spare_a_model_that_one_of_them_serves() -> None:
    serving = to_plain(node(vfs=1))
    serving["functions"][0]["vfs"][0]["place"] = {"state": "pod", "netns": "/run/netns/cni-1"}
    hosts: dict[str, Plain] = {"spark1": {"dgxspark_roce": to_plain(node(vfs=1))}, "spark2": {"ansible_host": "a.b"}}
    hosts["spark3"] = {"dgxspark_roce": serving}
    variables = play(hosts, **ROLE)
    made = run("nccl_bench_plan", variables, hosts=["spark2", "spark1"])
    assert (made["environment"]["RANK"], made["environment"]["MASTER_ADDR"]) == ("1", "a.b")
    assert (made["expect"], "--beside-serving" in made["argv"]) == ("socket", False)
    assert made["argv"][:6] == ["/opt/python", "-", "--max-bytes", str(2 << 30), "--floor-bytes", str(4 << 30)]
    made = run("nccl_bench_plan", variables, hosts=["spark2", "spark3"])
    assert made["argv"][-1] == "--beside-serving" and "RANK" not in made["environment"]
    failed = run("nccl_bench_plan", play(hosts, **{**ROLE, "nccl_bench_port": "x"}), hosts=list(hosts))
    assert failed["msg"] == "dgxspark.cluster.nccl_bench_plan: nccl_bench_port: 'x' is not a number."
