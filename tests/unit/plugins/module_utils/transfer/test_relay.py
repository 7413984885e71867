"""Parcels between nodes: folders of this machine, each at an address of its own on loopback, with real connections."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import os
import pathlib
import socket
import threading
import time
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.transfer import parcel as parcels
from ansible_collections.dgxspark.cluster.plugins.module_utils.transfer.relay import Counter, Link, relay
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.tests.support.parcels import BIG, CONTENT, TOKEN, content_of, fill, made, seal
from ansible_collections.dgxspark.cluster.tests.support.ports import free_port


class Chain:
    """node1 → node2 → node3 …, each at 127.0.0.<number>. It is run until all have ended; `errors` says how."""

    def __init__(self, folder: pathlib.Path, count: int, patience_s: float = 100.0) -> None:
        self.roots = [folder / f"node{number}" for number in range(1, count + 1)]
        for root in self.roots:
            root.mkdir(exist_ok=True)
        self.port, self.count, self.patience_s = free_port(), count, patience_s
        self.errors: dict[int, CollectionError] = {}
        self.counters = [Counter() for _root in self.roots]

    def link(self, number: int) -> Link:
        parent = (f"node{number - 1}", f"127.0.0.{number - 1}") if number > 1 else None
        children = (f"node{number + 1}",) if number < self.count else ()
        return Link(f"node{number}", self.port, parent, children, (f"127.0.0.{number}",), self.patience_s)

    def run(self, only: t.Collection[int] = (), tokens: dict[int, str] | None = None) -> Chain:
        def one(number: int) -> None:
            try:
                token = (tokens or {}).get(number, TOKEN)
                relay(made(self.roots[number - 1]), self.link(number), token, self.counters[number - 1])
            except CollectionError as exc:
                self.errors[number] = exc

        threads = [threading.Thread(target=one, args=(n,)) for n in range(1, self.count + 1) if not only or n in only]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(150)
        assert not any(thread.is_alive() for thread in threads)
        return self


def test_every_node_of_the_chain_has_all_and_the_second_run_moves_nothing(tmp_path: pathlib.Path) -> None:
    chain = Chain(tmp_path, 3)
    fill(chain.roots[0])
    assert not chain.run().errors
    for root in chain.roots:
        assert content_of(root) == CONTENT
        assert (root / "m/snapshots/1/model").read_bytes() == CONTENT["m/blobs/a"]
        assert (root / "m/refs/main").read_text() == "1"
        assert parcels.state(made(root)).whole
        assert not list(root.rglob("*.part"))
    assert [counter.moved for counter in chain.counters] == [0, BIG + 5, BIG + 5]
    again = Chain(tmp_path, 3)
    assert not again.run().errors
    assert [(counter.moved, counter.read) for counter in again.counters] == [(0, 0)] * 3


def test_a_child_that_has_all_before_its_parent_listens_still_says_so(tmp_path: pathlib.Path) -> None:
    chain = Chain(tmp_path, 2, patience_s=6)
    for root in chain.roots:
        fill(root)
    child = threading.Thread(target=chain.run, kwargs={"only": [2]})
    child.start()
    time.sleep(1)
    chain.run(only=[1])
    child.join()
    assert not chain.errors


def test_a_part_is_gone_on_with(tmp_path: pathlib.Path) -> None:
    chain = Chain(tmp_path, 2)
    fill(chain.roots[0])
    part = chain.roots[1] / "m/blobs/a.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(CONTENT["m/blobs/a"][: 2**20])
    assert parcels.state(made(chain.roots[1])).missing == BIG + 5 - 2**20
    assert not chain.run().errors
    assert content_of(chain.roots[1]) == CONTENT
    assert chain.counters[1].moved == BIG + 5 - 2**20


def test_a_part_with_wrong_bytes_is_had_again_from_its_beginning(tmp_path: pathlib.Path) -> None:
    chain = Chain(tmp_path, 2)
    fill(chain.roots[0])
    part = chain.roots[1] / "m/blobs/a.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"\0" * 2**20)
    assert not chain.run().errors
    assert content_of(chain.roots[1]) == CONTENT


def test_a_file_of_the_right_size_with_wrong_bytes_is_replaced(tmp_path: pathlib.Path) -> None:
    chain = Chain(tmp_path, 2)
    fill(chain.roots[0])
    fill(chain.roots[1], {**CONTENT, "m/blobs/a": b"\0" * BIG})
    assert not chain.run().errors
    assert content_of(chain.roots[1]) == CONTENT
    assert chain.counters[1].moved == BIG


def test_a_source_that_is_damaged_is_named_and_nothing_of_it_is_handed_on(tmp_path: pathlib.Path) -> None:
    chain = Chain(tmp_path, 2, patience_s=1)
    fill(chain.roots[0], {**CONTENT, "m/blobs/a": b"\0" * BIG})
    chain.run()
    assert "node1: m/blobs/a is missing, or its SHA-256 is not the one in its list" in str(chain.errors[1])
    assert "m/blobs/a" not in content_of(chain.roots[1])


def test_bytes_that_rot_after_they_were_sealed_are_found_by_who_receives_them(tmp_path: pathlib.Path) -> None:
    chain = Chain(tmp_path, 2, patience_s=5)
    fill(chain.roots[0], {**CONTENT, "m/blobs/a": b"\0" * BIG})
    seal(made(chain.roots[0]))  # a disk that rots changes no time
    chain.run()
    assert "a arrived twice from node1 with a SHA-256 that is not the one in its list" in str(chain.errors[2])
    assert "m/blobs/a" not in content_of(chain.roots[1])
    assert not (chain.roots[1] / "m/refs/main").exists()


def test_who_writes_to_a_sealed_file_cannot_hide_it_by_its_time(tmp_path: pathlib.Path) -> None:
    fill(tmp_path)
    seal(made(tmp_path))
    place = tmp_path / "m/blobs/a"
    seen = place.stat()
    place.write_bytes(b"\0" * BIG)
    os.utime(place, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert parcels.state(made(tmp_path)).unread == BIG


@pytest.mark.parametrize("drip", [b"", b"x"], ids=["silent", "dripping"])
def test_a_connection_that_says_nothing_is_let_go_and_holds_nobody_up(tmp_path: pathlib.Path, drip: bytes) -> None:
    """More of them than there is room for, silent or sending a byte now and then, and then a child that copies."""
    chain = Chain(tmp_path, 2, patience_s=15)
    fill(chain.roots[0])
    threads = [threading.Thread(target=chain.run, kwargs={"only": [number]}) for number in (1, 2)]
    threads[0].start()
    time.sleep(0.5)
    silent = [socket.create_connection(("127.0.0.1", chain.port), timeout=20) for _each in range(80)]
    threads[1].start()
    for _second in range(7 if drip else 0):
        time.sleep(1)
        for each in silent:
            with contextlib.suppress(OSError):
                each.send(drip)
    for each in silent:
        each.settimeout(2 if drip else 20)
        with contextlib.suppress(ConnectionResetError):
            assert each.recv(1) == b""
        each.close()
    for thread in threads:
        thread.join()
    assert content_of(chain.roots[1]) == CONTENT
    assert not chain.errors


def test_a_child_that_stops_taking_bytes_is_let_go(tmp_path: pathlib.Path) -> None:
    content = {"m/blobs/a": b"x" * (64 * 2**20)}
    fill(tmp_path, content)
    port, patience_s = free_port(), 2.0
    link = Link("node1", port, None, ("node2",), ("127.0.0.1",), patience_s)
    errors: list[CollectionError] = []

    def serve() -> None:
        try:
            relay(dataclasses.replace(made(tmp_path, content), links={}), link, TOKEN, Counter())
        except CollectionError as exc:
            errors.append(exc)

    thread = threading.Thread(target=serve)
    thread.start()
    time.sleep(1)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as slow:
        slow.sendall(f"GET /m/blobs/a HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        thread.join(20)
        assert not thread.is_alive()
        got = 0
        while data := slow.recv(2**20):
            got += len(data)
    assert got < len(content["m/blobs/a"])
    assert "node2 did not fetch the files" in str(errors[0])


def test_a_parent_that_is_not_there_is_named(tmp_path: pathlib.Path) -> None:
    chain = Chain(tmp_path, 2, patience_s=0.5).run(only=[2])
    assert "node1 cannot be reached at 127.0.0.1 port" in str(chain.errors[2])
    assert "the next run continues from there" in str(chain.errors[2])


def test_a_child_that_does_not_come_is_named(tmp_path: pathlib.Path) -> None:
    chain = Chain(tmp_path, 2, patience_s=0.5)
    fill(chain.roots[0])
    chain.run(only=[1])
    assert "node2 did not fetch the files" in str(chain.errors[1])


def test_who_has_not_the_token_gets_nothing(tmp_path: pathlib.Path) -> None:
    chain = Chain(tmp_path, 2, patience_s=1)
    fill(chain.roots[0])
    chain.run(tokens={2: "another"})
    assert "node1 (127.0.0.1) refuses" in str(chain.errors[2]) and "401" in str(chain.errors[2])
    assert not any(content_of(chain.roots[1]).values())  # an empty file has no bytes that could leak


def test_it_listens_on_its_own_address_alone(tmp_path: pathlib.Path) -> None:
    chain = Chain(tmp_path, 2, patience_s=2)
    fill(chain.roots[0])
    thread = threading.Thread(target=chain.run, kwargs={"only": [1]})
    thread.start()
    seen = {}
    while not seen.get("127.0.0.1"):
        for address in ("127.0.0.1", "127.0.0.9"):
            connection = http.client.HTTPConnection(address, chain.port, timeout=2)
            try:
                connection.request("GET", "/m/blobs/b", headers={"Authorization": "Bearer wrong"})
                seen[address] = connection.getresponse().status
            except OSError:
                seen[address] = 0
    thread.join()
    assert seen == {"127.0.0.1": 401, "127.0.0.9": 0}


def test_an_address_that_is_not_on_the_node_is_named(tmp_path: pathlib.Path) -> None:
    link = Link("node1", free_port(), None, ("node2",), ("192.0.2.1",), 1)
    with pytest.raises(CollectionError, match=r"192\.0\.2\.1 port \d+: .*not on the node"):
        relay(made(tmp_path), link, TOKEN, Counter())


def test_a_path_that_leads_out_of_the_root_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(CollectionError, match="points outside"):
        parcels.state(made(tmp_path, {"../outside": b"x"}))


def test_too_little_room_is_told_with_both_figures(tmp_path: pathlib.Path) -> None:
    with pytest.raises(CollectionError, match=r"GiB free, but org/name needs 1048576\.0 GiB more, and 20 GiB"):
        parcels.refuse_full_disk(str(tmp_path), 2**50, 20, "org/name")
    parcels.refuse_full_disk(str(tmp_path / "not" / "there"), 1, 0, "org/name")
