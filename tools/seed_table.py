"""Write the guide that compares the seeds' runs with the plan: docs/docsite/rst/guide_seeds.rst.

Usage: python tools/seed_table.py
knowledge/seeds/ says what each run's author asked for, and how an owner asks for the same. The collection renders both as
engine command lines and compares these: a difference without a reason is an error.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import runpy
import sys
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[1]
runpy.run_path(str(ROOT / "tools" / "own_collection.py"))

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import argv_builder  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan  # noqa: E402

Plain = dict[str, t.Any]
GUIDE = ROOT / "docs" / "docsite" / "rst" / "guide_seeds.rst"
HOSTS = ("spark1", "spark2", "spark3", "spark4")
# What each rank is told about itself, whatever a seed's text says.
PLACE = frozenset(
    [
        "model",
        "tp_size",
        "pp_size",
        "ep_size",
        "nnodes",
        "node_rank",
        "dist_init_addr",
        "host",
        "port",
        "nccl_transport",
    ]
)
# Why the plan sets something that neither the seed's text nor a measured row mentions.
ADDED = {
    "max_running_requests": "the plan stays within the available states and captured graphs",
    "speculative_eagle_topk": "what NEXTN runs with; the parser requires it with steps and draft tokens",
    "mamba_scheduler_strategy": "without it this version refuses speculation on a hybrid model",
    "enable_spec_v2": "without it this version refuses speculation on a hybrid model",
    "json_model_override_args": "the checkpoint's own limit is below this context",
    "trust_remote_code": "the profile's, for code in the checkpoint",
    "reasoning_parser": "the profile's, for reading answers",
    "tool_call_parser": "the profile's, for reading answers",
    "cuda_graph_max_bs": "the profile's, from the seed's other runs",
    "context_length": "the profile's, from the model",
    "disable_deep_gemm": "the profile's, from the other runs of this model",
}
INTRO = """\
.. Copyright (c) 2026, dgxspark.cluster contributors
.. GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
.. SPDX-License-Identifier: GPL-3.0-or-later
.. Written by tools/seed_table.py from knowledge/seeds/; do not edit.

.. _ansible_collections.dgxspark.cluster.docsite.guide_seeds:

Owners' runs compared with the plan
===================================

This collection started from five reports by cluster owners in NVIDIA's developer forum: its *seeds*. Each run that they report as
won or lost is one line here. *Asked* is what the report states, in the engine's flags. *Planned* is how you request it (profile,
variant, overrides), and how the plan's command differs from the report's, with the reason. *Verdict* is the plan's, on four Sparks
whose free memory was not measured, with its errors and the measured row that it is based on. Each rank's own settings (spread,
addresses, ports, the model's name) are compared only if a report states them. Figures are tokens per second over all successful
requests at concurrency 1, 4 and 8.
"""


@functools.cache
def names() -> dict[str, tuple[str, bool]]:
    """Map each name of a setting to its canonical one, and whether it is negated."""
    found: dict[str, tuple[str, bool]] = {}
    for entry in knowledge.load("settings").values():
        found[entry["id"]] = (entry["id"], False)
        found |= dict.fromkeys(entry.get("aliases", ()), (entry["id"], False))
        found |= dict.fromkeys(entry.get("opposites", ()), (entry["id"], True))
    return found


@functools.cache
def parts() -> dict[tuple[str, str], tuple[str, dict[t.Any, str]]]:
    """For flags that take JSON: map each key to its canonical name, and its values to ours."""
    found = {}
    for entry in knowledge.load("settings").values():
        for way in (w for w in entry.get("vllm", ()) if isinstance(w, dict) and "key" in w and "values" not in w):
            called = {theirs[0]: ours for ours, theirs in way.get("synonyms", {}).items()}
            found[way["flag"].replace("-", "_"), way["key"]] = (entry["id"], called)
    return found


def canonical(settings: t.Mapping[str, t.Any]) -> Plain:
    """Return settings by canonical name, with JSON values parsed."""
    out: Plain = {}
    for key, value in settings.items():
        if isinstance(value, dict) and value and all((key, part) in parts() for part in value):
            for part, given in value.items():
                name, called = parts()[key, part]
                out[name] = called.get(given, given)
            continue
        name, contrary = names().get(key, (key, False))
        out[name] = not value if contrary else _read(value)
    return {key: value for key, value in out.items() if value is not None}


def _read(value: t.Any) -> t.Any:
    if isinstance(value, str) and value.startswith("{"):
        return json.loads(value)
    return value


@dataclasses.dataclass(frozen=True)
class Line:
    """One run: the request in the engine's words, the plan, and differences with reasons, by setting."""

    entry: Plain
    asked: str
    planned: Plain
    differs: dict[str, tuple[str, str]]

    @property
    def unexplained(self) -> list[str]:
        """Settings that differ without a stated reason."""
        return [f"{self.entry['id']}: {change}" for change, reason in self.differs.values() if not reason]

    @property
    def reasons(self) -> list[str]:
        """The differences, grouped by reason."""
        by_reason: dict[str, list[str]] = {}
        for change, reason in self.differs.values():
            by_reason.setdefault(reason.rstrip("."), []).append(change)
        return [f"{', '.join(changes)}: {reason}." for reason, changes in by_reason.items()]


