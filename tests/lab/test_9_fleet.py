"""Changes to a fleet, as guide_fleet and guide_topologies print them: from a running state to a verified one, and what stays up meanwhile.

Each test starts where the last one ended. The lab's third node is the guide's spark5. Two Sparks that take no part in a change keep
ping and RDMA running between them over a VF: what they lose, a model would lose.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import yaml
from fleet import NODE_OF, SWITCH, Fleet
from harness import NODES, ROOT, lab, sh

from ansible_collections.dgxspark.cluster.tests.unit import guide

pytestmark = pytest.mark.long

FIRST = {
    name: host["dgxspark_fabric_index"]
    for name, host in yaml.safe_load(guide.blocks("guide_fleet", "yaml")[0])["dgx"]["hosts"].items()
}
NEW = {"spark5": 5}
LEFT = {name: number for name, number in FIRST.items() if name != "spark4"} | NEW
MOVED = LEFT | {"spark5": 7}
CABLED = SWITCH | {"topology": "ring", "ports": [0, 1]}
RING = ("spark1:2=spark2:1", "spark2:2=spark4:1", "spark4:2=spark1:1")
LARGER_RING = (*RING[:2], "spark4:2=spark3:1", "spark3:2=spark1:1")
CABLE_1 = ("enP2p1s0f0v0", "enp1s0f0v0")
"""The VFs of spark1 and spark2 that talk by a cable which a switch does not need."""
IDENTITY = (
    "ip -br link show | grep -E '^en.*v[0-9]' | awk '{print $1, $3}' | sort;"
    " ip -br -4 address show | grep -E '^en.*v[0-9]' | awk '{print $1, $3}' | sort"
)
WRITTEN = (
    "/etc/netplan /etc/systemd /etc/udev/rules.d /etc/nccl.conf /etc/dgxspark /var/lib/dgxspark /run/systemd/network"
)
LOST = ("completer_retry_err", "retry_exceeded_err", "retry_rnr_exceeded_err", "out_of_seq_request", "rcvd_seq_err")


def on(host: str, command: str, check: bool = True) -> str:
    """Run a command on the node that the inventory calls so."""
    return sh(NODE_OF.get(host, host), command, check)


def identity(*hosts: str) -> dict[str, str]:
    """Return the hosts' VFs with their MACs and addresses."""
    return {host: on(host, IDENTITY) for host in hosts}


@dataclass(frozen=True)
class Stream:
    """Echo and RDMA from one node to another over a VF of each."""

    near: str
    far: str
    near_vf: str
    far_vf: str

    def start(self) -> None:
        """Start both ends, and see that the writes arrive."""
        assert on(self.near, f"cat /sys/class/net/{self.near_vf}/operstate") == "up"
        address = on(self.far, f"ip -4 -o address show dev {self.far_vf} | awk '{{print $4}}'").split("/")[0]
        # A tenth of an emulated core: a stream that takes all of it would slow down what is measured.
        unit = "systemctl reset-failed 2>/dev/null; systemd-run -q -p CPUQuota=10% -p StandardOutput=truncate:"
        # Four seconds (-u 20) until a retransmit: an emulated node may not be scheduled for one second.
        rdma = "ib_write_bw --run_infinitely -u 20 -t 1 -s 1024 -d {} -x {}"
        listens = "for _ in $(seq 60); do ss -ltn | grep -q :18515 && break; sleep 1; done"
        on(self.far, f"{unit}/run/rdma --unit=fleet-rdma {rdma.format(self.hca('far'), self.gid('far'))}; {listens}")
        before = self.counters()
        on(
            self.near,
            f"{unit}/run/echo --unit=fleet-echo ping -n -q -i 0.5 -I {self.near_vf} {address};"
            f" {unit}/run/rdma --unit=fleet-rdma {rdma.format(self.hca('near'), self.gid('near'))} {address}",
        )
        for _attempt in range(12):
            time.sleep(5)
            if self.counters()["rcvd_pkts"] > before["rcvd_pkts"] + 10:
                break
        else:
            raise AssertionError(self.said())

    def said(self) -> str:
        """Return what both ends of the RDMA connection said."""
        words = "systemctl status fleet-rdma --no-pager; cat /run/rdma"
        return "\n".join(f"{node}: {on(node, words, check=False)}" for node in (self.near, self.far))

    def hca(self, end: str) -> str:
        return "roce" + (self.near_vf if end == "near" else self.far_vf).removeprefix("en")

    def gid(self, end: str) -> int:
        """Return the index of the GID for the IPv4 address."""
        node = self.near if end == "near" else self.far
        found = on(node, f"cd /sys/class/infiniband/{self.hca(end)}/ports/1/gids; grep -l 0000:ffff: * | head -n 1")
        return int(found)

    def counters(self) -> dict[str, int]:
        folder = f"/sys/class/infiniband/{self.hca('near')}/ports/1/hw_counters"
        lines = on(self.near, f"cd {folder}; grep . *").splitlines()
        return {name: int(value) for name, value in (line.split(":") for line in lines)}

    def running(self) -> bool:
        return [on(node, "systemctl is-active fleet-rdma", check=False) for node in (self.near, self.far)] == [
            "active"
        ] * 2

    @staticmethod
    def counted(said: str) -> tuple[int, int]:
        """Return how many echoes were sent and how many were answered."""
        sent, received = re.findall(r"(\d+) packets transmitted, (\d+) received", said)[0]
        return int(sent), int(received)

    def stop(self) -> str:
        """End both; return what ping said."""
        on(self.near, "systemctl kill -s INT fleet-echo; sleep 2", check=False)
        said = on(self.near, "cat /run/echo")
        for node in (self.near, self.far):
            on(node, "systemctl stop fleet-rdma fleet-echo 2>/dev/null", check=False)
        return said


