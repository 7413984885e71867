"""The platform's parts: which are made, for whom, and what a node is given."""

from __future__ import annotations

import copy
import json
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import networks
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.platform import PARTS, platform
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.serving import serving
from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs as inputs

Plain = dict[str, t.Any]


def part(name: str, count: int = 4, **kubernetes: t.Any) -> list[Plain]:
    return list(platform(inputs.fabric(count), {"vf_indexes": [0], **kubernetes})[name]["objects"])


def kind(objects: list[Plain], name: str) -> Plain:
    return next(each for each in objects if each["kind"] == name)


@pytest.mark.parametrize(
    ("choice", "present"),
    [
        ({}, set(PARTS)),
        ({"rdma": "privileged"}, set(PARTS) - {"sriov_device_plugin"}),  # the host-device plugin stays
        ({"attachment": "host"}, {"runtime_class", "nvidia_device_plugin", "sriov_device_plugin"}),
        ({"attachment": "host", "rdma": "privileged"}, {"runtime_class", "nvidia_device_plugin"}),
        ({"parts": {"multus": "unmanaged", "runtime_class": "absent"}}, set(PARTS) - {"multus", "runtime_class"}),
    ],
)
def test_parts_follow_from_the_attachment_unless_the_owner_says_otherwise(choice: Plain, present: set[str]) -> None:
    made = platform(inputs.fabric(4), choice)
    assert {name for name, each in made.items() if each["state"] == "present"} == present


@pytest.mark.parametrize("rdma", inputs.ACCESSES)
def test_one_attachment_for_each_function_and_vf_in_use(rdma: str) -> None:
    made = [
        each for each in part("networks", rdma=rdma, vf_indexes=[0, 1]) if each["kind"] == "NetworkAttachmentDefinition"
    ]
    assert [each["metadata"]["name"] for each in made] == ["p0f0v0", "p0f1v0", "p0f0v1", "p0f1v1"]
    for each in made:
        device, tuning = json.loads(each["spec"]["config"])["plugins"]
        assert ("pciBusID" in device) is (rdma == "privileged")
        assert (networks.RESOURCE in each["metadata"].get("annotations", {})) is (rdma == "device_plugin")
        assert tuning["mtu"] == 9000
        assert tuning["sysctl"] == {
            "net.ipv4.conf.IFNAME.arp_ignore": "1",
            "net.ipv4.conf.IFNAME.arp_announce": "2",
            "net.ipv4.conf.IFNAME.rp_filter": "2",
        }


def test_nodes_whose_vf_has_another_address_get_attachments_of_their_own() -> None:
    fabric = copy.deepcopy(inputs.fabric(4))
    fabric["spark2"]["functions"][0]["vfs"][0]["pci"] = "000a:0b:00.1"
    choice = {"rdma": "privileged"}
    made = platform(fabric, {**choice, "vf_indexes": [0]})["networks"]["objects"]
    devices = {
        each["metadata"]["name"]: json.loads(each["spec"]["config"])["plugins"][0]["pciBusID"]
        for each in made
        if each["kind"] == "NetworkAttachmentDefinition"
    }
    assert devices == {
        "p0f0v0-spark1": "0000:0b:00.0",
        "p0f0v0-spark2": "000a:0b:00.1",
        "p0f0v0-spark3": "0000:0b:00.0",
        "p0f0v0-spark4": "0000:0b:00.0",
        "p0f1v0": "0001:0b:00.0",
    }
    served = serving(inputs.plan(), fabric, {**choice, "image": inputs.PINNED})
    assert networks.missing([*served["workers"], *served["head"]], made) == []