def _said(engine: Plain, model: str, settings: t.Mapping[str, t.Any]) -> str:
    """Return settings in the engine's words: its flags, and the variables that replace a flag."""
    built = argv_builder()(engine["name"], engine["version"], {"model": model} | dict(settings))
    words = [f"nccl_transport={settings['nccl_transport']}"] if "nccl_transport" in settings else []
    words += [*(f"{key}={value}" for key, value in built.env.items()), *built.argv[built.argv.index(model) + 1 :]]
    return " ".join(word if " " not in word else f"'{word}'" for word in words)


def _reason(key: str, asked: t.Any, entry: Plain, row: t.Mapping[str, t.Any], value: t.Any) -> str:
    if key in entry.get("differs", {}):
        return str(entry["differs"][key])
    if asked is None and key in row and row[key] == value:
        return f"as in row {entry['row']}"
    if asked is None:
        return ADDED.get(key, "" if "row" in entry else "the profile's; the seed says nothing of it")
    return ""


def line(entry: Plain, rows: t.Mapping[str, t.Any]) -> Line:
    """Plan one run, and compare the plan with what its author asked for."""
    overrides = {"variant": entry["variant"]} if "variant" in entry else {}
    planned = launch_plan(entry["profile"], {"hosts": HOSTS}, overrides | entry.get("overrides", {}))
    asked, made = canonical(entry["flags"]), canonical(planned["ranks"][0]["settings"])
    row = canonical(rows[entry["row"]]["settings"]) if "row" in entry else {}
    differs = {}
    for key in sorted(asked.keys() | made.keys()):
        if asked.get(key) == made.get(key) or (asked.get(key, False) is False and made.get(key, False) is False):
            continue
        if (key not in asked and key in PLACE) or (key == "ep_size" and asked[key] == 1 and key not in made):
            continue  # an EP of 1 is omitted
        shown = "left out" if key not in made else json.dumps(made[key]) if isinstance(made[key], dict) else made[key]
        change = f"``{key}`` {shown}" if key not in asked else f"``{key}`` {asked[key]} → {shown}"
        differs[key] = change, _reason(key, asked.get(key), entry, row, made.get(key))
    return Line(entry, _said(planned["engine"], planned["model"], asked), planned, differs)


def lines() -> list[Line]:
    """Return all runs, in the order of the seeds."""
    rows = knowledge.load("evidence")
    return [line(entry, rows) for entry in sorted(knowledge.load("seeds").values(), key=lambda entry: entry["seed"])]


def _figures(entry: Plain) -> list[str]:
    figures = entry["figures"]
    out = [", ".join(f"n{n} {figures[f'n{n}']:g}" for n in (1, 4, 8) if f"n{n}" in figures)]
    out += [f"first token {1e-3 * ms:.2f} s at {n}" for n, ms in figures.get("ttft_ms", {}).items()]
    out += [f"{c['ok']} of {c['ok'] + c['failed']} answers at {n}" for n, c in figures.get("requests", {}).items()]
    out += [f"accepted length {figures['accept_len']:g}"] if "accept_len" in figures else []
    return [text for text in out if text]


def _asked_of_plan(entry: Plain) -> str:
    words = [f"``{entry['profile']}``", f"variant ``{entry['variant']}``" if "variant" in entry else ""]
    words += [f"{key} ``{json.dumps(value)}``" for key, value in entry.get("overrides", {}).items()]
    return ", ".join(word for word in words if word)


def _verdict(made: Line) -> list[str]:
    found = made.planned
    out = [f"**{found['verdict']}**"]
    out += [f"error ``{f['rule']}``" for f in found["findings"] if f["severity"] == "error"]
    out += [f"warning ``{f['rule']}``" for f in found["findings"] if f["severity"] == "warning"]
    equal = [row for row in found["evidence"] if row["equal"]]
    out += ["; ".join([f"row {row['id']}: {row['verdict']}", *row["blemishes"]]) for row in equal]
    if not equal and "row" in made.entry:
        out.append(f"not equal to row {made.entry['row']}")
    return out


def _cell(lead: str, parts: t.Sequence[str]) -> str:
    first, *rest = [*parts] or ["–"]
    return "\n".join([f"{lead}- {first}", *(text for part in rest for text in ("", f"       {part}"))])


def _row(made: Line) -> str:
    entry = made.entry
    told = [f"Seed {entry['seed']}: {entry['title']}", f"*{entry['outcome']}*", *_figures(entry), entry.get("note", "")]
    cells = [
        [part for part in told if part],
        [f"``{made.asked}``"],
        [_asked_of_plan(entry), *made.reasons],
        _verdict(made),
    ]
    return "\n".join(_cell("   * " if not at else "     ", parts) for at, parts in enumerate(cells))


def document(made: t.Sequence[Line]) -> str:
    """Return the complete guide."""
    head = ".. list-table::\n   :header-rows: 1\n   :widths: 24 26 36 14\n\n   * - Run\n     - Asked\n     - Planned\n     - Verdict"
    return "\n".join([INTRO, head, *map(_row, made)]) + "\n"


def main() -> int:
    """Write the guide; return 1 if a reason is missing."""
    made = lines()
    missing = [text for one in made for text in one.unexplained]
    for text in missing:
        print(f"no reason: {text}", file=sys.stderr)
    GUIDE.write_text(document(made), encoding="utf-8")
    return int(bool(missing))


if __name__ == "__main__":
    raise SystemExit(main())
