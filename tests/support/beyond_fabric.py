"""Results of the steps after the fabric (NCCL, pod, tokens, wire), and the report on them."""

from __future__ import annotations

import json
from typing import Any

import jsonschema

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.modes import mode_of
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.report import STEP_IDS, build_report
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.values import evidence_of
from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT
from ansible_collections.dgxspark.cluster.tests.unit.verify_inputs import Cluster, Plain

GIB = 1024**3
SCHEMAS = ROOT / "docs" / "schema"
REPORT = jsonschema.Draft202012Validator(json.loads((SCHEMAS / "fabric-report.json").read_text(encoding="utf-8")))
MODES = knowledge.load("modes")
BANDS = knowledge.load("bands")
FUNCTIONS = ("rocep1s0f0v0", "roceP2p1s0f0v0")


def judge(cluster: Cluster, mode: str = "strict", **results: Any) -> Plain:
    """Probe and meet, then judge with what was done beyond the fabric."""
    cluster.thresholds["id"] = "spark"
    if not cluster.hosts["spark1"].get("probe"):
        cluster.probe()
        cluster.meet()
    evidence = evidence_of(cluster.plan, cluster.hosts, cluster.thresholds, {"bands": BANDS, **results})
    made = build_report(evidence, {}, mode=mode_of(MODES[mode], STEP_IDS))
    report: Plain = json.loads(json.dumps(made["report"]))
    REPORT.validate(report)
    return report | {"table": made["table"]}


def run(busbw: float, operation: str = "all_reduce", size: int = GIB) -> Plain:
    return {"operation": operation, "bytes": size, "busbw": busbw, "algbw": busbw / 1.5, "time_us": 1000.0}


def transport(verdict: str = "ib", hcas: Any = FUNCTIONS, hosts: int = 4, **more: Any) -> Plain:
    return {"verdict": verdict, "hcas": {f"spark{n}": list(hcas) for n in range(1, hosts + 1)}, **more}


def nccl(busbw: float = 22.7, **more: Any) -> Plain:
    return {"hosts": [f"spark{n}" for n in (1, 2, 3, 4)], "runs": [run(busbw)], "transport": transport(), **more}


def readings(moved: dict[str, int], words: bool = True) -> Plain:
    """Counters before and after a request in which each HCA moved this many bytes (or packets)."""
    sent, received = ("port_xmit_data", "port_rcv_data") if words else ("sent_pkts", "rcvd_pkts")
    scale = 4 if words else 1

    def at(factor: int) -> list[Plain]:
        return [
            {"hca": hca, "port": 1, "guid": "g", "counts": {sent: 10**9 + factor * n // scale, received: 10**9}}
            for hca, n in moved.items()
        ]

    return {"before": at(0), "after": at(1)}


BOTH = dict.fromkeys(FUNCTIONS, 50 * 1024**2)
CANARY = {"groups": [{"name": "default", "status": "ok", "ttft_s": 0.42, "tokens": 60, "tokens_per_s": 21.5}]}
ALL: Plain = {
    "nccl": nccl(),
    "pod": nccl(21.0),
    "tokens": CANARY,
    "wire": {"counters": {f"spark{n}": readings(BOTH) for n in (1, 2, 3, 4)}},
}
