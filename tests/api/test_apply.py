"""The module kube_apply against the stand-in of an API server, when the object to apply is still being deleted."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
import yaml

from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.stand_ins import kube_api

pytestmark = pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN)
KEY = ("v1", "configmaps", "kube-system", "settings")


@pytest.mark.more
def test_what_is_being_deleted_is_waited_for_and_made_again_and_a_module_says_the_same(tmp_path: pathlib.Path) -> None:
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
    apply = {"dgxspark.cluster.kube_apply": {"objects": [wanted], "kubeconfig": str(tmp_path / "kubeconfig")}}
    unknown = {"apiVersion": "example.com/v1", "kind": "Unknown", "metadata": {"name": "settings"}}
    wrong = {"dgxspark.cluster.kube_apply": {"objects": [wanted, unknown], "kubeconfig": str(tmp_path / "kubeconfig")}}
    # A task's own environment reaches only a module: with one, the work is done in a separate module process.
    module = {"environment": {"ANY": "thing"}}
    content = {
        "content": "{{ [first, again, wrong, same] | to_json }}",
        "dest": str(tmp_path / "said.json"),
        "mode": "0600",
    }
    tasks: list[dict[str, t.Any]] = [
        {"name": "Apply it", **apply, "register": "first"},
        {"name": "Apply it by a module", **apply, **module, "register": "again"},
        {"name": "Apply what there is not", **wrong, "register": "wrong", "failed_when": False},
        {"name": "Apply it by a module, too", **wrong, **module, "register": "same", "failed_when": False},
        {"name": "Keep what was said", "ansible.builtin.copy": content},
    ]
    play = {"name": "Apply", "hosts": "localhost", "gather_facts": False, "tasks": tasks}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]), encoding="utf-8")
    assert site.good() > 0
    there = cluster.objects[KEY]
    assert there["data"] == {"colour": "blue"}
    assert there["metadata"]["uid"] != old and "deletionTimestamp" not in there["metadata"]
    first, again, *both = json.loads((tmp_path / "said.json").read_text(encoding="utf-8"))
    assert (first["changed"], first["objects"]) == (True, ["ConfigMap/kube-system/settings: changed"])
    assert (again["changed"], again["objects"]) == (False, ["ConfigMap/kube-system/settings: unchanged"])
    assert both[0]["msg"] == both[1]["msg"]
    assert "Failed to find exact match for example.com/v1.Unknown" in both[0]["msg"]
    server.shutdown()
