# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last steps: the model returns tokens, and a real request uses the fabric.

`tokens` of the evidence is the result of module `serving_canary`: `groups`, each with `name`, `status`, `cause`,
`message`, `remedy` and figures, and under `together` the `workloads` of module `bench`; `wire` has `counters`, by host
`before` and `after` of `roce_counters`, read around the canary's requests. Each may be `reason` alone: why it was not run.
"""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.significant import significant
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.collectives import given
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.port_counters import Carried, carried, ports_of
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.values import Evidence, Place, Plain, Result

_REMEDY = "See the launch plan's rules for CUDA graphs, quantisation and speculation at this batch size; `dgxspark.cluster.bench` measures it again."
_FIGURES = ("ttft_s", "tokens", "tokens_per_s", "finish_reason", "model", "text")


def tokens(evidence: Evidence) -> list[Result]:
    """Judge the canary's requests, one for each rank group."""
    done = given(evidence, "tokens")
    if done is None or done.get("reason"):
        reason = str(done["reason"]).rstrip(".") if done else "no canary request was sent"
        return [Result("tokens", "not run", (), f"{reason}.")]
    results = [_group(evidence, group) for group in done.get("groups") or ()]
    results += [
        Result(
            "tokens all groups",
            "fail" if sign["severity"] == "error" else "warn",
            (),
            sign["message"],
            sign["id"],
            None,
            sign["remedy"],
        )
        for sign in done.get("signs") or ()
    ]
    results += _together(done.get("together"))
    return results or [Result("tokens", "not run", (), "no rank group was named.")]


def _together(asked: Plain | None) -> list[Result]:
    """Judge the concurrent requests by the benchmark's guards. None: the mode does not ask for them."""
    if asked is None:
        return []
    if asked.get("reason"):
        return [Result("tokens together", "not run", (), f"{str(asked['reason']).rstrip('.')}.")]
    found = []
    for level in (each for workload in asked["workloads"] for each in workload["levels"]):
        figures = {key: value for key, value in level["figures"].items() if value is not None}
        subject = f"tokens {level['n']} at once"
        if level["verdict"] == "good":
            message = (
                f"{figures['ok']} good answers, {significant(figures.get('wall_tokens_per_s', 0))} tokens/s in all"
            )
            found.append(Result(subject, "pass", (), message, figures=figures))
        else:
            cause = f"tokens.{level['verdict']}"
            found.append(Result(subject, "fail", (), level["message"], cause, None, _REMEDY, figures=figures))
    return found


def _group(evidence: Evidence, group: Plain) -> Result:
    subject = f"tokens {group['name']}"
    ends = tuple(Place(host) for host in group.get("hosts") or ())
    figures = {key: group[key] for key in _FIGURES if group.get(key) is not None}
    if group["status"] == "ok":
        speed = f"{significant(group['tokens_per_s'])} tokens/s" if group.get("tokens_per_s") else "speed unknown"
        first = f", first after {significant(group['ttft_s'])} s" if group.get("ttft_s") is not None else ""
        return Result(subject, "pass", ends, f"{speed}{first}", figures=figures)
    return Result(
        subject, "fail", ends, group["message"], group["cause"], None, group.get("remedy", ""), figures=figures
    )


def wire(evidence: Evidence) -> list[Result]:
    """Judge whether the canary's requests moved RDMA traffic on every host, through every function of a port in use."""
    done = given(evidence, "wire")
    if evidence.topology == "single":
        return []
    asked = (given(evidence, "tokens") or {}).get("groups") or ()
    if asked and not any(group["status"] == "ok" or group.get("tokens") for group in asked):
        done = {"reason": "no request returned a token, so none could show in the counters"}
    if done is None or done.get("reason"):
        reason = str(done["reason"]).rstrip(".") if done else "no counters were read around a request"
        return [Result("wire", "not run", (), f"{reason}.")]
    found = carried(evidence, done.get("counters") or {}, "wire.counters")
    if len(found) < 2:
        return [Result("wire", "not run", (), "a request on fewer than two hosts crosses no fabric.", required=False)]
    return [result for host, seen in found.items() for result in _host(evidence, host, seen)]


def _host(evidence: Evidence, host: str, seen: Carried) -> list[Result]:
    subject, here = f"wire {host}", (Place(host),)
    figures: Plain = {"bytes": seen.moved_bytes, "functions": [place.slot for place in sorted(seen.used)]}
    if seen.unknown:
        return [Result(subject, "unknown", here, f"the counters of {host} prove nothing: {seen.unknown}.")]
    if not seen.used:
        message = f"the request moved no RDMA traffic on {host}: it did not use the fabric."
        remedy = "See NCCL's log of this rank for NET/Socket; the pod needs /dev/infiniband, its VFs and NCCL_NET=IB."
        return [Result(subject, "fail", here, message, "wire.idle", here[0], remedy, figures=figures)]
    results = []
    half = seen.halves(ports_of(evidence, host))
    if half:
        names = ", ".join(str(place) for place in half)
        message = f"{names} carried nothing, while the other function of its port did."
        remedy = "Name the HCAs of both functions in NCCL_IB_HCA, and give the pod a VF of each."
        results.append(Result(subject, "fail", here, message, "wire.one-function", half[0], remedy, figures=figures))
    if seen.lost:
        message = f"packets were lost or repeated on {host}: {', '.join(seen.lost)}."
        remedy = "Watch whether it grows under load; then look at MTU, flow control and the cable."
        results.append(Result(f"{subject} errors", "warn", here, message, "wire.lost", here[0], remedy))
    if not half:
        text = f"{', '.join(figures['functions'])} carried it" + (
            f", {seen.moved_bytes} bytes" if seen.moved_bytes else ""
        )
        results.append(Result(subject, "pass", here, text, figures=figures))
    return results
