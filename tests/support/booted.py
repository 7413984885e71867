"""A machine in namespaces of this one: systemd, a renderer, sshd and netplan of the lab's image, at this machine's own speed.

As root. It has this machine's kernel, so neither VFs nor RDMA: those are the emulated lab's. Its interfaces are ends of veth pairs:
enP7s7 leads to this machine, enp9s0 to enp9s1 beside it.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

LAB = pathlib.Path(__file__).resolve().parents[2] / "lab"
UNIFIED = pathlib.Path("/sys/fs/cgroup")
# What works on the kernel's own settings, on disks or on a console, and what kills for memory's sake.
MASKED = (
    *(
        "systemd-sysctl",
        "systemd-modules-load",
        "systemd-remount-fs",
        "systemd-udev-trigger",
        "systemd-binfmt",
        "earlyoom",
    ),
    *("systemd-random-seed", "systemd-timesyncd", "dgxspark-lab-identity", "rdma-ndd", "serial-getty@ttyS0"),
)
INIT = """\
set -e; r=$1; mount --make-rprivate /
mount -t proc proc $r/proc; mount -t sysfs sysfs $r/sys; mount -t cgroup2 cgroup2 $r/sys/fs/cgroup; mount -t tmpfs tmpfs $r/run -o mode=755
mount -t tmpfs tmpfs $r/dev -o mode=755; mkdir $r/dev/pts $r/dev/shm; mount -t tmpfs tmpfs $r/dev/shm
mount -t devpts devpts $r/dev/pts -o newinstance,ptmxmode=0666; ln -s pts/ptmx $r/dev/ptmx; ln -s /proc/self/fd $r/dev/fd
for d in null zero full random urandom tty; do touch $r/dev/$d; mount --bind /dev/$d $r/dev/$d; done
hostname booted
exec env -i container=lab PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot $r /usr/lib/systemd/systemd --show-status=0
"""


def _do(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, stdin=subprocess.DEVNULL)


def image(renderer: str = "networkd") -> pathlib.Path:
    """Return the lab's file system with that renderer, which is built if need be."""
    program = (
        "import os; from labkit import config, image; c = config.load(os.environ, os.getuid())\n"
        "with image.locked(c, print): print(image.ensure(c, print))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=LAB,
        env={**os.environ, "DGXSPARK_LAB_RENDERER": renderer},
        check=True,
        capture_output=True,
        text=True,
    )
    return pathlib.Path(done.stdout.splitlines()[-1]) / "root.ext4"


@contextlib.contextmanager
def mounted(place: pathlib.Path, renderer: str = "networkd") -> Iterator[pathlib.Path]:
    """Mount the lab's file system with that renderer at a folder, read-only."""
    place.mkdir()
    _do("mount", "-o", "ro,loop,noload", image(renderer), place)
    try:
        yield place
    finally:
        _do("umount", place)


def inventory(machine: Machine, folder: pathlib.Path) -> pathlib.Path:
    """Write an inventory of one Spark, this machine, into a folder; return its file."""
    cache = pathlib.Path(
        os.environ.get("DGXSPARK_LAB_CACHE") or pathlib.Path.home() / ".cache" / "dgxspark-lab"
    ).resolve()
    known = f"-o HostKeyAlias=dgxspark-lab -o UserKnownHostsFile={cache / 'known_hosts'} -o ConnectTimeout=10"
    host = {
        "ansible_host": machine.address,
        "ansible_user": "root",
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_ssh_private_key_file": str(cache / "id_lab"),
        "ansible_ssh_common_args": known,
        "ansible_control_path_dir": str(folder / "cp"),
    }
    place = folder / "hosts.json"
    place.write_text(json.dumps({"dgx": {"hosts": {f"node{machine.number}": host}}}), "utf-8")
    return place


