"""What pods and events mean: one cause, where it is, and what to do. Texts are from real clusters."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.rank import preflight, supervisor
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import status

Plain = dict[str, t.Any]
READY = {"type": "Ready", "status": "True"}
NOT_READY = {"type": "Ready", "status": "False"}


def pod(
    rank: int = 0, *, plan: str = "p1", conditions: list[Plain] | None = None, state: Plain | None = None, **more: t.Any
) -> Plain:
    container = {"name": "rank", "image": "engine:1", "restartCount": more.pop("restarts", 0)}
    container |= {"state": state or {"running": {}}, "ready": True, **more}
    return {
        "metadata": {
            "name": f"serve-default-rank{rank}-0",
            "uid": f"uid-{rank}",
            "labels": {"dgxspark.cluster/rank": str(rank)},
            "annotations": {"dgxspark.cluster/plan": plan},
        },
        "spec": {"nodeName": f"spark{rank + 1}"},
        "status": {"conditions": conditions or [READY], "containerStatuses": [container]},
    }


def event(rank: int, reason: str, message: str, uid: str | None = None) -> Plain:
    about = {"name": f"serve-default-rank{rank}-0", "uid": uid or f"uid-{rank}"}
    return {"involvedObject": about, "reason": reason, "message": message, "lastTimestamp": "2026-11-21T10:00:00Z"}


def creating(rank: int) -> Plain:
    waiting = {"waiting": {"reason": "ContainerCreating"}}
    return pod(rank, conditions=[NOT_READY], state=waiting)


def going(rank: int) -> Plain:
    """A terminating pod whose containers have ended."""
    gone = ended(rank, 0)
    gone["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z"
    return gone


def ended(rank: int, code: int, message: str = "", **more: t.Any) -> Plain:
    finished = {"finishedAt": more.pop("finished", "2026-11-21T10:00:00Z")}
    gone = {"terminated": {"exitCode": code, "message": message, "reason": more.pop("reason", "Error"), **finished}}
    back = {"waiting": {"reason": "CrashLoopBackOff"}}
    return pod(rank, conditions=[NOT_READY], state=back, lastState=gone, **more)


def test_ready_is_the_condition_and_not_the_container() -> None:
    """A node that is lost leaves its pod at 1/1 for ever; only the condition changes."""
    assert status.ready(pod())
    assert not status.ready(pod(conditions=[NOT_READY]))
    leaving = pod()
    leaving["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z"
    assert not status.ready(leaving)


def test_a_group_is_ready_when_all_its_ranks_of_this_plan_are() -> None:
    group = [pod(rank) for rank in range(4)]
    assert status.group(group, [], 4, "p1")["state"] == "ready"
    assert status.group(group[:3], [], 4, "p1")["state"] == "waiting"
    assert status.group([*group[:3], pod(3, plan="p0")], [], 4, "p1")["ready"] == [0, 1, 2]
    assert status.group([*group[:3], pod(3, conditions=[NOT_READY])], [], 4, "p1")["state"] == "waiting"


@pytest.mark.parametrize(
    ("broken", "events", "cause", "final", "said", "remedy"),
    [
        (
            pod(
                1, conditions=[NOT_READY], state={"waiting": {"reason": "ErrImageNeverPull", "message": "not present"}}
            ),
            [],
            "image",
            True,
            "engine:1: not present",
            "k8s_dgx_image",
        ),
        (
            creating(1),
            [event(1, "FailedCreatePodSandBox", 'network-attachment-definitions.k8s.cni.cncf.io "p0f1v0" not found')],
            "attachment",
            True,
            "p0f1v0",
            "k8s_platform_parts.networks",
        ),
        (
            creating(1),
            [
                event(
                    1, "FailedCreatePodSandBox", "plugin host-device (net1): failed to find host device: Link not found"
                )
            ],
            "vf",
            False,
            "Link not found",
            "sriov_roce_reset_stranded",
        ),
        (
            creating(1),
            [
                event(
                    1,
                    "FailedCreatePodSandBox",
                    'plugin type="multus-shim" failed (add): error adding container to network "dgx-serving/p0f1v0": plugin '
                    "host-device (net2): error with host device: lstat /sys/bus/pci/devices/0000:02:10.0: no such file or "
                    "directory",
                )
            ],
            "vf",
            False,
            "0000:02:10.0",
            "The VF is not on the node",
        ),
        (
            going(1),
            [
                event(
                    1,
                    "FailedKillPod",
                    'failed to "KillPodSandbox": plugin type="multus-shim" failed (delete): plugin host-device (net2): '
                    "error with host device: lstat /sys/bus/pci/devices/0000:02:10.0: no such file or directory",
                )
            ],
            "vf",
            False,
            "0000:02:10.0",
            "run the fabric part again",
        ),
        (going(1), [], "leaving", False, "it is terminating", "run the fabric part again"),
        (going(1), [event(1, "FailedKillPod", "no route to host")], "leaving", False, "no route", "kubelet's"),
        (creating(1), [event(1, "FailedMount", 'secret "hub" not found')], "volume", False, '"hub"', "hf_token_secret"),
        (
            creating(1),
            [event(1, "FailedMount", 'MountVolume.SetUp failed for volume "start": failed to sync configmap cache')],
            "volume",
            False,
            '"start"',
            "tries again by itself",
        ),
        (ended(1, 137, reason="OOMKilled"), [], "oom", True, "OOM-killed", "memory_guard"),
        (
            ended(1, preflight.STATUS["gid"], "rank 1: preflight: gid: p0f0v0: roce0v0 has no RoCE v2 GID"),
            [],
            "gid",
            True,
            "no RoCE v2 GID",
            "fabric part",
        ),
        (
            ended(1, preflight.STATUS["verbs"], restarts=2),
            [],
            "verbs",
            True,
            "verbs (exit status 11)",
            "cluster.verify",
        ),
        (ended(1, supervisor.STATUS["load"], "no token"), [], "load", False, "no token", "load_timeout_s"),
        (ended(1, 3), [], "ended", False, "exit status 3", "kubectl logs --previous"),
    ],
)
def test_a_cause_is_named(broken: Plain, events: list[Plain], cause: str, final: bool, said: str, remedy: str) -> None:
    group = status.group([pod(0), broken], events, 2, "p1")
    assert group["state"] == ("stuck" if final else "waiting")
    assert [finding.id for finding in group["findings"]] == [f"kube.{cause}"]
    found = group["findings"][0]
    assert found.subject == "serve-default-rank1-0 on spark2"
    assert said in found.message
    assert remedy in found.remedy


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("0/4 nodes are available: 4 Insufficient nvidia.com/gpu.", "k8s_platform_gpu_shares"),
        (
            "0/4 nodes are available: 1 Insufficient dgxspark.cluster/p0f0v0, 3 node(s) didn't match",
            "SR-IOV device plugin",
        ),
        ("0/4 nodes are available: 1 Insufficient memory, 3 node(s) didn't match", "requests"),
        ("0/4 nodes are available: 4 node(s) didn't match Pod's node affinity/selector.", "k8s_dgx_node_names"),
    ],
)
def test_a_pod_that_no_node_takes(text: str, remedy: str) -> None:
    waiting = pod(4, conditions=[{"type": "PodScheduled", "status": "False", "message": text}])
    waiting["spec"] = {"nodeSelector": {"kubernetes.io/hostname": "spark5"}}
    waiting["status"]["containerStatuses"] = []
    found = status.findings([waiting])
    assert found[0].subject == "serve-default-rank4-0 on spark5"
    assert text in found[0].message
    assert remedy in found[0].remedy


def test_the_rank_that_fell_is_named_and_not_those_that_fell_with_it() -> None:
    lost = [ended(rank, supervisor.STATUS["lost"], f"rank {rank}: rank 2 is lost") for rank in (0, 1, 3)]
    found = status.findings([*lost, ended(2, preflight.STATUS["verbs"], "no device")])
    assert [finding.subject for finding in found] == ["serve-default-rank2-0 on spark3"]
    # Where nothing else is known, at least that is reported.
    assert len(status.findings(lost)) == 3


def test_an_engine_that_keeps_ending_is_not_waited_for() -> None:
    assert status.group([ended(0, 1)], [], 1, "p1")["state"] == "waiting"
    assert status.group([ended(0, 1, restarts=2)], [], 1, "p1")["state"] == "stuck"


def test_what_a_group_went_through_before_does_not_count() -> None:
    """A group that lost ranks earlier recovers by itself; only what happens during the watch belongs to this run."""
    survivor = [ended(0, 1, restarts=5)]
    before = status.first_look(survivor, [])
    assert status.group(survivor, [], 1, "p1", before)["state"] == "waiting"
    assert status.group([ended(0, 1, restarts=6)], [], 1, "p1", before)["state"] == "waiting"
    assert status.group([ended(0, 1, restarts=7)], [], 1, "p1", before)["state"] == "stuck"


def test_what_was_wrong_before_may_have_been_mended_and_counts_when_it_happens_again() -> None:
    """A run that fixes something still finds the old events: kubelets try again within minutes."""
    said = "cannot find a network-attachment-definition (p0f1v0) in namespace (dgx-serving)"
    old = {**event(0, "FailedCreatePodSandBox", said), "metadata": {"uid": "e1", "resourceVersion": "7"}}
    again = {**old, "metadata": {"uid": "e1", "resourceVersion": "9"}, "count": 2}
    before = status.first_look([creating(0)], [old])
    waiting = status.group([creating(0)], [old], 1, "p1", before)
    assert waiting["state"] == "waiting"
    assert said in waiting["findings"][0].message
    assert status.group([creating(0)], [again], 1, "p1", before)["state"] == "stuck"
    # For a pod that did not exist at the first look, it counts at once.
    assert status.group([creating(0)], [old], 1, "p1", status.first_look([], []))["state"] == "stuck"


def test_an_end_from_before_is_waited_for_until_there_is_another() -> None:
    ill = ended(0, preflight.STATUS["gid"], "no RoCE v2 GID", finished="2026-11-21T10:00:00Z")
    before = status.first_look([ill], [])
    assert status.group([ill], [], 1, "p1", before)["state"] == "waiting"
    next_one = ended(0, preflight.STATUS["gid"], "no RoCE v2 GID", finished="2026-11-21T10:04:00Z", restarts=1)
    assert status.group([next_one], [], 1, "p1", before)["state"] == "stuck"


@pytest.mark.parametrize("reason", ["ErrImageNeverPull", "CreateContainerConfigError"])
def test_a_container_that_waits_since_before_is_waited_for_until_that_happens_again(reason: str) -> None:
    """The image, or the Secret, may be there by now: a kubelet reports the old state until it tries again."""
    ill = pod(0, conditions=[NOT_READY], state={"waiting": {"reason": reason, "message": "it is not there"}})
    tried = {**event(0, "Failed", f"Error: {reason}"), "metadata": {"uid": "e1", "resourceVersion": "7"}}
    before = status.first_look([ill], [tried])
    waiting = status.group([ill], [tried], 1, "p1", before)
    assert waiting["state"] == "waiting" and "it is not there" in waiting["findings"][0].message
    # An event that it is backing off, or that it starts to pull, is not another failure.
    pause = {**event(0, "BackOff", "Back-off pulling image"), "metadata": {"uid": "e2", "resourceVersion": "8"}}
    slow = {**event(0, "Failed", "Error: ImagePullBackOff"), "metadata": {"uid": "e3", "resourceVersion": "9"}}
    begun = {
        **event(0, "Pulling", "Pulling image"),
        "metadata": {"uid": "e4", "resourceVersion": "10"},
        "type": "Normal",
    }
    assert status.group([ill], [tried, pause, slow, begun], 1, "p1", before)["state"] == "waiting"
    again = {**tried, "metadata": {"uid": "e1", "resourceVersion": "11"}, "count": 2}
    assert status.group([ill], [again], 1, "p1", before)["state"] == "stuck"
    assert status.group([ill], [tried], 1, "p1", status.first_look([], []))["state"] == "stuck"


def test_a_pod_without_its_vfs_is_given_the_time_to_be_remade() -> None:
    code = preflight.STATUS["address"]
    said = "p0f0v0: 10.100.0.1 is on no interface here"
    seen = status.group([ended(0, code, said, restarts=1)], [], 1, "p1")
    assert seen["state"] == "waiting"
    assert said in seen["findings"][0].message
    assert status.group([ended(0, code, said, restarts=2)], [], 1, "p1")["state"] == "stuck"


def test_events_of_a_pod_of_the_same_name_before_do_not_count() -> None:
    old = event(1, "FailedCreatePodSandBox", "failed to find host device", uid="uid-of-an-older-one")
    assert status.findings([creating(1)], [old]) == []


def test_a_running_rank_that_loads_is_no_finding() -> None:
    assert status.findings([pod(0, conditions=[NOT_READY])]) == []


def test_what_must_go_is_waited_for() -> None:
    assert status.leaving([])["state"] == "ready"
    assert "it is terminating" in status.leaving([pod(2)])["findings"][0].message
    held = status.leaving([going(2)], [event(2, "FailedCreatePodSandBox", "x"), event(2, "FailedKillPod", "no route")])
    assert "no route" in held["findings"][0].message
    owner = {"kind": "StatefulSet", "metadata": {"name": "serve-default-rank2"}}
    last = status.leaving([], [], [owner])
    assert last["state"] == "waiting"
    assert last["findings"][0].subject == "StatefulSet serve-default-rank2"


def owner(rank: int, plan: str = "p1") -> Plain:
    name = f"serve-default-rank{rank}"
    return {"metadata": {"name": name, "uid": f"set-{rank}", "annotations": {"dgxspark.cluster/plan": plan}}}


def refused(rank: int, why: str, at: str = "2026-11-21T10:00:00Z") -> Plain:
    name = f"serve-default-rank{rank}"
    about = {"kind": "StatefulSet", "name": name, "uid": f"set-{rank}"}
    message = f"create Pod {name}-0 in StatefulSet {name} failed error: {why}"
    return {"involvedObject": about, "reason": "FailedCreate", "message": message, "lastTimestamp": at}


FORBIDDEN = (
    'pods "serve-default-rank1-0" is forbidden: violates PodSecurity "restricted:latest": restricted volume types'
)


def test_a_rank_without_a_pod_is_named_with_what_refuses_it() -> None:
    sets = [owner(0), owner(1)]
    found = status.group([pod(0)], [refused(1, FORBIDDEN)], 2, "p1", sets=sets)
    assert found["state"] == "stuck"
    (finding,) = found["findings"]
    assert (finding.id, finding.subject) == ("kube.refused", "StatefulSet serve-default-rank1")
    assert "PodSecurity" in finding.message
    assert "pod-security.kubernetes.io/enforce" in (finding.remedy or "")
    # A webhook that did not answer may still answer; and the cause of an earlier refusal may have been fixed.
    passing = refused(1, "Internal error occurred: failed calling webhook")
    assert status.group([pod(0)], [passing], 2, "p1", sets=sets)["state"] == "waiting"
    before = status.first_look([pod(0)], [refused(1, FORBIDDEN)], sets)
    assert status.group([pod(0)], [refused(1, FORBIDDEN)], 2, "p1", before, sets)["state"] == "waiting"
    again = refused(1, FORBIDDEN, at="2026-11-21T10:05:00Z")
    assert status.group([pod(0)], [again], 2, "p1", before, sets)["state"] == "stuck"


def test_a_rank_whose_pod_is_not_made_yet_is_waited_for() -> None:
    assert status.group([pod(0)], [], 2, "p1", sets=[owner(0), owner(1)]) == {
        "state": "waiting",
        "ready": [0],
        "findings": [],
    }


def test_ranks_that_were_taken_away_are_not_waited_for() -> None:
    found = status.group([pod(0)], [], 2, "p1", sets=[owner(0), owner(1, plan="another")])
    assert found["state"] == "stuck"
    assert "1 of 2" in found["findings"][0].message
