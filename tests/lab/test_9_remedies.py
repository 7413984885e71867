"""What a finding of the fabric advises is done as it says, on a real kernel, and the next run ends well.

`tools/with_lab.py 1 pytest tests/lab/test_9_remedies.py -m long -s`; under either renderer. Each case: a fault by hand, a run or
the doctor names it with its remedy, the remedy is carried out, and the fabric is as planned. benchmarks/fabric_remedies.yml lists
them by finding.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import yaml
from harness import ROOT, Run, look, other_mac, play, sh, wait_for

pytestmark = pytest.mark.long

NODE, LIMIT = "spark1", "~^spark1$"
V0, V1, TWIN0, TWIN1 = "enp1s0f0v0", "enp1s0f0v1", "enP2p1s0f0v0", "enP2p1s0f0v1"
PORT, FUNCTION = "enp1s0f0np0", "enP2p1s0f0np0"
FABRIC = yaml.safe_load((ROOT / "inventories" / "lab" / "group_vars" / "dgx.yml").read_text())["dgxspark_fabric"]
NETWORK = "10.100.0.0/24"  # of the VF V0
RECORD = "/var/lib/dgxspark/fabric-before.json"
SEEN = (
    f"for d in {V0} {V1} {TWIN0} {TWIN1}; do"
    " echo $d $(cat /sys/class/net/$d/mtu /sys/class/net/$d/address) $(ip -br -4 address show $d | awk '{print $2, $3, $4}');"
    " done; ls /sys/class/infiniband; ip -4 route show table main | awk '/enp1s0f0|enP2p1s0f0/ {print $1, $3}' | sort"
)


# Emulated cores on a machine with other work.
PATIENT = ("--tags", "fabric", "-e", "netplan_vf_rollback_timeout=300")


def site(*arguments: str) -> Run:
    return play("site.yml", *PATIENT, *arguments, limit=LIMIT, timeout=1800)


def teardown() -> Run:
    return play("playbooks/teardown.yml", *PATIENT, limit=LIMIT, timeout=1800)


def said(run: Run) -> str:
    return " ".join(run.output.split())


def manager() -> bool:
    return sh(NODE, "systemctl is-active NetworkManager", check=False) == "active"


@pytest.fixture(scope="module")
def planned() -> str:
    """Make the fabric; return what is seen of it on the node."""
    run = site()
    assert run.code == 0, run.output
    return sh(NODE, SEEN)


@pytest.fixture(autouse=True)
def is_mended(planned: str) -> Iterator[None]:
    yield
    wait_for(lambda: sh(NODE, SEEN, check=False) == planned, 60, "the fabric as it was")


@dataclass(frozen=True)
class Refused:
    """A fault by hand; what site.yml says; what the owner does then; with what arguments site.yml is run again.

    remedy: commands; `{0}` is the first command in backticks of the answer. after: what mends it if the test fails.
    before: the state in which the fault can be made.
    """

    fault: str
    words: tuple[str, ...]
    remedy: str = ""
    again: tuple[str, ...] = ()
    after: str = "true"
    before: str = "true"
    arguments: tuple[str, ...] = ()
    manager: bool | None = None


CX7 = f"network: {{version: 2, ethernets: {{{FUNCTION}: {{link-local: [ipv4]}}}}}}"
DRIVER = "[Match]\\nDriver=igbvf\\n[Network]\\nAddress=192.0.2.1/24\\n"
MINE = "/etc/netplan/91-mine.yaml"
ALONE = (
    "for unit in $(systemctl list-units --type=service --state=running --plain --no-legend | awk '{print $1}'); do"
    " systemctl show -P PrivateNetwork $unit | grep -q yes && systemctl stop $unit; done; ip -all netns delete; true"
)
IMMUTABLE = "python3 -c \"import fcntl, os, struct; fcntl.ioctl(os.open('/etc/netplan', os.O_RDONLY), 0x40086602, struct.pack('l', {}))\""
BESIDE = "d=/etc/systemd/network/10-netplan-dgx-p0f0v0.network.d; mkdir -p $d;"
STRANDED = f"ip netns add dead && ip link set {V1} netns dead"
CASES = {
    "an owner's file where ours is to be": Refused(
        "cp /etc/netplan/90-dgxspark-fabric.yaml /root/ours.yaml;"
        " printf 'network: {version: 2}\\n' >/etc/netplan/90-dgxspark-fabric.yaml",
        ("was not made by this collection", "Give it another name"),
        f"mv /etc/netplan/90-dgxspark-fabric.yaml {MINE}",
        after=f"rm -f {MINE}",
    ),
    "a broken file of the owner": Refused(
        "printf 'network: [\\n' >/etc/netplan/50-broken.yaml",
        ("/etc/netplan/50-broken.yaml", "cannot be read", "Correct it or move it away."),
        "mv /etc/netplan/50-broken.yaml /root/",
        after="rm -f /etc/netplan/50-broken.yaml",
    ),
    "an owner's stanza for a function": Refused(
        f"echo '{CX7}' >/etc/netplan/40-cx7.yaml",
        ("/etc/netplan/40-cx7.yaml", "both configure it", "Remove the other one"),
        "rm /etc/netplan/40-cx7.yaml",
        after="rm -f /etc/netplan/40-cx7.yaml",
    ),
    "a VLAN on a function": Refused(
        f"printf '%s\\n' '{CX7[:-1]}, vlans: {{v7: {{id: 7, link: {FUNCTION}}}}}}}' >/etc/netplan/40-vlan.yaml",
        ("vlans.v7", "refers to", "remove it there by hand"),
        "rm /etc/netplan/40-vlan.yaml",
        ("-e", "netplan_vf_foreign_stanzas=absorb"),
        after="rm -f /etc/netplan/40-vlan.yaml",
        arguments=("-e", "netplan_vf_foreign_stanzas=absorb"),
    ),
    "RDMA's exclusive mode": Refused(
        # The kernel refuses it while there is another network namespace; some services of systemd have one.
        "rdma system set netns exclusive",
        ("its namespace mode is `exclusive`", "Make it shared"),
        "{0}",
        before=ALONE,
        after="rdma system set netns shared",
    ),
    "a VF in a dead namespace": Refused(
        STRANDED,
        ("left in a dead network namespace (", "Set sriov_roce_reset_stranded: true"),
        again=("-e", "sriov_roce_reset_stranded=true"),
        after="ip netns delete dead 2>/dev/null; true",
    ),
    "a damaged record": Refused(
        f"cp {RECORD} /root/record; printf '{{' >{RECORD}",
        ("is damaged", "move it away"),
        "{0}",
    ),
    "more VFs than the card has": Refused(
        "true",
        ("Set dgxspark_fabric.vf_count to 7",),
        arguments=(
            "-e",
            json.dumps({"dgxspark_fabric": {**FABRIC, "vf_count": 8}}),
        ),
    ),
    "a service that is masked": Refused(
        "systemctl mask --now SERVICE",
        ("SERVICE: it is masked on this node", "`systemctl unmask SERVICE`"),
        "{0} && systemctl start SERVICE",
        after="systemctl unmask SERVICE; systemctl start SERVICE",
    ),
    "an owner's .network by driver": Refused(
        f"printf '{DRIVER}' >/etc/systemd/network/05-mine.network; networkctl reload",
        ("/etc/systemd/network/05-mine.network configures it", "Move /etc/systemd/network/05-mine.network away"),
        "mv /etc/systemd/network/05-mine.network /root/",
        after="rm -f /etc/systemd/network/05-mine.network",
        manager=False,
    ),
    "a drop-in beside netplan's own file": Refused(
        f"{BESIDE} printf '[Link]\\nMTUBytes=1500\\n' >$d/mine.conf; networkctl reload; networkctl reconfigure {V0}",
        ("mine.conf: its line MTUBytes=1500 takes precedence", "Remove that line"),
        "find /etc/systemd/network -name mine.conf -delete && {0}",
        after="rm -rf /etc/systemd/network/*.network.d",
        manager=False,
    ),
    "a drop-in that takes the address away": Refused(
        f"{BESIDE} printf '[Network]\\nAddress=\\n' >$d/mine.conf; networkctl reload; networkctl reconfigure {V0}",
        ("mine.conf overrides what", "Remove its lines about IPv4"),
        "find /etc/systemd/network -name mine.conf -delete",
        after="rm -rf /etc/systemd/network/*.network.d; networkctl reload",
        manager=False,
    ),
    "a function that is not there": Refused(
        f"echo $(basename $(readlink /sys/class/net/{FUNCTION}/device)) >/run/gone; echo 1 >/sys/class/net/{FUNCTION}/device/remove",
        ("the function is missing", "plug it in"),
        # A ConnectX-7's functions come back with their cable; this card's with a look at the bus.
        f"echo 1 >/sys/bus/pci/rescan; for _ in $(seq 60); do test -e /sys/class/net/{FUNCTION} && break; sleep 1; done",
        after="echo 1 >/sys/bus/pci/rescan",
    ),
    "an owner's profile": Refused(
        f"nmcli connection add type ethernet con-name mine ifname {V0} ipv4.method manual ipv4.addresses 192.0.2.9/24"
        " connection.autoconnect-priority 9 && nmcli connection up mine",
        ("NetworkManager's connection 'mine' is active", "Delete that connection"),
        "nmcli connection delete mine",
        after="nmcli connection delete mine 2>/dev/null; true",
        manager=True,
    ),
    "an interface that NetworkManager leaves alone": Refused(
        f"printf '[keyfile]\\nunmanaged-devices=interface-name:{V0}\\n' >/etc/NetworkManager/conf.d/mine.conf;"
        f" systemctl reload NetworkManager; nmcli device set {V0} managed no; ip -4 address flush dev {V0}",
        (
            "NetworkManager leaves it alone (unmanaged)",
            "Take it out of `unmanaged-devices`",
            "rules with NM_UNMANAGED; `systemctl reload",
        ),
        "rm /etc/NetworkManager/conf.d/mine.conf; {0}",
        after=f"rm -f /etc/NetworkManager/conf.d/mine.conf; systemctl reload NetworkManager; nmcli device set {V0} managed yes",
        manager=True,
    ),
    "a route that another interface has": Refused(
        f"ip -4 route del {NETWORK} dev {V0}; ip -4 route add {NETWORK} dev {V1}",
        (f"{V1} has that route instead", f"`ip -4 route del {NETWORK} dev {V1}`"),
        "{0}",
        after=f"ip -4 route del {NETWORK} dev {V1} 2>/dev/null; ip -4 route show {NETWORK} | grep -q {V0} ||"
        f" {{ ip link set {V0} down; ip link set {V0} up; }}",
    ),
    "an immutable folder of netplan's files": Refused(
        "rm /etc/netplan/90-dgxspark-fabric.yaml; " + IMMUTABLE.format("0x10"),
        ("Check whether it is immutable (`lsattr`)",),
        IMMUTABLE.format("0"),  # what `chattr -i` does, which a lab node lacks
        after=IMMUTABLE.format("0"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_site_refuses_ends_well_after_its_remedy(name: str, planned: str) -> None:
    case = CASES[name]
    if case.manager is not None and case.manager != manager():
        pytest.skip("not run: of the other renderer")
    service = "NetworkManager.service" if manager() else "systemd-networkd.service"

    def of_node(text: str) -> str:
        return text.replace("SERVICE", service)

    sh(NODE, case.before)
    sh(NODE, of_node(case.fault))
    try:
        refused = site(*case.arguments)
        assert refused.code != 0, refused.output
        for words in case.words:
            assert of_node(words) in said(refused), refused.output
        told = re.search(r"`([^`]+)`", said(refused)[said(refused).index(of_node(case.words[-1])) :])
        sh(NODE, of_node(case.remedy.replace("{0}", told[1] if told else "false")) or "true")
        mended = site(*case.again)
        assert mended.code == 0, mended.output
        wait_for(lambda: sh(NODE, SEEN) == planned, 30, "the fabric as planned")
    finally:
        sh(NODE, of_node(case.after), check=False)


# What the doctor names and site.yml does by itself: "Run site.yml --tags fabric".
DRIFTED = (
    {
        f"ip link set {V0} mtu 1500": ("link.mtu", "p0f0v0"),
        f"ip -4 address flush dev {V1}": ("gid.no-ipv4", "p0f0v1"),
        f"ip -4 address flush dev {TWIN0}; ip address add 192.0.2.3/24 dev {TWIN0}": ("gid.wrong-ipv4", "p0f1v0"),
        f"ip link set {TWIN1} down": ("link.down", "p0f1v1"),
    },
    {
        f"basename $(readlink -f /sys/class/net/{V0}/device) >/sys/bus/pci/drivers/igbvf/unbind": (
            "vf.unbound",
            "p0f0v0",
        ),
        other_mac(PORT, 1, V1, "02:00:00:00:77:01"): ("vf.mac", "p0f0v1"),
        f"echo 0 >/sys/class/net/{FUNCTION}/device/sriov_numvfs": ("vf.count", "p0f1"),
    },
    {f"ip -4 route del {NETWORK} dev {V0}": ("link.route", "p0f0v0")},
)


@pytest.mark.parametrize("faults", DRIFTED, ids=["addresses", "devices", "routes"])
def test_what_the_doctor_leaves_to_site_is_done_by_it(
    faults: dict[str, tuple[str, str]], planned: str, report: pathlib.Path
) -> None:
    for command in faults:
        sh(NODE, command)
    seen = look(report, limit=LIMIT)
    found = {(each["id"], each["where"]): each["remedy"] for each in seen.report["findings"]}
    mended = site()
    assert mended.code == 0, mended.output
    for kind, slot in faults.values():
        assert (
            "dgxspark.cluster.site --tags fabric" in found[kind, f"{NODE} {slot}"]
            or "The role" in found[kind, f"{NODE} {slot}"]
        ), found
    assert sh(NODE, SEEN) == planned
    after = look(report, limit=LIMIT)
    left = [each for each in after.report["findings"] if each["id"].startswith(("link.", "vf.", "gid.", "plan."))]
    assert not left, left


def test_a_failed_unit_is_forgotten_as_the_doctor_says(report: pathlib.Path) -> None:
    unit = "dgxspark-fabric.service"
    sh(NODE, f"mkdir -p /run/systemd/system/{unit}.d; printf '[Service]\\nExecStart=\\nExecStart=/bin/false\\n'"
       f" >/run/systemd/system/{unit}.d/mine.conf; systemctl daemon-reload; systemctl restart {unit}; true", check=False)  # fmt: skip
    assert [each for each in look(report, limit=LIMIT).report["findings"] if each["id"] == "unit.failed"]
    sh(NODE, f"rm -r /run/systemd/system/{unit}.d; systemctl daemon-reload")
    run = site()
    assert run.code == 0, run.output
    assert not [each for each in look(report, limit=LIMIT).report["findings"] if each["id"] == "unit.failed"]


def test_a_stopped_service_runs_after_the_doctor_s_commands(report: pathlib.Path) -> None:
    service = "NetworkManager.service" if manager() else "systemd-networkd.service"
    sh(NODE, f"systemctl mask --now {service}")
    try:
        (found,) = (each for each in look(report, limit=LIMIT).report["findings"] if each["id"] == "netplan.service")
        for command in re.findall(r"`([^`]+)`", found["remedy"]):
            sh(NODE, command)
    finally:
        sh(NODE, f"systemctl unmask {service}; systemctl start {service}")
    assert not [each for each in look(report, limit=LIMIT).report["findings"] if each["id"] == "netplan.service"]


def test_a_pod_s_vf_is_taken_down_once_the_pod_is_stopped_as_told(planned: str) -> None:
    sh(
        NODE,
        f"ip netns add pod; ip link set {V1} netns pod; systemd-run --quiet --unit=lab-pod ip netns exec pod sleep 900",
    )
    try:
        refused = teardown()
        assert refused.code != 0
        assert "Stop the pod that uses it, then run again." in said(refused), refused.output
    finally:
        sh(NODE, "systemctl stop lab-pod; ip netns delete pod")
    torn = teardown()
    assert torn.code == 0, torn.output
    assert sh(NODE, f"cat /sys/class/net/{FUNCTION}/device/sriov_numvfs") == "0"
    assert site().code == 0