class Machine:
    """One of them. number: from 1; its address is 10.99.NUMBER.2."""

    def __init__(self, number: int, lower: pathlib.Path, place: pathlib.Path) -> None:
        self.number, self.lower, self.place = number, lower, place
        self.address = f"10.99.{number}.2"
        self.root = place / "root"
        self.pid = 0

    def __enter__(self) -> Machine:
        memory = self.place / "memory"
        for folder in (self.root, memory):
            folder.mkdir(parents=True)
        _do("mount", "-t", "tmpfs", "-o", "size=300m", "tmpfs", memory)
        for name in ("up", "work"):
            (memory / name).mkdir()
        layers = f"lowerdir={self.lower},upperdir={memory / 'up'},workdir={memory / 'work'}"
        _do("mount", "-t", "overlay", "overlay", "-o", layers, self.root)
        units = self.root / "etc/systemd/system"
        for unit in MASKED:
            (units / f"{unit}.service").unlink(missing_ok=True)
            (units / f"{unit}.service").symlink_to("/dev/null")
        for link in (self.root / "etc/systemd/network").glob("*.link"):
            link.unlink()
        # NetworkManager leaves veth pairs to whoever made them, unless this file of its is gone.
        (self.root / "usr/lib/udev/rules.d/85-nm-unmanaged.rules").unlink(missing_ok=True)
        for file in (self.root / "etc/netplan").iterdir():
            file.write_text(file.read_text("utf-8").replace("10.0.2.15/24", f"{self.address}/24"), "utf-8")
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        (self.place / "init").write_text(INIT, "utf-8")
        inside = [
            "unshare",
            *["-m", "-p", "-n", "-u", "-i", "-C", "--fork", "--kill-child", "sh"],
            self.place / "init",
            self.root,
        ]
        unified = next((path for path in (UNIFIED / "unified", UNIFIED) if (path / "cgroup.procs").is_file()), UNIFIED)
        self.group = unified / f"booted-{os.getpid()}-{self.number}"
        self.group.mkdir()
        join = f'echo $$ >{self.group}/cgroup.procs; exec "$@"'
        with (self.place / "log").open("wb") as log:
            self.process = subprocess.Popen(
                ["sh", "-c", join, "sh", *map(str, inside)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        self._wait(lambda: children.read_text().strip() != "", "its first process")
        self.pid = int(children.read_text().split()[0])
        self._wait(lambda: "running" in self.run("systemctl is-system-running", check=False) or None, "systemd")
        veth = f"booted{self.number}"
        _do("ip", "link", "add", veth, "type", "veth", "peer", "name", "enP7s7", "netns", self.pid)
        _do("ip", "address", "add", f"10.99.{self.number}.1/24", "dev", veth)
        _do("ip", "link", "set", veth, "up")
        self.run("ip link add enp9s0 type veth peer name enp9s1; ip link set enp9s1 up; udevadm trigger -s net")
        self._wait(lambda: self.address in self.run("ip -4 address show enP7s7"), "its address")

    def _wait(self, holds, what: str) -> None:  # type: ignore[no-untyped-def]
        until = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < until, f"{what}: not within 60 s: {(self.place / 'log').read_text()}"
            time.sleep(0.2)

    def run(self, command: str, check: bool = True) -> str:
        """Run a command in it, not over the network; return what it printed."""
        words = ["nsenter", "-t", str(self.pid), "-a", "-r", "sh", "-c", command]
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=120)
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def reach(self, cut: bool) -> None:
        """Cut its management off, or connect it again."""
        _do("ip", "link", "set", f"booted{self.number}", "down" if cut else "up")

    def __exit__(self, *_error: object) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        time.sleep(0.5)
        for place in (self.root, self.place / "memory"):
            subprocess.run(["umount", "-l", str(place)], check=False)
        with contextlib.suppress(OSError):
            for group in sorted(self.group.rglob("*/"), reverse=True):
                group.rmdir()
            self.group.rmdir()
        shutil.rmtree(self.place, ignore_errors=True)
