# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role spark_metrics installs on a node: the program, its settings from the fabric plan, a unit and a timer."""

from __future__ import annotations

import datetime
import json
import pathlib
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils import metrics
from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import from_json
from ansible_collections.dgxspark.cluster.plugins.module_utils.source import folder_of
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    MIB,
    CollectionError,
    PlannedHost,
    from_plain,
    to_plain,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import hardware

Plain = dict[str, t.Any]

FOLDER = "/usr/local/lib/dgxspark/metrics"
FILE = "dgxspark.prom"
UNIT = "dgxspark-metrics"
SHORTEST_S, LONGEST_S = 15, 300  # the alert DgxSparkMetricsStale fires after longer than this
_UNITS = "/etc/systemd/system"
_REMEDY = (
    "Install the package prometheus-node-exporter, or name its textfile collector's folder in spark_metrics_textfile."
)
_HEAD = "# Written by the Ansible role dgxspark.cluster.spark_metrics; its next run undoes changes by hand.\n"


def plan(
    host: t.Any,
    profile: str,
    textfile: str,
    interval_s: int,
    *,
    gid_index: int | None = None,
    floor_mib: int | None = None,
    report: str | None = None,
    dirs: t.Sequence[str] = (),
) -> Plain:
    """Return `files` (path, content, mode), `enable`, `restart`, `output` and `needs`, as the module unit_files takes them.

    host: the node's entry in the fabric plan, in plain form. profile: a hardware class. textfile: the collector's folder.
    gid_index: if one is pinned. floor_mib: of available memory; defaults to where the class's memory guard acts.
    report: path of verify's last JSON report. Raises CollectionError that names the variable with an invalid value.
    """
    if not textfile.startswith("/"):
        raise CollectionError(f"spark_metrics_textfile: {textfile!r} is not an absolute path.")
    if not SHORTEST_S <= interval_s <= LONGEST_S:
        raise CollectionError(f"spark_metrics_interval_s: {interval_s} is not within {SHORTEST_S} and {LONGEST_S}.")
    planned = from_plain(PlannedHost, host, "dgxspark_plan")
    floor = floor_mib if floor_mib is not None else hardware.guard(profile, dirs)["kill"]["term_mib"]
    settings: metrics.Settings = {
        "output": f"{textfile.rstrip('/')}/{FILE}",
        "device_ids": list(hardware.device(profile, dirs)["pf_device_ids"]),
        "functions": [to_plain(function) for function in planned.functions],
        "gid_index": gid_index,
        "memory_floor_bytes": floor * MIB,
        "gpu": hardware.health(profile, dirs).get("gpu"),
        "verify": outcome(report) if report else None,
    }
    text = json.dumps(settings, indent=1, sort_keys=True) + "\n"
    files = {f"{FOLDER}/{name}": source for name, source in folder_of(metrics).items()}
    files |= {
        metrics.SETTINGS: text,
        f"{_UNITS}/{UNIT}.service": _service(),
        f"{_UNITS}/{UNIT}.timer": _timer(interval_s),
    }
    return {
        "files": [{"path": path, "content": content, "mode": "0644"} for path, content in sorted(files.items())],
        "enable": [f"{UNIT}.timer"],
        "restart": [f"{UNIT}.timer"],
        "output": [settings["output"]],
        "needs": {textfile.rstrip("/"): _REMEDY},
    }


def outcome(report: str) -> metrics.Verify:
    """Return the verdict and finish time in a verify report, for the node. Raises CollectionError if it is not one."""
    try:
        said = from_json(pathlib.Path(report).read_text(encoding="utf-8"))
        finished = datetime.datetime.fromisoformat(said["finished"]).timestamp()
        return {"passed": str(said["verdict"]) == "passed", "finished": finished}
    except (OSError, ValueError, TypeError, KeyError, OverflowError) as exc:
        raise CollectionError(
            f"spark_metrics_report: {report} is not a report of verify ({exc}). Name its JSON file, or none (null)."
        ) from None


def _service() -> str:
    return (
        f"{_HEAD}[Unit]\nDescription=Metrics of this node for Prometheus\n\n[Service]\nType=oneshot\n"
        f"ExecStart=/usr/bin/python3 -I -S -B {FOLDER}\nNice=10\nTimeoutStartSec=180\n"
    )


def _timer(interval_s: int) -> str:
    return (
        f"{_HEAD}[Unit]\nDescription=Write the metrics of this node\n\n[Timer]\nOnActiveSec=1\n"
        f"OnUnitActiveSec={interval_s}\nAccuracySec=1\n\n[Install]\nWantedBy=timers.target\n"
    )
