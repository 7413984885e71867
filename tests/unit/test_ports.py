"""The ports that tests listen at: two processes of tests that ask at the same time never get the same one."""

from __future__ import annotations

import pathlib
import socket
import subprocess
import sys

import pytest

from ansible_collections.dgxspark.cluster.tests.support import ports

ASK = """
import runpy, sys
free_port = runpy.run_path(sys.argv[1])["free_port"]
among = range(int(sys.argv[2]), int(sys.argv[3]))
print(*(free_port(2, among) for _number in range(20)), flush=True)
sys.stdin.read()
"""


def asked(among: range) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", ASK, ports.__file__, str(among.start), str(among.stop)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_processes_that_ask_for_the_same_ports_at_once_get_different_ones() -> None:
    among = range(21000, 21400)
    both = [asked(among), asked(among)]
    got = []
    for process in both:
        assert process.stdout
        pairs = [int(word) for word in process.stdout.readline().split()]
        got.append({port for first in pairs for port in (first, first + 1)})
    assert [len(each) for each in got] == [40, 40]
    assert not got[0] & got[1]
    for process in both:
        process.communicate()
    assert ports.free_port(2, sorted(got[0])) in got[0], "a process that has ended holds nothing"


def test_the_kernel_gives_them_to_nobody_and_a_port_in_use_is_passed_over() -> None:
    low, high = map(int, pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    port = ports.free_port()
    assert not low <= port <= high
    with socket.create_server(("127.0.0.1", port + 1)):
        assert ports.free_port(1, [port, port + 1, port + 2]) == port + 2
    with pytest.raises(RuntimeError, match="No 1 free ports"):
        ports.free_port(1, [port])
