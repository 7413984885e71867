"""Inputs of the plan for tests: a hardware class with invented numbers, and nodes that look like it."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    CollectionError,
    Function,
    Hca,
    Netdev,
    Node,
    Place,
    Vf,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.hosts import HostInput
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.plan import Plan, fabric_plan
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.topologies import TOPOLOGIES

# Two ports of two functions each, by other names and addresses than any real class has.
CLASS: dict[str, t.Any] = {
    "id": "invented",
    "slots": [
        {"slot": f"p{port}f{function}", "port": port, "function": function}
        | {"netdev": f"eth{port}x{function}", "pci": f"000{function}:0a:00.{port}"}
        for port in (0, 1)
        for function in (0, 1)
    ],
    "default_ports": {
        each.name: [0, 1] if each.neighbours else [0] for each in TOPOLOGIES.values() if each.by != "nothing"
    },
    "vf_stride": 8,
    "mtu_max": 9500,
}
ONE_PORT: dict[str, t.Any] = {
    **CLASS,
    "id": "one-port",
    "slots": CLASS["slots"][:2],
    "default_ports": {topology: [0] for topology in CLASS["default_ports"]},
}


def names(count: int) -> list[str]:
    return [f"spark{number}" for number in range(1, count + 1)]


def make(hosts: int | t.Sequence[HostInput], settings: t.Any, entry: t.Mapping[str, t.Any] | None = None) -> Plan:
    """Plan for this many unseen hosts, or for the given ones."""
    inputs = [HostInput(name) for name in names(hosts)] if isinstance(hosts, int) else hosts
    return fabric_plan(inputs, settings, CLASS if entry is None else entry)


def refusal(hosts: int | t.Sequence[HostInput], settings: t.Any, entry: t.Mapping[str, t.Any] | None = None) -> str:
    """Return the message with which a plan is refused."""
    try:
        make(hosts, settings, entry)
    except CollectionError as exc:
        assert exc.findings
        return str(exc)
    raise AssertionError("the plan was not refused")


def function(
    slot: int,
    *,
    host: int = 1,
    vfs: int = 0,
    totalvfs: int | None = 8,
    netdev: str | None = None,
    pci: str | None = None,
    **more: t.Any,
) -> Function:
    """Return a seen function of the class: the one of slot number `slot`."""
    expected = CLASS["slots"][slot]
    name = netdev or expected["netdev"]
    return Function(
        pci=pci or expected["pci"],
        totalvfs=totalvfs,
        numvfs=vfs,
        netdev=Netdev(name, mac=f"48:b0:2d:00:{host:02x}:{slot:02x}", **more),
        hca=Hca(f"roce{slot}"),
        vfs=tuple(
            Vf(
                index=index,
                pci=f"000{slot}:0b:00.{index}",
                netdev=Netdev(f"{name}v{index}", mac=f"0a:00:00:{host:02x}:{slot:02x}:{index:02x}"),
                hca=Hca(f"roce{slot}v{index}"),
                place=Place("host"),
            )
            for index in range(vfs)
        ),
    )


def node(*functions: Function, host: int = 1, vfs: int = 0, other: tuple[Netdev, ...] = ()) -> Node:
    """Return a node with these functions, or with all four of the class."""
    return Node(functions=functions or tuple(function(slot, host=host, vfs=vfs) for slot in range(4)), other=other)


def addresses(plan: Plan) -> dict[tuple[str, str, int], tuple[str, str]]:
    """Return address and MAC of every VF by host, slot and index."""
    return {
        (name, function["slot"], vf["index"]): (f"{vf['address']}/{vf['prefix']}", vf["mac"])
        for name, host in plan["hosts"].items()
        for function in host["functions"]
        for vf in function["vfs"]
    }
