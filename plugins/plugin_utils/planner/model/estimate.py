# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Estimates the decode speed of an unmeasured configuration: a closed formula over what one step moves.

A step advances n requests by one step. It reads all weights outside the routed experts once, the experts that its tokens
reach, and each request's cache and state; it launches one or more kernels per block, and with TP runs an all-reduce after
each. `work` counts this on the busiest rank; `knowledge/estimates` holds the cost per unit (fitted by
`benchmarks/fit_estimates.py` on measured rows, with the error on held-out models). Prefill is not included: figures are
the sum of the requests' own tokens/s while they decode, the seeds' peak. For text denoised in blocks, a step is a
pass over a whole canvas of each request; the fit includes one model of that kind.
"""

from __future__ import annotations

import functools
import math
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge

from .model import BYTES, Facts, Format, Moe, Parallelism, Tensors, kv_bytes, state_bytes, tensors
from .speculation import FROZEN, Draft

KIND = "estimates"
LEVELS = (1, 4, 8)
GB = 1e9
# Drafters that propose all their tokens in one pass; the others need one pass per token.
BLOCK_DRAFTERS = frozenset({"DFLASH", "DSPARK"})
_WIDTH = {
    "fp32": "bf16",
    "bf16": "bf16",
    "fp8": "fp8",
    "nvfp4": "fp4",
    "mxfp4": "fp4",
    "int4": "fp4",
    "int4_g32": "fp4",
}
_EAGER = 3.0  # how strongly the slower of GPU and host dominates an eager step: the exponent of their norm


class Drafter(t.Protocol):
    """A separate draft model: its number of parameters, and their format."""

    @property
    def params(self) -> float:
        """Return the number of parameters."""

    @property
    def precision(self) -> str:
        """Return the format of its weights."""


class Engine(t.Protocol):
    """The engine that serves: its costs differ by name."""

    @property
    def name(self) -> str:
        """Return the engine's name."""


class Served(t.Protocol):
    """What an estimate reads of a profile, which lies a layer above."""

    @property
    def id(self) -> str:
        """Return the profile's name."""

    @property
    def engine(self) -> Engine:
        """Return the engine."""

    @property
    def facts(self) -> Facts | None:
        """Return the model's facts, None if unknown."""

    @property
    def parallelism(self) -> Parallelism:
        """Return the parallelism."""

    @property
    def precision(self) -> t.Mapping[str, Format]:
        """Return the format of each kind of tensor."""

    @property
    def drafter(self) -> Drafter | None:
        """Return the separate draft model, if there is one."""


@dataclass(frozen=True)
class Figures:
    """One entry of `knowledge/estimates`. costs: cost per unit of each amount, see `work`; links in GB/s.

    acceptance: by algorithm, the probability of accepting the first drafted token and its decay per further token; spread:
    how much a further request (others) or a drafted token (drafts) reaches other experts, 1 is random; interval:
    lower and upper factors by number of requests: plain, drafted, blocks (drafters of blocks), rare (pipeline stages or sockets). texts: by kind of
    text, the odds that a draft passes as a share of the usual odds. canvas_copies: of the engine's sampler, see `_denoising`; set by
    the plan.
    """

    id: str
    fitted: str
    bandwidth_gb_s: float
    flops: float
    links_gb_s: t.Mapping[str, float]
    context: int
    costs: t.Mapping[str, float]
    spread: t.Mapping[str, float]
    acceptance: t.Mapping[str, t.Sequence[float]]
    interval: t.Mapping[str, t.Mapping[str, t.Sequence[float]]]
    error: t.Mapping[str, float]
    texts: t.Mapping[str, float] = field(default_factory=dict)
    canvas_copies: float = 0.0


def load_figures(overlays: t.Sequence[str] = ()) -> Figures:
    """Return the constants; an owner's overlay may replace them."""
    entry = knowledge.load(KIND, overlays)["decode"]
    return Figures(**{key: entry[key] for key in Figures.__dataclass_fields__ if key in entry})


