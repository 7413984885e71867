"""An owner's inventory of Sparks, and what roce_info reads on them."""

from __future__ import annotations

import pathlib
import typing as t

import yaml

from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import names

UNSET = ...


class Inventory:
    """An owner's inventory: the settings, and the hosts of the group `dgx` with their variables."""

    def __init__(self, topology: str = "switch", hosts: int = 4) -> None:
        self.fabric: t.Any = {"hardware": "spark", "topology": topology, "management_networks": ["192.0.2.0/24"]}
        self.hosts: dict[str, dict[str, t.Any]] = {
            name: {"ansible_host": f"192.0.2.{10 + number}"} for number, name in enumerate(names(hosts), 1)
        }
        self.group = "dgx"

    def write(self, folder: pathlib.Path) -> pathlib.Path:
        folder.mkdir(parents=True)
        tree = {
            "all": {
                "vars": {} if self.fabric is UNSET else {"dgxspark_fabric": self.fabric},
                "hosts": {"controller": {"ansible_connection": "local"}},
                "children": {self.group: {"hosts": self.hosts}},
            }
        }
        (folder / "hosts.yml").write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
        return folder


def seen(*functions: dict[str, t.Any], **more: t.Any) -> dict[str, t.Any]:
    return {"functions": [{"totalvfs": 8, **function} for function in functions], **more}


FIRST = {"pci": "0000:01:00.0", "netdev": {"name": "enp1s0f0np0"}}
SECOND = {"pci": "0002:01:00.0", "netdev": {"name": "enP2p1s0f0np0"}}


def shown(gib: float, kernel: str = "6.17.0-1021-nvidia", *vfs: dict[str, t.Any]) -> dict[str, t.Any]:
    """What roce_info returns for a node: both functions, free memory, kernel."""
    return seen({**FIRST, "vfs": list(vfs)}, SECOND, mem_available_kib=round(gib * 2**20), kernel=kernel)
