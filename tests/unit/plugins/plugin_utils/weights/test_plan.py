"""Who downloads, who copies from whom, and what is refused before anything moves."""

from __future__ import annotations

import functools
import typing as t

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.transfer import pace
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.weights.plan import decide, loaded_by, repos
from ansible_collections.dgxspark.cluster.tests.support.weights import GIB, REPO, A, B, Plain, has, nothing
from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs as inputs
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import make, names

WANTED = [{"repo": REPO, "revision": None}]


@functools.cache
def ring(count: int) -> Plain:
    return t.cast(Plain, make(count, {"topology": "ring", "vf_count": 2})["hosts"])


def test_an_instance_that_loads_a_repository_is_named_by_its_engine_s_command() -> None:
    made = inputs.plan("qwen3-vl-8b-instruct-fp8")
    served = [each for each in inputs.objects(made, count=1, attachment="host") if each["kind"] == "ConfigMap"]
    wanted = repos(made)
    (name,) = loaded_by(wanted, served)
    assert name == f"{served[-1]['metadata']['namespace']}/{made['instance']['name']}"
    # another repository whose name starts or ends the same
    (repo,) = (each["repo"] for each in wanted)
    assert loaded_by([{"repo": repo[:-1]}, {"repo": repo.partition("/")[2]}], served) == []
    assert loaded_by(wanted, []) == []


def test_where_all_have_it_nothing_is_to_be_done() -> None:
    made = decide(WANTED, {name: has() for name in names(4)}, inputs.fabric(4))
    assert (made["moves"], made["problems"]) == ([], [])
    assert [(e["fetch"], e["lacking"], e["chain"]) for e in made["repos"]] == [(False, [], {})]


def test_where_nobody_has_it_the_first_fetches_and_the_others_are_a_chain() -> None:
    made = decide(WANTED, {name: nothing() for name in names(4)}, inputs.fabric(4))["repos"][0]
    assert (made["holder"], made["fetch"], made["lacking"]) == ("spark1", True, names(4)[1:])
    links = made["chain"]
    assert {host: link["parent"] and link["parent"][0] for host, link in links.items()} == {
        "spark1": None,
        "spark2": "spark1",
        "spark3": "spark2",
        "spark4": "spark3",
    }
    # Over VFs other than the instance's: its own may be in pods while the old model serves.
    bench = {host: {vf["address"] for f in h["functions"] for vf in f["vfs"] if vf["index"] == 1} for host, h in inputs.fabric(4).items()}  # fmt: skip
    assert all(link["parent"][1] in bench[link["parent"][0]] for link in links.values() if link["parent"])
    assert all(set(link["listen"]) <= bench[host] for host, link in links.items())


def test_who_has_it_hands_it_on_and_who_has_another_commit_lacks_it() -> None:
    seen = {"spark1": nothing(), "spark2": has(B), "spark3": has(A), "spark4": has(A, False, 7)}
    made = decide([{"repo": REPO, "revision": A}], seen, inputs.fabric(4))
    entry = made["repos"][0]
    assert (entry["holder"], entry["fetch"], entry["lacking"]) == ("spark3", False, ["spark1", "spark2", "spark4"])
    assert "spark4: 0.0 GiB of org/model to be copied from spark3" in made["moves"]
    assert any(move.startswith("spark1: 100.0 GiB") for move in made["moves"])


def test_on_a_ring_copies_go_along_the_cables() -> None:
    planned = ring(4)
    seen = {name: nothing() for name in names(4)} | {"spark3": has()}
    links = decide(WANTED, seen, planned)["repos"][0]["chain"]
    subnets = {h: {vf["subnet"] for f in planned[h]["functions"] for vf in f["vfs"]} for h in planned}
    for host, link in links.items():
        if link["parent"]:
            assert subnets[host] & subnets[link["parent"][0]], (host, link)
    assert set(links) == set(names(4))


