"""RDMA port counters: read from a tree like the kernel's, and compared without guessing."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.counters import (
    PortCounters,
    PortDelta,
    counters_of,
    deltas,
    read_counters,
)
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, to_plain

MLX5 = {"port_xmit_data": 1000, "port_rcv_data": 2000, "port_xmit_packets": 10, "port_rcv_packets": 20}


def lay(root: pathlib.Path, hca: str, folder: str, **values: Any) -> None:
    at = root / "class/infiniband" / hca / "ports/1" / folder
    at.mkdir(parents=True, exist_ok=True)
    (root / "class/infiniband" / hca / "node_guid").write_text("0200:00ff:fe00:0001\n")
    for name, value in values.items():
        (at / name).write_text(f"{value}\n")


def one(before: dict[str, int], after: dict[str, int], **more: Any) -> PortDelta:
    old, new = PortCounters("a", 1, "g", before), PortCounters("a", 1, more.get("guid", "g"), after)
    (delta,) = deltas([old], [new])
    return delta


def test_a_tree_is_read_with_both_folders(tmp_path: pathlib.Path) -> None:
    lay(tmp_path, "rocep1s0f0v0", "counters", **MLX5)
    lay(tmp_path, "rocep1s0f0v0", "hw_counters", out_of_sequence=3, lifespan=10)
    lay(tmp_path, "rxe0", "hw_counters", sent_pkts=5, rcvd_pkts=6, broken="N/A (no PMA)")
    found = read_counters(Sysfs(str(tmp_path)))
    assert [(reading.hca, reading.port, reading.guid) for reading in found] == [
        ("rocep1s0f0v0", 1, "0200:00ff:fe00:0001"),
        ("rxe0", 1, "0200:00ff:fe00:0001"),
    ]
    assert found[0].counts == {**MLX5, "out_of_sequence": 3, "lifespan": 10}
    assert found[1].counts == {"sent_pkts": 5, "rcvd_pkts": 6}
    assert [reading.hca for reading in read_counters(Sysfs(str(tmp_path)), ["rxe0"])] == ["rxe0"]


def test_a_node_without_rdma_devices_has_no_counters(tmp_path: pathlib.Path) -> None:
    assert read_counters(Sysfs(str(tmp_path))) == []


def test_data_counts_words_of_four_bytes() -> None:
    delta = one(MLX5, {**MLX5, "port_xmit_data": 1000 + 262144, "port_rcv_data": 2000 + 1})
    assert (delta.sent_bytes, delta.received_bytes, delta.moved_bytes) == (1024**2, 4, 1024**2)
    assert delta.unknown is None


def test_a_device_that_counts_packets_alone_says_nothing_of_bytes() -> None:
    delta = one({"sent_pkts": 5, "rcvd_pkts": 5}, {"sent_pkts": 105, "rcvd_pkts": 65})
    assert (delta.moved_bytes, delta.moved_packets, delta.unknown) == (None, 100, None)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (MLX5, {**MLX5, "port_xmit_data": 999}, "dropped from 1000 to 999"),
        ({"port_xmit_data": 2**32 - 5, "port_rcv_data": 1}, {"port_xmit_data": 7, "port_rcv_data": 2}, "it wrapped"),
        (
            {"port_xmit_data": 1, "port_rcv_data": 1},
            {"port_xmit_data": 2**32 - 1, "port_rcv_data": 1},
            "is at its maximum",
        ),
        ({"lifespan": 10}, {"lifespan": 10}, "does not report"),
        ({"port_xmit_data": 1}, {"port_xmit_data": 9}, "does not report"),
        (MLX5, {}, "does not report"),
    ],
)
def test_what_cannot_be_compared_is_unknown(before: dict[str, int], after: dict[str, int], words: str) -> None:
    delta = one({k: v for k, v in before.items() if "packets" not in k}, after)
    assert words in (delta.unknown or "")
    assert delta.moved_bytes is None
    assert delta.moved_packets is None


def test_another_device_of_the_same_name_is_unknown() -> None:
    assert "another device" in (one(MLX5, MLX5, guid="other").unknown or "")


def test_a_port_of_one_reading_only_is_unknown() -> None:
    reading = PortCounters("a", 1, "g", MLX5)
    assert "did not exist afterwards" in (deltas([reading], [])[0].unknown or "")
    assert "did not exist before" in (deltas([], [reading])[0].unknown or "")


def test_error_counters_that_grew_are_told() -> None:
    before = {**MLX5, "out_of_sequence": 3, "local_ack_timeout_err": 1}
    delta = one(before, {**before, "out_of_sequence": 5, "packet_seq_err": 7})
    # packet_seq_err was not there before: how much it grew is unknown.
    assert delta.lost == {"out_of_sequence": 2}


COUNTS = st.dictionaries(
    st.sampled_from([*MLX5, "sent_pkts", "rcvd_pkts", "out_of_sequence", "other"]), st.integers(0, 2**64 - 1)
)


@given(COUNTS, COUNTS)
def test_nothing_moved_is_ever_negative_or_guessed(before: dict[str, int], after: dict[str, int]) -> None:
    delta = one(before, after)
    for value in (delta.sent_bytes, delta.received_bytes, delta.sent_packets, delta.received_packets):
        assert value is None or value >= 0
    if delta.sent_bytes is not None:
        assert delta.sent_bytes == 4 * (after["port_xmit_data"] - before["port_xmit_data"])
    if delta.unknown is None:
        assert delta.moved_bytes is not None or delta.moved_packets is not None
    assert all(count > 0 for count in delta.lost.values())


def test_the_plain_form_comes_back_and_a_wrong_one_is_named() -> None:
    reading = PortCounters("a", 1, None, MLX5)
    assert counters_of(to_plain([reading])) == [reading]
    with pytest.raises(CollectionError, match=r"here: a list is needed, not dict"):
        counters_of({}, "here")
    with pytest.raises(CollectionError, match=r"here\[0\]: unknown key 'x'"):
        counters_of([{"hca": "a", "port": 1, "guid": None, "x": 1}], "here")


@pytest.mark.parametrize(
    "name", ["completer_retry_err", "duplicate_request", "roce_adp_retrans", "packet_seq_err", "local_ack_timeout_err"]
)
def test_what_either_driver_sent_again_is_told(name: str) -> None:
    """The names of soft-RoCE and of mlx5: a lossy wire repeats, and reports no error."""
    assert one(MLX5 | {name: 3}, MLX5 | {name: 10}).lost == {name: 7}
