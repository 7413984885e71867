"""The role k8s_dgx with the engine's image, as an owner runs it, against the stand-in of a cluster: NO KUBELET RUNS HERE."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.api.harness import OTHER
from ansible_collections.dgxspark.cluster.tests.stand_ins import kube_api

Plain = dict[str, t.Any]
pytestmark = pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN)
OLD, NEW = "registry.example/engine:1", "registry.example/engine:2"
HOSTNAME = "kubernetes.io/hostname"
FIRST, SECOND = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"


class Owner(harness.Site):
    """Four Sparks, and the stand-in's registry."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.cluster = kube_api.Cluster([f"spark{number}" for number in range(1, 5)])
        self.server = kube_api.serve(self.cluster, folder / "kubeconfig")
        super().__init__(folder, folder / "kubeconfig", k8s_dgx_image=OLD)
        self.cluster.registry = {OLD: FIRST, NEW: SECOND}

    def refused(self, *options: str, **variables: t.Any) -> str:
        """Run the role, which must fail and leave the ranks as they are; return what it said."""
        before = {name: pod["metadata"]["uid"] for name, pod in self.cluster.pods().items()}
        code, said, _changed = self.run(*options, **variables)
        assert code != 0, said
        assert {name: pod["metadata"]["uid"] for name, pod in self.cluster.pods().items()} == before, said
        return " ".join(said.split())

    def pulls(self) -> list[str]:
        """Return the writes that created or deleted a pull pod."""
        return [name for name in self.cluster.writes if "-pull-" in name]

    def record(self) -> str:
        made = self.cluster.objects.get(("v1", "configmaps", "dgx-serving", "dgxspark-images"))
        return str(made["data"]["digests"]) if made else ""


@pytest.fixture
def owner(tmp_path: pathlib.Path) -> t.Iterator[Owner]:
    made = Owner(tmp_path)
    yield made
    made.server.shutdown()


@pytest.mark.long
def test_the_image_is_on_all_nodes_before_the_old_model_is_stopped(owner: Owner) -> None:
    """One run through; each step starts where the last one ended."""
    code, said, changed = owner.run("--check")
    assert (code, changed > 0) == (0, True), said
    assert f"{OLD}: digest not known yet; to be pulled on spark1, spark2, spark3, spark4." in " ".join(said.split())
    assert owner.pulls() == [] and owner.cluster.told == []
    # Pulled by a pod on each node; the pods are gone before any rank is created.
    code, said, _changed = owner.run()
    assert code == 0, said
    assert f"{OLD}: {FIRST}; pulled on spark1, spark2, spark3, spark4." in " ".join(said.split())
    writes = [name for name in owner.cluster.writes if "-pull-" in name or name.startswith("StatefulSet/")]
    assert [name.split("/")[0] for name in writes] == ["Pod"] * 4 + ["-Pod"] * 4 + ["StatefulSet"] * 4
    assert owner.record() == f"{OLD} {FIRST}\n"
    assert len(owner.cluster.pods()) == 4
    # Again: no kubelet is asked to pull.
    owner.cluster.writes.clear()
    assert owner.good() == 0
    assert owner.cluster.writes == []
    # Two nodes cannot pull the new image: both are named, with cause and remedy; the old model keeps serving.
    owner.cluster.faults = {
        (
            "spark2",
            "engine:2",
        ): f"failed to resolve reference: {NEW}: pull access denied, insufficient_scope: authorization failed",
        (
            "spark4",
            "engine:2",
        ): "failed to extract layer sha256:401a: write /var/lib/rancher/k3s: no space left on device",
    }
    text = owner.refused(k8s_dgx_model_profile=OTHER, k8s_dgx_image=NEW)
    assert "spark2: the registry requires authentication" in text and "k3s_registries" in text, text
    assert "spark4: the disk is full. Free space there" in text
    assert "spark1: " not in text.partition("kube_pull")[2].partition("Nothing was stopped.")[0]
    assert not [name for name in owner.cluster.writes if "StatefulSet" in name]
    assert not [name for name in owner.cluster.pods() if "-pull-" in name], "pods are taken away whatever comes of them"
    assert owner.record() == f"{OLD} {FIRST}\n"
    # Once that is fixed, only these two nodes need a pull pod.
    owner.cluster.faults, owner.cluster.writes = {}, []
    assert owner.good(k8s_dgx_model_profile=OTHER, k8s_dgx_image=NEW) > 0
    made = [name for name in owner.pulls() if not name.startswith("-")]
    assert made == ["Pod/serve-default-pull-spark2", "Pod/serve-default-pull-spark4"]
    assert owner.record() == f"{OLD} {FIRST}\n{NEW} {SECOND}\n"


