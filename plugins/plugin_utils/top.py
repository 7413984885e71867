# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nodes and served groups do at this moment, as a table: two readings in, rates out. Pure.

A reading has `at` (seconds), `nodes` by host and `groups`; counters are those of the node or engine, so a rate needs an earlier
reading. What is not known is None, and "-" in the table. All texts are plain and short.
"""

from __future__ import annotations

import math
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils import foreign, health
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.counters import DATA, ERRORS, FULL, WORD
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import signatures
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.metrics import engine_of, values_of

Plain = dict[str, t.Any]
Seen = t.Mapping[str, t.Any]
Cell = tuple[str, str]  # a text and its grade
WARN, BAD = "warn", "bad"
GAUGES = ("running", "waiting", "cache")
COUNTERS = ("prompt_tokens", "output_tokens", "requests")
METRICS_OFF = "no engine's metrics at /metrics (SGLang: enable_metrics: true in k8s_dgx_overrides)"
_NAME, _WHY = 40, 120  # characters
_KIB_GIB = 1024**2
_BIT = 8e-9  # Gbit/s of a byte in a second
_NODE_HEAD = ("node", "free GiB", "GPU %", "MHz", "W", "°C", "RoCE Gbit/s in", "out", "lost")
_GROUP_HEAD = ("group", "Sparks", "running", "waiting", "KV %", "tokens/s out", "in", "requests/s")


def node(said: Seen, counters: t.Sequence[Seen], why: str = "") -> Plain:
    """Return a node's reading. said: the health of node_health; counters: of roce_counters; why: the reason if it did not answer."""
    if why:
        return {"why": foreign.line(why, _WHY)}
    memory, gpus = said.get("memory") or {}, said.get("gpus") or [{}]
    gpu = gpus[0]
    return {
        "free_gib": _gib(memory.get("MemAvailable")),
        "total_gib": _gib(memory.get("MemTotal")),
        "gpu_percent": _number(gpu.get("utilisation")),
        "clock_mhz": _number(gpu.get("clock_mhz")),
        "power_w": _number(gpu.get("power_w")),
        "temperature_c": _number(gpu.get("temperature_c")),
        "hcas": {
            f"{foreign.line(each.get('hca'), _NAME)} {foreign.line(each.get('guid'), _NAME)}": _ports(
                each.get("counts") or {}
            )
            for each in counters[:64]
        },
    }


def _ports(counts: Seen) -> Plain:
    """Return a port's bytes, and its errors. A counter that stops at its largest value says nothing."""
    sent, received = DATA[0]
    usable = {name: value for name, value in counts.items() if _number(value) is not None and value not in FULL}
    return {
        "sent": usable[sent] * WORD if sent in usable else None,
        "received": usable[received] * WORD if received in usable else None,
        "lost": sum(usable.get(name, 0) for name in ERRORS),
    }


def engine(text: str, entries: t.Mapping[str, Seen]) -> Plain:
    """Return what an engine's /metrics says, by our names (see GAUGES and COUNTERS); `why` if it is no engine's."""
    entry = engine_of(text, t.cast(t.Any, entries))
    if entry is None:
        return {"why": METRICS_OFF}
    values = values_of(text)

    def read(name: str) -> float | None:
        found = values.get(str(entry[name]))
        return _number(sum(found) / (len(found) if name == "cache" else 1)) if found else None

    return {name: read(name) for name in (*GAUGES, *COUNTERS)}


def group(name: t.Any, hosts: t.Sequence[t.Any], said: Seen) -> Plain:
    """Return a group's reading. said: of `engine`."""
    told = {**said, "why": foreign.line(said["why"], _WHY)} if said.get("why") else dict(said)
    return {"name": foreign.line(name, _NAME), "hosts": [foreign.line(host, _NAME) for host in hosts], **told}


def view(now: Seen, before: Seen | None = None) -> Plain:
    """Return what is shown: the newest reading, with rates since the earlier one."""
    past = before or {}
    seconds = now["at"] - past["at"] if past else 0.0
    nodes = {
        host: _node_view(each, (past.get("nodes") or {}).get(host), seconds) for host, each in now["nodes"].items()
    }
    earlier = {each["name"]: each for each in past.get("groups") or ()}
    groups = [_group_view(each, earlier.get(each["name"]), seconds) for each in now["groups"]]
    return {"at": now["at"], "seconds": seconds or None, "nodes": nodes, "groups": groups, "why": now.get("why") or ""}


def _node_view(each: Seen, past: Seen | None, seconds: float) -> Plain:
    if each.get("why"):
        return dict(each)
    made = {key: value for key, value in each.items() if key != "hcas"}
    old = (past or {}).get("hcas") or {}
    pairs = [(counts, old[name]) for name, counts in each["hcas"].items() if name in old]
    made["received_gbps"] = _rate([(a["received"], b["received"]) for a, b in pairs], seconds, _BIT)
    made["sent_gbps"] = _rate([(a["sent"], b["sent"]) for a, b in pairs], seconds, _BIT)
    lost = [grown for a, b in pairs if (grown := _grown(a["lost"], b["lost"])) is not None]
    made["lost"] = sum(lost) if lost else None
    return made


def _group_view(each: Seen, past: Seen | None, seconds: float) -> Plain:
    made = {key: value for key, value in each.items() if key not in COUNTERS}
    for name in COUNTERS if not each.get("why") else ():
        made[f"{name}_per_s"] = _rate([(each.get(name), (past or {}).get(name))], seconds)
    return made


