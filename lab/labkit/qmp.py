# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""QEMU's control socket."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from labkit.errors import LabError


class Qmp:
    """One connection to a running QEMU; use it in a `with` statement."""

    def __init__(self, path: Path, timeout: float = 60.0) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout)
        try:
            self.socket.connect(str(path))
            self.stream = self.socket.makefile("rw", encoding="utf-8")
            self.stream.readline()
            self.command("qmp_capabilities")
        except OSError as error:
            self.socket.close()
            raise LabError(f"QEMU does not answer on {path}: {error.strerror or error}.") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stream.close()
        self.socket.close()

    def command(self, verb: str, /, **arguments: Any) -> Any:
        """Run one command and return its result.

        Raises LabError with QEMU's own message if it refuses.
        """
        try:
            self.stream.write(json.dumps({"execute": verb, "arguments": arguments}) + "\n")
            self.stream.flush()
            while line := self.stream.readline():
                reply = json.loads(line)
                if "error" in reply:
                    raise LabError(f"QEMU refused {verb} on {self.path}: {reply['error']['desc']}.")
                if "return" in reply:
                    return reply["return"]
        except OSError as error:
            raise LabError(f"QEMU stopped answering {verb} on {self.path}: {error.strerror or error}.") from error
        raise LabError(f"QEMU ended while it was asked for {verb} on {self.path}.")

    def migration(self, command: str, uri: str, *, timeout: float) -> None:
        """Save to, or restore from, a URI and wait until it is done.

        Excludes guest memory, which has a file of its own.
        """
        self.command("migrate-set-capabilities", capabilities=[{"capability": "x-ignore-shared", "state": True}])
        self.command(command, uri=uri)
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            state = self.command("query-migrate")
            if state.get("status") == "completed":
                return
            if state.get("status") == "failed":
                raise LabError(f"QEMU could not {command} {uri}: {state.get('error-desc', 'no reason given')}.")
            time.sleep(0.02)
        raise LabError(f"QEMU did not finish {command} {uri} within {timeout:.0f} s.")
