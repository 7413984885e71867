# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The benchmark ranks' outcome: evidence for verify's step nccl, or the reason why nothing was measured."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.files import text_lines
from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.log import Reader
from ansible_collections.dgxspark.cluster.plugins.module_utils.signatures import excerpt
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, to_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import signatures
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl import bandwidth, transport
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl.verdict import Expected

Plain = dict[str, t.Any]
REFUSED, CANNOT = 3, 4  # exit statuses of roles/nccl/files/nccl_bench.py
NOT_STARTED = "Error executing command."  # what Ansible says of a program that is not there, and no more
LOST = "could not find job"  # what Ansible's async_status says


def measured(
    ranks: t.Mapping[str, t.Mapping[str, t.Any]], told: t.Any = None, knowledge_dirs: t.Sequence[str] = ()
) -> Plain:
    """Return a benchmark as evidence for verify, `reason` alone if it cannot run, or nothing if it can and has not.

    ranks: by host, in rank order, `check` and `done`, Ansible's results of the check beforehand (skipped for a pod's rank, since
    only running an image tests it) and of the rank itself (empty if not started), and `fault`, why its environment could not be
    built. told: what `carried` returned. knowledge_dirs: the owner's, for known log lines. Raises CollectionError for
    malformed input.
    """
    if not isinstance(ranks, t.Mapping) or not all(isinstance(rank, t.Mapping) for rank in ranks.values()):
        raise CollectionError("a dictionary is needed: by host, what was seen of its rank.")
    if len(ranks) < 2:
        return {"reason": f"two hosts are needed; asked: {', '.join(ranks) or 'none'}"}
    unready = [f"{host}: {why}" for host, rank in ranks.items() if (why := _unready(rank))]
    if unready:
        return {"reason": "; ".join(unready)}
    if not any(rank.get("done") for rank in ranks.values()):
        return {}
    refused = [f"{host}: {_last(done)}" for host, done in _ended(ranks) if done.get("rc") in (REFUSED, CANNOT)]
    if refused:
        return {"reason": "; ".join(refused)}
    if lost := [host for host, done in _ended(ranks) if done.get("msg") == LOST]:
        return {
            "reason": f"{', '.join(lost)}: the file of the rank's job (in ~/.ansible_async) is gone, so its result is unknown. Run it again."
        }
    output = str(next(_ended(ranks))[1].get("stdout") or "")
    _rows, end = bandwidth.parse(output)
    texts = [(host, _said(done)) for host, done in _ended(ranks)]
    return {
        "hosts": list(ranks),
        "output": output,
        "transport": _transport(told),
        "faults": [{"host": host, "message": _fault(done)} for host, done in _ended(ranks) if done.get("rc") != 0],
        "readings": to_plain(signatures.read_all(texts, signatures.load_table(knowledge_dirs))),
        "versions": {key: str(end[key]) for key in ("nccl", "torch") if key in end} if end else {},
    }


def carried(ranks: t.Mapping[str, t.Mapping[str, t.Any]], expect: str, knowledge_dirs: t.Sequence[str] = ()) -> Plain:
    """Return what carried the ranks' traffic according to their logs, with `msg` if it is not as expected or the logs do not say."""
    try:
        reader = Reader(transport.signatures(knowledge_dirs))
        reader.read(
            "the ranks' logs", text_lines("\n".join(str(done.get("stdout") or "") for _host, done in _ended(ranks)))
        )
        made = transport.report(reader.finish(), Expected(len(ranks), len(ranks)), knowledge_dirs)
    except CollectionError as exc:
        return {"msg": str(exc)}
    refused = transport.refusal(made, expect)
    return {**made, "msg": refused} if refused else made


def of_process(started: t.Mapping[str, t.Any], done: t.Mapping[str, t.Any]) -> Plain:
    """Return how a process rank ended: the result of its job, or of its start if there was no job."""
    return {"done": dict(done if started.get("ansible_job_id") else started)}


def of_pod(pods: t.Mapping[str, t.Any], host: str) -> Plain:
    """Return how a pod rank ended, from the result of `nccl_bench_pods`; its failure is the fault of each host."""
    found = (pods.get("ranks") or {}).get(host)
    return dict(found) if found else {"fault": " ".join(str(pods.get("msg") or "it failed").split())}


def _ended(ranks: t.Mapping[str, t.Mapping[str, t.Any]]) -> t.Iterator[tuple[str, t.Mapping[str, t.Any]]]:
    return ((host, rank.get("done") or {}) for host, rank in ranks.items())


def _said(done: t.Mapping[str, t.Any]) -> str:
    """Return a rank's whole output."""
    return "\n".join(str(done.get(key) or "") for key in ("stdout", "stderr"))


def _unready(rank: t.Mapping[str, t.Any]) -> str:
    """Return why a host cannot take part, or "" if it can."""
    if rank.get("fault"):
        return str(rank["fault"])
    check = rank.get("check") or {}
    return "" if check.get("rc") == 0 or check.get("skipped") else _last(check)


def _last(done: t.Mapping[str, t.Any]) -> str:
    """Return the last line of a program's standard error, else Ansible's message."""
    if not done.get("stderr") and done.get("msg") == NOT_STARTED:
        return f"{str(done.get('cmd')).split(' ', maxsplit=1)[0]} could not be started: is it there, and may it be run?"
    said = str(done.get("stderr") or "").strip().splitlines() or str(done.get("msg") or "").strip().splitlines()
    return excerpt(said[-1]) if said else "no answer"


def _fault(done: t.Mapping[str, t.Any]) -> str:
    status = "did not end in time" if done.get("rc") is None else f"ended with status {done['rc']}"
    return f"its rank {status}: {_last(done)}"


def _transport(told: t.Any) -> Plain:
    """Return what carried the traffic, or `unknown` with the reason if the logs hold nothing of NCCL."""
    given = told if isinstance(told, t.Mapping) else {}
    if given.get("verdict"):
        return dict(given)
    return {"verdict": "unknown", "summary": str(given.get("msg") or "the logs of the ranks were not read")}
