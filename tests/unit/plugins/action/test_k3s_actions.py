"""The actions of role k3s: its variables and the inventory in, the plan, the order and the cluster's answer out."""

from __future__ import annotations

import json
import pathlib
import types
import typing as t

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from ansible_collections.dgxspark.cluster.plugins.action import k3s_drain, k3s_ready
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction
from ansible_collections.dgxspark.cluster.tests.support.k3s_machine import machine
from ansible_collections.dgxspark.cluster.tests.support.k3s_nodes import FIRST, PLANS, node
from ansible_collections.dgxspark.cluster.tests.unit.actions import play, run

ROLE = pathlib.Path(__file__).resolve().parents[4] / "roles" / "k3s"
DEFAULTS = ROLE / "defaults" / "main.yml"
Plain = dict[str, t.Any]


def variables(host: str, **more: t.Any) -> Plain:
    """Return the variables of a task of the role; defaults that are templates have their values for two nodes."""
    role = {key: value for key, value in yaml.safe_load(DEFAULTS.read_text("utf-8")).items() if "{{" not in str(value)}
    role |= {"k3s_embedded_registry": "true", "k3s_airgap": False, "k3s_image_archives": []}
    groups = {"k3s_server": ["spark1"], "k3s_agent": ["spark2"], "dgx": ["spark1", "spark2"]}
    hostvars = {f"spark{n}": {"ansible_host": f"192.0.2.1{n}"} for n in (1, 2)}
    return {
        **play(hostvars, groups=groups, ansible_play_hosts=list(hostvars)),
        **role,
        "inventory_hostname": host,
        **more,
    }


def test_a_plan_is_made_of_the_role_s_variables(tmp_path: pathlib.Path) -> None:
    made = run("k3s_plan", variables("spark2", k3s_source="https://mirror.example/k3s"), machine=machine("192.0.2.12"))
    assert (made["role"], made["changed"], made["differs"]) == ("agent", False, True)
    assert made["fetch"][0]["from"].startswith("https://mirror.example/k3s/")
    # A folder is read at once, and what is missing is reported before anything is done.
    made = run("k3s_plan", variables("spark1", k3s_source=str(tmp_path)), machine=machine("192.0.2.11"))
    assert made["failed"] and str(tmp_path) in made["msg"]
    made = run("k3s_plan", variables("spark1", k3s_source=str(tmp_path), k3s_known_bad="perhaps"))
    assert made["msg"].startswith("dgxspark.cluster.k3s_plan: k3s_known_bad")


def test_servers_are_first_in_the_order() -> None:
    given = variables("spark1")
    for host, role in (("spark2", "agent"), ("spark1", "server")):
        given["hostvars"][host]["plan"] = {"differs": True, "role": role, "installed": True}
    assert run("k3s_turns", given, plans="plan")["turns"] == [["spark1"], ["spark2"]]
    given["hostvars"]["spark1"]["plan"] = {"skipped": True}
    assert run("k3s_turns", given, plans="plan")["turns"] == [["spark2"]]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"rc": 0, "stdout": json.dumps({"items": [FIRST, node("spark2")]})}, ""),
        ({"rc": 0, "stdout": json.dumps({"items": [FIRST]})}, "spark2: the cluster has no node spark2."),
        ({"rc": 1, "stderr": "connection refused"}, "its API does not answer: connection refused"),
    ],
)
def test_the_cluster_is_asked_until_the_time_is_over(answer: Plain, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(
        k3s_ready,
        "time",
        types.SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds)),
    )
    asked: list[t.Any] = []

    def execute(_self: t.Any, *, module_name: str, module_args: Plain, task_vars: Plain) -> Plain:
        asked.append((module_name, module_args["argv"]))
        return answer

    monkeypatch.setattr(k3s_ready.ActionModule, "_execute_module", execute)
    seen = play({host: {"plan": plan} for host, plan in PLANS.items()})
    made = run("k3s_ready", seen, plans="plan", timeout=10)
    assert (made.get("failed", False), told in made.get("msg", "")) == (bool(told), True)
    assert asked[0] == ("ansible.builtin.command", ["/usr/local/bin/k3s", "kubectl", "get", "nodes", "--output=json"])
    assert len(asked) == (7 if told else 1)
    assert run("k3s_ready", seen, check=True, plans="plan")["skipped"]


@pytest.mark.parametrize(
    ("own", "of_hosts", "seconds"),
    [
        ([], [None, None], 60),
        ([], [[], None], 60),
        (["images.tar"], [None, None], 1800),  # a role's default is no host's variable
        ([], [None, ["images.tar"]], 1800),  # another host's alone, which is not the one that asks
        (["images.tar"], [["images.tar"], []], 1800),
    ],
)
def test_nodes_that_import_archives_have_the_time_of_an_import_to_become_ready(
    own: list[str], of_hosts: list[list[str] | None], seconds: int
) -> None:
    (task,) = (
        each
        for each in yaml.safe_load((ROLE / "tasks" / "verify.yml").read_text("utf-8"))
        if "dgxspark.cluster.k3s_ready" in each
    )
    names = [f"spark{number}" for number in range(1, len(of_hosts) + 1)]
    known: Plain = {
        "ansible_play_hosts_all": names,
        "hostvars": {
            name: {} if archives is None else {"k3s_image_archives": archives}
            for name, archives in zip(names, of_hosts, strict=True)
        },
        "k3s_image_archives": own,
        "k3s_import_timeout": yaml.safe_load(DEFAULTS.read_text("utf-8"))["k3s_import_timeout"],
        **{name: trust_as_template(text) for name, text in task["vars"].items()},
    }
    timeout = trust_as_template(task["dgxspark.cluster.k3s_ready"]["timeout"])
    assert int(Templar(DataLoader(), variables=known).template(timeout)) == seconds


