"""The action plugin nccl_transport: text, files, pods and parts in; a report, or one clear failure, out."""

from __future__ import annotations

import pathlib
import tracemalloc
import types
import typing as t

import pytest
from ansible.errors import AnsibleError
from ansible.playbook.task import Task

from ansible_collections.dgxspark.cluster.plugins.action.nccl_transport import ActionModule
from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.evidence import pack
from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.files import expand, read_lines
from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.log import Reader
from ansible_collections.dgxspark.cluster.plugins.module_utils.signatures import Signature
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, from_plain
from ansible_collections.dgxspark.cluster.tests.unit import nccl_logs as made

RANKS = made.build(made.Job(hcas=made.RAILS))


class Action(ActionModule):
    """With stand-ins for the results of other modules: kubernetes.core's in the form that it documents."""

    pods: t.ClassVar[dict[str, str]] = {}
    calls: t.ClassVar[list[tuple[str, dict[str, t.Any]]]] = []

    def _execute_module(self, module_name: str, module_args: dict[str, t.Any], task_vars: t.Any) -> dict[str, t.Any]:  # type: ignore[override,unused-ignore]
        self.calls.append((module_name, module_args))
        if module_name == "kubernetes.core.k8s_info":
            return {"resources": [{"metadata": {"name": name}} for name in self.pods]}
        if module_name == "kubernetes.core.k8s_log":
            text = self.pods[module_args["name"]]
            return {"failed": True, "msg": "no such container"} if text == "broken" else {"log": text}
        try:
            reader = Reader([from_plain(Signature, entry) for entry in module_args["signatures"]])
            for name in expand(module_args["paths"]):
                reader.read(name, read_lines(name))
        except CollectionError as exc:
            return {"failed": True, "msg": str(exc)}
        return {"log": pack(reader.finish())}


def run(host: str = "spark1", **arguments: t.Any) -> dict[str, t.Any]:
    task = Task()
    task.args = arguments
    connection = types.SimpleNamespace(_shell=types.SimpleNamespace(tmpdir=None))
    return dict(Action(task, connection, None, None, None, None).run(task_vars={"inventory_hostname": host}))


def test_text_of_all_ranks_is_proof() -> None:
    result = run(text="\n".join(RANKS[0] + RANKS[1]), world_size=2)
    assert (result["verdict"], result["changed"], result.get("failed")) == ("ib", False, None)


def test_the_task_fails_with_the_cause_where_the_transport_is_not_the_wanted_one() -> None:
    text = "\n".join(line for lines in made.bad()["no-device-in-pod-2.28.9"].logs for line in lines)
    result = run(text=text, world_size=2)
    assert result["failed"]
    assert "'socket', not 'ib'" in result["msg"]
    assert "[nccl.no-device-in-pod]" in result["msg"] and "/dev/infiniband" in result["msg"]
    assert not run(text=text, world_size=2, expect="socket").get("failed")
    assert not run(text=text, world_size=2, expect="any").get("failed")


def test_files_are_read_on_their_host_and_judged_together(tmp_path: pathlib.Path) -> None:
    parts = []
    for rank, lines in enumerate(RANKS):
        (tmp_path / "nccl.log").write_text("\n".join(lines))
        read = run(f"spark{rank + 1}", paths=[str(tmp_path / "*.log")], expect="any", return_log=True)
        assert read["verdict"] == "unknown"
        parts.append(read["log"])
    result = run(parts=parts, world_size=2)
    assert result["verdict"] == "ib"
    assert {rank["source"].split(":")[0] for rank in result["ranks"]} == {"spark1", "spark2"}
    assert "log" not in result


def test_a_text_of_any_size_is_read_in_the_same_memory() -> None:
    """It is in memory once, as Ansible passes it; reading it and looking for known lines takes next to nothing more."""
    filling = ("[2026-11-21 16:05:25 TP0] Decode batch. #running-req: 4" + " ." * 1000 + "\n") * 2_000
    text = "\n".join(RANKS[0] + RANKS[1]) + "\n" + filling
    run(text="\n".join(RANKS[0] + RANKS[1]), world_size=2, return_readings=True)  # loads what is loaded only once
    tracemalloc.start()
    try:
        assert run(text=text, world_size=2, return_readings=True)["verdict"] == "ib"
        assert tracemalloc.get_traced_memory()[1] < len(text) / 3
    finally:
        tracemalloc.stop()


def test_pods_are_found_by_label_and_read_each() -> None:
    Action.pods = {"sglang-0": "\n".join(RANKS[0]), "sglang-1": "\n".join(RANKS[1])}
    Action.calls = []
    pods = {
        "namespace": "models",
        "label_selectors": ["app=sglang"],
        "container": "main",
        "connection": {"context": "lab"},
    }
    assert run(pods=pods, world_size=2, nodes=2)["verdict"] == "ib"
    asked = dict(Action.calls[0][1])
    assert (asked["namespace"], asked["label_selectors"], asked["context"]) == ("models", ["app=sglang"], "lab")
    assert [call[1]["name"] for call in Action.calls[1:]] == ["sglang-0", "sglang-1"]
    assert Action.calls[1][1]["container"] == "main"


def test_known_lines_of_any_component_are_read_in_the_pods_logs_too() -> None:
    oom = "kernel: Out of memory: Killed process 4242 (python3) total-vm:1kB"
    Action.pods = {"rank-0": "\n".join(RANKS[0]), "rank-1": oom}
    pods = {"namespace": "models", "label_selectors": ["app=sglang"]}
    assert "readings" not in run(pods=pods, expect="any")
    result = run(pods=pods, expect="any", return_readings=True)
    found = {reading["name"]: [hit["id"] for hit in reading["hits"]] for reading in result["readings"]}
    assert found["pod rank-1"] == ["kernel.oom-kill"]
    Action.pods = {"rank-0": oom}
    result = run(pods=pods, expect="any", return_readings=True)
    assert result["failed"] and "no NCCL output" in result["msg"]
    assert result["readings"][0]["hits"][0]["id"] == "kernel.oom-kill"


def test_a_pod_without_a_line_of_nccl_is_named_and_no_proof() -> None:
    Action.pods = {"sglang-0": "\n".join(RANKS[0]), "sglang-1": "Loading weights"}
    result = run(pods={"namespace": "models", "label_selectors": ["app=sglang"]}, world_size=2)
    assert result["verdict"] == "unknown"
    assert any("pod sglang-1" in finding["subject"] for finding in result["findings"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "there is no log to read"),
        ({"text": ""}, "no NCCL output"),
        ({"text": "Hello\nworld"}, "no NCCL output"),
        ({"paths": ["/nowhere/nccl.log"]}, "/nowhere/nccl.log: there is no such file"),
        ({"parts": [{"verdict": "ib"}]}, r"parts[0]: this is not what nccl_transport returned"),
    ],
)
def test_what_is_no_log_is_one_clear_error(arguments: dict[str, t.Any], says: str) -> None:
    result = run(**arguments)
    assert result["failed"]
    assert result["msg"].startswith("dgxspark.cluster.nccl_transport: ")
    assert says in result["msg"]


@pytest.mark.parametrize("pods", [{}, {"sglang-0": "broken"}])
def test_pods_that_cannot_be_read_are_one_clear_error(pods: dict[str, str]) -> None:
    Action.pods = pods
    result = run(pods={"namespace": "models", "label_selectors": ["app=sglang"]})
    assert result["failed"]
    assert ("no such container" if pods else "none with app=sglang in namespace models") in result["msg"]


def test_an_unknown_argument_is_refused() -> None:
    with pytest.raises(AnsibleError, match="world"):
        run(text="x", world=2)
