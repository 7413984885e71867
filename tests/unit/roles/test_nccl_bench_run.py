"""The benchmark as the role runs it, with a stand-in for Python with PyTorch: it prints a constructed run's log."""

from __future__ import annotations

import json
import pathlib
import sys
import time
import typing as t

import pytest
import yaml

from ansible_collections.dgxspark.cluster.tests.support.beyond_fabric import judge
from ansible_collections.dgxspark.cluster.tests.support.nccl_role import Cluster
from ansible_collections.dgxspark.cluster.tests.unit import nccl_logs, verify_inputs
from ansible_collections.dgxspark.cluster.tests.unit.owner import NO_ANSIBLE, ROOT, can_run

pytestmark = pytest.mark.skipif(not can_run(), reason=NO_ANSIBLE)
ROW = {"operation": "all_reduce", "bytes": 1 << 30, "ranks": 2, "calls": 2, "rounds_us": [50000.0]}
STAND_IN = """#!{python}
import json, os, pathlib, shutil, sys
program = sys.stdin.read()  # as the real one does: who ends before it is written ends the writer, too
if "--check" in sys.argv:
    sys.exit(print({lacks!r}, file=sys.stderr) or 4 if {lacks!r} else 0)
rank = os.environ["RANK"]
assert "NCCL_BENCH_END" in program
pathlib.Path({folder!r}, "asked" + rank + ".json").write_text(json.dumps([sys.argv[1:], dict(os.environ)]))
if {code} == 9:
    jobs = pathlib.Path({folder!r}, "jobs")
    shutil.rmtree(jobs, ignore_errors=True)
    jobs.is_dir() or jobs.touch()
if {code} == 3:
    sys.exit(print("rank " + rank + ": less than the floor would be left", file=sys.stderr) or 3)
print(pathlib.Path({folder!r}, "log" + rank).read_text())
if rank == "0":
    print("NCCL_BENCH " + {row!r})
    print('NCCL_BENCH_END {{"ranks": 2}}')
"""


