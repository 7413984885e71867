# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run an engine with the first rank's address where its command has that rank's name.

`python3 meeting.py SECONDS NAME COMMAND …`. SGLang (0.5.10 to 0.5.23) takes a name in --dist-init-addr and, with attention in data
parallel, hands it on to ZMQ, which binds to addresses and interfaces alone. A name may be without an address for a while: a
new pod's is known to the cluster's DNS a moment after the pod.
"""

from __future__ import annotations

import os
import socket
import sys
import time
import typing as t


def address(name: str, seconds: float) -> str:
    """Return the IPv4 address of a name; OSError where it has none within so many seconds."""
    until = time.monotonic() + seconds
    while True:
        try:
            return str(socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


def main(arguments: t.Sequence[str]) -> None:
    """Become the command."""
    seconds, name, *command = arguments
    try:
        found = address(name, float(seconds))
    except OSError as exc:
        raise SystemExit(
            f"meeting: {name} has no address ({exc.strerror}). See CoreDNS, and the Service of that name."
        ) from exc
    argv = [word.replace(name, found) for word in command]
    try:
        os.execvp(argv[0], argv)
    except OSError as exc:
        raise SystemExit(f"meeting: {argv[0]}: {exc.strerror}") from exc


if __name__ == "__main__":
    main(sys.argv[1:])
