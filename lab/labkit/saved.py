# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The saved state: one node without a card, booted and warm, of which every node of a lab is a copy.

A copy's memory is the saved memory's file, mapped privately, so restoring costs almost nothing and nodes share what
they do not change. The card is plugged in afterwards and tells the copy which node it is.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from labkit import host, image, machine, processes, qemu
from labkit.config import Config
from labkit.errors import LabError
from labkit.qmp import Qmp

BOOT_SECONDS = 600.0
PROBE_SECONDS = 12.0
PART = "saved-state"
WARM_UP = """
systemctl is-system-running --wait >/dev/null
cd /root
for round in 1 2; do
  python3 - <<'PYTHON'
import ast, base64, fcntl, glob, grp, hashlib, importlib, ipaddress, json, locale, logging, os, platform, pwd, re
import runpy, select, selectors, shlex, shutil, signal, socket, stat, subprocess, tempfile, threading, traceback
import types, typing, uuid, zipfile, zipimport, dataclasses, datetime, syslog, yaml, email.parser, urllib.request
import ctypes, concurrent.futures, copy, enum, functools, inspect, itertools, pathlib, random, string, textwrap, time
PYTHON
  netplan generate
  netplan get >/dev/null
  networkctl --no-pager list >/dev/null
  ip -j -d link >/dev/null; ip -j address >/dev/null; ip route >/dev/null; ip neigh >/dev/null
  rdma -j link >/dev/null; ibv_devinfo >/dev/null 2>&1; ibv_devices >/dev/null
  ethtool -i enP7s7 >/dev/null
  systemctl show --property=Id ssh.service >/dev/null
  systemctl daemon-reload
  udevadm settle
  /bin/sh -c 'sleep 0; mkdir -p /root/.ansible/tmp; chmod 700 /root/.ansible /root/.ansible/tmp; test -e /proc; ls / >/dev/null'
done
ib_write_bw --version >/dev/null 2>&1; ping -V >/dev/null; arping -V >/dev/null; lspci >/dev/null
sync
"""


@dataclass(frozen=True)
class State:
    """The files of a saved state."""

    folder: Path

    @property
    def memory(self) -> Path:
        """The guest's memory."""
        return self.folder / "memory"

    @property
    def devices(self) -> Path:
        """Everything else of the machine."""
        return self.folder / "devices"

    @property
    def disk(self) -> Path:
        """What the node had written to its disk."""
        return self.folder / "disk.qcow2"


def key(image_folder: Path, accelerator: str, memory_mib: int, cpus: int) -> str:
    """The saved state's name in the cache."""
    code = [(name, (image.HERE / name).read_bytes()) for name in ("qemu.py", "saved.py")]
    facts = f"{image_folder.name} {accelerator} {memory_mib} {cpus} {host.qemu_version()}".encode()
    return image.digest([*code, ("facts", facts)])


def accelerator(config: Config, image_folder: Path, say: Callable[[str], None]) -> str:
    """`kvm` where the lab's own kernel really runs under it, else `tcg` (plain emulation).

    There are machines whose /dev/kvm opens and makes machines that never get anywhere, so the answer is tried once and
    kept. DGXSPARK_LAB_ACCEL=tcg or kvm overrides it.
    """
    if chosen := os.environ.get("DGXSPARK_LAB_ACCEL"):
        if chosen not in ("tcg", "kvm"):
            raise LabError(f"DGXSPARK_LAB_ACCEL is {chosen!r}.", "It may be tcg or kvm; leave it unset to find out.")
        return chosen
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    kept = config.cache / "accelerators"
    kept.mkdir(exist_ok=True)
    answer = kept / image.digest([("host", f"{os.uname().release} {host.qemu_version()}".encode())])
    if not answer.exists():
        say(f"Trying whether KVM works here (up to {PROBE_SECONDS:.0f} s) ...")
        new = answer.with_suffix(".new")
        new.write_text("kvm" if _kvm_works(config, image_folder) else "tcg", encoding="utf-8")
        new.rename(answer)
    return answer.read_text(encoding="utf-8")


def _kvm_works(config: Config, image_folder: Path) -> bool:
    folder = config.run / "probe"
    folder.mkdir()
    console = folder / "console"
    child = subprocess.Popen(
        [
            *("qemu-system-x86_64", "-name", processes.marker(config.run, "probe"), "-machine", "q35", "-accel", "kvm"),
            *("-cpu", "host", "-m", "256", "-nodefaults", "-display", "none", "-serial", f"file:{console}"),
            *("-kernel", str(image_folder / "vmlinuz"), "-initrd", str(image_folder / "initrd")),
            *("-append", qemu.KERNEL_COMMAND_LINE),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=image.die_with_parent,
    )
    try:
        until = time.monotonic() + PROBE_SECONDS
        while time.monotonic() < until and child.poll() is None:
            if console.exists() and b"the kernel runs" in console.read_bytes():
                return True
            time.sleep(0.1)
        return False
    finally:
        child.kill()
        child.wait()


def ensure(config: Config, image_folder: Path, accel: str, say: Callable[[str], None]) -> State:
    """The saved state for an image; makes it if need be. Call it under the cache's lock."""
    name = key(image_folder, accel, config.memory_mib, config.cpus)
    state = State(config.cache / "states" / name)
    if state.folder.is_dir():
        os.utime(state.folder)
        return state
    say("Making the saved state, once: about half a minute ...")
    begun = time.monotonic()
    with image.building(config, "states", name) as folder:
        _make(config, image_folder, accel, State(folder))
    say(f"Saved state made in {time.monotonic() - begun:.0f} s.")
    return state


def _make(config: Config, image_folder: Path, accel: str, state: State) -> None:
    """Boot a node without a card, use once what will be used, and save it."""
    folder = config.run / PART
    folder.mkdir()
    machine.make_disk(image_folder / "root.ext4", state.disk)
    model = qemu.Machine(
        marker=processes.marker(config.run, PART),
        image=image_folder,
        disk=state.disk,
        folder=folder,
        memory=state.memory,
        accelerator=accel,
        port=config.port(0),
        memory_mib=config.memory_mib,
        cpus=config.cpus,
    )
    with (folder / "errors").open("w+") as errors:
        child = subprocess.Popen(
            qemu.command(model, shared_memory=True),
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            preexec_fn=image.die_with_parent,
        )
        try:
            until = time.monotonic() + BOOT_SECONDS
            while not machine.greets(config.port(0)):
                if child.poll() is not None or time.monotonic() > until:
                    errors.seek(0)
                    said = errors.read().strip() or machine.console_tail(model.console) or "nothing"
                    raise LabError(f"The node for the saved state did not start; it said: {said}", "Try --cold.")
                time.sleep(0.1)
            machine.log_in(config, 0, WARM_UP, timeout=BOOT_SECONDS)
            with Qmp(model.qmp) as qmp:
                qmp.command("stop")
                qmp.migration("migrate", f"exec:cat >'{state.devices}'", timeout=60)
                qmp.command("quit")
            child.wait(20)
        finally:
            child.kill()
            child.wait()