def _rate(pairs: t.Sequence[tuple[float | None, float | None]], seconds: float, factor: float = 1.0) -> float | None:
    """Return the growth per second of counters; None if none is known. One that has begun again does not count."""
    grown = [found for new, old in pairs if (found := _grown(new, old)) is not None]
    return sum(grown) * factor / seconds if grown and seconds > 0 else None


def _grown(new: float | None, old: float | None) -> float | None:
    return new - old if new is not None and old is not None and new >= old else None


def _number(value: t.Any) -> float | None:
    usable = (
        isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and 0 <= value < 1e18
    )
    return value if usable else None


def _gib(kib: t.Any) -> float | None:
    value = _number(kib)
    return None if value is None else round(value / _KIB_GIB, 1)


def page(shown: Seen, clock: str, limits: Seen | None = None) -> list[Plain]:
    """Return the view in blocks, each of `lines` or of a table (`head`, `rows`); a text has its grade beside it: "", WARN or BAD.

    texts: how many columns are no numbers. first_out: columns that a narrow screen does without, the first of them first. limits:
    `knowledge/health` of the Sparks' class; without them only what is lost has a grade.
    """
    nodes, groups = shown["nodes"], shown["groups"]
    lost = [host for host, each in nodes.items() if each.get("why")]
    since = f", rates over {shown['seconds']:.0f} s" if shown["seconds"] else ""
    counted = f"{len(nodes) - len(lost)} of {len(nodes)} Sparks, {signatures.count(len(groups), 'group')}"
    rows = [_node_row(host, each, limits or {}) for host, each in nodes.items() if not each.get("why")]
    silent = [(f"{host}  not seen: {nodes[host]['why']}", BAD) for host in lost]
    mute = [(f"{each['name']}: {each['why']}", WARN) for each in groups if each.get("why")]
    blocks: list[Plain] = [{"lines": [(f"{clock}  {counted}{since}", "")]}, {"lines": [("", "")]}]
    if rows:
        blocks.append({"head": _NODE_HEAD, "texts": 1, "first_out": (4, 2, 7, 6, 3), "rows": rows})
    blocks += [{"lines": silent}] if silent else []
    if groups:
        of_groups = [_group_row(each) for each in groups]
        blocks.append({"lines": [("", "")]})
        blocks.append({"head": _GROUP_HEAD, "texts": 2, "first_out": (7, 6, 1, 4), "rows": of_groups})
        blocks += [{"lines": mute}] if mute else []
    return [*blocks, {"lines": [("", ""), (shown["why"], BAD)]}] if shown["why"] else blocks


def table(shown: Seen, clock: str) -> list[str]:
    """Return the view as lines."""
    lines: list[str] = []
    for block in page(shown, clock):
        lines += _aligned(block) if "head" in block else [text for text, _grade in block["lines"]]
    return lines


def _node_row(host: str, each: Seen, limits: Seen) -> list[Cell]:
    free = f"{_shown(each['free_gib'], 1)}/{_shown(each['total_gib'], 1)}"
    places = (("gpu_percent", 0), ("clock_mhz", 0), ("power_w", 1), ("temperature_c", 0))
    rates = (("received_gbps", 2), ("sent_gbps", 2), ("lost", 0))
    grades = _grades(each, limits)
    cells = [(name, _shown(each.get(name), digits)) for name, digits in (*places, *rates)]
    return [(host, ""), (free, grades.get("free_gib", "")), *((text, grades.get(name, "")) for name, text in cells)]


def _grades(each: Seen, limits: Seen) -> dict[str, str]:
    """Return the grades of a node's figures, as doctor judges them."""
    found = {"lost": BAD} if each.get("lost") else {}
    memory, of_gpu = limits.get("memory") or {}, limits.get("gpu")
    free = each["free_gib"]
    if free is not None and free < memory.get("warning_gib", 0):
        found["free_gib"] = BAD if free < memory.get("error_gib", 0) else WARN
    if of_gpu:
        gpu = health.Gpu(
            clock_mhz=each["clock_mhz"],
            power_w=each["power_w"],
            temperature_c=each["temperature_c"],
            utilisation=each["gpu_percent"],
        )
        found |= {"clock_mhz": BAD, "power_w": BAD} if health.low_power(gpu, of_gpu) else {}
        found |= {"power_w": WARN} if health.weak(gpu, of_gpu) else {}
        found |= {"temperature_c": BAD} if (gpu.temperature_c or 0) >= of_gpu["hot_c"] else {}
    return found


def _group_row(each: Seen) -> list[Cell]:
    cache = each.get("cache")
    full = _shown(None if cache is None else cache * 100, 0)
    rates = [_shown(each.get(f"{name}_per_s"), 1) for name in ("output_tokens", "prompt_tokens", "requests")]
    waiting = [_shown(each.get(name), 0) for name in ("running", "waiting")]
    return [(text, "") for text in (each["name"], ",".join(each["hosts"]), *waiting, full, *rates)]


def _shown(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _aligned(block: Seen) -> list[str]:
    """Return the lines of a table: texts to the left, numbers to the right."""
    everything = [block["head"], *([text for text, _grade in row] for row in block["rows"])]
    widths = [max(len(row[column]) for row in everything) for column in range(len(block["head"]))]
    return [
        "  ".join(
            cell.ljust(width) if column < block["texts"] else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in everything
    ]
