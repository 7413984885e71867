"""The platform's DaemonSets before a real API server and real controllers: a release that fails stops at one node.

DGXSPARK_TEST_KUBECONFIG names its kubeconfig, as for test_real_cluster.py. The kubelets are stand-ins of this test: an image `bad` is never
pulled, one `crashing` is ready for two seconds.
"""

from __future__ import annotations

import datetime as dt
import os
import threading
import time
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import platform
from ansible_collections.dgxspark.cluster.tests.api import harness

PLACE = os.environ.get("DGXSPARK_TEST_KUBECONFIG", "")
pytestmark = [
    pytest.mark.skipif(not PLACE, reason="not run: DGXSPARK_TEST_KUBECONFIG names no cluster"),
    pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN),
    pytest.mark.more,
]
NODES = [f"roll{number}" for number in (1, 2, 3)]
NAME, WHERE = "dgxspark-rolled", {"dgxspark.test/rolled": "true"}
CRASHES_S, WATCHED_S = 2.0, 25.0


class Kubelets:
    """Stand-ins of three kubelets, for pods of the DaemonSet."""

    def __init__(self) -> None:
        import kubernetes

        client = kubernetes.config.new_client_from_config(PLACE)
        self.error = kubernetes.client.ApiException
        self.core, self.apps = kubernetes.client.CoreV1Api(client), kubernetes.client.AppsV1Api(client)
        self.over, self.started = threading.Event(), dict[str, float]()
        for name in NODES:
            self.core.create_node({"metadata": {"name": name, "labels": WHERE}})
            ready = {"type": "Ready", "status": "True", "reason": "StandIn", "lastTransitionTime": self.now()}
            room = {"cpu": "20", "memory": "119Gi", "pods": "110"}
            self.core.patch_node_status(
                name, {"status": {"capacity": room, "allocatable": room, "conditions": [ready]}}
            )
            self.core.patch_node(name, {"spec": {"taints": None}})
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    @staticmethod
    def now() -> str:
        return dt.datetime.now(dt.UTC).isoformat()

    def pods(self) -> list[t.Any]:
        return list(self.core.list_namespaced_pod("kube-system", label_selector="dgxspark.cluster/part=rolled").items)

    def work(self) -> None:
        while not self.over.wait(0.2):
            for pod in self.pods():
                try:
                    self.play(pod)
                except self.error as exc:
                    if exc.status not in (404, 409):
                        raise

    def play(self, pod: t.Any) -> None:
        name, image = pod.metadata.name, pod.spec.containers[0].image
        if pod.metadata.deletion_timestamp:
            self.core.delete_namespaced_pod(name, "kube-system", grace_period_seconds=0)
            return
        if not pod.spec.node_name or image == "bad":
            return
        since = self.started.setdefault(pod.metadata.uid, time.monotonic())
        ready = image != "crashing" or time.monotonic() - since < CRASHES_S
        was = next((each.status for each in pod.status.conditions or () if each.type == "Ready"), None)
        if was != str(ready):
            made = {"type": "Ready", "status": str(ready), "lastTransitionTime": self.now()}
            self.core.patch_namespaced_pod_status(
                name, "kube-system", {"status": {"phase": "Running", "conditions": [made]}}
            )

    def images(self) -> list[str]:
        return sorted(pod.spec.containers[0].image for pod in self.pods() if not pod.metadata.deletion_timestamp)

    def close(self) -> None:
        self.apps.delete_namespaced_daemon_set(NAME, "kube-system")
        until = time.monotonic() + 60
        while self.pods() and time.monotonic() < until:
            time.sleep(0.5)
        self.over.set()
        self.thread.join()
        for name in NODES:
            self.core.delete_node(name)


def made(image: str) -> dict[str, t.Any]:
    """A DaemonSet of the platform, with this image, for these nodes alone."""
    spec = {"nodeSelector": WHERE, "containers": [{"name": "main", "image": image}]}
    return platform.daemon(NAME, "rolled", spec)


@pytest.fixture
def kubelets() -> Iterator[Kubelets]:
    there = Kubelets()
    there.apps.create_namespaced_daemon_set("kube-system", made("good"))
    yield there
    there.close()


def settled(kubelets: Kubelets, images: list[str], limit_s: float) -> bool:
    until = time.monotonic() + limit_s
    while kubelets.images() != images and time.monotonic() < until:
        time.sleep(0.3)
    return kubelets.images() == images


@pytest.mark.parametrize("image", ["bad", "crashing"])
def test_a_release_that_fails_stops_at_one_node_and_the_older_one_leads_back(kubelets: Kubelets, image: str) -> None:
    assert settled(kubelets, ["good"] * 3, 60)
    time.sleep(made("good")["spec"]["minReadySeconds"] + 2)  # all of them are available
    kubelets.apps.patch_namespaced_daemon_set(NAME, "kube-system", made(image))
    assert settled(kubelets, sorted([image, "good", "good"]), 60)
    time.sleep(WATCHED_S)
    assert kubelets.images() == sorted([image, "good", "good"])
    kubelets.apps.patch_namespaced_daemon_set(NAME, "kube-system", made("good"))
    assert settled(kubelets, ["good"] * 3, 60)


def test_a_good_release_reaches_all_nodes_one_after_the_other(kubelets: Kubelets) -> None:
    assert settled(kubelets, ["good"] * 3, 60)
    time.sleep(made("good")["spec"]["minReadySeconds"] + 2)
    kubelets.apps.patch_namespaced_daemon_set(NAME, "kube-system", made("better"))
    assert settled(kubelets, ["better", "good", "good"], 30)
    assert settled(kubelets, ["better"] * 3, 120)
