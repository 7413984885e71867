# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes' facts under their names in the new inventory, and the slot of each of their functions."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.link_probe import Heard
from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import read_in
from ansible_collections.dgxspark.cluster.plugins.module_utils.health import Health
from ansible_collections.dgxspark.cluster.plugins.module_utils.k3s.machine import Machine
from ansible_collections.dgxspark.cluster.plugins.module_utils.survey import Survey
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    CollectionError,
    Function,
    Node,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import unreached
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.answer import reason
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.settings import Hardware

Plain = t.Mapping[str, t.Any]
T = t.TypeVar("T")

# Connection variables that hold no secret.
CONNECTION = (
    "ansible_host",
    "ansible_port",
    "ansible_user",
    "ansible_connection",
    "ansible_python_interpreter",
    "ansible_ssh_private_key_file",
    "ansible_ssh_common_args",
    "ansible_ssh_extra_args",
    "ansible_ssh_executable",
    "ansible_become",
    "ansible_become_method",
)


@dataclass(frozen=True, slots=True)
class Seen:
    """One host. typed: its name in this run. reach: connection variables. error: why it could not be read, else None.

    None means not read; `unread` says what could not be read, and why.
    """

    name: str
    typed: str
    reach: dict[str, t.Any]
    error: str | None = None
    node: Node | None = None
    survey: Survey | None = None
    health: Health | None = None
    machine: Machine | None = None
    heard: tuple[Heard, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()

    @property
    def shown(self) -> str:
        """Its name for display: followed by the name in this run if that differs."""
        return self.name if self.name == self.typed else f"{self.name} ({self.typed})"


def read_seen(hosts: t.Mapping[str, Plain], keep_names: bool) -> list[Seen]:
    """Return the hosts in order.

    hosts: by name in this run, `reach`, `error`, and the modules' results: `roce`, `survey`, `health`, `machine`,
    `links`, with `unread` (what -> why). keep_names: whether the owner gave these names; else the hosts become spark1 and so
    on, with the name as address. Raises CollectionError for malformed input, or if there is no host.
    """
    if not hosts:
        raise CollectionError("there are no hosts to discover. Give the addresses with -i '192.0.2.11,192.0.2.12,'.")
    found = []
    for number, (typed, plain) in enumerate(hosts.items(), 1):
        reach = {key: value for key, value in (plain.get("reach") or {}).items() if key in CONNECTION}
        if not keep_names and reach.get("ansible_connection") != "local":
            reach.setdefault("ansible_host", typed)
        parts: dict[str, t.Any] = {}
        for key, field, cls in (
            ("roce", "node", Node),
            ("survey", "survey", Survey),
            ("health", "health", Health),
            ("machine", "machine", Machine),
        ):
            if plain.get(key):
                parts[field] = read_in(t.cast(t.Any, cls), plain[key], f"{typed}: {key}")
        links, left = _formed(plain, typed, "links", list), _formed(plain, typed, "unread", dict)
        heard = tuple(read_in(Heard, one, f"{typed}: links") for one in links)
        unread = tuple((str(what), str(why)) for what, why in left.items())
        name = typed if keep_names else f"spark{number}"
        error = unreached.short(reason({"msg": str(plain["error"])}))[0] if plain.get("error") else None
        found.append(Seen(name, typed, reach, error, heard=heard, unread=unread, **parts))
    return found


def _formed(plain: Plain, typed: str, key: str, kind: type[T]) -> T:
    """Return a part of what a host reported, empty if it is missing. Raises CollectionError if it has another form."""
    value = plain.get(key) or kind()
    if not isinstance(value, kind):
        raise CollectionError(f"{typed}: {key}: it is no {'list' if kind is list else 'mapping'}.")
    return value


def functions_by_slot(node: Node, hardware: Hardware) -> tuple[dict[str, Function], dict[str, dict[str, str]]]:
    """Return a node's functions by slot, and names for those that the hardware class names differently.

    A function is identified by its PCI address or its interface's name; the others take the remaining slots, by the driver's
    port number and then in order of their addresses.
    """
    left = list(node.functions)
    found: dict[str, Function] = {}
    for slot in hardware.slots:
        by_pci = next((f for f in left if f.pci == slot.pci), None)
        by_name = next((f for f in left if f.netdev and f.netdev.name == slot.netdev), None)
        function = by_pci if by_name in (None, by_pci) else None if by_pci else by_name
        if function:
            found[slot.slot] = function
            left.remove(function)
    named: dict[str, dict[str, str]] = {}
    for slot in hardware.slots:
        fitting = [f for f in left if f.phys_port in (None, f"p{slot.port}")]
        if slot.slot not in found and fitting:
            found[slot.slot] = fitting[0]
            named[slot.slot] = {"pci": fitting[0].pci}
            left.remove(fitting[0])
    return dict(sorted(found.items())), named