def distinct(experts: float, top_k: float, tokens: float) -> float:
    """Return the expected number of a layer's experts that this many independent tokens reach."""
    missed: float = (1.0 - top_k / experts) ** tokens
    return experts * (1.0 - missed)


def busiest(experts: int, reached: float, ranks: int) -> float:
    """Return the experts reached on the busiest of several ranks: the mean, plus the expected excess of the largest."""
    own, share = experts / ranks, reached / experts
    if ranks == 1:
        return reached
    return min(own, own * share + math.sqrt(2 * math.log(ranks) * own * share * (1 - share)), reached)


def tokens_per_step(algorithm: str, steps: int, figures: Figures) -> float:
    """Return the expected tokens per step of one request: its own plus the accepted drafts."""
    first, decay = figures.acceptance.get(algorithm, figures.acceptance["other"])
    return expected(first, decay, steps)


def expected(first: float, decay: float, steps: int) -> float:
    """Return the expected tokens of a step whose first draft passes with this chance, and each further one by a factor less."""
    found, chance, each = 1.0, 1.0, first
    for _step in range(steps):
        chance *= each
        found += chance
        each *= decay
        if chance < 1e-12:  # further steps add nothing
            break
    return found


def _output_layer(items: t.Sequence[Tensors], facts: Facts) -> list[tuple[str, float]]:
    """Return the output layer's bytes by format: the part of the tables with the smallest storage."""
    left, found = float(facts.vocab_size * facts.hidden_size), []
    for item in sorted((i for i in items if i.kind == "embeddings"), key=lambda i: BYTES[i.precision]):
        params = min(item.params, left)
        left -= params
        found.append((item.precision, params * BYTES[item.precision]))
    return found


@dataclass(frozen=True)
class _Weights:
    """The weights that a step of the model reads. each: bytes that every step reads on a rank, by precision; experts:
    bytes of all experts, by precision; params: weights that compute one token on a rank; head: the tensors of the
    model's own drafter; output: bytes of the output layer by precision, across all ranks.
    """

    each: tuple[tuple[str, float], ...]
    experts: tuple[tuple[str, float], ...]
    params: float
    head: tuple[Tensors, ...]
    output: tuple[tuple[str, float], ...]


@functools.lru_cache(maxsize=512)
def _weights(facts: Facts, precision: tuple[tuple[str, t.Any], ...], parallelism: Parallelism) -> _Weights:
    stored = {kind: form if isinstance(form, str) else dict(form) for kind, form in precision}
    items = tuple(tensors(facts, stored, parallelism))
    each, experts, params = _Sum(), _Sum(), 0.0
    for item in items:
        if item.kind in ("embeddings", "lookup", "vision", "head"):  # a token reads only a few rows of a lookup table
            continue
        if item.sharding == "experts" and facts.moe:
            experts.more(item.precision, item.bytes)
            params += item.params / parallelism.tp * facts.moe.top_k / facts.moe.experts
        else:
            share = parallelism.tp if item.sharding == "tp" else 1
            each.more(item.precision, item.bytes / share)
            params += item.params / share
    output = _output_layer(items, facts)
    for form, size in output:
        each.more(form, size / parallelism.tp)
        params += size / BYTES[form] / parallelism.tp
    head = tuple(item for item in items if item.kind == "head")
    return _Weights(tuple(each.items()), tuple(experts.items()), params, head, tuple(output))


def _key(precision: t.Mapping[str, t.Any]) -> tuple[tuple[str, t.Any], ...]:
    return tuple((kind, form if isinstance(form, str) else tuple(form.items())) for kind, form in precision.items())


class _Sum(dict[str, float]):
    def more(self, key: str, amount: float) -> None:
        if amount:
            self[key] = self.get(key, 0.0) + amount


