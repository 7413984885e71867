"""Updates with a canary on two virtual Sparks that boot Debian's kernels by GRUB: a good one, a known-bad one, one without the fabric's
drivers, and one that does not come up; the way back is walked as it is printed.

`DGXSPARK_LAB_BOOT=grub tools/with_lab.py 2 pytest tests/lab/test_9_update.py -m long -s`. The kernels are Debian's packages of the suite, its
security archive and its backports, downloaded by apt; kernels.py says which two are made of them. What was run is in `.cache/update.md`.
"""

from __future__ import annotations

import json
import pathlib
import re
import time

import kernels
import pytest
import yaml
from harness import ROOT, Run, lab, make_so, play, prove, sh, wait_for
from kernels import DEAD, META, Kernels

NODES, LIMIT = ("spark1", "spark2"), "spark[1:2]"
FIGURES = ROOT / ".cache" / "update.md"
PATIENCE_S = 3600
pytestmark = pytest.mark.long


def version(node: str) -> str:
    return sh(node, f"dpkg-query -W -f '${{Version}} ${{db:Status-Want}}' {META}")


def release(node: str) -> str:
    return sh(node, "uname -r")


def boot(node: str) -> str:
    return sh(node, "cat /proc/sys/kernel/random/boot_id", check=False)


def console(node: str) -> str:
    folder = pathlib.Path(json.loads(lab("status", "--json"))["run"]) / node
    return (folder / "console").read_text(encoding="utf-8", errors="replace")


def default(node: str) -> str:
    """The kernel that GRUB boots without being told: by its own menu and its own tool's idea of it."""
    menu = sh(node, "cat /boot/grub/grub.cfg")
    entry = re.findall(r'^ *set default="([^$"]+)"', menu, re.MULTILINE)[-1]
    if entry == "0":
        return re.findall(r"vmlinuz-(\S+)", menu)[0]
    return re.findall(rf"'{re.escape(entry.split('>')[1])}' {{.*?vmlinuz-(\S+)", menu, re.DOTALL)[0]


class Walk:
    """What is typed, how long it takes, and what is there afterwards."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        FIGURES.parent.mkdir(exist_ok=True)
        FIGURES.write_text("| typed | seconds | afterwards |\n|---|---|---|\n", encoding="utf-8")

    def note(self, typed: str, begun: float, what: str) -> None:
        with FIGURES.open("a", encoding="utf-8") as file:
            file.write(f"| {typed} | {time.monotonic() - begun:.0f} | {what} |\n")

    def update(self, packages: dict[str, str], *arguments: str, limit: str = LIMIT, **given: object) -> Run:
        begun = time.monotonic()
        values = {
            "spark_update_packages": packages,
            "spark_update_proof": ["verify"],
            "spark_update_refresh": False,
            "spark_update_kubernetes": False,
            "spark_update_folder": str(self.folder / "update"),
            "spark_update_reboot_timeout": 1800,
            "dgxspark_knowledge_dirs": str(self.folder / "dgxspark"),
            **given,
        }
        done = play("playbooks/update.yml", "-e", yaml.safe_dump(values, default_flow_style=True, width=9999).strip(), *arguments,
                    limit=limit, timeout=PATIENCE_S)  # fmt: skip
        wanted = ", ".join(f"{name}={version}" for name, version in packages.items())
        self.note(f"`update` to {wanted}", begun, f"exit {done.code}")
        (self.folder / "said").write_text(done.output, encoding="utf-8")
        return done

    def back(self, run: Run, node: str) -> list[tuple[str, str]]:
        """The way back as it is printed: what each command is for, and the command."""
        said = " ".join(run.output.split()).split("The way back: ", 1)[1].split(" Its ranks may not return", 1)[0]
        steps = [step.removeprefix(f"on {node}, ").partition(": ") for step in said.rstrip(".").split(" -- ")]
        return [(what, command) for what, _colon, command in steps]

    def type(self, node: str, command: str) -> None:
        begun = time.monotonic()
        lab("ssh", node, f"yes | ( {command} )", patience=PATIENCE_S)
        self.note(f"`{command}`", begun, "")

    def restart(self, node: str, how: str) -> None:
        begun, was = time.monotonic(), boot(node)
        if how == "reboot":
            sh(node, "systemd-run --on-active=1 systemctl reboot", check=False)
        else:
            lab("power", "off", node)
            lab("power", "on", node)
        wait_for(lambda: boot(node) not in ("", was), 1800, f"{node} is back")
        self.note(how, begun, f"{node} runs {release(node)}")


@pytest.fixture
def walk(tmp_path: pathlib.Path) -> Walk:
    entry = {
        "id": "lab-kernel", "component": "kernel", "versions": "==7.3.4", "severity": "error",
        "only": "Whether another build is.", "message": "This kernel is known to be bad.", "remedy": "Use another one.",
        "source": ["the test"], "verified": "measured",
    }  # fmt: skip
    (tmp_path / "dgxspark" / "versions").mkdir(parents=True)
    (tmp_path / "dgxspark" / "versions" / "lab.yml").write_text(yaml.safe_dump({"entries": [entry]}), encoding="utf-8")
    return Walk(tmp_path)


def test_good_known_bad_worse_and_dead(walk: Walk, tmp_path: pathlib.Path, report: pathlib.Path) -> None:
    """One walk: each step starts where the one before it ended."""
    assert sh("spark1", "findmnt -no SOURCE /") == "/dev/vda1", (
        "the lab's nodes do not boot by GRUB (DGXSPARK_LAB_BOOT=grub)"
    )
    have = kernels.fetch(tmp_path / "kernels", version("spark1").split()[0])
    for node in NODES:
        kernels.offer(node, tmp_path / "kernels" / "debs")
    begun = time.monotonic()
    make_so("-e", "netplan_vf_rollback_timeout=900", limit=LIMIT)
    walk.note("`site --tags fabric`", begun, f"both run {release('spark1')}")
    known_bad(walk, have)
    worse(walk, have, report)
    dead(walk, have, report)
    good(walk, have)
    older(walk, have, report)


def known_bad(walk: Walk, have: Kernels) -> None:
    """Refused, and nothing is touched, not even a hold set."""
    booted = {node: boot(node) for node in NODES}
    run = walk.update({META: have.known_bad})
    assert run.code != 0 and "This kernel is known to be bad." in run.output, run.output
    assert {node: version(node) for node in NODES} == dict.fromkeys(NODES, f"{have.first} install")
    assert {node: boot(node) for node in NODES} == booted


def worse(walk: Walk, have: Kernels, report: pathlib.Path) -> None:
    """It boots, without the card's drivers: verify fails on the canary, and the other is as it was."""
    other = boot("spark2")
    run = walk.update({META: have.worse})
    assert run.code != 0 and "spark1 is worse" in run.output, run.output
    assert (version("spark1"), version("spark2")) == (f"{have.worse} hold", f"{have.first} hold")
    assert (release("spark1"), default("spark1")) == (have.worse_release, have.first_release)
    assert boot("spark2") == other
    steps = walk.back(run, "spark1")
    what, restart = steps.pop(0)
    assert have.first_release in what and restart.startswith("sudo reboot; or")
    walk.restart("spark1", "reboot")
    assert release("spark1") == have.first_release
    for _what, command in steps:
        walk.type("spark1", command)
    walked(walk, have, report)


