"""The rules and the dashboard of the role spark_metrics, and promtool to ask about them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import typing as t

import yaml

from ansible_collections.dgxspark.cluster.tests.support.metrics_node import Cluster
from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT

FILES = ROOT / "roles" / "spark_metrics" / "files"
RULES = FILES / "alerts.yml"
PROMTOOL = os.environ.get("DGXSPARK_PROMTOOL") or shutil.which("promtool")


def promtool(*words: object, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(PROMTOOL), *map(str, words)], input=text, capture_output=True, text=True, check=False, timeout=120
    )


def rules() -> list[dict[str, t.Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[str]:
    """Return the dashboard's queries, Grafana's own variables replaced."""
    board = json.loads((FILES / "dashboard.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return [query.replace("$__rate_interval", "5m").replace("$node", ".*") for query in asked]


def recorded(cluster: Cluster, instance: str = "spark1:9100", moved: int = 1000000) -> t.Iterator[dict[str, str]]:
    """Yield what a Spark writes as an hour of readings: counters grow, gauges stay, the file is always new.

    moved: how much counters grow per minute.
    """
    for (name, labels), value in cluster.read().items():
        text = ",".join(f'{key}="{said}"' for key, said in sorted({*labels, ("instance", instance)}))
        grows = 60 if name == "dgxspark_metrics_collected_timestamp_seconds" else moved if "_total" in name else 0
        begin = 0 if grows == 60 else value
        yield {"series": f"{name}{{{text}}}", "values": f"{begin:.0f}+{grows}x60"}
