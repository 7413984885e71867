"""Changes to a fleet, as an owner types them: from a running state to a verified one, and what stays up meanwhile.

Each test starts where the last one ended. Two Sparks that take no part in a change keep ping and RDMA running between
them over a VF: what they lose, a model would lose.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import harness
import pytest
from fleet import SWITCH, Fleet
from harness import lab, sh

pytestmark = pytest.mark.long

NODES = tuple(node["name"] for node in json.loads(lab("status", "--json", check=False))["nodes"]) or harness.NODES
"""Four of `make test-long`; with three, the one that is added is the one that changes."""
ALL = {name: number for number, name in enumerate(NODES, 1)}
NEW = NODES[-1]
FIRST = {name: number for name, number in ALL.items() if name != NEW}
CHANGED = "spark3"
OTHERS = tuple(name for name in NODES if name != CHANGED)
RING = ("spark1:2=spark2:1", "spark2:2=spark3:1", "spark3:2=spark1:1")
CABLES = RING if len(FIRST) == 3 else ("spark1:1=spark2:1", "spark1:2=spark2:2")
CABLED = SWITCH | {"topology": "ring" if len(FIRST) == 3 else "direct", "ports": [0, 1]}
CABLE_1 = ("enP2p1s0f0v0", "enp1s0f0v0") if len(FIRST) == 3 else ("enP2p1s0f0v0", "enP2p1s0f0v0")
"""The VFs of spark1 and spark2 that talk by a cable which a switch does not need."""
IDENTITY = (
    "ip -br link show | grep -E '^en.*v[0-9]' | awk '{print $1, $3}' | sort;"
    " ip -br -4 address show | grep -E '^en.*v[0-9]' | awk '{print $1, $3}' | sort"
)
WRITTEN = (
    "/etc/netplan /etc/systemd /etc/udev/rules.d /etc/nccl.conf /etc/dgxspark /var/lib/dgxspark /run/systemd/network"
)
LOST = ("completer_retry_err", "retry_exceeded_err", "retry_rnr_exceeded_err", "out_of_seq_request", "rcvd_seq_err")


def identity(*nodes: str) -> dict[str, str]:
    """Return the nodes' VFs with their MACs and addresses."""
    return {node: sh(node, IDENTITY) for node in nodes}


