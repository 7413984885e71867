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

from ansible_collections.dgxspark.cluster.plugins.action import k3s_ready
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