@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.too_slow])
@given(st.integers(1, 8), st.data())
def test_everyone_who_lacks_it_gets_it_from_one_who_has_it_before(count: int, data: st.DataObject) -> None:
    hosts = names(count)
    whole = data.draw(st.sets(st.sampled_from(hosts)))
    seen = {host: has() if host in whole else nothing() for host in hosts}
    entry = decide(WANTED, seen, inputs.fabric(count) if count in inputs.COUNTS else ring(count))["repos"][0]
    assert entry["fetch"] == (not whole)
    assert set(entry["lacking"]) == set(hosts) - whole - {entry["holder"]}
    for host in entry["lacking"]:
        steps = [host]
        while entry["chain"][steps[-1]]["parent"]:
            parent = entry["chain"][steps[-1]]["parent"][0]
            assert steps[-1] in entry["chain"][parent]["children"]
            steps.append(parent)
            assert len(steps) <= count
        assert steps[-1] in whole | {entry["holder"]}


def test_no_way_and_no_room_are_told_before_anything_moves() -> None:
    seen = {"spark1": has(), "spark2": nothing(free_gib=110)}
    made = decide(WANTED, seen, {}, {"reserve_gib": 20})
    assert "spark2 and spark1 share no link of the fabric" in made["problems"][0]
    assert (
        "spark2: 110.0 GiB are free where weights are kept, but 100.0 GiB are still to come and 20 GiB"
        in made["problems"][1]
    )
    prospect = {REPO: {"revision": A, "total": 600 * GIB, "missing": 590 * GIB}}
    made = decide(WANTED, {name: nothing() for name in names(2)}, inputs.fabric(2), {}, prospect)
    assert [problem.split(":")[0] for problem in made["problems"]] == ["spark1", "spark2"]
    assert "590.0 GiB are still to come" in made["problems"][0] and "600.0 GiB are still to come" in made["problems"][1]


def test_addresses_of_the_owner_s_need_no_fabric() -> None:
    made = decide(WANTED, {"spark1": has(), "spark2": nothing()}, {}, {"addresses": {"spark1": "127.0.0.1"}})
    assert made["problems"] == []
    assert made["repos"][0]["chain"]["spark2"]["parent"] == ["spark1", "127.0.0.1"]
    assert made["repos"][0]["chain"]["spark1"]["listen"] == ["127.0.0.1"]


def test_the_host_that_downloads_can_be_chosen_and_has_to_be_one_of_them() -> None:
    seen = {name: nothing() for name in names(4)}
    assert decide(WANTED, seen, inputs.fabric(4), {"source": "spark3"})["repos"][0]["holder"] == "spark3"
    with pytest.raises(CollectionError, match="model_weights_host: 'other' has no rank"):
        decide(WANTED, seen, inputs.fabric(4), {"source": "other"})


def test_a_plan_names_the_model_and_its_drafter_with_commits() -> None:
    made = launch_plan("gemma-4-26b-a4b-it")
    assert [each["repo"] for each in repos(made)] == [
        "google/gemma-4-26B-A4B-it",
        "google/gemma-4-26B-A4B-it-assistant",
    ]
    assert repos(made, {"google/gemma-4-26B-A4B-it": A})[0]["revision"] == A
    with pytest.raises(CollectionError, match="'main' is not a commit"):
        repos(made, {"google/gemma-4-26B-A4B-it": "main"})
    assert [each["repo"] for each in repos(launch_plan("glm-4.7-nvfp4"))] == ["nvidia/GLM-4.7-NVFP4"]


def test_a_line_of_progress() -> None:
    told = {"phase": "copy", "bytes": GIB, "total": 4 * GIB}
    assert pace.line("spark2", REPO, told) == "spark2: org/model: 1.00 of 4.00 GiB copied (25 %)"
    assert pace.line("spark2", REPO, {}) == ""
    assert "100 %" in pace.line("spark2", REPO, {**told, "bytes": 9 * GIB})


def test_a_node_that_is_slow_to_answer_is_asked_less_often() -> None:
    assert pace.pause(5, 0.4) == 5
    assert pace.pause(5, 10) == 30
    assert pace.pause(5, 160) == 60
    assert pace.pause(120, 160) == 120
