# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Human-readable text of what a cluster serves: Sparks with memory bars, instances, and what would fit."""

from __future__ import annotations

import json
import textwrap
import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.instances import Served
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.models import FITS, Fit, Picture, Spark

WIDTH, WIDE = 50, 110
SIGNS = "ABCDEFGH"
OTHER, FREE = "(other)", "(free)"  # no instance has such a name


def gib(value: float | None) -> str:
    """Format GiB, or "?" if unknown."""
    return "? GiB" if value is None else f"{value:.1f} GiB"


def parts(spark: Spark) -> list[tuple[str, float]]:
    """Return how a Spark's memory divides, in GiB: instances by name, OTHER and FREE. Empty if unknown."""
    if spark.total_gib is None or spark.free_gib is None:
        return []
    free = min(spark.free_gib, spark.total_gib)
    return [*spark.held_gib.items(), (OTHER, spark.other_gib or 0.0), (FREE, free)]


def coming(spark: Spark) -> str:
    """Say what still loads, and how much more than is free it asks for, or what it leaves for another."""
    names = ", ".join(spark.coming)
    if spark.short_gib:
        return f"still to come: {names}, which asks for {gib(spark.short_gib)} more than is free"
    return f"still to come: {names}; room for another {gib(spark.room_gib)}"


def describe(served: Served) -> str:
    """Describe an instance: its state, and what it holds."""
    ready = sum(rank.ready for rank in served.ranks)
    vfs = sorted({vf for rank in served.ranks for vf in rank.vfs or ()})
    hosts = ", ".join(rank.host for rank in served.ranks)
    return (
        f"{served.profile or 'profile unknown'} on {hosts}: {ready} of {len(served.ranks)} ranks ready, "
        f"{gib(served.gib)} each, port {served.port or '?'}, dist_port {served.dist_port or '?'}, "
        f"{'VFs ' + ' '.join(vfs) if vfs else 'no VFs'}"
    )


def needs(fit: Fit) -> str:
    """Describe where a profile would run and what it would hold, or why it cannot."""
    if fit.state not in FITS:
        return "; ".join(fit.reasons)
    instance = fit.start["k8s_dgx_overrides"]["instance"]
    vf = f", vf_index {instance['vf_index']}" if "vf_index" in instance else ""
    left = f"{gib(fit.left_gib)} left" + (f" ({fit.note})" if fit.note else "")
    return f"on {', '.join(fit.hosts)}: {gib(fit.gib)} each, {left}, port {instance['port']}{vf}"


def command(fit: Fit) -> str:
    """Return the command that starts a profile that fits."""
    return (
        f"ansible-playbook dgxspark.cluster.serve -i inventory -l '{','.join(fit.hosts)}' -e '{json.dumps(fit.start)}'"
    )


def lines(picture: Picture) -> list[str]:
    """Return the lines of a picture."""
    names = list(dict.fromkeys(each.name for each in picture.instances))
    signs = {name: SIGNS[number % len(SIGNS)] for number, name in enumerate(names)} | {OTHER: "o", FREE: "."}
    made = ["What is served" + (f", as if {picture.without} were stopped" if picture.without else "")]
    made += [f"  {signs[each.name]} {each.name}: {describe(each)}" for each in picture.instances] or ["  nothing"]
    made += ["", "Sparks"]
    for spark in picture.sparks:
        made += [f"  {line}" for line in _spark(spark, signs)]
    made += ["", f"What would fit beside it ({len(picture.fits)} profiles)"]
    alike: dict[tuple[str, str], list[str]] = {}
    for fit in picture.fits:
        alike.setdefault((fit.state, needs(fit)), []).append(fit.profile)
    for (state, why), profiles in alike.items():
        if len(profiles) == 1:
            made.append(f"  {state:<12}  {profiles[0]}: {why}")
        else:  # Many share one reason: it is said once.
            names = textwrap.wrap(", ".join(profiles), WIDE, break_long_words=False, break_on_hyphens=False)
            made += [f"  {state:<12}  {why}:", *(f"                {line}" for line in names)]
    if picture.unseen:
        made += ["", "Not seen", *(f"  {line}" for line in _grouped(picture.unseen))]
    first = next((fit for fit in picture.fits if fit.state in FITS), None)
    return [*made, *(["", f"To start {first.profile}", f"  {command(first)}"] if first else [])]


def _grouped(told: t.Iterable[str]) -> list[str]:
    """Return `HOST: what` once for all hosts of which it is said."""
    hosts: dict[str, list[str]] = {}
    for each in told:
        host, colon, what = each.partition(": ")
        hosts.setdefault(what if colon else each, []).extend([host] if colon else [])
    return [f"{', '.join(names)}: {what}" if names else what for what, names in hosts.items()]


def _spark(spark: Spark, signs: t.Mapping[str, str]) -> t.Iterator[str]:
    known = parts(spark)
    if known and spark.total_gib:
        filled = "".join(signs[name] * int(value / spark.total_gib * WIDTH) for name, value in known)
        yield f"{spark.host} [{filled.ljust(WIDTH, '.')}] of {spark.total_gib:.1f} GiB"
    else:
        yield f"{spark.host}" + (f": {spark.unseen}" if spark.unseen else "")
    shares = [f"{signs[name]} {gib(share)}" for name, share in spark.shares.items()]
    shares += [f"other {gib(spark.other_gib)}"] if spark.other_gib is not None else []
    floor = f" (the memory guard's floor: {gib(spark.floor_gib)})" if spark.floor_gib is not None else ""
    yield f"  {', '.join([*shares, f'free {gib(spark.free_gib)}'])}{floor}"
    if spark.coming:
        yield f"  {coming(spark)}"
    taken = [f"{vf} {signs[name]}" for vf, name in sorted(spark.vfs.items())]
    free = f"VF index free: {', '.join(map(str, spark.free_vfs)) or 'none'}"
    gpu = f"; GPU shares taken: {spark.gpu_taken} of {'?' if spark.gpu is None else spark.gpu}"
    yield f"  {'VFs ' + ', '.join(taken) + '; ' if taken else ''}{free}{gpu}"
