"""The role k8s_dgx against the stand-in of an API server: real runs of ansible-playbook."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import pathlib
import re
import tarfile
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.api.harness import MODEL, OTHER
from ansible_collections.dgxspark.cluster.tests.support.kube_site import StandIn

Plain = dict[str, t.Any]
pytestmark = pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN)


@pytest.fixture
def site(tmp_path: pathlib.Path) -> t.Iterator[StandIn]:
    made = StandIn(tmp_path)
    yield made
    made.server.shutdown()


RECIPE = """
recipe_version: "2"
model: acme/Model-8B-FP8
runtime: vllm-ray
container: vllm/vllm-openai:v0.29.0
defaults: {port: 8123, tensor_parallel: 2}
env: {VLLM_LOGGING_LEVEL: DEBUG}
command: |
  vllm serve {model} --port {port} -tp {tensor_parallel} --max-model-len 32k --distributed-executor-backend ray
"""


@pytest.mark.more
def test_a_recipe_and_a_profile_apply_again_check_switch_and_absent(site: StandIn) -> None:
    """One run through, as an owner would do it; each step starts where the last one ended."""
    (site.folder / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    recipe = {"k8s_dgx_recipe": "recipe.yaml", "k8s_dgx_image": ""}
    # Check mode on an empty cluster shows what would be created, and creates nothing.
    assert site.good("--check", "--diff", **recipe) > 0
    assert site.cluster.writes == []
    # Applied: one rank on each node that the recipe uses, everything in place.
    assert site.good(**recipe) > 0
    pods = site.cluster.pods()
    assert {name: pod["spec"]["nodeName"] for name, pod in pods.items()} == {
        f"serve-default-rank{rank}-0": f"spark{rank + 1}" for rank in range(2)
    }
    assert {pod["metadata"]["annotations"]["dgxspark.cluster/profile"] for pod in pods.values()} == {"recipe"}
    assert {pod["spec"]["containers"][0]["image"] for pod in pods.values()} == {"vllm/vllm-openai:v0.29.0"}
    assert site.names("NetworkAttachmentDefinition") == {"p0f0v0", "p0f1v0", "p0f0v1", "p0f1v1"}
    assert site.names("DaemonSet") == {
        "dgxspark-multus",
        "dgxspark-sriov-device-plugin",
        "dgxspark-nvidia-device-plugin",
    }
    launch = json.dumps([made for key, made in site.cluster.objects.items() if key[3].startswith("serve-default-")])
    for word in ("acme/Model-8B-FP8", "32000", "VLLM_LOGGING_LEVEL"):
        assert word in launch
    assert "distributed-executor-backend" not in launch
    service = site.cluster.objects["v1", "services", "dgx-serving", "serve-default"]
    assert service["spec"]["ports"][0]["port"] == 8123
    # Again, and in check mode: nothing changes, nothing is written.
    site.cluster.writes.clear()
    assert site.good(**recipe) == 0
    assert site.good("--check", **recipe) == 0
    assert site.cluster.writes == []
    # An unusable recipe, or a rank that cannot start, is refused before the old model is stopped.
    (site.folder / "other.sh").write_text("llama-server -hf a/b", encoding="utf-8")
    code, said, _changed = site.run(k8s_dgx_recipe="other.sh")
    assert code != 0 and "llama.cpp: only vLLM and SGLang can be served here" in said, said
    assert site.cluster.writes == []
    code, said, _changed = site.run(k8s_dgx_node_names={"spark4": "elsewhere"})
    assert code != 0
    assert "there is no node 'elsewhere' in the cluster (nodes: spark1, spark2, spark3, spark4)" in said
    assert not [name for name in site.cluster.writes if "StatefulSet" in name]
    assert len(site.cluster.pods()) == 2
    site.cluster.writes.clear()
    # Check mode shows what a switch would do, without doing it.
    assert site.good("--check", "--diff") > 0
    assert site.cluster.writes == []
    # The switch: the old group is gone before the new one starts, workers before the head; the service stays.
    site.cluster.slow_collector = True
    before = site.names("ConfigMap")
    assert site.good() > 0
    order = [name for name in site.cluster.writes if "StatefulSet/" in name]
    assert [name[0] for name in order[:2]] == ["-"] * 2
    assert order[2:] == [f"StatefulSet/serve-default-rank{rank}" for rank in (1, 2, 3, 0)]
    assert site.names("StatefulSet") == {f"serve-default-rank{rank}" for rank in range(4)}
    after = site.cluster.objects["v1", "services", "dgx-serving", "serve-default"]
    assert after["metadata"]["uid"] == service["metadata"]["uid"]
    assert {pod["metadata"]["annotations"]["dgxspark.cluster/profile"] for pod in site.cluster.pods().values()} == {
        MODEL
    }
    assert len([name for name in site.names("ConfigMap") - before if name.startswith("serve-default-launch")]) == 1
    assert len([name for name in site.names("ConfigMap") if name.startswith("serve-default-launch")]) == 1
    # Stopped: the instance is gone, the platform stays; again: nothing to do.
    code, said, changed = site.run(k8s_dgx_state="absent")
    assert code == 0 and changed > 0, said
    assert f"Stopped {MODEL} (instance default): 4 ranks, on spark1, spark2, spark3 and spark4." in said
    assert not site.cluster.pods()
    assert not [
        name for kind in ("StatefulSet", "Service", "ConfigMap") for name in site.names(kind) if "serve-" in name
    ]
    assert site.names("DaemonSet")
    code, said, changed = site.run(k8s_dgx_state="absent")
    assert (code, changed) == (0, 0) and "there was nothing to stop" in said, said


def waiting(reason: str, message: str) -> Plain:
    state = {"name": "rank", "image": "x", "ready": False, "restartCount": 0, "state": {"waiting": {"reason": reason}}}
    state["state"]["waiting"]["message"] = message
    return {"phase": "Pending", "containerStatuses": [state], "conditions": [{"type": "Ready", "status": "False"}]}


@pytest.mark.more
def test_vfs_that_never_come_are_named_and_a_new_model_that_does_not_come_up_gives_way_to_the_old_one(
    site: StandIn,
) -> None:
    late, never = ("spark2", "dgxspark.cluster/p0f1v0"), ("spark3", "dgxspark.cluster/p0f0v0")
    soon = {"__k8s_platform_patience": 2}
    site.cluster.late = {late, never}
    site.play(name="dgxspark.cluster.k8s_platform", tasks_from="parts.yml")
    site.good(**soon)
    again = [name for name in site.cluster.writes if name.startswith("-Pod/dgxspark-sriov")]
    assert again == [f"-Pod/dgxspark-sriov-device-plugin-spark{number}" for number in (2, 3)]
    site.cluster.late = {never}
    site.play()
    code, said, _changed = site.run(**soon)
    said = " ".join(said.split())
    assert code != 0
    assert "spark3: node spark3 does not offer dgxspark.cluster/p0f0v0: the SR-IOV device plugin runs" in said
    assert "spark2: node" not in said and "No rank was stopped or started." in said
    assert not site.cluster.pods()
    site.cluster.late = set()
    site.good(**soon)
    assert len(site.cluster.pods()) == 4
    # The new model's image cannot be pulled.
    (before,) = (made["spec"] for made in site.cluster.objects.values() if made["kind"] == "NetworkPolicy")
    reach = {"hub_offline": "Egress" not in before["policyTypes"]}
    site.cluster.writes.clear()
    new = "registry.example/new:2"
    site.say({new: waiting("ImagePullBackOff", "no such manifest")})
    code, said, _changed = site.run(k8s_dgx_model_profile=OTHER, k8s_dgx_image=new, k8s_dgx_serving=reach)
    assert code != 0
    assert "no such manifest" in said
    assert "The previous model is serving again." in said
    assert {pod["metadata"]["annotations"]["dgxspark.cluster/profile"] for pod in site.cluster.pods().values()} == {
        MODEL
    }
    assert {pod["status"]["phase"] for pod in site.cluster.pods().values()} == {"Running"}
    assert site.cluster.writes.count("NetworkPolicy/serve-default") == 2, "closed, and opened again"
    order = [
        name for name in site.cluster.writes if name.partition("/")[0] in ("-StatefulSet", "NetworkPolicy", "Role")
    ]
    first = min(order.index(name) for name in order if name[0] != "-")
    assert [name[0] for name in order[:first]] == ["-"] * 4, "not before the old ranks are gone"
    (after,) = (made["spec"] for made in site.cluster.objects.values() if made["kind"] == "NetworkPolicy")
    assert after == before, "they reach what they reached"
    # And what was restored matches the plan: the next run has nothing to roll.
    site.cluster.writes.clear()
    site.good()
    assert not [name for name in site.cluster.writes if "StatefulSet" in name]


@pytest.mark.more
def test_memory_that_is_not_there_stops_the_start_with_its_figure(site: StandIn) -> None:
    code, said, _changed = site.run(k8s_dgx_memory_check=True, k8s_dgx_memory_timeout=5)
    assert code != 0
    assert re.search(r"spark1: [\d.]+ GiB are free, the plan requires \d+\.\d GiB", said)
    assert "Nothing is served as serve-default now." in said
    assert not site.cluster.pods()


@pytest.mark.long
def test_ranks_are_not_put_where_multus_is_not_at_work_yet(site: StandIn) -> None:
    creating = waiting("ContainerCreating", "")
    site.say({"dgxspark-multus-spark3": creating})
    code, said, _changed = site.run(k8s_platform_networks_timeout=1)
    assert code != 0
    assert "Multus is not running on spark3 after 1 s" in " ".join(said.split())
    assert not site.cluster.pods()
    # An owner with another Multus, or no need of one, does not have to wait for ours.
    site.good(k8s_platform_parts={"cni_plugins": "unmanaged", "multus": "unmanaged"}, k8s_platform_networks_timeout=1)
    assert len(site.cluster.pods()) == 4


@pytest.mark.long
def test_parts_are_taken_away_without_what_is_not_ours(site: StandIn) -> None:
    site.good()
    theirs = {"metadata": {"name": "theirs", "namespace": "kube-system", "labels": {"dgxspark.cluster/part": "multus"}}}
    site.cluster.put(("v1", "configmaps", "kube-system", "theirs"), theirs)
    site.good(k8s_dgx_state="absent")
    gone = dict.fromkeys(
        ("runtime_class", "nvidia_device_plugin", "multus", "sriov_device_plugin", "networks"), "absent"
    )
    gone["cni_plugins"] = "unmanaged"  # all four Sparks are this machine
    site.play(name="dgxspark.cluster.k8s_platform", tasks_from="parts.yml")
    # Also without the fabric's plan, which may be gone by then: our objects are found by their label.
    assert site.good(k8s_platform_parts=gone, dgxspark_plan={}) > 0
    assert not site.names("NetworkAttachmentDefinition")
    assert not site.names("DaemonSet") | site.names("CustomResourceDefinition") | site.names("RuntimeClass")
    assert site.names("ConfigMap") == {"theirs"}
    assert site.good(k8s_platform_parts=gone) == 0
    # The role itself: present, then absent with its labels and files.
    site.play(name="dgxspark.cluster.k8s_platform")
    files = {"k8s_platform_files_dir": f"{site.folder}/files/{{{{ inventory_hostname }}}}"}
    assert site.good(**files) > 0
    assert site.names("DaemonSet") and site.names("NetworkAttachmentDefinition")
    for number in range(1, 5):
        (site.folder / f"files/spark{number}").mkdir(parents=True)
        (site.folder / f"files/spark{number}/cni-plugins.tgz").touch()
    (site.folder / "files/spark2/theirs").touch()
    assert site.good(**files, k8s_platform_state="absent") > 0
    assert (
        not site.names("NetworkAttachmentDefinition") | site.names("DaemonSet") | site.names("CustomResourceDefinition")
    )
    assert {tuple(made["metadata"]["labels"]) for made in site.cluster.nodes().values()} == {
        ("kubernetes.io/hostname",)
    }
    assert [path.relative_to(site.folder / "files") for path in (site.folder / "files").rglob("*")] == [
        pathlib.Path("spark2"),
        pathlib.Path("spark2/theirs"),
    ]
    assert site.good(**files, k8s_platform_state="absent") == 0


@pytest.mark.long
def test_the_token_is_in_the_secret_and_nowhere_else(site: StandIn) -> None:
    token = "hf_" + "Xy7" * 10
    code, said, _changed = site.run("--diff", "-vvv", k8s_dgx_hf_token=token)
    assert code == 0, said
    coded = base64.b64encode(token.encode()).decode()
    assert not [line for line in said.splitlines() if token in line or coded in line]
    holding = {
        made["kind"] for made in site.cluster.objects.values() if token in json.dumps(made) or coded in json.dumps(made)
    }
    assert holding == {"Secret"}


@pytest.fixture
def archive(tmp_path: pathlib.Path) -> pathlib.Path:
    """An archive like the CNI plugins' release, with more in it than is needed."""
    place = tmp_path / "plugins.tgz"
    with tarfile.open(place, "w:gz") as made:
        for name in ("bridge", "host-device", "static", "tuning"):
            info = tarfile.TarInfo(f"./{name}")
            info.size, info.mode = len(name), 0o755
            made.addfile(info, io.BytesIO(name.encode()))
    return place


