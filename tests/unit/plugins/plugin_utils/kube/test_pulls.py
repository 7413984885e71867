"""Pods that pull an image on the nodes of a plan: who needs one, what it asks for, and what its kubelet says of it."""

from __future__ import annotations

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import pulls
from ansible_collections.dgxspark.cluster.tests.support.pull_pods import (
    DIGEST,
    ENGINE,
    HOSTS,
    Plain,
    nodes,
    seen,
    served,
    waiting,
)


def test_a_node_that_lists_the_image_with_its_digest_needs_no_pod() -> None:
    made = pulls.wanted(served(), nodes("spark1", "spark3"), 60)
    assert (list(made.pods), made.lacking) == (["spark2", "spark4"], ["spark2", "spark4"])
    assert made.digests == {"spark1": DIGEST, "spark3": DIGEST}
    # An image from an archive is present, and a pod finds out its digest.
    made = pulls.wanted(served(), nodes(*HOSTS, digest=False), 60)
    assert (list(made.pods), made.lacking, made.digests) == (HOSTS, [], {})
    # A registry that is to be asked each time is asked.
    assert list(pulls.wanted(served(image_pull="Always"), nodes(*HOSTS), 60).pods) == HOSTS


def test_nodes_that_list_index_and_manifest_in_another_order_have_the_same_image() -> None:
    other = f"sha256:{'b' * 64}"
    there = nodes(*HOSTS)
    for node, digests in zip(there, ((DIGEST,), (DIGEST, other), (other, DIGEST), (other,)), strict=True):
        node["status"]["images"][0]["names"] = [ENGINE, *(f"registry.example/engine@{each}" for each in digests)]
    made = pulls.Watch(pulls.wanted(served(), there, 60))
    found = pulls.result(made, [], {ENGINE: other}, "dgx-serving", accept=False, check=False)
    assert "failed" not in found and found["digest"] == other


def test_a_pod_asks_as_its_rank_does_and_starts_nothing() -> None:
    choices = {"image_pull_secrets": ["login"], "image_pull": "Never", "node_names": {"spark2": "gb10-two"}}
    whole = served(**choices)
    pod = pulls.wanted(whole, nodes(), 60).pods["spark2"]
    rank = next(each for each in whole["workers"] if each["metadata"]["name"].endswith("rank1"))["spec"]["template"][
        "spec"
    ]
    spec, (container,) = pod["spec"], pod["spec"]["containers"]
    for key in ("nodeSelector", "tolerations", "imagePullSecrets"):
        assert spec[key] == rank[key]
    assert spec["nodeSelector"] == {"kubernetes.io/hostname": "gb10-two"}
    assert (container["image"], container["imagePullPolicy"]) == (ENGINE, "Never")
    assert container["command"] == [pulls.NOTHING] and "args" not in container
    assert (spec["restartPolicy"], spec["activeDeadlineSeconds"]) == ("Never", 60)
    # No GPU, VF, volume, key or account: and no label by which ranks are drained, served or counted.
    assert not {"volumes", "runtimeClassName", "serviceAccountName"} & set(spec)
    assert "limits" not in container["resources"] and "annotations" not in pod["metadata"]
    # Made before Multus comes and deleted after, a pod would leave its address taken on the node for ever.
    assert spec["hostNetwork"] is True and "ports" not in container
    assert not {"dgxspark.cluster/rank", "app.kubernetes.io/instance"} & set(pod["metadata"]["labels"])


def event(host: str, reason: str, message: str, second: int) -> Plain:
    return {
        "involvedObject": {"uid": host},
        "reason": reason,
        "message": message,
        "lastTimestamp": f"2026-01-01T00:00:{second:02}Z",
    }


def watch(*lacking: str) -> pulls.Watch:
    return pulls.Watch(pulls.wanted(served(), nodes(*(host for host in HOSTS if host not in lacking)), 60))


@pytest.mark.parametrize(
    "ended",
    [
        {"terminated": {"exitCode": 128, "reason": "StartError", "message": "no such file or directory"}},
        {"terminated": {"exitCode": 127, "reason": "Error"}},
        waiting("RunContainerError", "no such file or directory"),
    ],
)
def test_a_container_that_could_not_start_was_pulled_all_the_same(ended: Plain) -> None:
    one = watch("spark2")
    pod = seen("spark2", ended, f"registry.example/engine@{DIGEST}", phase="Failed")
    told = [event("spark2", "Pulled", f'Successfully pulled image "{ENGINE}" in 9s', 1)]
    assert one.look([pod], told, 0) == ([], [])
    assert (one.digests, one.pulled) == ({"spark2": DIGEST}, ["spark2"])


def test_an_image_that_was_there_is_no_change() -> None:
    one = watch("spark2")
    told = [event("spark2", "Pulled", f'Container image "{ENGINE}" already present on machine', 1)]
    assert one.look([seen("spark2", {"terminated": {}}, DIGEST)], told, 0) == ([], [])
    assert (one.digests, one.pulled) == ({"spark2": DIGEST}, [])


def test_what_is_final_fails_at_once_and_the_others_are_waited_for() -> None:
    one = watch("spark1", "spark2", "spark3")
    pods = [
        seen("spark1", waiting("ContainerCreating", "")),
        seen(
            "spark2",
            waiting("ImagePullBackOff", f'Back-off pulling image "{ENGINE}": ErrImagePull: {ENGINE}: not found'),
        ),
        seen(
            "spark3", {}, conditions=[{"type": "PodScheduled", "status": "False", "message": "0/4 nodes are available"}]
        ),
    ]
    failed, still = one.look(pods, [], 0)
    assert len(failed) == 1 and failed[0].startswith("spark2: there is no such image. Check its name")
    assert still == [
        "spark1: the kubelet is still pulling",
        "spark3: its pod cannot be scheduled: 0/4 nodes are available",
    ]
    # A pod that is gone cannot say why.
    assert "deleted by someone else" in one.look(pods[1:], [], 1)[0][0]


