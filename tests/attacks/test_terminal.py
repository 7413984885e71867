"""What is said on the terminal has no control characters, whoever wrote it: a recipe, a model, a server, a node."""

from __future__ import annotations

import ast
import base64
import json
import typing as t

import pytest
from ansible.utils.display import Display

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.terminal import say
from ansible_collections.dgxspark.cluster.tests.attacks.nodes import look
from ansible_collections.dgxspark.cluster.tests.unit.actions import play, run
from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT

ESCAPES = "model\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\r"


def test_lines_of_a_plan_or_a_bench_are_printed_without_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(Display, "display", lambda _self, text, **_more: said.append(text))
    run("show", lines=[ESCAPES, "\ta table"])
    say(f"{ESCAPES}\nnext")
    assert said and all(not set(text) & set("\x1b\x07\x9b\u202e\r") for text in said)
    assert "\n\ta table" in said[0] and said[1].endswith("\nnext")


def test_an_error_of_an_action_is_plain() -> None:
    made = run("nccl_transport", {}, text="", expect="any", parts=[{"\x1b[2J": ESCAPES}])
    assert made["failed"] and "\x1b" not in made["msg"]


def every_text(value: t.Any) -> t.Iterator[str]:
    if isinstance(value, str):
        yield value
    for each in (
        [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    ):
        yield from every_text(each)


# What a node answers instead of a module's result: its own message, warnings, facts, and keys that no module has.
ANSWER = {
    "failed": True, "msg": ESCAPES, "warnings": [ESCAPES], "exception": ESCAPES, "stderr": ESCAPES, "rc": 1, ESCAPES: {"a": [ESCAPES]},
    "changes": [ESCAPES], "roce": {"functions": [{"driver": ESCAPES}]},
}  # fmt: skip
HERE = play({"spark1": {"plans": {"spark1": {"name": "x"}}}}, inventory_hostname="spark1")
GOOD = {key: value for key, value in ANSWER.items() if key != "failed"} | {"rc": 0, "changed": True}
SLURPED = base64.b64encode(json.dumps({"phase": ESCAPES, "file": ESCAPES}).encode()).decode()
# Each action that runs a module, its arguments, and what the node may answer besides a failure.
ASKING: dict[str, tuple[dict[str, t.Any], dict[str, t.Any]]] = {
    "roce_info": ({"device_ids": ["15b3:1021"]}, GOOD),
    "sriov_vf": ({"device_ids": ["15b3:1021"]}, GOOD | {"outcome": ESCAPES}),
    "netplan_vf": ({"state": "absent"}, GOOD | {"outcome": ESCAPES}),
    "kube_memory": ({"needed_gib": 9000.0, "timeout": 0, "device_ids": ["15b3:1021"]}, GOOD),
    "k3s_ready": (
        {"kubectl": ["kubectl"], "plans": "plans", "timeout": 0},
        GOOD | {"stdout": json.dumps({"items": [ESCAPES]})},
    ),
    "k3s_drain": (
        {
            "kubectl": ["kubectl"],
            "state": "drained",
            "names": ["spark1"],
            "selector": "a=b",
            "ranks": [ESCAPES],
            "timeout": 0,
        },
        GOOD | {"stdout": json.dumps({"items": [ESCAPES]})},
    ),
    "node_health": ({}, GOOD),
    "weights_wait": (
        {"jid": "1", "what": "weights", "progress": "/p", "interval": 1},
        GOOD | {"finished": True, "content": SLURPED},
    ),
    "power_samples": ({}, GOOD | {"samples": [[1.0, {ESCAPES: 9.0}]]}),
    "unit_files": ({"name": "x", "state": "absent"}, GOOD),
    "nccl_transport": ({"paths": ["/x"], "expect": "any"}, GOOD | {"log": {ESCAPES: ESCAPES}}),
}


def test_every_action_that_runs_a_module_is_listed_here_and_prints_by_say() -> None:
    found = set()
    for path in sorted((ROOT / "plugins/action").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        found |= {path.stem} if "_execute_module" in text else set()
        assert "ControllerAction" in text and ".display(" not in text, path.name
    assert found == set(ASKING)


@pytest.mark.parametrize("name", ASKING)
def test_what_a_node_answers_to_an_action_is_shown_plain(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments, good = ASKING[name]
    said: list[str] = []
    monkeypatch.setattr(Display, "display", lambda _self, text, **_more: said.append(text))
    for answer in (ANSWER, good):
        monkeypatch.setattr(
            "ansible.plugins.action.ActionBase._execute_module", lambda _self, answer=answer, **_m: dict(answer)
        )
        monkeypatch.setattr("ansible.plugins.action.ActionBase._remote_expand_user", lambda _self, path, **_m: path)
        monkeypatch.setattr("ansible.plugins.action.ActionBase.get_shell_option", lambda _self, *_a, **_m: "/tmp")
        made = run(name, HERE, **arguments)
        for text in [*every_text(made), *said]:
            look(text, name)


def test_what_the_cluster_s_objects_say_is_shown_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names, labels, conditions and events are what ranks and nodes write."""
    pod = {
        "metadata": {"name": ESCAPES, "namespace": ESCAPES, "labels": {"a": ESCAPES}},
        "spec": {"nodeName": ESCAPES, "containers": [{"name": ESCAPES}]},
        "status": {"phase": ESCAPES, "message": ESCAPES, "conditions": [{"type": ESCAPES, "message": ESCAPES}]},
    }
    monkeypatch.setattr(ask, "objects", lambda *_a, **_m: [pod])
    monkeypatch.setattr(ask, "log", lambda *_a, **_m: ESCAPES)
    for name, more in (("kube_running", {"instance": "x", "namespace": "x"}), ("kube_models", {"cluster": {}})):
        for text in every_text(run(name, HERE, **more)):
            look(text, name)


def test_a_module_s_own_message_is_plain() -> None:
    """Modules fail with the text of a CollectionError alone, or with what `lines` has made plain."""
    look(str(CollectionError(f"/etc/netplan/{ESCAPES}: {ESCAPES}")), "error")
    for path in sorted((ROOT / "plugins/modules").glob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "fail_json":
                said = {each.arg: ast.unparse(each.value) for each in call.keywords}["msg"]
                assert said == "str(exc)" or said.startswith(("lines(", "str(CollectionError(", "f'max_lines")), (
                    path.name,
                    said,
                )
