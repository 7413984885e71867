"""Two stand-ins of Sparks with a cable between their ports 0, each with a network namespace of its own and a made-up /sys.

Their functions are veths on a bridge, as two cabled ports with both their functions would be, so what they send is real frames.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import typing as t

from ansible_collections.dgxspark.cluster.tests.unit import fakes
from ansible_collections.dgxspark.cluster.tests.unit.namespaces import Host, Lan
from ansible_collections.dgxspark.cluster.tests.unit.owner import Owner

HOSTS = ("192.0.2.11", "192.0.2.12")


class Site:
    """Two stand-ins with a cable between their ports 0, and the owner's folder."""

    def __init__(self, folder: pathlib.Path) -> None:
        (folder / "owner").mkdir()
        self.owner = Owner(folder / "owner")
        self.lan = Lan(folder / "lan")
        for number, address in enumerate(HOSTS, 1):
            self._plug(number, self.lan.host(address, address), folder / f"fake{number}")

    def _plug(self, number: int, host: Host, folder: pathlib.Path) -> None:
        node = fakes.spark(folder, vfs=0)
        for place, device in enumerate(node.devices.values()):
            device.mac = f"4c:bb:47:{number:02x}:00:{place:02x}"
            device.carrier = device.pci is None or device.pci.endswith(".0")
        node.sync()
        wire = "ip link show wire >/dev/null 2>&1 || ip link add wire type bridge; ip link set wire up"
        bridge = f"nsenter -t {self.lan.bridge.pid} -n -- sh -c"
        host.sh(f"{bridge} '{wire}'")
        for place, device in enumerate(d for d in node.devices.values() if d.pci):
            peer = f"w{number}{place}"
            host.sh(
                f"ip link add {device.name} address {device.mac} type veth peer name {peer} netns {self.lan.bridge.pid}"
            )
            if device.carrier:
                host.sh(f"{bridge} 'ip link set {peer} master wire up'; ip link set {device.name} up")
        host.sh("ip link add docker0 type bridge; ip address add 10.100.7.1/24 dev docker0; ip link set docker0 up")
        host.sh(f"mount --bind {node.sysfs} /sys")

    def type(self, command: t.Sequence[str], *more: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the guide, with the variables to reach these stand-ins."""
        reach = {
            "ansible_connection": "local",
            "ansible_become": False,
            "ansible_python_interpreter": f"{self.lan.folder}/{{{{ inventory_hostname }}}}/python",
        }
        told = (
            [] if "my-cluster/inventory" in command else ["-e", json.dumps(reach), "-e", "dgxspark_discover_window=6"]
        )
        done = self.owner.typed(*command, *told, *more)
        assert "Traceback" not in done.stdout + done.stderr
        return done

    @property
    def folder(self) -> pathlib.Path:
        return self.owner.folder / "my-cluster"

    def files(self) -> dict[str, str]:
        """The folder's files and their contents; pages count as empty, since they show the memory that is free now."""
        there = {str(p.relative_to(self.folder)): p.read_text() for p in self.folder.rglob("*") if p.is_file()}
        return there | {name: "" for name in there if name.endswith(".html")}
