from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import bench, status
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl import measured
from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs

Plain = dict[str, t.Any]
JOB = {"image": kube_inputs.PINNED, "program": "print()", "arguments": ["--max-bytes", "8192"], "timeout_s": 60}


def made(count: int = 4, topology: str = "switch", job: Plain | None = None, **kubernetes: t.Any) -> Plain:
    fabric = kube_inputs.fabric(count, topology=topology)
    return bench.bench({host: {"NCCL_NET": "IB"} for host in fabric}, fabric, {**JOB, **(job or {})}, kubernetes)


def environment(pod: Plain) -> dict[str, str]:
    return {each["name"]: each["value"] for each in pod["spec"]["containers"][0]["env"]}


def addresses(pod: Plain) -> list[str]:
    asked = json.loads(pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"])
    return [address for network in asked for address in network["ips"]]


def test_a_rank_on_each_node_with_its_own_vfs_that_no_model_has() -> None:
    written = made()
    fabric = kube_inputs.fabric(4)
    serving = {
        vf["address"] for host in fabric.values() for f in host["functions"] for vf in f["vfs"] if not vf["index"]
    }
    seen = [address.split("/")[0] for pod in written["ranks"] for address in addresses(pod)]
    assert len(set(seen)) == 8 and not set(seen) & serving
    assert [pod["spec"]["nodeSelector"]["kubernetes.io/hostname"] for pod in written["ranks"]] == list(fabric)
    assert [environment(pod)["RANK"] for pod in written["ranks"]] == ["0", "1", "2", "3"]
    # All rendezvous at rank 0, on a wire that they share with it, and keep the plan's NCCL variables.
    head = addresses(written["ranks"][0])[0].split("/")[0]
    assert {environment(pod)["MASTER_ADDR"] for pod in written["ranks"][1:]} == {head}
    assert {environment(pod)["NCCL_NET"] for pod in written["ranks"]} == {"IB"}


def test_on_a_ring_it_is_met_by_its_name() -> None:
    ring = made(4, "ring")
    across = environment(ring["ranks"][2])["MASTER_ADDR"]
    assert across == "nccl-bench-rank0.nccl-bench.dgx-serving.svc"
    service = next(each for each in ring["common"] if each["kind"] == "Service")
    assert (service["metadata"]["name"], ring["ranks"][0]["spec"]["subdomain"]) == ("nccl-bench", "nccl-bench")
    assert ring["ranks"][0]["spec"]["hostname"] == "nccl-bench-rank0"
    assert service["spec"]["selector"].items() <= ring["ranks"][0]["metadata"]["labels"].items()


@pytest.mark.parametrize("attachment", kube_inputs.ATTACHMENTS)
@pytest.mark.parametrize("rdma", kube_inputs.ACCESSES)
def test_its_objects_are_what_kubernetes_knows(attachment: str, rdma: str) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    written = made(attachment=attachment, rdma=rdma)
    for each in [*written["common"], *written["ranks"]]:
        validate.validate(each, "1.37", strict=True)
    assert all(pod["spec"].get("hostNetwork", False) == (attachment == "host") for pod in written["ranks"])
    assert all(pod["spec"]["restartPolicy"] == "Never" for pod in written["ranks"])


def test_no_served_model_s_service_or_budget_takes_them_in() -> None:
    served = kube_inputs.objects(kube_inputs.plan())
    selectors = [
        each["spec"]["selector"].get("matchLabels", each["spec"]["selector"])
        for each in served
        if each["kind"] in ("Service", "PodDisruptionBudget", "StatefulSet")
    ]
    assert selectors
    for pod in made()["ranks"]:
        assert not [chosen for chosen in selectors if chosen.items() <= pod["metadata"]["labels"].items()]


@pytest.mark.parametrize(
    ("job", "hosts", "said"),
    [
        ({"image": None}, 4, "the NCCL benchmark's image: no image is named"),
        ({"vf_index": 7}, 4, "nccl_vf_index: the fabric plan has no VF 7"),
        ({}, 1, "two hosts are needed"),
        ({"programme": "x"}, 4, "unknown key 'programme'"),
    ],
)
def test_what_cannot_be_run_is_one_error(job: Plain, hosts: int, said: str) -> None:
    fabric = kube_inputs.fabric(4)
    with pytest.raises(CollectionError, match=said.replace("(", r"\(")):
        bench.bench({host: {} for host in list(fabric)[:hosts]}, fabric, {**JOB, **job})


def ended(written: Plain, **phases: str) -> list[Plain]:
    """The pods as the API has them, by their rank's phase: Succeeded by default."""
    pods = []
    for rank, pod in enumerate(written["ranks"]):
        phase = phases.get(f"rank{rank}", "Succeeded")
        code = {"Succeeded": 0, "Failed": 3}.get(phase)
        state = {"running": {}} if code is None else {"terminated": {"exitCode": code}}
        pods.append({**pod, "status": {"phase": phase, "containerStatuses": [{"name": "rank", "state": state}]}})
    return pods


def test_they_are_over_when_all_have_ended_or_one_has_failed() -> None:
    written = made()

    def judged(**phases: str) -> Plain:
        return status.ended(ended(written, **phases), [], 4, written["group"]["plan"])

    assert judged()["state"] == "ready" and judged()["codes"] == {"0": 0, "1": 0, "2": 0, "3": 0}
    assert judged(rank2="Running")["state"] == "waiting"
    failed = judged(rank2="Running", rank3="Failed")
    assert (failed["state"], failed["ready"], failed["codes"]["3"]) == ("ready", [0, 1], 3)
    assert status.ended(ended(written), [], 4, "another plan")["state"] == "waiting"


def test_a_pod_that_no_node_takes_is_the_reason_why_nothing_was_measured() -> None:
    written = made()
    why = "nccl-bench-rank1: it cannot be scheduled: Insufficient nvidia.com/gpu"
    came = bench.done(written, {"failed": True, "msg": why, "codes": {}}, [""] * 4)
    assert "Insufficient nvidia.com/gpu" in measured.measured(came)["reason"]


def test_a_refusal_of_one_rank_is_the_reason_and_a_whole_run_is_evidence() -> None:
    written = made(2)
    short = ["waiting", "rank 1: less than the floor would be left"]
    came = bench.done(written, {"codes": {"1": 3}, "msg": ""}, short)
    assert "less than the floor" in measured.measured(came)["reason"]
    row = {"operation": "all_reduce", "bytes": 1 << 30, "ranks": 2, "calls": 2, "rounds_us": [50000.0]}
    logs = [f"NCCL_BENCH {json.dumps(row)}\nNCCL_BENCH_END {{}}", "done"]
    evidence = measured.measured(bench.done(written, {"codes": {"0": 0, "1": 0}}, logs), {"verdict": "ib"})
    assert evidence["hosts"] == list(kube_inputs.fabric(2))
    assert not evidence["faults"] and "NCCL_BENCH" in evidence["output"]
