# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pod that measures a served model from within the cluster, with the controller's own program, in the engine's image.

The pod is not part of the instance: its labels do not match the ranks' Service, policy or budget. The ranks' policy admits
everyone at the API's port, and the pod needs nothing else.
"""

from __future__ import annotations

import functools
import json
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import from_json, printable
from ansible_collections.dgxspark.cluster.plugins.module_utils.source import tree_of
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, to_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench import in_pod
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.wanted import BenchRequest, Known
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import once, pod
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import (
    COMPONENT_LABEL,
    MANAGED_BY_LABEL,
    MANAGER,
    Plain,
    image,
    label,
    labels,
    settings,
)

BENCH = f"{MANAGER}/bench"  # label: the instance that is measured
SCHEMA = knowledge.COLLECTION / "docs" / "schema" / "bench-report.json"
_CONSTANTS = "bench."
_NAME_MOST = 40
_LARGEST = 8 * 2**20  # characters of a log: a kubelet keeps 10 MiB per log


@dataclass(frozen=True)
class Served:
    """What is measured: an instance, the image of its ranks, and the Secret with its API key."""

    instance: str
    image: str
    secret: str | None = None


@functools.cache
def sources() -> dict[str, str]:
    """Return the program and everything it imports from this collection: path → text."""
    return tree_of(in_pod, in_pod.PROGRAM)


def program_input(wanted: BenchRequest, known: Known) -> str:
    """Return the program's input as JSON. The file paths of knowledge entries stay on the controller."""
    told = {
        kind: {name: {key: value for key, value in entry.items() if key != "origin"} for name, entry in entries.items()}
        for kind, entries in to_plain(known).items()
    }
    told["constants"] = {name: entry for name, entry in told["constants"].items() if name.startswith(_CONSTANTS)}
    return json.dumps({"wanted": to_plain(wanted), "known": told}, default=str, sort_keys=True)


def objects(
    served: Served,
    document: str,
    host: str,
    kubernetes: t.Mapping[str, t.Any] | None,
    timeout_s: int,
    run: str,
) -> tuple[list[Plain], Plain]:
    """Return the objects that the pod needs, the namespace first, and the pod. document: from `asked`. run: suffix of the name.

    host: where it runs. kubernetes: an owner's Settings. timeout_s: for pull and measurement together. Raises CollectionError for
    values that no manifest can express.
    """
    job = once.OneShotPod(
        name=f"bench-{label(served.instance, 'instance', _NAME_MOST)}-{run}",
        container="bench",
        image=image(served.image, f"instance {served.instance}"),
        command=("python3", "-B", f"{pod.PROGRAMS}/{in_pod.PROGRAM}"),
        files={**sources(), in_pod.ASKED: document},
        labels=labels() | {COMPONENT_LABEL: "model-bench", BENCH: served.instance},
        host=host,
        timeout_s=timeout_s,
        limits={"cpu": "4", "memory": "2Gi", "ephemeral-storage": "1Gi"},
        room="256Mi",
        secrets={pod.KEY: (served.secret, "key")} if served.secret else {},
    )
    return once.objects(job, settings(kubernetes))


def key_file(served: Served) -> str | None:
    """Return the path of the API key in the pod; None without a key."""
    return f"{pod.KEY}/key" if served.secret else None


def selector(instance: str) -> list[str]:
    """Return the label selectors of all pods that measure an instance."""
    return [f"{MANAGED_BY_LABEL}={MANAGER}", f"{BENCH}={instance}"]


def alone(pods: t.Sequence[Plain], own: str | None = None) -> None:
    """Raise CollectionError if another run measures the instance. own: this run's pod, which yields to an earlier one."""
    mine = next((each for each in pods if each["metadata"]["name"] == own), None)
    if own and mine is None:
        return
    for each in pods:
        if each is mine or once.ended(each) or each["metadata"].get("deletionTimestamp"):
            continue
        if mine is None or _order(each) < _order(mine):
            name, space = each["metadata"]["name"], each["metadata"]["namespace"]
            raise CollectionError(
                f"another run is measuring this instance, in the pod {name}: two at once would distort each other. Wait until it ends. "
                f"If its playbook was killed: kubectl delete pod {name} -n {space}"
            )


def _order(made: Plain) -> tuple[str, str]:
    return str(made["metadata"].get("creationTimestamp") or ""), str(made["metadata"]["name"])


def report(log: str, where: str) -> Plain:
    """Return the report at the end of a log. Raises CollectionError with the program's own error, or if there is no valid report.

    where: the image and the host.
    """
    before, mark, text = log.partition(f"{in_pod.MARK}\n")
    if not mark:
        raise CollectionError(
            f"{where}: the pod returned no report. Its last output: {printable(before) or '(none)'}. Is it an engine's image, with python3?"
        )
    try:
        said = from_json(text, most=_LARGEST) if len(log) <= _LARGEST else {}
        if isinstance(said, dict) and set(said) == {"error"}:
            raise CollectionError(f"{where}: {printable(str(said['error']), 1000)}")
        made: Plain = said["report"]
    except (ValueError, LookupError, TypeError, RecursionError) as exc:
        raise CollectionError(
            f"{where}: the pod's output is not a complete report: {printable(str(exc))}. Run again."
        ) from exc
    if wrong := knowledge.faults(json.loads(SCHEMA.read_text(encoding="utf-8")), made):
        raise CollectionError(
            f"{where}: the pod's output is not a report: {printable(wrong[0])}. See docs/schema/{SCHEMA.name}."
        )
    return made


def progress(log: str, told: int) -> list[str]:
    """Return the complete lines of a log after the first `told`, which were shown already. The report is not among them."""
    lines = log.partition(in_pod.MARK)[0].split("\n")[:-1]
    return [printable(line) for line in lines[told:]]
