from __future__ import annotations

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    FabricError,
    PlannedFunction,
    PlannedHost,
    PlannedVf,
    to_plain,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl.environment import Options, environment
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import nccl_env


def host(number: int, hca: bool = True) -> PlannedHost:
    functions = []
    for function, (netdev, name) in enumerate((("enp1s0f0", "rocep1s0f0"), ("enP2p1s0f0", "roceP2p1s0f0"))):
        vfs = tuple(
            PlannedVf(
                index=index,
                purpose="serving",
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
    assert environment(TWO, Options(gid_index=3))["spark2"]["NCCL_IB_GID_INDEX"] == "3"


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
    with pytest.raises(FabricError, match="spark2: the HCA of VF 0"):
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
    with pytest.raises(FabricError, match=text):
        environment(TWO, options)


def test_known_bad_versions_bring_their_workaround() -> None:
    plain = {h.name: to_plain(h) for h in TWO}
    assert nccl_env(plain, nccl_version="2.30.4")["spark1"]["NCCL_NVLS_ENABLE"] == "0"
    assert "NCCL_NVLS_ENABLE" not in nccl_env(plain, nccl_version="2.29.7")["spark1"]
    with pytest.raises(FabricError, match="spark9 is not in the fabric plan"):
        nccl_env(plain, ["spark9"])