@pytest.mark.long
def test_the_cni_plugins_come_by_checksum_and_go_again(site: StandIn, archive: pathlib.Path) -> None:
    knowledge = site.folder / "own" / "platform"
    knowledge.mkdir(parents=True)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()

    def run(state: str, sha256: str = digest) -> tuple[int, str, int]:
        file = {"url": f"file://{archive}", "sha256": sha256}
        entry = {"id": "cni_plugins", "replaces": "cni_plugins", "component": "cni_plugins", "version": "0"}
        entry |= {"files": {"amd64": file, "arm64": file}, "members": ["host-device", "static", "tuning"]}
        entry |= {"source": ["made by a test"], "verified": "measured"}
        (knowledge / "own.yml").write_text(json.dumps(entry), encoding="utf-8")
        nothing = dict.fromkeys(
            ("runtime_class", "nvidia_device_plugin", "multus", "sriov_device_plugin", "networks"), "unmanaged"
        )
        return site.run(
            "-l",
            "spark1",
            k8s_platform_parts={**nothing, "cni_plugins": state},
            k8s_platform_components={"cni_bin_dir": str(site.folder / "bin")},
            k8s_platform_files_dir=str(site.folder / "files"),
            dgxspark_knowledge_dirs=[str(site.folder / "own")],
        )

    site.play(name="dgxspark.cluster.k8s_platform", tasks_from="parts.yml")
    code, said, _changed = run("present", "0" * 64)
    assert code != 0
    assert "checksum" in said
    assert not list((site.folder / "bin").iterdir())
    code, said, changed = run("present")
    assert (code, changed > 0) == (0, True), said
    assert sorted(path.name for path in (site.folder / "bin").iterdir()) == ["host-device", "static", "tuning"]
    assert run("present")[::2] == (0, 0)
    (site.folder / "bin" / "flannel").touch()
    assert run("absent")[2] > 0
    assert [path.name for path in (site.folder / "bin").iterdir()] == ["flannel"]
