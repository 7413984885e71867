# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draft tokens: how many an engine really verifies, and what it rejects or silently changes."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, Finding
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.versions import matches

# SGLang's own names. NEXTN is reported as EAGLE; the engine adjusts the draft tokens of the first set itself.
FORCED = frozenset({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE"})
FROZEN = "FROZEN_KV_MTP"
KNOWN = FORCED | {FROZEN, "DSPARK", "NGRAM", "DFLASH"}
DEFAULT_STEPS = 3
DEFAULT_GAMMA = 7  # DSPARK: SGLang 0.5.17 and 0.5.23, speculative/dspark_components/dspark_config.py
DEFAULT_BLOCK = 16  # DFLASH: SGLang 0.5.11 server_args.py:3412, 0.5.23 arg_groups/speculative_hook.py:415
DEFAULT_NGRAM = 12  # SGLang 0.5.12 server_args.py:3861, 0.5.23 arg_groups/speculative_hook.py:1314
SINCE = {"DFLASH": "0.5.11", "DSPARK": "0.5.16"}
ASSUMED_GAMMA = "speculation.gamma"
# What vLLM tells a drafter's method by if none is stated: a part of its name, in the engine's order.
# vLLM 0.26.0 config/speculative.py:876, 0.33.0 :1445; 0.17.0 :474 knows the first two.
VLLM_NAMED = (("eagle-", "eagle"), ("eagle3", "eagle3"), ("dflash", "dflash"), ("dspark", "dspark"))


@dataclass(frozen=True)
class Draft:
    """What runs: algorithm after promotion, steps, top-k, tokens verified per step; findings report changes."""

    algorithm: str
    steps: int
    topk: int
    tokens: int
    forced: bool
    findings: tuple[Finding, ...] = ()


def _refuse(key: str, why: str, remedy: str) -> CollectionError:
    finding = Finding("speculation.refused", "error", key, why, remedy)
    return CollectionError(str(finding), findings=[finding])


def _whole(key: str, value: t.Any, lowest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
        raise _refuse(key, f"{value!r} is not a whole number of at least {lowest}.", f"Give {lowest} or more.")
    return value


def promoted(algorithm: str, frozen_drafter: bool) -> str:
    """Return the algorithm that runs: NEXTN is EAGLE, and with an assistant drafter FROZEN_KV_MTP (SGLang PR 24436)."""
    name = algorithm.upper()
    if name in ("NEXTN", FROZEN) and frozen_drafter:
        return FROZEN
    return "EAGLE" if name == "NEXTN" else name


def sglang_draft(
    algorithm: str,
    steps: int | None = None,
    tokens: int | None = None,
    topk: int | None = None,
    *,
    version: str = "",
    frozen_drafter: bool = False,
    gamma: int | None = None,
    block: int | None = None,
    pp: int = 1,
) -> Draft:
    """Compute what SGLang verifies: always at least steps + 1 draft tokens.

    frozen_drafter: the drafter reuses the target's cache (FROZEN_KV_MTP). gamma: the block size in a DSPARK or DFLASH
    drafter's configuration; block: the one that is asked for (speculative_dspark_block_size, speculative_dflash_block_size).
    Raises CollectionError for what the engine rejects, or accepts and runs wrongly.
    Sources: SGLang 0.5.10 server_args.py:3079, 0.5.12 :3833, 0.5.14 arg_groups/speculative_hook.py:388, 0.5.23 :1260
    (top-k 1 forces steps + 1); FROZEN_KV_MTP has no such adjustment; `_by_block`.
    """
    if not isinstance(algorithm, str):
        raise _refuse("speculative_algorithm", f"{algorithm!r} is not a text.", f"Known: {', '.join(sorted(KNOWN))}.")
    if not isinstance(version, str):
        raise _refuse("version", f"{version!r} is not a text.", "Write SGLang's release in quotes, such as '0.5.12'.")
    name = promoted(algorithm, frozen_drafter)
    if name not in KNOWN:
        raise _refuse("speculative_algorithm", f"{algorithm!r} is unknown.", f"Known: {', '.join(sorted(KNOWN))}.")
    if name in SINCE and version and not matches(version, f">={SINCE[name]}"):
        raise _refuse("speculative_algorithm", f"{name} is not in SGLang {version}.", f"Use {SINCE[name]} or newer.")
    if _whole("pp", pp, 1) > 1:
        raise _refuse(
            "speculative_algorithm",
            f"{name} does not run with pipeline stages (pp {pp}).",
            "Use pp 1, or no speculation.",
        )
    topk = _whole("speculative_eagle_topk", 1 if topk is None else topk, 1)
    steps_given = None if steps is None else _whole("speculative_num_steps", steps, 1)
    given = None if tokens is None else _whole("speculative_num_draft_tokens", tokens, 1)
    if name in SINCE:
        return _by_block(name, steps_given, given, topk, gamma, block)
    steps = DEFAULT_STEPS if steps_given is None else steps_given
    need = steps + 1
    if name in FORCED and topk == 1:
        found: tuple[Finding, ...] = ()
        if given is not None and given != need:
            found = (
                Finding(
                    "speculation.forced",
                    "warning",
                    "speculative_num_draft_tokens",
                    f"{given} is passed, but with top-k 1 the engine runs {need} (steps + 1).",
                    f"Set it to {need}, or change the steps: a sweep over this number alone measures the same configuration each time.",
                ),
            )
        return Draft(name, steps, topk, need, given is not None and given != need, found)
    if given is None:
        given = max(need if topk == 1 else need + topk - 1, DEFAULT_NGRAM if name == "NGRAM" else 0)
    if given < need:
        raise _refuse(
            "speculative_num_draft_tokens",
            f"{given} is less than steps + 1 = {need}, and {name} does not adjust it.",
            f"Set it to {need}, or the steps to {given - 1}.",
        )
    widest = topk + (steps - 1) * topk**2 + 1  # every node of the tree, and the root
    if name in FORCED and given > widest:
        raise _refuse(
            "speculative_num_draft_tokens",
            f"{given} is more than a tree of {steps} steps with top-k {topk} has ({widest}).",
            f"Set it to at most {widest}.",
        )
    return Draft(name, steps, topk, given, False)


def _by_block(
    name: str, steps: int | None, tokens: int | None, topk: int, gamma: int | None, block: int | None
) -> Draft:
    """Compute what an algorithm verifies that drafts a block at once: DFLASH the block, DSPARK one token more.

    Both set steps and top-k to 1, whatever is asked. DFLASH takes the drafter's block only if no number is asked for; DSPARK
    refuses a number that is not its block and one. SGLang 0.5.11 server_args.py:3319, 0.5.17
    arg_groups/speculative_hook.py:147 and :278, 0.5.23 :287 and :666.
    """
    found = [
        Finding(
            "speculation.forced",
            "warning",
            key,
            f"{given} is passed, but {name} drafts a block in one step and the engine sets it to 1.",
            "Set it to 1, or leave it out: a sweep over this number measures the same configuration each time.",
        )
        for key, given in (("speculative_num_steps", steps), ("speculative_eagle_topk", topk))
        if given not in (None, 1)
    ]
    own = f"speculative_{name.lower()}_block_size"
    more, default = (1, DEFAULT_GAMMA) if name == "DSPARK" else (0, DEFAULT_BLOCK)
    asked = None if block is None else _whole(own, block, 1)
    size = asked if asked is not None or gamma is None else _whole("gamma", gamma, 1)
    fixed = size if name == "DSPARK" else asked
    if tokens is not None and fixed is not None and tokens != fixed + more:
        said = (
            f"gamma + 1 = {fixed + more}, which DSPARK demands"
            if more
            else f"{own} = {fixed}, and DFLASH demands one number"
        )
        raise _refuse(
            "speculative_num_draft_tokens",
            f"{tokens} is not {said} at start-up.",
            f"Set it to {fixed + more}, or leave it out.",
        )
    # DSPARK compares a number that is asked for with its drafter's block, so asking for one does not settle it.
    if size is None and (tokens is None or more):
        where = "gamma" if more else "block_size"
        assumed = default if tokens is None else tokens - more
        found.append(
            Finding(
                ASSUMED_GAMMA,
                "warning",
                own,
                f"the drafter's block size ({where}) is not known here: SGLang reads it from the drafter's config.json, and assumes "
                f"{default} where that has none. The plan assumes {assumed}{', too' if assumed == default else ''}.",
                f"Set {own}, or gamma in the profile's drafter.",
            )
        )
    verified = tokens if tokens is not None else (default if size is None else size) + more
    return Draft(name, 1, 1, _whole("speculative_num_draft_tokens", verified, 2), False, tuple(found))


def vllm_draft(method: str, steps: int | None) -> Draft:
    """Compute what vLLM verifies: its drafts and the one sampled token. method: vLLM's own name.

    vLLM 0.17.0 config/speculative.py: the number must be positive; the verified sequence is one longer.
    """
    if steps is None:
        raise _refuse(
            "speculative_num_steps",
            "num_speculative_tokens is missing; an engine takes it from the checkpoint, a plan cannot.",
            "Add it, such as 3.",
        )
    steps = _whole("speculative_num_steps", steps, 1)
    return Draft(method, steps, 1, steps + 1, False)


def vllm_method(drafter: str, *, own_head: bool) -> str:
    """Return the method that vLLM infers for a drafter that is named without one.

    own_head: the drafter is the model's prediction head or assistant, whose configuration says so (mtp). What nothing tells is
    a model of its own.
    """
    if drafter in ("ngram", "[ngram]"):
        return "ngram"
    named = next((method for part, method in VLLM_NAMED if part in drafter.lower()), None)
    return named or ("mtp" if own_head else "draft_model")
