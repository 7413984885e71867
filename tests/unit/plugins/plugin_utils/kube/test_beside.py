"""A cluster that was there before: what others have put into it is used or refused, and never among what we write."""

from __future__ import annotations

import copy
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import beside
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.multus import CRD
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.platform import PARTS, platform
from ansible_collections.dgxspark.cluster.tests.support.others import (
    MULTUS,
    NVIDIA,
    SRIOV,
    VFS,
    crd,
    daemon,
    nodes,
)
from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs as inputs

Plain = dict[str, t.Any]


def find(there: list[Plain], **chosen: t.Any) -> beside.Found:
    return beside.find(inputs.fabric(4), chosen, there)


def test_an_empty_cluster_of_k3s_has_nothing_of_others() -> None:
    assert find(nodes()) == beside.Found()
    own = [each for part in PARTS for each in platform(inputs.fabric(4), {})[part]["objects"]]
    assert find([*nodes(), *own]) == beside.Found()


def test_what_others_have_put_there_and_ranks_can_use_is_used_and_not_made() -> None:
    there = [*nodes(offers={**VFS, "nvidia.com/gpu": "1"}), MULTUS, SRIOV, NVIDIA, crd()]
    found = find(there)
    assert not found.refused
    assert set(found.used) == {"multus", "sriov_device_plugin", "nvidia_device_plugin"}
    assert "DaemonSet/kube-system/kube-multus-ds" in found.used["multus"]
    made = platform(inputs.fabric(4), beside.extra(found), there=there)
    assert {name for name in PARTS if made[name]["state"] == "present"} == {"runtime_class", "cni_plugins", "networks"}
    assert not made["nodes"]["objects"], "no label is needed where no daemon is ours"


K3S_CONF = "/var/lib/rancher/k3s/agent/etc/cni/net.d"


def thick(*paths: str) -> dict[str, t.Any]:
    """Return another's Multus of this release, which sees these folders of the node."""
    return daemon("kube-multus-ds", "ghcr.io/a/multus-cni:v4.2.4-thick", paths=paths)


@pytest.mark.parametrize(
    ("there", "reason"),
    [
        ([{**MULTUS, "spec": daemon("x", "a/multus-cni:v3.9.3", paths=("/", K3S_CONF))["spec"]}, crd()], "it is 3.9"),
        ([thick("/etc/cni/net.d", "/opt/cni/bin"), crd()], "does not write to /var/lib/rancher/k3s/agent/etc/cni/net.d"),
        ([thick(K3S_CONF, "/opt/cni/bin"), crd()], "does not see /var/lib/rancher/k3s/data/cni"),
        ([MULTUS], f"there is no CustomResourceDefinition {CRD}"),
        ([SRIOV], "ranks need 1 × dgxspark.cluster/p0f0v0"),
        ([NVIDIA], "spark1 offers no device, and ranks need 1 × nvidia.com/gpu"),
        ([{"kind": "ConfigMap", "metadata": {"name": "cilium-config", "namespace": "kube-system"}, "data": {"cni-exclusive": "true"}}], "cni.exclusive=false"),
        ([crd(scope="Cluster")], "does not serve v1 in namespaces"),
        ([{"kind": "Namespace", "metadata": {"name": "dgx-serving", "labels": {beside.POLICY: "restricted"}}}], "enforces Pod Security restricted"),
        ([{**MULTUS, "spec": daemon("x", "a/multus-cni:v4.3.0", select={"pool": "a"})["spec"]}, crd()], "runs on spark1 but not on spark2, spark3, spark4"),
    ],
)  # fmt: skip
def test_what_ranks_cannot_use_is_refused_with_its_reason(there: list[Plain], reason: str) -> None:
    found = find([*nodes(spark1={"pool": "a"}), *there])
    assert len(found.refused) == 1
    assert reason in found.refused[0]
    assert beside.refusal(found).endswith("Nothing was changed in the cluster.")


def test_an_owner_s_word_counts() -> None:
    there = [*nodes(), MULTUS, SRIOV, NVIDIA]
    parts = dict.fromkeys(("multus", "sriov_device_plugin", "nvidia_device_plugin"), "unmanaged")
    assert not find(there, parts=parts).refused
    # A second SR-IOV device plugin can run beside the first if their pools differ, a second Multus cannot.
    assert not find([*nodes(), SRIOV], parts={"sriov_device_plugin": "present"}).refused
    assert (
        "Leave k8s_platform_parts.multus out" in find([*nodes(), MULTUS, crd()], parts={"multus": "present"}).refused[0]
    )
    # Nothing is refused where everything goes.
    assert not find(there, parts=dict.fromkeys(PARTS, "absent")).refused


def test_ours_and_another_s_at_once_are_refused() -> None:
    own = platform(inputs.fabric(4), {})["multus"]["objects"]
    assert "so does ours (DaemonSet/kube-system/dgxspark-multus)" in find([*nodes(), *own, MULTUS, crd()]).refused[0]


