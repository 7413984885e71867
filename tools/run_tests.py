"""Run the test stages, with the time of each, and say at the end what passed, failed and was not run.

Usage: run_tests.py test|long [STAGE …]. Stages run two at a time where the machine has two cores, the longest first;
those with virtual machines have both cores to themselves. Output of each stage goes to build/logs/<stage>.log; the end of a failed
one's is shown. A stage of `make test` that is not done after LIMIT_S is stopped, and has failed. Exit status 0 only when
no stage failed and at least one passed; what was not run is named as that.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "logs"
CORES = ("2.19", "2.21")
NEWEST = "2.21"
TAIL = 60
LIMIT_S = 2700  # of one stage of `make test`: one that hangs must not cost what the others found
NOT_RUN = 77  # the exit status of a command that cannot do its work on this machine, and says why


@dataclass(frozen=True)
class Stage:
    """One stage: commands run in order in the environment of one core.

    `long` ones are only run by `make test-long`; `alone` ones beside no other. `seconds`: how long it took when
    it was last measured; it says nothing but who begins first.
    """

    name: str
    commands: Sequence[Sequence[str]]
    core: str = NEWEST
    long: bool = False
    alone: bool = False
    seconds: int = 0
    environment: dict[str, str] = field(default_factory=dict)


# The tests of ansible-test that ask the core or its Python. The rest reads files as text: once is enough.
SANITY_BY_CORE = (
    "action-plugin-docs",
    "ansible-doc",
    "compile",
    "ignores",
    "import",
    "runtime-metadata",
    "validate-modules",
)

# What can differ from one ansible-core to another: what imports Ansible, or a plugin that does, or runs its programs.
USES_ANSIBLE = re.compile(
    r"\bansible[.-]|^(?:from|import) ansible\b|plugins\.(?:action|filter|lookup|modules)\b", re.MULTILINE
)


def tests_by_core() -> list[str]:
    """List the unit tests of plugins that the older core is asked, too; `make test-long` asks it all of them."""
    found = (ROOT / "tests" / "unit" / "plugins").rglob("test_*.py")
    return sorted(str(path.relative_to(ROOT)) for path in found if USES_ANSIBLE.search(path.read_text("utf-8")))


def stages() -> list[Stage]:
    """List all stages."""
    unit = ["-m", "not long", "--durations=10"]
    package = ["-p", "ansible_collections.dgxspark.cluster.plugins.module_utils"]
    package += ["-p", "ansible_collections.dgxspark.cluster.plugins.plugin_utils"]
    lab = ["python", "tools/with_lab.py"]
    sanity = ["python", "tools/sanity.py"]
    guest = {
        "DGXSPARK_LAB_GUEST": str(ROOT / "build" / "guest"),
        "DGXSPARK_LAB_MEMORY": "2048",
        "DGXSPARK_LAB_CPUS": "1",
        "DGXSPARK_LAB_NAME": "site",
    }
    return [
        Stage(
            "lint",
            [
                ["ruff", "check", "."],
                ["ruff", "format", "--check", "."],
                ["yamllint", "--strict", "."],
                ["ansible-lint", "--offline"],
                ["antsibull-changelog", "lint"],
                ["shellcheck", ".ci/run"],
            ],
        ),
        Stage("types", [["python", "tools/check_types.py", *package]]),
        # Whole runs of roles take long, and those of playbooks show what the older core does otherwise. What needs no
        # Ansible is the same on both: there the older Python has to import it, which test_imports.py sees.
        Stage(
            "unit-2.19",
            [["pytest", "tests/unit/playbooks", "tests/unit/test_imports.py", *tests_by_core(), *unit]],
            "2.19",
            seconds=250,
        ),
        Stage("unit-2.21", [["pytest", "tests/unit", *unit]], seconds=700),
        Stage("api", [["pytest", "tests/api", "-m", "not long", "--durations=10"]], seconds=800),
        Stage("docs", [["pytest", "tests/docs"]], seconds=30),
        *(Stage(f"package-{core}", [["pytest", "tests/package"]], core, seconds=30) for core in CORES),
        Stage("oracle", [["pytest", "tests/oracle", "-m", "not long"]], "2.19", seconds=240),
        Stage("sanity-2.21", [[*sanity, str(ROOT / ".venv" / "2.21")]], seconds=220),
        Stage("sanity-2.19", [[*sanity, str(ROOT / ".venv" / "2.19"), *SANITY_BY_CORE]], "2.19", seconds=90),
        # What Molecule's scenario does on two nodes, the lab's tests do on four, and the scenario's own look follows there.
        Stage(
            "molecule-syntax",
            [["molecule", "syntax", "-s", "default"], ["molecule", "syntax", "-s", "lab"]],
            seconds=20,
        ),
        Stage(
            "lab-four-nodes",
            [[*lab, "4", "pytest", "tests/lab", "tests/testinfra", "-m", "not long", "--durations=10"]],
            alone=True,  # four emulated nodes keep both cores busy, and their time limits are real
            seconds=900,
        ),
        Stage("molecule-two-nodes", [["molecule", "test", "-s", "default"]], long=True, alone=True),
        Stage("unit-long", [["pytest", "tests/unit", "-m", "long"]], long=True),
        Stage("sanity-all-2.19", [[*sanity, str(ROOT / ".venv" / "2.19")]], "2.19", long=True),
        Stage("unit-all-2.19", [["pytest", "tests/unit", *unit]], "2.19", long=True),
        Stage("api-long", [["pytest", "tests/api", "-m", "long"]], long=True),
        Stage("oracle-every-version", [["pytest", "tests/oracle", "-m", "long"]], "2.19", long=True),
        Stage("engine", [["pytest", "tests/engine", "-m", "long", "-s"]], "2.19", long=True),
        Stage("nodes", [["pytest", "tests/nodes", "-m", "long", "-s"]], long=True, alone=True),
        Stage(
            "site",
            [
                ["python", "tests/site/make_guest.py"],
                [*lab, "4", "pytest", "tests/site", "-m", "long", "-s"],
                [
                    *lab,
                    "5",
                    "pytest",
                    "tests/site/test_1_site.py",
                    "tests/site/test_4_gone.py",
                    "-m",
                    "long",
                    "-s",
                ],
            ],
            long=True,
            alone=True,
            environment=guest,
        ),
        Stage("lab-every-fault", [[*lab, "4", "pytest", "tests/lab", "-m", "long"]], long=True, alone=True),
        Stage("lab-core-2.19", [[*lab, "4", "pytest", "tests/lab", "-m", "not long"]], "2.19", long=True, alone=True),
    ]


def run(stage: Stage) -> tuple[str, float]:
    """Run one stage; return `passed`, `failed` or `not run` and the seconds it took."""
    venv = ROOT / ".venv" / stage.core
    start = time.monotonic()
    log = LOGS / f"{stage.name}.log"
    if not venv.is_dir():
        log.write_text(f"not run: no environment for ansible-core {stage.core} (no fitting Python on this machine)\n")
        return "not run", 0.0
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(venv / "bin"), os.environ["PATH"]]),
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache" / "collections" / stage.core),
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_HOME": str(ROOT / ".cache" / "ansible-home"),
        "ANSIBLE_NOCOLOR": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        **stage.environment,
    }
    with log.open("w", encoding="utf-8") as output:
        for command in stage.commands:
            output.write(f"$ {' '.join(command)}\n")
            output.flush()
            ran = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            try:
                code = ran.wait(None if stage.long else start + LIMIT_S - time.monotonic())
            except subprocess.TimeoutExpired:
                ran.send_signal(signal.SIGINT)  # pytest then tells where it was, and with_lab takes its lab down
                with contextlib.suppress(subprocess.TimeoutExpired):
                    ran.wait(120)
                ran.kill()
                code = f"none: stopped after {LIMIT_S} s"
            if code == NOT_RUN:
                return "not run", time.monotonic() - start
            if code != 0:  # pytest's 5, no test collected, is a failure too
                output.write(f"exit status {code}\n")
                return "failed", time.monotonic() - start
    return "passed", time.monotonic() - start


def tell(stage: Stage) -> tuple[str, str, float]:
    """Run one stage and say so; return its name, how it ended and the seconds it took."""
    print(f"{stage.name} …", flush=True)
    status, seconds = run(stage)
    lines = [f"{stage.name} {status} ({seconds:.0f} s)"]
    if status != "passed":
        log = (LOGS / f"{stage.name}.log").read_text(encoding="utf-8", errors="replace")
        lines += [f"    {line}" for line in log.splitlines()[-TAIL:]]
    print("\n".join(lines), flush=True)  # in one piece: another stage may be talking
    return stage.name, status, seconds


def next_stage(waiting: Sequence[Stage], running: Sequence[Stage]) -> Stage | None:
    """Return the longest stage that may begin beside those that run, or None where all of them have to wait."""
    free = [stage for stage in waiting if not stage.alone]
    if any(stage.alone for stage in running):
        free = []
    elif not free and not running:
        free = list(waiting)
    return max(free, key=lambda stage: stage.seconds, default=None)


def run_all(chosen: Sequence[Stage], lanes: int) -> list[tuple[str, str, float]]:
    """Run the stages on so many lanes; return how each ended, in the order in which they ended."""
    waiting = list(chosen)
    running: list[Stage] = []
    results: list[tuple[str, str, float]] = []
    changed = threading.Condition()

    def lane() -> None:
        while True:
            with changed:
                while waiting and (stage := next_stage(waiting, running)) is None:
                    changed.wait()
                if not waiting:
                    return
                waiting.remove(stage)
                running.append(stage)
            result = tell(stage)
            with changed:
                running.remove(stage)
                results.append(result)
                changed.notify_all()

    threads = [threading.Thread(target=lane, daemon=True) for _lane in range(lanes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def main(arguments: list[str]) -> int:
    """Run the stages chosen and print the table."""
    if not arguments or arguments[0] not in ("test", "long"):
        raise SystemExit(__doc__)
    chosen = [
        s for s in stages() if s.name in arguments[1:] or (not arguments[1:] and s.long <= (arguments[0] == "long"))
    ]
    LOGS.mkdir(parents=True, exist_ok=True)
    # A background job is deaf to SIGINT, and would pass that on to the stages.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    start = time.monotonic()
    results = run_all(chosen, min(2, os.cpu_count() or 1))
    width = max((len(name) for name, _status, _seconds in results), default=0)
    print(f"\n{'stage':{width}}  result   seconds")
    for name, status, seconds in results:
        print(f"{name:{width}}  {status:7}  {seconds:7.0f}")
    counts = {status: sum(1 for r in results if r[1] == status) for status in ("passed", "failed", "not run")}
    print(f"{'total':{width}}  {'':7}  {time.monotonic() - start:7.0f}")
    print(f"\n{counts['passed']} passed, {counts['failed']} failed, {counts['not run']} skipped")
    return 0 if counts["passed"] and not counts["failed"] else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
