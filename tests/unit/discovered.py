"""What nodes show to discover, made up: Sparks with wires between their ports, in the plain form that the modules return.

site = Site(3); site.wire((1, 1), (2, 0)); site.wire((1, 0), (2, 0), (3, 0)) …; site.hosts()
"""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.link_probe import Heard
from ansible_collections.dgxspark.cluster.plugins.module_utils.lldp import Neighbour
from ansible_collections.dgxspark.cluster.plugins.module_utils.survey import Net, Survey
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Function, Hca, Netdev, Node, to_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge

CLASS = knowledge.get("hardware", "spark")
End = tuple[int, int]  # a host's number from 1, and its port


def address(number: int) -> str:
    return f"192.0.2.{10 + number}"


class Site:
    """Sparks. `twins`: whether both functions of a port hear what is on its wire, or each only its own kind."""

    def __init__(self, count: int, *, twins: bool = True, totalvfs: int = 16) -> None:
        self.count, self.twins, self.totalvfs = count, twins, totalvfs
        self.wires: list[tuple[End, ...]] = []
        self.more: dict[int, dict[str, t.Any]] = {number: {} for number in range(1, count + 1)}
        self.networks: dict[int, list[Net]] = {number: [] for number in self.more}
        self.other: dict[int, list[Netdev]] = {
            number: [Netdev("enP7s7", mac=f"4c:bb:47:ff:00:{number:02x}", ipv4=(f"{address(number)}/24",))]
            for number in self.more
        }
        self.neighbours: dict[int, list[Neighbour]] = {number: [] for number in self.more}
        self.functions: dict[int, list[Function]] = {number: self._functions(number) for number in self.more}

    def _functions(self, number: int) -> list[Function]:
        return [
            Function(
                pci=slot["pci"],
                device_id="15b3:1021",
                driver="mlx5_core",
                firmware="28.45.4028",
                phys_port=f"p{slot['port']}",
                netdev=Netdev(slot["netdev"], mac=_mac(number, slot), carrier=False, speed_mbps=None),
                hca=Hca(f"roce{slot['slot']}"),
                totalvfs=self.totalvfs,
                numvfs=0,
            )
            for slot in CLASS["slots"]
        ]

    def wire(self, *ends: End) -> None:
        self.wires.append(ends)

    def hosts(self) -> dict[str, dict[str, t.Any]]:
        plugged = {end for wire in self.wires for end in wire}
        found: dict[str, dict[str, t.Any]] = {}
        for number in self.more:
            functions = []
            for slot, function in zip(CLASS["slots"], self.functions[number], strict=False):
                link = (number, slot["port"]) in plugged
                plain = to_plain(function)
                if plain["netdev"] and link:
                    plain["netdev"] |= {"carrier": True, "speed_mbps": 200000, "operstate": "up"}
                functions.append(plain)
            node = to_plain(
                Node(kernel="6.17.0-1014-nvidia", mem_available_kib=117440512, other=tuple(self.other[number]))
            )
            survey = Survey(
                networks=tuple(self.networks[number]), uplink="enP7s7", neighbours=tuple(self.neighbours[number])
            )
            found[address(number)] = {
                "reach": {"ansible_user": "nvidia", "ansible_become": True},
                "roce": node | {"functions": functions},
                "survey": to_plain(survey),
                "links": to_plain(self._heard(number)),
            } | self.more[number]
        return found

    def _heard(self, number: int) -> list[Heard]:
        heard = []
        for slot in CLASS["slots"]:
            here = (number, slot["port"])
            macs = [
                _mac(other, far)
                for wire in self.wires
                if here in wire
                for other, port in wire
                for far in CLASS["slots"]
                if far["port"] == port
                and (other, far["slot"]) != (number, slot["slot"])
                and (self.twins or far["function"] == slot["function"])
            ]
            heard.append(Heard(slot["netdev"], tuple(sorted(macs))))
        return heard


def _mac(number: int, slot: t.Mapping[str, t.Any]) -> str:
    return f"4c:bb:47:00:{number:02x}:{slot['port']}{slot['function']}"