class Kubectl:
    """A cluster's nodes, as `kubectl` shows and changes them. deaf: how many commands fail first; stubborn: no rank goes."""

    def __init__(self, nodes: dict[str, Plain], deaf: int = 0, stubborn: bool = False) -> None:
        self.nodes, self.deaf, self.stubborn = nodes, deaf, stubborn
        self.said: list[str] = []

    def __call__(self, **named: t.Any) -> Plain:
        words = named["module_args"]["argv"][2:]
        self.said.append(" ".join(words[:2]))
        if self.deaf:
            self.deaf -= 1
            return {"rc": 1, "stderr": "connection refused"}
        if words[0] == "patch":
            patch, there = json.loads(words[-1].partition("=")[2]), self.nodes[words[2]]
            there["spec"] = {"unschedulable": patch["spec"]["unschedulable"]}
            notes = {**there["metadata"].get("annotations", {}), **patch["metadata"]["annotations"]}
            there["metadata"]["annotations"] = {key: value for key, value in notes.items() if value is not None}
        if words[0] == "drain" and self.stubborn:
            return {"rc": 1, "stderr": "global timeout reached"}
        return {"rc": 0, "stdout": json.dumps({"items": list(self.nodes.values())}) if words[0] == "get" else ""}

    @property
    def closed(self) -> list[str]:
        return [name for name, node in self.nodes.items() if (node.get("spec") or {}).get("unschedulable")]


def spark(name: str, *, cordoned: bool = False, mark: bool = False) -> Plain:
    notes = {"dgxspark.cluster/drained": "x"} if mark else {}
    return {"metadata": {"name": name, "annotations": notes}, "spec": {"unschedulable": cordoned}}


def drain(cluster: Kubectl, monkeypatch: pytest.MonkeyPatch, **arguments: t.Any) -> Plain:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(k3s_drain, "time", types.SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    monkeypatch.setattr(ControllerAction, "_execute_module", cluster)
    made: Plain = run("k3s_drain", play({"spark1": {}, "spark2": {}}), **arguments)
    return made


DRAIN = {"state": "drained", "names": ["spark2"], "selector": "rank", "ranks": ["pod/rank-1"]}
RETURN = {"state": "returned", "names": ["spark1", "spark2"]}


@pytest.mark.parametrize("cut_off", [True, False])
def test_a_node_that_a_run_has_drained_is_given_back_by_that_run_or_a_later_one(
    cut_off: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Kubectl({"spark1": spark("spark1"), "spark2": spark("spark2")}, deaf=0)
    assert drain(cluster, monkeypatch, **DRAIN)["nodes"] == ["spark2"]
    assert cluster.closed == ["spark2"]
    cluster.deaf = 0 if cut_off else 3  # the server restarts
    made = drain(cluster, monkeypatch, **RETURN)
    assert (made["changed"], made["nodes"], cluster.closed) == (True, ["spark2"], [])
    made = drain(cluster, monkeypatch, **RETURN)
    assert (made["changed"], made["nodes"]) == (False, [])


@pytest.mark.parametrize("stubborn", [True, False])
def test_an_owner_s_own_cordon_stays(stubborn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Kubectl({"spark1": spark("spark1"), "spark2": spark("spark2", cordoned=True)}, stubborn=stubborn)
    made = drain(cluster, monkeypatch, **DRAIN)
    assert bool(made.get("failed")) is stubborn
    drain(cluster, monkeypatch, **RETURN)
    assert cluster.closed == ["spark2"]


def test_ranks_that_do_not_go_are_named_and_the_node_is_open_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Kubectl({"spark2": spark("spark2")}, stubborn=True)
    made = drain(cluster, monkeypatch, **DRAIN)
    assert made["failed"] and cluster.closed == []
    for words in (
        "spark2 runs ranks (pod/rank-1)",
        "global timeout reached",
        "Nothing was changed",
        "k8s_dgx_state=absent",
    ):
        assert words in made["msg"]


def test_a_node_that_cannot_be_given_back_is_named_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Kubectl({"spark2": spark("spark2", cordoned=True, mark=True)}, deaf=1000)
    made = drain(cluster, monkeypatch, state="returned", names=["spark2"])
    assert made["failed"]
    for words in (
        "spark2: a run has drained it",
        "connection refused",
        "stays cordoned",
        "`k3s kubectl uncordon spark2`",
    ):
        assert words in made["msg"]
