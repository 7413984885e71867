"""A fake Spark whose metrics are collected."""

from __future__ import annotations

import pathlib
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils import metrics
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import PlannedFunction, PlannedVf, to_plain
from ansible_collections.dgxspark.cluster.tests.unit.exposition import Samples, parse
from ansible_collections.dgxspark.cluster.tests.unit.fakes import FakeNode, spark

NOW = 1764024154.0
UID = "0123abcd-0000-4000-8000-0123456789ab"
GPU = "NVIDIA GB10, P0, {clock}, 3003, {power}, {heat}, {busy}\n"


def planned() -> list[dict[str, t.Any]]:
    made = []
    for number, (netdev, pci) in enumerate((("enp1s0f0np0", "0000:01:00.0"), ("enP2p1s0f0np0", "0002:01:00.0"))):
        net = [f"10.100.{10 * (1 + number) + i}" for i in (0, 1)]
        vfs = tuple(
            PlannedVf(i, purpose, "02:d6:00:00:00:01", f"{net[i]}.1", 24, f"{net[i]}.0/24", 9000)
            for i, purpose in enumerate(("serving", "bench"))
        )
        made.append(to_plain(PlannedFunction(f"p0f{number}", 0, number, "switch", netdev, pci, 9000, vfs)))
    return made


class Cluster:
    """A Spark as it is planned, with a GPU at work, and what its metrics say."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.node: FakeNode = spark(folder, vfs=2, ports=(0,))
        for number, stem in enumerate(("enp1s0f0", "enP2p1s0f0")):
            self.node.find(f"{stem}np0")[1].mtu = 9000
            self.node.sync()
            for index in (0, 1):
                self.node.address(f"{stem}v{index}", f"10.100.{10 * (1 + number) + index}.1/24")
        for hca in ("rocep1s0f0v0", "roceP2p1s0f0v0"):
            self.count(hca, "counters/port_xmit_data", 25)
            self.count(hca, "counters/port_rcv_data", 50)
            self.count(hca, "hw_counters/out_of_sequence", 3)
        self.gpu()
        self.settings: metrics.Settings = {
            "output": str(folder / "textfile" / "dgxspark.prom"),
            "device_ids": self.node.device_ids,
            "functions": planned(),
            "gid_index": None,
            "memory_floor_bytes": 2**30,
            "gpu": {"busy_percent": 90, "low_clock_mhz": 1400, "low_power_w": 40, "hot_c": 90},
            "verify": {"passed": True, "finished": 1764020000.0},
        }
        self.said: list[str] = []

    def count(self, hca: str, name: str, value: int) -> None:
        path = self.node.root / f"sys/class/infiniband/{hca}/ports/1/{name}"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{value}\n")

    def gpu(self, clock: t.Any = 2411, power: t.Any = 61.5, heat: t.Any = 70, busy: t.Any = 96) -> None:
        self.node.run.on(("nvidia-smi",), (0, GPU.format(clock=clock, power=power, heat=heat, busy=busy), ""))

    def rank(self, pid: str, number: int, pod: str = f"pod{UID.replace('-', '_')}") -> None:
        process = self.node.root / "proc" / pid
        (process / "ns").mkdir(parents=True)
        (process / "ns/net").symlink_to(self.node.root / "nsfs/host")
        (process / "cmdline").write_bytes(b"python3\0/dgxspark/supervisor.py\0/dgxspark/rank%d.json\0" % number)
        (process / "cgroup").write_text(f"0::/kubepods.slice/kubepods-{pod}.slice/cri-containerd-ab.scope\n")

    @property
    def place(self) -> metrics.Place:
        roots = {key: value for key, value in self.node.roots.items() if key != "system_root"}
        pods = str(self.node.root / "var/log/pods")
        return metrics.Place(Sysfs(self.node.sysfs), self.node.run, pods_root=pods, enter=self.node.enter, **roots)

    def read(self) -> Samples:
        text, self.said = metrics.collect(self.settings, self.place, NOW)
        return parse(text)
