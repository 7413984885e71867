"""Reports for tests of the page: of healthy, broken, unseen and large clusters, with and without what comes after."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import to_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge, signatures
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.modes import mode_of
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.report import STEP_IDS, build_report
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.values import evidence_of
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import make
from ansible_collections.dgxspark.cluster.tests.unit.verify_inputs import Cluster, Plain

GIB = 1024**3
FUNCTIONS = ("rocep1s0f0v0", "roceP2p1s0f0v0")
META = {
    "started": "2026-11-21T16:02:11Z",
    "finished": "2026-11-21T16:06:39Z",
    "versions": {"collection": "0.1.0", "ansible_core": "2.21.5"},
}


def report_of(cluster: Cluster, mode: str = "strict", **results: t.Any) -> Plain:
    """Judge a cluster as verify.yml does, and return the report as it is read from its file."""
    cluster.thresholds["id"] = "spark"
    if any("probe" not in seen and seen.get("facts") for seen in cluster.hosts.values()):
        cluster.probe()
        cluster.meet()
    more = {"bands": knowledge.load("bands"), **results}
    evidence = evidence_of(cluster.plan, cluster.hosts, cluster.thresholds, more)
    made = build_report(evidence, META, mode=mode_of(knowledge.load("modes")[mode], STEP_IDS))
    return t.cast(Plain, json.loads(json.dumps(made["report"])))


def curve(operation: str, peak: float, half: float = 6e6) -> list[Plain]:
    """Bandwidth over size as on a real network: half of the peak at `half` bytes."""
    sizes = [8192 * 4**n for n in range(10) if 8192 * 4**n <= 2 * GIB]
    return [
        {"operation": operation, "bytes": s, "busbw": round(peak * s / (s + half), 3), "time_us": 30.0} for s in sizes
    ]


def everything(hosts: t.Sequence[str], peak: float = 22.6) -> Plain:
    """A healthy cluster's results beyond the fabric."""
    transport = {"verdict": "ib", "hcas": {host: list(FUNCTIONS) for host in hosts}}
    nccl = {"hosts": list(hosts), "runs": curve("all_reduce", peak) + curve("all_gather", peak + 0.8)}
    nccl |= {"transport": transport, "versions": {"nccl": "2.29.7"}}

    def at(moved: int) -> list[Plain]:
        values = {"port_xmit_data": 10**9 + moved, "port_rcv_data": 10**9}
        return [{"hca": hca, "port": 1, "guid": "g", "counts": values} for hca in FUNCTIONS]

    return {
        "nccl": nccl,
        "pod": {**nccl, "runs": curve("all_reduce", peak - 1)},
        "tokens": {"groups": [{"name": "default", "status": "ok", "ttft_s": 0.42, "tokens": 96, "tokens_per_s": 21.5}]},
        "wire": {"counters": {host: {"before": at(0), "after": at(21 * 1024**2)} for host in hosts}},
    }


def broken(hosts: int = 4) -> Plain:
    """A report in which one function's link is down, NCCL shows it, and the model writes garbage."""
    cluster = Cluster(hosts, vfs=4)
    cluster.function("spark2", 1)["netdev"] |= {"operstate": "down", "carrier": False}
    for other in (number for number in range(1, hosts + 1) if number != 2):
        for vf in range(4):
            cluster.ping["spark2", f"10.100.{8 + vf}.{other}"] = {"small": "down", "large": "not sent"}
            cluster.ping[f"spark{other}", f"10.100.{8 + vf}.2"] = {"small": "no reply", "large": "not sent"}
    done = everything([f"spark{number}" for number in range(1, hosts + 1)], peak=9.8)
    bad = {
        "name": "default",
        "status": "failed",
        "cause": "tokens.garbage",
        "message": "default: stuck.",
        "remedy": "Stop.",
    }
    said = [
        ("pod serve-default-rank0-0", "Autotuner: nothing to tell\n"),
        ("pod serve-default-rank1-0", "kernel: Out of memory: Killed process 4242 (python3) <b> total-vm:1kB\n"),
    ]
    logs = to_plain(signatures.read_all([*said, ("tuner", _harmless())], signatures.load_table()))
    return report_of(
        cluster,
        nccl={**done["nccl"], "transport": None},
        pod={**done["pod"], "readings": logs},
        tokens={"groups": [bad]},
    )


def _harmless() -> str:
    """A line that looks alarming and is not."""
    return str(next(entry["example"] for entry in knowledge.load("signatures").values() if entry["benign"]))


def ring(hosts: int = 6) -> Plain:
    """A healthy report whose hosts are cabled as a ring, for its picture; the results are those of a switch."""
    plan = make(hosts, {"topology": "ring"})
    report = report_of(Cluster(hosts), "full")
    for host, planned in zip(report["hosts"], plan["hosts"].values(), strict=True):
        keys = ("slot", "port", "segment", "netdev")
        host["functions"] = [
            {key: function[key] for key in keys}
            | {
                "vfs": [
                    {"index": vf["index"], "purpose": vf["purpose"], "address": vf["address"], "hca": None}
                    | {"gid_index": 3, "place": "host"}
                    for vf in function["vfs"]
                ]
            }
            for function in planned["functions"]
        ]
    return {**report, "topology": "ring"}


def samples() -> dict[str, Plain]:
    """Every kind of report that a page is made of, by name."""
    lost = Cluster(4)
    lost.lose("spark3")
    pods = Cluster(2)
    for function in (0, 1):
        pods.vf("spark1", function, 0)["place"] = {"state": "pod", "netns": "/run/netns/cni-1", "pids": 2}
    limited = Cluster(4)
    limited.limit("spark1", "spark2")
    names = [f"spark{number}" for number in range(1, 5)]
    return {
        "passed": report_of(Cluster(4, vfs=4), **everything(names)),
        "fabric": report_of(Cluster(4, vfs=4), "full"),
        "quick": report_of(Cluster(2), "quick"),
        "failed": broken(),
        "incomplete": report_of(lost, nccl={**everything(names, 18.4)["nccl"], "transport": {"verdict": "unknown"}}),
        "pods": report_of(pods, "full"),
        "limited": report_of(limited, "full"),
        "large": report_of(Cluster(16, vfs=1), "full"),
        "ring": ring(),
        "ring of eight": ring(8),
        "long names": report_of(Cluster(["a-very-long-host-name-of-a-spark-in-the-lab.example.org", "spark2"]), "full"),
    }