def cluster_with(
    tmp_path: pathlib.Path, logs: nccl_logs.Logs, code: int = 0, lacks: str = "", tasks_from: str = "bench.yml"
) -> Cluster:
    cluster = Cluster(tmp_path)
    stand_in = tmp_path / "python-with-torch"
    filled = STAND_IN.format(python=sys.executable, folder=str(tmp_path), row=json.dumps(ROW), code=code, lacks=lacks)
    stand_in.write_text(filled)
    stand_in.chmod(0o755)
    for rank, lines in enumerate(logs):
        (tmp_path / f"log{rank}").write_text("\n".join(lines))
    role = {
        "ansible.builtin.include_role": {"name": "dgxspark.cluster.nccl", "tasks_from": tasks_from},
        "name": "Measure",
    }
    play: dict[str, t.Any] = {"name": "NCCL", "hosts": "dgx", "gather_facts": False, "tasks": [role]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    return cluster


def run(cluster: Cluster, **variables: t.Any) -> tuple[int, str]:
    code, _changed, output = cluster.run(nccl_bench_python=str(cluster.folder / "python-with-torch"), **variables)
    return code, output


@pytest.mark.more
def test_a_rank_on_each_host_with_the_plans_environment(tmp_path: pathlib.Path) -> None:
    cluster = cluster_with(tmp_path, nccl_logs.build(nccl_logs.Job()))
    code, output = run(cluster, nccl_bench_floor_gib=4)
    assert code == 0, output
    assert "21.475" in output
    for rank in (0, 1):
        words, env = json.loads((tmp_path / f"asked{rank}.json").read_text())
        assert words[0] == "-"
        assert words[words.index("--floor-bytes") + 1] == str(4 << 30)
        assert (env["RANK"], env["WORLD_SIZE"], env["MASTER_ADDR"]) == (str(rank), "2", "192.0.2.1")
        assert (env["NCCL_NET"], env["NCCL_IB_HCA"]) == ("IB", "=roce0v1:1,roce1v1:1")
        assert "--beside-serving" not in words
        assert [path.name for path in (tmp_path / f"spark{rank + 1}").rglob("*")] == ["etc"]


@pytest.mark.more
def test_figures_over_tcp_are_refused_with_the_cause(tmp_path: pathlib.Path) -> None:
    logs = nccl_logs.bad()["hca-is-netdev-2.28.9"].logs
    code, output = run(cluster_with(tmp_path, logs))
    assert code != 0
    assert "nccl.hca-is-netdev" in output and "21.475" not in output


@pytest.mark.more
def test_a_refusal_for_want_of_memory_is_said(tmp_path: pathlib.Path) -> None:
    cluster = cluster_with(tmp_path, nccl_logs.build(nccl_logs.Job()), code=3)
    code, output = run(cluster, nccl_bench_beside_serving=True, nccl_bench_floor_gib=4, nccl_bench_max_bytes=1048576)
    assert code != 0
    assert "less than the floor would be left" in " ".join(output.split())
    assert "--beside-serving" in json.loads((tmp_path / "asked0.json").read_text())[0]


@pytest.mark.more
def test_a_host_without_pytorch_is_named_and_nobody_waits_for_it(tmp_path: pathlib.Path) -> None:
    cluster = cluster_with(tmp_path, nccl_logs.build(nccl_logs.Job()), lacks="this Python has no PyTorch")
    code, output = run(cluster)
    assert code != 0
    assert "The NCCL benchmark was not run. spark1: this Python has no PyTorch; spark2: " in " ".join(output.split())
    assert not list(tmp_path.glob("asked*"))


@pytest.mark.long
def test_a_jobs_file_that_is_lost_is_not_waited_for_until_the_timeout(tmp_path: pathlib.Path) -> None:
    began = time.monotonic()
    cluster = cluster_with(tmp_path, nccl_logs.build(nccl_logs.Job()), code=9)
    code, output = run(cluster, ansible_async_dir=str(tmp_path / "jobs"), nccl_bench_timeout=3000)
    said = " ".join(output.split())
    assert code != 0 and "The NCCL benchmark was not run. spark1, spark2: the file of the rank's job" in said, output
    assert time.monotonic() - began < 240


@pytest.mark.long
def test_beside_a_served_model_it_takes_small_messages_and_a_floor_by_itself(tmp_path: pathlib.Path) -> None:
    cluster = cluster_with(tmp_path, nccl_logs.build(nccl_logs.Job()))
    inventory = yaml.safe_load((tmp_path / "inventory.yml").read_text())
    seen = inventory["all"]["children"]["dgx"]["hosts"]["spark2"]["dgxspark_roce"]
    seen["functions"][0]["vfs"][0]["place"] = {"state": "pod", "netns": "/run/netns/cni-1"}
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump(inventory))
    code, output = run(cluster)
    assert code == 0, output
    words, _env = json.loads((tmp_path / "asked0.json").read_text())
    assert "--beside-serving" in words
    assert words[words.index("--max-bytes") + 1] == str(256 << 20)
    assert words[words.index("--floor-bytes") + 1] == str(4 << 30)


@pytest.mark.more
def test_the_playbook_writes_what_the_gate_takes(tmp_path: pathlib.Path) -> None:
    cluster = cluster_with(tmp_path, nccl_logs.build(nccl_logs.Job()))
    play = {"name": "Measure", "ansible.builtin.import_playbook": str(ROOT / "playbooks" / "nccl_bench.yml")}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    file = tmp_path / "reports" / "nccl.json"
    code, output = run(cluster, dgxspark_report_file=str(file))
    assert code == 0, output
    given = json.loads(file.read_text())["dgxspark_verify_results"]
    report = judge(verify_inputs.Cluster(2), "full", **given)
    assert verify_inputs.statuses(report, beyond=True)["nccl"] == "pass"
    assert [result["subject"] for result in verify_inputs.step(report, "nccl")["results"]] == [
        "nccl transport",
        "nccl all_reduce 1 GiB",
    ]