def test_daemons_that_stay_off_the_sparks_do_not_matter() -> None:
    away = {"nodeSelector": {"kubernetes.io/arch": "amd64"}}
    others = copy.deepcopy([MULTUS, SRIOV, NVIDIA])
    for each in others:
        each["spec"]["template"]["spec"].update(away)
    assert find([*nodes(), *others]) == beside.Found()
    named = {"matchExpressions": [{"key": "nvidia.com/gpu.present", "operator": "In", "values": ["true"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [named]}}}
    plugin = copy.deepcopy(NVIDIA)
    plugin["spec"]["template"]["spec"]["affinity"] = affinity
    assert find([*nodes(), plugin]) == beside.Found()
    labelled = {f"spark{number}": {"nvidia.com/gpu.present": "true"} for number in range(1, 5)}
    assert "nvidia_device_plugin" in find([*nodes(offers={"nvidia.com/gpu": "1"}, **labelled), plugin]).used


def test_a_shared_gpu_is_its_plugin_s_owner_s_choice() -> None:
    there = [*nodes(offers={"nvidia.com/gpu": "1"}), NVIDIA]
    assert "spark1 offers 1 × nvidia.com/gpu, and ranks need 2 × nvidia.com/gpu" in find(there, gpu_shares=2).refused[0]


def test_nodes_that_k3s_did_not_make_have_the_usual_folders() -> None:
    there = nodes(version="v1.36.4")
    made = platform(inputs.fabric(4), beside.extra(find(there)), there=there)
    assert made["cni_plugins"]["install"]["folder"] == "/opt/cni/bin"
    paths = {
        volume["hostPath"]["path"]
        for volume in made["multus"]["objects"][-1]["spec"]["template"]["spec"]["volumes"]
        if "hostPath" in volume
    }
    assert {"/opt/cni/bin", "/etc/cni/net.d"} <= paths
    assert not [path for path in paths if "rancher" in path]
    mixed = [*nodes()[:2], *there[2:]]
    assert "one Multus has one pair for all" in find(mixed).refused[0]
    assert not find(mixed, cni_bin_dir="/opt/cni/bin", cni_conf_dir="/etc/cni/net.d").refused


def test_pods_in_the_fabric_s_network_are_refused() -> None:
    address = inputs.fabric(4)["spark2"]["functions"][0]["vfs"][0]["address"]
    there = nodes()
    there[4]["spec"] = {"podCIDRs": [f"{address}/24"]}
    assert "VFs of spark" in find(there).refused[0]


def test_a_runtime_without_the_handler_is_refused_where_the_node_says_so() -> None:
    there = nodes()
    there[0]["status"]["runtimeHandlers"] = [{"name": ""}, {"name": "runc"}]
    assert "The container runtime of spark1 has no handler nvidia" in find(there).refused[0]
    there[0]["status"]["runtimeHandlers"].append({"name": "nvidia"})
    assert not find(there).refused


def test_objects_of_others_are_used_or_stop_the_run_and_are_never_applied() -> None:
    made = [each for part in platform(inputs.fabric(4), {}).values() for each in part["objects"]]
    namespace = {"kind": "Namespace", "metadata": {"name": "dgx-serving", "labels": {"team": "a"}}}
    apply, stays = beside.kept(made, [namespace, crd()])
    assert len(apply) == len(made) - 2
    assert sorted(stays) == [f"CustomResourceDefinition/{CRD}: used as it is", "Namespace/dgx-serving: used as it is"]
    class_ = {"kind": "RuntimeClass", "metadata": {"name": "dgxspark-nvidia"}}
    with pytest.raises(CollectionError, match="RuntimeClass/dgxspark-nvidia exists and is not this collection's"):
        beside.kept(made, [class_])


def _pick() -> st.SearchStrategy[list[Plain]]:
    return st.lists(
        st.sampled_from([MULTUS, SRIOV, NVIDIA, crd(), crd(scope="Cluster")]),
        unique_by=lambda each: each["metadata"]["name"],
    )


@given(
    others=_pick(),
    offers=st.sampled_from([{}, VFS, {**VFS, "nvidia.com/gpu": "1"}]),
    version=st.sampled_from(["", "v1.36.4", "v1.36.4+k3s1"]),
    parts=st.dictionaries(st.sampled_from(PARTS), st.sampled_from(["present", "absent", "unmanaged"])),
    attachment=st.sampled_from(inputs.ATTACHMENTS),
    rdma=st.sampled_from(inputs.ACCESSES),
)
def test_a_part_is_ours_or_another_s_or_the_run_stops(
    others: list[Plain], offers: Plain, version: str, parts: dict[str, str], attachment: str, rdma: str
) -> None:
    there = [*nodes(version=version, offers=offers), *others]
    before = copy.deepcopy(there)
    found = find(there, parts=parts, attachment=attachment, rdma=rdma)
    assert there == before
    if found.refused:
        return
    more = beside.extra(found)
    made = platform(
        inputs.fabric(4),
        {"attachment": attachment, "rdma": rdma, **more, "parts": {**parts, **more["parts"]}},
        there=there,
    )
    names = {each["metadata"]["name"] for each in others}
    for part, theirs in (("multus", MULTUS), ("nvidia_device_plugin", NVIDIA)):
        assert not (made[part]["state"] == "present" and theirs["metadata"]["name"] in names), "two of one kind"
    applied = [each for part in made.values() if part["state"] in ("present", "labelled") for each in part["objects"]]
    kept, _stays = beside.kept(applied, others)
    foreign = {(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in others}
    assert not foreign & {(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in kept}
