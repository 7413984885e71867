"""site.yml and teardown.yml as an owner runs them, with the tags platform and serve, against the stand-in of an API server."""

from __future__ import annotations

import json
import pathlib
import re
import typing as t

import pytest
import yaml

from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.support.kube_owner import Owner
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import names

pytestmark = pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN)
PARTS = ("--tags", "platform,serve")


@pytest.fixture
def owner(tmp_path: pathlib.Path) -> t.Iterator[Owner]:
    made = Owner(tmp_path)
    yield made
    made.server.shutdown()


@pytest.mark.long
def test_site_serves_a_named_model_and_teardown_takes_everything_away(owner: Owner) -> None:
    owner.choose("site.yml")
    assert owner.good(*PARTS) > 0
    assert {pod["spec"]["nodeName"] for pod in owner.cluster.pods().values()} == set(names(4))
    assert "DaemonSet" in owner.kinds()
    owner.cluster.writes.clear()
    assert owner.good(*PARTS) == 0
    assert owner.cluster.writes == []
    # Teardown removes a second instance too, although the owner does not name it.
    second = {"instance": {"name": "second", "vf_index": 1, "port": 30001, "dist_port": 51000}}
    assert owner.good(*PARTS, k8s_dgx_overrides=second, k8s_platform_gpu_shares=2) > 0
    owner.choose("models.yml")
    owner.cluster.writes.clear()
    code, said, changed = owner.run(k8s_dgx_free_gib=20)
    assert (code, changed, owner.cluster.writes) == (0, 0, []), said
    for name, port, vfs in (("default", 30000, "p0f0v0 p0f1v0"), ("second", 30001, "p0f0v1 p0f1v1")):
        assert re.search(
            rf"{name}: {harness.MODEL} on spark1, .*: 4 of 4 ranks ready, .* port {port}, .*VFs {vfs}", said
        ), said
    assert "no VF index is free on all of spark1" in said
    owner.choose("teardown.yml")
    code, said, changed = owner.run(*PARTS, "--check")
    assert (code, changed > 0) == (0, True), said
    assert len(owner.cluster.pods()) == 8
    assert owner.good(*PARTS) > 0
    assert owner.kinds() == {"Node", "Namespace"}
    assert {tuple(made["metadata"]["labels"]) for made in owner.cluster.nodes().values()} == {
        ("kubernetes.io/hostname",)
    }
    assert owner.good(*PARTS) == 0


@pytest.mark.parametrize(
    ("topology", "count", "model", "overrides"),
    [
        pytest.param("ring", 4, harness.MODEL, {}, marks=pytest.mark.long),
        pytest.param(
            "triangle",
            3,
            "qwen3-coder-30b-a3b-instruct-fp8",
            {"nodes": 3, "tp": 1, "pp": 3, "ep": 1},
            marks=pytest.mark.long,
        ),
        ("single", 1, "qwen3-coder-30b-a3b-instruct-fp8", {}),
    ],
)
def test_other_fabrics_are_served_and_k3s_s_data_may_lie_elsewhere(
    tmp_path: pathlib.Path, topology: str, count: int, model: str, overrides: dict[str, int]
) -> None:
    owner = Owner(tmp_path, count=count, topology=topology)
    owner.choose("site.yml")
    given: dict[str, t.Any] = {"k8s_dgx_model_profile": model, "k3s_data_dir": "/data/k3s"}
    given |= {"k8s_dgx_overrides": {"parallel": overrides}} if overrides else {}
    assert owner.good(*PARTS, **given) > 0
    assert {pod["spec"]["nodeName"] for pod in owner.cluster.pods().values()} == set(names(count))
    daemons = {name.rpartition("-")[0] for name in owner.daemons()}
    plugins = {f"dgxspark-{name}" for name in ("multus", "sriov-device-plugin", "nvidia-device-plugin")}
    assert daemons == (plugins if count > 1 else {"dgxspark-nvidia-device-plugin"})
    assert "/var/lib/rancher" not in json.dumps(list(owner.cluster.objects.values()), default=str)
    owner.cluster.writes.clear()
    assert owner.good(*PARTS, **given) == 0
    assert owner.cluster.writes == []
    owner.server.shutdown()