def test_a_run_that_does_not_see_every_spark_writes_no_attachment_that_others_ask_for() -> None:
    whole = copy.deepcopy(inputs.fabric(4))
    for name in ("spark3", "spark4"):
        whole[name]["functions"][0]["vfs"][0]["pci"] = "000a:0b:00.1"
    choice = {"rdma": "privileged", "vf_indexes": [0]}
    plan = inputs.plan("glm-4.7-nvfp4", 2, parallel={"nodes": 2, "tp": 2, "pp": 1, "ep": 1})

    def run(*hosts: str) -> tuple[dict[str, str], set[tuple[str, str]]]:
        """Return what a run with -l writes, and which attachments its ranks ask for."""
        seen = copy.deepcopy(whole)
        for other in set(seen) - set(hosts):
            for function in seen[other]["functions"]:
                for vf in function["vfs"]:
                    vf["netdev"] = vf["pci"] = None
        ranks = [{**rank, "host": host} for rank, host in zip(plan["ranks"], hosts, strict=True)]
        served = serving({**plan, "ranks": ranks}, seen, {"rdma": "privileged", "image": inputs.PINNED})
        made = platform(seen, {**choice, "hosts": list(hosts)})["networks"]["objects"]
        assert networks.missing([*served["workers"], *served["head"]], made) == []
        written = {
            each["metadata"]["name"]: each["spec"]["config"] for each in made if "config" in each.get("spec", {})
        }
        return written, networks.needed([*served["workers"], *served["head"]])

    first, asked = run("spark1", "spark2")
    second, _others = run("spark3", "spark4")
    assert not {name for _namespace, name in asked} & set(second)
    # A run that sees all of them writes the same under each name.
    every = platform(whole, choice)["networks"]["objects"]
    configs = {each["metadata"]["name"]: each["spec"]["config"] for each in every if "config" in each.get("spec", {})}
    both = first | second
    again = set(configs) & set(both)
    assert {f"p0f0v0-spark{number}" for number in range(1, 5)} <= again
    assert {name: configs[name] for name in again} == {name: both[name] for name in again}


def test_every_planned_vf_can_be_had_so_that_instances_do_not_take_each_other_s_away() -> None:
    names = {each["metadata"]["name"] for each in platform(inputs.fabric(4), {})["networks"]["objects"]}
    assert {"p0f0v0", "p0f1v0", "p0f0v1", "p0f1v1"} <= names


@pytest.mark.parametrize("rdma", inputs.ACCESSES)
def test_a_missing_attachment_is_found_before_anything_starts(rdma: str) -> None:
    served = serving(inputs.plan(), inputs.fabric(4), {"rdma": rdma, "image": inputs.PINNED})
    there = part("networks", rdma=rdma)
    ranks = [*served["workers"], *served["head"]]
    assert networks.missing(ranks, there) == []
    said = networks.missing(ranks, [each for each in there if each["metadata"]["name"] != "p0f1v0"])
    assert len(said) == 1
    assert "dgx-serving/p0f1v0 does not exist" in said[0]


def test_each_node_offers_its_own_vfs_by_pci_address() -> None:
    fabric = copy.deepcopy(inputs.fabric(4))
    fabric["spark3"]["functions"][0]["vfs"][1]["pci"] = "000a:0b:00.1"
    objects = platform(fabric, {"vf_indexes": [1]})["sriov_device_plugin"]["objects"]
    files = {name: json.loads(text)["resourceList"] for name, text in kind(objects, "ConfigMap")["data"].items()}
    assert sorted(files) == [f"spark{number}.json" for number in range(1, 5)]
    offered = {r["resourceName"]: r["selectors"][0] for r in files["spark3.json"]}
    assert offered["p0f0v1"] == {"pciAddresses": ["000a:0b:00.1"], "isRdma": True}
    assert {f"dgxspark.cluster/{name}" for name in offered} == {"dgxspark.cluster/p0f0v1", "dgxspark.cluster/p0f1v1"}


SPARK, VFS = "dgxspark.cluster/spark", "dgxspark.cluster/vfs"


