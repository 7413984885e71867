"""The metrics of a fake Spark: a healthy one, each fault by its sample, and a file that the node exporter accepts."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils import facts, metrics
from ansible_collections.dgxspark.cluster.plugins.module_utils.source import folder_of
from ansible_collections.dgxspark.cluster.tests.support.metrics_node import NOW, UID, Cluster, planned
from ansible_collections.dgxspark.cluster.tests.unit.exposition import Samples, parse


@pytest.fixture
def cluster(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(facts, "SETTLE_S", 0.0)
    return Cluster(tmp_path)


def values(samples: Samples, name: str, *keys: str) -> dict[tuple[str, ...], float]:
    """Return the samples of a metric by some of their labels."""
    found = {}
    for (each, labels), value in samples.items():
        if each == f"dgxspark_{name}":
            found[tuple(dict(labels).get(key, "") for key in keys)] = value
    return found


def unread(samples: Samples) -> set[str]:
    return {part for (part,), value in values(samples, "metrics_part_ok", "part").items() if not value}


def problems(samples: Samples) -> set[tuple[str, ...]]:
    return set(values(samples, "vf_problem", "slot", "vf", "problem"))


def places(samples: Samples) -> dict[str, str]:
    held = values(samples, "vf_place", "slot", "vf", "place")
    return {f"{slot}v{vf}": place for (slot, vf, place), value in held.items() if value}


def test_a_spark_that_is_as_planned(cluster: Cluster) -> None:
    seen = cluster.read()
    assert cluster.said == [] and unread(seen) == set() and problems(seen) == set()
    assert set(values(seen, "metrics_part_ok", "part")) == {(p,) for p in ("fabric", "rdma", "memory", "gpu", "ranks")}
    assert values(seen, "function_link_up", "slot") == {("p0f0",): 1, ("p0f1",): 1}
    assert values(seen, "function_speed_bytes_per_second", "slot")["p0f0",] == 12.5e9
    assert values(seen, "function_mtu_bytes", "slot") == values(seen, "function_planned_mtu_bytes", "slot")
    assert set(places(seen).values()) == {"host"} and len(places(seen)) == 4
    assert set(values(seen, "vf_gid_ok", "slot", "vf").values()) == {1}
    assert values(seen, "vf_gid_index", "slot", "vf", "purpose")["p0f0", "0", "serving"] == 3
    assert values(seen, "rdma_sent_bytes_total", "hca", "pci", "vf")["rocep1s0f0v0", "0000:01:00.0", "0"] == 100
    assert values(seen, "rdma_received_bytes_total", "hca")["roceP2p1s0f0v0",] == 200
    assert values(seen, "rdma_errors_total", "hca", "counter")["rocep1s0f0v0", "out_of_sequence"] == 3
    assert values(seen, "memory_available_bytes") == {(): 117440512 * 1024}
    assert values(seen, "memory_floor_bytes") == {(): 2**30}
    assert values(seen, "gpu_low_power", "gpu") == {("0",): 0}
    assert values(seen, "gpu_clock_hertz") == {(): 2411e6} and values(seen, "gpu_power_watts") == {(): 61.5}
    assert values(seen, "gpu_utilization_ratio") == {(): 0.96}
    assert values(seen, "verify_passed") == {(): 1}
    assert values(seen, "metrics_collected_timestamp_seconds") == {(): int(NOW)}


def test_a_vf_in_a_pod_is_judged_there(cluster: Cluster) -> None:
    cluster.node.add_namespace("cni-1", pids=2)
    cluster.node.move("enp1s0f0v0", "cni-1", "net1")
    cluster.node.address("net1", "10.100.10.1/24")
    cluster.count("rocep1s0f0v0", "counters/port_xmit_data", 25)
    cluster.count("rocep1s0f0v0", "counters/port_rcv_data", 50)
    seen = cluster.read()
    assert places(seen)["p0f0v0"] == "pod" and problems(seen) == set() and cluster.said == []
    assert values(seen, "rdma_sent_bytes_total", "hca", "vf")["rocep1s0f0v0", "0"] == 100


def test_each_fault_of_the_fabric_has_its_problem(cluster: Cluster) -> None:
    cluster.node.address("enp1s0f0v0")
    cluster.node.down("enP2p1s0f0v1")
    seen = cluster.read()
    assert problems(seen) == {("p0f0", "0", "gid.no-ipv4"), ("p0f1", "1", "gid.link-down")}
    assert values(seen, "vf_gid_ok", "slot", "vf")["p0f0", "0"] == 0
    assert ("p0f0", "0") not in values(seen, "vf_gid_index", "slot", "vf")
    assert unread(seen) == set(), "a fault that was read is no reading that failed"


def test_gid_drift_shows_while_the_address_is_still_there(cluster: Cluster) -> None:
    cluster.node.gids("rocep1s0f0v0", [("fe80:0000:0000:0000:0000:00ff:fe00:0001", "RoCE v2", "enp1s0f0v0")])
    assert problems(cluster.read()) == {("p0f0", "0", "gid.not-in-table")}


def test_an_index_that_differs_is_wrong_only_where_one_is_pinned(cluster: Cluster) -> None:
    cluster.settings["gid_index"] = 3
    assert problems(cluster.read()) == set()
    cluster.settings["gid_index"] = 5
    seen = problems(cluster.read())
    assert len(seen) == 4 and {problem for _slot, _vf, problem in seen} == {"gid.index-differs"}


def test_a_missing_hca_and_missing_vfs(cluster: Cluster) -> None:
    cluster.node.find("enp1s0f0v1")[1].hca = None
    for folder in ("class/infiniband", "bus/pci/devices/0000:01:01.1/infiniband"):
        path = pathlib.Path(cluster.node.sysfs, folder, "rocep1s0f0v1")
        subprocess.run(["rm", "-r", path], check=True)
    cluster.node.make_vfs("0002:01:00.0", 0)
    seen = cluster.read()
    assert problems(seen) == {
        ("p0f0", "1", "gid.hca-missing"),
        ("p0f1", "0", "gid.vf-missing"),
        ("p0f1", "1", "gid.vf-missing"),
    }
    assert places(seen)["p0f1v0"] == "missing"


def test_a_function_that_has_vanished(cluster: Cluster) -> None:
    cluster.settings["functions"][0]["pci"] = "0000:09:00.0"
    seen = cluster.read()
    assert values(seen, "function_link_up", "slot") == {("p0f0",): 0, ("p0f1",): 1}
    assert {problem[2] for problem in problems(seen)} == {"gid.function-missing"}
    assert {name: place for name, place in places(seen).items() if name.startswith("p0f0")} == {
        "p0f0v0": "missing",
        "p0f0v1": "missing",
    }


def test_a_stranded_vf(cluster: Cluster) -> None:
    cluster.node.add_namespace("dead", pids=0)
    cluster.node.move("enp1s0f0v0", "dead")
    seen = cluster.read()
    assert places(seen)["p0f0v0"] == "stranded" and ("p0f0", "0", "gid.vf-stranded") in problems(seen)


@pytest.mark.parametrize(
    ("gpu", "stuck"),
    [
        ({"clock": 799, "power": 19.5}, {(): 1}),
        ({"clock": 799, "power": 19.5, "busy": 3}, {}),
        ({"power": "[N/A]"}, {}),
    ],
)
def test_low_power_shows_at_work_only(cluster: Cluster, gpu: dict[str, t.Any], stuck: dict[tuple[()], int]) -> None:
    cluster.gpu(**gpu)
    assert values(cluster.read(), "gpu_low_power") == stuck


def test_what_cannot_be_read_is_said_and_the_rest_is_written(cluster: Cluster) -> None:
    cluster.node.run.on(("nvidia-smi",), (9, "", "No devices were found"))
    cluster.node.run.on(("ip", "-j", "-d", "addr", "show"), (1, "", "no"))
    (cluster.node.root / "proc/meminfo").write_text("")
    counter = cluster.node.root / "sys/class/infiniband/rocep1s0f0v0/ports/1/counters/port_xmit_data"
    counter.unlink()
    counter.mkdir()  # it is there, and cannot be read
    seen = cluster.read()
    assert unread(seen) == {"fabric", "gpu", "memory"}
    assert [line.split(":")[0] for line in cluster.said] == ["fabric", "memory", "gpu"]
    assert not values(seen, "vf_gid_ok") and not values(seen, "memory_available_bytes")
    assert values(seen, "memory_floor_bytes") == {(): 2**30}
    assert ("rocep1s0f0v0",) not in values(seen, "rdma_sent_bytes_total", "hca")
    assert values(seen, "rdma_errors_total", "hca", "vf") == {("rocep1s0f0v0", ""): 3, ("roceP2p1s0f0v0", ""): 3}


def test_ranks_are_told_by_the_pod_that_the_kernel_has_them_in(cluster: Cluster) -> None:
    cluster.rank("901", 1)
    cluster.rank("902", 7, pod="podffffffff-0000-4000-8000-0123456789ab")
    (cluster.node.root / f"var/log/pods/models_serve-glm-rank1-0_{UID}").mkdir(parents=True)
    assert set(values(cluster.read(), "rank", "model", "rank")) == {("serve-glm", "1"), ("unknown", "7")}


def test_without_gpu_limits_and_verify_there_are_no_such_samples(cluster: Cluster) -> None:
    cluster.settings["gpu"] = None
    cluster.settings["verify"] = None
    seen = cluster.read()
    assert ("gpu",) not in values(seen, "metrics_part_ok", "part")
    assert not [name for name, _labels in seen if name.startswith(("dgxspark_gpu", "dgxspark_verify"))]


def test_labels_are_escaped() -> None:
    text = metrics.render([("dgxspark_rank", {"model": 'a"b\\c\nd', "rank": "0"}, 1)])
    assert set(values(parse(text), "rank", "model")) == {('a\\"b\\\\c\\nd',)}


def test_the_file_is_replaced_whole_and_read_by_everybody(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    settings = tmp_path / "metrics.json"
    settings.write_text(json.dumps(cluster.settings))
    assert metrics.main(str(settings), cluster.place) == 2, "the collector's folder is not ours to make"
    output = pathlib.Path(cluster.settings["output"])
    output.parent.mkdir()
    assert metrics.main(str(settings), cluster.place) == 0
    before = output.stat()
    assert before.st_mode & 0o777 == 0o644 and parse(output.read_text())
    assert metrics.main(str(settings), cluster.place) == 0
    assert output.stat().st_ino != before.st_ino and [p.name for p in output.parent.iterdir()] == ["dgxspark.prom"]
    settings.write_text("{")
    assert metrics.main(str(settings), cluster.place) == 2


def test_what_is_laid_on_a_node_runs_with_nothing_but_the_standard_library(tmp_path: pathlib.Path) -> None:
    """As the unit runs it; this machine is no Spark, so the parts it lacks are reported as unread."""
    sources = folder_of(metrics)
    assert "__main__.py" in sources and {"gids.py", "sysfs.py", "values.py"} <= set(sources)
    assert not {name.removesuffix(".py") for name in sources} & (sys.stdlib_module_names | {"ansible"})
    program = tmp_path / "program"
    program.mkdir()
    for name, text in sources.items():
        # Names of Ansible's own variables are data: module_utils/secret_names.py.
        assert not re.search(r"^\s*(?:from|import) ansible|\bansible(?:_collections)?\.", text, re.MULTILINE), name
        (program / name).write_text(text)
    output = tmp_path / "textfile" / "dgxspark.prom"
    output.parent.mkdir()
    settings = {"output": str(output), "device_ids": ["15b3:1021"], "functions": planned(), "gid_index": None}
    settings |= {"memory_floor_bytes": 1, "gpu": None, "verify": None}
    (tmp_path / "metrics.json").write_text(json.dumps(settings))
    python = pathlib.Path(os.path.realpath(sys.executable))
    done = subprocess.run(
        [python, "-I", "-S", "-B", program, tmp_path / "metrics.json"], capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr and done.returncode in (0, 1), done.stderr
    assert {name for name, _labels in parse(output.read_text())} >= {"dgxspark_memory_available_bytes"}
    assert sorted(path.name for path in program.iterdir()) == sorted(sources)
