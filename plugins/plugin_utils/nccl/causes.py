# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Causes of the verdict: from the signatures found, and from what several lines say together.

What one line means is data (`knowledge/signatures/`); this module holds only what takes several lines to see.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.log import Evidence, Process, Sign
from ansible_collections.dgxspark.cluster.plugins.module_utils.signatures import Signature
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import SEVERITIES, Finding, to_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl import runs
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl.communicators import Communicator

# External RDMA plugins call themselves IBext, IBext_v8 … v11 or "NCCL RDMA Plugin v10": the same transport.
_RDMA = re.compile(r"IB(?:ext(?:_v\d+)?)?$|NCCL RDMA Plugin\b")

# ncclResult_t
CODES = {1: "unhandled CUDA error", 2: "system error", 3: "internal error", 4: "invalid argument", 5: "invalid usage"}
CODES[6] = "remote error"
# Names of network interfaces: predictable names, kernel names, bonds, and pods' names.
_NETDEV = re.compile(r"^(?:en[Ppsox]\w+|eth\d+|ib\d+|ibp\w+|ibs\w+|net\d+|bond\d+|wl\w+|lo)$")
_POD = re.compile(r"^net\d+$")  # Multus's names for the interfaces it adds
_SOFT = re.compile(r"^rxe")  # the usual name of soft-RoCE devices, as in the manual of rdma(8)


def kind_of(network: str) -> str:
    """Return `ib`, `socket` or `other` for a network's name."""
    if _RDMA.match(network):
        return "ib"
    return "socket" if network == "Socket" else "other"


@dataclass(frozen=True, slots=True)
class Cause:
    """A finding with the line that shows it. Causes that follow from another sort after it."""

    finding: Finding
    line: str = ""
    fatal: bool = False
    follows: bool = False


def ordered(found: t.Sequence[Cause]) -> list[dict[str, t.Any]]:
    """Return the causes in plain form, without duplicates, the likeliest first."""
    unique: dict[tuple[str, str, str], Cause] = {}
    for cause in found:
        unique.setdefault((cause.finding.id, cause.finding.subject, cause.finding.message), cause)
    ranked = sorted(
        unique.values(),
        key=lambda cause: (not cause.fatal, cause.follows, SEVERITIES.index(cause.finding.severity)),
    )
    return [{**to_plain(cause.finding), "line": cause.line} for cause in ranked]


def who(evidence: Evidence, number: int | None) -> str:
    """Name a process by its host and its rank in its largest communicator."""
    if number is None:
        return "log"
    process = evidence.processes[number]
    largest = max(process.members, key=lambda m: m.nranks, default=None)
    place = f"{process.host}:{process.pid}"
    return f"rank {largest.rank} ({place})" if largest else place


def of_signs(evidence: Evidence, signatures: t.Sequence[Signature]) -> list[Cause]:
    """Turn the signatures found into causes.

    Omits harmless ones, an engine's repetition of what NCCL itself said, and a peer's end after the process's own.
    """
    known = {signature.id: signature for signature in signatures}
    seen = {sign.id for sign in evidence.signs if not known[sign.id].benign}
    by_rank = {sign.id for sign in evidence.signs if sign.process is not None}
    return [
        _of_sign(evidence, known[sign.id], sign, known[sign.id].follows(seen))
        for sign in evidence.signs
        if not known[sign.id].benign
        and not (sign.process is None and sign.id in by_rank)
        and not (known[sign.id].follows_from and sign.after_end)
    ]


def _of_sign(evidence: Evidence, signature: Signature, sign: Sign, follows: bool) -> Cause:
    words = _Words(sign.captured)
    finding = Finding(
        signature.id,
        signature.severity,
        who(evidence, sign.process),
        signature.cause.format_map(words),
        signature.remedy.format_map(words),
    )
    return Cause(finding, sign.line, signature.fatal, follows)


