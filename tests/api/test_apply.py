"""The module kube_apply against the stand-in of an API server, where what it applies meets what is being deleted."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
import yaml

from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.stand_ins import kube_api

pytestmark = pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN)
KEY = ("v1", "configmaps", "kube-system", "settings")


def test_what_is_being_deleted_is_waited_for_and_made_again(tmp_path: pathlib.Path) -> None:
    cluster = kube_api.Cluster([])
    server = kube_api.serve(cluster, tmp_path / "kubeconfig")
    site = harness.Site(tmp_path, tmp_path / "kubeconfig")
    wanted: dict[str, t.Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": "kube-system"},
        "data": {"colour": "blue"},
    }
    going = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["foregroundDeletion"]}
    cluster.put(KEY, {**wanted, "metadata": {**wanted["metadata"], **going}, "data": {"colour": "red"}})
    old = cluster.objects[KEY]["metadata"]["uid"]
    task = {"dgxspark.cluster.kube_apply": {"objects": [wanted], "kubeconfig": str(tmp_path / "kubeconfig")}}
    play = {"name": "Apply", "hosts": "localhost", "gather_facts": False, "tasks": [{"name": "Apply it", **task}]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]), encoding="utf-8")
    assert site.good() > 0
    there = cluster.objects[KEY]
    assert there["data"] == {"colour": "blue"}
    assert there["metadata"]["uid"] != old and "deletionTimestamp" not in there["metadata"]
    server.shutdown()
