"""Run the test stages and time each; report at the end what passed, failed and was not run.

Usage: run_tests.py test|more|long [STAGE …]. Stages run LANES at a time if the machine has at least two cores, the longest first.
Light ones only compute, and yield to those that wait for servers. The lab's virtual machines have the cores to themselves.
CPU seconds are those of a stage's processes and their children.
Output of each stage goes to build/logs/<stage>.log. Its first failed test is shown at once, the end of a failed stage's output when it
ends, and all failures are repeated at the very end, for a CI that keeps only the last lines. A stage that is not done after LIMIT_S is
stopped, and fails, except for those of `make test-long`.
Exit status 0 only if no stage failed and at least one passed; what was not run is listed with its reason: stages, and single tests.
"""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "logs"
CORES = ("2.19", "2.21")
# The newest core that this machine has an environment for: with Python 3.11 alone, it is the older one.
NEWEST = next((core for core in reversed(CORES) if (ROOT / ".venv" / core).is_dir()), CORES[-1])
TARGETS = ("test", "more", "long")
TAIL = 60
CULPRITS, WIDTH = 20, 600  # failed tests listed per stage at the end, and characters per line
# How Ansible reports a failed task.
FATAL = re.compile(r"^(?:fatal|failed): \[|\[ERROR\]|\bTraceback\b|^\w+Error: .")
FATALS = 4  # such lines shown per test
# How pytest lists tests that it skipped.
SKIPPED = re.compile(r"^SKIPPED \[(\d+)\] [^:]+:(?:\d+:)? (?:not run: )?(.+)$", re.MULTILINE)
LIMIT_S = 2700  # for one stage: one that hangs must not cost the results of the others
LANES = 5  # on two cores: a stage spends a third of its time and more waiting for servers, probes and time limits
GIVES_WAY = ("nice", "-n", "10")  # enough to protect the others' time limits, and still a tenth of a busy core
NETWORKMANAGER = {"DGXSPARK_LAB_RENDERER": "networkmanager", "DGXSPARK_LAB_NAME": "networkmanager"}
GRUB = {"DGXSPARK_LAB_BOOT": "grub", "DGXSPARK_LAB_NAME": "grub"}
LONG = ("-m", "long", "-s")
NOT_RUN = 77  # exit status of a command that cannot work on this machine, and says why


@dataclass(frozen=True)
class Stage:
    """One stage: commands run in order in the environment of one core.

    `target`: the one that runs it: `test`, `more` (`make test-more`) or `long` (`make test-long`). `light` ones have no time
    limits that a busy machine would break. `alone`: nothing else runs at the same time. `seconds`: approximate duration, used only
    to order the stages.
    """

    name: str
    commands: Sequence[Sequence[str]]
    core: str = NEWEST
    target: str = "more"
    light: bool = False
    alone: bool = False
    seconds: int = 0
    environment: dict[str, str] = field(default_factory=dict)


class Result(t.NamedTuple):
    """How a stage ended: passed, failed or not run; its wall and CPU seconds."""

    name: str
    status: str
    seconds: float
    cpu: float


# The tests of ansible-test that load the core. The others read files as text, so once is enough. tests/unit/test_imports.py
# compiles and imports everything on the older Python.
SANITY_BY_CORE = ("action-plugin-docs", "ansible-doc", "ignores", "runtime-metadata", "validate-modules")

# What other stages ask already: each file's imports (tests/unit/test_imports.py), PEP 8 (ruff) and the changelog (its own linter).
# `make test-long` runs all of ansible-test.
ASKED_ELSEWHERE = ("-import", "-pep8", "-changelog")

# What may differ between versions of ansible-core: code that imports Ansible, or a plugin that does, or runs its programs.
USES_ANSIBLE = re.compile(
    r"\bansible[.-]|^(?:from|import) ansible\b|plugins\.(?:action|filter|lookup|modules)\b", re.MULTILINE
)


# The environment with the linters: requirements/lint.txt.
LINTERS = CORES[-1]

# The share of a property's examples that `make test` tries (tests/support/properties.py).
EXAMPLES = "DGXSPARK_EXAMPLES"

# Tests that run ansible-playbook many times have stages of their own, each about as long as the others.
PLAYS = ("tests/unit/playbooks", "tests/unit/roles")
API_SERVE = tuple(f"tests/api/test_{name}.py" for name in ("images", "k8s_dgx", "secrets"))

