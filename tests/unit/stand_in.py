"""A stand-in for ib_write_bw that meets its other end over TCP and works, fails or hangs as the environment says.

Imitated: perftest 6.24: its rendezvous on the port after the one that is asked for, its table, and its words where a
queue pair fails. It does not imitate RDMA, nor judge its arguments: the lab's nodes run the real one.
"""

from __future__ import annotations

import pathlib
import sys

STAND_IN = """#!{python}
import os, pathlib, socket, sys, time
words = sys.argv[1:]
port = int(words[words.index("-p") + 1])
client = words[-1] != "-F"
role = "client" if client else "server"
behaviour = os.environ.get("STAND_IN_" + role.upper(), "work")
pathlib.Path({folder!r}, role + ".pid").write_text(str(os.getpid()))
if behaviour == "fail":
    sys.exit("Failed to modify QP 17 to RTR")
if behaviour == "hang-early":
    time.sleep(60)
if client:
    s = socket.create_connection((words[-1], port))
else:
    l = socket.socket()
    l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    time.sleep(0.2)
    l.bind(("", port))
    l.listen()
    s, _ = l.accept()
s.sendall(b"x")
s.recv(1)
if behaviour == "hang":
    time.sleep(60)
if behaviour == "mumble":
    print("no table today")
else:
    print(" #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]")
    print(" 4096       20               0.00               125.00             0.01")
"""


def install(folder: pathlib.Path) -> None:
    """Put it into a folder, where its two ends also write their PIDs."""
    program = folder / "ib_write_bw"
    program.write_text(STAND_IN.format(python=sys.executable, folder=str(folder)), encoding="utf-8")
    program.chmod(0o755)
