"""A pod that runs once: what is created is deleted before a signal ends the process, and a pod that cannot be scheduled is not waited for."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import once, pulls
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.run_once import cleaning_up


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_comes_after_what_was_made_is_gone(number: signal.Signals) -> None:
    order: list[str] = []
    kept = signal.signal(number, lambda *_told: order.append("ended"))
    try:
        with cleaning_up():
            try:
                os.kill(os.getpid(), number)
                signal.sigtimedwait([signal.SIGUSR1], 1)
                order.append("went on")
            finally:
                os.kill(os.getpid(), number)  # a second one changes nothing
                order.append("taken away")
        assert order == ["taken away", "ended"]
    finally:
        signal.signal(number, kept)


def test_without_a_signal_and_in_a_thread_nothing_is_changed() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with cleaning_up():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
    seen: list[object] = []

    def look() -> None:
        with cleaning_up():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]


def test_an_error_is_an_error_still() -> None:
    with pytest.raises(ValueError, match="so it is"), cleaning_up():
        raise ValueError("so it is")


def test_a_pod_that_no_node_takes_is_not_waited_for_to_the_end() -> None:
    pod = {"metadata": {"name": "bench-a", "namespace": "dgx"}, "spec": {}}
    said = "0/2 nodes are available: 1 node(s) were unschedulable."
    pending = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": said}]}
    watch = pulls.Watch(
        pulls.PullRequest("image", {}, {"spark1": pod}, [], 14400, bound="dgxspark_bench_timeout"), began=100.0
    )
    there = [{**pod, "status": pending}]
    assert once.outcome(watch, "spark1", there, [], 100.0 + once.PLACED_S - 1) is None
    with pytest.raises(CollectionError, match=r"^spark1: its pod cannot be scheduled: 0/2 nodes .* Uncordon the node"):
        once.outcome(watch, "spark1", there, [], 100.0 + once.PLACED_S)
