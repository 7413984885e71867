# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starting one virtual machine, and waiting for it."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from labkit import host, processes, qemu
from labkit.config import FUNCTIONS, Config, card_mac, plug_name
from labkit.errors import LabError
from labkit.qmp import Qmp

RESTORE_SECONDS = 60.0


def make_disk(backing: Path, disk: Path) -> None:
    """Create a disk that starts as its backing file and keeps what is written to it."""
    kind = "qcow2" if backing.suffix == ".qcow2" else "raw"
    run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", kind, "-b", str(backing), str(disk)])


def run(command: list[str]) -> None:
    """Run a program of the lab.

    Raises LabError with its last lines if it fails.
    """
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode:
        last = " | ".join(result.stderr.strip().splitlines()[-3:])
        raise LabError(f"{command[0]} failed: {last or f'exit status {result.returncode}'}.")


def _card(node: int, function: int, wire: Path, number: int) -> tuple[dict[str, object], dict[str, object]]:
    """Return one function, on the socket by which the switch identifies it. number: how often its machine was replaced."""
    plug = wire.with_name(f"{wire.name}-{plug_name(node, function)}")
    netdev, device = qemu.card(node, function, plug, host.reconnect())
    return netdev, {**device, "mac": card_mac(node, function, number)}


def boot(machine: qemu.Machine, node: int, wire: Path, number: int = 0) -> None:
    """Start a node from its disk, with its card plugged in from the beginning."""
    options: list[str] = []
    for function in range(len(FUNCTIONS)):
        netdev, device = _card(node, function, wire, number)
        options += ["-netdev", json.dumps(netdev), "-device", json.dumps(device)]
    run([*qemu.command(machine), *options, "-daemonize", "-pidfile", str(machine.pid_file)])


def restore(machine: qemu.Machine, node: int, wire: Path, devices: Path, number: int = 0) -> None:
    """Start a node from a saved state, then plug in its card, which tells it who it is."""
    run([*qemu.command(machine), "-incoming", "defer", "-daemonize", "-pidfile", str(machine.pid_file)])
    with Qmp(machine.qmp) as qmp:
        qmp.migration("migrate-incoming", f"exec:cat '{devices}'", timeout=RESTORE_SECONDS)
        for function in range(len(FUNCTIONS)):
            netdev, device = _card(node, function, wire, number)
            qmp.command("netdev_add", **netdev)
            qmp.command("device_add", **device)
        qmp.command("cont")


def console_tail(console: Path, lines: int = 4) -> str:
    """Return the last lines of a console."""
    try:
        text = console.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return " | ".join([line.strip() for line in text.splitlines() if line.strip()][-lines:])


def greets(port: int) -> bool:
    """Whether an ssh server answers; QEMU itself accepts connections long before that."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def wait_until(machine: qemu.Machine, name: str, alive: Callable[[], bool], patience: processes.Patience) -> None:
    """Wait until the node has its name and card, and its ssh server answers.

    Raises LabError that names the node if it ends or takes too long.
    """
    said = f"dgxspark-lab: {name} ready".encode()
    while True:
        ready = machine.console.exists() and said in machine.console.read_bytes()
        if ready and machine.port and greets(machine.port):
            return
        tail = console_tail(machine.console)
        last = f"; its console ends with: {tail}" if tail else ""
        if not alive():
            raise LabError(f"{name}: QEMU ended while the node was starting{last}.", "lab/lab up starts it again.")
        if patience.over():
            raise LabError(
                f"{name} did not answer ssh within {patience.seconds:.0f} s{last}.",
                f"Is the machine overloaded? The whole console is in {machine.console}.",
            )
        time.sleep(0.1)


def ssh_command(config: Config, node: int) -> list[str]:
    """Return the ssh command that reaches a node."""
    return ["ssh", *config.ssh_options(), "-p", str(config.port(node)), "root@127.0.0.1"]


def log_in(config: Config, node: int, command: str, *, timeout: float = 60.0) -> str:
    """Run a shell command on a node and return its output.

    Raises LabError if ssh or the command fails.
    """
    try:
        result = subprocess.run(
            [*ssh_command(config, node), command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LabError(f"spark{node} did not finish a command within {timeout:.0f} s: {command}") from None
    if result.returncode:
        raise LabError(
            f"spark{node}: {result.stderr.strip() or f'exit status {result.returncode}'} (command: {command})"
        )
    return result.stdout


def is_running(run_folder: Path, part: str) -> bool:
    """Whether a part of the lab has a process."""
    return part in processes.find(run_folder)
