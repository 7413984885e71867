# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the logs are of one run: its processes share communicators, and each of them has one.

A log with a later run appended holds both, and the older run's proof must not count for the later one.
"""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.log import Evidence, Process
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl.communicators import Communicator

MOST_NAMED = 4
_RDMA = ("IB", "NCCL RDMA Plugin")  # prefixes of the RDMA networks' names


def apart(comms: t.Sequence[Communicator]) -> list[list[int]]:
    """Return the processes of each run: those linked, directly or not, by communicators of several ranks."""
    found: list[set[int]] = []
    for comm in comms:
        # An unnamed communicator that spans several logs looks like several: the logs are truncated and prove no more.
        members = {number for number, member in comm.members.values() if member.comm_id or member.child}
        if comm.nranks < 2 or not members:
            continue
        touched = [run for run in found if run & members]
        found = [run for run in found if not run & members] + [members.union(*touched)]
    return sorted(sorted(run) for run in found)


def silent(evidence: Evidence) -> list[int]:
    """Return the processes without a communicator, if others have one."""
    if not any(process.members for process in evidence.processes):
        return []
    return [number for number, process in enumerate(evidence.processes) if not process.members]


def networks(process: Process) -> set[str]:
    """Return the networks that a process's channels use."""
    own = {name for member in process.members for name in member.networks}
    return own | {link.network for link in process.loose.values() if link.network}


def no_rdma(evidence: Evidence, process: Process) -> str:
    """Return the variable that keeps a process from using RDMA, or "" if none does."""
    said = {**evidence.settings, **process.settings}
    if said.get("NCCL_IB_DISABLE", "0") not in ("0", ""):
        return "NCCL_IB_DISABLE"
    return "NCCL_NET=Socket" if said.get("NCCL_NET", "").lower() == "socket" else ""


def gaps(
    evidence: Evidence, comms: t.Sequence[Communicator], used: set[str], name: t.Callable[[int | None], str]
) -> list[str]:
    """Return the evidence against a single run that uses these networks; empty if there is none."""
    found = [f"{_some(silent(evidence), name)}: no communicator in the log"] if silent(evidence) else []
    for number, process in enumerate(evidence.processes):
        own = networks(process)
        over_rdma = any(link.startswith(_RDMA) for link in own)
        if used and process.network and process.network not in (own or used):
            found.append(f"{name(number)}: it chose the network {process.network} last, and no channel uses that")
        listed_none = process.no_device or process.devices.get("IB") == ()
        if listed_none and over_rdma:
            found.append(f"{name(number)}: it found no RDMA device, and has channels over RDMA: two runs in one log")
        if used and process.devices.get("Socket") and own and "Socket" not in own:
            found.append(
                f"{name(number)}: it initialised the network Socket, and has no channel over it: two runs in one log"
            )
        if over_rdma and (said := no_rdma(evidence, process)):
            found.append(f"{name(number)}: {said} was set, and it has channels over RDMA: two runs in one log")
        if process.headless:
            found.append(f"{name(number)}: there are lines of a communicator whose start is not in the log")
    runs = apart(comms)
    for run in runs if used and len(runs) > 1 else ():
        if not any(networks(evidence.processes[number]) for number in run):
            found.append(f"{_some(run, name)}: a separate run without traffic between nodes")
    return found


def described(runs: t.Sequence[t.Sequence[int]], name: t.Callable[[int | None], str]) -> str:
    """Name the processes of each run."""
    shown = "; ".join(_some(run, name) for run in runs[:MOST_NAMED])
    return shown + (f"; and {len(runs) - MOST_NAMED} more" if len(runs) > MOST_NAMED else "")


def _some(numbers: t.Sequence[int], name: t.Callable[[int | None], str]) -> str:
    shown = ", ".join(name(number) for number in numbers[:MOST_NAMED])
    return shown + (f" and {len(numbers) - MOST_NAMED} more" if len(numbers) > MOST_NAMED else "")