def _join(found: _Sum, blocks: float, tokens: float, hidden: int, ranks: int, transport: str, figures: Figures) -> None:
    """Add all-reduces: latency grows with log2 of the ranks, each rank sends 2 (p − 1) / p of a token's BF16 width."""
    if ranks < 2:
        return
    found.more(f"join.{transport}", blocks * math.log2(ranks))
    sent = blocks * tokens * hidden * 2 * 2 * (ranks - 1) / ranks
    found.more("wire", sent / (figures.links_gb_s[transport] * GB))


def _denoising(
    found: _Sum, facts: Facts, weights: _Weights, parallelism: Parallelism, tokens: float, figures: Figures
) -> None:
    """Add the work after a pass over canvases: each token has a distribution over the whole vocabulary.

    vLLM 0.25.1, 0.29.0 models/diffusion_gemma.py (_compiled_sample_step): the sampler makes canvas_copies FP32 copies of it,
    each written and read once; its product with the embedding table feeds the next pass.
    """
    bandwidth = figures.bandwidth_gb_s * GB
    found.more("cache", figures.canvas_copies * tokens * facts.vocab_size * (4 + 4) / bandwidth)
    found.more("compute", 2 * tokens * facts.vocab_size * facts.hidden_size / parallelism.tp / figures.flops)
    for precision, size in weights.output:
        found.more(f"read.{_WIDTH[precision]}", size / parallelism.tp / bandwidth)