@dataclass(frozen=True)
class Stream:
    """Echo and RDMA from one node to another over a VF of each."""

    near: str
    far: str
    near_vf: str
    far_vf: str

    def start(self) -> None:
        """Start both ends, and see that the writes arrive."""
        assert sh(self.near, f"cat /sys/class/net/{self.near_vf}/operstate") == "up"
        address = sh(self.far, f"ip -4 -o address show dev {self.far_vf} | awk '{{print $4}}'").split("/")[0]
        # A tenth of an emulated core: a stream that takes all of it would slow down what is measured.
        unit = "systemctl reset-failed 2>/dev/null; systemd-run -q -p CPUQuota=10% -p StandardOutput=truncate:"
        # Four seconds (-u 20) until a retransmit: an emulated node may not be scheduled for one second.
        rdma = "ib_write_bw --run_infinitely -u 20 -t 1 -s 1024 -d {} -x {}"
        listens = "for _ in $(seq 60); do ss -ltn | grep -q :18515 && break; sleep 1; done"
        sh(self.far, f"{unit}/run/rdma --unit=fleet-rdma {rdma.format(self.hca('far'), self.gid('far'))}; {listens}")
        before = self.counters()
        sh(
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
        return "\n".join(f"{node}: {sh(node, words, check=False)}" for node in (self.near, self.far))

    def hca(self, end: str) -> str:
        return "roce" + (self.near_vf if end == "near" else self.far_vf).removeprefix("en")

    def gid(self, end: str) -> int:
        """Return the index of the GID for the IPv4 address."""
        node = self.near if end == "near" else self.far
        found = sh(node, f"cd /sys/class/infiniband/{self.hca(end)}/ports/1/gids; grep -l 0000:ffff: * | head -n 1")
        return int(found)

    def counters(self) -> dict[str, int]:
        folder = f"/sys/class/infiniband/{self.hca('near')}/ports/1/hw_counters"
        lines = sh(self.near, f"cd {folder}; grep . *").splitlines()
        return {name: int(value) for name, value in (line.split(":") for line in lines)}

    def running(self) -> bool:
        return [sh(node, "systemctl is-active fleet-rdma", check=False) for node in (self.near, self.far)] == [
            "active"
        ] * 2

    @staticmethod
    def counted(said: str) -> tuple[int, int]:
        """Return how many echoes were sent and how many were answered."""
        sent, received = re.findall(r"(\d+) packets transmitted, (\d+) received", said)[0]
        return int(sent), int(received)

    def stop(self) -> str:
        """End both; return what ping said."""
        sh(self.near, "systemctl kill -s INT fleet-echo; sleep 2", check=False)
        said = sh(self.near, "cat /run/echo")
        for node in (self.near, self.far):
            sh(node, "systemctl stop fleet-rdma fleet-echo 2>/dev/null", check=False)
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


def bare(fleet: Fleet) -> None:
    """Remove what an earlier test left."""
    for node in NODES:
        sh(node, "systemctl stop fleet-rdma fleet-echo 2>/dev/null", check=False)
    if any(identity(*NODES).values()):
        fleet.write(ALL, SWITCH)
        run = fleet.play("teardown")
        assert run.code == 0, run.output
    assert not any(identity(*NODES).values())


def test_the_first_are_laid_on_cables_and_verified(fleet: Fleet) -> None:
    bare(fleet)
    fleet.write(FIRST, CABLED)
    lab("cables", *CABLES)
    with fleet.figures(f"{len(FIRST)} from bare to verified, {CABLED['topology']}"):
        run, report = fleet.proof("site")
        assert (run.code, report["verdict"]) == (0, "passed"), run.output


def test_a_switch_replaces_the_cables(fleet: Fleet) -> None:
    before = identity(*FIRST)
    assert all("enP2p1s0f0v0" in seen for seen in before.values())
    fleet.write(FIRST, SWITCH)
    with fleet.figures(f"A switch replaces {CABLED['topology']}"):
        stream = Stream("spark1", "spark2", *CABLE_1)
        stream.start()
        shown, changes = fleet.plan()
        assert all(changes[host] for host in FIRST)
        assert "enP2p1s0f0np0: VFs 1 -> 0" in shown
        lab("cables", "switch")
        for node in NODES:
            lab("link", node, "2", "down")  # its second port has no cable any more
        refused = fleet.play("site", "", "--tags", "fabric") if "enP2p1s0f0v0" in CABLE_1 else None
        # A process still uses a VF that is to go: nothing is touched before it ends.
        assert refused is None or (refused.code and "ib_write_bw" in refused.output and identity(*FIRST) == before)
        sent, received = stream.counted(stream.stop())
        fleet.typed.append(f"| meanwhile spark1 to spark2, by the cable | | {sent - received} of {sent} echoes lost |")
        run, report = fleet.proof("site")
        assert (run.code, report["verdict"]) == (0, "passed"), run.output
    after = identity(*FIRST)
    assert not any("enP2p1s0f0v0" in seen for seen in after.values()), after
    for node in FIRST:
        assert (
            sh(node, f"grep -rlE '10[.]100[.]([1-9]|16|24)[.]|02:d6:00:..:10' {WRITTEN} 2>/dev/null", check=False) == ""
        ), node
    again = fleet.play("site", "", "--tags", "fabric,nccl")
    assert again.code == 0 and not any(again.changed.values()), again.output


def test_one_is_added_while_the_others_talk(fleet: Fleet) -> None:
    before = identity(*FIRST)
    fleet.write(ALL, SWITCH)
    with fleet.figures("One is added"), uninterrupted(fleet, "spark1", "spark2"):
        _shown, changes = fleet.plan()
        assert {host for host, listed in changes.items() if listed} == {NEW}
        run = fleet.play("site", NEW)
        assert run.code == 0, run.output
        run, report = fleet.proof("verify")
        assert (run.code, report["verdict"]) == (0, "passed"), run.output
    assert identity(*FIRST) == before


def test_it_moves_to_another_number(fleet: Fleet) -> None:
    before = identity(*OTHERS)
    fleet.write(ALL | {CHANGED: 7}, SWITCH)
    with fleet.figures("It moves from number 3 to 7"), uninterrupted(fleet, "spark1", "spark2"):
        shown, changes = fleet.plan()
        assert {host for host, listed in changes.items() if listed} == {CHANGED}
        told = [(c["what"], str(c["before"]), str(c["after"])) for c in changes[CHANGED]]
        assert any("10.100.0.3/" in old and "10.100.0.7/" in new for _what, old, new in told), told
        assert re.search(r"10\.100\.0\.3/24.* -> .*10\.100\.0\.7/24", shown), shown
        run, report = fleet.proof("site")
        assert (run.code, report["verdict"]) == (0, "passed"), run.output
        assert {host for host, count in run.changed.items() if count} == {CHANGED}, run.output
    assert identity(*OTHERS) == before
    stale = r"10\.100\.[0-9]+\.3\b|02:d6:00:03:"
    for node in NODES:
        assert not re.search(stale, sh(node, IDENTITY)), node
        assert sh(node, f"grep -rlE '{stale}' {WRITTEN} 2>/dev/null", check=False) == "", node
    again = fleet.play("site", "", "--tags", "fabric,nccl")
    assert again.code == 0 and not any(again.changed.values()), again.output


def test_one_dies_and_the_others_go_on(fleet: Fleet) -> None:
    before = identity(*OTHERS)
    fleet.write(ALL | {CHANGED: 7}, SWITCH)
    with fleet.figures("One dies"), uninterrupted(fleet, "spark1", "spark2"):
        lab("power", "off", CHANGED)
        shown, changes = fleet.plan()
        assert CHANGED not in changes and not any(changes.values())
        assert (
            "not known, the host was not reached"
            in re.split(r"\nspark\d", shown.partition(f"{CHANGED} (index 7")[2])[0]
        )
        run, report = fleet.proof("site", ",".join(OTHERS))
        assert (run.code, report["verdict"]) == (0, "passed"), run.output
        assert not any(run.changed.values()), run.output
    assert identity(*OTHERS) == before


def test_another_machine_takes_its_place(fleet: Fleet) -> None:
    before = identity(*OTHERS)
    fleet.write(ALL | {CHANGED: 7}, SWITCH)
    card = "06:00:00:00:03:01"  # of the machine that died
    with fleet.figures("It is replaced"), uninterrupted(fleet, "spark1", "spark2"):
        lab("replace", CHANGED)
        assert identity(CHANGED) == {CHANGED: ""}
        assert sh(CHANGED, "cat /sys/class/net/enp1s0f0np0/address") != card
        _shown, changes = fleet.plan()
        assert {host for host, listed in changes.items() if listed} == {CHANGED}
        run = fleet.play("site", CHANGED)
        assert run.code == 0, run.output
        run, report = fleet.proof("verify")
        assert (run.code, report["verdict"]) == (0, "passed"), run.output
    assert identity(*OTHERS) == before