TWO = {"parallel": {"nodes": 2, "tp": 2, "pp": 1, "ep": 1}}


@pytest.mark.more
def test_a_limit_of_two_of_four_serves_there_and_takes_nothing_from_the_others(owner: Owner) -> None:
    owner.choose("site.yml")
    assert owner.good("--tags", "platform") > 0
    daemons = owner.daemons()
    assert {name.rpartition("-")[2] for name in daemons} == set(names(4)) and len(daemons) == 12
    config = owner.cluster.objects["v1", "configmaps", "kube-system", "dgxspark-sriov-device-plugin"]["data"]
    # Two of them are no longer seen: they are down or under maintenance.
    for host in ("spark3", "spark4"):
        owner.change(host, "dgxspark_roce")
    owner.cluster.writes.clear()
    limit = (*PARTS, "-l", "spark1,spark2")
    model = {"k8s_dgx_model_profile": "qwen3.6-27b-fp8", "k8s_dgx_overrides": TWO}
    assert owner.good(*limit, **model) > 0
    assert {pod["spec"]["nodeName"] for pod in owner.cluster.pods().values()} == {"spark1", "spark2"}
    assert owner.daemons() == daemons
    assert owner.cluster.objects["v1", "configmaps", "kube-system", "dgxspark-sriov-device-plugin"]["data"] == config
    assert not [name for name in owner.cluster.writes if "DaemonSet" in name or "Pod/dgxspark-" in name]
    owner.cluster.writes.clear()
    assert owner.good(*limit, **model) == 0
    assert owner.cluster.writes == []
    # What is served and what would fit is shown for these two; the page is written once.
    owner.choose("models.yml")
    look = {"k8s_dgx_free_gib": 60, "dgxspark_models_file": "models.html"}
    code, said, changed = owner.run("-l", "spark1,spark2", **look)
    assert (code, changed) == (0, 1), said
    assert re.search(
        r"default: qwen3.6-27b-fp8 on spark1, spark2: 2 of 2 ranks ready, .* port 30000, .*VFs p0f0v0 p0f1v0", said
    )
    assert "it needs 4 Sparks, and this run has 2" in said
    assert re.search(r"  fits +\S+: on spark1: .* GiB each, .* left.*, port \d+", said), said
    page = (owner.folder / "models.html").read_text(encoding="utf-8")
    assert "qwen3.6-27b-fp8 on spark1, spark2" in page
    code, said, changed = owner.run("-l", "spark1,spark2", "--check", **look)
    assert (code, changed, owner.cluster.writes) == (0, 0, []), said


@pytest.mark.long
def test_tags_choose_a_part(owner: Owner) -> None:
    owner.choose("site.yml")
    assert owner.good("--tags", "platform") > 0
    assert "DaemonSet" in owner.kinds()
    assert "StatefulSet" not in owner.kinds()
    owner.cluster.writes.clear()
    assert owner.good("--tags", "serve") > 0
    assert "StatefulSet" in owner.kinds()
    assert not [name for name in owner.cluster.writes if "DaemonSet" in name]


@pytest.mark.more
def test_without_a_model_site_leaves_the_cluster_alone(owner: Owner) -> None:
    owner.choose("site.yml")
    code, said, changed = owner.run("--skip-tags", "fabric,nccl,k3s,memory_guard,verify", k8s_dgx_model_profile="")
    assert (code, changed) == (0, 0), said
    assert "Platform and serving: skipped." in said
    assert owner.cluster.writes == []


@pytest.mark.long
def test_a_limit_that_leaves_sparks_out_takes_nothing_out_of_their_cluster(owner: Owner) -> None:
    owner.choose("site.yml")
    owner.good(*PARTS)
    owner.cluster.writes.clear()
    owner.choose("teardown.yml")
    code, said, changed = owner.run(*PARTS, "-l", "spark3,spark4")
    assert (code, changed) == (0, 0), said
    assert "Models and platform stay: the limit excludes spark1, spark2." in said
    assert owner.cluster.writes == []


