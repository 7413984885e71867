"""Fit the constants of the speed estimates to measured rows, and report the error on each model left out of the fit.

Usage, from the repository's root: python benchmarks/fit_estimates.py [--write] [--date 2026-11-24] [--quick]
Rows: `knowledge/evidence` (stable ones: the sum of the requests' tokens/s) and `knowledge/speeds` (a request's tokens/s
while it decodes × requests) with known facts, at 1 to 8 requests. Minimises Σ (log predicted − log measured)² by
Levenberg–Marquardt over the logarithms of the constants, each pulled towards a first guess. Weights: a configuration's
points share one, a model's configurations share the square root of their number; a drafted row that does not state how
many tokens were accepted counts UNSTATED as much, because that number differs by text. A patched build has its own factor.
Models are identified by their facts: a finetune or another precision is left out together with its base.
--write puts the constants into `knowledge/estimates/decode.yml`.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import datetime
import math
import pathlib
import runpy
import statistics
import sys
import typing as t

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
runpy.run_path(str(ROOT / "tools" / "own_collection.py"))

from estimate_errors import Point, apart, classes, intervals, of_blocks, summary, weights  # noqa: E402

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import from_plain  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import (  # noqa: E402
    find_profile,
    load_tables,
    resolve_profile,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.judgement import evidence, knowledge_base, sizes  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model import estimate  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model.model import Facts, Parallelism  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model.speculation import Draft  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.profile.profile import (  # noqa: E402
    DEFAULT_PRECISION,
    Drafter,
    Engine,
    Profile,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.vocabulary.settings import Tables  # noqa: E402

OUT = ROOT / "knowledge" / "estimates" / "decode.yml"
MOST = 8
# First guesses, and the factor by which each may be off. read and experts: 1 is the full bandwidth; the rest are seconds.
GUESS = {
    # BF16 needs no unpacking: the memory itself (273 of 234 GB/s) and a little. Few configurations read mostly BF16, so its pull is strong.
    "read.bf16": (1.2, 1.1),
    "read.fp8": (1.25, 1.3),
    "read.fp4": (1.3, 1.3),
    "experts.bf16": (1.4, 1.4),
    "experts.fp8": (1.4, 1.4),
    "experts.fp4": (1.4, 1.4),
    "cache": (1.5, 1.5),
    # 60 TFLOPS in BF16 instead of the nominal 100, as J. Carmack and A. Hannun measured (banandre.com, 2025-10-28); off by that much.
    "compute": (1.67, 1.5),
    "blocks": (10e-6, 2.0),
    "blocks.states": (20e-6, 2.0),
    "blocks.experts": (20e-6, 2.0),
    "eager": (420e-6, 1.3),
    # nccl-tests of the first stack on four Sparks: 40 and 209 µs for 4 KB, over VFs and over sockets.
    "join.roce": (20e-6, 1.8),
    "join.socket": (105e-6, 1.8),
    "wire": (1.0, 1.1),
    "step.sglang": (2e-3, 2.0),
    "step.vllm": (2e-3, 2.0),
    "request": (1e-4, 2.5),
    "stages": (1e-3, 1.1),
    "drafting": (1e-3, 2.0),
    "spread.others": (0.8, 1.3),
    "spread.drafts": (0.5, 1.5),
    # Requests with one text between them (see the speeds' schema): no part of an estimate.
    "spread.alike": (0.4, 1.5),
    "accept.DFLASH": (0.8, 1.15),
    "patched": (0.95, 1.2),
}
# Prompts so many times as long as their answers: the figure is as much of the others' prefill as of decoding, which alone is estimated.
PREFILL = 10
NOISE = 0.08  # how far two runs of one configuration differ; a guess's factor is weighed against it
# What a kernel that only reads was seen to reach on a Spark, GB/s: antirez/ds4#773, 2026-08-10, 231 to 234.
REACHED = 234.0
Logs = dict[str, float]


def group_of(facts: Facts) -> str:
    """Return what identifies a model: its architecture, whatever its training or precision."""
    experts = f"{facts.moe.experts} experts × {facts.moe.layers}" if facts.moe else "dense"
    blocks = sum(a.layers for a in facts.attention) + (facts.linear.layers if facts.linear else 0)
    return f"{facts.architecture} {facts.hidden_size} × {blocks}, {experts}"


def evidence_points(tables: Tables) -> t.Iterator[Point]:
    """Yield the stable rows of shipped logs."""
    entries = {entry["model"]: name for name, entry in sorted(knowledge.load("profile").items()) if "model" in entry}
    written = knowledge.load("evidence")
    apart = knowledge.load("speeds")  # with the lengths of prompts, which evidence does not have
    for row in evidence.load_rows():
        if row.verdict != "stable" or row.run.model not in entries or row.id in apart:
            continue
        run = row.run
        own = dataclasses.replace(
            resolve_profile(find_profile(entries[run.model])),
            engine=Engine(run.engine, run.version, "", run.image),
            nodes=run.nodes,
            parallelism=Parallelism(run.tp, run.pp, run.ep),
            settings=dict(run.settings),
        )
        if own.facts is None:
            continue
        draft, _findings = sizes.drafted(own, tables)
        if own.drafter and not draft:
            own = dataclasses.replace(own, drafter=None)
        source = "log" if written[row.id]["verified"] == "measured" else "reported"
        for n in estimate.LEVELS:
            figure = row.figure(f"n{n}")
            if figure:
                accepted = row.measured.get("accept_len")
                yield Point(
                    row.id, group_of(own.facts), own, own.settings, draft, n, figure, False, None, accepted, source
                )


def speed_points() -> t.Iterator[Point]:
    """Yield other owners' published speeds for models with known facts."""
    for name, entry in knowledge.load("speeds").items():
        if "facts" in entry:
            facts, precision = from_plain(Facts, entry["facts"], name), dict(DEFAULT_PRECISION)
        elif "profile" in entry:
            base = resolve_profile(find_profile(entry["profile"]))
            if base.facts is None:
                continue
            facts, precision = base.facts, dict(base.precision)
        else:
            continue
        parallelism = Parallelism(entry["tp"], entry["pp"], entry["ep"])
        params = entry.get("drafter_params")
        drafter = Drafter("drafter", params) if params else None
        settings = entry["settings"]
        own = Profile(
            name, "", name, entry["model"], "", Engine(entry["engine"]["name"], "0.23.0"), entry["nodes"], parallelism,
            settings, facts, precision | entry.get("precision", {}), drafter,
        )  # fmt: skip
        draft = None
        if "speculative_algorithm" in settings:
            if "speculative_num_steps" not in settings:
                continue
            steps = settings["speculative_num_steps"]
            draft = Draft(settings["speculative_algorithm"], steps, 1, steps + 1, False)
        for row in entry["measured"]:
            if row["n"] <= min(MOST, settings.get("max_running_requests", MOST)):
                context = row["prompt"] + row.get("output", 0) / 2 if "prompt" in row else None
                patched = entry["build"] == "patched"
                total = row["n"] * row["each"]
                rate = row.get("accept_rate")
                accepted = 1 + rate * draft.steps if draft and rate else None
                yield Point(
                    name, group_of(facts), own, settings, draft, row["n"], total, patched, context, accepted, "speeds",
                    alike="texts" in entry, waits=row["n"] > 1 and row.get("prompt", 0) > PREFILL * row.get("output", math.inf),
                )  # fmt: skip


