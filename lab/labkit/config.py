# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab's paths, its ports, and the names of its nodes and cards."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from labkit.errors import LabError

MAX_NODES = 8
DEFAULT_NODES = 4
DEFAULT_PORT = 22200
DEFAULT_MEMORY_MIB = 512
FUNCTIONS = ("enp1s0f0np0", "enP2p1s0f0np0")
"""The two PCIe functions of a node's one port, in the order of their root ports."""
RENDERERS = {"networkd": None, "networkmanager": Path(__file__).resolve().parent.parent / "networkmanager"}
"""Who configures a node's interfaces for netplan, and the folder that comes on top of the guest for it."""
BOOTS = {"kernel": None, "grub": Path(__file__).resolve().parent.parent / "grub"}
"""What boots a node: the kernel that QEMU is given, or GRUB on the node's own disk, and the folder that comes on top of the guest for it."""
HOST_KEY_ALIAS = "dgxspark-lab"
PORT_HINT = "Set DGXSPARK_LAB_PORT to the base of a free range: node N gets base + N on 127.0.0.1."


@dataclass(frozen=True)
class Config:
    """One lab, as its environment variables describe it."""

    name: str
    port_base: int
    cache: Path
    run: Path
    guest: Path | None = None
    memory_mib: int = DEFAULT_MEMORY_MIB
    cpus: int = 1
    grub: bool = False
    """Whether nodes boot by GRUB on their own disk, with any kernel that is installed there."""

    def port(self, node: int) -> int:
        """Return the TCP port on 127.0.0.1 that forwards to the node's ssh."""
        return self.port_base + node

    @property
    def key(self) -> Path:
        """The client's private key, shared by all labs with this cache."""
        return self.cache / "id_lab"

    @property
    def known_hosts(self) -> Path:
        """The file with the host key, under one alias for all nodes."""
        return self.cache / "known_hosts"

    def ssh_options(self) -> list[str]:
        """Return the options with which ssh reaches any node without touching the user's files."""
        options = [
            "BatchMode=yes",
            "IdentitiesOnly=yes",
            "StrictHostKeyChecking=yes",
            "LogLevel=ERROR",
            f"HostKeyAlias={HOST_KEY_ALIAS}",
            f"UserKnownHostsFile={self.known_hosts}",
        ]
        return ["-F", "none", "-i", str(self.key), *(part for option in options for part in ("-o", option))]


def load(environment: Mapping[str, str], user: int) -> Config:
    """Return the lab that the environment describes.

    Raises LabError for an unusable name, port, folder, memory size or number of CPUs.
    """
    name = environment.get("DGXSPARK_LAB_NAME") or "default"
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,29}", name):
        raise LabError(
            f"DGXSPARK_LAB_NAME is {name!r}, which cannot name a lab.",
            "Use up to 30 lower-case letters, digits, hyphens and underscores.",
        )
    text = environment.get("DGXSPARK_LAB_PORT") or str(DEFAULT_PORT)
    if not text.isascii() or not text.isdigit() or not 1024 <= int(text) <= 65535 - MAX_NODES:
        raise LabError(f"DGXSPARK_LAB_PORT is {text!r}, not a number from 1024 to {65535 - MAX_NODES}.", PORT_HINT)
    home = environment.get("HOME") or "/root"
    cache = environment.get("DGXSPARK_LAB_CACHE") or f"{home}/.cache/dgxspark-lab"
    chosen = {}
    for variable, known in (("DGXSPARK_LAB_RENDERER", RENDERERS), ("DGXSPARK_LAB_BOOT", BOOTS)):
        value = environment.get(variable) or next(iter(known))
        if value not in known:
            raise LabError(f"{variable} is {value!r}.", f"It may be {' or '.join(known)}.")
        if folder := known[value]:
            chosen[f"{variable}={value}"] = folder
    if environment.get("DGXSPARK_LAB_GUEST"):
        chosen["DGXSPARK_LAB_GUEST"] = Path.cwd() / environment["DGXSPARK_LAB_GUEST"]
    if len(chosen) > 1:
        raise LabError(
            f"{' and '.join(chosen)} are both set, and only one folder can come on top of the guest.",
            f"Leave one of them out; a folder of your own may have what you need of {next(iter(chosen.values()))}.",
        )
    guest = next(iter(chosen.values()), None)
    if guest and not guest.is_dir():
        raise LabError(
            f"DGXSPARK_LAB_GUEST is {str(guest)!r}, which is not a folder.",
            "Name one that is laid out like lab/guest: packages.txt, modules.txt, files/.",
        )
    memory = environment.get("DGXSPARK_LAB_MEMORY") or str(DEFAULT_MEMORY_MIB)
    if not memory.isascii() or not memory.isdigit() or not 256 <= int(memory) <= 65536:
        raise LabError(
            f"DGXSPARK_LAB_MEMORY is {memory!r}, not a number from 256 to 65536.", "It is each node's memory in MiB."
        )
    cpus = environment.get("DGXSPARK_LAB_CPUS") or "1"
    if cpus not in map(str, range(1, 9)):
        raise LabError(
            f"DGXSPARK_LAB_CPUS is {cpus!r}, not a number from 1 to 8.", "It is how many CPUs each node has."
        )
    # A short path outside the cache, because a unix socket's path may have at most 107 bytes.
    return Config(
        name=name,
        port_base=int(text),
        cache=Path.cwd() / cache,
        run=Path(f"/tmp/dgxspark-lab-{user}-{name}"),
        guest=guest,
        memory_mib=int(memory),
        cpus=int(cpus),
        grub=guest is not None and guest == BOOTS["grub"],
    )