def cluster(**labels: Plain) -> list[Plain]:
    """Return a cluster's nodes: four Sparks, with more labels by name, and a control plane without GPU."""
    names = [f"spark{number}" for number in range(1, 5)] + ["control"]
    return [
        {"kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name} | labels.get(name, {})}}
        for name in names
    ]


def labelled(made: Plain) -> dict[str, Plain]:
    return {each["metadata"]["name"]: each["metadata"]["labels"] for each in made["nodes"]["objects"]}


def files_of(made: Plain) -> dict[str, str]:
    return dict(kind(made["sriov_device_plugin"]["objects"], "ConfigMap")["data"])


def test_daemons_are_kept_to_the_sparks_by_a_label_that_other_nodes_do_not_get() -> None:
    made = platform(inputs.fabric(4), {}, there=cluster(spark1={SPARK: "true"}))
    for name, wanted in (("nvidia_device_plugin", {SPARK}), ("sriov_device_plugin", {SPARK, VFS}), ("multus", {SPARK})):
        spec = kind(made[name]["objects"], "DaemonSet")["spec"]["template"]["spec"]
        assert spec["nodeSelector"] == dict.fromkeys(wanted, "true")
        assert "affinity" not in spec
    assert labelled(made) == {f"spark{number}": {SPARK: "true", VFS: "true"} for number in range(1, 5)}
    # A node that has them is not patched again: its status, which kubelets update all the time, would count as a change.
    assert not labelled(platform(inputs.fabric(4), {}, there=cluster(**labelled(made))))
    renamed = platform(inputs.fabric(1), {"hosts": ["box"], "node_names": {"box": "spark3"}}, there=cluster())
    assert labelled(renamed) == {"spark3": {SPARK: "true"}}


def test_a_run_that_sees_two_of_four_leaves_the_others_as_they_are() -> None:
    fabric = copy.deepcopy(inputs.fabric(4))
    for host in ("spark3", "spark4"):  # not seen: what is read from a node is not known
        for function in fabric[host]["functions"]:
            for vf in function["vfs"]:
                vf.update(pci=None, netdev=None, hca=None)
    before = platform(inputs.fabric(4), {})
    config = kind(before["sriov_device_plugin"]["objects"], "ConfigMap")
    few = {"hosts": ["spark1", "spark2"]}
    # An earlier run saw all four: their files stay, and with them the daemons' templates, so nothing is restarted.
    there = cluster(**{f"spark{number}": {SPARK: "true", VFS: "true"} for number in range(1, 5)})
    again = platform(fabric, few, there=[*there, config])
    assert files_of(again) == files_of(before)
    assert again["sriov_device_plugin"]["objects"][1] == before["sriov_device_plugin"]["objects"][1]
    # New nodes, all with the label of role k3s: no file, no plugin that would exit at once.
    fresh = platform(fabric, few, there=cluster(**{f"spark{number}": {SPARK: "true"} for number in range(1, 5)}))
    assert set(files_of(fresh)) == {"spark1.json", "spark2.json"}
    assert set(labelled(fresh)) == {"spark1", "spark2"}
    # Installed by an earlier release, which named the nodes: the others need the label before the daemons select by it.
    pods = [
        {
            "kind": "Pod",
            "metadata": {"name": "x", "labels": {"dgxspark.cluster/part": "multus"}},
            "spec": {"nodeName": n},
        }
        for n in ("spark1", "spark4")
    ]
    older = platform(fabric, few, there=[*cluster(), config, *pods])
    assert labelled(older)["spark4"] == {SPARK: "true", VFS: "true"}
    # A node that has left the cluster takes its file with it.
    assert set(files_of(platform(fabric, few, there=[*there[:3], config]))) == {f"spark{n}.json" for n in (1, 2, 3)}
    # Where interfaces are named, those of unseen nodes are not needed, and ranks here find their attachments.
    named = {"rdma": "privileged"}
    made = platform(fabric, {**few, **named})["networks"]["objects"]
    plan = inputs.plan("glm-4.7-nvfp4", 2, parallel={"nodes": 2, "tp": 2, "pp": 1, "ep": 1})
    served = serving(plan, fabric, {**named, "image": inputs.PINNED})
    assert networks.missing([*served["workers"], *served["head"]], made) == []


def test_a_single_spark_has_no_vfs_to_hand_out_and_nobody_to_do_it() -> None:
    made = platform({}, {"hosts": ["spark1"]})
    states = {name: made[name]["state"] for name in PARTS}
    assert {name for name, state in states.items() if state == "present"} == {"runtime_class", "nvidia_device_plugin"}
    assert set(states.values()) == {"present", "unmanaged"}
    # The owner's setting counts all the same.
    assert platform({}, {"parts": {"multus": "present"}})["multus"]["state"] == "present"


def test_a_changed_configuration_restarts_its_daemon() -> None:
    def told(**choice: t.Any) -> Plain:
        template = kind(part("nvidia_device_plugin", **choice), "DaemonSet")["spec"]["template"]
        return dict(template["metadata"]["annotations"])

    assert told() == told()
    assert told() != told(gpu_shares=2)


def test_shares_let_several_instances_hold_the_gpu() -> None:
    config = json.loads(kind(part("nvidia_device_plugin", gpu_shares=3), "ConfigMap")["data"]["config.json"])
    assert config["sharing"]["timeSlicing"]["resources"] == [{"name": "nvidia.com/gpu", "replicas": 3}]
    assert "sharing" not in json.loads(kind(part("nvidia_device_plugin"), "ConfigMap")["data"]["config.json"])


def test_multus_is_where_k3s_looks() -> None:
    objects = part("multus")
    spec = kind(objects, "DaemonSet")["spec"]["template"]["spec"]
    folders = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in spec["volumes"]}
    assert folders["cni"] == "/var/lib/rancher/k3s/agent/etc/cni/net.d"
    # The links in data/cni point to its siblings, so the parent is mounted, under its own path.
    assert folders["cni-bin"] == "/var/lib/rancher/k3s/data"
    mounts = {mount["name"]: mount for mount in spec["containers"][0]["volumeMounts"]}
    assert mounts["cni-bin"]["mountPath"] == "/var/lib/rancher/k3s/data"
    assert (
        json.loads(kind(objects, "ConfigMap")["data"]["daemon-config.json"])["binDir"]
        == "/var/lib/rancher/k3s/data/cni"
    )
    assert "Bidirectional" not in json.dumps(spec)
    assert "/var/lib/rancher/k3s/data/cni" in spec["initContainers"][0]["command"]


