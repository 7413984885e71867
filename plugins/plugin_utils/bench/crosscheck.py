# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The community's common benchmark beside our own: the installed llama-benchy, against the same server.

Its figures are shown but never decide a verdict: it exits with 0 whatever fails, drops answers that arrive in one burst, and leaves
the temperature to the server.
"""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import tempfile
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

Plain = dict[str, t.Any]
PROGRAM = "llama-benchy"
# llama-benchy 0.4.0: its key → ours, each a mean.
_FIGURES = {
    "tg_throughput": "tokens_per_s",
    "tg_req_throughput": "per_request_tokens_per_s",
    "peak_throughput": "peak_second_tokens_per_s",
    "pp_throughput": "prompt_tokens_per_s",
    "e2e_ttft": "ttft_ms",
}


# Spark Arena's profile, so that its table and an owner's can be compared (spark-arena/recipe-registry, benchmarking/spark-arena-v2.yaml at
# 4fe80a45; -v1.yaml has the same grid). It also orders the tests by the heat that they make, which the tool itself cannot be told.
ARENA_LEVELS = (1, 2, 5, 10)
ARENA_DEPTHS = (0, 4096, 8192, 16384, 32768, 65535, 100000)
_ARENA_PROMPT, _ARENA_ANSWER = 2048, 128
ARENA_ARGUMENTS = ("--pp", str(_ARENA_PROMPT), "--tg", str(_ARENA_ANSWER), "--enable-prefix-caching")


def fitting(depths: t.Sequence[int], listed: t.Any, model: str) -> tuple[int, ...]:
    """Return the arena's depths that fit with prompt and answer into a model's context, if the server states it.

    listed: what the server says at /v1/models; vLLM and SGLang state max_model_len there.
    """
    found = listed.get("data") if isinstance(listed, dict) else None
    own = (
        [each for each in found if isinstance(each, dict) and each.get("id") == model]
        if isinstance(found, list)
        else []
    )
    most = own[0].get("max_model_len") if own else None
    if not isinstance(most, int) or isinstance(most, bool):
        return tuple(depths)
    return tuple(depth for depth in depths if depth + _ARENA_PROMPT + _ARENA_ANSWER <= most)


def command(
    url: str, model: str, levels: t.Sequence[int], more: t.Sequence[str], has_key: bool, depths: t.Sequence[int] = ()
) -> list[str]:
    """Return the command, without the option for its output file. Raises CollectionError if it cannot or must not run.

    depths: tokens of context that are there before each prompt.
    """
    program = shutil.which(PROGRAM)
    if program is None:
        raise CollectionError(
            f"crosscheck: {PROGRAM} is not installed on the controller, or not on PATH. Install it: pip install {PROGRAM}"
        )
    if has_key:
        raise CollectionError(
            f"crosscheck: {PROGRAM} takes the API key only on its command line, where every user of this machine can read it. "
            "Leave crosscheck out, or measure a server that needs no key."
        )
    said = [program, "--base-url", url, "--model", model, "--served-model-name", model, "--format", "json"]
    deep = ["--depth", *map(str, depths)] if depths else []
    return [*said, *deep, "--concurrency", *map(str, levels), *more]


def shown(argv: t.Sequence[str], timeout_s: float) -> Plain:
    """Run it; return its result, or why it has none: a failure here must not lose the measurements before it."""
    try:
        return run(argv, timeout_s) | {"problem": None}
    except CollectionError as exc:
        return {
            "tool": PROGRAM,
            "version": "",
            "command": list(argv),
            "levels": [],
            "result": None,
            "problem": str(exc),
        }


def run(argv: t.Sequence[str], timeout_s: float) -> Plain:
    """Run it; return its version, command and figures. Raises CollectionError if it returns none."""
    with tempfile.TemporaryDirectory(prefix="dgxspark-bench-") as folder:
        saved = pathlib.Path(folder) / "result.json"
        try:
            done = subprocess.run(
                [*argv, "--save-result", str(saved)],
                check=False,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                cwd=folder,
            )
        except subprocess.TimeoutExpired:
            raise CollectionError(f"crosscheck: {PROGRAM} did not finish within {timeout_s:.0f} s.") from None
        try:
            result = json.loads(saved.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            said = " ".join((done.stderr or done.stdout).split())[-400:]
            raise CollectionError(
                f"crosscheck: {PROGRAM} produced no result (exit status {done.returncode}): {said} Its tokenizer and its book are "
                "downloaded unless crosscheck_arguments say where they are (--tokenizer, --book-url)."
            ) from None
    version = str(result.get("version") or "")
    return {"tool": PROGRAM, "version": version, "command": list(argv), "levels": rows(result), "result": result}


def rows(result: t.Mapping[str, t.Any]) -> list[Plain]:
    """Return the figures of each level in its JSON; a missing figure is None."""
    found = []
    for test in result.get("benchmarks") or ():
        means = {ours: (test.get(theirs) or {}).get("mean") for theirs, ours in _FIGURES.items()}
        values = (test.get("tg_throughput") or {}).get("values") or ()
        if test.get("is_context_prefill_phase"):  # loads the context alone, and generates nothing
            continue
        depth = int(test.get("context_size") or 0)
        found.append({"n": int(test.get("concurrency") or 1), "depth": depth, "runs": len(values), **means})
    return found
