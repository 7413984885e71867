"""The actions kube_change and kube_objects against a scripted API: an instance's objects are read from the cluster, and a change is chosen."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask, image
from ansible_collections.dgxspark.cluster.tests.support.rollouts import in_cluster, served
from ansible_collections.dgxspark.cluster.tests.unit.actions import run

Plain = dict[str, t.Any]
OWN = {"namespace": "dgx-serving", "instance": "default", "kubeconfig": "/k"}
LABELS = ["app.kubernetes.io/managed-by=dgxspark.cluster", "app.kubernetes.io/instance=default"]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Plain]]:
    """The objects in the API, by kind."""
    there: dict[str, list[Plain]] = {}

    def objects(
        _action: t.Any, kind: tuple[str, str], place: Plain, labels: t.Sequence[str], *_more: t.Any
    ) -> list[Plain]:
        own = kind[1] in ("StatefulSet", "ConfigMap", "NetworkPolicy", "Role", "RoleBinding", "Service", "Pod")
        if list(labels) == image.OURS:
            return there.get("record", [])
        assert place == {"kubeconfig": "/k", **({"namespace": "dgx-serving"} if own else {})}
        assert list(labels) == (LABELS if own else [])
        return there.get(kind[1], [])

    monkeypatch.setattr(ask, "objects", objects)
    return there


def test_what_is_not_there_is_started_and_nodes_and_networks_that_lack_are_named(
    cluster: dict[str, list[Plain]],
) -> None:
    made = run("kube_change", served=served(), **OWN)
    assert (made["action"], made["there"], made["changed"]) == ("start", [], False)
    assert any("spark1" in problem for problem in made["problems"])
    assert run("kube_change", served=served(), judge=False, **OWN)["problems"] == []


def test_another_plan_is_replaced_and_can_be_put_back(cluster: dict[str, list[Plain]]) -> None:
    old = served("glm-4.7-nvfp4")
    for each in in_cluster(old):
        cluster.setdefault(each["kind"], []).append(each)
    made = run("kube_change", served=served(), judge=False, **OWN)
    assert (made["action"], made["old"], len(made["there"])) == ("replace", old["plan"], len(in_cluster(old)))
    assert len(made["restore"]) == 4
    policies = [each for each in old["common"] if each["kind"] == "NetworkPolicy"]
    cluster["NetworkPolicy"] = policies
    assert run("kube_change", served=served(), judge=False, **OWN)["policies"] == policies
    made = run("kube_change", served=served(), judge=False, **OWN)
    assert {each["kind"] for each in made["switched"]} == {"NetworkPolicy", "Role", "RoleBinding"}
    assert not {"NetworkPolicy", "Role", "RoleBinding"} & {each["kind"] for each in made["before"]}
    assert run("kube_change", served=old, judge=False, **OWN)["action"] == "none"
    assert run("kube_change", served=old, judge=False, **OWN)["switched"] == []
    assert run("kube_change", served=old, judge=False, restart=True, **OWN)["action"] == "replace"
    kinds = [{"api_version": "apps/v1", "kind": "StatefulSet"}, {"api_version": "v1", "kind": "ConfigMap"}]
    kept = run("kube_objects", kinds=kinds, **OWN)["kept"]
    assert (kept["plan"], len(kept["workers"]), kept["head"]) == (old["plan"], 3, old["head"])
    # What kube_objects keeps of an instance is what kube_change takes.
    assert run("kube_change", served=kept, judge=False, **OWN)["action"] == "none"


def test_ranks_of_two_images_or_of_another_one_than_came_first_are_replaced(cluster: dict[str, list[Plain]]) -> None:
    made, first, other = served(), f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
    for each in in_cluster(made):
        cluster.setdefault(each["kind"], []).append(each)
        if each["kind"] == "StatefulSet":
            template = each["spec"]["template"]
            spec = {**template["spec"], "nodeName": template["spec"]["nodeSelector"]["kubernetes.io/hostname"]}
            spec["containers"] = [{"image": "registry.example/engine:1"}]
            pod = {"metadata": {"labels": template["metadata"]["labels"]}, "spec": spec}
            cluster.setdefault("Pod", []).append(pod)

    def runs(*digests: str) -> Plain:
        for pod, digest in zip(cluster["Pod"], digests, strict=True):
            pod["status"] = {"containerStatuses": [{"imageID": f"registry.example/engine@{digest}"}]}
        return run("kube_change", served=made, **OWN)

    cluster["record"] = [image.record_object("dgx-serving", {"registry.example/engine:1": first})]
    kept = runs(first, first, first, first)
    assert (kept["action"], kept["ran"]["problems"]) == ("none", [])
    mixed = runs(first, first, other, first)
    assert mixed["action"] == "replace" and "is not the same image on all nodes" in mixed["ran"]["problems"][0]
    moved = runs(other, other, other, other)
    assert moved["action"] == "replace" and "k8s_dgx_image_digest_change=accept" in moved["ran"]["problems"][0]
    # An index's digest and its manifest's are one image, and putting old ranks back checks no image.
    names = [f"registry.example/engine@{each}" for each in (other, first)]
    cluster["Node"] = [{"metadata": {"name": "spark1"}, "status": {"images": [{"names": names}]}}]
    assert runs(first, first, other, first)["action"] == "none"
    del cluster["Node"]
    assert run("kube_change", served=made, judge=False, **OWN)["action"] == "none"


def test_an_api_that_does_not_answer_is_one_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: t.Any) -> list[Plain]:
        raise ask.CollectionError("the Kubernetes API did not answer: refused")

    monkeypatch.setattr(ask, "objects", refuse)
    assert run("kube_objects", kinds=[{"api_version": "v1", "kind": "ConfigMap"}], **OWN)["msg"].startswith(
        "dgxspark.cluster.kube_objects: the Kubernetes API did not answer"
    )
