"""The NCCL benchmark as pods: the role nccl and kubernetes.core against the stand-in of an API server.

The pods are the stand-in's, and their logs constructed (tests/unit/nccl_logs.py): NO POD RUNS HERE.
"""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import to_plain
from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.stand_ins import kube_api
from ansible_collections.dgxspark.cluster.tests.unit import bundles, kube_inputs, nccl_logs
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import node

Plain = dict[str, t.Any]
pytestmark = pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN)
ROW = {"operation": "all_reduce", "bytes": 1 << 30, "ranks": 4, "calls": 2, "rounds_us": [75000.0]}


class Bench(harness.Site):
    """Four Sparks with their facts, and a play that runs the benchmark."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.cluster = kube_api.Cluster([f"spark{number}" for number in range(1, 5)])
        self.server = kube_api.serve(self.cluster, folder / "kubeconfig")
        seen = {f"spark{n}": to_plain(node(host=n, vfs=2)) for n in range(1, 5)}
        super().__init__(
            folder,
            folder / "kubeconfig",
            dgxspark_plan={"hosts": kube_inputs.fabric(4), "topology": "switch"},
            dgxspark_fabric={"topology": "switch", "vf_count": 2},
            dgxspark_roce="{{ seen[inventory_hostname] }}",
            seen=seen,
            nccl_bench_in="pods",
        )
        self.play(name="dgxspark.cluster.nccl", tasks_from="bench.yml")

    def log(self, logs: t.Sequence[t.Sequence[str]]) -> None:
        texts = ["\n".join(lines) for lines in logs]
        texts[0] += f"\nNCCL_BENCH {json.dumps(ROW)}\nNCCL_BENCH_END {{}}"
        self.cluster.logs = {f"nccl-bench-rank{rank}": text for rank, text in enumerate(texts)}


@pytest.fixture
def site(tmp_path: pathlib.Path) -> t.Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.server.shutdown()


@pytest.mark.more
def test_a_pod_on_each_spark_measures_and_none_is_left(site: Bench) -> None:
    site.log(nccl_logs.build(nccl_logs.Job(nodes=4)))
    code, said, _changed = site.run()
    assert code == 0, said
    assert "21.475" in said
    assert [name for name in site.cluster.writes if name.startswith("Pod/")] == [
        f"Pod/nccl-bench-rank{rank}" for rank in range(4)
    ]
    left = {made["kind"] for made in site.cluster.objects.values()}
    assert left <= {"Node", "Namespace"}, left


@pytest.mark.long
def test_a_gpu_that_the_served_model_holds_is_named_and_none_is_left(site: Bench) -> None:
    text = "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."
    pending = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": text}]}
    site.cluster.said = {"nccl-bench": pending}
    code, said, _changed = site.run(nccl_bench_timeout=2)
    assert code != 0
    said = " ".join(said.split())
    assert "The NCCL benchmark was not run." in said
    assert "Another pod holds the GPU (stop it, or raise k8s_platform_gpu_shares)" in said
    assert not site.cluster.pods()


@pytest.mark.long
def test_what_cannot_be_written_down_is_the_reason(site: Bench) -> None:
    code, said, _changed = site.run(k8s_dgx_image="")
    assert code != 0
    assert "The NCCL benchmark was not run. spark1: " in " ".join(said.split())
    assert "; spark4: dgxspark.cluster.nccl_bench_pods: the NCCL benchmark's image: no image is named" in " ".join(
        said.split()
    )
    assert "no image is named. Build or choose one" in said
    assert site.cluster.writes == []


@pytest.mark.long
def test_a_variable_that_cannot_be_evaluated_is_the_reason(site: Bench) -> None:
    code, said, _changed = site.run(k8s_dgx_serving="{{ nowhere_set }}")
    said = " ".join(said.split())
    assert code != 0
    assert "The NCCL benchmark was not run. spark1: " in said
    assert "; spark4: " in said and "'nowhere_set' is undefined" in said
    assert site.cluster.writes == []


@pytest.mark.long
def test_a_bundle_without_the_benchmark_s_image_is_refused_before_anything_is_done(
    site: Bench, tmp_path: pathlib.Path
) -> None:
    bundle, asked = tmp_path / "bundle", {"dgxspark_bundle": str(tmp_path / "bundle"), "nccl_bench_image": "acme/pt:1"}
    bundles.lay(bundle, {"image": "acme/engine:1"})
    site.log(nccl_logs.build(nccl_logs.Job(nodes=4)))
    code, said, _changed = site.run(**asked)
    said = " ".join(said.split())
    assert code != 0
    assert "The NCCL benchmark was not run." in said
    assert "nccl_bench 1 for arm64 (images/docker.io-acme-pt-1-" in said
    assert "-arm64.tar, for nccl: benchmark) is not in the bundle" in said
    assert "dgxspark.cluster.bundle with -e nccl_bench_image=acme/pt:1" in said
    assert site.cluster.writes == []
    bundles.lay(bundle, {"bench": "acme/pt:1"})
    code, said, _changed = site.run(**asked)
    assert code == 0, said


@pytest.mark.more
def test_in_check_mode_no_pod_is_made(site: Bench) -> None:
    code, said, _changed = site.run("--check")
    assert code == 0, said
    assert "not run, in check mode" in said
    assert site.cluster.writes == []
