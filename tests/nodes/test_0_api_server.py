"""The role against the lane's real API server and controllers alone, with four stand-ins for nodes: tests/api/test_real_cluster.py.

Not run, since 1.20 does not know them: policy/v1 (the disruption budget), spec.unhealthyPodEvictionPolicy, gRPC probes, native
sidecars, ordinals of a StatefulSet. It silently drops fields that it does not know, so it proves nothing about them.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.nodes import lane
from ansible_collections.dgxspark.cluster.tests.unit.kube_inputs import PINNED

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(lane.why_not()), reason=lane.why_not()),
    pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN),
]
# Unlike a kubelet, the stand-ins report a container's image without a digest; the nodes' lists have it, and then no pod pulls.
REPOSITORY, _at, DIGEST = PINNED.partition("@")
IMAGE = {"names": [f"{REPOSITORY.rpartition(':')[0]}@{DIGEST}", REPOSITORY], "sizeBytes": 2**30}
RESOURCES = {f"dgxspark.cluster/p0f{function}v0": "1" for function in (0, 1)}


@pytest.fixture
def kubeconfig() -> Iterator[pathlib.Path]:
    import kubernetes

    made = lane.Lane()
    made.build(machines=False)
    own = {"NODES": "4", "LANE_RESOURCES": json.dumps(RESOURCES), "PYTHON": sys.executable}
    try:
        made.script("kube-api/kube-api.sh", "up", **own)
        nodes = kubernetes.client.CoreV1Api(kubernetes.config.new_client_from_config(str(made.kubeconfig)))
        for number in range(1, 5):
            nodes.patch_node_status(f"spark{number}", {"status": {"images": [IMAGE]}})
        yield made.kubeconfig
    finally:
        made.script("kube-api/kube-api.sh", "down")


def test_one_way_through_against_a_real_api_server(kubeconfig: pathlib.Path) -> None:
    command = [sys.executable, "-m", "pytest", "tests/api/test_real_cluster.py", "-s"]
    env = {**os.environ, "DGXSPARK_TEST_KUBECONFIG": str(kubeconfig)}
    ran = subprocess.run(command, check=False, cwd=lane.ROOT, env=env, capture_output=True, text=True)
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout
