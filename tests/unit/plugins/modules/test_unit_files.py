"""The module from outside: a set of files before and after, in check mode and for real, and nothing left of it."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.dgxspark.cluster.plugins.modules import unit_files
from ansible_collections.dgxspark.cluster.tests.support.systemd import Systemd, there

Run = t.Callable[..., dict[str, t.Any]]


@pytest.fixture
def systemd(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Systemd:
    made = Systemd()
    monkeypatch.setattr(unit_files, "module_runner", lambda _module: made.run)
    monkeypatch.setattr(unit_files, "RECORDS", str(tmp_path / "lib" / "dgxspark"))
    return made


@pytest.fixture
def run(systemd: Systemd, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> Run:
    (tmp_path / "textfile").mkdir()
    (tmp_path / "etc").mkdir()

    def call(check: bool = False, text: str = "1", **arguments: t.Any) -> dict[str, t.Any]:
        paths = ("etc/metrics.timer", "local/dgxspark/metrics/__main__.py")
        given = {
            "name": "metrics",
            "files": [{"path": str(tmp_path / path), "content": f"{text}\n", "mode": "0644"} for path in paths],
            "enable": ["guard.path"],
            "restart": ["guard.path"],
            "output": [str(tmp_path / "textfile/a.prom")],
            "needs": {str(tmp_path / "textfile"): "Make it."},
            **arguments,
            "_ansible_check_mode": check,
        }
        with patch_module_args(given), pytest.raises(SystemExit):
            unit_files.main()
        return t.cast(dict[str, t.Any], json.loads(capfd.readouterr().out))

    return call


FILES = ["etc/metrics.timer", "lib/dgxspark/metrics.json", "local/dgxspark/metrics/__main__.py"]


def test_check_mode_tells_what_a_run_changes_and_a_second_run_changes_nothing(
    tmp_path: pathlib.Path, systemd: Systemd, run: Run
) -> None:
    foretold = run(check=True)
    assert foretold["changed"] and there(tmp_path) == [] and systemd.asked == []
    done = run()
    assert done["changes"] == foretold["changes"] and there(tmp_path) == FILES
    assert "enable guard.path" in systemd.asked and "restart guard.path" in systemd.asked
    systemd.asked.clear()
    assert not run()["changed"] and systemd.asked == []
    assert run(text="2")["changed"] and "restart guard.path" in systemd.asked


def test_absent_leaves_nothing_and_what_is_another_s_stays(tmp_path: pathlib.Path, systemd: Systemd, run: Run) -> None:
    assert not run(state="absent")["changed"]
    before = sorted(tmp_path.rglob("*"))
    run()
    for name in ("a.prom", "apt.prom"):
        (tmp_path / "textfile" / name).write_text("x 1\n")
    assert run(check=True, state="absent")["changed"] and there(tmp_path)[:2] == FILES[:2]
    assert run(state="absent", needs={}, files=[])["changed"]
    assert "disable guard.path" in systemd.asked
    assert there(tmp_path) == ["textfile/apt.prom"]
    (tmp_path / "textfile/apt.prom").unlink()
    # A folder that somebody else made stays, though it is empty; ours are gone.
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert left - {str(path.relative_to(tmp_path)) for path in before} == {"local", "lib"} and "textfile" in left


def test_what_the_units_wrote_goes_with_its_place(tmp_path: pathlib.Path, run: Run) -> None:
    run()
    (tmp_path / "textfile/a.prom").write_text("x 1\n")
    run(text="2", output=[str(tmp_path / "textfile/b.prom")])
    assert there(tmp_path) == FILES


def test_a_missing_folder_is_named_in_check_mode_too(tmp_path: pathlib.Path, run: Run) -> None:
    failed = run(check=True, needs={str(tmp_path / "none"): "Make it."})
    assert (
        failed["failed"]
        and failed["msg"] == f"{tmp_path / 'none'}: the folder does not exist. Make it."
        and there(tmp_path) == []
    )
