# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the caches that vLLM's logs state (published_caches.yml), and print planned against published, GiB first.

Tokens and requests are planned at the published GiB, so that they compare the counting alone.
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
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import plan, profile  # noqa: E402

Row = dict[str, t.Any]
ROWS = ROOT / "benchmarks" / "published_caches.yml"
# What a cache's GiB hangs on and no log states: GiB.
FREE = 115.8


def entry_of(row: Row, kv_gib: float | None) -> Row:
    """Return a row as a profile; with kv_gib its cache has that size, else what its share leaves."""
    like = profile.find(row["like"]) if "like" in row else {}
    own = like.get("engine", {}).get("name") == "vllm"
    made: Row = {
        "id": row["id"],
        "title": row["id"],
        "model": like.get("model", "published/model"),
        "proven": "untested",
        "source": [{"of": "facts", "from": row["source"], "verified": "reported"}],
        "facts": row.get("facts", like.get("facts")),
        "precision": row.get("precision", like.get("precision", {})),
        "engine": {"name": "vllm", "version": row["version"]},
        "parallel": {"nodes": 1, "tp": 1, "pp": 1, "ep": 1} | row.get("parallel", {}),
        "settings": row.get("settings") or (dict(like["settings"]) if own else {}),
    }
    if "drafter" in row:
        made["drafter"] = row["drafter"]
    settings = made["settings"]
    if kv_gib is not None:
        settings = settings | {"kv_cache_memory_bytes": int(kv_gib * GIB)}
    if "share" in row:
        settings = settings | {"gpu_memory_utilization": row["share"]}
    return made | {"settings": settings}


def compared(row: Row) -> list[tuple[str, float, float]]:
    """Return what is compared of a row: its name, published, planned."""
    said = row["published"]
    found = []
    if "share" in row:
        memory = plan.launch_plan(entry_of(row, None), {"free_gib": FREE})["memory"]
        kv = memory["kv_gib"]
        if "weights_gib" in row:  # what the plan derives of the weights is compared elsewhere
            kv += memory["weights_gib"] + memory["draft_gib"] - row["weights_gib"]
        found.append(("GiB", said["gib"], kv))
    if "tokens" in said:
        memory = plan.launch_plan(entry_of(row, said["gib"]), {"free_gib": FREE})["memory"]
        found.append(("tokens", said["tokens"], memory["kv_tokens_logged"]))
        length = row["settings"]["max_model_len"]
        found.append(("requests", said["requests"], memory["kv_tokens"] / length))
    return found


def main() -> int:
    """Print the table; exit status 1 where a median is beyond 3 % or a row beyond 15 %."""
    rows = yaml.safe_load(ROWS.read_text(encoding="utf-8"))
    off: dict[str, list[float]] = {}
    print(f"{'row':26} {'vLLM':8} {'what':9} {'published':>10} {'planned':>10} {'off':>7}")
    for what in ("GiB", "tokens", "requests"):
        for row in rows:
            for name, published, planned in compared(row):
                if name != what:
                    continue
                off.setdefault(what, []).append(planned / published - 1)
                form = ".2f" if what != "tokens" else ",.0f"
                print(
                    f"{row['id']:26} {row['version']:8} {what:9} {published:>10{form}} {planned:>10{form}} "
                    f"{100 * (planned / published - 1):>+6.1f} %"
                )
    print()
    for what, all_off in off.items():
        middle, most = statistics.median(map(abs, all_off)), max(map(abs, all_off))
        print(f"{what}: median {100 * middle:.1f} %, most {100 * most:.1f} % of {len(all_off)}")
    return int(any(statistics.median(map(abs, o)) > 0.03 or max(map(abs, o)) > 0.15 for o in off.values()))


if __name__ == "__main__":
    raise SystemExit(main())
