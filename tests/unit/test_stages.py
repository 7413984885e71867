"""The order of the test stages: the longest first, light ones last, and after them those that need the machine to themselves."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
import tomllib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("run_tests", ROOT / "tools" / "run_tests.py")
assert SPEC
assert SPEC.loader
run_tests = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = run_tests
SPEC.loader.exec_module(run_tests)

SHORT, LONG = run_tests.Stage("short", [], seconds=1), run_tests.Stage("long", [], seconds=9)
LIGHT = run_tests.Stage("light", [], light=True, seconds=50)
ALONE = run_tests.Stage("alone", [], alone=True, seconds=99)


@pytest.mark.parametrize(
    ("waiting", "running", "begins"),
    [
        ([SHORT, LONG], [], LONG),
        ([SHORT], [LONG], SHORT),
        ([LIGHT, SHORT], [], SHORT),
        ([LIGHT], [LONG, SHORT], LIGHT),
        ([SHORT], [ALONE], None),
        ([SHORT, ALONE], [], SHORT),  # what runs alone comes last
        ([LIGHT, ALONE], [], LIGHT),
        ([LIGHT, ALONE], [ALONE], None),
        ([ALONE], [SHORT], None),
        ([ALONE], [], ALONE),
        ([ALONE, SHORT], [ALONE], None),
        ([], [LONG], None),
    ],
)
def test_who_begins(waiting: list, running: list, begins: object) -> None:
    assert run_tests.next_stage(waiting, running) is begins


@pytest.mark.parametrize("lanes", [1, 2, run_tests.LANES])
def test_every_stage_is_run_once_and_never_beside_what_it_must_not_be(
    lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now: list = []

    def tell(stage: object) -> object:
        now.append(stage)
        beside = [other for other in now if other is not stage]
        assert not (beside and any(each.alone for each in now))
        now.remove(stage)
        return run_tests.Result(stage.name, "passed", 0.0, 0.0)

    monkeypatch.setattr(run_tests, "tell", tell)
    chosen = [ALONE, LIGHT, SHORT, LONG]
    done = run_tests.run_all(chosen, lanes)
    assert sorted(each.name for each in done) == sorted(stage.name for stage in chosen)


def test_every_test_is_in_one_stage_of_make_test_and_none_in_two() -> None:
    """Where a folder is split: what one stage ignores is what the other runs."""
    told = {stage.name: stage.commands[0] for stage in run_tests.stages() if not stage.long}
    for rest, part, folder in (("unit-2.21", "plays-2.21", "tests/unit"), ("api-other", "api-serve", "tests/api")):
        own = [word for word in told[part] if word.startswith("tests/")]
        assert folder in told[rest]
        assert own == [word.partition("=")[2] for word in told[rest] if word.startswith("--ignore=")]
        assert own and all((ROOT / place).exists() and place.startswith(folder) for place in own)


def test_a_stage_tells_what_it_cost(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """CPU seconds of its children, too; a stage that hangs is stopped, and counts as failed."""
    (tmp_path / ".venv" / run_tests.NEWEST).mkdir(parents=True)
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    monkeypatch.setattr(run_tests, "LOGS", tmp_path)
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
    status, seconds, cpu = run_tests.run(run_tests.Stage("burns", [[sys.executable, "-c", child]]))
    assert (status, seconds >= cpu >= 0.3) == ("passed", True)
    assert run_tests.run(run_tests.Stage("fails", [[sys.executable, "-c", "raise SystemExit(3)"]]))[0] == "failed"
    skips = f"raise SystemExit({run_tests.NOT_RUN})"
    assert run_tests.run(run_tests.Stage("skips", [[sys.executable, "-c", skips]]))[0] == "not run"
    monkeypatch.setattr(run_tests, "LIMIT_S", 0.5)
    hangs = run_tests.Stage("hangs", [[sys.executable, "-c", "import time; time.sleep(600)"]])
    assert run_tests.run(hangs)[0] == "failed"
    assert "stopped after 0.5 s" in (tmp_path / "hangs.log").read_text()


PLAYED = """
=================================== FAILURES ===================================
__________________________________ test_fails __________________________________
>       assert code == 0, said
E       AssertionError:
E       PLAY [dgx] ***
E       TASK [Apply] ***
E       ok: [spark1]
E       fatal: [spark2]: FAILED! => {"msg": "no room"}
tests/api/harness.py:116: AssertionError
_______________________________ test_is_cut[off] _______________________________
E       AssertionError:
E       PLAY [dgx] ***
E       TASK [Look for the kubeconfig] ***
E
__________________________________ test_plain __________________________________
E       assert 1 == 2
=========================== short test summary info ============================
FAILED tests/api/test_p.py::test_fails - AssertionError:
FAILED tests/api/test_p.py::test_is_cut[off] - AssertionError:
FAILED tests/api/test_p.py::test_plain - assert 1 == 2
"""


def test_what_failed_is_named_at_the_end(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setattr(run_tests, "LOGS", tmp_path)
    many = [f"FAILED tests/unit/test_a.py::test_{number} - assert 0" for number in range(run_tests.CULPRITS + 2)]
    logs = {
        "plain": "FAILED is in a line that passed",
        "few": "x\nFAILED tests/a.py::test_b - assert 1 == 2\nERROR tests/c.py\n= 1 failed, 1 error =\nexit status 1\n",
        "many": "\n".join(many),
        "linter": "a.py:1: E501\n\nexit status 1\n\n",
        "play": PLAYED,
    }
    for name, text in logs.items():
        (tmp_path / f"{name}.log").write_text(text)
    results = [run_tests.Result(name, "passed" if name == "plain" else "failed", 1.0, 1.0) for name in logs]
    assert run_tests.culprits(results) == [
        "few: FAILED tests/a.py::test_b - assert 1 == 2",
        "few: ERROR tests/c.py",
        *(f"many: {line}" for line in many[: run_tests.CULPRITS]),
        "many: and 2 more",
        "linter: a.py:1: E501",
        "play: FAILED tests/api/test_p.py::test_fails - AssertionError:",
        '    fatal: [spark2]: FAILED! => {"msg": "no room"}',
        "play: FAILED tests/api/test_p.py::test_is_cut[off] - AssertionError:",
        "    TASK [Look for the kubeconfig] ***",
        "play: FAILED tests/api/test_p.py::test_plain - assert 1 == 2",
    ]
    # pytest prints these lines if asked for failures and errors besides skipped tests.
    words = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]["ini_options"][
        "addopts"
    ].split()
    (told,) = [word for word in words if word.startswith("-r")]
    assert {"f", "E", "s"} <= set(told)


def test_the_older_core_is_asked_whatever_knows_ansible() -> None:
    chosen = run_tests.tests_by_core()
    assert "tests/unit/plugins/modules/test_sriov_vf.py" in chosen
    assert "tests/unit/plugins/filter/test_gid_index.py" in chosen
    assert "tests/unit/plugins/plugin_utils/test_inventory_limit.py" in chosen  # runs ansible-playbook
    assert "tests/unit/plugins/plugin_utils/fabric/test_plan.py" not in chosen


def test_both_environments_are_locked() -> None:
    """Each requirement is pinned to one version, which is in the lock."""
    folder = ROOT / "requirements"
    locked = dict(
        line.split("==") for line in (folder / "constraints.txt").read_text("utf-8").splitlines() if line[0] != "#"
    )
    locked = {name.lower().replace("_", "-"): version for name, version in locked.items()}
    for path in set(folder.glob("*.txt")) - {folder / "constraints.txt"}:
        for line in path.read_text("utf-8").splitlines():
            if line.startswith(("#", "-r ")):
                continue
            name, version = line.split("==")
            assert "core" in path.name or locked[name.lower().replace("_", "-")] == version, line


def test_the_readme_names_what_a_controller_needs() -> None:
    needed = [line for line in (ROOT / "requirements.txt").read_text("utf-8").splitlines() if line and line[0] != "#"]
    command = next(line for line in (ROOT / "README.md").read_text("utf-8").splitlines() if "pip install" in line)
    assert {line.split(">=")[0] for line in needed} <= set(command.split())
