"""The four-node lab as pytest sees it: run playbooks as an owner would, and reach into nodes from outside.

`tools/with_lab.py 4 pytest tests/lab` boots the lab first. Nothing here uses the collection's own code: what is
observed on a node comes from `ip`, sysfs and friends over ssh.
"""

from __future__ import annotations

import html
import json
import os
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(sys.executable).parent
RECAP = re.compile(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)
NODES = ("spark1", "spark2", "spark3", "spark4")
WHOLE: set[str] = (
    set()
)  # the nodes whose fabric a test has just found to be as planned, and which no test has broken since


@dataclass(frozen=True)
class Run:
    """A finished ansible-playbook."""

    code: int
    output: str

    @property
    def changed(self) -> dict[str, int]:
        return {host: int(count) for host, count, _unreachable, _failed in RECAP.findall(self.output)}


def lab(*words: object, check: bool = True, patience: float = 300) -> str:
    """Run a command of the lab's program; patience: seconds for `ssh`."""
    done = subprocess.run(
        [sys.executable, ROOT / "lab" / "lab", *map(str, words)],
        check=False,
        capture_output=True,
        text=True,
        # A node's start has the lab's own patience, which looks at what the node does.
        timeout=patience if words[0] == "ssh" else 3900,
    )
    assert not check or done.returncode == 0, f"lab {words}: {done.stdout}{done.stderr}"
    return done.stdout


def sh(node: str, command: str, check: bool = True) -> str:
    """Run a command on a node, over ssh."""
    return lab("ssh", node, command, check=check).strip()


def play(
    playbook: str = "site.yml",
    *arguments: str,
    limit: str = "spark[1:4]",
    timeout: float = 900,
    inventory: pathlib.Path | str = "inventories/lab",
    place: pathlib.Path = ROOT,
    **environment: str,
) -> Run:
    limited = ["-l", limit] if limit else []
    command = [BIN / "ansible-playbook", playbook, "-i", inventory, *limited, *arguments]
    env = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), **environment}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=place,
        check=False,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout,
    )
    assert "Traceback" not in done.stdout, done.stdout
    return Run(done.returncode, done.stdout)


def make_so(*arguments: str, limit: str = "spark[1:4]") -> Run:
    """Bring the fabric to its planned state, or fail the test here."""
    # Four emulated nodes on a machine with other work took 15 minutes and more.
    run = play("site.yml", "--tags", "fabric", *arguments, limit=limit, timeout=2700)
    assert run.code == 0, run.output
    return run


@dataclass(frozen=True)
class Proof:
    """What verify.yml said."""

    code: int
    output: str
    report: dict
    page: str = ""

    @property
    def verdict(self) -> str:
        return self.report["verdict"]

    @property
    def causes(self) -> str:
        return json.dumps(self.report["causes"])

    @property
    def shown(self) -> str:
        """The text of the HTML page."""
        bare = re.sub(r"<[^>]*>", " ", re.sub(r"</?code>", "", self.page))
        return " ".join(html.unescape(bare).split())

    def told_on_the_page(self) -> bool:
        """Whether the page names every cause of the report, with its place and words."""
        assert self.report["causes"], self.output
        words = [cause[key] for cause in self.report["causes"] for key in ("id", "where", "message", "remedy")]
        absent = [word for word in words if " ".join(word.replace("`", "").split()) not in self.shown]
        assert not absent, absent
        return True


def prove(report: pathlib.Path, limit: str = "spark[1:4]", *arguments: str) -> Proof:
    page = report.with_suffix(".html")
    for old in (report, page):
        old.unlink(missing_ok=True)
    run = play("playbooks/verify.yml", "-e", f"dgxspark_report_file={report}", *arguments, limit=limit)
    assert report.is_file(), run.output
    assert page.is_file(), run.output
    return Proof(run.code, run.output, json.loads(report.read_text()), page.read_text())


@dataclass(frozen=True)
class Look:
    """What doctor.yml said."""

    run: Run
    report: dict

    def found(self, name: str) -> list[str]:
        """Return where the findings of this id are."""
        return [finding["where"] for finding in self.report["findings"] if finding["id"] == name]


def look(report: pathlib.Path, *arguments: str, limit: str = "spark[1:4]") -> Look:
    """Run the doctor."""
    report.unlink(missing_ok=True)
    run = play("playbooks/doctor.yml", "-e", f"dgxspark_report_file={report}", *arguments, limit=limit)
    assert report.is_file(), run.output
    return Look(run, json.loads(report.read_text()))


def other_mac(port: str, vf: int, netdev: str, mac: str) -> str:
    """Return the command that gives a VF another MAC, as another tool would.

    igbvf refuses a MAC that its function does not have for it, so that the driver must look again; and what the roles install would
    at once give a VF that comes back its own MAC.
    """
    unit = f"dgxspark-fabric-vf@{netdev}.service"
    return (
        f"systemctl mask -q --runtime {unit}; ip link set {port} vf {vf} mac {mac};"
        f" d=$(basename $(readlink -f /sys/class/net/{netdev}/device));"
        " for to in unbind bind; do echo $d >/sys/bus/pci/drivers/igbvf/$to; done; sleep 5; udevadm settle -t 60;"
        f" systemctl unmask -q --runtime {unit}; grep -q {mac} /sys/class/net/{netdev}/address"
    )


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> float:
    """Wait until the condition holds; return the seconds it took."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < seconds, f"{what}: not within {seconds} s"
        time.sleep(0.5)
    return time.monotonic() - start