def test_multus_serves_no_more_pods_at_a_time_than_its_memory_has_room_for() -> None:
    objects = part("multus")
    bound = json.loads(kind(objects, "ConfigMap")["data"]["daemon-config.json"])["connectionLimit"]
    container = kind(objects, "DaemonSet")["spec"]["template"]["spec"]["containers"][0]
    limit = int(container["resources"]["limits"]["memory"].removesuffix("Mi"))
    # 60 MiB for the daemon and 55 MB for each plugin that it starts (multus-cni#1510).
    assert bound > 1 and 60 + bound * 55e6 / 2**20 < limit


def test_where_k3s_s_data_has_moved_nothing_points_to_the_usual_place() -> None:
    made = platform(inputs.fabric(4), {"data_dir": "/data/k3s/"})
    assert "/var/lib/rancher" not in json.dumps(made)
    assert made["cni_plugins"]["install"]["folder"] == "/data/k3s/data/cni"
    spec = kind(made["multus"]["objects"], "DaemonSet")["spec"]["template"]["spec"]
    folders = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in spec["volumes"]}
    assert (folders["cni"], folders["cni-bin"]) == ("/data/k3s/agent/etc/cni/net.d", "/data/k3s/data")
    assert {mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"] if mount["name"] == "cni-bin"} == {
        "/data/k3s/data"
    }


