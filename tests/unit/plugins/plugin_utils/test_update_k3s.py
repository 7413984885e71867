"""K3s in an update: who goes first, what is said of the way back, and what a killed run left."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import update, update_k3s
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.update import Begun, Machine

OLD, NEW = "v1.36.4+k3s1", "v1.36.5+k3s1"
ORDER = ["spark1", "spark2", "spark3"]


def planned(**steps: str) -> dict[str, dict[str, t.Any]]:
    return {
        host: {
            "role": "server" if host == "spark1" else "agent", "version": NEW, "installed": step != "install",
            "step": step, "differs": step != "keep",
        }
        for host, step in steps.items()
    }  # fmt: skip


def whole(steps: dict[str, str], canary: str | None = None, begun: dict[str, Begun] | None = None) -> update.Update:
    plans = planned(**steps)
    installed = {host: NEW if step == "keep" else OLD for host, step in steps.items()}
    part = update_k3s.plan(plans, installed, ORDER, canary, begun or {})
    nodes = {host: Machine({}, reboot=True) for host in sorted(plans, reverse=True)}
    return update.plan(nodes, {}, [], [], begun or {}, canary=canary, restarts=False, parts=[part], only_stated=True)


ALL = dict.fromkeys(ORDER, "upgrade")


def test_servers_go_first_whichever_canary_is_wanted_and_nothing_is_restarted() -> None:
    made = whole(ALL, canary="spark3")
    assert [turn.host for turn in made.turns] == ["spark1", "spark3", "spark2"]
    assert not any(turn.restart for turn in made.turns) and made.aim == {"k3s k3s": NEW}
    assert any("spark3 does not go first" in note for note in made.notes)
    assert update.plan_lines(made)[-3] == f"first, alone: spark1 gets K3s {OLD} -> {NEW}"
    server, agent = made.turns[0].back, made.turns[1].back
    assert (
        "restore the backup" in server[0]
        and f"-l spark3 -e k3s_state=absent, then the same with -e k3s_version={OLD}" in agent[0]
    )
    assert any("cannot be taken back" in note for note in made.notes)
    agents = whole({"spark1": "keep", "spark2": "upgrade", "spark3": "upgrade"}, canary="spark3")
    assert [turn.host for turn in agents.turns] == ["spark3", "spark2"] and not agents.notes


def test_what_is_there_is_left_and_what_is_not_installed_is_refused() -> None:
    made = whole(dict.fromkeys(ORDER, "keep"))
    assert not made.turns and not made.refusals
    assert "spark3: K3s is not installed" in whole({**ALL, "spark3": "install"}).refusals[0]


def test_k3s_is_updated_alone_and_where_the_inventory_manages_it() -> None:
    update_k3s.check(["spark1"], [])
    with pytest.raises(CollectionError, match="by itself"):
        update_k3s.check(["spark1"], ["libnccl2"])
    with pytest.raises(CollectionError, match="no K3s server"):
        update_k3s.check([], [])
    assert update_k3s.installed({"a": {"machine": {"k3s": {"version": OLD}}}, "b": {}}) == {"a": OLD, "b": None}


def test_a_killed_run_goes_on_with_the_node_that_it_had_begun() -> None:
    begun = {"spark1": Begun({"k3s k3s": NEW}, {}, parts={"k3s": {"k3s": OLD}})}
    made = whole({**ALL, "spark1": "keep"}, begun=begun)
    first = made.turns[0]
    assert (first.host, first.resumed) == ("spark1", True) and OLD in first.back[0]
    proven = {"spark1": Begun({"k3s k3s": NEW}, {}, proven=True, parts={"k3s": {"k3s": OLD}})}
    assert not whole(dict.fromkeys(ORDER, "keep"), begun=proven).turns
