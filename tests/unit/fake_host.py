"""The fake node of fakes.py as the restorer sees it: its writes and commands change the node as a real kernel would."""

from __future__ import annotations

import pathlib
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.fabric import restore
from ansible_collections.dgxspark.cluster.tests.unit.fakes import FakeNode


class FakeHost(restore.KernelHost):
    """`log` has every write and command that was meant to change something; `fail` maps a path's end to an error."""

    def __init__(self, node: FakeNode) -> None:
        super().__init__(node.sysfs, node.proc, str(node.root / "run/dgxspark-fabric"), str(node.root / "run/udev"))
        self.node = node
        self.log: list[str] = []
        self.fail: dict[str, OSError] = {}
        self.now = 0.0
        for pci in node.vf_pattern:
            pathlib.Path(self.pci(pci, "sriov_drivers_autoprobe")).write_text("1\n")

    def read(self, path: str) -> str | None:
        parts = path.split("/")
        if parts[-1] == "flags":
            device = self.node.devices.get(parts[-2])
            return None if device is None else hex(0x1002 | int(device.up))
        return super().read(path)

    def write(self, path: str, value: str) -> None:
        self.log.append(f"{path.removeprefix(str(self.node.root))}={value}")
        error = next((error for end, error in self.fail.items() if path.endswith(end)), None)
        parts = path.split("/")
        device = self.node.devices.get(parts[-2])
        try:
            if error:
                raise error
            if parts[-1] == "mtu" and device:
                device.mtu = int(value)
                self.node.sync()
            elif parts[-1] == "flags" and device:
                device.up = bool(int(value, 0) & 1)
                self.node.sync()
            elif parts[-1] == "drivers_probe":
                if self.driver(value) is None:
                    self.node.bind(value, self.vf_driver(value))
            else:
                self.node.write(path, value)
                if parts[-1] == "sriov_numvfs" and self.read(self.pci(parts[-2], "sriov_drivers_autoprobe")) == "0":
                    for _index, vf in self.node._vfs(parts[-2]):
                        self.node.unbind(vf)
        except OSError as exc:
            raise restore.RestoreError(f"writing {value!r} to {path}: {exc.strerror}") from exc

    def vf_driver(self, vf: str) -> str:
        return "mlx5_core" if self.driver(self.target(self.pci(vf, "physfn")) or "") == "mlx5_core" else "igbvf"

    def command(self, argv: t.Sequence[str], text: str = "", timeout: float = 60) -> tuple[int, str, str]:
        words = list(argv)
        if words[0] == "nsenter":
            net = self.node.namespaces[pathlib.Path(words[1].removeprefix("--net=")).name]
            if words[2:4] == ["ip", "-j"]:
                return net.run(["ip", "-j", "-d", *words[4:]])
            return self._batch(net, text)
        if "-batch" in words:
            return self._batch(self.node, text)
        if words[:3] == ["ip", "-j", "link"]:
            words.insert(2, "-d")
        if words[:2] in (["systemctl", "enable"], ["systemctl", "disable"]):
            self.log.append(" ".join(words))
            self.node.units[words[-1]] = (words[1] + "d", "inactive")
            return 0, "", ""
        if words[:3] == ["ip", "netns", "delete"]:
            (pathlib.Path(self.node.netns) / words[3]).unlink()
        if words[0] in ("systemctl", "udevadm") or words[:3] == ["ip", "netns", "delete"]:
            self.log.append(" ".join(words))
            return 0, "", ""
        return self.node.run(words)

    def _batch(self, net: t.Any, text: str) -> tuple[int, str, str]:
        rc, errors = 0, ""
        for line in text.splitlines():
            self.log.append(f"ip {line}")
            words = line.split()
            assert words[:3] == ["link", "set", "dev"], line
            device = net.devices.get(words[3])
            if device is not None and words[4:5] == ["name"]:
                self.node.move(words[3], None, words[5])
                continue
            if device is not None and words[4:7] == ["netns", "1", "name"]:
                self.node.move(words[3], None, words[7])
                continue
            code, _out, err = net.run(["ip", *words])
            rc, errors = rc or code, errors + err
        return rc, "", errors

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def clock(self) -> float:
        return self.now

    def changes(self) -> list[str]:
        """The changes made to the node since the last call."""
        log, self.log = self.log, []
        return [line for line in log if not line.startswith("udevadm settle")]