class _Words(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "?"


def failures(evidence: Evidence) -> list[tuple[int, str, int]]:
    """Return the calls that failed as (process, place, code), the first of each process."""
    first: dict[int, tuple[int, str, int]] = {}
    for number, place, code in evidence.gave_up:
        first.setdefault(number, (number, place, code))
    return list(first.values())


def of_verdict(
    evidence: Evidence,
    comms: t.Sequence[Communicator],
    verdict: str,
    gaps: t.Sequence[str],
    failed: t.Sequence[tuple[int, str, int]],
) -> list[Cause]:
    """Return what the lines say together: why TCP, why the verdict is unknown, which ranks gave up."""
    made = _runs_apart(evidence, comms, verdict) + _warnings(evidence)
    if verdict == "mixed":
        made += _mixed(comms)
    if others := sorted({name for comm in comms for name in comm.networks if kind_of(name) == "other"}):
        made.append(
            _cause(
                "network-other",
                "ranks",
                f"The network {', '.join(others)} is neither NCCL's RDMA nor its TCP, and this collection does not know it.",
                "Set NCCL_NET=IB, or NCCL_NET_PLUGIN=none if the image contains that plugin.",
            )
        )
    if verdict in ("socket", "mixed"):
        made += [cause for number, p in enumerate(evidence.processes) for cause in _why_tcp(evidence, number, p)]
    if verdict == "failed":
        made += [
            Cause(
                Finding(
                    "nccl.gave-up",
                    "error",
                    who(evidence, number),
                    f"NCCL gave up with code {code} ({CODES.get(code, 'of CUDA')}).",
                    "The first NCCL WARN line of all ranks shows the cause.",
                ),
                f"{place} -> {code}",
                fatal=True,
                follows=True,
            )
            for number, place, code in failed
        ]
        made += [
            dataclasses.replace(cause, fatal=True)
            for number, process in enumerate(evidence.processes)
            if process.no_device and not process.members
            for cause in _why_no_device(evidence, number, process)
        ]
    if len({process.version for process in evidence.processes if process.version}) > 1:
        said = sorted(f"{who(evidence, n)} {p.version}" for n, p in enumerate(evidence.processes) if p.version)
        made.append(
            Cause(
                Finding(
                    "nccl.versions-differ",
                    "error",
                    "ranks",
                    f"The ranks have different versions of NCCL: {', '.join(said[:8])}.",
                    "Use one image, by digest, on all nodes.",
                )
            )
        )
    made += [
        _cause("foreign-log", name, "It contains no NCCL output.", "Give NCCL's log of that rank.", severity="warning")
        for name, count in evidence.sources.items()
        if not count
    ]
    if gaps:
        made += _why_incomplete(evidence, comms, verdict, gaps)
    return made


def soft_roce(devices: t.Collection[str]) -> list[Cause]:
    """Report channel devices that are RDMA in software."""
    soft = sorted(name for name in devices if _SOFT.match(name))
    return [
        _cause(
            "soft-roce",
            "ranks",
            f"{', '.join(soft)} is soft-RoCE: RDMA in software over a network interface, without the adapter's own.",
            "Name the adapter's devices in NCCL_IB_HCA (`rdma link` lists all), and remove rxe devices with rdma link delete.",
            severity="warning",
        )
    ] if soft else []  # fmt: skip


def _warnings(evidence: Evidence) -> list[Cause]:
    """Report each warning that no signature matches, with the ranks that print it."""
    by_text: dict[str, list[int]] = {}
    for number, process in enumerate(evidence.processes):
        for text in process.warnings:
            by_text.setdefault(text, []).append(number)
    return [
        _cause(
            "warning",
            who(evidence, numbers[0]) + (f" and {len(numbers) - 1} more" if len(numbers) > 1 else ""),
            f"NCCL warns: {text}",
            "This collection does not know this line. NCCL's own documentation, or its issues, may say more.",
            text,
            "warning",
        )
        for text, numbers in by_text.items()
    ]


def _runs_apart(evidence: Evidence, comms: t.Sequence[Communicator], verdict: str) -> list[Cause]:
    found = runs.apart(comms)
    if len(found) < 2:
        return []
    return [
        _cause(
            "several-runs",
            "log",
            f"These are {len(found)} runs, which share no communicator: "
            f"{runs.described(found, lambda number: who(evidence, number))}.",
            "Give the logs of one run only: a file that a later run appended to has the lines of both.",
            severity="error" if verdict == "unknown" else "warning",
        )
    ]


def _why_tcp(evidence: Evidence, number: int, process: Process) -> list[Cause]:
    """Return why a rank uses TCP."""
    subject = who(evidence, number)
    no_rdma = runs.no_rdma(evidence, process)
    if no_rdma == "NCCL_IB_DISABLE":
        return [_cause("ib-disabled", subject, "NCCL_IB_DISABLE switches RDMA off.", "Unset NCCL_IB_DISABLE.")]
    if no_rdma:
        return [_cause("socket-asked", subject, "NCCL_NET=Socket asks for TCP.", "Set NCCL_NET=IB.")]
    if process.no_device or process.devices.get("IB") == ():
        return _why_no_device(evidence, number, process)
    if "Socket" in process.devices and "IB" not in process.devices:
        return [
            _cause(
                "socket-asked",
                subject,
                "NCCL did not even look for RDMA devices: NCCL_NET=Socket asks for TCP, or the program does.",
                "Set NCCL_NET=IB, and look for NCCL_NET in /proc/PID/environ and in nccl.conf.",
            )
        ]
    if process.network == "Socket":
        return [
            _cause(
                "tcp-unexplained",
                subject,
                "It uses TCP, and its log does not say why: variables of the caller are not always printed.",
                "Look at NCCL_NET, NCCL_IB_DISABLE and NCCL_NET_PLUGIN in /proc/PID/environ, and set NCCL_NET=IB.",
            )
        ]
    return []


def _mixed(comms: t.Sequence[Communicator]) -> list[Cause]:
    """Report the communicators, ranks and channels that use no RDMA while others do."""
    made = []
    for comm in comms:
        strange = sorted(
            {(member.rank, key[0]) for _n, member in comm.members.values() for key, link in member.links.items()
             if link.network and kind_of(link.network) != "ib"}
        )  # fmt: skip
        if strange:
            shown = ", ".join(f"rank {rank} channel {channel}" for rank, channel in strange[:6])
            rest = f" and {len(strange) - 6} more" if len(strange) > 6 else ""
            made.append(
                _cause(
                    "not-all-rdma",
                    f"communicator {comm.id}",
                    f"Without RDMA, while others use it: {shown}{rest}.",
                    "Find out why on the ranks named; NCCL_NET=IB on every rank makes NCCL refuse instead.",
                )
            )
    return made


def _why_no_device(evidence: Evidence, number: int, process: Process) -> list[Cause]:
    subject = who(evidence, number)
    wanted = process.settings.get("NCCL_IB_HCA") or evidence.settings.get("NCCL_IB_HCA", "")
    names = [each.split(":")[0] for each in wanted.lstrip("=^").split(",") if each]
    netdevs = [name for name in names if _NETDEV.match(name)]
    line = "NET/IB : No device found."
    if netdevs and not wanted.startswith("^"):
        return [
            _cause(
                "hca-is-netdev",
                subject,
                f"NCCL_IB_HCA names a network interface ({', '.join(netdevs)}), not an RDMA device.",
                "Use the name in /sys/class/infiniband, such as rocep1s0f0 for enp1s0f0np0.",
                line,
            )
        ]
    meant = [hca for hca in process.not_opened if not names or wanted.startswith("^") or _names(wanted, names, hca)]
    if meant:
        return [
            _cause(
                "device-not-open",
                subject,
                f"RDMA devices exist but cannot be opened: {', '.join(meant[:8])}. Their device nodes are not in this "
                "container, or it has no permission to open them. Whether a port is active was not even checked.",
                "Give the pod /dev/infiniband (device plugin with isRdma, or privileged); outside of pods check the permissions "
                "of /dev/infiniband/uverbs*.",
                f"NET/IB : Unable to open device {meant[0]}",
            )
        ]
    if names and not wanted.startswith("^"):
        return [
            _cause(
                "hca-unusable",
                subject,
                f"None of the RDMA devices of NCCL_IB_HCA ({', '.join(names)}) can be used: they are not in this container, "
                "or have another name here, or their port is not active.",
                "Compare with `ls /sys/class/infiniband /dev/infiniband` in the container and `rdma link` on the node.",
                line,
            )
        ]
    if process.oob and _POD.match(process.oob):
        return [
            _cause(
                "no-device-in-pod",
                subject,
                f"There is no RDMA device next to {process.oob}: a pod can have a network interface without /dev/infiniband.",
                "Give the pod /dev/infiniband (device plugin with isRdma, or privileged).",
                line,
            )
        ]
    return [
        _cause(
            "no-active-device",
            subject,
            "There is no RDMA device with an active port.",
            "Look at `rdma link` on the node: driver loaded, cable in, port ACTIVE; in a container also /dev/infiniband.",
            line,
        )
    ]


def _names(wanted: str, names: t.Sequence[str], hca: str) -> bool:
    """Whether NCCL_IB_HCA matches a device: by name prefix, or exactly with `=`."""
    return hca in names if wanted.startswith("=") else any(hca.startswith(name) for name in names)


def _why_incomplete(
    evidence: Evidence, comms: t.Sequence[Communicator], verdict: str, gaps: t.Sequence[str]
) -> list[Cause]:
    severity: t.Literal["error", "warning"] = "error" if verdict == "unknown" else "warning"
    text = "; ".join(gaps[:5])
    if verdict == "failed":
        return []
    if alone := runs.silent(evidence):
        return [
            _cause(
                "no-communicator",
                who(evidence, alone[0]) + (f" and {len(alone) - 1} more" if len(alone) > 1 else ""),
                "It never starts a communicator, while others have one: it hangs before that, or it belongs to another run "
                "in the same log.",
                "Check whether that process still runs, and what it waits for; otherwise give the logs of one run only.",
                severity=severity,
            )
        ]
    if severity == "error" and len(runs.apart(comms)) > 1:
        return []  # reported by _runs_apart
    if not any(process.members for process in evidence.processes):
        return [
            _cause(
                "log-too-quiet",
                "log",
                "NCCL's lines about communicators are not in it (NCCL_DEBUG is WARN or VERSION, or NCCL_DEBUG_SUBSYS "
                "leaves out INIT).",
                "Run with NCCL_DEBUG=INFO and without NCCL_DEBUG_SUBSYS, or with INIT,NET in it.",
                severity=severity,
            )
        ]
    stuck = [c for c in comms if c.nranks > 1 and c.scope == "network" and c.state == "incomplete" and c.stalled]
    if stuck and verdict == "unknown":
        return [
            _cause(
                "stalled",
                f"communicator {stuck[0].id}",
                f"All {stuck[0].nranks} ranks started, and none has its channels connected: it hangs, waits for its "
                f"first use, or the logs end there. {text}.",
                "If the log does not grow: firewall or wrong interface between the ranks, ARP, or a known bad version.",
                severity=severity,
            )
        ]
    lost = [c for c in comms if c.missing]
    if lost or "ranks are in the logs" in text:
        return [
            _cause(
                "ranks-missing",
                f"communicator {lost[0].id}" if lost else "log",
                f"Not every rank is in the logs. {text}.",
                "Give the logs of all ranks (a container's log is rotated: its beginning may be lost).",
                severity=severity,
            )
        ]
    return [
        _cause(
            "log-truncated",
            "log",
            f"The logs are incomplete. {text}.",
            "Give the logs from their beginning, after the first collective has run.",
            severity=severity,
        )
    ]


def _cause(
    name: str,
    subject: str,
    message: str,
    remedy: str,
    line: str = "",
    severity: t.Literal["error", "warning"] = "error",
) -> Cause:
    return Cause(Finding(f"nccl.{name}", severity, subject, message, remedy), line)
