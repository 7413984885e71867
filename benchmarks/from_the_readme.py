"""From nothing but the README: lab up, then the steps of "With your Sparks", one after the other, each timed.

The commands are read from README.md and run unchanged in an empty folder. The Sparks are two virtual ones of a lab of its own
(DGXSPARK_LAB_NAME, _PORT), which an ssh configuration puts at the README's addresses. MORE has what is added to the README's
commands, and why. Usage, from the repository's root, in the environment of ansible-core:

    DGXSPARK_LAB_NAME=readme DGXSPARK_LAB_PORT=22600 python benchmarks/from_the_readme.py FOLDER

Writes benchmarks/results/from_the_readme.md; the commands' output and the pages stay in FOLDER.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks" / "results" / "from_the_readme.md"
LAB = (sys.executable, ROOT / "lab" / "lab")
ADDRESSES = ("192.0.2.11", "192.0.2.12")
MORE = {
    "discover": "-u root -e dgxspark_discover_window=30",
    "site": "-e netplan_vf_rollback_timeout=180",
}
WHY = """Beside the README: `-u root`, since the lab's nodes have no other user; and longer times for emulated nodes
(`dgxspark_discover_window`, `netplan_vf_rollback_timeout`)."""


def typed() -> list[str]:
    """Return all commands of the README."""
    text = re.sub(r"(?ms)^```.*?^```$", "", (ROOT / "README.md").read_text(encoding="utf-8"))
    return re.findall(r"(?m)^(?: {4}| {7})([a-z].*)$", text)


def commands() -> list[str]:
    """Return the README's commands for Sparks without K3s: from `discover` on, up to `verify`."""
    all_of_it = typed()
    first, last = (next(n for n, line in enumerate(all_of_it) if word in line) for word in ("discover", "verify"))
    return all_of_it[first : last + 1]


def with_more(command: str) -> str:
    """Add what a lab needs to a command."""
    found = re.match(r"ansible-playbook dgxspark\.cluster\.(\w+)", command)
    more = MORE.get(found[1]) if found else None
    return f"{command} {more}" if more else command


def ssh_configuration(folder: pathlib.Path) -> pathlib.Path:
    """Put the lab's nodes at the README's addresses, as an owner's network would."""
    base = int(os.environ.get("DGXSPARK_LAB_PORT") or 22200)
    cache = os.environ.get("DGXSPARK_LAB_CACHE") or str(pathlib.Path.home() / ".cache" / "dgxspark-lab")
    text = ""
    for number, address in enumerate(ADDRESSES, 1):
        text += f"Host {address}\n  HostName 127.0.0.1\n  Port {base + number}\n  HostKeyAlias dgxspark-lab\n"
        text += f"  IdentityFile {cache}/id_lab\n  UserKnownHostsFile {cache}/known_hosts\n"
    place = folder / "ssh_config"
    place.write_text(text, encoding="utf-8")
    return place


def timed(command: list[object] | str, folder: pathlib.Path, log: pathlib.Path) -> tuple[float, int]:
    """Run one command in the folder, with its output in the log; return its seconds and exit status."""
    words = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
    began = time.monotonic()
    with log.open("w", encoding="utf-8") as output:
        done = subprocess.run(words, cwd=folder, check=False, stdout=output, stderr=subprocess.STDOUT)
    return time.monotonic() - began, done.returncode


def main(place: pathlib.Path) -> int:
    """Run lab up, all commands and lab down, and write the table."""
    place.mkdir(parents=True)
    (place / "logs").mkdir()
    collections = pathlib.Path(os.environ["ANSIBLE_COLLECTIONS_PATH"])
    os.environ |= {
        "ANSIBLE_SSH_ARGS": f"-F {ssh_configuration(place)} -o ControlMaster=auto -o ControlPersist=60s",
        "ANSIBLE_COLLECTIONS_PATH": str(collections),
        "ANSIBLE_NOCOLOR": "1",
    }
    os.environ.pop("ANSIBLE_CONFIG", None)
    rows = []
    folder, code = place, 0
    try:
        seconds, code = timed([*LAB, "up", "--nodes", "2"], ROOT, place / "logs/lab.log")
        rows.append(("lab/lab up --nodes 2", seconds, code))
        for node in ("1", "2"):  # DGX OS leaves its ports up
            up = "ip link set enp1s0f0np0 up; ip link set enP2p1s0f0np0 up"
            subprocess.run([*map(str, LAB), "ssh", node, up], check=True)
        for number, command in enumerate(commands(), 1):
            if code:
                break
            if command.startswith("cd "):
                folder = folder / command[3:]
                rows.append((command, 0.0, 0))
                continue
            line = with_more(command)
            seconds, code = timed(line, folder, place / f"logs/{number}.log")
            rows.append((line, seconds, code))
            print(f"{seconds:6.0f} s, exit {code}: {line}", flush=True)
    finally:
        subprocess.run([*map(str, LAB), "down"], check=False)
    reports = sorted((folder / "reports").glob("fabric-*.json"))
    verdict = json.loads(reports[-1].read_text(encoding="utf-8"))["verdict"] if reports else "none"
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = [
        "# benchmarks/from_the_readme.py",
        'What "With your Sparks" says, typed into two virtual Sparks on one machine of two cores, emulated without KVM and',
        f"shared with other work (load {os.getloadavg()[2]:.0f}). Commit {commit.stdout.strip()}. Installing is not in it.",
        "",
        "| typed | seconds | exit status |",
        "|---|---|---|",
        *(f"| `{typed.replace('|', chr(92) + '|')}` | {seconds:.0f} | {status} |" for typed, seconds, status in rows),
        f"| all | {sum(seconds for _typed, seconds, _status in rows):.0f} | |",
        "",
        f"Verdict of the last report: **{verdict}**. {WHY}",
    ]
    if not code:
        RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    raise SystemExit(main(pathlib.Path(sys.argv[1]).resolve()))
