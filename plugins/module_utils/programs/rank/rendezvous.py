# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run an engine with the first rank's address in place of that rank's name in its command.

`python3 rendezvous.py SECONDS NAME COMMAND …`. SGLang (0.5.10 to 0.5.23) accepts a name in --dist-init-addr but, with data-parallel
attention, passes it on to ZMQ, which binds only to addresses and interfaces. A name may have no address for a while: the
cluster's DNS knows a new pod's a moment after the pod starts.
"""

from __future__ import annotations

import os
import socket
import sys
import time
import typing as t


def address(name: str, seconds: float) -> str:
    """Return the IPv4 address of a name; OSError if it has none within `seconds`."""
    until = time.monotonic() + seconds
    while True:
        try:
            return str(socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


def main(arguments: t.Sequence[str]) -> None:
    """Replace this process with the command."""
    seconds, name, *command = arguments
    try:
        found = address(name, float(seconds))
    except OSError as exc:
        raise SystemExit(
            f"rendezvous: {name} has no address ({exc.strerror}). See CoreDNS, and the Service of that name."
        ) from exc
    argv = [word.replace(name, found) for word in command]
    try:
        os.execvp(argv[0], argv)
    except OSError as exc:
        raise SystemExit(f"rendezvous: {argv[0]}: {exc.strerror}") from exc


if __name__ == "__main__":
    main(sys.argv[1:])
