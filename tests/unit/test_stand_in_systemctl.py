"""tests/stand_ins/systemctl against the real systemctl and journalctl, in what these do without a manager.

What needs a manager (start, stop, show, and the resulting state of a unit) is compared on a lab node: tests/lab/test_8_systemctl.py.
"""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import re
import runpy
import shutil
import subprocess

import pytest

STAND_IN = pathlib.Path(__file__).resolve().parents[1] / "stand_ins" / "systemctl"
UNIT = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
PLACE = "etc/systemd/system"
SOCKET = "[Socket]\nListenStream=/run/there\n[Install]\nWantedBy=sockets.target\n"
TIMER = "[Timer]\nOnActiveSec=1\n[Install]\nWantedBy=timers.target\n"
# Not compared: whether a verb is quoted (not before systemd 253), and messages about links that are created and removed.
SAID = re.compile(r"^(?:Unknown command verb|Too (?:few|many) arguments|\w+: unrecognized option).*", re.M)

Asked = tuple[int, str, dict[str, str]]
pytestmark = pytest.mark.skipif(
    not (shutil.which("systemctl") and shutil.which("journalctl")),
    reason="not run: no systemctl and journalctl on this machine to compare with",
)


def said(text: str) -> str:
    return "\n".join(SAID.findall(text)).replace("'", "")


def root(folder: pathlib.Path) -> pathlib.Path:
    (folder / PLACE).mkdir(parents=True)
    for name, text in (("service", UNIT), ("socket", SOCKET), ("timer", TIMER)):
        (folder / PLACE / f"there.{name}").write_text(text, encoding="utf-8")
    return folder


def links(folder: pathlib.Path) -> dict[str, str]:
    """Return the targets of the links that enable the units, as the host itself sees them."""
    made = [path for path in (folder / PLACE).glob("*.wants/*") if path.is_symlink()]
    return {path.parent.name: str(path.readlink()).removeprefix(str(folder)) for path in made}


def real(program: str, words: list[str], folder: pathlib.Path) -> Asked:
    offline = [f"--root={folder}"] if words and words[0] in ("enable", "disable") else []
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
    ran = subprocess.run([program, *offline, *words], check=False, capture_output=True, text=True, timeout=30, env=env)
    return ran.returncode, said(ran.stderr), links(folder)


def stand_in(program: str, words: list[str], folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    monkeypatch.setattr("sys.argv", [program])
    made = runpy.run_path(str(STAND_IN), run_name="stand_in")[program]
    for name, path in (("RUN", folder), ("UNITS", folder / PLACE)):
        monkeypatch.setitem(made.__globals__, name, path)
    with contextlib.redirect_stderr(io.StringIO()) as err:
        code = made(words)
    return code, said(err.getvalue()), links(folder)


@pytest.mark.parametrize(
    ("program", "asked"),
    [
        ("systemctl", ["frobnicate"]),
        ("systemctl", ["frobnicate there.service"]),
        ("systemctl", ["show --nosuch there.service"]),
        ("systemctl", ["restart --nosuch=1 there.service"]),
        ("systemctl", ["daemon-reload there.service"]),
        *[("systemctl", [verb]) for verb in ("start", "stop", "restart", "enable", "disable")],
        ("systemctl", ["enable there.service", "enable there.service", "disable there.service", "disable there.service"]),
        ("systemctl", ["enable there", "disable there"]),
        ("systemctl", ["enable -- there.service"]),
        ("systemctl", ["enable there.socket", "enable there.timer", "disable there.socket", "disable there.timer"]),
        ("systemctl", ["try-restart"]),
        ("systemctl", ["enable none.service"]),
        ("systemctl", ["enable there.service", "enable none.service"]),
        ("journalctl", ["--nosuch -u there.service"]),
        ("journalctl", ["--no-pager -o cat -n 50 -u there.service --since=@1"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "; ".join(value) or "no words",
)  # fmt: skip
def test_the_stand_in_does_and_says_what_the_real_one_does(
    program: str, asked: list[str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = root(tmp_path / "real"), root(tmp_path / "stand_in")
    for words in asked:
        wanted = real(program, words.split(), folders[0])
        assert stand_in(program, words.split(), folders[1], monkeypatch) == wanted, words
