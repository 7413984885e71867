# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the weights and caches stated in engines' logs (published_caches.yml), and print planned against published figures.

Tokens, requests and the longest request are planned with the published GiB, to compare the counting alone.
"""

from __future__ import annotations

import pathlib
import runpy
import statistics
import typing as t

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
runpy.run_path(str(ROOT / "tools" / "own_collection.py"))

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import GIB  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import find_profile  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan  # noqa: E402

Row = dict[str, t.Any]
ROWS = ROOT / "benchmarks" / "published_caches.yml"
# GiB; a cache's size depends on it, and no log states it.
FREE = 115.8
NEAR, FAR = 0.03, 0.15


def entry_of(row: Row, kv_gib: float | None, known: bool) -> Row:
    """Return a row as a profile; with kv_gib its cache has that size, else what its share leaves.

    known: use the model's real name, so that measured weights are used.
    """
    like = find_profile(row["like"]) if "like" in row else {}
    engine = row.get("engine", "vllm")
    own = like.get("engine", {}).get("name") == engine
    made: Row = {
        "id": row["id"],
        "title": row["id"],
        "model": like["model"] if known and "model" in like else "published/model",
        "proven": "untested",
        "source": [{"of": "facts", "from": row["source"], "verified": "reported"}],
        "facts": row.get("facts", like.get("facts")),
        "precision": row.get("precision", like.get("precision", {})),
        "engine": {"name": engine, "version": row["version"]},
        "parallel": {"nodes": 1, "tp": 1, "pp": 1, "ep": 1} | row.get("parallel", {}),
        "settings": row.get("settings") or (dict(like["settings"]) if own else {}),
    }
    if "drafter" in row:
        made["drafter"] = row["drafter"]
    settings = made["settings"]
    if kv_gib is not None and engine == "vllm":
        settings = settings | {"kv_cache_memory_bytes": int(kv_gib * GIB)}
    if "share" in row:
        settings = settings | {"gpu_memory_utilization": row["share"]}
    return made | {"settings": settings}


def planned(row: Row, kv_gib: float | None = None, known: bool = True) -> Row:
    """Return the memory plan of a row."""
    found: Row = launch_plan(entry_of(row, kv_gib, known), {"free_gib": FREE})["memory"]
    return found


def _longest(row: Row, kv_gib: float) -> int:
    """Return the longest request that fits, from the plan's tokens, if not even one of full length does."""
    asked = row["settings"]["max_model_len"]
    return min(int(planned(row, kv_gib)["kv_tokens"]), int(asked))


def compared(row: Row) -> list[tuple[str, float, float]]:
    """Return a row's comparisons: name, published, planned."""
    said = row["published"]
    found: list[tuple[str, float, float]] = []
    if "weights" in said:
        memory = planned(row, known=False)
        # The head's and a drafter's weights are loaded with the model, as one figure in the log.
        found.append(("weights", said["weights"], sum(memory["weights_by_kind"].values()) + memory["draft_gib"]))
    if "share" in row and "gib" in said:
        memory = planned(row)
        kv = memory["kv_gib"]
        loaded = row.get("weights_gib", said.get("weights"))
        if loaded:  # the planned weights are compared separately
            kv += memory["weights_gib"] + memory["draft_gib"] - loaded
        found.append(("GiB", said["gib"], kv))
    if "tokens" in said:
        memory = planned(row, said["gib"])
        if row.get("engine") == "sglang":
            found.append(("tokens", said["tokens"], said["gib"] * GIB / memory["kv_bytes_token"]))
        else:
            found.append(("tokens", said["tokens"], memory["kv_tokens_logged"]))
        if "requests" in said:
            found.append(("requests", said["requests"], memory["kv_tokens"] / row["settings"]["max_model_len"]))
    if "longest" in said:
        found.append(("longest", said["longest"], _longest(row, said["gib"])))
    return found


FORM = {"tokens": ",.0f", "longest": ",.0f"}


def main() -> int:
    """Print the table; exit status 1 if a median is beyond 3 %, or a row beyond 15 % without a reason.

    Several boots of one configuration count once.
    """
    rows = yaml.safe_load(ROWS.read_text(encoding="utf-8"))
    found = [(row, *each) for row in rows for each in compared(row)]
    off: dict[str, dict[str, list[float]]] = {}
    unexplained: list[str] = []
    print(f"{'row':30} {'engine':8} {'what':9} {'published':>10} {'planned':>10} {'off':>7}")
    for what in ("weights", "GiB", "tokens", "requests", "longest"):
        for row, name, published, ours in found:
            if name != what:
                continue
            error = ours / published - 1
            off.setdefault(what, {}).setdefault(row.get("boot_of", row["id"]), []).append(abs(error))
            form, why = FORM.get(what, ".2f"), row.get("reason", {}).get(what, "")
            if abs(error) > FAR and not why:
                unexplained.append(f"{row['id']}: {what}")
            print(
                f"{row['id']:30} {row['version']:8} {what:9} {published:>10{form}} {ours:>10{form}} "
                f"{100 * error:>+6.1f} %{f'  {why}' if abs(error) > FAR else ''}"
            )
    print()
    medians = []
    for what, boots in off.items():
        every = [error for errors in boots.values() for error in errors]
        medians.append(statistics.median(map(statistics.median, boots.values())))
        print(
            f"{what}: median {100 * medians[-1]:.1f} % of {len(boots)} configurations, {100 * statistics.median(every):.1f} % of "
            f"{len(every)} figures; most {100 * max(every):.1f} %"
        )
    for each in unexplained:
        print(f"beyond {100 * FAR:.0f} % without a reason: {each}")
    return int(bool(unexplained) or max(medians) > NEAR)


if __name__ == "__main__":
    raise SystemExit(main())
