"""What verify advises is done as it says, on real kernels and soft-RoCE, and the next verify passes.

`tools/with_lab.py 2 pytest tests/lab/test_9_verify_remedies.py -m long -s`. The remedies of what facts alone decide: test_9_remedies.py;
benchmarks/fabric_remedies.yml lists them all by finding.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from harness import WHOLE, Proof, lab, make_so, other_mac, prove, sh

pytestmark = pytest.mark.long

LIMIT = "spark[1:2]"
V0, V1 = "enp1s0f0v0", "enp1s0f0v1"
NFT = "nft add table inet mine; nft add chain inet mine {0} '{{ type filter hook {0} priority 0; }}'; nft add rule inet mine {0} {1}"
UP_AGAIN = f"ip link set {V0} down; ip link set {V0} up"
PEER = "10.100.0.1"  # spark1's, on its first VF


@dataclass(frozen=True)
class Fault:
    """A fault by hand on spark2; the cause that verify names, its place and words of its remedy; what the owner then does.

    remedy: a command on spark2, "site", or a call.
    """

    make: str | Callable[[], object]
    cause: str
    where: str
    words: tuple[str, ...]
    remedy: str | Callable[[], object]
    full: bool = False
    after: str = "true"


FIREWALL = "nft delete table inet mine"
CASES = {
    "a firewall that drops ping": Fault(
        NFT.format("input", "icmp type echo-request drop"),
        "mtu.unreachable",
        "spark2",
        ("look at `nft list ruleset`", "allow it between the fabric's addresses"),
        FIREWALL,
    ),
    "a firewall that refuses to send": Fault(
        NFT.format("output", "icmp type echo-request drop"),
        "mtu.refused",
        "spark2",
        ("look at `nft list ruleset`", "allow it between the fabric's addresses"),
        FIREWALL,
    ),
    "a route that is gone": Fault(
        f"ip route del 10.100.0.0/24 dev {V0}",
        "link.route",
        "spark2 p0f0v0",
        ("Run site.yml --tags fabric",),
        "site",
        after=f"ip route get {PEER} | grep -q {V0} || {{ {UP_AGAIN}; }}",
    ),
    "an address that another node has, too": Fault(
        f"ip address add {PEER}/32 dev {V1}",
        "link.address",
        "spark2 p0f0v0",
        (f"`ip address del {PEER}/32 dev {V1}` on spark2",),
        f"ip address del {PEER}/32 dev {V1}",
        after=f"ip address del {PEER}/32 dev {V1} 2>/dev/null; true",
    ),
    "a twin that answers ARP": Fault(
        f"for k in all {V0} {V1} enP2p1s0f0v0; do sysctl -qw net.ipv4.conf.$k.arp_ignore=0; done",
        "arp.twin",
        "spark2",
        ("site.yml --tags fabric does this",),
        "site",
    ),
    "an interface outside the plan that answers ARP": Fault(
        "ip link add mine0 link enp1s0f0np0 type macvlan mode bridge; ip address add 192.0.2.5/24 dev mine0; ip link set mine0 up;"
        " sysctl -qw net.ipv4.conf.all.arp_ignore=0 net.ipv4.conf.mine0.arp_ignore=0",
        "arp.twin",
        "spark2",
        ("set net.ipv4.conf.mine0.arp_ignore=1",),
        "printf 'net.ipv4.conf.mine0.arp_ignore=1\\nnet.ipv4.conf.mine0.arp_announce=2\\n' >/etc/sysctl.d/91-mine.conf;"
        " sysctl -qp /etc/sysctl.d/91-mine.conf",
        after="ip link delete mine0; rm -f /etc/sysctl.d/91-mine.conf",
    ),
    "a switch port with a smaller MTU": Fault(
        lambda: lab("port", "spark2", "1", "mtu=1500"),
        "mtu.path",
        "spark2 p0f0",
        ("set the MTU (L2 MTU) of the switch ports to at least 9026",),
        lambda: lab("port", "spark2", "1", "mtu=9026"),
    ),
    "an interface with a smaller MTU": Fault(
        f"ip link set {V0} mtu 1500", "link.mtu", "spark2 p0f0v0", ("Run site.yml --tags fabric",), "site"
    ),
    "another MAC": Fault(
        other_mac("enp1s0f0np0", 0, V0, "02:00:00:00:77:02"),
        "vf.mac",
        "spark2 p0f0v0",
        ("Run site.yml --tags fabric",),
        "site",
    ),
    "a program on the tests' TCP port": Fault(
        "systemd-run -q --collect --unit=lab-port python3 -c \"import socket, time; s = [socket.create_server(('', p)) for p in"
        ' range(18600, 18700)]; time.sleep(900)"; sleep 3',
        "rdma.port",
        "spark2",
        ("`ss -ltnp` on the node names it. Stop it",),
        "ss -ltnp | grep -q :18600 && systemctl stop lab-port",
        full=True,
        after="systemctl stop lab-port 2>/dev/null; true",
    ),
    "a firewall that drops the tests' TCP": Fault(
        NFT.format("input", f"iifname {{ {V0}, {V1} }} tcp flags syn drop"),
        "rdma.no-meeting",
        "spark2",
        ("a firewall on the nodes",),
        FIREWALL,
        full=True,
    ),
}


def proven(report: pathlib.Path, full: bool) -> Proof:
    return prove(report, LIMIT, *(() if full else ("-e", "dgxspark_verify_mode=quick")))


@pytest.mark.parametrize("name", CASES)
def test_after_its_remedy_verify_passes(name: str, report: pathlib.Path) -> None:
    case = CASES[name]
    if not {"spark1", "spark2"} <= WHOLE:
        make_so(limit=LIMIT)
    WHOLE.clear()
    try:
        case.make() if callable(case.make) else sh("spark2", case.make)
        broken = proven(report, case.full)
        assert broken.verdict == "failed", broken.output
        found = [each for each in broken.report["causes"] if each["id"] == case.cause]
        assert found, broken.causes
        assert any(case.where in each["where"] + each["message"] for each in found), broken.causes
        for words in case.words:
            assert any(words in each["remedy"] for each in found), broken.causes
        if callable(case.remedy):
            case.remedy()
        elif case.remedy == "site":
            make_so(limit=LIMIT)
        else:
            sh("spark2", case.remedy)
        mended = proven(report, case.full)
        assert mended.verdict == "passed", mended.output
        WHOLE.update(("spark1", "spark2"))
    finally:
        lab("port", "spark2", "1", "well")
        sh("spark2", f"nft delete table inet mine 2>/dev/null; {case.after}", check=False)
