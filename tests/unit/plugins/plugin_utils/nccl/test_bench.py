"""What the benchmark's ranks are told, from invented choices."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl.bench import Choices, choices_of, plan, serves

Plain = dict[str, t.Any]
CHOSEN = Choices("/opt/python", ("all_reduce",), 29530, 900, "roce", 4.5)
RANKS = {"b": "192.0.2.2", "a": "192.0.2.1"}
ROLE: Plain = {
    "nccl_bench_python": "/opt/python",
    "nccl_bench_operations": ["all_reduce"],
    "nccl_bench_port": "29530",
    "nccl_bench_timeout": "900",
    "nccl_transport": "roce",
    "nccl_bench_floor_gib": "4.5",
}


def asked(serving: bool = False, **more: t.Any) -> list[str]:
    words: list[str] = plan(dataclasses.replace(CHOSEN, **more), RANKS, serving, "a")["argv"]
    return words


def test_a_process_and_a_pod_are_asked_the_same() -> None:
    made = plan(CHOSEN, RANKS, False, "a")
    words = ["--max-bytes", "2147483648", "--floor-bytes", "4831838208", "--operations", "all_reduce"]
    assert made["argv"] == ["/opt/python", "-", *words]
    logged = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET"}
    assert made["job"] == {
        "arguments": words,
        "environment": logged,
        "port": 29530,
        "timeout_s": 900,
        "vf_index": None,
    }
    meeting = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "192.0.2.2", "MASTER_PORT": "29530"}
    assert made["environment"] == {**meeting, **logged}
    assert plan(CHOSEN, RANKS, False, "c")["environment"] == plan(CHOSEN, {}, False, "c")["environment"] == logged


def test_beside_a_served_model_messages_are_small_unless_the_owner_knows_better() -> None:
    words = asked(True)
    assert (words[3], words[-1]) == ("268435456", "--beside-serving")
    assert "--beside-serving" not in asked(True, beside_serving=False)
    assert asked(beside_serving=True)[3] == "268435456"
    assert asked(True, max_bytes=1024)[3] == asked(max_bytes=1024)[3] == "1024"


@pytest.mark.parametrize(("transport", "expected"), [("roce", "ib"), ("socket", "socket")])
def test_what_is_to_carry_the_traffic_is_what_nccl_is_told(transport: str, expected: str) -> None:
    assert plan(dataclasses.replace(CHOSEN, transport=transport), RANKS, False, "a")["expect"] == expected


def test_only_a_vf_in_a_pod_is_a_sign_of_a_model() -> None:
    def node(state: str) -> Plain:
        return {"functions": [{"vfs": []}, {"vfs": [{}, {"place": None}, {"place": {"state": state}}]}]}

    assert serves(node("pod"))
    assert not any(map(serves, (node("host"), node("stranded"), {}, None)))


def test_the_role_s_variables_are_read_and_the_floor_is_the_hardware_class_s() -> None:
    assert choices_of(ROLE.get, []) == CHOSEN
    null = {**ROLE, "nccl_bench_floor_gib": None}
    assert choices_of(null.get, []).floor_gib == 4
    assert choices_of({**null, "dgxspark_fabric": {"hardware": "lab"}}.get, []).floor_gib == 0.15
    more = {"nccl_vf_index": "1", "nccl_bench_max_bytes": "1024", "nccl_bench_beside_serving": "false"}
    chosen = choices_of({**ROLE, **more}.get, [])
    assert (chosen.vf_index, chosen.max_bytes, chosen.beside_serving) == (1, 1024, False)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"nccl_bench_max_bytes": "2G"}, "nccl_bench_max_bytes: '2G' is not a number"),
        ({"nccl_bench_operations": "all_reduce"}, "operations: a list is needed"),
        ({"nccl_bench_floor_gib": None, "dgxspark_fabric": {"hardware": "none"}}, "none"),
    ],
)
def test_what_is_of_a_wrong_form_is_told(given: Plain, told: str) -> None:
    with pytest.raises(CollectionError, match=told):
        choices_of({**ROLE, **given}.get, [])