@pytest.mark.more
def test_a_kubeconfig_that_is_not_there_is_named_and_in_check_mode_is_to_come(owner: Owner) -> None:
    owner.choose("site.yml")
    owner.kubeconfig.unlink()
    code, said, _changed = owner.run(*PARTS, "--check")
    assert code == 0, said
    assert "Kubernetes: skipped. There is no kubeconfig" in said
    code, said, _changed = owner.run(*PARTS)
    assert code != 0
    assert "There is no kubeconfig ~/.kube/dgxspark.yml on the controller." in said


@pytest.mark.long
def test_teardown_goes_on_where_our_own_cluster_no_longer_answers(owner: Owner) -> None:
    owner.server.shutdown()
    owner.server.server_close()
    owner.choose("teardown.yml")
    # What engines and we left on the nodes is removed; weights stay, and so does what is not ours.
    for cache, files in owner.places.values():
        for folder in (cache / "kernels/sglang", cache / "huggingface/hub", files / "hub-python"):
            folder.mkdir(parents=True)
    weights, theirs = owner.places["spark2"][0] / "huggingface/hub/blob", owner.places["spark3"][0] / "theirs"
    weights.touch()
    theirs.touch()
    code, said, changed = owner.run(*PARTS)
    assert (code, changed > 0) == (0, True), said
    assert "Kubernetes: skipped. The cluster does not answer" in said
    assert [line for line in said.splitlines() if "weights stay in" in line and "spark2" in line], said
    left = {path for path in (owner.folder / "nodes").glob("*/**/*") if not path.is_dir()}
    assert left == {weights, theirs}
    assert [path.name for path in (owner.folder / "nodes/spark1").iterdir()] == []
    assert sorted(path.name for path in theirs.parent.iterdir()) == ["theirs"]
    code, said, changed = owner.run(*PARTS)
    assert (code, changed) == (0, 0), said


@pytest.mark.more
def test_teardown_stops_where_an_owner_s_cluster_does_not_answer(tmp_path: pathlib.Path) -> None:
    owner = Owner(tmp_path, groups=False)
    owner.server.shutdown()
    owner.server.server_close()
    owner.choose("teardown.yml")
    code, said, _changed = owner.run(*PARTS)
    assert code != 0
    assert "The cluster does not answer" in said


def test_the_roles_name_one_kubeconfig() -> None:
    defaults = {
        role: yaml.safe_load((harness.ROOT / f"roles/{role}/defaults/main.yml").read_text(encoding="utf-8"))
        for role in ("k3s", "k8s_dgx", "k8s_platform", "model_weights", "engine_image")
    }
    for role in ("k8s_dgx", "k8s_platform", "model_weights", "engine_image"):
        chosen = defaults[role][f"{role}_kubeconfig"]
        assert f"k3s_kubeconfig | default('{defaults['k3s']['k3s_kubeconfig']}')" in chosen


def test_what_roles_share_is_by_default_the_same() -> None:
    """The roles that k8s_dgx calls take these variables from it; called on their own, they have the same defaults."""
    own, others = (
        [
            yaml.safe_load((harness.ROOT / f"roles/{role}/defaults/main.yml").read_text(encoding="utf-8"))
            for role in roles
        ]
        for roles in (["k8s_dgx"], ["k8s_platform", "model_weights", "engine_image"])
    )
    shared = [
        found.groups()
        for defaults in others
        for value in defaults.values()
        if isinstance(value, str) and (found := re.fullmatch(r"\{\{ (k8s_dgx_\w+) \| default\((.*)\) \}\}", value))
    ]
    assert len(shared) > 6
    for name, default in shared:
        if name != "k8s_dgx_kubeconfig":
            assert yaml.safe_load(default) == own[0][name], name
