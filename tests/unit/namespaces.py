"""Hosts that are a mount and a network namespace each, on one bridge: what a role installs never reaches this machine's own folders.

A host has its own /etc (a copy), /var/lib (of a given size), /usr/local/bin and /run, and stand-ins for systemctl and
journalctl (tests/stand_ins/systemctl). Ansible enters it through its Python interpreter. Needs root.
"""

from __future__ import annotations

import os
import pathlib
import shlex
import subprocess
import sys
import time

import pytest

STAND_INS = pathlib.Path(__file__).resolve().parents[1] / "stand_ins"


def possible() -> str | None:
    """Return why such hosts cannot be made here, or None."""
    if os.geteuid() != 0:
        return "root is needed for namespaces"
    tried = subprocess.run(
        ["unshare", "--mount", "--net", "--propagation", "private", "ip", "link", "add", "b0", "type", "bridge"],
        check=False,
        capture_output=True,
        text=True,
    )
    return None if tried.returncode == 0 else f"no namespaces here: {tried.stderr.strip()}"


def needed() -> pytest.MarkDecorator:
    """Return a mark that skips tests (`not run`) where such hosts cannot be made."""
    why = possible()
    return pytest.mark.skipif(why is not None, reason=f"not run: {why}")


class Lan:
    """A bridge in a namespace of its own, 192.0.2.1, and the hosts on it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.hosts: dict[str, Host] = {}
        self.bridge = hold(
            "ip link add br0 type bridge && ip address add 192.0.2.1/24 dev br0 && ip link set br0 up", "--net"
        )
        self.processes: list[subprocess.Popen[str]] = [self.bridge]

    def host(self, name: str, address: str, var_mib: int = 2048) -> Host:
        made = self.hosts[name] = Host(self, name, address, var_mib)
        return made

    def serve(self, folder: pathlib.Path) -> str:
        """Serve a folder over HTTP to the hosts; return its URL."""
        command = ["nsenter", "-t", str(self.bridge.pid), "-n", "--", "/usr/bin/python3", "-m", "http.server"]
        self.processes.append(
            subprocess.Popen(
                [*command, "--bind", "192.0.2.1", "--directory", str(folder), "8000"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        )
        for _turn in range(100):
            seen = subprocess.run(
                ["nsenter", "-t", str(self.bridge.pid), "-n", "--", "ss", "-ltnH"],
                check=False,
                capture_output=True,
                text=True,
            )
            if ":8000" in seen.stdout:
                break
            time.sleep(0.1)
        return "http://192.0.2.1:8000"

    def close(self) -> None:
        for host in self.hosts.values():
            host.close()
        for process in self.processes:
            process.kill()
            process.wait()


class Host:
    """One host of the lan."""

    def __init__(self, lan: Lan, name: str, address: str, var_mib: int) -> None:
        self.name, self.address = name, address
        self.folder = lan.folder / name
        self.folder.mkdir(parents=True)
        etc, lib = self.folder / "etc", self.folder / "lib"  # a Python may lie below /usr/local/lib
        veth = f"v{address.rpartition('.')[2]}"
        setup = f"""
            cp -a /etc {etc} && mount --bind {etc} /etc
            mount -t tmpfs -o size={var_mib}m,mode=755 var /var/lib
            mount -t tmpfs -o mode=755 bin /usr/local/bin
            mkdir {lib} && mount -t tmpfs -o mode=755 lib {lib} && mkdir {lib}/own {lib}/work
            mount -t overlay -o lowerdir=/usr/local/lib,upperdir={lib}/own,workdir={lib}/work lib /usr/local/lib
            mount -t tmpfs -o mode=755 run /run
            mount -t tmpfs cgroup /sys/fs/cgroup && echo 'cpu io memory pids' > /sys/fs/cgroup/cgroup.controllers
            mkdir -p /etc/systemd/system
            mount --bind {STAND_INS}/systemctl /usr/bin/systemctl
            mount --bind {STAND_INS}/systemctl /usr/bin/journalctl
            ip link set lo up
            ip link add {veth} type veth peer name peer netns {lan.bridge.pid}
            nsenter -t {lan.bridge.pid} -n -- ip link set peer name {veth} master br0 up
            ip link set {veth} name mgmt0 && ip address add {address}/24 dev mgmt0 && ip link set mgmt0 up
        """
        self.process = hold(setup, "--mount", "--net", "--propagation", "private")
        self.python = self._program("python", f"nsenter -t {self.process.pid} -m -n -- {sys.executable}")
        self._program("enter", f"nsenter -t {self.process.pid} -m -n --")  # for tests that know only the folder

    def _program(self, name: str, command: str) -> pathlib.Path:
        place = self.folder / name
        place.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
        place.chmod(0o755)
        return place

    @property
    def variables(self) -> dict[str, object]:
        """Its variables in an inventory."""
        return {
            "ansible_connection": "local",
            "ansible_python_interpreter": str(self.python),
            "k3s_node_ip": self.address,
        }

    def sh(self, command: str, check: bool = True) -> str:
        done = subprocess.run(
            ["nsenter", "-t", str(self.process.pid), "-m", "-n", "--", "sh", "-c", command],
            check=False,
            capture_output=True,
            text=True,
        )
        assert not check or done.returncode == 0, f"{self.name}: {command}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def tree(self, *folders: str) -> dict[str, str]:
        """Return every file below some folders with its mode and digest."""
        out = self.sh(
            f"find {' '.join(folders)} -type f -printf '%m %p ' -exec sha256sum {{}} + 2>/dev/null", check=False
        )
        listed = self.sh(f"find {' '.join(folders)} -printf '%y %m %p %l\\n' 2>/dev/null", check=False)
        return {line.split()[2]: line for line in listed.splitlines()} | {"digests": " ".join(sorted(out.split()))}

    def close(self) -> None:
        self.sh("systemctl stop k3s.service k3s-agent.service; umount -l /sys/fs/cgroup", check=False)
        self.process.kill()
        self.process.wait()


def hold(setup: str, *namespaces: str) -> subprocess.Popen[str]:
    """Keep namespaces open with a process in them that has run the setup."""
    script = f"set -e; exec 2>&1\n{setup}\necho ready; exec sleep infinity"
    process = subprocess.Popen(["unshare", *namespaces, "sh", "-c", script], stdout=subprocess.PIPE, text=True)
    said = []
    assert process.stdout
    for line in process.stdout:
        if line.strip() == "ready":
            return process
        said.append(line)
    raise AssertionError(f"{shlex.quote(setup)}: {''.join(said)}")
