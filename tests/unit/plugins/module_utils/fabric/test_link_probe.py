"""A call is heard by the listeners on the same wire in the same run, and by nobody else."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import link_probe
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.link_probe import (
    Heard,
    call_frame,
    listen,
    parse_call,
)
from ansible_collections.dgxspark.cluster.tests.unit.namespaces import needed

MAC = bytes.fromhex("4cbb47000001")
# Two wires of two veths in one namespace: a0 - a1, b0 - b1; c is down.
WIRES = """
for wire in a b; do ip link add ${wire}0 type veth peer name ${wire}1; ip link set ${wire}0 up; ip link set ${wire}1 up; done
ip link add c type veth peer name d
exec "$0" -c "$1" "$2"
"""
# Calls go out on wire b all the time, and binding an interface's socket takes long.
PROGRAM = """
import json, socket, sys, threading, time
sys.path.insert(0, sys.argv[1])
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import link_probe

class Slow(socket.socket):
    def bind(self, address):
        time.sleep(0.3)
        super().bind(address)

def call():
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as caller:
        caller.bind(("b1", 0))
        while True:
            caller.send(link_probe.call_frame(caller.getsockname()[4], "run"))
            time.sleep(0.05)

threading.Thread(target=call, daemon=True).start()
link_probe.socket.socket = Slow
found = link_probe.listen(["a0", "a1", "b0", "c", "none"], "run", 1.0)
print(json.dumps([[h.netdev, list(h.macs), h.error] for h in found]))
"""


def test_a_call_names_its_sender_and_its_run() -> None:
    frame = call_frame(MAC, "run")
    assert len(frame) >= 60 and frame[:6] == b"\xff" * 6
    assert parse_call(frame, "run") == "4c:bb:47:00:00:01"
    for other in ("ru", "run2", "", "other"):
        assert parse_call(frame, other) is None
    for end in range(60):
        assert parse_call(frame[:end], "run") is None or end >= 14 + len(link_probe._MAGIC) + 4


def test_no_interface_and_no_window_take_no_time() -> None:
    assert listen([], "run", 60) == []


@needed()
def test_each_end_of_a_wire_hears_the_other_end_alone() -> None:
    root = next(
        path for path in sys.path if pathlib.Path(path, "ansible_collections/dgxspark/cluster/plugins").is_dir()
    )
    command = ["unshare", "--net", "sh", "-ec", WIRES, sys.executable, PROGRAM, root]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, t.Any] = {name: (macs, error) for name, macs, error in json.loads(done.stdout)}
    assert len(found["a0"][0]) == len(found["a1"][0]) == 1
    assert found["a0"][0] != found["a1"][0]
    assert len(found["b0"][0]) == 1 and found["b0"][0] not in (found["a0"][0], found["a1"][0])
    assert found["c"] == ([], "down") and found["none"] == ([], "no device")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up being root")
def test_without_root_it_says_so() -> None:
    os.seteuid(65534)
    try:
        with pytest.raises(PermissionError):
            listen(["lo"], "run", 1)
    finally:
        os.seteuid(0)


def test_what_is_heard_is_plain_data() -> None:
    assert Heard("a") == Heard("a", (), None)
