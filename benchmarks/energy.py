"""Compares a benchmark's joules with those that the GPU's driver counts itself, level by level.

Usage: energy.py URL FOLDER [variable=value …], on the machine whose GPUs serve URL (of the API, with /v1). It types `bench` with
dgxspark_bench_hosts for this machine, and meanwhile reads NVML's counter (nvmlDeviceGetTotalEnergyConsumption, millijoules; the package
nvidia-ml-py) 50 times a second. The playbook reads the power once a second, as on a Spark. FOLDER keeps the report and the page.
"""

from __future__ import annotations

import bisect
import datetime
import json
import pathlib
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
EVERY_S = 0.02
Reading = tuple[float, float]  # seconds since 1970, joules


class Counter(threading.Thread):
    """Reads the counters of all GPUs until it is told to end."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        import pynvml

        pynvml.nvmlInit()
        self._nvml = pynvml
        self._gpus = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(pynvml.nvmlDeviceGetCount())]
        self.readings: list[Reading] = []
        self.ended = threading.Event()

    def run(self) -> None:
        """Read."""
        while not self.ended.wait(EVERY_S):
            counted = sum(self._nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) for gpu in self._gpus) / 1000
            self.readings.append((time.time(), counted))

    def joules(self, began: float, ended: float) -> float:
        """Return what was used between two moments; the counter's own steps are some 20 to 100 ms."""
        times = [at for at, _counted in self.readings]
        first, last = bisect.bisect_left(times, began), min(bisect.bisect_left(times, ended), len(times) - 1)
        return self.readings[last][1] - self.readings[first][1]


def main(url: str, folder: pathlib.Path, *more: str) -> int:
    """Measure, and print a line for each level."""
    folder.mkdir(parents=True, exist_ok=True)
    here = f"[dgx]\nhere ansible_connection=local ansible_python_interpreter={sys.executable}\n"
    (folder / "inventory").write_text(here, encoding="utf-8")
    given = [f"dgxspark_bench_url={url}", "dgxspark_bench_hosts=here", "dgxspark_report_file=bench.json", *more]
    counter = Counter()
    counter.start()
    ansible = [sys.executable, "-m", "ansible", "playbook", str(ROOT / "playbooks" / "bench.yml"), "-i", "inventory"]
    done = subprocess.run([*ansible, *(word for one in given for word in ("-e", one))], cwd=folder, check=False)
    time.sleep(1)
    counter.ended.set()
    counter.join()
    report = json.loads((folder / "bench.json").read_text(encoding="utf-8"))
    print(f"power: {report['power']}\n   n  seconds  readings  joules by power  by the counter    off  tokens/J")
    for workload in report["workloads"]:
        for level in workload["levels"]:
            began, ended = (datetime.datetime.fromisoformat(level[key]).timestamp() for key in ("began", "ended"))
            energy, counted = level["energy"] or {}, counter.joules(began, ended)
            read, each = energy.get("joules"), energy.get("tokens_per_joule")
            off = f"{100 * (read / counted - 1):+.1f} %" if read and counted else "-"
            print(
                f"{level['n']:>4} {ended - began:>8.1f} {energy.get('readings', 0):>9} {read or 0:>16.0f} {counted:>15.0f} {off:>6}"
                f"  {each or 0:.3g}"
            )
    return done.returncode


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    raise SystemExit(main(sys.argv[1], pathlib.Path(sys.argv[2]), *sys.argv[3:]))
