"""One node's fabric from the first run to teardown, under whichever renderer the lab's nodes have.

`DGXSPARK_LAB_RENDERER=networkmanager tools/with_lab.py 1 pytest tests/lab/test_9_renderers.py -m long -s` drives it under
NetworkManager; without the variable, under systemd-networkd. The tests build on each other, in their order. Each prints its seconds.
"""

from __future__ import annotations

import json
import pathlib
import shutil
import time
from collections.abc import Callable

import pytest
import yaml
from harness import ROOT, Run, lab, play, sh, wait_for

pytestmark = pytest.mark.long

NODE, LIMIT = "spark1", "~^spark1$"
CHANGE = "tests/lab/playbooks/netplan_change.yml"
INVENTORY = ROOT / "inventories" / "lab"
FABRIC = yaml.safe_load((INVENTORY / "group_vars" / "dgx.yml").read_text())["dgxspark_fabric"]
VFS = [f"{stem}v{index}" for stem in ("enp1s0f0", "enP2p1s0f0") for index in range(2)]
FILES = "cd /etc/netplan && stat -c '%n %a %u %g' * && sha256sum *"
OURS = "/etc/netplan/90-dgxspark-fabric.yaml"
PROFILE = "/etc/NetworkManager/system-connections"
# On a busy machine netplan takes minutes: it disconnects each device, stops NetworkManager, and asks udev for each.
PATIENT = ("-e", "netplan_vf_rollback_timeout=600")
bare: dict[str, str] = {}


def manager() -> bool:
    return sh(NODE, "systemctl is-active NetworkManager", check=False) == "active"


def timed(what: str, seconds: float) -> None:
    print(f"\n{'NetworkManager' if manager() else 'networkd'} | {what} | {seconds:.0f} s", flush=True)


def site(*arguments: str, **options: object) -> Run:
    return play("site.yml", "--tags", "fabric", *PATIENT, *arguments, limit=LIMIT, **options)  # type: ignore[arg-type]


def teardown() -> Run:
    return play("playbooks/teardown.yml", *PATIENT, limit=LIMIT)


def well(what: str, *arguments: str, changed: bool | None = None, **options: object) -> Run:
    """Run the fabric's part of site.yml; it ends well, and changes something or not."""
    start = time.monotonic()
    run = site(*arguments, **options)
    assert run.code == 0, run.output
    assert changed is None or bool(sum(run.changed.values())) == changed, run.output
    timed(what, time.monotonic() - start)
    return run


def said(run: Run) -> str:
    return " ".join(run.output.split())


def addresses() -> dict[str, list[str]]:
    """The IPv4 and IPv6 addresses of each interface of the fabric."""
    shown = json.loads(sh(NODE, "ip -j address show"))
    return {
        link["ifname"]: [f"{each['local']}/{each['prefixlen']}" for each in link.get("addr_info", ())]
        for link in shown
        if link["ifname"].startswith(("enp1s0f0", "enP2p1s0f0"))
    }


def planned(pool: str, host: int) -> dict[str, list[str]]:
    """What each VF has: one subnet of the pool after the other, and the host's number in it."""
    return {vf: [f"{pool}.{(vf.startswith('enP2')) * 8 + int(vf[-1])}.{host}/24"] for vf in VFS}


def as_planned(pool: str = "10.100", host: int = 1) -> None:
    """Every VF has its one address, with MTU 9000, and no function has any: no DHCP, no 169.254, no fe80."""
    found = addresses()
    for name, wanted in {**planned(pool, host), "enp1s0f0np0": [], "enP2p1s0f0np0": []}.items():
        assert found[name] == wanted, found
    assert set(sh(NODE, f"cat {' '.join(f'/sys/class/net/{vf}/mtu' for vf in VFS)}").split()) == {"9000"}


def becomes(condition: Callable[[], None], seconds: float, what: str) -> None:
    def holds() -> bool:
        try:
            condition()
        except (AssertionError, KeyError):
            return False
        return True

    timed(what, wait_for(holds, seconds, what))


def test_01_first_run() -> None:
    bare["files"] = sh(NODE, FILES)
    well("first run", changed=True)
    as_planned()


def test_02_second_run() -> None:
    well("second run", changed=False)


def test_03_another_pool_is_there_at_once() -> None:
    other = json.dumps({"dgxspark_fabric": {**FABRIC, "address_pool": "10.101.0.0/16"}})
    well("the address pool changed", "-e", other, changed=True)
    as_planned("10.101")
    well("the run after it", "-e", other, changed=False)


