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
FORCED = frozenset({"EAGLE", "EAGLE3", "NEXTN"})
FROZEN = "FROZEN_KV_MTP"
KNOWN = FORCED | {FROZEN, "DSPARK", "STANDALONE", "NGRAM", "DFLASH"}
DEFAULT_STEPS = 3
DEFAULT_GAMMA = 7  # DSPARK: SGLang 0.5.17 and 0.5.23, speculative/dspark_components/dspark_config.py
ASSUMED_GAMMA = "speculation.gamma"


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
    pp: int = 1,
) -> Draft:
    """Compute what SGLang verifies: always at least steps + 1 draft tokens.

    frozen_drafter: the drafter reuses the target's cache (FROZEN_KV_MTP). gamma: DSPARK's block size in the
    checkpoint. Raises CollectionError for what the engine rejects, or accepts and runs wrongly.
    Sources: SGLang 0.5.10 server_args.py:3079, 0.5.12 :3833, 0.5.14 arg_groups/speculative_hook.py:388, 0.5.23 :1260
    (top-k 1 forces steps + 1); FROZEN_KV_MTP has no such adjustment; DSPARK exists since 0.5.16.
    """
    name = promoted(algorithm, frozen_drafter)
    if name not in KNOWN:
        raise _refuse("speculative_algorithm", f"{algorithm!r} is unknown.", f"Known: {', '.join(sorted(KNOWN))}.")
    if pp > 1:
        raise _refuse(
            "speculative_algorithm",
            f"{name} does not run with pipeline stages (pp {pp}).",
            "Use pp 1, or no speculation.",
        )
    topk = _whole("speculative_eagle_topk", 1 if topk is None else topk, 1)
    if name == "DSPARK":
        return _dspark(steps, tokens, topk, gamma, version)
    steps = _whole("speculative_num_steps", DEFAULT_STEPS if steps is None else steps, 1)
    need = steps + 1
    given = None if tokens is None else _whole("speculative_num_draft_tokens", tokens, 1)
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
        given = need if topk == 1 else need + topk - 1
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


def _dspark(steps: int | None, tokens: int | None, topk: int, gamma: int | None, version: str) -> Draft:
    if version and not matches(version, ">=0.5.16"):
        raise _refuse("speculative_algorithm", f"DSPARK is not in SGLang {version}.", "Use 0.5.16 or newer.")
    if topk != 1:
        raise _refuse("speculative_eagle_topk", f"DSPARK runs with top-k 1, not {topk}.", "Set it to 1.")
    if steps not in (None, 1):
        raise _refuse("speculative_num_steps", f"DSPARK drafts a block in one step, not {steps}.", "Set it to 1.")
    if gamma is None and tokens is None:
        unknown = Finding(
            ASSUMED_GAMMA,
            "warning",
            "speculative_dspark_block_size",
            "the drafter's block size (gamma) is not known here: SGLang reads it from the drafter's config.json, and assumes "
            f"{DEFAULT_GAMMA} where that has none. The plan assumes {DEFAULT_GAMMA}, too.",
            "Set speculative_dspark_block_size, or gamma in the profile's drafter.",
        )
        return Draft("DSPARK", 1, 1, DEFAULT_GAMMA + 1, False, (unknown,))
    need = _whole("gamma", gamma, 1) + 1 if gamma is not None else _whole("speculative_num_draft_tokens", tokens, 2)
    if tokens is not None and tokens != need:
        raise _refuse(
            "speculative_num_draft_tokens",
            f"{tokens} is not gamma + 1 = {need}, which DSPARK demands at start-up.",
            f"Set it to {need}, or leave it out.",
        )
    return Draft("DSPARK", 1, 1, need, False)


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
