# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs that are cut off at random moments, and a later one: whose state stands, and whether anything changes after it has ended.

Real controllers over ssh, real systemd, systemd-networkd and netplan: machines in namespaces of this one (tests/support/booted.py), so
as root. In each moment one to three runs give an interface an address of their own and are cut off; the last run gives it another
one, or takes the file away. It must end well, its state is what the machine has, and for the longest timer and ten seconds after its
end nothing changes. Usage, from the repository's root:

    python benchmarks/interrupted_runs.py FOLDER [MOMENTS [AT_ONCE [FIRST]]]

Writes benchmarks/results/interrupted_runs.md (MOMENTS of 100, counted from seed FIRST); what each run printed stays in FOLDER.
Exit status 1 if one did not end so.
"""

from __future__ import annotations

import collections
import concurrent.futures
import json
import os
import pathlib
import queue
import random
import re
import runpy
import signal
import subprocess
import sys
import threading
import time
import typing as t
from dataclasses import dataclass, field

runpy.run_path(str(pathlib.Path(__file__).resolve().parent.parent / "tools" / "own_collection.py"))
from ansible_collections.dgxspark.cluster.tests.support import booted  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "interrupted_runs.md"
PLAY = "tests/lab/playbooks/netplan_change.yml"
TIMER = 20  # seconds of the change's rollback timer
AFTER = TIMER + 10  # seconds for which nothing may change after the last run's end
SETTLES = 5  # seconds in which the kernel's addresses follow a file that was taken away
CUTS = ("Ctrl-C", "SIGKILL, the controller's processes", "SIGKILL, and the network is gone for a while")
FILE = "/etc/netplan/95-change.yaml"
SEEN = (
    f"cat {FILE} 2>/dev/null | sha256sum; ip -br -4 address show dev enp9s0 | awk '{{print $3, $4, $5}}';"
    " cat /var/lib/dgxspark/netplan/pending 2>/dev/null; echo"
)
WHERE = "if [ -e /var/lib/dgxspark/netplan/pending ]; then echo a change was unconfirmed; else echo none was; fi"


@dataclass
class Moment:
    """One seed. cuts: how each run was cut, and where the machine was then. wrong: what was not as it must be."""

    seed: int
    cuts: list[tuple[str, str]] = field(default_factory=list)
    last: str = ""
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)


def content(number: int) -> dict[str, t.Any]:
    """Return the variables of the run with this number; 0 takes the file away."""
    stanza = {"match": {"name": "enp9s0"}, "addresses": [f"192.0.2.{number}/24"], "link-local": []}
    tree = {"network": {"version": 2, "renderer": "networkd", "ethernets": {"change": stanza}}}
    return {"change_timeout": TIMER, **({"change_content": json.dumps(tree)} if number else {})}


class Place:
    """A machine, and the controller's folder for it."""

    def __init__(self, machine: booted.Machine, folder: pathlib.Path) -> None:
        self.machine, self.folder = machine, folder
        folder.mkdir(exist_ok=True)
        self.inventory = booted.inventory(machine, folder)

    def start(self, number: int, log: pathlib.Path) -> subprocess.Popen[bytes]:
        """Start a run in a session of its own, as a terminal has it."""
        words = ["ansible-playbook", PLAY, "-i", str(self.inventory), "-e", json.dumps(content(number))]
        words[0] = str(pathlib.Path(sys.executable).parent / words[0])
        with log.open("wb") as output:
            return subprocess.Popen(
                words,
                cwd=ROOT,
                env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def cut(self, run: subprocess.Popen[bytes], how: str) -> None:
        """End a run as Ctrl-C does, or as a controller that dies; its machine is not told anything by us."""
        if how == CUTS[2]:
            self.machine.reach(cut=True)
        if how == CUTS[0]:
            os.killpg(run.pid, signal.SIGINT)
            return
        for pid in [run.pid, *_below(run.pid)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if how == CUTS[2]:
            threading.Timer(3, self.machine.reach, kwargs={"cut": False}).start()


def _below(pid: int) -> list[int]:
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(word) for word in task.read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [child, *_below(child)]
    return found


def schedule(seed: int) -> tuple[list[tuple[float, str, int]], dict[int, str]]:
    """Return what happens when (seconds, start, cut or last, the run's number), in order, and how each run is cut off."""
    chance = random.Random(seed)
    events: list[tuple[float, str, int]] = []
    at = 0.0
    numbers = chance.sample(range(10, 250), chance.randint(1, 3))
    for number in numbers:
        events += [(at, "start", number), (at + chance.uniform(1.0, 16.0), "cut", number)]
        at += chance.uniform(0.5, 8.0)
    final = chance.choice([0, chance.randint(3, 9), chance.randint(3, 9)])
    events.append((at, "last", final))
    return sorted(events), {number: chance.choice(CUTS) for number in numbers}


def went(log: pathlib.Path, how: str) -> str:
    """Return how a run was cut off. Ansible may go on after Ctrl-C."""
    return f"{how}, and it went on to its end" if "PLAY RECAP" in log.read_text("utf-8", "replace") else how


def play(place: Place, seed: int) -> Moment:
    """Play one moment."""
    moment, began = Moment(seed), time.monotonic()
    folder = place.folder / f"{seed}"
    folder.mkdir()
    events, hows = schedule(seed)
    runs: dict[int, subprocess.Popen[bytes]] = {}
    found: dict[int, str] = {}
    last: subprocess.Popen[bytes] | None = None
    final = 0
    for when, what, number in events:
        time.sleep(max(0.0, began + when - time.monotonic()))
        if what == "last":
            last, final = place.start(number, folder / "last"), number
        elif what == "start":
            runs[number] = place.start(number, folder / f"{number}")
        elif runs[number].poll() is None:
            found[number] = place.machine.run(WHERE).strip()
            place.cut(runs[number], hows[number])
    assert last
    try:
        code = last.wait(400)
    except subprocess.TimeoutExpired:
        code = -1
        os.killpg(last.pid, signal.SIGKILL)
    if code:
        moment.wrong.append(f"the last run ended with {code}")
    moment.last = "takes the file away" if not final else "another address"
    ended = time.monotonic()
    states = [place.machine.run(SEEN)]
    while time.monotonic() < ended + AFTER:
        time.sleep(0.5)
        states.append(place.machine.run(SEEN))
        if final or time.monotonic() > ended + SETTLES:
            moment.wrong += judged(states[-1], final, states[0])
        if moment.wrong:
            break
    for number, run in runs.items():
        run.wait()
        how = went(folder / f"{number}", hows[number]) if number in found else "none: it had ended"
        moment.cuts.append((how, found.get(number, "")))
    moment.seconds = time.monotonic() - began
    (folder / "states").write_text("\n".join(dict.fromkeys(states)), "utf-8")
    return moment


def judged(state: str, final: int, first: str) -> list[str]:
    """Return what is wrong with what was seen after the last run's end. first: what was seen right at its end."""
    wrong = []
    address = " ".join(state.splitlines()[1].split())
    if address != (f"192.0.2.{final}/24" if final else ""):
        wrong.append(f"the interface has {address or 'no address'}")
    if state.splitlines()[0] != first.splitlines()[0]:
        wrong.append("the file has changed after the end")
    if (state.splitlines()[0].startswith("e3b0c442")) == bool(final):
        wrong.append("the file is not the last run's")
    if state.splitlines()[2:] and state.splitlines()[2].strip():
        wrong.append("a change is pending")
    return wrong


def table(moments: t.Sequence[Moment], at_once: int) -> list[str]:
    """Return the result file's lines."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    cuts = collections.Counter(cut for moment in moments for cut in moment.cuts)
    wrong = [moment for moment in moments if moment.wrong]
    off = sum(count for (how, _where), count in cuts.items() if how in CUTS)
    lines = [
        "# benchmarks/interrupted_runs.py",
        f"{len(moments)} random moments (seeds {moments[0].seed} to {moments[-1].seed}), {at_once} machines at a time, on two cores at load "
        f"{os.getloadavg()[2]:.0f}, {time.strftime('%Y-%m-%d')}, commit {commit.stdout.strip()}. Real controllers (ansible-playbook over ssh), systemd,",
        "systemd-networkd and netplan of the lab's image in namespaces; no VFs. In each moment one to three runs are cut off, and a last one",
        f"is started before or after the cuts: {off} runs were cut off. The timer is {TIMER} s. For {AFTER} s after the last run's end, file and",
        "address are looked at twice a second.",
        "",
        "| cut off by | on the machine, right before | runs |",
        "|---|---|---|",
        *(f"| {how} | {where} | {count} |" for (how, where), count in sorted(cuts.items())),
        "",
        "| the last run | moments | ended well, its state stands, nothing changed after it | median seconds of a moment |",
        "|---|---|---|---|",
    ]
    for what in sorted({moment.last for moment in moments}):
        of = [moment for moment in moments if moment.last == what]
        seconds = sorted(moment.seconds for moment in of)[len(of) // 2]
        lines.append(f"| {what} | {len(of)} | {sum(not moment.wrong for moment in of)} | {seconds:.0f} |")
    lines += ["", f"{len(moments) - len(wrong)} of {len(moments)} as they must be."]
    lines += [f"- seed {moment.seed}: {'; '.join(dict.fromkeys(moment.wrong))}" for moment in wrong]
    return lines


def main(folder: pathlib.Path, count: int = 100, at_once: int = 4, first: int = 1) -> int:
    """Play all moments, and write the table."""
    folder.mkdir(parents=True, exist_ok=True)
    free: queue.Queue[Place] = queue.Queue()
    with booted.mounted(folder / "image") as image:
        machines = [booted.Machine(number, image, folder / f"machine{number}") for number in range(1, at_once + 1)]
        opened = []
        try:
            for machine in machines:
                opened.append(machine.__enter__())
                free.put(Place(machine, folder / f"controller{machine.number}"))

            def one(seed: int) -> Moment:
                place = free.get()
                try:
                    moment = play(place, seed)
                finally:
                    free.put(place)
                print(
                    f"{seed}: {moment.seconds:.0f} s, {moment.cuts}, {moment.last}: {moment.wrong or 'well'}",
                    flush=True,
                )
                return moment

            with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
                moments = list(pool.map(one, range(first, first + count)))
        finally:
            for machine in opened:
                machine.__exit__()
    text = "\n".join(table(moments, at_once)) + "\n"
    RESULT.write_text(text, encoding="utf-8")
    print(text)
    return int(any(moment.wrong for moment in moments))


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 5 or not all(re.fullmatch(r"\d+", word) for word in sys.argv[2:]):
        raise SystemExit(__doc__)
    raise SystemExit(main(pathlib.Path(sys.argv[1]).resolve(), *map(int, sys.argv[2:])))
