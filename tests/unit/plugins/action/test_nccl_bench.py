"""The NCCL benchmark's actions: its pods against a scripted API, and the registered results of its ranks."""

from __future__ import annotations

import json
import types
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask, group
from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs, nccl_logs
from ansible_collections.dgxspark.cluster.tests.unit.actions import play, run

Plain = dict[str, t.Any]
FABRIC = kube_inputs.fabric(2)
HOSTS = list(FABRIC)
ROW = {"operation": "all_reduce", "bytes": 1 << 30, "ranks": 2, "calls": 2, "rounds_us": [50000.0]}
END = f"NCCL_BENCH {json.dumps(ROW)}\nNCCL_BENCH_END {{}}"
LOGS = ["\n".join(lines) for lines in nccl_logs.build(nccl_logs.Job())]
SUCCEEDED = {"phase": "Succeeded", "containerStatuses": [{"name": "rank", "state": {"terminated": {"exitCode": 0}}}]}


class Api:
    """Answers as kubernetes.core does: pods end at once, as scripted, and stay until they are deleted."""

    def __init__(self, **status: Plain) -> None:
        self.status = status
        self.there: dict[str, Plain] = {}
        self.done: list[str] = []
        self.refuses = ""
        self.stays = False

    def k8s(self, _action: t.Any, arguments: Plain, _vars: t.Any) -> Plain:
        objects, absent = arguments["resource_definition"], arguments.get("state") == "absent"
        assert arguments["kubeconfig"] == "/k"
        self.done.append(f"{'delete' if absent else 'apply'} {' '.join(each['kind'] for each in objects)}")
        if self.refuses and not absent:
            return {"failed": True, "msg": self.refuses}
        for each in objects:
            name = each["metadata"]["name"]
            if each["kind"] == "Pod" and not absent:
                rank = f"rank{each['metadata']['labels']['dgxspark.cluster/rank']}"
                self.there.setdefault(name, {**each, "status": self.status.get(rank, SUCCEEDED)})
            elif each["kind"] == "Pod" and not self.stays:
                self.there.pop(name, None)
        return {"result": {"results": [{"result": each, "changed": True} for each in objects]}}

    def objects(
        self, _action: t.Any, kind: tuple[str, str], place: Plain, labels: t.Any, _vars: t.Any, _fields: t.Any = ()
    ) -> list[Plain]:
        if list(labels) == ["app.kubernetes.io/managed-by!=dgxspark.cluster"]:
            return []  # others have put nothing there
        assert place == {"namespace": "dgx-serving", "kubeconfig": "/k"}
        return list(self.there.values()) if kind[1] == "Pod" else []

    def log(self, _action: t.Any, pod: str, asked: Plain, _vars: t.Any) -> str:
        assert (asked["namespace"], asked["container"], asked["kubeconfig"]) == ("dgx-serving", "rank", "/k")
        return f"{pod} said this"


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    made, now = Api(), [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(group, "time", types.SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    for name in ("k8s", "objects", "log"):
        monkeypatch.setattr(ask, name, getattr(made, name))
    return made


def pods(check: bool = False, **job: t.Any) -> Plain:
    asked = {"image": kube_inputs.PINNED, "program": "print()", "timeout_s": 60, **job}
    environments: Plain = {host: {"NCCL_NET": "IB"} for host in HOSTS}
    variables = play({host: {} for host in HOSTS}, dgxspark_plan={"hosts": FABRIC})
    return run("nccl_bench_pods", variables, check=check, environments=environments, job=asked, kubeconfig="/k")


def test_the_ranks_run_after_what_they_need_and_nothing_stays_but_the_namespace(api: Api) -> None:
    made = pods()
    assert not made.get("failed"), made
    assert api.done == [
        "delete Pod Pod ConfigMap Service",
        "apply Namespace ConfigMap Service",
        "apply Pod Pod",
        "delete Pod Pod ConfigMap Service",
    ]
    assert not api.there and "warnings" not in made
    assert list(made["ranks"]) == HOSTS
    assert made["ranks"][HOSTS[1]]["done"] == {"rc": 0, "stdout": "nccl-bench-rank1 said this", "stderr": ""}


def test_pods_of_a_run_that_was_killed_are_no_measurement(api: Api) -> None:
    pods()
    api.there = {f"nccl-bench-rank{rank}": {"metadata": {"name": "old", "labels": {}}, "old": True} for rank in (0, 1)}
    made = pods()
    assert made["ranks"][HOSTS[0]]["done"]["rc"] == 0


def test_a_rank_that_never_ends_is_a_fault_and_goes_too(api: Api) -> None:
    api.status["rank1"] = {"phase": "Running", "containerStatuses": [{"name": "rank", "state": {"running": {}}}]}
    done = pods()["ranks"][HOSTS[1]]["done"]
    assert done["rc"] is None
    assert "nccl-bench is not ended (1 of 2 are) after 60 s." in done["msg"]
    assert not api.there


def test_what_is_refused_fails_with_its_words_and_is_taken_away(api: Api) -> None:
    api.refuses = "pods is forbidden: exceeded quota"
    made = pods()
    assert made["failed"]
    assert made["msg"] == "dgxspark.cluster.nccl_bench_pods: pods is forbidden: exceeded quota"
    assert api.done[-1].startswith("delete Pod Pod")


def test_what_cannot_be_written_down_asks_the_cluster_nothing(api: Api) -> None:
    made = pods(image=None)
    assert made["failed"] and "no image is named" in made["msg"]
    assert not api.done


def test_pods_that_stay_are_a_warning(api: Api) -> None:
    api.stays = True
    made = pods()
    assert made["ranks"][HOSTS[0]]["done"]["rc"] == 0
    assert ["nccl-bench is not gone after 120 s." in said for said in made["warnings"]] == [True]


def test_in_check_mode_no_pod_is_made(api: Api) -> None:
    made = pods(check=True)
    assert set(made["ranks"]) == set(HOSTS)
    assert not api.done


def measured(hostvars: dict[str, Plain], **arguments: t.Any) -> Plain:
    made = run("nccl_measured", play(hostvars), hosts=list(hostvars), **arguments)
    assert not made.get("failed"), made
    return made


def processes(*logs: str, **more: t.Any) -> dict[str, Plain]:
    ready: Plain = {"__nccl_bench_check": {"rc": 0, "changed": False}}
    return {
        f"spark{rank + 1}": {
            **ready,
            "__nccl_bench_started": {"ansible_job_id": f"j{rank}", "changed": False},
            "__nccl_bench_done": {"rc": 0, "stdout": text, "changed": False},
            **more,
        }
        for rank, text in enumerate(logs)
    }


def test_whether_all_can_is_asked_of_what_was_seen_of_each() -> None:
    hosts = processes("", "")
    assert "reason" not in measured(hosts)
    assert "reason" not in measured(
        {host: {"__nccl_bench_check": {"skipped": True, "changed": False}} for host in hosts}
    )
    hosts["spark2"] |= {"__nccl_bench_fault": "the HCA of VF 1 is not known."}
    assert measured(hosts)["reason"] == "spark2: the HCA of VF 1 is not known."
    assert "spark3: no answer" in measured({**processes("", ""), "spark3": {}})["reason"]


def test_the_ranks_logs_prove_what_carried_the_figures() -> None:
    hosts = processes(f"{LOGS[0]}\n{END}", LOGS[1])
    hosts["spark1"] |= {"__nccl_bench_before": {"counters": [1], "changed": False}}
    made = measured(hosts, ended=True)
    assert (made["hosts"], made["transport"]["verdict"], made["faults"]) == (["spark1", "spark2"], "ib", [])
    assert "msg" not in made["transport"] and "NCCL_BENCH_END" in made["output"]
    assert made["counters"] == {"spark1": {"before": [1], "after": []}, "spark2": {"before": [], "after": []}}
    refused = measured(hosts, ended=True, expect="socket")["transport"]["msg"]
    assert refused.startswith("The transport is 'ib', not 'socket'.")


def test_logs_without_nccl_leave_the_transport_unknown_and_say_so() -> None:
    made = measured(processes(END, ""), ended=True)["transport"]
    assert made["verdict"] == "unknown"
    assert "no NCCL output in it" in made["summary"]


def test_a_rank_that_could_not_be_started_is_told_by_its_start() -> None:
    hosts = processes(LOGS[0], LOGS[1])
    hosts["spark2"] |= {
        "__nccl_bench_started": {"msg": "no space left on the device", "changed": False},
        "__nccl_bench_done": {"skipped": True, "changed": False},
    }
    (fault,) = measured(hosts, ended=True)["faults"]
    assert fault["host"] == "spark2" and "no space left on the device" in fault["message"]


def test_pods_are_read_by_host_and_their_failure_is_the_reason() -> None:
    skipped = {"__nccl_bench_check": {"skipped": True, "changed": False}}
    hosts = {"spark1": dict(skipped), "spark2": dict(skipped)}
    ranks = {
        host: {"check": {"rc": 0}, "done": {"rc": 0, "stdout": text}}
        for host, text in zip(hosts, (f"{LOGS[0]}\n{END}", LOGS[1]), strict=True)
    }
    made = measured(hosts, ended=True, pods={"ranks": ranks})
    assert (made["transport"]["verdict"], made["faults"]) == ("ib", [])
    told = measured(hosts, ended=True, pods={"failed": True, "msg": "the Kubernetes API did not answer"})
    assert told["reason"] == ("spark1: the Kubernetes API did not answer; spark2: the Kubernetes API did not answer")
