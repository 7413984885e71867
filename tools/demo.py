"""`make demo`: four virtual Sparks from bare to verified fabric, as an owner would do it, with the time of each step.

KEEP=1 leaves the lab up to look around in (`lab/lab ssh spark1`).
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = pathlib.Path(sys.executable).parent
LIMIT = ("-i", "inventories/lab", "-l", "spark[1:4]")
RECAP = re.compile(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)


class Failed(Exception):
    """A step of the demo did not do what it should show."""


def step(title: str, *command: object) -> str:
    """Run one step, stream its output, and return it."""
    print(
        f"\n=== {title}\n$ {' '.join(pathlib.Path(str(c)).name if i == 0 else str(c) for i, c in enumerate(command))}",
        flush=True,
    )
    start = time.monotonic()
    lines = []
    with subprocess.Popen(
        [str(c) for c in command], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    seconds = time.monotonic() - start
    TIMES.append((title, seconds))
    if process.returncode:
        raise Failed(f"{title}: exit status {process.returncode}")
    return "".join(lines)


def changed(output: str) -> dict[str, int]:
    """Return the number of changed tasks by host, from the play recap."""
    return {host: int(count) for host, count, _unreachable, _failed in RECAP.findall(output)}


def demo(playbook: tuple[object, ...]) -> None:
    """Run the main demo, step by step."""
    step("What each Spark will get, before anything is touched", *playbook, "playbooks/plan.yml", *LIMIT)
    step("What the first run would change", *playbook, "site.yml", *LIMIT, "--check", "--diff", "--tags", "fabric")
    first = step("From bare to verified", *playbook, "site.yml", *LIMIT)
    if not all(changed(first).get(f"spark{n}") for n in range(1, 5)):
        raise Failed("the first run changed nothing: were the nodes not bare, or did --check touch them?")
    second = step("The same again changes nothing", *playbook, "site.yml", *LIMIT)
    if any(changed(second).values()) or len(changed(second)) < 4:
        raise Failed(f"the second run was to change nothing, but: {changed(second)}")


TIMES: list[tuple[str, float]] = []


def main() -> int:
    """Run lab up, demo, lab down."""
    os.environ |= {
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache" / "collections" / BIN.parent.name),
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
    }
    lab = (sys.executable, ROOT / "lab" / "lab")
    code = 0
    try:
        step("What the lab needs", *lab, "install-deps")
        step("Four virtual Sparks", *lab, "up", "--nodes", "4")
        demo((BIN / "ansible-playbook",))
    except Failed as exc:
        print(f"\ndemo: {exc}", file=sys.stderr)
        code = 1
    finally:
        if not os.environ.get("KEEP"):
            subprocess.run([*map(str, lab), "down"], check=False)
    print("\n=== Summary")
    for title, seconds in TIMES:
        print(f"{seconds:6.0f} s  {title}")
    print(
        "demo "
        + (
            "failed"
            if code
            else "passed: four Sparks, two functions each, every pair proven, second run changed nothing"
        )
    )
    return code


if __name__ == "__main__":
    raise SystemExit(main())
