"""The module from outside: files of a fake node before and after, in check mode and for real, and the way back."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.dgxspark.cluster.plugins.modules import memory_guard
from ansible_collections.dgxspark.cluster.tests.support.systemd import Systemd, there

Run = t.Callable[..., dict[str, t.Any]]


@pytest.fixture
def systemd(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Systemd:
    made = Systemd()
    monkeypatch.setattr(memory_guard, "module_runner", lambda _module: made.run)
    monkeypatch.setattr(memory_guard, "RECORD", str(tmp_path / "record" / "guard.json"))
    return made


@pytest.fixture
def run(systemd: Systemd, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> Run:
    def call(check: bool = False, names: t.Sequence[str] = ("a", "b"), **arguments: t.Any) -> dict[str, t.Any]:
        files = [
            {"path": str(tmp_path / "etc" / f"{name}.service.d" / "x.conf"), "content": f"[{name}]\n", "mode": "0644"}
            for name in names
        ]
        given = {
            "files": files,
            "enable": ["earlyoom.service", "guard.path"],
            "restart": ["earlyoom.service"],
            **arguments,
            "_ansible_check_mode": check,
        }
        with patch_module_args(given), pytest.raises(SystemExit):
            memory_guard.main()
        return t.cast(dict[str, t.Any], json.loads(capfd.readouterr().out))

    return call


def test_check_mode_tells_what_a_run_changes(tmp_path: pathlib.Path, systemd: Systemd, run: Run) -> None:
    foretold = run(check=True)
    assert foretold["changed"] and there(tmp_path) == [] and systemd.asked == []
    done = run()
    assert done["changes"] == foretold["changes"]
    assert there(tmp_path) == ["etc/a.service.d/x.conf", "etc/b.service.d/x.conf", "record/guard.json"]
    assert "restart earlyoom.service" in systemd.asked and "start guard.path" in systemd.asked
    systemd.asked.clear()
    again = run()
    assert not again["changed"] and systemd.asked == []


def test_a_file_of_an_earlier_plan_goes_and_its_empty_folder_too(tmp_path: pathlib.Path, run: Run) -> None:
    run()
    (tmp_path / "etc" / "b.service.d" / "owners.conf").write_text("mine\n")
    changed = run(names=["c"])
    assert [c["subject"] for c in changed["changes"] if c["after"] is None] == [
        str(tmp_path / "etc" / f"{name}.service.d" / "x.conf") for name in ("a", "b")
    ]
    assert there(tmp_path) == ["etc/b.service.d/owners.conf", "etc/c.service.d/x.conf", "record/guard.json"]
    assert not (tmp_path / "etc" / "a.service.d").exists()


def test_absent_takes_what_is_ours_and_leaves_earlyoom_running(
    tmp_path: pathlib.Path, systemd: Systemd, run: Run
) -> None:
    run()
    foretold = run(check=True, state="absent")
    assert foretold["changed"] and len(there(tmp_path)) == 3
    systemd.asked.clear()
    gone = run(state="absent")
    assert gone["changed"] and there(tmp_path) == []
    assert "disable guard.path" in systemd.asked and "disable earlyoom.service" not in systemd.asked
    assert not run(state="absent")["changed"]


def test_without_earlyoom_the_rest_is_laid_down_and_it_is_told(
    tmp_path: pathlib.Path, systemd: Systemd, run: Run
) -> None:
    del systemd.enabled["earlyoom.service"]
    systemd.active.clear()
    first = run()
    assert first["changed"] and "start earlyoom.service" not in systemd.asked
    assert first["earlyoom"] == pathlib.Path("/usr/bin/earlyoom").is_file()
    assert not run()["changed"]


def test_a_file_that_cannot_be_written_leaves_all_as_it_was(tmp_path: pathlib.Path, run: Run) -> None:
    run()
    (tmp_path / "etc" / "z.service.d").parent.mkdir(exist_ok=True)
    (tmp_path / "etc" / "z.service.d").write_text("a file where a folder is needed\n")
    before = {path: (tmp_path / path).read_text() for path in there(tmp_path)}
    failed = run(names=["a", "z"])
    assert failed["failed"] and "cannot be" in failed["msg"]
    assert {path: (tmp_path / path).read_text() for path in there(tmp_path)} == before
