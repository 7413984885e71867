"""The module kube_objects against the stand-in of an API server: what it lists, and which cluster it asks."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
import yaml

from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.stand_ins import kube_api

pytestmark = pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN)
LABELS = {"app.kubernetes.io/name": "ours"}


@pytest.mark.more
def test_kinds_are_listed_in_one_step_and_the_same_by_a_module_with_an_environment_of_its_own(
    tmp_path: pathlib.Path,
) -> None:
    here, there = kube_api.Cluster(["spark1", "spark2"]), kube_api.Cluster(["other1"])
    servers = [kube_api.serve(here, tmp_path / "kubeconfig"), kube_api.serve(there, tmp_path / "elsewhere")]
    for name, space, labels in (("one", "a", LABELS), ("two", "a", {}), ("three", "b", LABELS)):
        made: dict[str, t.Any] = {"apiVersion": "v1", "kind": "ConfigMap", "data": {}}
        made["metadata"] = {"name": name, "namespace": space, "labels": labels}
        here.put(("v1", "configmaps", space, name), made)
    site = harness.Site(tmp_path, tmp_path / "kubeconfig")
    ours = [f"{key}={value}" for key, value in LABELS.items()]
    kinds = [
        {"kind": "Node", "label_selectors": []},
        {"kind": "ConfigMap"},
        {"kind": "ConfigMap", "namespace": "b"},
        {"api_version": "example.com/v1", "kind": "Unknown"},
    ]
    asked = {"kinds": kinds, "label_selectors": ours, "kubeconfig": str(tmp_path / "kubeconfig")}
    tasks: list[dict[str, t.Any]] = [
        {"dgxspark.cluster.kube_objects": asked, "register": "direct"},
        # A task's own environment reaches only a module: the cluster must be the same either way.
        {"dgxspark.cluster.kube_objects": asked, "environment": {"ANY": "thing"}, "register": "module"},
        {
            "dgxspark.cluster.kube_objects": {"kinds": [{"kind": "Node"}]},
            "environment": {"K8S_AUTH_KUBECONFIG": str(tmp_path / "elsewhere")},
            "register": "elsewhere",
        },
        {
            "dgxspark.cluster.kube_objects": {**asked, "kubeconfig": str(tmp_path / "nowhere")},
            "register": "nowhere",
            "failed_when": False,
        },
        {
            "ansible.builtin.copy": {
                "content": "{{ [direct, module, elsewhere, nowhere] | to_json }}",
                "dest": str(tmp_path / "said.json"),
            }
        },
    ]
    play = {"name": "List", "hosts": "localhost", "gather_facts": False, "tasks": tasks}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]), encoding="utf-8")
    site.good()
    direct, module, elsewhere, nowhere = json.loads((tmp_path / "said.json").read_text(encoding="utf-8"))
    names = [[each["metadata"]["name"] for each in found] for found in direct["found"]]
    assert [sorted(found) for found in names] == [["spark1", "spark2"], ["one", "three"], ["three"], []]
    assert [each["metadata"]["name"] for each in direct["objects"]] == [name for found in names for name in found]
    assert module["found"] == direct["found"]
    assert [each["metadata"]["name"] for each in elsewhere["objects"]] == ["other1"]
    assert f"the Kubernetes API did not answer: there is no kubeconfig {tmp_path / 'nowhere'}" in nowhere["msg"]
    assert "k8s_dgx_kubeconfig" in nowhere["msg"]
    for server in servers:
        server.shutdown()