def work(
    profile: Served,
    settings: t.Mapping[str, t.Any],
    draft: Draft | None,
    requests: float,
    figures: Figures,
    context: float | None = None,
) -> dict[str, float]:
    """Count what one step of this many requests does on the busiest rank, by cost key.

    read.* and experts.*: bytes of weights by format, as seconds at full bandwidth; cache: bytes of caches, states and samplers,
    likewise; compute: floating-point operations, as seconds; blocks: those to run, eager: those that the host launches
    without graphs; join.*: all-reduces × log2 of the ranks; wire: their traffic, as seconds; step.*: 1; request: requests;
    drafting: passes of a drafter.
    Raises CollectionError if the model is unknown.
    """
    facts, parallelism = profile.facts, profile.parallelism
    if facts is None:
        raise CollectionError(f"profile {profile.id!r}: facts: without them no speed is estimated.")
    transport = str(settings.get("nccl_transport") or "roce")
    block = facts.diffusion
    verified = block.canvas if block else draft.tokens if draft else 1
    tokens = requests * verified
    reach = 1 + figures.spread["others"] * (requests - 1) + figures.spread["drafts"] * requests * (verified - 1)
    bandwidth = figures.bandwidth_gb_s * GB
    weights = _weights(facts, _key(profile.precision), parallelism)
    found = _Sum()

    def read(item_precision: str, size: float, kind: str = "read") -> None:
        found.more(f"{kind}.{_WIDTH[item_precision]}", size / bandwidth)

    def experts(size: float, reached_by: float) -> float:
        moe = t.cast(Moe, facts.moe)  # only models with experts have tensors split by experts
        reached = busiest(moe.experts, distinct(moe.experts, moe.top_k, reached_by), parallelism.ep)
        return reached / moe.experts * size / (parallelism.tp // parallelism.ep)

    for precision, size in weights.each:
        read(precision, size)
    for precision, size in weights.experts:
        read(precision, experts(size, reach), "experts")
    found.more("compute", 2 * weights.params * tokens / figures.flops)

    if block:
        _denoising(found, facts, weights, parallelism, tokens, figures)
    own_head = bool(draft and facts.head and not profile.drafter)
    length = figures.context if context is None else context
    window = max((a.window for a in facts.attention if a.window), default=0)
    whole = Parallelism(parallelism.tp, 1, parallelism.ep)
    dtype = str(settings.get("kv_cache_dtype", "auto"))
    share = min(1.0, window / length) if window else 1.0
    cache = kv_bytes(facts, dtype, whole, own_head, share, length) * length
    # A state is read once and written for each verified token: which of them are accepted is known only afterwards.
    state = (1 + verified) * state_bytes(facts.linear, whole) if facts.linear else 0.0
    found.more("cache", requests * (cache + state) / bandwidth)

    blocks = facts.blocks  # each ends in an all-reduce
    found.more("blocks", blocks)
    found.more("blocks.states", facts.linear.layers if facts.linear else 0)
    found.more("blocks.experts", facts.moe.layers if facts.moe else 0)
    graphs = settings.get("cuda_graph_max_bs")
    if settings.get("disable_cuda_graph") or (isinstance(graphs, int) and requests > graphs):
        found.more("eager", blocks)
    _join(found, blocks + 1, tokens, facts.hidden_size, parallelism.tp, transport, figures)
    found.more(f"step.{profile.engine.name}", 1.0)
    found.more("request", requests)
    found.more("stages", parallelism.pp - 1.0)
    if draft:
        passes = 1 if draft.algorithm.upper() in BLOCK_DRAFTERS else draft.steps
        found.more("drafting", passes)
        if own_head and facts.head:
            for item in weights.head:
                share = parallelism.tp if item.sharding == "tp" else 1
                size = experts(item.bytes, reach / verified) if item.sharding == "experts" else item.bytes / share
                read(item.precision, passes * size)
            for precision, size in weights.output:
                read(precision, passes * size / parallelism.tp)
            _join(found, passes * facts.head.blocks, requests, facts.hidden_size, parallelism.tp, transport, figures)
        elif profile.drafter:
            size = profile.drafter.params * BYTES[profile.drafter.precision]
            read(profile.drafter.precision, passes * size / parallelism.tp)
    return dict(found)


def seconds(amounts: t.Mapping[str, float], figures: Figures) -> float:
    """Return the duration of a step. Without CUDA graphs the host launches each block's kernels while the GPU works."""
    gpu = sum(amount * figures.costs[key] for key, amount in amounts.items() if key != "eager")
    host = amounts.get("eager", 0.0) * figures.costs["eager"]
    return float((gpu**_EAGER + host**_EAGER) ** (1 / _EAGER)) if host else gpu


def tokens_per_second(
    profile: Served,
    settings: t.Mapping[str, t.Any],
    draft: Draft | None,
    requests: int,
    figures: Figures,
    *,
    context: float | None = None,
    accepted: float | None = None,
) -> float:
    """Return the combined tokens/s of this many requests. accepted: tokens per step, if known.

    No more requests run at once than the engine admits. Pipeline stages work on as many batches at once as there are stages.
    """
    limit = settings.get("max_running_requests")
    running = min(requests, limit) if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0 else requests
    batches = min(running, profile.parallelism.pp)
    took = seconds(work(profile, settings, draft, running / batches, figures, context), figures)
    if accepted is None:
        accepted = _yield(profile.facts, draft, figures)
    return running * accepted / took


def _yield(facts: Facts | None, draft: Draft | None, figures: Figures) -> float:
    """Return the expected tokens per step of one request."""
    if facts and facts.diffusion:
        return facts.diffusion.tokens[1]
    return tokens_per_step(_algorithm(draft), drafts(draft), figures) if draft else 1.0


def drafts(draft: Draft) -> int:
    """Return how many tokens one branch drafts. A drafter of blocks makes all of them in one step: SGLang says 1 step."""
    return max(draft.steps, draft.tokens - 1) if draft.algorithm.upper() in BLOCK_DRAFTERS else draft.steps


def _algorithm(draft: Draft) -> str:
    name = draft.algorithm.upper()
    return "MTP" if name in ("EAGLE", "NEXTN", "MTP", FROZEN) else name


def _basis(amounts: t.Mapping[str, float], figures: Figures, facts: Facts, draft: Draft | None) -> str:
    """Return text on where the time of one request's step goes, and how accurate such estimates were."""
    parts = {"weights": 0.0, "experts": 0.0, "cache": 0.0, "ranks": 0.0, "rest": 0.0}
    names = {"read": "weights", "experts": "experts", "cache": "cache", "join": "ranks", "wire": "ranks"}
    for key, amount in amounts.items():
        parts[names.get(key.partition(".")[0], "rest")] += amount * figures.costs[key]
    whole = sum(parts.values())
    shares = ", ".join(f"{name} {size / whole:.0%}" for name, size in parts.items() if size / whole >= 0.005)
    yields = f"; {_yield(facts, draft, figures):.2f} tokens a step expected" if draft else ""
    if facts.diffusion:
        least, usual, most = facts.diffusion.tokens
        yields = f"; {usual:.1f} tokens a pass expected, {least:.1f} to {most:.1f} depending on the text"
    return (
        f"one request's step: {shares}{yields}. Fitted {figures.fitted}; models held out of the fit were off by a median of "
        f"{figures.error['median']:.0%}, nine of ten by at most {figures.error['p90']:.0%}"
    )


def estimate(
    profile: Served, settings: t.Mapping[str, t.Any], draft: Draft | None, figures: Figures, kernels: str = ""
) -> dict[str, t.Any] | None:
    """Return tokens/s at 1, 4 and 8 requests, each with an interval, and their basis; None if the model is unknown.

    low and high cover four of five figures of models held out of the fit. There is no figure for pipeline stages and only
    three for sockets, so those are a guess. So are images with kernels of their own (kernels: which): the figures are
    what stock kernels would do. If a canvas takes more or fewer passes depending on its text, they cover that
    too. A pure function.
    """
    facts = profile.facts
    if facts is None:
        return None
    runs = draft if draft is None or draft.steps else None
    made = {f"n{n}": tokens_per_second(profile, settings, runs, n, figures) for n in LEVELS}
    parallelism = profile.parallelism
    rare = parallelism.pp > 1 or (parallelism.tp > 1 and settings.get("nccl_transport") == "socket")
    kind = "plain" if not runs else "blocks" if runs.algorithm.upper() in BLOCK_DRAFTERS else "drafted"
    factors = figures.interval["rare" if rare or kernels else kind if kind in figures.interval else "drafted"]
    least, most = 1.0, 1.0
    if facts.diffusion:
        few, usual, many = facts.diffusion.tokens
        least, most = few / usual, many / usual
    return {
        **{key: round(value, 1) for key, value in made.items()},
        "low": {key: round(value * factors[key][0] * least, 1) for key, value in made.items()},
        "high": {key: round(value * factors[key][1] * most, 1) for key, value in made.items()},
        "texts": _texts(profile, settings, runs, figures) if runs else {},
        "kernels": kernels,
        "basis": _basis(work(profile, settings, runs, 1, figures), figures, facts, runs)
        + (". With pipeline stages, or over sockets, it is a guess" if rare else ""),
    }


def _texts(
    profile: Served, settings: t.Mapping[str, t.Any], draft: Draft, figures: Figures
) -> dict[str, dict[str, float]]:
    """Return, by kind of text, the tokens of a step and one request's tokens/s: drafts pass more often in code than in prose."""
    name = _algorithm(draft)
    first, decay = figures.acceptance.get(name, figures.acceptance["other"])
    found = {}
    for kind, share in figures.texts.items():
        odds = share * first / (1 - first)
        accepted = expected(odds / (1 + odds), decay, drafts(draft))
        speed = tokens_per_second(profile, settings, draft, 1, figures, accepted=accepted)
        found[kind] = {"accepted": round(accepted, 2), "n1": round(speed, 1)}
    return found


def promise(plan: t.Mapping[str, t.Any], requests: int = 8) -> float | None:
    """Return the tokens/s that a plan of `launch_plan` promises: from its equal stable row, else from its estimate."""
    key = f"n{requests}"
    for row in plan.get("evidence", ()):
        if row["equal"] and row["verdict"] == "stable" and row.get(key) is not None:
            return float(row[key])
    return (plan.get("estimate") or {}).get(key)
