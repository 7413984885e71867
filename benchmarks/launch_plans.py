"""Time 10,000 calls of launch_plan over all profiles and variants, each with another context length, on one core."""

from __future__ import annotations

import itertools
import pathlib
import runpy
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
runpy.run_path(str(ROOT / "tools" / "own_collection.py"))

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import find_profile  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan  # noqa: E402

CALLS = 10_000
PART = 400  # each part has every variant equally often
LIMIT_S = 20.0  # 500 plans a second


def main() -> int:
    """Print seconds of processor time; return 1 above the limit."""
    every = [
        (name, variant)
        for name in sorted(knowledge.shared("profile"))
        for variant in find_profile(name).get("variants", {"": {}})
    ]
    cluster = {"hosts": [f"spark{number}" for number in range(1, 9)], "free_gib": 104.0}
    launch_plan(every[0][0], cluster)  # loads the knowledge
    stops = [time.process_time()]
    for number, (name, variant) in zip(range(CALLS), itertools.cycle(every)):
        settings = {"max_model_len" if "vllm" in name else "context_length": 8192 + number}
        launch_plan(name, cluster, {"settings": settings} | ({"variant": variant} if variant else {}))
        if (number + 1) % PART == 0:
            stops.append(time.process_time())
    spent = stops[-1] - stops[0]
    print(f"{CALLS} launch plans over {len(every)} variants: {spent:.2f} s of processor time (limit {LIMIT_S:g} s)")
    least = min(after - before for before, after in itertools.pairwise(stops))
    print(f"The quickest {PART} of them, which others on the machine disturbed least: {least:.3f} s")
    return int(spent > LIMIT_S)


if __name__ == "__main__":
    raise SystemExit(main())
