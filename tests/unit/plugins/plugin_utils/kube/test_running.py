"""What an instance runs, as the API tells it: ranks, hosts in their order, and where it answers."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import image
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.running import running
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.serving import serving
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import RANK
from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs as inputs

Plain = dict[str, t.Any]


def cluster(**choices: t.Any) -> dict[str, list[Plain]]:
    """The objects of four ranks as the role applies them, with the pods that the StatefulSets make from them."""
    planned = inputs.plan(attachment=choices.get("attachment", "vf"))
    made = serving(planned, inputs.fabric(4), {"image": inputs.PINNED, **choices})
    sets = [*made["head"], *made["workers"]]
    pods = []
    for number, each in enumerate(reversed(sets)):  # not in the order of ranks
        template = each["spec"]["template"]
        pods.append(
            {
                "metadata": {"name": f"{each['metadata']['name']}-0", "labels": template["metadata"]["labels"]},
                "spec": {**template["spec"], "nodeName": template["spec"]["nodeSelector"]["kubernetes.io/hostname"]},
                "status": {"hostIP": f"192.0.2.{4 - number}"},
            }
        )
    services = [thing for thing in made["common"] if thing["kind"] == "Service"]
    return {"StatefulSet": sets, "Pod": pods, "Service": services, "ConfigMap": []}


def seen(objects: dict[str, list[Plain]], node_names: dict[str, str] | None = None) -> Plain:
    return running("default", "dgx-serving", objects, node_names or {})


def test_ranks_and_hosts_are_told_in_order_and_a_service_within_the_cluster_is_not_reached() -> None:
    found = seen(cluster())
    assert (found["ranks"], found["hosts"]) == (4, ["spark1", "spark2", "spark3", "spark4"])
    assert found["pods"]["namespace"] == "dgx-serving"
    assert found["pods"]["container"] == "rank"
    assert "app.kubernetes.io/instance=default" in found["pods"]["label_selectors"]
    assert found["groups"] == []
    assert "ClusterIP" in found["unreached"] and "dgxspark_verify_groups" in found["unreached"]


def test_a_node_of_another_name_is_its_host() -> None:
    names = {"spark2": "gb10-two.example"}
    assert seen(cluster(node_names=names), names)["hosts"][1] == "spark2"


@pytest.mark.parametrize("what", ["node port", "balancer", "host network"])
def test_where_it_answers_outside_of_the_cluster_is_a_rank_group(what: str) -> None:
    if what == "host network":
        objects = cluster(attachment="host", rdma="privileged")
        port = next(
            p["containerPort"] for p in objects["Pod"][-1]["spec"]["containers"][0]["ports"] if p["name"] == "http"
        )
        url = f"http://192.0.2.1:{port}/v1"
    else:
        objects = cluster(service_type="NodePort" if what == "node port" else "LoadBalancer")
        service = objects["Service"][0]
        service["spec"]["ports"][0]["nodePort"] = 30123
        url = "http://192.0.2.1:30123/v1"
        if what == "balancer":
            service["status"] = {"loadBalancer": {"ingress": [{"ip": "fd00::7"}]}}
            url = f"http://[fd00::7]:{service['spec']['ports'][0]['port']}/v1"
    (group,) = seen(objects)["groups"]
    assert group == {"name": "default", "url": url, "hosts": ["spark1", "spark2", "spark3", "spark4"]}
    assert seen(objects)["unreached"] == ""


def test_a_rank_without_a_pod_is_still_a_rank_and_one_that_leaves_does_not_count() -> None:
    objects = cluster(service_type="NodePort")
    objects["Pod"][0]["metadata"]["deletionTimestamp"] = "2026-11-20T10:00:00Z"
    found = seen(objects)
    assert (found["ranks"], found["hosts"]) == (4, ["spark1", "spark2", "spark3"])
    objects["Pod"] = [pod for pod in objects["Pod"] if pod["metadata"]["labels"][RANK] != "0"]
    assert seen(objects)["unreached"] == "instance 'default' has no running head"


def test_pods_reach_it_at_its_service_whose_key_is_in_a_secret() -> None:
    objects = cluster(api_key_secret="serve-default-api-0123456789abcdef")
    port = objects["Service"][0]["spec"]["ports"][0]["port"]
    found = seen(objects)
    assert found["inside"] == f"http://serve-default.dgx-serving.svc:{port}/v1"
    assert found["secret"] == "serve-default-api-0123456789abcdef"
    objects["Service"][0]["spec"]["clusterIP"] = "fd00::7"
    assert seen(objects)["inside"] == f"http://[fd00::7]:{port}/v1"
    assert seen(cluster())["secret"] is None
    objects["Pod"] = [pod for pod in objects["Pod"] if pod["metadata"]["labels"][RANK] != "0"]
    found = seen(objects)
    assert (found["inside"], found["secret"]) == (None, None)


def test_nothing_that_runs_is_one_clear_error() -> None:
    with pytest.raises(CollectionError, match="no instance 'default' is served in namespace dgx-serving"):
        seen({"StatefulSet": [], "Pod": [], "Service": []})


def test_the_image_that_runs_is_what_containers_were_made_of() -> None:
    objects, digest, other = cluster(), f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
    for pod in objects["Pod"]:
        pod["spec"]["containers"][0]["image"] = "registry.example/engine:1"
        made = {"imageID": f"registry.example/engine@{digest}", "state": {"running": {}}}
        pod["status"]["containerStatuses"] = [made]
    hosts = [f"spark{number}" for number in range(1, 5)]
    whole = {
        "name": "registry.example/engine:1",
        "digest": digest,
        "digests": dict.fromkeys(hosts, digest),
        "problems": [],
    }
    assert seen(objects)["image"] == whole
    # A kubelet reports the index's digest or the manifest's: it is one image where a node lists both.
    objects["Pod"][0]["status"]["containerStatuses"][0]["imageID"] = f"registry.example/engine@{other}"
    both = {"images": [{"names": [f"registry.example/engine@{each}" for each in (digest, other)]}]}
    node = objects["Pod"][0]["spec"]["nodeName"]
    objects["Node"] = [{"metadata": {"name": node}, "status": both}]
    assert seen(objects)["image"]["problems"] == []
    # A node without a rank does not count.
    objects["Node"] = [{"metadata": {"name": "elsewhere"}, "status": both}]
    assert seen(objects)["image"]["problems"]
    objects["Pod"][0]["status"]["containerStatuses"][0]["imageID"] = f"registry.example/engine@{digest}"
    del objects["Node"]
    # Another image than came first; and not the same image on all ranks.
    objects["ConfigMap"] = [image.record_object("dgx-serving", {"registry.example/engine:1": other})]
    assert other in seen(objects)["image"]["problems"][0]
    objects["ConfigMap"] = []
    objects["Pod"][0]["status"]["containerStatuses"][0]["imageID"] = f"registry.example/engine@{other}"
    found = seen(objects)["image"]
    assert found["digest"] is None and "spark4: sha256:bbb" in found["problems"][0]
