"""A run of the fabric that is killed at a task boundary, then run again or torn down: the same end state each time."""

from __future__ import annotations

import pathlib
import subprocess
import uuid

import pytest
from harness import play, sh

pytestmark = pytest.mark.long

NODE = "spark1"
LIMIT = "~^spark1$"
PLUGINS = pathlib.Path(__file__).parent / "plugins" / "callback"

STATE = r"""
for p in enp1s0f0np0 enP2p1s0f0np0; do cat /sys/class/net/$p/device/sriov_numvfs; done
ip -o link show | awk '{print $2, $5}' | grep -vE '^lo' | sort
ip -br link | awk '{print $1, $3}' | sort
ip -4 -o address | awk '{print $2, $4}' | sort
for f in /proc/sys/net/ipv4/conf/en*/arp_ignore /proc/sys/net/ipv4/conf/en*/rp_filter; do echo $f $(cat $f); done
find /etc/netplan /etc/dgxspark /usr/local/lib/dgxspark /etc/systemd/system /etc/udev/rules.d -type f -exec sha256sum {} + 2>/dev/null | sort
ls /run/systemd/transient 2>/dev/null | grep dgxspark; ls /var/lib/dgxspark/netplan/pending 2>/dev/null
systemctl is-enabled dgxspark-fabric.service 2>/dev/null
true
"""
# What else a killed run may leave for the next one to start from. Numbers, process ids and tokens differ each time.
BESIDE = r"""
find /run/netplan /run/systemd/network /run/udev/rules.d /etc/sysctl.d /etc/modules-load.d /etc/modprobe.d -type f \
    -exec sha256sum {} + 2>/dev/null | sort
find /var/lib/dgxspark /run/dgxspark* /run/systemd/transient -type f -exec tail -n +1 -v {} + 2>/dev/null |
    sed -E 's/[0-9a-f]{8,}/TOKEN/g; s/[0-9]+/N/g' | tr , '\n' | sort -u
for d in /sys/class/net/*/device/driver; do echo $d $(readlink $d); done; ls /sys/class/infiniband; ip route
systemctl --failed --no-legend
true
"""


def state() -> str:
    return sh(NODE, STATE)


def fabric(*arguments: str, **environment: str):  # type: ignore[no-untyped-def]
    return play("site.yml", "--tags", "fabric", *arguments, limit=LIMIT, **environment)


def teardown() -> None:
    done = play("playbooks/teardown.yml", limit=LIMIT)
    assert done.code == 0, done.output


def killed_at(boundary: int, counter: pathlib.Path) -> str:
    """Run the fabric until task number `boundary` begins, then kill the controller; return the task's name."""
    mark = f"lab_run={uuid.uuid4()}"
    run = fabric(
        "-e",
        mark,
        ANSIBLE_CALLBACK_PLUGINS=str(PLUGINS),
        ANSIBLE_CALLBACKS_ENABLED="kill_at_task",
        DGXSPARK_TASK_COUNT=str(counter),
        DGXSPARK_KILL_AT=str(boundary),
    )
    reached, name = counter.read_text().split(" ", 1)
    if int(reached) < boundary:
        assert run.code == 0, run.output
        return ""
    assert run.code == -9, run.output
    # Workers of the killed controller may still hold the shared connection. Kill only this run's: others may be active.
    subprocess.run(["pkill", "-KILL", "-f", mark], check=False)
    return name.strip()


def boundaries(counter: pathlib.Path) -> int:
    run = fabric(
        ANSIBLE_CALLBACK_PLUGINS=str(PLUGINS),
        ANSIBLE_CALLBACKS_ENABLED="kill_at_task",
        DGXSPARK_TASK_COUNT=str(counter),
    )
    assert run.code == 0, run.output
    return int(counter.read_text().split()[0])


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, int]:
    """The bare state, the finished state, and the number of tasks of an undisturbed run."""
    teardown()
    bare = state()
    count = boundaries(tmp_path_factory.mktemp("count") / "tasks")
    return bare, state(), count


def test_every_boundary(reference: tuple[str, str, int], tmp_path: pathlib.Path) -> None:
    """After a kill, the next run reaches the finished state, and teardown the bare one.

    The run is killed at each boundary. Most kills leave what another one left (the first ones: nothing); each such state is tried once.
    """
    bare, finished, count = reference
    assert count >= 5, "the fabric play has lost its tasks"
    teardown()
    assert state() == bare
    tried: set[str] = set()
    for boundary in range(1, count + 1):
        name = killed_at(boundary, tmp_path / "tasks")
        left = sh(NODE, STATE + BESIDE)
        new = left not in tried
        print(f"killed at task {boundary} of {count}: {name}{'' if new else ' (as before)'}", flush=True)
        if new:
            tried.add(left)
            again = fabric()
            assert again.code == 0, f"boundary {boundary} ({name}): {again.output}"
            assert state() == finished, f"boundary {boundary} ({name}), run again"
            teardown()
            assert state() == bare, f"boundary {boundary} ({name}), run again and torn down"
            killed_at(boundary, tmp_path / "tasks")
        if new or state() != bare:
            teardown()
            assert state() == bare, f"boundary {boundary} ({name}), torn down"
    assert len(tried) >= 3, "no kill left a half-made fabric"
