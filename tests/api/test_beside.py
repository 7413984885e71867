"""The platform in a cluster that others have made, against the stand-in or (DGXSPARK_TEST_KUBECONFIG) a real API server.

With a real one the cluster must be empty but for its nodes, as the lane's is.
"""

from __future__ import annotations

import json
import os
import pathlib
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.stand_ins import kube_api
from ansible_collections.dgxspark.cluster.tests.support import others

pytestmark = [
    pytest.mark.more,
    pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN),
]
Plain = dict[str, t.Any]
PLACE = os.environ.get("DGXSPARK_TEST_KUBECONFIG", "")
LISTED = (
    ("v1", "Namespace"),
    ("v1", "ConfigMap"),
    ("v1", "ServiceAccount"),
    ("v1", "Service"),
    ("v1", "Node"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("apps/v1", "DaemonSet"),
    ("node.k8s.io/v1", "RuntimeClass"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
)
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dgx-serving", "labels": {"team": "a"}}}
ROLE: Plain = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "multus", "labels": {"owner": "somebody"}},
    "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
}


class Cluster:
    """A cluster with what others have put there."""

    def __init__(self, folder: pathlib.Path) -> None:
        import kubernetes

        self.kubeconfig = pathlib.Path(PLACE) if PLACE else folder / "kubeconfig"
        if not PLACE:
            self.stand_in = kube_api.Cluster([f"spark{number}" for number in range(1, 5)])
            self.server = kube_api.serve(self.stand_in, self.kubeconfig)
        self.client = kubernetes.dynamic.DynamicClient(kubernetes.config.new_client_from_config(str(self.kubeconfig)))

    def of(self, api: str, kind: str) -> t.Any:
        return self.client.resources.get(api_version=api, kind=kind)

    def create(self, made: Plain) -> None:
        kind = self.of(made["apiVersion"], made["kind"])
        kind.create(body=made, namespace=made["metadata"].get("namespace"))

    def remove(self, made: Plain) -> None:
        kind = self.of(made["apiVersion"], made["kind"])
        kind.delete(name=made["metadata"]["name"], namespace=made["metadata"].get("namespace"))

    def everything(self) -> dict[tuple[str, str, str], str]:
        """Return all objects as bytes, by kind, namespace and name. A status, and who wrote it, are their controllers'."""
        found = {}
        for api, kind in LISTED:
            for item in self.of(api, kind).get().to_dict()["items"]:
                made = {key: value for key, value in item.items() if key != "status"}
                if kind in ("DaemonSet", "Node"):
                    made["metadata"] = {
                        key: value
                        for key, value in made["metadata"].items()
                        if key not in ("managedFields", "resourceVersion")
                    }
                if kind == "Node":  # a Spark's has our labels, too
                    labels = made["metadata"].get("labels") or {}
                    made["metadata"]["labels"] = {
                        key: value for key, value in labels.items() if not key.startswith("dgxspark.cluster/")
                    }
                name = (kind, made["metadata"].get("namespace") or "", made["metadata"]["name"])
                found[name] = json.dumps(made, sort_keys=True)
        return found


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> t.Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    if not PLACE:
        made.server.shutdown()


def test_what_others_have_put_there_is_used_refused_and_left_byte_for_byte(
    cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    theirs = [NAMESPACE, others.crd(), ROLE, others.MULTUS, others.SRIOV]
    for each in theirs:
        cluster.create(each)
    before = cluster.everything()
    site = harness.Site(tmp_path, cluster.kubeconfig, k8s_platform_components={"vf_indexes": [1]})
    site.play(name="dgxspark.cluster.k8s_platform")
    # Their SR-IOV device plugin does not offer our VFs.
    code, said, _changed = site.run()
    assert code != 0, said
    assert "ranks need 1 × dgxspark.cluster/p0f0v1" in " ".join(said.split())
    assert cluster.everything() == before
    # It stays off the Sparks: ours is made beside it, their Multus is used.
    away = json.loads(json.dumps(others.SRIOV))
    away["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "others"}
    cluster.remove(others.SRIOV)
    cluster.create(away)
    before = cluster.everything()
    patience = {"k8s_platform_networks_timeout": 1}
    site.good("--check", **patience)
    assert cluster.everything() == before
    assert site.good(**patience) > 0
    after = cluster.everything()
    assert {name: after.get(name) for name in before} == before
    ours = {name for kind, _space, name in set(after) - set(before) if kind == "DaemonSet"}
    assert ours == {"dgxspark-sriov-device-plugin", "dgxspark-nvidia-device-plugin"}
    networks = cluster.of("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition").get(namespace="dgx-serving").to_dict()
    assert {each["metadata"]["name"] for each in networks["items"]} == {"p0f0v1", "p0f1v1"}
    # An object under one of our names that is somebody else's stops the run.
    mine = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "dgxspark-nvidia"}}
    cluster.remove(mine)
    cluster.create({**mine, "handler": "other"})
    between = cluster.everything()
    code, said, _changed = site.run(**patience)
    assert code != 0
    assert "RuntimeClass/dgxspark-nvidia exists and is not this collection's" in " ".join(said.split())
    assert cluster.everything() == between
    cluster.remove(mine)
    # Absent takes ours away, and nothing else.
    assert site.good(k8s_platform_state="absent") > 0
    assert cluster.everything() == before
    nodes = cluster.of("v1", "Node").get().to_dict()["items"]
    assert not [
        key for node in nodes for key in node["metadata"].get("labels") or {} if key.startswith("dgxspark.cluster/")
    ]
    for each in [*theirs[:-1], away]:
        cluster.remove(each)
