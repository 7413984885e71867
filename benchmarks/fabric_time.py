"""Remote steps per host and wall time of the fabric part on a running lab, first run and second.

Wall time is given in seconds and in units of one `ansible -m ping` over the same nodes, because machines differ, timed right
before and after each run, because the machine's load varies from minute to minute. A remote step is one command
that the controller executes on a node, counted in ssh's own output (-vvv), not from what the playbook reports. Usage,
from the repository's root: tools/with_lab.py 4 python benchmarks/fabric_time.py [--out FILE.json]
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = pathlib.Path(sys.executable).parent
LIMIT = ["-i", "inventories/lab", "-l", "spark[1:4]"]
EXEC = re.compile(r"SSH: EXEC ssh .*? -p (\d+)|SSH: EXEC ssh .*?Port=(\d+)")
# the first such stack, on four lab VMs of this kind: one function, 7 VFs, no GID check (seconds, steps per host)
ONE_FUNCTION: dict[str, object] = {"hardware": "lab_one_function", "topology": "switch", "vf_count": 7}
TWO_FUNCTIONS: dict[str, object] = {"hardware": "lab", "topology": "switch", "vf_count": 7}
RUNS: dict[str, dict[str, object]] = {"one_function_7_vfs": ONE_FUNCTION, "two_functions_7_vfs": TWO_FUNCTIONS}


def ansible(*command: str) -> tuple[float, str]:
    """Run one command; return its wall time and output. A failure ends the benchmark."""
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    start = time.monotonic()
    done = subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        cwd=ROOT,
        check=False,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    seconds = time.monotonic() - start
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}")
    return seconds, done.stdout


def variables(settings: dict[str, object]) -> str:
    """Return a run's extra variables: the fabric's settings and this benchmark's hardware class."""
    return json.dumps(
        {"dgxspark_fabric": settings, "dgxspark_knowledge_dirs": [str(ROOT / "benchmarks" / "knowledge")]}
    )


def ping() -> float:
    """Return the median of three `ansible -m ping` over all nodes."""
    return statistics.median(ansible("ansible", "dgx", *LIMIT, "-m", "ansible.builtin.ping")[0] for _round in range(3))


def fabric(settings: dict[str, object], label: str) -> dict[str, object]:
    """Time the fabric part, and count its remote steps in the same run's -vvv output."""
    extra = ["-e", variables(settings)]
    before = ping()
    seconds, output = ansible("ansible-playbook", "site.yml", *LIMIT, "--tags", "fabric", *extra, "-vvv")
    unit = (before + ping()) / 2
    steps = collections.Counter(first or second for first, second in EXEC.findall(output))
    print(
        f"{label}: {seconds:.1f} s, {seconds / unit:.1f} pings of {unit:.1f} s, "
        f"remote steps per host {sorted(steps.values())}",
        flush=True,
    )
    return {
        "seconds": round(seconds, 1),
        "ping_seconds": round(unit, 2),
        "pings": round(seconds / unit, 1),
        "steps_per_host": max(steps.values(), default=0),
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    """Tear down and run twice, for one function and for two."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, help="where the figures are written as JSON")
    parser.add_argument("--only", choices=list(RUNS), nargs="+", default=list(RUNS), help="a part of it")
    arguments = parser.parse_args()
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, check=False, capture_output=True, text=True
    ).stdout.strip()
    result: dict[str, object] = {"commit": commit, "cores": os.cpu_count()}
    for name, settings in ((name, RUNS[name]) for name in arguments.only):
        ansible("ansible-playbook", "playbooks/teardown.yml", *LIMIT, "-e", variables(settings))
        result[name] = {run: fabric(settings, f"{name} {run}") for run in ("first", "second")}
    print(json.dumps(result, indent=2))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
