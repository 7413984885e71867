# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A whole lab: bringing its nodes and its switch up, inspecting, disturbing and taking them down."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from labkit import host, image, machine, processes, qemu, saved
from labkit.config import DEFAULT_NODES, FUNCTIONS, MAX_NODES, PORT_HINT, Config, node_name, plug_name
from labkit.errors import LabError
from labkit.qmp import Qmp

SWITCH = "switch"
POWERED_OFF = "powered off by itself"
TO_START = ("crashed", "incomplete", POWERED_OFF)
"""States of a node that `up` starts again."""


@dataclass(frozen=True)
class Node:
    """The known facts about a node."""

    number: int
    name: str
    port: int
    state: str
    memory_mib: int
    accelerator: str

    @property
    def healthy(self) -> bool:
        """Whether it is in the state in which its owner left it."""
        return self.state in ("running", "off")


class Cluster:
    """One lab of one user."""

    def __init__(self, config: Config, say: Callable[[str], None]) -> None:
        self.config = config
        self.say = say
        self.wire = config.run / "wire"
        self.cables_file = config.run / "cables"
        self.faults_file = config.run / "faults"

    # --- what is there -------------------------------------------------------------------------------------------

    def folder(self, node: int) -> Path:
        """Return a node's own folder."""
        return self.config.run / node_name(node)

    def nodes(self) -> list[Node]:
        """Return every node that was brought up and not taken down, in order."""
        running = processes.find(self.config.run)
        return [self._node(number, running) for number in range(1, MAX_NODES + 1) if self.folder(number).is_dir()]

    def _node(self, number: int, running: dict[str, int]) -> Node:
        name, folder = node_name(number), self.folder(number)
        pid = running.get(name)
        try:
            accelerator = str(json.loads((folder / "up").read_text(encoding="utf-8"))["accelerator"])
        except (OSError, ValueError, KeyError):
            accelerator = ""
        if pid is None:
            state = "off" if (folder / "off").exists() else "crashed" if accelerator else "incomplete"
        elif not accelerator:
            state = "starting"
        else:
            state = self._running_state(number)
        return Node(
            number, name, self.config.port(number), state, processes.resident_mib(pid) if pid else 0, accelerator
        )

    def _running_state(self, number: int) -> str:
        try:
            with Qmp(self.folder(number) / "qmp", timeout=5) as qmp:
                status = str(qmp.command("query-status")["status"])
        except LabError:
            return "crashed" if node_name(number) not in processes.find(self.config.run) else "silent"
        return {"shutdown": POWERED_OFF}.get(status, status)

    def require(self, number: int) -> Node:
        """Return the node if its virtual machine exists.

        Raises LabError if it does not.
        """
        node = self._node(number, processes.find(self.config.run)) if self.folder(number).is_dir() else None
        if node is None:
            raise LabError(f"{node_name(number)} is not up in lab {self.config.name!r}.", "lab/lab up starts it.")
        if node.state in ("crashed", "off", "incomplete"):
            raise LabError(f"{node.name} is {node.state}.", f"lab/lab power on {number} starts it from its own disk.")
        return node

    # --- up and down -----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Allow one change of a lab at a time. The lock is a kernel name: it vanishes with its process and leaves no file."""
        lock = socket.socket(socket.AF_UNIX)
        waiting = False
        try:
            while True:
                try:
                    lock.bind(f"\0{self.config.run}")
                    break
                except OSError:
                    if not waiting:
                        self.say(f"Waiting for another command that changes lab {self.config.name!r} ...")
                    waiting = True
                    time.sleep(0.2)
            yield
        finally:
            lock.close()

    def up(self, count: int | None, *, cold: bool) -> list[int]:
        """Bring nodes 1 to `count` up; return the numbers of those that had to be started."""
        host.check()
        with self.locked():
            self._tidy()
            here = {node.number: node for node in self.nodes()}
            wanted = range(1, (count or max(here, default=DEFAULT_NODES)) + 1)
            start = [n for n in wanted if n not in here or here[n].state in TO_START]
            if not start and processes.find(self.config.run).get(SWITCH):
                return []
            for number in start:
                processes.end(self.config.run, node_name(number))
            self._check_ports(start)
            self._make_run_folder()
            with image.locked(self.config, self.say):
                folder = image.ensure(self.config, self.say)
                accelerator = saved.accelerator(self.config, folder, self.say)
                fresh = [n for n in start if n not in here]
                state = None
                if fresh and not cold and not self.config.grub:
                    self._check_ports([0])
                    state = saved.ensure(self.config, folder, accelerator, self.say)
            self._start_switch()
            for number in start:
                if number in here:
                    self.say(f"{node_name(number)} was {here[number].state}: starting it again from its own disk.")
            with ThreadPoolExecutor(max(1, len(start))) as pool:
                list(pool.map(lambda n: self._start(n, folder, accelerator, state if n in fresh else None), start))
            return start

    def _tidy(self) -> None:
        """Clean up after a killed `up`: nodes without their record, and the machine that makes the saved state."""
        running = processes.find(self.config.run)
        for part in running:
            complete = part == SWITCH or (self.config.run / part / "up").exists()
            if not complete:
                processes.end(self.config.run, part)
        if self.config.run.is_dir():
            for folder in self.config.run.iterdir():
                if folder.is_dir() and not (folder / "up").exists():
                    shutil.rmtree(folder, ignore_errors=True)

    def _make_run_folder(self) -> None:
        self.config.run.mkdir(mode=0o700, exist_ok=True)
        facts = self.config.run.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
            raise LabError(f"{self.config.run} belongs to somebody else.", "Choose another DGXSPARK_LAB_NAME.")

    def _port_is_free(self, port: int) -> bool:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
        return True

    def _check_ports(self, numbers: list[int]) -> None:
        taken = [str(self.config.port(n)) for n in numbers if not self._port_is_free(self.config.port(n))]
        if taken:
            raise LabError(f"Port {', '.join(taken)} on 127.0.0.1 is taken, and the lab's ssh wants it.", PORT_HINT)

    def _start_switch(self) -> None:
        if SWITCH in processes.find(self.config.run):
            return
        plugs = [
            plug_name(number, function) for number in range(1, MAX_NODES + 1) for function in range(len(FUNCTIONS))
        ]
        for plug in plugs:
            self.wire.with_name(f"{self.wire.name}-{plug}").unlink(missing_ok=True)
        child = subprocess.Popen(
            [
                sys.executable,
                "-I",
                str(image.HERE / "switch.py"),
                str(self.wire),
                str(self.cables_file),
                str(self.faults_file),
                ",".join(plugs),
                processes.marker(self.config.run, SWITCH),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        assert child.stdout
        if child.stdout.readline() != b"ready\n":
            raise LabError("The lab's switch did not start.", f"Can a socket be made at {self.wire}?")

    def _machine(self, number: int, accelerator: str, image_folder: Path, memory: Path | None) -> qemu.Machine:
        folder = self.folder(number)
        return qemu.Machine(
            marker=processes.marker(self.config.run, node_name(number)),
            image=None if self.config.grub else image_folder,
            disk=folder / "disk.qcow2",
            folder=folder,
            memory=memory,
            accelerator=accelerator,
            port=self.config.port(number),
            memory_mib=self.config.memory_mib,
            cpus=self.config.cpus,
        )

    def _start(self, number: int, image_folder: Path, accelerator: str, state: saved.State | None) -> None:
        """Start a node: from its own disk if it has one, else from the saved state, else from the image."""
        folder = self.folder(number)
        folder.mkdir(exist_ok=True)
        for name in ("console", "qmp", "pid", "up", "off"):
            (folder / name).unlink(missing_ok=True)
        model = self._machine(number, accelerator, image_folder, state.memory if state else None)
        if not model.disk.exists():
            machine.make_disk(state.disk if state else image.disk(image_folder), model.disk)
        if state:
            machine.restore(model, number, self.wire, state.devices, self._machines_before(number))
        else:
            machine.boot(model, number, self.wire, self._machines_before(number))
        self._plug(number)
        name = node_name(number)
        machine.wait_until(
            model,
            name,
            lambda: machine.is_running(self.config.run, name),
            self._patience(number),
        )
        said = machine.log_in(self.config, number, "hostname").strip()
        if said != name:
            raise LabError(
                f"The node behind port {model.port} calls itself {said!r}, not {name}.", "lab/lab down, then up."
            )
        record = {"accelerator": accelerator, "image": str(image_folder)}
        (folder / "up.new").write_text(json.dumps(record), encoding="utf-8")
        (folder / "up.new").rename(folder / "up")

    def down(self) -> bool:
        """End all processes of the lab and remove its folder; return whether there was anything."""
        with self.locked():
            found = list(processes.find(self.config.run))
            with ThreadPoolExecutor(max(1, len(found))) as pool:
                list(pool.map(lambda part: processes.end(self.config.run, part), found))
            there = self.config.run.is_dir()
            shutil.rmtree(self.config.run, ignore_errors=True)
            return bool(found) or there

    # --- disturbances ----------------------------------------------------------------------------------------------

    def _machines_before(self, number: int) -> int:
        """Return how often the node's machine has been replaced."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.folder(number) / "machine").read_text(encoding="utf-8"))
        return 0

    def replace(self, number: int) -> None:
        """Replace a node's machine by another one, as delivered: a bare disk, other MACs."""
        with self.locked():
            folder = self.folder(number)
            if not (folder / "up").is_file():
                raise LabError(f"{node_name(number)} is not up in lab {self.config.name!r}.", "lab/lab up starts it.")
            processes.end(self.config.run, node_name(number), patience=0)
            with image.locked(self.config, self.say):
                base = image.ensure(self.config, self.say)
                accelerator = saved.accelerator(self.config, base, self.say)
                state = None if self.config.grub else saved.ensure(self.config, base, accelerator, self.say)
            (folder / "machine").write_text(str(self._machines_before(number) + 1), encoding="utf-8")
            (folder / "disk.qcow2").unlink(missing_ok=True)
            self._start(number, base, accelerator, state)

    def cables(self, pairs: list[list[str]] | None) -> None:
        """Join functions by one cable per pair of plugs, and unplug the rest; None: connect all of them to one switch."""
        ends = [plug for pair in pairs or [] for plug in pair]
        if twice := sorted({plug for plug in ends if ends.count(plug) > 1}):
            raise LabError(f"Function {', '.join(twice)} (node.function) has two cables.", "Give it one.")
        with self.locked():
            self._tell_switch(self.cables_file, pairs)
            for node in self.nodes():
                if node.state == "running":
                    self._plug(node.number)

    def port(self, number: int, function: int, fault: dict[str, float]) -> None:
        """Give the port of one function a fault (labkit.switch.Fault's fields); none mends it."""
        self.require(number)
        with self.locked():
            faults = {}
            with contextlib.suppress(FileNotFoundError):
                faults = json.loads(self.faults_file.read_text(encoding="utf-8"))
            self._tell_switch(self.faults_file, faults | {plug_name(number, function): fault})

    def _tell_switch(self, path: Path, data: object) -> None:
        """Let the switch read this data from one of its files; None removes the file."""
        switch = processes.find(self.config.run).get(SWITCH)
        if switch is None:
            raise LabError(f"Lab {self.config.name!r} is not up.", "lab/lab up starts it.")
        if data is None:
            path.unlink(missing_ok=True)
        else:
            new = path.with_suffix(".new")
            new.write_text(json.dumps(data), encoding="utf-8")
            new.rename(path)
        os.kill(switch, signal.SIGHUP)

    def _plug(self, number: int) -> None:
        """Give each of the node's functions a carrier if it has a cable."""
        cabled = None
        with contextlib.suppress(FileNotFoundError):
            cabled = {plug for pair in json.loads(self.cables_file.read_text(encoding="utf-8")) for plug in pair}
        with Qmp(self.folder(number) / "qmp") as qmp:
            for function in range(len(FUNCTIONS)):
                up = cabled is None or plug_name(number, function) in cabled
                qmp.command("set_link", name=f"card{function}", up=up)

    def link(self, number: int, function: int, *, up: bool) -> None:
        """Unplug or plug in the cable of one function."""
        self.require(number)
        with Qmp(self.folder(number) / "qmp") as qmp:
            qmp.command("set_link", name=f"card{function}", up=up)

    def crash(self, number: int) -> None:
        """Kill the node's virtual machine, as if QEMU had crashed."""
        self.require(number)
        processes.end(self.config.run, node_name(number), patience=0)

    def power(self, number: int, action: str) -> None:
        """Cut the power (off), restore it (on), or press reset."""
        name = node_name(number)
        if action == "on":
            with self.locked():
                if not self.folder(number).is_dir():
                    raise LabError(f"{name} is not up in lab {self.config.name!r}.", "lab/lab up starts it.")
                node = self._node(number, processes.find(self.config.run))
                if node.state == "running":
                    return
                processes.end(self.config.run, name, patience=0)
                record = json.loads((self.folder(number) / "up").read_text(encoding="utf-8"))
                self._check_ports([number])
                self._start(number, Path(record["image"]), record["accelerator"], None)
            return
        self.require(number)
        if action == "off":
            (self.folder(number) / "off").touch()
            processes.end(self.config.run, name, patience=0)
        else:
            with Qmp(self.folder(number) / "qmp") as qmp:
                qmp.command("system_reset")

    def reboot(self, number: int) -> float:
        """Reboot a node from inside and wait until it answers again; return the seconds it took."""
        self.require(number)
        patience = self._patience(number)
        boot = "cat /proc/sys/kernel/random/boot_id"
        before = machine.log_in(self.config, number, f"{boot}; systemctl --no-block reboot").strip()
        while not patience.over():
            time.sleep(0.5)
            if machine.greets(self.config.port(number)):
                with contextlib.suppress(LabError):
                    if machine.log_in(self.config, number, boot).strip() != before:
                        return patience.seconds
            self.require(number)
        raise LabError(f"{node_name(number)} did not come back within {patience.seconds:.0f} s.")

    def _patience(self, number: int) -> processes.Patience:
        """Return how long to wait for a node, by what its process does."""
        pid = processes.find(self.config.run).get(node_name(number), 0)
        return processes.Patience(lambda: processes.cpu_seconds(pid))

    # --- shown to others ---------------------------------------------------------------------------------------------

    def inventory(self) -> dict[str, object]:
        """Return the running nodes as an Ansible inventory."""
        hosts = {
            node.name: {"ansible_host": "127.0.0.1", "ansible_port": node.port}
            for node in self.nodes()
            if node.state == "running"
        }
        options = (
            f"-o HostKeyAlias=dgxspark-lab -o UserKnownHostsFile={self.config.known_hosts} -o StrictHostKeyChecking=yes"
        )
        variables = {
            "ansible_user": "root",
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_private_key_file": str(self.config.key),
            "ansible_ssh_common_args": options,
        }
        return {"all": {"children": {"dgx": {"hosts": hosts, "vars": variables}}}}

    def report(self) -> dict[str, object]:
        """Return the state of everything as plain data."""
        running = processes.find(self.config.run)
        nodes = self.nodes()
        switch = "running" if SWITCH in running else "crashed" if nodes else "absent"
        return {
            "name": self.config.name,
            "run": str(self.config.run),
            "cache": str(self.config.cache),
            "switch": switch,
            "functions": list(FUNCTIONS),
            "nodes": [asdict(node) for node in nodes],
            "healthy": bool(nodes) and switch == "running" and all(node.healthy for node in nodes),
        }
