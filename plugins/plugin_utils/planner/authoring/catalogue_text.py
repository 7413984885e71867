# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text of what a number of Sparks can run: one line for each variant that fits, and the rest folded by reason."""

from __future__ import annotations

import json
import textwrap
import typing as t

from .catalogue import LEVELS, SORTS, Catalogue, Choice

HEAD = ("PROFILE", "VARIANT", "SPARKS", "WEIGHTS", "LEFT", "1", "4", "8", "CONTEXT", "VERDICT", "SOURCE")
NUMBERS = frozenset(["SPARKS", "LEFT", "1", "4", "8", "CONTEXT"])  # columns that end at the right
WIDTH = 130
LEGEND = (
    "LEFT: GiB that stay free on each Spark. 1, 4, 8: tokens/s in all, at so many requests at once; ~ is estimated, the others are",
    "measured. SOURCE: the measured run. proven: a measured run is equal; unproven: no rule forbids it, and no run proves it.",
)


def figure(value: float) -> str:
    """Format tokens/s as people say them: 8.3, 42, 310."""
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def speed(choice: Choice, level: str) -> str:
    """Format the speed at a level; ~ marks an estimate."""
    if level not in choice.speed:
        return "-"
    return ("~" if choice.origin == "estimated" else "") + figure(choice.speed[level])


def context(choice: Choice) -> str:
    """Format a context length as models' names do: 256K for 262144."""
    tokens = choice.context
    return f"{tokens // 1024}K" if isinstance(tokens, int) and tokens and tokens % 1024 == 0 else f"{tokens or '-'}"


def left(choice: Choice) -> str:
    """Format the GiB that stay free."""
    return "-" if choice.left_gib is None else f"{choice.left_gib:.0f}"


def verdict(choice: Choice) -> str:
    """Return the verdict, and whether the memory is tight."""
    return f"{choice.verdict}, tight" if choice.state == "tight" else choice.verdict


def source(choice: Choice) -> str:
    """Return the id of the measured run, or what the figures are."""
    return choice.source.partition(":")[0] if choice.origin == "measured" else choice.origin or "-"


def cells(choice: Choice) -> tuple[str, ...]:
    """Return the values of HEAD."""
    return (
        choice.profile,
        choice.variant.replace("default", "-"),
        str(choice.sparks),
        choice.quantization,
        left(choice),
        *(speed(choice, level) for level in LEVELS),
        context(choice),
        verdict(choice),
        source(choice),
    )


def heading(made: Catalogue) -> str:
    """Return the answer in one sentence."""
    proven = sum(each.verdict == "proven" for each in made.fits)
    tight = sum(each.state == "tight" for each in made.fits)
    whole = len(made.fits) + len(made.others)
    sparks = f"{made.sparks} Spark" + ("s" if made.sparks != 1 else "")
    more = [f"{proven} proven by a measured run"] + ([f"{tight} with little memory left"] if tight else [])
    return f"{len(made.fits)} of {whole} configurations fit {sparks}: {', '.join(more)}."


def folded(choices: t.Iterable[Choice]) -> dict[str, list[Choice]]:
    """Return variants by what stands against them: the Sparks or the memory needed, or the rule that forbids it."""
    found: dict[str, list[Choice]] = {}
    for each in choices:
        found.setdefault(each.why[0].partition(": ")[0], []).append(each)
    return found


def lines(made: Catalogue) -> list[str]:
    """Return the lines of a catalogue."""
    rows = [HEAD, *(cells(each) for each in made.fits)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    table = [
        "  ".join(
            cell.rjust(width) if name in NUMBERS else cell.ljust(width)
            for name, cell, width in zip(HEAD, row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
    said = [heading(made), "", *(table if made.fits else []), *([""] if made.fits else []), *LEGEND]
    said += _listed("Little memory left", folded([each for each in made.fits if each.why]))
    said += _listed(f"Does not fit ({len(made.others)})", folded(made.others))
    others = "|".join(name for name in SORTS if name != made.sort)
    # Again, for a terminal shows the end of a long list.
    said += ["", heading(made), f"Sorted by {made.sort}; -e sort={others} sorts otherwise."]
    if first := suggested(made):
        said += ["The whole plan of one, with the command of each rank:", f"  {command(first, made.sparks)}"]
    return said


def _listed(title: str, groups: t.Mapping[str, t.Sequence[Choice]]) -> list[str]:
    lines = ["", title] if groups else []
    for reason, choices in groups.items():
        unlike = ", ".join(sorted({each.profile for each in choices}))
        lines += textwrap.wrap(
            f"  {reason}: {unlike}", WIDTH, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False
        )
    return lines


def suggested(made: Catalogue) -> Choice | None:
    """Return the first that fits with memory to spare, else the first."""
    return next((each for each in made.fits if each.state == "fits"), made.fits[0] if made.fits else None)


def command(choice: Choice, sparks: int) -> str:
    """Return the command that plans a variant, without an inventory."""
    overrides = json.dumps({"k8s_dgx_overrides": {"variant": choice.variant}})
    variant = "" if choice.variant == "default" else f" -e '{overrides}'"
    return (
        f"ansible-playbook dgxspark.cluster.plan -e sparks={sparks} -e k8s_dgx_model_profile={choice.profile}{variant}"
    )
