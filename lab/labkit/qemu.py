# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a node is put together: the command line of its virtual machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from labkit.config import FUNCTIONS, card_mac

# Fewer cgroup controllers, none of which is used here: a kubelet reads the folders of each of them every two seconds.
KERNEL_COMMAND_LINE = (
    "console=ttyS0 quiet loglevel=3 panic=10 mitigations=off nokaslr no_timer_check tsc=reliable"
    " random.trust_cpu=on audit=0 selinux=0 apparmor=0 cgroup_disable=hugetlb,rdma,misc"
)
MANAGEMENT_MAC = "52:54:00:00:00:01"
"""The same in every node, each behind a network of its own: a saved state must fit any of them."""


@dataclass(frozen=True)
class Machine:
    """The files of one virtual machine; paths are absolute, QEMU changes its folder. image: None boots what is on the disk."""

    marker: str
    image: Path | None
    disk: Path
    folder: Path
    memory: Path | None
    accelerator: str
    port: int | None
    memory_mib: int
    cpus: int = 1

    @property
    def qmp(self) -> Path:
        """Its control socket."""
        return self.folder / "qmp"

    @property
    def pid_file(self) -> Path:
        """Where a detached QEMU writes its process number."""
        return self.folder / "pid"

    @property
    def console(self) -> Path:
        """What the node says on its serial console."""
        return self.folder / "console"


def accelerator_options(accelerator: str, memory_mib: int) -> list[str]:
    """CPU and accelerator. Emulation is quickest with the plainest CPU: nothing in the guest then picks wide vectors.

    A larger machine runs larger programs: translated code that has no room is translated again and again (Kubernetes' API
    server filled 128 MiB in a minute; `info jit` of QEMU's monitor counts the flushes).
    """
    if accelerator == "kvm":
        return ["-accel", "kvm", "-cpu", "host"]
    return ["-accel", f"tcg,thread=multi,tb-size={max(128, memory_mib // 4)}", "-cpu", "qemu64"]


def command(machine: Machine, *, shared_memory: bool = False) -> list[str]:
    """The machine without its card, with the two root ports that the card's functions are plugged into.

    `shared_memory` writes the guest's memory through to its file, as is needed to save it; otherwise the file is only
    the memory's start, and nodes share what they do not change.
    """
    forward = f",hostfwd=tcp:127.0.0.1:{machine.port}-:22" if machine.port else ""
    memory = [f"memory-backend-ram,id=ram,size={machine.memory_mib}M"]
    if machine.memory:
        share = "on" if shared_memory else "off"
        memory = [f"memory-backend-file,id=ram,size={machine.memory_mib}M,mem-path={machine.memory},share={share}"]
    kernel: list[str] = []
    if machine.image:
        kernel = ["-kernel", str(machine.image / "vmlinuz"), "-initrd", str(machine.image / "initrd")]
        kernel += ["-append", KERNEL_COMMAND_LINE]
    return [
        *("qemu-system-x86_64", "-name", machine.marker, "-nodefaults", "-no-user-config", "-display", "none"),
        *("-machine", "q35,memory-backend=ram,vmport=off", "-smp", str(machine.cpus), "-m", str(machine.memory_mib)),
        *accelerator_options(machine.accelerator, machine.memory_mib),
        *("-object", memory[0]),
        *("-rtc", "base=utc,clock=host", "-action", "shutdown=pause", "-device", "vmgenid,guid=auto"),
        *kernel,
        *("-serial", f"file:{machine.console}", "-qmp", f"unix:{machine.qmp},server=on,wait=off"),
        *("-device", "virtio-rng-pci"),
        *("-drive", f"if=none,id=root,file={machine.disk},cache=unsafe,discard=unmap,aio=threads"),
        *("-device", "virtio-blk-pci,drive=root"),
        *("-netdev", f"user,id=management,restrict=on{forward}"),
        *("-device", f"virtio-net-pci,netdev=management,mac={MANAGEMENT_MAC},romfile="),
        *(part for index in range(len(FUNCTIONS)) for part in ("-device", root_port(index))),
    ]


def root_port(function: int) -> str:
    """The slot of one function; the firmware gives the first bus 01 and the second bus 02."""
    return f"pcie-root-port,id=slot{function},slot={function + 1},chassis={function + 1},addr={function + 4:#x}"


def card(
    node: int, function: int, wire: Path, reconnect: dict[str, int]
) -> tuple[dict[str, object], dict[str, object]]:
    """One function of the card as QMP wants it: its end of the wire and the device."""
    netdev: dict[str, object] = {
        "type": "stream",
        "id": f"wire{function}",
        "server": False,
        "addr": {"type": "unix", "path": str(wire)},
        **reconnect,
    }
    device: dict[str, object] = {
        "driver": "igb",
        "id": f"card{function}",
        "netdev": f"wire{function}",
        "bus": f"slot{function}",
        "mac": card_mac(node, function),
        "romfile": "",
    }
    return netdev, device