# Molecule scenarios that need no virtual machine.
ON_STAND_INS = ("k3s", "memory_guard", "k8s_platform", "k8s_dgx")


def tests_by_core() -> list[str]:
    """List the plugins' unit tests that also run on the older core; `make test-long` runs all of them on it."""
    found = (ROOT / "tests" / "unit" / "plugins").rglob("test_*.py")
    return sorted(str(path.relative_to(ROOT)) for path in found if USES_ANSIBLE.search(path.read_text("utf-8")))


def lab_files() -> list[str]:
    """Return the lab's tests in order, and the scenario's own checks after the main job, before faults are put in."""
    first, *others = (str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests" / "lab").glob("test_*.py")))
    return [first, "tests/testinfra/fabric/test_fabric.py", *others]


def unit_parts() -> dict[str, list[str]]:
    """Return the unit tests in parts that take about equally long, as pytest's arguments: each test is in one of them."""
    plugins = "tests/unit/plugins"
    fabric, serving = f"{plugins}/module_utils/fabric", f"{plugins}/plugin_utils/planner"
    measured = [f"{plugins}/plugin_utils/{name}" for name in ("bench", "kube", "matrix")]
    return {
        "fabric": [fabric],
        "nodes": [f"{plugins}/module_utils", f"--ignore={fabric}"],
        "serving": [serving],
        "measured": measured,
        "controller": [f"{plugins}/plugin_utils", *(f"--ignore={path}" for path in (serving, *measured))],
        "other": [
            "tests/unit",
            *(f"--ignore={path}" for path in (f"{plugins}/module_utils", f"{plugins}/plugin_utils", *PLAYS)),
        ],
    }


def stages() -> list[Stage]:
    """List all stages."""
    quick, more = ["-m", "not more and not long", "--durations=10"], ["-m", "more and not long", "--durations=10"]
    core, engines = (f"ansible_collections.dgxspark.cluster.{each}" for each in ("plugins", "tests.engines"))
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
                # Prose and YAML in documentation may run on, as far as ansible-test allows.
                ["ruff", "check", "--select", "E501", "--config", "lint.pycodestyle.max-line-length = 160", "."],
                ["ruff", "format", "--check", "."],
                ["yamllint", "--strict", "."],
                ["antsibull-changelog", "lint"],
                ["shellcheck", ".ci/run"],
            ],
            LINTERS,
            "test",
            light=True,
            seconds=250,
        ),
        # It takes as long as all other linters and the types together.
        Stage("ansible-lint", [["ansible-lint", "--offline"]], LINTERS, light=True, seconds=150),
        Stage("types", [["python", "tools/check_types.py", "-p", core, "-p", engines]], LINTERS, "test", light=True),
        # In parts, because each spends much of its time waiting.
        *(
            Stage(
                f"unit-{name}",
                [["pytest", *chosen, *quick]],
                target="test",
                light=True,
                seconds=300,
                environment={EXAMPLES: "0.2"},
            )
            for name, chosen in unit_parts().items()
        ),
        # Each role's and each playbook's main path once.
        Stage("plays", [["pytest", *PLAYS, "tests/api", *quick]], target="test", seconds=400),
        Stage("docs", [["pytest", "tests/docs", *quick]], target="test", light=True, seconds=200),
        Stage(f"package-{NEWEST}", [["pytest", "tests/package"]], target="test", light=True, seconds=30),
        # Full runs of roles and playbooks take long, so the older core runs only the marked ones, one or two per playbook. What
        # needs no Ansible is the same on both; that the older Python imports it is tested by test_imports.py.
        Stage(
            "unit-2.19",
            [
                ["pytest", "tests/unit/playbooks", "-m", "older_core and not long", "--durations=10"],
                ["pytest", "tests/unit/test_imports.py", *tests_by_core(), *quick],
            ],
            "2.19",
            light=True,
            seconds=300,
            # An owner's ansible.cfg need not have pipelining.
            environment={"ANSIBLE_PIPELINING": "0", EXAMPLES: "0.2"},
        ),
        Stage("attacks", [["pytest", "tests/attacks", "--durations=10"]], light=True, seconds=100),
        # The properties once more, with all their examples.
        Stage(
            "unit-more",
            [
                [
                    *("pytest", "tests/unit", *(f"--ignore={path}" for path in PLAYS)),
                    *("-m", "(more or hypothesis) and not long", "--durations=10"),
                ]
            ],
            light=True,
            seconds=300,
        ),
        Stage("plays-more", [["python", "tools/with_prometheus.py", "pytest", *PLAYS, *more]], seconds=900),
        Stage("api-serve", [["pytest", *API_SERVE, *more]], seconds=900),
        Stage("api-other", [["pytest", "tests/api", *(f"--ignore={path}" for path in API_SERVE), *more]], seconds=900),
        Stage("docs-site", [["pytest", "tests/docs", *more]], light=True, seconds=200),
        Stage("package-2.19", [["pytest", "tests/package"]], "2.19", light=True, seconds=30),
        Stage("oracle", [["pytest", "tests/oracle", "-m", "not long"]], "2.19", light=True, seconds=500),
        Stage(
            "sanity-2.21", [[*sanity, str(ROOT / ".venv" / "2.21"), *ASKED_ELSEWHERE]], "2.21", light=True, seconds=300
        ),
        Stage(
            "sanity-2.19", [[*sanity, str(ROOT / ".venv" / "2.19"), *SANITY_BY_CORE]], "2.19", light=True, seconds=60
        ),
        # The lab's tests do on four nodes what Molecule's scenario does on two, and then run the scenario's own checks.
        Stage(
            "molecule",
            [["molecule", "syntax", "--all"], *(["molecule", "test", "-s", name] for name in ON_STAND_INS)],
            LINTERS,
            seconds=400,
        ),
        Stage(
            "lab-four-nodes",
            [[*lab, "4", "pytest", *lab_files(), "-m", "not long", "--durations=10"]],
            # Four emulated nodes keep both cores busy, and their time limits are real: light stages beside them cost the lab
            # more than they save (939 s instead of about half of it).
            alone=True,
            seconds=500,
        ),
        # A part of what lab-networkmanager runs: the fabric made, its addresses changed, all of it taken away.
        Stage(
            "lab-networkmanager-main",
            [
                [
                    *(*lab, "1", "pytest", "tests/lab/test_9_renderers.py", "-m", "long"),
                    *("-k", "test_01 or test_03 or test_10", "--durations=10"),
                ]
            ],
            alone=True,
            seconds=200,
            environment=NETWORKMANAGER,
        ),
        Stage("molecule-two-nodes", [["molecule", "test", "-s", "default"]], LINTERS, "long", alone=True),
        Stage("unit-long", [["pytest", "tests/unit", "-m", "long"]], target="long"),
        *(
            Stage(f"sanity-all-{core}", [[*sanity, "--all", str(ROOT / ".venv" / core)]], core, "long")
            for core in CORES
        ),
        Stage("unit-all-2.19", [["pytest", "tests/unit", "-m", "not long", "--durations=10"]], "2.19", "long"),
        Stage("api-long", [["pytest", "tests/api", "-m", "long"]], target="long"),
        Stage("oracle-every-version", [["pytest", "tests/oracle", "-m", "long"]], "2.19", "long"),
        Stage("engines", [["pytest", "tests/engines", *LONG]], "2.19", "long"),
        Stage("nodes", [["pytest", "tests/nodes", *LONG]], target="long", alone=True),
        Stage(
            "site",
            [
                ["python", "tests/site/make_guest.py"],
                [*lab, "4", "pytest", "tests/site", *LONG],
                [*lab, "5", "pytest", *(f"tests/site/test_{name}.py" for name in ("1_site", "4_gone")), *LONG],
            ],
            target="long",
            alone=True,
            environment=guest,
        ),
        # Needs GitHub and its registry; reports "not run" if they cannot be reached.
        Stage(
            "releases",
            [["python", "tests/real/reach.py"], [*lab, "2", "pytest", "tests/real", *LONG]],
            target="long",
            alone=True,
            environment={
                "DGXSPARK_LAB_GUEST": str(ROOT / "tests" / "site" / "guest"),
                "DGXSPARK_LAB_MEMORY": "3072",
                "DGXSPARK_LAB_CPUS": "2",
                "DGXSPARK_LAB_NAME": "releases",
            },
        ),
        Stage("lab-every-fault", [[*lab, "4", "pytest", "tests/lab", "-m", "long"]], target="long", alone=True),
        Stage(
            "lab-networkmanager",
            [[*lab, "1", "pytest", *(f"tests/lab/test_9_{name}.py" for name in ("renderers", "remedies")), *LONG]],
            target="long",
            alone=True,
            environment=NETWORKMANAGER,
        ),
        # Boots Debian's own kernels, which it downloads.
        Stage(
            "lab-update",
            [[*lab, "2", "pytest", "tests/lab/test_9_update.py", *LONG]],
            target="long",
            alone=True,
            environment=GRUB,
        ),
        Stage("lab-core-2.19", [[*lab, "4", "pytest", "tests/lab", "-m", "not long"]], "2.19", "long", alone=True),
    ]


