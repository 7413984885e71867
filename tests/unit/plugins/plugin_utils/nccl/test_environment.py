from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.gids import GidEntry
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    CollectionError,
    PlannedFunction,
    PlannedHost,
    PlannedVf,
    to_plain,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl.environment import (
    Options,
    address,
    environment,
    joined,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.environment import nccl_environment
from ansible_collections.dgxspark.cluster.tests.support.cabled import cabled


def host(number: int, hca: bool = True) -> PlannedHost:
    functions = []
    for function, (netdev, name) in enumerate((("enp1s0f0", "rocep1s0f0"), ("enP2p1s0f0", "roceP2p1s0f0"))):
        vfs = tuple(
            PlannedVf(
                index=index,
                purpose="serving" if index == 0 else "bench",
                mac=f"02:d6:00:0{function}:0{index}:0{number}",
                address=f"10.100.{function * 4 + index}.{number}",
                prefix=24,
                subnet=f"10.100.{function * 4 + index}.0/24",
                mtu=9000,
                netdev=f"{netdev}v{index}",
                hca=f"{name}v{index}" if hca else None,
            )
            for index in range(2)
        )
        functions.append(
            PlannedFunction(
                slot=f"p0f{function}", port=0, function=function, segment="switch", netdev=f"{netdev}np0", pci=None,
                mtu=9000, vfs=vfs,
            )
        )  # fmt: skip
    return PlannedHost(name=f"spark{number}", index=number, detected=hca, functions=tuple(functions))


TWO = [host(1), host(2)]


def test_roce_names_both_functions_exactly_and_fails_closed() -> None:
    env = environment(TWO)["spark1"]
    assert env["NCCL_IB_HCA"] == "=rocep1s0f0v0:1,roceP2p1s0f0v0:1"
    assert env["NCCL_NET"] == "IB"
    assert env["NCCL_CROSS_NIC"] == "0"
    assert env["NCCL_SOCKET_IFNAME"] == "=net1"
    assert env["GLOO_SOCKET_IFNAME"] == env["TP_SOCKET_IFNAME"] == "net1"


def test_no_variable_is_empty_and_no_gid_index_is_pinned_by_itself() -> None:
    env = environment(TWO)["spark2"]
    assert all(env.values())
    assert "NCCL_IB_GID_INDEX" not in env


def gids(numbers: dict[str, int]) -> dict[str, tuple[GidEntry, ...]]:
    """The result of roce_gid, with one index per host."""
    return {
        one.name: tuple(
            GidEntry(f.slot, vf.index, str(vf.hca), 1, str(vf.netdev), vf.address, numbers[one.name], "host")
            for f in one.functions
            for vf in f.vfs
        )
        for one in TWO
        if one.name in numbers
    }


def test_a_gid_index_is_pinned_where_it_is_proven_and_nowhere_else() -> None:
    pinned = Options(gid_index=3, gids=gids({"spark1": 3, "spark2": 3}))
    assert environment(TWO, pinned)["spark2"]["NCCL_IB_GID_INDEX"] == "3"
    with pytest.raises(CollectionError, match="spark1: gid_index: 3 is pinned, but nothing proves it"):
        environment(TWO, Options(gid_index=3))
    drifted = Options(gid_index=3, gids=gids({"spark1": 3, "spark2": 4}))
    with pytest.raises(CollectionError, match=r"spark2: gid_index: 3 .* rocep1s0f0v0 has 10\.100\.0\.2 at 4"):
        environment(TWO, drifted)
    assert environment(TWO, drifted, only=["spark1"])["spark1"]["NCCL_IB_GID_INDEX"] == "3"
    first, second, *rest = [entry for entry in gids({"spark1": 3})["spark1"] if entry.hca.endswith("v0")]
    apart = Options(gid_index=3, gids={"spark1": (first, dataclasses.replace(second, index=5), *rest)})
    with pytest.raises(CollectionError, match=r"spark1: gid_index: 3 .* roceP2p1s0f0v0 has 10\.100\.4\.1 at 5"):
        environment(TWO, apart, only=["spark1"])


@pytest.mark.parametrize("options", [Options(bootstrap=""), Options(debug=""), Options(head="")])
def test_an_empty_choice_is_refused(options: Options) -> None:
    with pytest.raises(CollectionError, match="an empty string is not a valid value"):
        environment(TWO, options)


def test_an_empty_workaround_is_refused() -> None:
    with pytest.raises(CollectionError, match="spark1: NCCL_ALGO would be empty"):
        environment(TWO, workarounds={"NCCL_ALGO": ""})


def test_what_was_measured_of_merging_is_passed_on() -> None:
    assert "NCCL_IB_MERGE_NICS" not in environment(TWO)["spark1"]
    assert environment(TWO, Options(merge_nics=True))["spark1"]["NCCL_IB_MERGE_NICS"] == "1"
    assert environment(TWO, Options(merge_nics=False))["spark1"]["NCCL_IB_MERGE_NICS"] == "0"


def test_without_an_index_the_vf_is_one_that_no_pod_takes() -> None:
    env = environment(TWO, Options(vf_index=None, attachment="host"))["spark1"]
    assert env["NCCL_IB_HCA"] == "=rocep1s0f0v1:1,roceP2p1s0f0v1:1"
    serving = [
        dataclasses.replace(h, functions=tuple(dataclasses.replace(f, vfs=f.vfs[:1]) for f in h.functions)) for h in TWO
    ]
    assert environment(serving, Options(vf_index=None))["spark1"]["NCCL_IB_HCA"] == "=rocep1s0f0v0:1,roceP2p1s0f0v0:1"


def test_one_host_of_many_needs_no_names_of_the_others() -> None:
    env = environment([host(1), host(2, hca=False)], only=["spark1"])
    assert list(env) == ["spark1"]
    assert env["spark1"]["NCCL_NET"] == "IB"


def test_what_runs_on_a_host_gets_the_variables_of_every_engine() -> None:
    env = environment(TWO, Options(attachment="host"), engine="any")["spark1"]
    assert env["TP_SOCKET_IFNAME"] == "enp1s0f0v0"
    assert env["VLLM_HOST_IP"] == "10.100.0.1"


@pytest.mark.parametrize(("engine", "own"), [("sglang", "SGLANG_HOST_IP"), ("vllm", "VLLM_HOST_IP")])
def test_each_rank_tells_the_others_its_fabric_address(engine: str, own: str) -> None:
    """Without it SGLang's message queue and vLLM's workers tell the address of the default route, such as Wi-Fi's."""
    env = environment(TWO, engine=engine)
    assert [env[name][own] for name in ("spark1", "spark2")] == ["10.100.0.1", "10.100.0.2"]
    assert {"SGLANG_HOST_IP", "VLLM_HOST_IP"} & set(env["spark1"]) == {own}


def test_neighbours_on_cables_are_found_by_subnet() -> None:
    """In a triangle port 1 connects to port 0: pairing ports by equal number would never match."""
    env = environment(cabled("triangle", 3), Options(bootstrap="enP7s7", attachment="host"), engine="any")["spark1"]
    assert env["NCCL_IB_SUBNET_AWARE_ROUTING"] == "1"
    assert env["NCCL_IB_MERGE_NICS"] == "0"
    assert env["NCCL_IB_HCA"].count(":1") == 4
    assert env["NCCL_SOCKET_IFNAME"] == "=enP7s7"
    assert not {"NCCL_CROSS_NIC", "VLLM_HOST_IP", "NCCL_IB_SUBNET_PREFIX_LEN"} & set(env)
    narrow = environment(cabled("triangle", 3, subnet_prefix=28), Options(bootstrap="enP7s7"))["spark1"]
    assert narrow["NCCL_IB_SUBNET_PREFIX_LEN"] == "28"


def test_neighbours_on_cables_cannot_do_what_a_switch_does() -> None:
    three = cabled("triangle", 3)
    with pytest.raises(CollectionError, match=r"spark1: .*Name an interface that does \(bootstrap"):
        environment(three)
    with pytest.raises(CollectionError, match="merge_nics"):
        environment(three, Options(bootstrap="eth0", merge_nics=True))
    with pytest.raises(CollectionError, match=r"\(head\)"):
        address(three, Options(bootstrap="eth0"))
    assert address(three, Options(bootstrap="eth0", head="192.0.2.1")) == "192.0.2.1"


def test_two_of_a_triangle_use_the_cable_between_them() -> None:
    two = cabled("triangle", 3)[:2]
    env = environment(two, Options(attachment="vf"))
    assert env["spark1"]["NCCL_IB_HCA"] == "=roce-p1f0v0:1,roce-p1f1v0:1"
    assert env["spark2"]["NCCL_IB_HCA"] == "=roce-p0f0v0:1,roce-p0f1v0:1"
    assert env["spark1"]["NCCL_CROSS_NIC"] == "0"
    assert address(two, Options()) == two[0].functions[2].vfs[0].address


def test_a_rank_that_no_cable_reaches_is_refused() -> None:
    ring = cabled("ring", 4)
    with pytest.raises(CollectionError, match=r"spark1: no cable leads to another rank \(spark3\)"):
        environment([ring[0], ring[2]], Options(bootstrap="eth0"))


def test_a_ring_of_four_keeps_to_rings() -> None:
    """By itself NCCL takes trees for small messages, and connects hosts that share no cable."""
    assert environment(cabled("ring", 4), Options(bootstrap="eth0"))["spark3"]["NCCL_ALGO"] == "Ring"
    for hosts, options in (
        (cabled("triangle", 3), Options(bootstrap="eth0")),
        (cabled("ring", 4)[:2], Options()),
        (TWO, Options()),
    ):
        assert "NCCL_ALGO" not in environment(hosts, options)["spark1"]


@pytest.mark.parametrize(
    ("ranks", "gap"),
    [((0, 1, 2), "spark3: no cable leads to spark1"), ((0, 2, 1, 3), "spark1: no cable leads to spark3")],
)
def test_ranks_that_are_no_ring_in_their_order_are_refused(ranks: tuple[int, ...], gap: str) -> None:
    ring = cabled("ring", 4)
    chosen = [ring[number] for number in ranks]
    for asked in (environment, joined):
        with pytest.raises(CollectionError, match=f"{gap}.*all hosts of the ring"):
            asked(chosen, Options(bootstrap="eth0"))


def test_two_cables_between_two_are_rails() -> None:
    env = environment(cabled("direct", 2, ports=[0, 1]))["spark1"]
    assert env["NCCL_IB_HCA"].count(":1") == 4
    assert env["NCCL_CROSS_NIC"] == "0"


def test_one_rank_alone_gets_no_network() -> None:
    assert environment(TWO[:1]) == {"spark1": {}}


def test_on_the_host_s_network_the_vf_s_own_name_counts() -> None:
    assert environment(TWO, Options(attachment="host", vf_index=1))["spark1"]["NCCL_SOCKET_IFNAME"] == "=enp1s0f0v1"


def test_each_engine_has_its_own_variable() -> None:
    env = environment(TWO, engine="vllm")
    assert env["spark2"]["VLLM_HOST_IP"] == "10.100.0.2"
    assert "TP_SOCKET_IFNAME" not in env["spark2"]


def test_sockets_are_said_to_be_sockets() -> None:
    env = environment(TWO, Options(transport="socket"))["spark1"]
    assert env["NCCL_NET"] == "Socket"
    assert "NCCL_IB_HCA" not in env


def test_an_hca_that_was_not_seen_is_not_made_up() -> None:
    with pytest.raises(CollectionError, match="spark2: the HCA of VF 0"):
        environment([host(1), host(2, hca=False)])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (Options(vf_index=7), "no VF 7"),
        (Options(transport="tcp"), "transport"),
        (Options(attachment="x"), "attachment"),
    ],
)
def test_what_cannot_be_is_refused(options: Options, text: str) -> None:
    with pytest.raises(CollectionError, match=text):
        environment(TWO, options)


def test_known_bad_versions_bring_their_workaround() -> None:
    plain = {h.name: to_plain(h) for h in TWO}
    assert nccl_environment(plain, nccl_version="2.30.4")["spark1"]["NCCL_NVLS_ENABLE"] == "0"
    assert "NCCL_NVLS_ENABLE" not in nccl_environment(plain, nccl_version="2.29.7")["spark1"]
    with pytest.raises(CollectionError, match="spark9 is not in the fabric plan"):
        nccl_environment(plain, ["spark9"])