@pytest.mark.long
def test_a_tag_that_was_moved_is_refused_until_it_is_accepted(owner: Owner) -> None:
    """The tag moves, one Spark is reinstalled, and its kubelet pulls what the tag stands for now."""
    owner.good()
    owner.cluster.registry[OLD] = SECOND
    owner.cluster.nodes()["spark3"]["status"]["images"].clear()
    unlike = f"{OLD} is not the same image on all nodes"
    # A restart would make the node that lost the image pull a different one.
    text = owner.refused(k8s_dgx_restart=True)
    assert unlike in text and f"spark3: {SECOND[:19]}" in text and "crictl rmi" in text
    # Without a restart, the rank that already runs a different image is noticed.
    owner.cluster.nodes()["spark3"]["status"]["images"].clear()
    (moved,) = [pod for pod in owner.cluster.pods().values() if pod["spec"]["nodeSelector"][HOSTNAME] == "spark3"]
    moved["status"]["containerStatuses"] = [owner.cluster.pull(moved, moved["spec"]["containers"][0], "spark3")]
    text = owner.refused()
    assert unlike in text and f"spark3: {SECOND[:19]}" in text
    # As the message says: `crictl rmi` on the nodes with the older image, and run again.
    for name in ("spark1", "spark2", "spark4"):
        owner.cluster.nodes()[name]["status"]["images"].clear()
    text = owner.refused()
    assert f"{OLD} is {SECOND} now, and was {FIRST} at the first pull" in text
    assert "k8s_dgx_image_digest_change=accept" in text and owner.record() == f"{OLD} {FIRST}\n"
    owner.good(k8s_dgx_image_digest_change="accept", k8s_dgx_restart=True)
    assert owner.record() == f"{OLD} {SECOND}\n"
    ids = [pod["status"]["containerStatuses"][0]["imageID"] for pod in owner.cluster.pods().values()]
    assert len(ids) == 4 and all(each.endswith(SECOND) for each in ids)
    # Once accepted, the new digest is the recorded one.
    assert owner.good() == 0
    # The record outlives the instance (but not a teardown).
    owner.good(k8s_dgx_state="absent")
    assert owner.record() == f"{OLD} {SECOND}\n"


@pytest.mark.more
def test_an_image_that_no_check_would_see_is_refused(owner: Owner) -> None:
    text = owner.refused(k8s_dgx_serving={"image": NEW})
    assert "k8s_dgx_serving.image" in text and "Name the engine's image in k8s_dgx_image" in text
    assert owner.cluster.writes == []


@pytest.mark.long
def test_where_there_is_no_room_nothing_is_asked_of_a_node(owner: Owner) -> None:
    owner.good(k3s_data_dir=str(owner.folder))
    owner.cluster.writes.clear()
    text = owner.refused(
        k8s_dgx_model_profile=OTHER,
        k8s_dgx_image=NEW,
        k8s_dgx_image_room_gib=10**7,
        k8s_dgx_disk_reserve_gib=20,
        k3s_data_dir=str(owner.folder),
    )
    assert "spark4: " in text and f"{NEW} takes about 10000000.0 GiB (an assumption: k8s_dgx_image_room_gib)" in text
    assert "20 GiB must stay free. Nothing was stopped." in text
    assert owner.cluster.writes == []


@pytest.mark.long
def test_what_is_gone_is_refused_by_name(owner: Owner) -> None:
    text = owner.refused(k8s_dgx_image_archive="engine.tar", k8s_dgx_image_state="present")
    assert "k8s_dgx_image_archive, k8s_dgx_image_state: no longer supported" in text
    assert "k3s_image_archives" in text
    text = owner.refused(k8s_dgx_weights_host="spark2", k8s_dgx_copy_port=4711)
    assert "k8s_dgx_copy_port is now model_weights_copy_port. k8s_dgx_weights_host is now model_weights_host." in text


@pytest.mark.long
def test_a_policy_of_never_and_a_platform_that_is_not_there(owner: Owner) -> None:
    text = owner.refused(k8s_dgx_serving={"image_pull": "Never"})
    assert "spark1: it is missing, and k8s_dgx_serving.image_pull is Never" in text
    owner.cluster.faults = {
        ("", "engine"): f"failed to pull and unpack image: no match for platform in manifest {FIRST}: not found"
    }
    text = owner.refused()
    assert all(f"spark{number}: it is not built for these nodes" in text for number in range(1, 5))
    # What a killed run left is no obstacle.
    owner.cluster.faults = {}
    left = {"metadata": {"name": "serve-default-pull-spark1", "namespace": "dgx-serving"}}
    left["metadata"]["labels"] = {
        "app.kubernetes.io/managed-by": "dgxspark.cluster",
        "dgxspark.cluster/pull": "default",
    }
    spec = {"containers": [{"name": "pull", "image": OLD}], "nodeSelector": {"kubernetes.io/hostname": "spark1"}}
    owner.cluster.put(("v1", "pods", "dgx-serving", "serve-default-pull-spark1"), {**left, "spec": spec, "status": {}})
    owner.good()
    assert not [name for name in owner.cluster.pods() if "-pull-" in name]