def test_04_hosts_reordered(tmp_path: pathlib.Path) -> None:
    shutil.copytree(INVENTORY, tmp_path / "lab")
    hosts = next((tmp_path / "lab").glob("*.yml"))
    tree = yaml.safe_load(hosts.read_text())
    dgx = tree["all"]["children"]["spark"]["children"]["dgx"]["hosts"]
    tree["all"]["children"]["spark"]["children"]["dgx"]["hosts"] = dict(
        [*list(dgx.items())[1:], ("spark1", dgx["spark1"])]
    )
    hosts.write_text(yaml.safe_dump(tree, sort_keys=False))
    well("hosts reordered", inventory=tmp_path / "lab", changed=True)
    as_planned(host=4)
    well("hosts in their old order", changed=True)
    as_planned()


def test_05_a_cable_out_and_in() -> None:
    lab("link", NODE, "2", "down")
    try:
        wait_for(lambda: sh(NODE, "cat /sys/class/net/enP2p1s0f0np0/carrier") == "0", 30, "no carrier")
        time.sleep(10)
        start = time.monotonic()
        run = site()
        assert "Traceback" not in run.output
        timed(f"a run with a cable out, exit {run.code}", time.monotonic() - start)
    finally:
        lab("link", NODE, "2", "up")
    becomes(as_planned, 60, "addresses after the cable is back")
    well("the run after it", changed=False)


def test_06_a_change_that_cuts_the_node_off_goes_back() -> None:
    """Other addresses for a VF and for the management: both are as before, without intervention."""
    mac = sh(NODE, f"cat /sys/class/net/{VFS[0]}/address")
    manages = {"renderer": "NetworkManager"} if manager() else {}
    stanzas = {
        "cut": {"match": {"name": "enP7s7"}, "addresses": ["10.0.2.99/24"], "link-local": [], **manages},
        "vf": {"match": {"name": VFS[0], "macaddress": mac}, "addresses": ["10.102.0.1/24"], "mtu": 9000, **manages},
    }
    tree = json.dumps({"network": {"version": 2, "ethernets": stanzas}})
    before, start = sh(NODE, FILES), time.monotonic()
    asked = {"change_content": tree, "change_foreign": "absorb", "change_timeout": 240}
    run = play(CHANGE, "-e", json.dumps(asked), limit=LIMIT)
    assert run.code != 0
    assert "cut this node off" in said(run), run.output
    if manager():
        assert "takes enP7s7, over which this run reaches the node, down" in said(run), run.output
    timed("a change that cuts the node off, until the play ends", time.monotonic() - start)
    assert sh(NODE, FILES) == before
    assert "10.0.2.15/24" in sh(NODE, "ip -br -4 address show dev enP7s7")
    becomes(as_planned, 300, "the VF's old address")
    well("the run after it", changed=False)


def test_07_reboot() -> None:
    start = time.monotonic()
    lab("reboot", NODE)
    timed("reboot", time.monotonic() - start)
    becomes(as_planned, 120, "addresses after the reboot")
    well("the run after it", changed=False)


def test_08_a_vf_in_a_pod_and_back() -> None:
    vf = VFS[1]
    hca, inside = "rocep1s0f0v1", "ip netns exec pod"
    sh(NODE, f"ip netns add pod; ip link set {vf} netns pod; {inside} ip link set {vf} name net1")
    sh(NODE, f"systemd-run --quiet --unit=lab-pod {inside} sleep 900")
    # What a CNI plugin does; a soft-RoCE device does not come along by itself.
    sh(NODE, f"{inside} ip address add {planned('10.100', 1)[vf][0]} dev net1; {inside} ip link set net1 mtu 9000 up")
    sh(NODE, f"{inside} rdma link add {hca} type rxe netdev net1")
    try:
        well("a run while a VF is in a pod", changed=False)
    finally:
        sh(NODE, f"{inside} rdma link delete {hca}; systemctl stop lab-pod; ip netns delete pod")
    becomes(as_planned, 120, "the VF's address after the pod")
    well("the run after it", changed=False)


