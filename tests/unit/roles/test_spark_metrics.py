"""What the role hands to Prometheus and Grafana: real promtool checks and tests the rules, and no query asks for a missing metric."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil

import pytest
import yaml

from ansible_collections.dgxspark.cluster.plugins.module_utils import facts, metrics
from ansible_collections.dgxspark.cluster.tests.support.metrics_node import UID, Cluster
from ansible_collections.dgxspark.cluster.tests.support.prometheus import (
    FILES,
    PROMTOOL,
    RULES,
    panels,
    promtool,
    recorded,
    rules,
)

HERE = pathlib.Path(__file__).resolve().parent
CASES = HERE / "spark_metrics_alerts.yml"
ENGINES = {"vllm:generation_tokens_total", "sglang:generation_tokens_total"}

real = pytest.mark.skipif(
    not PROMTOOL, reason="promtool: not run. It is neither in PATH nor named by DGXSPARK_PROMTOOL"
)


def queries() -> list[str]:
    return [rule["expr"] for rule in rules()] + panels()


def test_queries_ask_for_what_is_written() -> None:
    asked = {name for query in queries() for name in re.findall(r"\b(?:dgxspark_\w+|(?:vllm|sglang):\w+)", query)}
    assert asked <= set(metrics.FAMILIES) | ENGINES
    tried = set(re.findall(r"(?:dgxspark_\w+|(?:vllm|sglang):\w+)", CASES.read_text())) - {"dgxspark_metrics_alerts"}
    assert tried <= set(metrics.FAMILIES) | ENGINES


def test_every_problem_of_a_vf_has_one_alert() -> None:
    """The ids are those of fabric/gids.py: a new one there needs an alert here."""
    source = (HERE.parents[2] / "plugins/module_utils/fabric/gids.py").read_text()
    ids = {f"gid.{cause}" for cause in re.findall(r'_finding\(\s*"([a-z0-9-]+)"', source)} | {"gid.index-differs"}
    assert len(ids) > 10
    patterns = [
        json.loads(f'"{match}"') for rule in rules() for match in re.findall(r'problem=~"([^"]+)"', rule["expr"])
    ]
    for found in ids:
        assert sum(bool(re.fullmatch(pattern, found)) for pattern in patterns) == 1, found


def test_each_alert_has_its_fault_and_says_what_to_do() -> None:
    expected = re.findall(r'alertname="(\w+)"', CASES.read_text())
    assert set(expected) == {rule["alert"] for rule in rules()}
    assert all({"summary", "action"} <= set(rule["annotations"]) for rule in rules())


@pytest.mark.more
@real
def test_the_rules_are_rules() -> None:
    done = promtool("check", "rules", RULES)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.more
@real
def test_each_alert_fires_on_its_fault_and_on_none_of_the_others() -> None:
    done = promtool("test", "rules", CASES)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.more
@real
@pytest.mark.parametrize("alert", [rule["alert"] for rule in rules()])
def test_a_rule_that_never_fires_is_noticed(tmp_path: pathlib.Path, alert: str) -> None:
    spoilt = yaml.safe_load(RULES.read_text())
    for rule in spoilt["groups"][0]["rules"]:
        if rule["alert"] == alert:
            rule["expr"] = "vector(1) < 0"
    (tmp_path / "alerts.yml").write_text(yaml.safe_dump(spoilt))
    text = CASES.read_text().replace(os.path.relpath(RULES, HERE), "alerts.yml")
    (tmp_path / "cases.yml").write_text(text)
    assert promtool("test", "rules", tmp_path / "cases.yml").returncode != 0


@real
def test_what_a_spark_writes_is_what_rules_and_panels_ask_for(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program's own samples of a VF that lost its GID: that alert alone fires, and no panel is empty."""
    monkeypatch.setattr(facts, "SETTLE_S", 0.0)
    cluster = Cluster(tmp_path / "node")
    cluster.node.gids("rocep1s0f0v0", [("fe80:0000:0000:0000:0000:00ff:fe00:0001", "RoCE v2", "enp1s0f0v0")])
    cluster.rank("901", 1)
    (cluster.node.root / f"var/log/pods/models_serve-glm-rank1-0_{UID}").mkdir(parents=True)
    tokens = {"series": 'vllm:generation_tokens_total{instance="spark1:30000",model="serve-glm"}', "values": "0+600x60"}
    shown = [
        {"expr": f"count({query}) > bool 0", "eval_time": "50m", "exp_samples": [{"labels": "{}", "value": 1}]}
        for query in panels()
    ]
    fired = {
        "expr": 'group by (alertname) (ALERTS{alertstate="firing"})',
        "eval_time": "50m",
        "exp_samples": [{"labels": '{alertname="DgxSparkGidDrift"}', "value": 1}],
    }
    case = {"interval": "1m", "input_series": [*recorded(cluster), tokens], "promql_expr_test": [fired, *shown]}
    asked = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [case]}
    (tmp_path / "asked.yml").write_text(yaml.safe_dump(asked))
    done = promtool("test", "rules", tmp_path / "asked.yml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.more
@real
def test_the_scrape_configuration_is_one(tmp_path: pathlib.Path) -> None:
    shutil.copy(RULES, tmp_path / "alerts.yml")
    text = (FILES / "scrape.yml").read_text().replace("/etc/prometheus/dgxspark-alerts.yml", "alerts.yml")
    (tmp_path / "prometheus.yml").write_text(text)
    done = promtool("check", "config", tmp_path / "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.more
@real
def test_prometheus_takes_the_names() -> None:
    text = metrics.render([(name, {"model": "a"}, 1) for name in metrics.FAMILIES])
    done = promtool("check", "metrics", text=text)
    assert done.returncode == 0, done.stdout + done.stderr
