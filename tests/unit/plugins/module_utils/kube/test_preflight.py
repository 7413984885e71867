"""What a rank refuses to start with, each with its cause: a tree of files for the node's own, loopback for its peers."""

from __future__ import annotations

import contextlib
import json
import pathlib
import socket
import threading
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.kube import preflight

GID = "sys/class/infiniband/roce0v0/ports/1"
TREE = {
    "sys/class/infiniband_verbs/abi_version": "6",
    "sys/class/infiniband_verbs/uverbs2/ibdev": "roce0v0",
    "sys/class/net/net1/mtu": "9000",
    "sys/class/net/eth0/mtu": "1500",
    f"{GID}/gids/0": "fe80:0000:0000:0000:0000:00ff:fe00:0001",
    f"{GID}/gid_attrs/types/0": "RoCE v2",
    f"{GID}/gids/2": "0000:0000:0000:0000:0000:ffff:7f00:0105",
    f"{GID}/gid_attrs/types/2": "IB/RoCE v1",
    f"{GID}/gids/3": "0000:0000:0000:0000:0000:ffff:7f00:0105",
    f"{GID}/gid_attrs/types/3": "RoCE v2",
    f"{GID}/gids/4": "0000:0000:0000:0000:0000:0000:0000:0000",
    "dev/infiniband/uverbs2": "",
    "proc/sys/net/ipv4/conf/net1/arp_ignore": "1",
    "proc/sys/net/ipv4/conf/net1/arp_announce": "2",
    "proc/sys/net/ipv4/conf/net1/rp_filter": "2",
    "proc/sys/net/ipv4/conf/all/arp_ignore": "0",
    "proc/sys/net/ipv4/conf/all/arp_announce": "0",
    "proc/sys/net/ipv4/conf/all/rp_filter": "1",
}


@contextlib.contextmanager
def echo(address: str, most: int = 65535) -> t.Iterator[int]:
    """Answer as a peer's supervisor does, packets of up to `most` bytes; yield the port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind((address, 0))

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    data, asker = peer.recvfrom(65535)
                    if data == b"stop":
                        return
                    if len(data) <= most:
                        peer.sendto(data, asker)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        port = int(peer.getsockname()[1])
        yield port
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stop:
            stop.sendto(b"stop", (address, port))
        thread.join(10)


def config(port: int = 9, seconds: float = 1, **changes: t.Any) -> dict[str, t.Any]:
    rail = {"name": "p0f0v0", "interface": "net1", "address": "127.0.1.5", "prefix": 24, "mtu": 9000, "hca": "roce0v0"}
    peers = [{"rank": 1, "host": "spark2", "address": "127.0.1.6"}]
    rail |= {"peers": peers} | changes
    return {"rank": 0, "rails": [rail], "verbs": True, "port": port, "bounds": {"peers_s": seconds}}


def tree(root: pathlib.Path, without: str = "") -> str:
    for path, text in TREE.items():
        if not (without and path.startswith(without)):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
    return str(root)


def refusal(made: dict[str, t.Any], root: str) -> preflight.Refusal:
    with pytest.raises(preflight.Refusal) as caught:
        preflight.check(made, root)
    return caught.value


def test_all_is_well(tmp_path: pathlib.Path) -> None:
    with echo("127.0.1.6") as port:
        preflight.check(config(port, 60), tree(tmp_path))


@pytest.mark.parametrize(
    ("without", "cause", "said"),
    [
        ("sys/class/infiniband_verbs/uverbs2", "verbs", "HCA roce0v0 has no verbs device here (seen: none)"),
        ("dev/infiniband", "verbs", "/dev/infiniband/uverbs2 of roce0v0: No such file"),
        ("sys/class/net/net1", "mtu", "no interface net1 (there are: eth0)"),
        ("proc/sys/net/ipv4/conf/net1/arp_ignore", "arp", "arp_ignore of net1 is 0, not 1"),
        (f"{GID}/gids/3", "gid", "no RoCE v2 GID of 127.0.1.5"),
        ("sys/class/infiniband/", "gid", "it has: none"),
    ],
)
def test_what_the_pod_lacks(tmp_path: pathlib.Path, without: str, cause: str, said: str) -> None:
    found = refusal(config(), tree(tmp_path, without))
    assert (found.cause, said in str(found)) == (cause, True), str(found)


def test_a_wrong_mtu(tmp_path: pathlib.Path) -> None:
    found = refusal(config(mtu=4200), tree(tmp_path))
    assert found.cause == "mtu"
    assert "net1 has MTU 9000, planned is 4200" in str(found)


def test_all_interfaces_setting_counts_as_the_kernel_counts_it(tmp_path: pathlib.Path) -> None:
    root = tree(tmp_path)
    (tmp_path / "proc/sys/net/ipv4/conf/all/arp_ignore").write_text("2")
    assert refusal(config(), root).cause == "arp"


def test_an_address_that_is_not_here(tmp_path: pathlib.Path) -> None:
    found = refusal(config(address="198.51.100.7"), tree(tmp_path))
    assert found.cause == "address"
    assert "198.51.100.7 is on no interface here" in str(found)


def test_a_peer_that_does_not_answer(tmp_path: pathlib.Path) -> None:
    found = refusal(config(), tree(tmp_path))
    assert found.cause == "peer"
    assert "rank 1 (spark2, 127.0.1.6, p0f0v0)" in str(found)


def test_a_path_that_is_too_narrow(tmp_path: pathlib.Path) -> None:
    with echo("127.0.1.6", most=1472) as port:
        found = refusal(config(port, 2), tree(tmp_path))
    assert found.cause == "path-mtu"
    assert "spark2" in str(found)


def test_an_answer_of_somebody_else_does_not_count(tmp_path: pathlib.Path) -> None:
    peers = [
        {"rank": 1, "host": "spark2", "address": "127.0.1.6"},
        {"rank": 2, "host": "spark3", "address": "127.0.1.7"},
    ]
    with echo("127.0.1.6") as port:
        found = refusal(config(port, 2, peers=peers), tree(tmp_path))
    assert "spark3" in str(found)
    assert "spark2" not in str(found)


def test_sockets_need_no_verbs(tmp_path: pathlib.Path) -> None:
    with echo("127.0.1.6") as port:
        preflight.check({**config(port, 60), "verbs": False}, tree(tmp_path, "sys/class/infiniband"))


def test_the_program_ends_with_the_cause_s_status(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "rank.json"
    place.write_text(json.dumps(config()))
    assert preflight.main([str(place), tree(tmp_path, "dev/infiniband")]) == preflight.STATUS["verbs"]
    assert capsys.readouterr().err.startswith("preflight: verbs: p0f0v0: ")
    assert preflight.main([str(tmp_path / "nothing.json")]) == preflight.STATUS["config"]
    place.write_text("{}")
    assert preflight.main([str(place)]) == preflight.STATUS["config"]
    assert "Traceback" not in capsys.readouterr().err