def test_09_an_owner_s_profile_of_networkmanager() -> None:
    if not manager():
        pytest.skip("not run: the nodes have systemd-networkd")
    vf = VFS[0]
    how = f"con-name mine ifname {vf} ipv4.method manual ipv4.addresses 192.0.2.9/24 connection.autoconnect-priority 9"
    sh(NODE, f"nmcli connection add type ethernet {how} && nmcli connection up mine")
    try:
        run = site()
        assert run.code != 0
        assert f"{vf}: it lacks IPv4 10.100.0.1/24: NetworkManager's connection 'mine' is active" in said(run), (
            run.output
        )
    finally:
        sh(NODE, "nmcli connection delete mine")
    # NetworkManager may have turned to netplan's profile by itself.
    well("the run after an owner's profile is deleted")
    as_planned()
    well("the run after it", changed=False)


def test_10_teardown() -> None:
    start = time.monotonic()
    run = teardown()
    assert run.code == 0, run.output
    timed("teardown", time.monotonic() - start)
    assert sh(NODE, FILES) == bare["files"]
    assert not set(addresses()) & set(VFS)
    assert "dgx-" not in sh(NODE, "ls /run/NetworkManager/system-connections /run/systemd/network 2>/dev/null; true")


NAMED = """\
network:
  version: 2
  ethernets:
    NM-11111111-2222-3333-4444-555555555555:
      renderer: NetworkManager
      match: {name: enp1s0f0np0}
      dhcp4: true
      networkmanager: {uuid: 11111111-2222-3333-4444-555555555555, name: Wired connection 3}
"""
ANY = NAMED.replace("{name: enp1s0f0np0}", "{}").replace("1111", "6666")


@pytest.mark.parametrize(("text", "absorbed"), [(NAMED, True), (ANY, False)], ids=["named", "any"])
def test_11_networkmanager_s_own_file(text: str, absorbed: bool) -> None:
    if not manager():
        pytest.skip("not run: the nodes have systemd-networkd")
    path = "/etc/netplan/90-NM-lab.yaml"
    sh(NODE, f"cat >{path} <<'END'\n{text}END\nchmod 600 {path}")
    before = sh(NODE, FILES)
    try:
        run = site()
        assert run.code != 0
        assert path in said(run), run.output
        start = time.monotonic()
        run = site("-e", "netplan_vf_foreign_stanzas=absorb")
        if absorbed:
            assert run.code == 0, run.output
            timed("absorb", time.monotonic() - start)
            as_planned()
            assert path not in sh(NODE, "ls /etc/netplan/*")
            well("the run after it", changed=False)
        else:
            assert run.code != 0
            assert "it also configures enP7s7" in said(run), run.output
        start = time.monotonic()
        torn = teardown()
        assert torn.code == 0, torn.output
        timed("teardown, with what was absorbed", time.monotonic() - start)
        assert sh(NODE, FILES) == before
    finally:
        sh(NODE, f"rm -f {path}; netplan apply")


# What a router's advertisement does that comes after netplan has taken the addresses away, and before NetworkManager looks.
ADVERTISED = (
    "d=/run/systemd/system/NetworkManager.service.d; mkdir -p $d; printf '[Service]\\nExecStartPre=-/usr/sbin/ip address add"
    " 2001:db8::5/64 dev enP7s7\\n' >$d/advertised.conf; systemctl daemon-reload"
)
SINCE = "journalctl -u NetworkManager -o cat --since @{} --no-pager"


def test_12_an_advertised_address_does_not_take_the_management() -> None:
    """NetworkManager leaves the interface to others then, as `netplan apply` does without us: with that address alone."""
    if not manager():
        pytest.skip("not run: the nodes have systemd-networkd")
    sh(NODE, ADVERTISED)
    try:
        for what, act in (("first run", site), ("teardown", teardown)):
            began, start = sh(NODE, "date +%s"), time.monotonic()
            run = act()
            assert run.code == 0, run.output
            timed(f"{what} with an advertised address", time.monotonic() - start)
            logged = sh(NODE, SINCE.format(began))
            left = "(enP7s7): state change: unmanaged -> unavailable (reason 'connection-assumed', managed-type: 'external')"
            assert left in logged, logged
            assert "10.0.2.15/24" in sh(NODE, "ip -br -4 address show dev enP7s7")
            assert sh(NODE, "nmcli -g GENERAL.STATE device show enP7s7") == "100 (connected)"
    finally:
        sh(NODE, "rm -r /run/systemd/system/NetworkManager.service.d; systemctl daemon-reload")