def figures_of(logs: Logs, base: estimate.Figures) -> estimate.Figures:
    """Return the base with the fitted constants."""
    values = {key: math.exp(value) for key, value in logs.items()}
    acceptance = dict(base.acceptance)
    acceptance["DFLASH"] = [min(values["accept.DFLASH"], 0.98), base.acceptance["DFLASH"][1]]
    return dataclasses.replace(
        base,
        costs={key: value for key, value in values.items() if not key.startswith(("spread", "accept", "patched"))},
        spread={key: min(values[f"spread.{key}"], 1.0) for key in ("others", "drafts")},
        acceptance=acceptance,
    )


def predicted(point: Point, logs: Logs, base: estimate.Figures) -> float:
    """Return tokens/s by the product's own formula."""
    figures = figures_of(logs, base)
    if point.alike:
        others = min(math.exp(logs["spread.alike"]), 1.0)
        figures = dataclasses.replace(figures, spread={**figures.spread, "others": others})
    value = estimate.tokens_per_second(
        point.profile,
        point.settings,
        point.draft,
        point.requests,
        figures,
        context=point.context,
        accepted=point.accepted,
    )
    return value / math.exp(logs["patched"]) if point.patched else value


def unlike(point: Point) -> bool:
    """Whether a row says nothing about real texts: it drafts on one repeated text, and does not state what was accepted."""
    return bool(point.alike and point.draft and not point.accepted)


