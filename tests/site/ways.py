"""Ways between this machine and nodes whose addresses lead nowhere: their kubelets, the API and node ports here; the control plane there."""

from __future__ import annotations

import os
import pathlib
import subprocess
import threading
import typing as t

from ansible_collections.dgxspark.cluster.tests.nodes.lane import Lane
from ansible_collections.dgxspark.cluster.tests.site import control_plane

API, KUBELET = 6443, 10250


class Ways:
    """Tunnels through ssh to the nodes of a lab. addresses: each node's own; folder: for the control plane's data, of `server`."""

    def __init__(self, folder: pathlib.Path, addresses: t.Mapping[str, str], server: str) -> None:
        self.addresses, self.server = addresses, server
        self.control_plane = control_plane.ControlPlane(folder, Lane().bin)
        self.tunnels: dict[str, subprocess.Popen[bytes]] = {}
        self.threads: dict[str, threading.Thread] = {}
        self.left = threading.Event()

    def reach(self) -> None:
        """Put the nodes' addresses on loopback: kubelets are reached there by ssh, and the API is there, as for an owner's machine."""
        for node, own in self.addresses.items():
            subprocess.run(["ip", "address", "replace", f"{own}/32", "dev", "lo"], check=True)
            kubelet = f"{own}:{KUBELET}"
            ways = ["-L", f"{kubelet}:{kubelet}", "-R", f"{control_plane.API_AWAY}:{self.addresses[self.server]}:{API}"]
            if node == self.server:
                ways += ["-R", f"{control_plane.STARTER_AWAY}:127.0.0.1:{self.control_plane.port}"]
            self._open(node, node, ways)

    def node_port(self, node: str, port: int, inside: str) -> None:
        """Be the stand-in of kube-proxy for one port of a node: what asks for it reaches `inside`, an address and port of a pod."""
        self._open(f"{node}:{port}", node, ["-L", f"{self.addresses[node]}:{port}:{inside}"])

    def leave(self) -> None:
        """Undo all of it."""
        self.left.set()
        for name, thread in self.threads.items():
            while thread.is_alive():  # it may just have started another tunnel
                if name in self.tunnels:
                    self.tunnels[name].kill()
                thread.join(1)
        self.control_plane.stop()
        for own in self.addresses.values():
            subprocess.run(["ip", "address", "delete", f"{own}/32", "dev", "lo"], check=False)

    def _open(self, name: str, node: str, ways: t.Sequence[str]) -> None:
        """Keep ports forwarded until leave(), also after the node was away."""
        base = int(os.environ.get("DGXSPARK_LAB_PORT") or 22200)
        cache = os.environ.get("DGXSPARK_LAB_CACHE") or str(pathlib.Path.home() / ".cache" / "dgxspark-lab")
        options = ["ServerAliveInterval=20", "ServerAliveCountMax=3", "ExitOnForwardFailure=yes"]
        options += ["HostKeyAlias=dgxspark-lab", f"UserKnownHostsFile={cache}/known_hosts"]
        command = ["ssh", "-q", "-F", "none", "-N", "-i", f"{cache}/id_lab"]
        command += [part for option in options for part in ("-o", option)]
        command += [*ways, "-p", str(base + int(node.removeprefix("spark"))), "root@127.0.0.1"]

        def keep() -> None:
            while not self.left.is_set():
                self.tunnels[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL)
                self.tunnels[name].wait()
                self.left.wait(2)

        self.threads[name] = threading.Thread(target=keep, daemon=True)
        self.threads[name].start()