def node_name(node: int) -> str:
    """Return the node's host name."""
    return f"spark{node}"


def node_number(text: str) -> int:
    """Parse `3` or `spark3`.

    Raises LabError for anything else.
    """
    number = text.removeprefix("spark")
    if not re.fullmatch(r"[1-9]", number) or int(number) > MAX_NODES:
        raise LabError(f"{text!r} is not a node.", f"Nodes are spark1 to spark{MAX_NODES}, or 1 to {MAX_NODES}.")
    return int(number)


def function_index(text: str) -> int:
    """Return the index of a card's function, given as its interface, its HCA, or its number (1 or 2).

    Raises LabError for anything else.
    """
    stems = [function.removesuffix("np0").removeprefix("en") for function in FUNCTIONS]
    for index, stem in enumerate(stems):
        if text in (str(index + 1), f"en{stem}np0", f"en{stem}", f"roce{stem}"):
            return index
    raise LabError(
        f"{text!r} is not a function of the card.", f"Functions are {FUNCTIONS[0]} (1) and {FUNCTIONS[1]} (2)."
    )


def card_mac(node: int, function: int, machine: int = 0) -> str:
    """Return the MAC of a node's function (0 or 1). The guest reads its number from the fifth byte.

    machine: how often this node's machine has been replaced; each machine has its own MACs.
    """
    return f"06:00:00:{machine % 256:02x}:{node:02x}:{function + 1:02x}"


def plug_name(node: int, function: int) -> str:
    """Return the switch's name for the plug of a node's function (0 or 1)."""
    return f"{node}.{function + 1}"


FAULTS = {"mtu": (68, 9216), "delay": (0, 10_000), "loss": (0, 100), "reorder": (0, 100)}
"""What may be wrong with a port of the switch, with its least and largest value: bytes, ms, percent, percent."""


def port_fault(words: list[str]) -> dict[str, float]:
    """Return a port's fault of words such as `mtu=1500 loss=2`; `well` is none.

    Raises LabError for anything else.
    """
    if words == ["well"]:
        return {}
    fault: dict[str, float] = {}
    for word in words:
        name, _equals, value = word.partition("=")
        if name not in FAULTS or name in fault or not re.fullmatch(r"\d{1,5}(\.\d{1,3})?", value, re.ASCII):
            raise LabError(
                f"{word!r} is no fault of a port.", f"Faults are {', '.join(f'{f}=N' for f in FAULTS)}, or well."
            )
        least, most = FAULTS[name]
        if not least <= float(value) <= most:
            raise LabError(f"{word!r} cannot be.", f"{name} is from {least} to {most}.")
        fault[name] = float(value)
    if fault.get("reorder") and not fault.get("delay"):
        raise LabError("reorder without delay changes nothing.", "Add delay=N: reordered frames overtake delayed ones.")
    return fault


def cable(text: str) -> list[str]:
    """Return the two plugs of a cable such as `spark1:2=spark2:1`.

    Raises LabError for anything else.
    """
    ends = [end.split(":") for end in text.split("=")]
    if len(ends) != 2 or any(len(end) != 2 for end in ends):
        raise LabError(f"{text!r} is not a cable.", "Say which two functions it joins, such as spark1:2=spark2:1.")
    return [plug_name(node_number(node), function_index(function)) for node, function in ends]