@contextmanager
def uninterrupted(
    fleet: Fleet, near: str, far: str, near_vf: str = "enp1s0f0v0", far_vf: str = "enp1s0f0v0"
) -> Iterator[None]:
    """Keep two nodes talking while something happens; nothing may be lost."""
    stream = Stream(near, far, near_vf, far_vf)
    stream.start()
    said = ""
    try:
        before = stream.counters()
        yield
        after, ended = stream.counters(), "" if stream.running() else stream.said()
    finally:
        said = stream.stop()
    sent, received = stream.counted(said)
    passed = after["rcvd_pkts"] - before["rcvd_pkts"]
    lost = {name: after[name] - before[name] for name in LOST if name in after}
    repeated = sum(lost.values())
    fleet.typed.append(
        f"| meanwhile {near} to {far} | | {sent - received} of {sent} echoes lost; RDMA: one connection throughout,"
        f" {passed} packets received, {repeated} repeated or out of order |"
    )
    assert not ended, ended
    assert passed > 0
    assert sent > 10 and received == sent, said


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    yield Fleet(folder / "inventory", folder / "report.json")
    lab("cables", "switch")  # every function has its carrier again, as other tests expect


def nothing_of(pattern: str, *hosts: str) -> None:
    """Find no address or MAC of this pattern in what is written on the hosts."""
    for host in hosts:
        assert on(host, f"grep -rlE '{pattern}' {WRITTEN} 2>/dev/null", check=False) == "", host


def bare(fleet: Fleet) -> None:
    """Remove what an earlier test left."""
    every = FIRST | NEW
    for host in every:
        on(host, "systemctl stop fleet-rdma fleet-echo 2>/dev/null", check=False)
    if any(identity(*every).values()):
        fleet.write(every, SWITCH)
        run = fleet.play("teardown")
        assert run.code == 0, run.output
    assert not any(identity(*every).values())


def test_the_first_are_laid_on_cables_and_verified(fleet: Fleet) -> None:
    bare(fleet)
    fleet.write(FIRST, CABLED)
    lab("cables", *RING)
    with fleet.figures("Three from bare to verified, ring"):
        run = fleet.play("site", "", "--tags", "fabric")
        assert run.code == 0, run.output
        run, report = fleet.proof("verify")
        assert (run.code, report["verdict"]) == (0, "passed"), run.output


def test_a_switch_replaces_the_cables(fleet: Fleet) -> None:
    before = identity(*FIRST)
    assert all("enP2p1s0f0v0" in seen for seen in before.values())
    fleet.write(FIRST, SWITCH)
    with fleet.figures("A switch replaces the ring"):
        stream = Stream("spark1", "spark2", *CABLE_1)
        stream.start()
        # A process still uses a VF that is to go: nothing is touched before it ends.
        shown, changes = fleet.plan(refused="ib_write_bw")
        assert all(changes[host] for host in FIRST)
        assert "enP2p1s0f0np0: VFs 1 -> 0" in shown
        lab("cables", "switch")
        for node in NODES:
            lab("link", node, "2", "down")  # its second port has no cable any more
        refused = fleet.play("site", "", "--tags", "fabric")
        assert refused.code and "ib_write_bw" in refused.output and identity(*FIRST) == before, refused.output
        sent, received = stream.counted(stream.stop())
        fleet.typed.append(f"| meanwhile spark1 to spark2, by the cable | | {sent - received} of {sent} echoes lost |")
        run, report = fleet.proof("site")
        assert (run.code, report["verdict"]) == (0, "passed"), run.output
    after = identity(*FIRST)
    assert not any("enP2p1s0f0v0" in seen for seen in after.values()), after
    nothing_of(r"10[.]100[.]([1-9]|16|24)[.]|02:d6:00:..:10", *FIRST)


def test_one_is_added_while_the_others_talk(fleet: Fleet) -> None:
    before = identity(*FIRST)
    fleet.write(FIRST | NEW, SWITCH)
    with fleet.figures("One is added"), uninterrupted(fleet, "spark1", "spark2"):
        _shown, changes = fleet.plan()
        assert {host for host, listed in changes.items() if listed} == {"spark5"}
        run = fleet.play("site", "spark5")
        assert run.code == 0, run.output
        run, report = fleet.proof("verify")
        assert (run.code, report["verdict"]) == (0, "passed"), run.output
    assert identity(*FIRST) == before
    again = fleet.play("site", "", "--tags", "fabric")
    assert again.code == 0 and not any(again.changed.values()), again.output