def ended(
    process: subprocess.Popen[bytes], until: float | None, meanwhile: t.Callable[[], None] = lambda: None
) -> tuple[int | None, float]:
    """Wait for a process, until a time of the monotonic clock if one is given.

    Return its exit status, or None if it still runs, and the CPU seconds that it and its children took.
    """
    while True:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        meanwhile()
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode, used.ru_utime + used.ru_stime
        if until is not None and time.monotonic() > until:
            return None, 0.0
        time.sleep(0.2)


def run(stage: Stage) -> tuple[str, float, float]:
    """Run one stage; return `passed`, `failed` or `not run`, its wall seconds and its CPU seconds."""
    venv = ROOT / ".venv" / stage.core
    start, cpu = time.monotonic(), 0.0
    log, first = LOGS / f"{stage.name}.log", LOGS / f"{stage.name}.first"
    first.unlink(missing_ok=True)
    if not venv.is_dir():
        log.write_text(f"SKIPPED [1] {stage.name}: no environment for ansible-core {stage.core}: no Python here fits\n")
        return "not run", 0.0, 0.0
    shown = False

    def show_first() -> None:
        nonlocal shown
        if not shown and first.exists():
            shown = True
            print(f"{stage.name}: its first failure\n{first.read_text('utf-8', 'replace')}", flush=True)

    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(venv / "bin"), os.environ["PATH"]]),
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache" / "collections" / stage.core),
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_HOME": str(ROOT / ".cache" / "ansible-home"),
        # Where HOME is not what the system knows as the user's, a job is written below one and looked for below the other.
        "ANSIBLE_ASYNC_DIR": str(ROOT / ".cache" / "ansible-async"),
        "ANSIBLE_NOCOLOR": "1",
        "DGXSPARK_FIRST_FAILURE": str(first),
        **stage.environment,
    }
    with log.open("w", encoding="utf-8") as output:
        for command in stage.commands:
            output.write(f"$ {' '.join(command)}\n")
            output.flush()
            ran = subprocess.Popen(
                [*(GIVES_WAY if stage.light else ()), *command],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            code, used = ended(ran, None if stage.target == "long" else start + LIMIT_S, show_first)
            if code is None:
                ran.send_signal(signal.SIGINT)  # lets pytest report where it was, and with_lab take its lab down
                code, used = ended(ran, time.monotonic() + 120)
                if code is None:
                    ran.kill()
                    _code, used = ended(ran, None)
                output.write(f"stopped after {LIMIT_S} s\n")
                return "failed", time.monotonic() - start, cpu + used
            cpu += used
            if code == NOT_RUN:
                return "not run", time.monotonic() - start, cpu
            if code != 0:  # includes pytest's 5, no tests collected
                output.write(f"exit status {code}\n")
                return "failed", time.monotonic() - start, cpu
    return "passed", time.monotonic() - start, cpu


def tell(stage: Stage) -> Result:
    """Run one stage and print its result."""
    print(f"{stage.name} …", flush=True)
    status, seconds, cpu = run(stage)
    lines = [f"{stage.name} {status} ({seconds:.0f} s)"]
    if status != "passed":
        log = (LOGS / f"{stage.name}.log").read_text(encoding="utf-8", errors="replace")
        lines += [f"    {line}" for line in log.splitlines()[-TAIL:]]
    print("\n".join(lines), flush=True)  # in one call, because other stages print too
    return Result(stage.name, status, seconds, cpu)


def reports(log: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return pytest's report sections by heading; a test's heading is its name, with dots."""
    heads = [number for number, line in enumerate(log) if re.fullmatch(r"_{3,} .+ _{3,}|={3,} .+ ={3,}", line)]
    found: dict[str, Sequence[str]] = {}
    for begin, end in zip(heads, [*heads[1:], len(log)], strict=False):
        found.setdefault(log[begin].strip("_ "), log[begin:end])
    return found


def telling(found: Mapping[str, Sequence[str]], named: str) -> list[str]:
    """Find Ansible's error in the report of a failed test, `FAILED <file>::<test> - <words>`.

    A playbook test fails with the play's whole output, whose first line says nothing. Return the first lines that report
    a failure; if there are none, the play was cut off, and its last line says where.
    """
    test = named.split(" - ")[0].partition("::")[2].replace("::", ".")
    said = [line[1:].strip() for line in found.get(test, ()) if line.startswith("E ")]
    if not any(line.startswith(("PLAY [", "TASK [")) for line in said):
        return []
    return [line for line in said if FATAL.search(line)][:FATALS] or [line for line in said if line][-1:]


def culprits(results: Sequence[Result]) -> list[str]:
    """List the failed tests, stage by stage; for a stage that is not pytest, or was stopped, its last line."""
    lines = []
    for each in results:
        if each.status != "failed":
            continue
        log = (LOGS / f"{each.name}.log").read_text(encoding="utf-8", errors="replace").splitlines()
        named = [line for line in log if line.startswith(("FAILED ", "ERROR "))] or [
            line for line in log if line and not line.startswith("exit status ")
        ][-1:]
        found = reports(log)
        for line in named[:CULPRITS]:
            lines += [f"{each.name}: {line[:WIDTH]}", *(f"    {words[:WIDTH]}" for words in telling(found, line))]
        lines += [f"{each.name}: and {len(named) - CULPRITS} more"] * (len(named) > CULPRITS)
    return lines


def reasons(results: Sequence[Result]) -> list[str]:
    """List what was not run, by reason: whole stages, and how many tests of which stages."""
    found: dict[str, dict[str, int]] = {}
    for each in results:
        log = (LOGS / f"{each.name}.log").read_text(encoding="utf-8", errors="replace")
        for number, why in SKIPPED.findall(log):
            by_stage = found.setdefault(why.strip()[:WIDTH], {})
            by_stage[each.name] = by_stage.get(each.name, 0) + int(number)
    return [
        f"not run: {', '.join(f'{count} of {name}' for name, count in by_stage.items())}: {why}"
        for why, by_stage in sorted(found.items())
    ]


def next_stage(waiting: Sequence[Stage], running: Sequence[Stage]) -> Stage | None:
    """Return a stage that may start beside the running ones, or None if all must wait.

    Light ones start last, and those that need the whole machine after all others.
    """
    together = [stage for stage in waiting if not stage.alone]
    if any(stage.alone for stage in running) or (running and not together):
        return None
    return max(together or waiting, key=lambda stage: (not stage.light, stage.seconds), default=None)


def run_all(chosen: Sequence[Stage], lanes: int) -> list[Result]:
    """Run the stages on this many lanes; return their results in the order in which they ended."""
    waiting = list(chosen)
    running: list[Stage] = []
    results: list[Result] = []
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
    """Run the chosen stages and print the table."""
    if not arguments or arguments[0] not in TARGETS:
        raise SystemExit(__doc__)
    listed = stages()
    if unknown := set(arguments[1:]) - {stage.name for stage in listed}:
        raise SystemExit(f"no stage {', '.join(sorted(unknown))}: choose from {', '.join(s.name for s in listed)}")
    # `long` is everything.
    targets = TARGETS if arguments[0] == "long" else arguments[:1]
    chosen = [s for s in listed if s.name in arguments[1:] or (not arguments[1:] and s.target in targets)]
    LOGS.mkdir(parents=True, exist_ok=True)
    # A background job ignores SIGINT, and its stages would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    start = time.monotonic()
    results = run_all(chosen, LANES if (os.cpu_count() or 1) > 1 else 1)
    width = max((len(each.name) for each in results), default=0)
    print(f"\n{'stage':{width}}  result   seconds      CPU")
    for each in results:
        print(f"{each.name:{width}}  {each.status:7}  {each.seconds:7.0f}  {each.cpu:7.0f}")
    total = sum(each.cpu for each in results)
    print(f"{'total':{width}}  {'':7}  {time.monotonic() - start:7.0f}  {total:7.0f}")
    counts = {status: sum(1 for each in results if each.status == status) for status in ("passed", "failed", "not run")}
    print("".join(f"\n{line}" for line in [*reasons(results), *culprits(results)]))
    print(f"\n{counts['passed']} passed, {counts['failed']} failed, {counts['not run']} skipped")
    return 0 if counts["passed"] and not counts["failed"] else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
