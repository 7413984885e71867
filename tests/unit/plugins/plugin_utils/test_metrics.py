"""What the role installs on a node: settings of the plan, and refusals that name the variable."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import metrics
from ansible_collections.dgxspark.cluster.tests.unit.verify_inputs import Cluster

FOLDER = "/var/lib/prometheus/node-exporter"


def laid(textfile: str = FOLDER, interval_s: int = 60, profile: str = "spark", **more: t.Any) -> dict[str, str]:
    host = Cluster(2).plan["hosts"]["spark1"]
    made = metrics.plan(host, profile, textfile, interval_s, **more)
    assert made["enable"] == made["restart"] == ["dgxspark-metrics.timer"]
    assert {file["mode"] for file in made["files"]} == {"0644"}
    return {file["path"]: file["content"] for file in made["files"]}


def settings(**more: t.Any) -> dict[str, t.Any]:
    return t.cast(dict[str, t.Any], json.loads(laid(**more)["/etc/dgxspark/metrics.json"]))


def test_the_settings_are_those_of_the_plan_and_of_the_hardware(tmp_path: pathlib.Path) -> None:
    made = settings()
    assert [function["slot"] for function in made["functions"]] == ["p0f0", "p0f1"]
    assert made["output"] == f"{FOLDER}/dgxspark.prom" and made["device_ids"] and made["verify"] is None
    assert made["memory_floor_bytes"] == 1024 * 2**20 and made["gpu"]["low_clock_mhz"] == 1400
    assert settings(profile="lab")["gpu"] is None
    report = tmp_path / "fabric.json"
    report.write_text(json.dumps({"verdict": "incomplete", "finished": "1970-01-01T00:01:00Z"}))
    more = settings(report=str(report), gid_index=3, floor_mib=768)
    assert more["verify"] == {"passed": False, "finished": 60.0}
    assert (more["gid_index"], more["memory_floor_bytes"]) == (3, 768 * 2**20)


def test_the_timer_has_the_interval() -> None:
    assert "OnUnitActiveSec=30\n" in laid(interval_s=30)["/etc/systemd/system/dgxspark-metrics.timer"]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"textfile": "node-exporter"}, "spark_metrics_textfile"),
        ({"interval_s": 5}, "spark_metrics_interval_s"),
        ({"interval_s": 301}, "spark_metrics_interval_s"),
        ({"report": "/nonexistent.json"}, "spark_metrics_report"),
    ],
)
def test_what_cannot_be_is_refused_by_name(wrong: dict[str, t.Any], named: str) -> None:
    with pytest.raises(CollectionError, match=named):
        laid(**wrong)


@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"verdict": "passed", "finished": null}', '{"finished": "soon", "verdict": "passed"}']
)
def test_a_file_that_is_no_report_is_refused(tmp_path: pathlib.Path, text: str) -> None:
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(CollectionError, match="is not a report of verify"):
        metrics.outcome(str(tmp_path / "report.json"))