def test_other_folders_and_images_are_the_owner_s() -> None:
    own = "mirror.example:5000/multus@sha256:" + "a" * 64
    objects = part("multus", cni_bin_dir="/opt/cni/bin", cni_conf_dir="/etc/cni/net.d", images={"multus": own})
    spec = kind(objects, "DaemonSet")["spec"]["template"]["spec"]
    assert {spec["containers"][0]["image"], spec["initContainers"][0]["image"]} == {own}
    folders = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in spec["volumes"]}
    assert (folders["cni"], folders["cni-bin"]) == ("/etc/cni/net.d", "/opt/cni/bin")


def test_the_cni_plugins_of_every_architecture_have_a_checksum_and_multus_folder() -> None:
    install = platform(inputs.fabric(4), {})["cni_plugins"]["install"]
    assert set(install["files"]) == {"arm64", "amd64"}
    assert all(len(entry["sha256"]) == 64 for entry in install["files"].values())
    assert set(install["members"]) == {"host-device", "static", "tuning"}
    assert install["folder"] == "/var/lib/rancher/k3s/data/cni"
    # The plugins that the attachments name are exactly those installed.
    for each in part("networks"):
        if each["kind"] == "NetworkAttachmentDefinition":
            device, tuning = json.loads(each["spec"]["config"])["plugins"]
            assert {device["type"], device["ipam"]["type"], tuning["type"]} == set(install["members"])


def test_every_image_is_pinned_by_digest() -> None:
    for name in ("multus", "sriov_device_plugin", "nvidia_device_plugin"):
        spec = kind(part(name), "DaemonSet")["spec"]["template"]["spec"]
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            assert "@sha256:" in container["image"]


def test_everything_is_found_again_by_its_label() -> None:
    for name, each in platform(inputs.fabric(4), {}).items():
        for made in each["objects"]:
            assert made["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "dgxspark.cluster"
            if made["kind"] != "Namespace":
                assert made["metadata"]["labels"]["dgxspark.cluster/part"] == name


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        ({"parts": {"cilium": "present"}}, "'cilium' is not one of"),
        ({"parts": {"multus": "gone"}}, r"parts\.multus: 'gone' is not one of"),
        ({"gpu_shares": 0}, "gpu_shares"),
        ({"images": {"networks": "x"}}, "'networks' is not a part with an image"),
        ({"images": {"multus": "not an image"}}, r"images\.multus"),
        ({"colour": 1}, "unknown key 'colour'"),
        ({"data_dir": "k3s"}, r"data_dir: 'k3s' is not an absolute path"),
    ],
)
def test_a_bad_choice_is_refused(choice: Plain, text: str) -> None:
    with pytest.raises(CollectionError, match=text):
        platform(inputs.fabric(4), choice)


def test_an_unseen_pci_address_is_refused_only_where_it_is_needed() -> None:
    fabric = copy.deepcopy(inputs.fabric(4))
    fabric["spark4"]["functions"][0]["vfs"][0]["pci"] = None
    with pytest.raises(CollectionError, match="spark4: p0f0v0: its PCI address"):
        platform(fabric, {})
    with pytest.raises(CollectionError, match="spark4: p0f0v0: its PCI address"):
        platform(fabric, {"rdma": "privileged"})
    platform(fabric, {"parts": {"sriov_device_plugin": "absent"}})


@pytest.mark.parametrize("rdma", inputs.ACCESSES)
def test_a_vf_that_is_in_a_pod_is_still_the_same_vf(rdma: str) -> None:
    """Its interface is not on the node then: the next run makes the same objects."""
    away = copy.deepcopy(inputs.fabric(4))
    for function in away["spark2"]["functions"]:
        function["vfs"][0]["netdev"] = None
    assert platform(away, {"rdma": rdma}) == platform(inputs.fabric(4), {"rdma": rdma})
    choice = {"rdma": rdma, "image": inputs.PINNED}
    assert serving(inputs.plan(), away, choice) == serving(inputs.plan(), inputs.fabric(4), choice)
