"""`make demo-bench`: serves and measures a small real model on a CPU engine, then spoils its answers and shows that this is caught.

The engine (vLLM's CPU build, 0.6 to 5 GB) and the model, trained here within minutes, are cached with the oracle.
"""

from __future__ import annotations

import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests" / "engine")]

import served  # noqa: E402
from engine_parsers import installed  # noqa: E402
from engine_parsers.sources import NotAvailable, cache  # noqa: E402

REPORTS = ROOT / "reports"


def told(title: str) -> None:
    """Announce the next step."""
    print(f"\n=== {title} ({time.strftime('%H:%M:%S')})", flush=True)


def bench(url: str, name: str, *workloads: str) -> tuple[int, str]:
    """Measure as an owner does; return the exit status and the worst verdict."""
    settings = {"workloads": workloads, "levels": [1, 4, 8], "rounds": 4}
    quiet = {"ANSIBLE_LOCALHOST_WARNING": "False", "ANSIBLE_INVENTORY_UNPARSED_WARNING": "False"}
    status, report = served.measured(url, REPORTS / f"{name}.json", settings, **quiet)
    found = {level["verdict"] for workload in report["workloads"] for level in workload["levels"]}
    return status, next((word for word in ("garbage", "failed") if word in found), "good")


def main() -> int:
    """Run the demo; return 1 if either result is not as expected."""
    told("the engine, and a model that is trained here")
    try:
        engine = installed.environment(*served.ENGINE) / "bin"
    except NotAvailable as exc:
        print(f"not run: {exc}")
        return 77
    model = served.model(engine)
    print((model / "made.txt").read_text(encoding="utf-8").splitlines()[-1])
    logs = cache() / "demo"
    logs.mkdir(exist_ok=True)
    told("served as it should be: measured at 1, 4 and 8 requests at once")
    with served.served(engine, model, logs / "sound.log") as url:
        sound = bench(url, "bench-sound", "tiny-counting", "tiny-sums")
    told("served with speculation, whose sampler is broken on this engine: HTTP 200, usual rates, wrong answers")
    with served.served(engine, model, logs / "spoilt.log", "--speculative-config", served.CORRUPT) as url:
        spoilt = bench(url, "bench-spoilt", "tiny-sums")
    told("what came")
    print(f"sound:  {sound[1]}, exit status {sound[0]}, {REPORTS / 'bench-sound.html'}")
    print(f"spoilt: {spoilt[1]}, exit status {spoilt[0]}, {REPORTS / 'bench-spoilt.html'}")
    return 0 if sound == (0, "good") and spoilt[0] and spoilt[1] == "garbage" else 1


if __name__ == "__main__":
    sys.exit(main())
