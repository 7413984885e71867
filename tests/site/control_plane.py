"""The control plane of the site's server, run beside the virtual machines for as long as the server's unit asks for it.

The same program that the guest has (guest/files/etc/dgxspark-stand-in/components) runs here, with the server's own certificates.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import pathlib
import socket
import struct
import subprocess
import sys
import tarfile
import threading

COMPONENTS = pathlib.Path(__file__).parent / "guest/files/etc/dgxspark-stand-in/components"
# As in that program: ports on the server's loopback.
API_AWAY, STARTER_AWAY = 16443, 16444


class ControlPlane:
    """Listens on `port`. folder: for its data, by the cluster's CA; programs: the folder with etcd's and Kubernetes' own.

    This machine's loopback must have the server's address: that is where the API is then.
    """

    def __init__(self, folder: pathlib.Path, programs: pathlib.Path) -> None:
        self.folder, self.programs = folder, programs
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]
        self.log = folder / "control-plane.log"
        threading.Thread(target=self._listen, daemon=True).start()

    def stop(self) -> None:
        self.socket.close()

    def _listen(self) -> None:
        while True:
            try:
                asked, _who = self.socket.accept()
            except OSError:  # stopped
                return
            with asked:
                self._run(asked)

    def _run(self, asked: socket.socket) -> None:
        """Run it until the client disconnects, or it ends."""
        with asked.makefile("rb") as stream:
            address, packed = (stream.read(struct.unpack("!I", stream.read(4))[0]) for _part in range(2))
        with tarfile.open(fileobj=io.BytesIO(packed)) as made:
            authority = made.extractfile("server/tls/server-ca.crt")
            assert authority
            data = self.folder / hashlib.sha256(authority.read()).hexdigest()[:16]
            made.extractall(data, filter="data")
        environment = {**os.environ, "DGXSPARK_STAND_IN_LIB": str(self.programs)}
        command = [sys.executable, str(COMPONENTS), "control-plane", str(data), address.decode()]
        with self.log.open("ab") as log:
            ran = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

        def tell_the_client() -> None:
            ran.wait()
            with contextlib.suppress(OSError):  # it has disconnected
                asked.shutdown(socket.SHUT_RDWR)

        threading.Thread(target=tell_the_client, daemon=True).start()
        try:
            while asked.recv(1):
                pass
        except OSError:
            pass
        ran.terminate()
        ran.wait()
