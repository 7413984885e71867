"""All kinds of pages but verify's (reports.py), for tests that measure them in a browser: with what makes each of them long."""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.discover.discovery import discover
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report import (
    bench,
    catalogue_page,
    matrix_page,
    models_page,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import models
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import cases, results
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import catalogue
from ansible_collections.dgxspark.cluster.tests.unit import bench_reports as measured
from ansible_collections.dgxspark.cluster.tests.unit import served_models as served
from ansible_collections.dgxspark.cluster.tests.unit.discovered import Site

PROFILES = (*served.FEW, "qwen3.5-397b-a17b-nvfp4", "gpt-oss-120b-sglang")


def benchmarks() -> dict[str, str]:
    """Return pages of benchmarks: one that is good at all numbers, and one with garbage and another tool beside it."""
    good = [measured.level(n, speed) for n, speed in ((1, 36.2), (4, 118.4), (8, 171.9), (16, 243.6))]
    said = [
        "One user gets 36 tokens/s: an answer of 200 words is there in 8 s.",
        "8 users at once get 21 tokens/s each, faster than people read.",
    ]
    bad = [*good[:3], measured.level(16, 243.6, "garbage") | {"message": "12 of 16 answers repeat one sentence."}]
    report = {**measured.REPORT, "model": "nvidia/Qwen3.6-35B-A3B-NVFP4", "answer": said}
    both = [{"name": name, "levels": good} for name in ("chat", "a code review of a long file")]
    return {
        "bench": bench.page({**report, "workloads": both}),
        "bench with garbage": bench.page(
            {**report, "crosscheck": measured.BESIDE, "workloads": [{"name": "chat", "levels": bad}]}
        ),
    }


def discoveries() -> dict[str, str]:
    """Return pages of discoveries: a ring of three, a switch of four, and Sparks that cannot make a fabric."""
    ring, switch, none = Site(3), Site(4), Site(2)
    for number in (1, 2, 3):
        ring.wire((number, 1), (number % 3 + 1, 0))
    switch.wire(*((number, 0) for number in (1, 2, 3, 4)))
    made = {"a ring": ring, "a switch": switch, "no cable": none}
    return {f"discover: {name}": discover(site.hosts()).page for name, site in made.items()}


@functools.cache
def pages() -> dict[str, str]:
    """Return every page by its name."""
    shown = models.picture(
        served.seen(served.everywhere(25.0)), served.two(loading=("second",)), served.nodes(), profiles=PROFILES
    )
    seeds = sorted(knowledge.load(cases.KIND))
    matrices: t.Iterator[tuple[str, str]] = (
        (f"matrix {name}", matrix_page.page(results.of_rows(cases.load(name)))) for name in (seeds[0], seeds[-1])
    )
    return {
        **benchmarks(),
        **dict(matrices),
        **discoveries(),
        "models": catalogue_page.page(catalogue(2)),
        "models that are served": models_page.page(shown),
    }