def test_one_is_removed_while_the_others_talk(fleet: Fleet) -> None:
    before = identity(*LEFT)
    with fleet.figures("One is removed"), uninterrupted(fleet, "spark1", "spark2"):
        run = fleet.play("teardown", "spark4")
        assert run.code == 0, run.output
        assert {host for host, count in run.changed.items() if count} <= {"spark4", "controller"}, run.output
    assert identity(*LEFT) == before and identity("spark4") == {"spark4": ""}
    nothing_of(r"10[.]100[.]0[.]4\b|02:d6:00:04:", "spark4")


def test_one_dies_and_the_others_go_on(fleet: Fleet) -> None:
    others = [host for host in LEFT if host != "spark5"]
    before = identity(*others)
    fleet.write(LEFT, SWITCH)
    with fleet.figures("One dies"), uninterrupted(fleet, "spark1", "spark2"):
        lab("power", "off", NODE_OF["spark5"])
        shown, changes = fleet.plan()
        assert "spark5" not in changes and not any(changes.values())
        assert "not known, the host was not reached" in shown.partition("spark5 (index 5")[2]
        run, report = fleet.proof("site", ",".join(others))
        assert (run.code, report["verdict"]) == (0, "passed"), run.output
        assert not any(run.changed.values()), run.output
    assert identity(*others) == before


def test_another_machine_takes_a_place(fleet: Fleet) -> None:
    lab("power", "on", NODE_OF["spark5"])
    before = identity("spark1", "spark5")
    card = on("spark2", "cat /sys/class/net/enp1s0f0np0/address")
    with fleet.figures("One is replaced"), uninterrupted(fleet, "spark1", "spark5"):
        lab("replace", "spark2")
        assert identity("spark2") == {"spark2": ""}
        assert on("spark2", "cat /sys/class/net/enp1s0f0np0/address") != card
        _shown, changes = fleet.plan()
        assert {host for host, listed in changes.items() if listed} == {"spark2"}
        run = fleet.play("site", "spark2")
        assert run.code == 0, run.output
        run, report = fleet.proof("verify")
        assert (run.code, report["verdict"]) == (0, "passed"), run.output
    assert identity("spark1", "spark5") == before


def test_one_moves_to_another_number(fleet: Fleet) -> None:
    before = identity("spark1", "spark2")
    fleet.write(MOVED, SWITCH)
    with fleet.figures("One moves from number 5 to 7"), uninterrupted(fleet, "spark1", "spark2"):
        shown, changes = fleet.plan()
        assert {host for host, listed in changes.items() if listed} == {"spark5"}
        told = [(c["what"], str(c["before"]), str(c["after"])) for c in changes["spark5"]]
        assert any("10.100.0.5/" in old and "10.100.0.7/" in new for _what, old, new in told), told
        assert re.search(r"10\.100\.0\.5/24.* -> .*10\.100\.0\.7/24", shown), shown
        run, report = fleet.proof("site")
        assert (run.code, report["verdict"]) == (0, "passed"), run.output
        assert {host for host, count in run.changed.items() if count} == {"spark5"}, run.output
    assert identity("spark1", "spark2") == before
    stale = r"10\.100\.[0-9]+\.5\b|02:d6:00:05:"
    for host, seen in identity(*MOVED).items():
        assert not re.search(stale, seen), host
    nothing_of(stale, *MOVED)
    again = fleet.play("site", "", "--tags", "fabric")
    assert again.code == 0 and not any(again.changed.values()), again.output


def test_a_ring_of_four_is_proven_where_there_are_cables(fleet: Fleet) -> None:
    for node in NODES:
        lab("link", node, "2", "up")
    lab("cables", *LARGER_RING)
    fleet.write(FIRST | {"spark5": 7}, CABLED)
    with fleet.figures("A ring of four"):
        shown, _changes = fleet.plan()
        assert re.search(r"10\.\d+\.\d+\.1", shown), shown
        run = fleet.play("site", "", "--tags", "fabric")
        assert run.code == 0, run.output
        # No node has a GPU: NCCL's part, which strict wants, is not proven.
        run, report = fleet.proof("verify", "", "-e", "dgxspark_verify_mode=strict")
        assert (run.code, report["verdict"]) == (2, "incomplete"), run.output
        assert not [cause for cause in report["causes"] if cause["severity"] == "error"], run.output


def test_what_the_guides_print_was_typed(fleet: Fleet) -> None:
    """Of each command that tests/docs/typed.yml leaves to this file."""
    told = {
        " ".join(row["type"].split())
        for own in yaml.safe_load((ROOT / "tests/docs/typed.yml").read_text("utf-8")).values()
        for row in own["rows"]
        if "tests/lab/test_9_fleet.py" in row.get("by", "")
    }
    assert told and {command for command in told if tuple(shlex.split(command)) not in fleet.commands} == set()
