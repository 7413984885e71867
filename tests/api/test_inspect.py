"""inspect_image.yml as an owner runs it, against the stand-in of a cluster: NO IMAGE RUNS HERE, its pod's log is scripted."""

from __future__ import annotations

import json
import pathlib
import shlex
import typing as t

import pytest
import yaml

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.engine_parser.reader import framed
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import inspect
from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.stand_ins import kube_api
from ansible_collections.dgxspark.cluster.tests.unit import guide
from ansible_collections.dgxspark.cluster.tests.unit.image_trees import DIGEST, FLAG, PARSER, REPO, SAID

pytestmark = pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN)
# The guide's own command, after its inventory.
(COMMAND,) = [line for line in guide.commands("guide_serving") if "cluster.inspect_image" in line]
OPTIONS = shlex.split(COMMAND)[4:]
POD = inspect.objects(REPO, "spark1", None, 60)[1]["metadata"]["name"]


class Owner(harness.Site):
    """Two Sparks, and a registry that has a fork's image."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.cluster = kube_api.Cluster(["spark1", "spark2"])
        self.server = kube_api.serve(self.cluster, folder / "kubeconfig")
        super().__init__(folder, folder / "kubeconfig", count=2)
        self.cluster.registry = {REPO: DIGEST}
        self.playbook = str(harness.ROOT / "playbooks" / "inspect_image.yml")

    def left(self) -> list[str]:
        """Return what the pod that reads an image left in the cluster."""
        return [key[3] for key in self.cluster.objects if key[3] == POD]

    def refused(self) -> str:
        code, said, _changed = self.run(*OPTIONS)
        assert code != 0 and not (self.folder / "dgxspark").exists() and self.left() == [], said
        return " ".join(said.split())


@pytest.fixture
def owner(tmp_path: pathlib.Path) -> t.Iterator[Owner]:
    made = Owner(tmp_path)
    yield made
    made.server.shutdown()


@pytest.mark.more
def test_an_image_is_read_once_and_written_where_plans_look(owner: Owner) -> None:
    owner.cluster.logs[POD] = "=== a banner ===\n" + framed(SAID)
    code, said, changed = owner.run(*OPTIONS, "--check")
    assert (code, changed) == (0, 0) and "nothing runs in check mode" in said, said
    assert owner.cluster.writes == []
    code, said, changed = owner.run(*OPTIONS, "--diff")
    assert code == 0 and changed > 0, said
    assert "engine    vllm 0.17.1+image.abababababab" in said and "built for sm_121a" in said and "fork-only" in said
    image = yaml.safe_load((owner.folder / "dgxspark/images/registry.example-fork-nightly.yml").read_text("utf-8"))
    assert (image["digest"], image["table"]) == (DIGEST, "vllm-0.17.1+image.abababababab")
    assert [name for name in owner.cluster.writes if name.endswith(POD)] == [
        f"ConfigMap/{POD}", f"Pod/{POD}", f"-Pod/{POD}", f"-ConfigMap/{POD}",
    ]  # fmt: skip
    assert owner.left() == []
    code, said, changed = owner.run(*OPTIONS)
    assert (code, changed) == (0, 0), said


@pytest.mark.long
def test_an_image_that_cannot_be_had_or_says_nothing_or_nonsense_is_one_sentence(owner: Owner) -> None:
    owner.cluster.faults = {("spark1", "fork"): f"failed to resolve reference {REPO}: not found"}
    assert "spark1: there is no such image." in owner.refused()
    owner.cluster.faults, owner.cluster.logs[POD] = {}, "exec: python3: no such file\n"
    assert "the image returned nothing. Its last output: exec: python3: no such file" in owner.refused()
    owner.cluster.logs[POD] = framed(SAID | {"version": "../../x"})
    assert "is not a version of vllm. Nothing was written." in owner.refused()
    ended = {"exitCode": 1, "reason": "Error"}
    status = {"name": "inspect", "imageID": f"{REPO}@{DIGEST}", "state": {"terminated": ended}}
    owner.cluster.said[POD] = {"phase": "Failed", "containerStatuses": [status]}
    owner.cluster.logs[POD] = (
        "this image cannot be read: python3 has neither sglang nor vllm installed: one engine is needed\n"
    )
    assert (
        "exit status 1. Error this image cannot be read: python3 has neither sglang nor vllm installed"
        in owner.refused()
    )


@pytest.mark.long
def test_serving_reads_the_image_first_where_asked(owner: Owner) -> None:
    """The served plan uses what the image reported, and serving it again changes nothing."""
    owner.playbook = "play.yml"
    (owner.folder / "recipe.sh").write_text(f"docker run {REPO} vllm serve acme/Model --fork-only 5", encoding="utf-8")
    flags = ["tensor-parallel-size", "host", "port", "served-model-name", "gpu-memory-utilization", "max-model-len"]
    parser = {**PARSER, "flags": [*PARSER["flags"], *({**FLAG, "options": [f"--{name}"]} for name in flags)]}
    owner.cluster.logs[POD] = framed(SAID | {"parser": parser})
    asked = {"k8s_dgx_recipe": "recipe.sh", "k8s_dgx_image": "", "k8s_dgx_inspect_image": True}
    code, said, changed = owner.run("--check", **asked)
    assert code == 0 and changed > 0 and "not read: nothing runs in check mode" in said, said
    assert owner.cluster.writes == [] and not (owner.folder / "dgxspark").exists()
    code, said, changed = owner.run(**asked)
    assert code == 0 and changed > 0, said
    assert "engine    vllm 0.17.1+image.abababababab" in said
    assert owner.cluster.writes.index(f"Pod/{POD}") < owner.cluster.writes.index("StatefulSet/serve-default-rank0")
    assert owner.left() == []
    (pod,) = owner.cluster.pods().values()
    assert pod["spec"]["containers"][0]["image"].partition("@")[0] == REPO
    launch = json.dumps(
        [made for key, made in owner.cluster.objects.items() if key[3].startswith("serve-default-launch")]
    )
    assert "--fork-only" in launch
    assert owner.run(**asked)[2] == 0
    # Its flags are known now: one that its parser does not accept is refused before anything is stopped.
    (owner.folder / "recipe.sh").write_text(f"docker run {REPO} vllm serve acme/Model --fork-onnly 5", encoding="utf-8")
    code, said, _changed = owner.run(**asked)
    assert code != 0 and "vllm 0.17.1+image.abababababab has no --fork-onnly" in " ".join(said.split()), said
    assert len(owner.cluster.pods()) == 1
    # Another image instead of the profile's is the one that is read, and the one that the plan speaks of.
    code, said, _changed = owner.run("--check", **asked | {"k8s_dgx_recipe": "other.sh", "k8s_dgx_image": REPO})
    assert code != 0 and "other.sh: there is no such file" in " ".join(said.split())


def test_the_pod_has_no_more_than_it_needs() -> None:
    needs, pod = inspect.objects(REPO, "spark1", {"image_pull_secrets": ["login"]}, 60)
    spec, (container,) = pod["spec"], pod["spec"]["containers"]
    assert spec["restartPolicy"] == "Never" and spec["activeDeadlineSeconds"] == 60
    assert not spec["automountServiceAccountToken"] and not spec["hostNetwork"] and "runtimeClassName" not in spec
    assert {kind for volume in spec["volumes"] for kind in volume if kind != "name"} == {"configMap", "emptyDir"}
    assert "nvidia.com/gpu" not in json.dumps(container["resources"]) and "hostPath" not in json.dumps(pod)
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert set(container["resources"]["limits"]) == {"cpu", "memory", "ephemeral-storage"}
    assert len(json.dumps(needs[1])) < 400_000, "a ConfigMap holds 1 MiB"