def walked(walk: Walk, have: Kernels, report: pathlib.Path) -> None:
    """Nothing of the bad kernel is left: another restart stays where the way back has led."""
    assert version("spark1") == f"{have.first} hold"
    assert sh("spark1", "ls /boot | grep -c vmlinuz-") == "1"
    assert default("spark1") == have.first_release
    walk.restart("spark1", "reboot")
    assert release("spark1") == have.first_release
    begun = time.monotonic()
    proof = prove(report, LIMIT)
    walk.note("`verify`", begun, proof.verdict)
    assert proof.verdict == "passed", proof.causes


def dead(walk: Walk, have: Kernels, report: pathlib.Path) -> None:
    """It never finds its disk, and waits for somebody at the console. Cutting the power leads back."""
    other = boot("spark2")
    # As on a Spark: a kernel without panic= stays where it is.
    sh("spark1", "sed -i 's/ panic=10//' /etc/default/grub && update-grub")
    run = walk.update({f"linux-image-{DEAD}": have.dead_version}, spark_update_reboot_timeout=400)
    assert run.code != 0 and "spark1 is worse" in run.output, run.output
    assert "(initramfs)" in console("spark1") and boot("spark2") == other
    (what, restart), *steps = walk.back(run, "spark1")
    assert have.first_release in what and "cut its power and give it again" in restart
    walk.restart("spark1", "power off, power on")
    assert release("spark1") == have.first_release
    for _what, command in steps:
        walk.type("spark1", command)
    walked(walk, have, report)


def good(walk: Walk, have: Kernels) -> None:
    """The first alone, then the other; both restarted into it, proven and held, and it is what GRUB boots from then on."""
    booted = {node: boot(node) for node in NODES}
    run = walk.update({META: have.good})
    assert run.code == 0, run.output
    assert {node: version(node) for node in NODES} == dict.fromkeys(NODES, f"{have.good} hold")
    assert all(boot(node) != booted[node] for node in NODES)
    assert {node: (release(node), default(node)) for node in NODES} == dict.fromkeys(NODES, (have.good_release,) * 2)
    again = walk.update({META: have.good})
    assert again.code == 0 and "Nothing is updated" in again.output, again.output
    assert set(again.changed.values()) == {0}


def older(walk: Walk, have: Kernels, report: pathlib.Path) -> None:
    """The older version, stated for the other Spark: the kernel that the newer one had brought goes, for the newest one boots."""
    run = walk.update({META: have.first}, limit="spark2", spark_update_proof=[])
    assert run.code == 0, run.output
    assert version("spark2") == f"{have.first} hold"
    assert (release("spark2"), default("spark2")) == (have.first_release, have.first_release)
    assert sh("spark2", "ls /boot | grep -c vmlinuz-") == "1"
    assert prove(report, LIMIT).verdict == "passed"