def test_a_back_off_that_does_not_say_why_is_explained_by_its_event() -> None:
    """Kubelets before 1.32."""
    one = watch("spark2")
    pod = seen("spark2", waiting("ImagePullBackOff", f'Back-off pulling image "{ENGINE}"'))
    told = [
        event("spark2", "Pulling", "Pulling image", 1),
        event(
            "spark2", "Failed", f'Failed to pull image "{ENGINE}": rpc error: code = Unknown desc = 401 Unauthorized', 2
        ),
        event("spark2", "Failed", "Error: ErrImagePull", 3),
    ]
    assert "requires authentication" in one.look([pod], told, 0)[0][0]
    # Events of another pod, from an earlier run, say nothing about this one.
    assert one.look([pod], [{**each, "involvedObject": {"uid": "old"}} for each in told], 0)[0] == []


def test_what_may_pass_is_waited_for_since_the_last_try() -> None:
    one = watch("spark2")
    text = f"failed to pull image {ENGINE}: dial tcp: lookup registry.example: i/o timeout"
    pod = seen("spark2", waiting("ErrImagePull", text))
    first = [
        event("spark2", "Pulling", "Pulling image", 1),
        event("spark2", "Failed", f"Failed to pull image: {text}", 2),
    ]
    assert one.look([pod], first, 0)[0] == []
    assert one.look([pod], first, pulls.PATIENCE_S - 1)[0] == []
    # The kubelet tries again: a pull may take an hour, and the state shows the old error all the while.
    again = [*first, event("spark2", "Pulling", "Pulling image", 3)]
    assert one.look([pod], again, 3600)[0] == []
    failed = [*again, event("spark2", "Failed", f"Failed to pull image: {text}", 4)]
    assert one.look([pod], failed, 3601)[0] == []
    (line,) = one.look([pod], failed, 3601 + pulls.PATIENCE_S)[0]
    assert line.startswith("spark2: the registry cannot be reached from there.") and "k3s_image_archives" in line


def test_a_pod_that_cannot_be_made_is_told_in_its_own_words() -> None:
    one = watch("spark2")
    pod = seen("spark2", waiting("CreateContainerError", "context deadline exceeded"))
    assert one.look([pod], [], 0)[0] == ["spark2: context deadline exceeded"]
    late = seen(
        "spark2", {}, phase="Failed", reason="DeadlineExceeded", message="Pod was active longer than specified deadline"
    )
    assert "longer than specified deadline" in one.look([late], [], 0)[0][0]


def test_a_watch_ends_when_all_have_it_soon_after_a_failure_or_when_its_time_is_over() -> None:
    one = watch("spark1", "spark2")
    pulled = seen("spark1", {"terminated": {}}, f"registry.example/engine@{DIGEST}")
    slow = seen("spark2", waiting("ContainerCreating", ""))
    assert one.ended([pulled, slow], [], 59) is None and one.waiting == ["spark2: the kubelet is still pulling"]
    assert one.ended([pulled, slow], [], 60) == [
        "spark2: the kubelet is still pulling after 60 s (k8s_dgx_image_timeout)."
    ]
    assert one.ended([seen("spark2", {"terminated": {}}, DIGEST)], [], 61) == []
    # After a failure the others have a little time to fail as well.
    one = watch("spark1", "spark2")
    bad = seen("spark1", waiting("ErrImagePull", f"{ENGINE}: not found"))
    assert one.ended([bad, slow], [], 1) is None
    assert one.ended([bad, slow], [], pulls.OTHERS_S) is None
    (line,) = one.ended([bad, slow], [], 1 + pulls.OTHERS_S) or []
    assert line.startswith("spark1: there is no such image")


def test_the_result_has_the_digest_and_the_record_or_each_problem() -> None:
    one = watch("spark2")
    one.ended([seen("spark2", {"terminated": {}}, DIGEST)], [], 0)
    made = pulls.result(one, [], {}, "models", accept=False, check=False)
    assert (made["digest"], made["changed"], made["lacking"]) == (DIGEST, False, ["spark2"])
    assert made["record"]["data"]["digests"] == f"{ENGINE} {DIGEST}\n"
    assert pulls.result(watch("spark2"), [], {}, "models", accept=False, check=True)["changed"] is True
    made = pulls.result(one, ["spark2: no."], {}, "models", accept=False, check=False)
    assert made["failed"] and made["msg"] == "spark2: no. Nothing was stopped."
    moved = {ENGINE: f"sha256:{'b' * 64}"}
    made = pulls.result(one, [], moved, "models", accept=False, check=False)
    assert made["failed"] and "its tag moved" in made["msg"]
    assert not pulls.result(one, [], moved, "models", accept=True, check=False).get("failed")


def test_a_kubelet_that_says_no_digest_of_what_it_runs_is_not_waited_for() -> None:
    one = watch("spark2")
    (words,), waits = one.look([seen("spark2", {"running": {}}, "sha256:0", phase="Running")], [], 0)
    assert words.startswith("spark2: its pod runs") and "'sha256:0', which has no digest" in words
    assert waits == [] and one.digests == {}
