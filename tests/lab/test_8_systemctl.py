"""tests/stand_ins/systemctl beside the real systemctl and journalctl on a node, with the same units and the same words.

What needs no manager is compared in tests/unit/test_stand_in_systemctl.py. The stand-in is systemd 255, as on DGX OS; the lab's
nodes may have a newer one, whose different wording is handled here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest
from harness import ROOT, sh, wait_for

pytestmark = pytest.mark.long

NODE = "spark1"
FOLDER = "/root/stand-in"
PLACES = {"real": "/etc/systemd/system", "stand-in": f"{FOLDER}/units"}
PROGRAMS = {"real": "", "stand-in": f"{FOLDER}/"}
READY = """import os, socket, time
print("it is ready", flush=True)
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
time.sleep(1000)
"""
UNIT = """[Unit]
StartLimitIntervalSec=0
[Service]
Type=notify
Restart=always
RestartSec=300ms
ExecStart={start}
[Install]
WantedBy=multi-user.target
"""
UNITS = {"compared-ready": f"/usr/bin/python3 {FOLDER}/ready.py", "compared-broken": "/bin/false"}
ALL = "--property=LoadState,UnitFileState,ActiveState,SubState,Result,NRestarts"
# Messages about links that are made and removed are not compared.
LINKS = re.compile(r"^(?:Created symlink|Removed) .*\n?", re.M)
# The message about a unit that `enable` or `disable` does not find: 255 and 257 word it differently.
ABSENT = re.compile(r"(Failed to (?:en|dis)able unit: Unit )(\S+ does not exist)$", re.M)


def put(path: str, text: str) -> None:
    sh(NODE, f"mkdir -p {path.rpartition('/')[0]} && printf %s {shlex.quote(text)} >{path}")


@pytest.fixture(scope="module", autouse=True)
def laid() -> Iterator[None]:
    """The stand-in with folders of its own, and two units for both."""
    text = (ROOT / "tests" / "stand_ins" / "systemctl").read_text(encoding="utf-8")
    text = text.replace('"/etc/systemd/system"', f'"{PLACES["stand-in"]}"')
    put(f"{FOLDER}/systemctl", text.replace('"/run/systemd-stand-in"', f'"{FOLDER}/run"'))
    sh(NODE, f"chmod 755 {FOLDER}/systemctl && ln -sf systemctl {FOLDER}/journalctl")
    put(f"{FOLDER}/ready.py", READY)
    for name, start in UNITS.items():
        for place in PLACES.values():
            put(f"{place}/{name}.service", UNIT.format(start=start))
    sh(NODE, "systemctl daemon-reload")
    yield
    names = " ".join(UNITS)
    for program in PROGRAMS.values():
        sh(NODE, f"{program}systemctl disable --now {names}", check=False)
    files = " ".join(f"{PLACES['real']}/{name}.service" for name in UNITS)
    sh(NODE, f"rm -rf {FOLDER} {files}")
    sh(NODE, f"systemctl daemon-reload; systemctl reset-failed {names}", check=False)


def ask(which: str, words: str) -> tuple[str, list[str]]:
    """Return the exit status and the output, with each unit's properties sorted and without lines about links."""
    out = sh(NODE, f"{PROGRAMS[which]}{words} 2>&1; code=$?; echo; echo $code", check=False)
    text, _newline, code = out.rpartition("\n")
    blocks = ABSENT.sub(r"\1file \2.", LINKS.sub("", text)).strip().split("\n\n")
    return code, ["\n".join(sorted(block.splitlines())) for block in blocks]


def shown(which: str, unit: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in ask(which, f"systemctl show {ALL} -- {unit}")[1][0].splitlines())


@pytest.mark.parametrize(
    "words",
    [
        "systemctl frobnicate",
        f"systemctl show {ALL} -- compared-ready.service",
        f"systemctl show {ALL} -- none.service",
        f"systemctl show {ALL} -- compared-ready.service none.service",
        *[f"systemctl {verb} none.service" for verb in ("start", "restart", "stop", "reset-failed", "enable", "disable")],
        "systemctl restart --no-block none.service",
        "systemctl disable --now none.service",
        "systemctl stop compared-ready.service",
        "systemctl stop none.service compared-ready.service",
        "systemctl enable compared-ready.service",
        f"systemctl show {ALL} -- compared-ready.service",
        "systemctl disable compared-ready.service",
        f"systemctl show {ALL} -- compared-ready.service",
        "systemctl start",
        "systemctl daemon-reload",
    ],
)  # fmt: skip
def test_the_same_words_come_to_the_same(words: str) -> None:
    assert ask("stand-in", words) == ask("real", words)


def test_a_unit_that_says_it_is_ready_is_active_and_its_lines_are_in_the_journal() -> None:
    seen = {}
    unit = "compared-ready.service"
    for which in PROGRAMS:
        began = sh(NODE, "date +%s")
        assert ask(which, f"systemctl restart --no-block {unit}")[0] == "0"
        wait_for(lambda which=which: shown(which, unit)["ActiveState"] == "active", 20, f"{which}: {unit}")
        journal = ask(which, f"journalctl --no-pager -o cat -n 50 -u {unit} --since=@{began}")
        running = shown(which, unit)
        assert ask(which, f"systemctl stop {unit}")[0] == "0"
        seen[which] = running, journal[0], "it is ready" in "\n".join(journal[1]).splitlines(), shown(which, unit)
    assert seen["stand-in"] == seen["real"]


def test_a_unit_that_dies_is_tried_again_and_counted() -> None:
    seen = {}
    unit = "compared-broken.service"

    def tried(which: str) -> bool:
        found = shown(which, unit)
        seen[which] = {key: value for key, value in found.items() if key != "NRestarts"}
        return int(found["NRestarts"]) >= 2 and found["SubState"] == "auto-restart"

    for which in PROGRAMS:
        assert ask(which, f"systemctl restart --no-block {unit}")[0] == "0"
        wait_for(lambda which=which: tried(which), 30, f"{which}: {unit} tried again")
        assert ask(which, f"systemctl stop {unit}")[0] == "0"
    assert seen["stand-in"] == seen["real"]
