"""The kubelet's side of device plugins, for a test: it registers them, lists their devices, and allocates each.

It uses Kubernetes' APIs deviceplugin v1beta1 and pluginregistration v1 as the kubelet does: it finds plugins by their sockets in
plugins_registry, and listens for those that register themselves at kubelet.sock. Messages are read and written by hand, since only
a few fields are needed (field numbers: kubernetes/kubelet, pkg/apis/*/api.proto).
"""

from __future__ import annotations

import concurrent.futures
import pathlib
import time
import typing as t

import grpc

from ansible_collections.dgxspark.cluster.tests.nodes.protobuf import pairs, read, text, written

Plain = dict[str, t.Any]


class Kubelet:
    """root: the folder above var/lib/kubelet. heard: resource → how it registered, its devices, and the answers to Allocate."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.place = root / "var/lib/kubelet/device-plugins"
        self.registry = root / "var/lib/kubelet/plugins_registry"
        for folder in (self.place, self.registry):
            folder.mkdir(parents=True, exist_ok=True)
        self.heard: dict[str, Plain] = {}
        self.known: set[str] = set()
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        handler = grpc.unary_unary_rpc_method_handler(self._register)
        self.server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": handler})]
        )
        for socket in self.place.iterdir():  # as a kubelet does when it starts, except for its checkpoint
            if socket.is_socket():
                socket.unlink()
        self.server.add_insecure_port(f"unix:{self.place}/kubelet.sock")
        self.server.start()

    def _register(self, data: bytes, _context: object) -> bytes:
        fields = read(data)
        assert text(fields, 1) == "v1beta1", fields
        self.heard[text(fields, 3)] = {"by": "kubelet.sock", "socket": self.place / text(fields, 2)}
        return b""

    def look(self, seconds: float) -> dict[str, Plain]:
        """Look for plugins for so many seconds; return what was heard from them."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for socket in self.registry.iterdir():
                if socket.name not in self.known and socket.is_socket():
                    self.known.add(socket.name)
                    self._found(socket)
            for told in list(self.heard.values()):
                if "devices" not in told:
                    self._ask(told)
            time.sleep(0.2)
        return self.heard

    def _found(self, socket: pathlib.Path) -> None:
        with grpc.insecure_channel(f"unix:{socket}") as channel:
            info = read(
                channel.unary_unary("/pluginregistration.Registration/GetInfo")(b"", wait_for_ready=True, timeout=10)
            )
            assert text(info, 1) == "DevicePlugin", info
            assert b"v1beta1" in info[4], info
            endpoint = self.root / text(info, 3).lstrip("/") if 3 in info else socket
            self.heard[text(info, 2)] = {"by": "plugins_registry", "socket": endpoint}
            channel.unary_unary("/pluginregistration.Registration/NotifyRegistrationStatus")(b"\x08\x01", timeout=10)

    def _ask(self, told: Plain) -> None:
        with grpc.insecure_channel(f"unix:{told['socket']}") as channel:
            watch = channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch")(b"", wait_for_ready=True, timeout=10)
            devices = [read(each) for each in read(next(watch)).get(1, ())]
            told["devices"] = {text(each, 1): text(each, 2) for each in devices}
            watch.cancel()
            told["allocated"] = {name: self._allocate(channel, name) for name in told["devices"]}
            told["refused"] = self._allocate(channel, "0000:ff:00.0")

    @staticmethod
    def _allocate(channel: grpc.Channel, device: str) -> Plain | str:
        asked = written(1, written(1, device.encode()))
        try:
            answer = read(channel.unary_unary("/v1beta1.DevicePlugin/Allocate")(asked, timeout=10))
        except grpc.RpcError as exc:
            return str(exc.details())  # type: ignore[attr-defined]
        (response,) = (read(each) for each in answer[1])
        specs = [read(each) for each in response.get(3, ())]
        return {
            "envs": pairs(response.get(1, ())),
            "devices": sorted(text(each, 2) for each in specs),
            "mounts": len(response.get(2, ())),
        }

    def stop(self) -> None:
        self.server.stop(0).wait()