def unseen_text(point: Point) -> Point:
    """Return a figure without the tokens per step that its row states, which a plan does not know; a repeated text's stay."""
    return point if point.alike else dataclasses.replace(point, accepted=None)


def impossible(point: Point, base: estimate.Figures) -> bool:
    """Whether a figure exceeds what the memory was seen to deliver, so that the row does not state what really ran."""
    facts = point.profile.facts
    if point.draft or point.requests > 1 or (facts and facts.diffusion):  # more than one token per step
        return False
    bare = dataclasses.replace(base, spread={"others": 1.0, "drafts": 1.0})
    moved = estimate.work(point.profile, point.settings, None, 1, bare, point.context)
    slower = base.bandwidth_gb_s / REACHED
    return 1 / slower / sum(v for k, v in moved.items() if k.startswith(("read.", "experts."))) < point.measured


def solved(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Solve a small, positive definite system by elimination."""
    size = len(right)
    rows = [[*line, value] for line, value in zip(matrix, right, strict=True)]
    for i in range(size):
        for j in range(i + 1, size):
            factor = rows[j][i] / rows[i][i]
            rows[j] = [a - factor * b for a, b in zip(rows[j], rows[i], strict=True)]
    found = [0.0] * size
    for i in reversed(range(size)):
        found[i] = (rows[i][size] - sum(rows[i][j] * found[j] for j in range(i + 1, size))) / rows[i][i]
    return found


def fit(points: t.Sequence[Point], base: estimate.Figures, start: Logs | None = None) -> Logs:
    """Return the logarithms of the fitted constants."""
    names = list(GUESS)
    guess = {key: math.log(value) for key, (value, _off) in GUESS.items()}
    pull = {key: (NOISE / math.log(off)) ** 2 for key, (_value, off) in GUESS.items()}
    share = weights(points)
    logs = dict(start or guess)

    def off(at: Logs) -> list[float]:
        return [math.log(predicted(p, at, base) / p.measured) for p in points]

    def loss(at: Logs, residuals: t.Sequence[float]) -> float:
        # Beyond 0.25 the loss is linear (Huber), because published figures have outliers.
        data = sum(
            w * (r * r if abs(r) < 0.25 else 0.5 * abs(r) - 0.0625) for w, r in zip(share, residuals, strict=True)
        )
        return data + sum(pull[k] * (at[k] - guess[k]) ** 2 for k in names)

    residuals, damping = off(logs), 1e-3
    best = loss(logs, residuals)
    for _round in range(60):
        columns = []
        for key in names:
            moved = off({**logs, key: logs[key] + 1e-4})
            columns.append([(a - b) / 1e-4 for a, b in zip(moved, residuals, strict=True)])
        robust = [w if abs(r) < 0.25 else w * 0.25 / abs(r) for w, r in zip(share, residuals, strict=True)]
        matrix = [[sum(w * a * b for w, a, b in zip(robust, x, y, strict=True)) for y in columns] for x in columns]
        right = [-sum(w * a * r for w, a, r in zip(robust, x, residuals, strict=True)) for x in columns]
        for i, key in enumerate(names):
            matrix[i][i] += pull[key]
            right[i] -= pull[key] * (logs[key] - guess[key])
        while damping < 1e6:
            damped = [[v * (1 + damping) if i == j else v for j, v in enumerate(row)] for i, row in enumerate(matrix)]
            step = solved(damped, right)
            trial = {key: logs[key] + max(-0.7, min(0.7, s)) for key, s in zip(names, step, strict=True)}
            there = off(trial)
            value = loss(trial, there)
            if value < best:
                break
            damping *= 10
        else:
            return logs
        gain, best, logs, residuals, damping = best - value, value, trial, there, damping / 5
        if gain < 1e-6:
            break
    return logs


def texts(figures: estimate.Figures) -> dict[str, float]:
    """Return, by kind of text, the odds that a draft passes, as a share of the usual odds: the median of what owners published."""
    kind_odds = collections.defaultdict(list)
    usual = figures.acceptance["DFLASH"][0]
    for row in yaml.safe_load((ROOT / "benchmarks" / "published_acceptance.yml").read_text(encoding="utf-8")):
        for kind in ("code", "prose"):
            first = min(
                (i / 1000 for i in range(1, 1000)),
                key=lambda f: abs(estimate.expected(f, row["decay"], row["drafts"]) - row[kind]),
            )
            kind_odds[kind].append(first / (1 - first) * (1 - usual) / usual)
    return {kind: round(statistics.median(values), 2) for kind, values in kind_odds.items()}


def acceptance(points: t.Sequence[Point]) -> list[float]:
    """Fit the curve of accepted tokens over draft depth to the configurations that state theirs."""
    stated = {
        (p.config, estimate.drafts(p.draft), p.accepted)
        for p in points
        if p.accepted and p.draft and not of_blocks(p.draft)
    }

    def off(first: float, decay: float) -> float:
        total = 0.0
        for _config, steps, length in stated:
            total += math.log(estimate.expected(first, decay, steps) / length) ** 2
        return total

    grid = ((f / 200, d / 200) for f in range(120, 196) for d in range(140, 201))
    return list(min(grid, key=lambda pair: off(*pair)))


def unseen(points: t.Sequence[Point], base: estimate.Figures, whole: Logs) -> tuple[list[float], list[float]]:
    """Return log(predicted / measured) of every point with its model left out of the fit: of the usual tokens per step, and of the stated."""
    found: dict[int, tuple[float, float]] = {}
    for group in sorted({p.group for p in points}):
        others = [p for p in points if p.group != group]
        curve = acceptance(others)
        usual = {**base.acceptance, "MTP": curve, "other": curve}
        own = dataclasses.replace(base, acceptance=usual)
        logs = fit(others, own, whole)
        for i, point in enumerate(points):
            if point.group == group:
                usual_, stated = (predicted(each, logs, own) for each in (unseen_text(point), point))
                found[i] = (math.log(usual_ / point.measured), math.log(stated / point.measured))
    return [found[i][0] for i in range(len(points))], [found[i][1] for i in range(len(points))]


def table(points: t.Sequence[Point], seen: t.Sequence[float], left_out: t.Sequence[float]) -> t.Iterator[str]:
    """Yield a line for each model, followed by its configurations with predicted against measured figures."""
    for group in sorted({p.group for p in points}):
        rows = [(p, s, u) for p, s, u in zip(points, seen, left_out, strict=True) if p.group == group]
        own, out = ([abs(math.expm1(r[i])) for r in rows] for i in (1, 2))
        yield (
            f"{group}: {len({p.config for p, _s, _u in rows})} configurations, {len(rows)} figures; median error "
            f"{statistics.median(own):.1%} fitted, {statistics.median(out):.1%} left out"
        )
        for config in sorted({p.config for p, _s, _u in rows}):
            figures = [
                f"n{p.requests} {p.measured * math.exp(u):.1f}/{p.measured:.1f} ({math.expm1(u):+.0%})"
                for p, _s, u in rows
                if p.config == config
            ]
            patched = ", patched" if any(p.patched for p, _s, _u in rows if p.config == config) else ""
            yield f"    {config}{patched}: {', '.join(figures)}"


def main() -> int:
    """Fit, report, and write if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true", help="without leaving models out")
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    chosen = parser.parse_args()
    points = [*evidence_points(load_tables()), *speed_points()]
    curve = acceptance(points)
    base = estimate.Figures(
        id="decode", fitted=chosen.date, bandwidth_gb_s=273.0, flops=1e14, links_gb_s={"roce": 22.0, "socket": 3.0},
        context=1600, costs={}, spread={}, acceptance={"MTP": curve, "other": curve, "DFLASH": [0.8, 0.97]},
        interval={}, error={},
        # For releases before 0.32.0: no row is from a newer one.
        canvas_copies=knowledge_base.base().constant("memory.canvas_copies", "vllm", "0.29.0"),
    )  # fmt: skip
    for point in [p for p in points if impossible(p, base)]:
        print(
            f"left aside, more than the memory delivers for what it states: {point.config} n{point.requests} {point.measured:g}"
        )
        points.remove(point)
    for name in sorted({p.config for p in points if unlike(p)}):
        print(f"left aside, drafts of one repeated text, of which no number is stated: {name}")
    for point in [p for p in points if p.waits]:
        print(f"left aside, it waits for the prefill of others: {point.config} n{point.requests} {point.measured:g}")
    points = [p for p in points if not unlike(p) and not p.waits]
    logs = fit(points, base)
    made = figures_of(logs, base)
    seen = [math.log(predicted(unseen_text(p), logs, base) / p.measured) for p in points]
    print(
        f"{len({p.group for p in points})} models, {len({p.config for p in points})} configurations, {len(points)} figures"
    )
    for key, value in logs.items():
        print(f"{key:<14} {math.exp(value):.4g}  (first guess {GUESS[key][0]:g})")
    print(f"acceptance of a drafter's first token {curve[0]:.3f}, of each further one × {curve[1]:.3f}")
    left_out, stated = (seen, seen) if chosen.quick else unseen(points, base, logs)
    stock = [(p, u) for p, u in zip(points, left_out, strict=True) if not p.patched]
    for name, some in (("all", list(zip(points, left_out, strict=True))), ("stock builds", stock)):
        middle, most, models = summary([p for p, _u in some], [u for _p, u in some])
        print(
            f"left out, {name}: configurations median {middle:.1%}, nine of ten {most:.1%}; models median {models:.1%}"
        )
    shown = intervals(points, left_out)
    for name, levels in shown.items():
        print(f"left out, {name}: four of five figures are {levels} times the estimate")
    print("Inside: in the interval made without the figure's model")
    print(*classes(points, left_out, stated), sep="\n")
    print(*apart(points), sep="\n")
    socket = [(p, u) for p, u in zip(points, left_out, strict=True) if p.settings.get("nccl_transport") == "socket"]
    print(f"left out, sockets: {', '.join(f'{p.config} {math.expm1(u):+.0%}' for p, u in socket)}")
    print("Below: estimate/measured tokens/s with the model left out of the fit")
    print(*table(points, seen, left_out), sep="\n")
    if chosen.write:
        middle, most, models = summary(points, left_out)
        entry = {
            "id": "decode",
            "fitted": chosen.date,
            "bandwidth_gb_s": base.bandwidth_gb_s,
            "flops": base.flops,
            "links_gb_s": dict(base.links_gb_s),
            "context": base.context,
            "costs": {key: float(f"{value:.4g}") for key, value in made.costs.items()},
            "spread": {key: round(value, 3) for key, value in made.spread.items()},
            "acceptance": {key: [round(v, 3) for v in value] for key, value in made.acceptance.items()},
            "patched": round(math.exp(logs["patched"]), 3),
            "texts": texts(made),
            "interval": {**shown, "rare": {f"n{n}": [0.5, 1.5] for n in estimate.LEVELS}},
            "error": {"median": round(middle, 3), "p90": round(most, 3), "models_median": round(models, 3)},
            "base": {
                "models": len({p.group for p in points}),
                "configurations": len({p.config for p in points}),
                "figures": len(points),
            },
            "source": [
                "Fitted by benchmarks/fit_estimates.py on knowledge/evidence and knowledge/speeds; benchmarks/results/estimates.txt",
                "costs.stages and interval.rare are guesses",
                "bandwidth_gb_s: NVIDIA's data sheet of the DGX Spark; flops: a fifth of the FP4 peak without sparsity, for BF16",
                "costs.compute: its guess is 60 TFLOPS in BF16, measured by J. Carmack and A. Hannun (banandre.com, 2025-10-28)",
            ],
            "verified": "measured",
        }  # fmt: skip
        OUT.parent.mkdir(exist_ok=True)
        text = yaml.safe_dump({"entries": [entry]}, sort_keys=False, default_flow_style=None, width=150)
        OUT.write_text(
            "---\n# yaml-language-server: $schema=../schema/files/estimates.json\n"
            "# yamllint disable rule:line-length rule:indentation\n# Made by benchmarks/fit_estimates.py --write; never by hand.\n"
            + text,
            encoding="utf-8",
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
