# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps decided by the NCCL benchmark: on the nodes, and in the serving pod.

Their input, `nccl` and `pod` of the evidence, holds what was measured and logged:
`hosts` (of the ranks, in order), `runs` (each `operation`, `bytes`, `busbw` in GB/s, and if known `algbw` and `time_us`) or
`output` (of roles/nccl/files/nccl_bench.py), `faults` (`host` and `message` of each rank that failed),
`transport` (the result of module `nccl_transport`), `counters` (by host `before` and `after` of `roce_counters`),
`readings` (known lines in the ranks' logs), `versions`, `image` (from the result of `kube_running`); or `reason`: why it was not run.
"""

from __future__ import annotations

import typing as t
from dataclasses import asdict

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl import bandwidth
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.significant import significant
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.bands import (
    BandSet,
    Reading,
    bytes_text,
    choose,
    read,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.port_counters import (
    carried,
    ports_of,
    signs,
    taken,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.values import Evidence, Place, Plain, Result

_VERDICTS = ("ib", "socket", "p2p", "mixed", "unknown", "failed")
_REMEDY = "Look at NCCL's log of every rank (NCCL_DEBUG=INFO), and at the fabric's steps above."


def nccl(evidence: Evidence) -> list[Result]:
    """Judge the NCCL benchmark on the nodes."""
    return judge(evidence, "nccl", "the NCCL benchmark was not run")


def pod(evidence: Evidence) -> list[Result]:
    """Judge the same benchmark in the serving pod."""
    return judge(evidence, "pod", "nothing was measured in the serving pod")


def given(evidence: Evidence, name: str) -> Plain | None:
    """Return a step's input, or None if there is none. Raises CollectionError if it is malformed."""
    value = evidence.more.get(name)
    if value is not None and not isinstance(value, t.Mapping):
        raise CollectionError(f"{name}: a dictionary is needed, not {type(value).__name__}.")
    return dict(value) if value else None


def judge(evidence: Evidence, name: str, absent: str) -> list[Result]:
    """Judge the transport, and each operation's bandwidth by the bands of the hardware class."""
    done = given(evidence, name)
    if done is None and evidence.topology == "single":
        return []
    if done is None or done.get("reason"):
        reason = str(done["reason"]).rstrip(".") if done else absent
        return [Result(name, "not run", (), f"{reason}.")]
    ranks = list(done.get("hosts") or evidence.hosts)
    hosts = list(dict.fromkeys(ranks))
    places = tuple(Place(host) for host in hosts)
    transport = done.get("transport")
    if transport and "hcas" not in transport:
        transport = {**transport, "hcas": taken(transport, ranks)}
    proofs = signs(evidence, hosts, transport, carried(evidence, done.get("counters") or {}, f"{name}.counters"))
    results = [_transport(name, places, transport)] if transport else []
    results += _image(name, places, done.get("image") or {})
    runs, whole = runs_of(done)
    if transport and transport.get("verdict") == "failed":
        pass  # its verdict says why the run did not finish
    elif done.get("faults"):
        results.append(_faults(name, done["faults"]))
    elif not whole:
        told = "the benchmark did not finish: see the logs of all ranks."
        results.append(Result(f"{name} benchmark", "unknown", places, told))
    for operation in dict.fromkeys(run["operation"] for run in runs):
        largest = max((run for run in runs if run["operation"] == operation), key=lambda run: run["bytes"])
        bands = bands_for(evidence, operation, hosts)
        results.append(_bandwidth(name, places, largest, read(largest["busbw"], largest["bytes"], bands, proofs)))
    return results or [Result(name, "not run", (), f"{absent}: neither a transport nor a bandwidth is given.")]


def _image(name: str, places: tuple[Place, ...], image: Plain) -> list[Result]:
    """Judge whether all ranks run the same image, that of the first."""
    if image.get("problems"):
        return [Result(f"{name} image", "fail", places, " ".join(image["problems"]), "kube.image-changed")]
    if not image.get("digest"):
        return []
    return [Result(f"{name} image", "pass", places, f"{image['name']} is {image['digest']} on all ranks.")]


def runs_of(done: Plain) -> tuple[list[Plain], bool]:
    """Return the measurements, and whether the benchmark finished. Raises CollectionError for a malformed line."""
    if done.get("output") is None:
        return list(done.get("runs") or ()), True
    rows, end = bandwidth.parse(done["output"])
    return [asdict(row) for row in rows], end is not None


def bands_for(evidence: Evidence, operation: str, hosts: t.Collection[str]) -> BandSet | None:
    """Return an operation's bands on these hosts, with the ports that the plan uses; the thresholds name the hardware class."""
    entries = evidence.more.get("bands") or {}
    ports = max((len(set(ports_of(evidence, host).values())) for host in hosts), default=0)
    return choose(entries.values(), str(evidence.thresholds["id"]), operation, evidence.topology, len(hosts), ports)


def _transport(name: str, places: tuple[Place, ...], transport: Plain) -> Result:
    verdict = transport.get("verdict")
    if verdict not in _VERDICTS:
        raise CollectionError(f"{name}.transport.verdict: {verdict!r} is not one of {', '.join(_VERDICTS)}.")
    subject = f"{name} transport"
    finding: Plain = next((f for f in transport.get("findings") or () if f["severity"] != "info"), {})
    told = " ".join(filter(None, (str(transport.get("summary") or ""), str(finding.get("message") or "")))).rstrip(".")
    figures: Plain = {"transport": verdict, "hcas": transport.get("hcas") or {}}
    if verdict == "ib":
        return Result(subject, "pass", places, told or "IB on every channel between nodes", figures=figures)
    if verdict == "unknown":
        why = told or "the log does not show it for every rank and channel"
        return Result(subject, "unknown", places, f"which transport carried it is not proven: {why}.", figures=figures)
    if verdict == "p2p" and len(places) < 2:
        return Result(subject, "pass", places, "one node: nothing crosses a network", figures=figures)
    words = {
        "socket": "NCCL runs over TCP sockets, not over the fabric",
        "mixed": "some channels use the fabric and others do not",
        "p2p": "no channel between nodes is in the log",
        "failed": "NCCL failed",
    }[verdict]
    message = f"{words}: {told}." if told else f"{words}."
    cause = f"nccl.{verdict}"
    return Result(subject, "fail", places, message, cause, None, finding.get("remedy") or _REMEDY, figures=figures)


def _faults(name: str, faults: t.Sequence[Plain]) -> Result:
    """Return the failure of ranks that failed although their logs show no NCCL failure."""
    places = tuple(Place(fault["host"]) for fault in faults)
    message = "; ".join(f"{fault['host']}: {fault['message']}" for fault in faults)
    return Result(f"{name} benchmark", "fail", places, message, "nccl.rank-failed", None, _REMEDY)


def _bandwidth(name: str, places: tuple[Place, ...], run: Plain, reading: Reading) -> Result:
    subject = f"{name} {run['operation']} {bytes_text(run['bytes'])}"
    figures = {key: run[key] for key in ("operation", "bytes", "busbw", "algbw", "time_us") if run.get(key) is not None}
    figure = f"{significant(run['busbw'], 4)} GB/s"
    band = reading.band
    if band is None:
        return Result(subject, "unknown", places, f"{figure}: {reading.message}.", figures=figures)
    figures |= {"band": str(band), "certainty": reading.certainty}
    if reading.verdict == "pass":
        return Result(subject, "pass", places, f"{figure}, {reading.message}", figures=figures)
    if reading.certainty == "ruled out":
        # It is slow, but not for the reason that the figure suggests.
        message = f"{figure}, {reading.message}; but the log or the counters rule that out, so something else is slow."
        return Result(subject, "fail", places, message, "nccl.slow", None, _REMEDY, figures=figures, suspected=True)
    message = f"{figure}, {reading.message} ({reading.certainty})."
    return Result(
        subject,
        "warn" if reading.verdict == "warn" else "fail",
        places,
        message,
        band.cause,
        None,
        band.remedy,
        figures=figures,
        suspected=reading.certainty != "confirmed",
    )
