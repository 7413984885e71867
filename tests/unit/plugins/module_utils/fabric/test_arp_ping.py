"""ARP and ping: how bytes are parsed, and what real kernels answer in network namespaces joined by a bridge."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import arp_ping

MAC = bytes.fromhex("02d600010000")


def reply(address: str, mac: bytes, operation: int = 2) -> bytes:
    body = struct.pack(
        "!HHBBH6s4s6s4s", 1, 0x0800, 6, 4, operation, mac, socket.inet_aton(address), MAC, socket.inet_aton("10.0.0.9")
    )
    return MAC + mac + b"\x08\x06" + body


def test_a_reply_tells_address_and_mac() -> None:
    assert arp_ping.parse_arp_reply(reply("10.100.0.2", MAC) + b"\0" * 18) == ("10.100.0.2", "02:d6:00:01:00:00")


def test_what_is_no_reply_is_nothing() -> None:
    good = reply("10.100.0.2", MAC)
    assert arp_ping.parse_arp_reply(good[:41]) is None
    assert arp_ping.parse_arp_reply(reply("10.100.0.2", MAC, operation=1)) is None
    assert arp_ping.parse_arp_reply(good[:12] + b"\x08\x00" + good[14:]) is None
    assert arp_ping.parse_arp_reply(good[:14] + b"\x00\x06" + good[16:]) is None
    assert arp_ping.parse_arp_reply(b"") is None


def test_a_request_is_a_broadcast_that_asks_for_the_address() -> None:
    frame = arp_ping.arp_request(MAC, "10.0.0.1", "10.0.0.2")
    assert frame[:6] == b"\xff" * 6
    assert frame[6:12] == MAC
    assert frame[14:22] == bytes.fromhex("0001080006040001")
    assert frame[22:32] == MAC + socket.inet_aton("10.0.0.1")
    assert frame[38:42] == socket.inet_aton("10.0.0.2")
    assert arp_ping.parse_arp_reply(frame) is None


@settings(deadline=None)
@given(st.binary(max_size=80))
def test_any_bytes_are_read_without_a_fault(data: bytes) -> None:
    arp_ping.parse_arp_reply(data)
    arp_ping.parse_echo_reply(data)


@settings(deadline=None)
@given(st.integers(0, 65535), st.integers(0, 65535), st.integers(0, 9000))
def test_an_echo_request_has_its_size_and_a_valid_checksum(identifier: int, sequence: int, size: int) -> None:
    packet = arp_ping.echo_request(identifier, sequence, size)
    assert len(packet) == 8 + size
    # the checksum over a packet with its checksum in place is 0
    assert arp_ping.checksum(packet) == 0


def test_an_echo_reply_is_told_from_a_request_and_from_others() -> None:
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 0, 0, 0, 64, 1, 0, b"\0" * 4, b"\0" * 4)
    icmp = struct.pack("!BBHHH", 0, 0, 0, 7, 8)
    assert arp_ping.parse_echo_reply(header + icmp) == (7, 8)
    assert arp_ping.parse_echo_reply(header + b"\x08" + icmp[1:]) is None
    assert arp_ping.parse_echo_reply(header[:9] + b"\x11" + header[10:] + icmp) is None
    # with IPv4 options the ICMP header begins later
    assert arp_ping.parse_echo_reply(b"\x46" + header[1:] + b"\0" * 4 + icmp) == (7, 8)


# --- real kernels ---------------------------------------------------------------------------------------------------


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Wire:
    """Node a with one interface, node b with a function and its twin, all on one bridge."""

    def __init__(self) -> None:
        self.tag = f"dsw{os.getpid()}"
        self.spaces = [f"{self.tag}{name}" for name in ("sw", "a", "b")]
        self.switch, self.a, self.b = self.spaces

    def make(self) -> None:
        for space in self.spaces:
            ip("netns", "add", space)
        ip("-n", self.switch, "link", "add", "br0", "mtu", "9000", "type", "bridge")
        ip("-n", self.switch, "link", "set", "br0", "up")
        for space, name, address in (
            (self.a, "f0", "10.9.0.1"),
            (self.b, "f0", "10.9.0.2"),
            (self.b, "f1", "10.9.1.2"),
        ):
            port = f"{space[-1]}{name}"
            ip(
                "-n",
                self.switch,
                "link",
                "add",
                port,
                "mtu",
                "9000",
                "type",
                "veth",
                "peer",
                "name",
                name,
                "netns",
                space,
            )
            ip("-n", self.switch, "link", "set", port, "master", "br0", "up")
            ip("-n", space, "link", "set", name, "mtu", "9000", "up")
            ip("-n", space, "address", "add", f"{address}/24", "dev", name)

    def remove(self) -> None:
        for space in self.spaces:
            subprocess.run(["ip", "netns", "delete", space], check=False, capture_output=True)

    def sysctl(self, space: str, key: str, value: int) -> None:
        command = ["ip", "netns", "exec", space, "sh", "-c", f"echo {value} > /proc/sys/net/ipv4/conf/{key}"]
        subprocess.run(command, check=True, capture_output=True)

    def mac(self, space: str, name: str) -> str:
        out = subprocess.run(
            ["ip", "-n", space, "-j", "link", "show", name], check=True, capture_output=True, text=True
        )
        return str(json.loads(out.stdout)[0]["address"])

    def run(self, expression: str) -> Any:
        """Evaluate an expression of the module `arp_ping` in node a."""
        code = (
            "import dataclasses, json\n"
            "from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.arp_ping import *\n"
            f"print(json.dumps([dataclasses.asdict(x) for x in {expression}]))"
        )
        done = subprocess.run(
            ["ip", "netns", "exec", self.a, sys.executable, "-c", code],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def ping(self, address: str = "10.9.0.2", source: str = "10.9.0.1", mtu: int = 9000) -> dict[str, Any]:
        return self.run(f"ping([PingTest('f0', {source!r}, {address!r}, {mtu})], 0.5)")[0]  # type: ignore[no-any-return]

    def arp(self, address: str = "10.9.0.2", netdev: str = "f0") -> dict[str, Any]:
        return self.run(f"ask_arp([ArpTest({netdev!r}, '10.9.0.1', {address!r})], 0.5)")[0]  # type: ignore[no-any-return]


@pytest.fixture
def lan() -> Iterator[Wire]:
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("needs root and iproute2 to make network namespaces")
    wired = Wire()
    try:
        wired.make()
    except subprocess.CalledProcessError as exc:
        wired.remove()
        pytest.skip(f"network namespaces with a bridge cannot be made here: {exc.stderr.strip()}")
    yield wired
    wired.remove()


def test_a_twin_answers_with_linux_defaults_and_is_seen(lan: Wire) -> None:
    for key in ("all/arp_ignore", "f0/arp_ignore", "f1/arp_ignore"):
        lan.sysctl(lan.b, key, 0)
    assert set(lan.arp()["macs"]) == {lan.mac(lan.b, "f0"), lan.mac(lan.b, "f1")}


def test_with_arp_ignore_only_the_owner_answers(lan: Wire) -> None:
    for key in ("f0/arp_ignore", "f1/arp_ignore"):
        lan.sysctl(lan.b, key, 1)
    assert lan.arp()["macs"] == [lan.mac(lan.b, "f0")]
    assert lan.arp("10.9.1.2")["macs"] == [lan.mac(lan.b, "f1")]


def test_nobody_answers_for_an_address_that_nobody_has(lan: Wire) -> None:
    answer = lan.arp("10.9.0.77")
    assert answer["macs"] == []
    assert answer["error"] is None


def test_asking_out_of_no_interface_or_one_that_is_down(lan: Wire) -> None:
    assert lan.arp(netdev="nothing")["error"] == "no device"
    ip("-n", lan.a, "link", "set", "f0", "down")
    assert lan.arp()["error"] == "down"


def test_a_full_packet_passes_where_all_is_well(lan: Wire) -> None:
    answer = lan.ping()
    assert (answer["small"], answer["large"]) == ("ok", "ok")
    assert answer["rtt_ms"] > 0


def test_more_targets_than_are_in_flight_at_a_time(lan: Wire) -> None:
    for number in range(10, 50):
        ip("-n", lan.b, "address", "add", f"10.9.0.{number}/24", "dev", "f0")
    answers = lan.run("ping([PingTest('f0', '10.9.0.1', f'10.9.0.{n}', 9000) for n in [*range(10, 50), 99]], 0.5)")
    assert [(a["small"], a["large"]) for a in answers] == [("ok", "ok")] * 40 + [("no reply", "not sent")]


def test_an_interface_too_narrow_on_the_own_side(lan: Wire) -> None:
    ip("-n", lan.a, "link", "set", "f0", "mtu", "1500")
    answer = lan.ping()
    assert (answer["small"], answer["large"]) == ("ok", "too large")


def test_an_interface_too_narrow_on_the_way(lan: Wire) -> None:
    ip("-n", lan.switch, "link", "set", "bf0", "mtu", "1500")
    answer = lan.ping()
    assert (answer["small"], answer["large"]) == ("ok", "no reply")


def test_an_unreachable_peer_is_not_a_matter_of_size(lan: Wire) -> None:
    ip("-n", lan.b, "link", "set", "f0", "down")
    answer = lan.ping()
    assert answer["small"] != "ok"
    assert answer["large"] == "not sent"


def test_without_its_own_address_nothing_is_sent(lan: Wire) -> None:
    ip("-n", lan.a, "address", "flush", "dev", "f0")
    assert lan.ping()["small"] == "no address"
