"""A node whose management is Wi-Fi: `netplan apply` restarts it, and the change of the fabric ends well all the same.

`DGXSPARK_LAB_RENDERER=networkmanager tools/with_lab.py 1 pytest tests/lab/test_9_wifi.py -m long -s`. The radios are the kernel's
simulated ones (mac80211_hwsim): the node's management interface is behind an access point in a network namespace of the node.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator

import pytest
from harness import lab, play, sh, wait_for

pytestmark = pytest.mark.long

CHANGE = "tests/lab/playbooks/netplan_change.yml"
NODE, LIMIT = "spark1", "~^spark1$"
WIFI = """\
network:
  version: 2
  renderer: NetworkManager
  wifis:
    wlan0:
      dhcp4: false
      dhcp6: false
      addresses: [10.0.2.15/24]
      routes: [{to: default, via: 10.0.2.2}]
      access-points: {lab: {password: lab-password}}
"""
HOSTAPD = """\
interface=wlan1
bridge=br0
ssid=lab
hw_mode=g
channel=1
wpa=2
wpa_key_mgmt=WPA-PSK
wpa_passphrase=lab-password
rsn_pairwise=CCMP
wpa_pairwise_update_count=60
wpa_group_update_count=60
"""
# The connection breaks in the middle. If Wi-Fi does not come, the cable comes back.
MOVE = """\
set -x; cp -p /etc/netplan/01-mgmt.yaml /root/mgmt.yaml
modprobe mac80211_hwsim radios=2; sleep 2
ip netns add ap; iw phy phy1 set netns name ap; ip link set enP7s7 netns ap; rm -f /etc/netplan/01-mgmt.yaml
inside='ip netns exec ap'
$inside ip link add br0 type bridge; $inside ip link set enP7s7 master br0; $inside ip link set enP7s7 up; $inside ip link set br0 up
systemd-run --unit=lab-ap ip netns exec ap hostapd /root/hostapd.conf; sleep 2
install -m 600 /root/wifi.yaml /etc/netplan/01-wifi.yaml; netplan apply
for _ in $(seq 20); do
  for _ in $(seq 15); do ip -br -4 address show dev wlan0 | grep -q 10.0.2.15 && exit 0; sleep 1; done
  # On a slow node the access point answers too late, and NetworkManager does not try again by itself.
  nmcli --wait 30 connection up netplan-wlan0-lab
done
sh /root/back
"""
BACK = """\
set -x; systemctl stop lab-ap; rm -f /etc/netplan/01-wifi.yaml; cp -p /root/mgmt.yaml /etc/netplan/01-mgmt.yaml
ip -n ap link set enP7s7 nomaster; ip -n ap link set enP7s7 netns 1; ip netns delete ap; modprobe -r mac80211_hwsim; netplan apply
"""
# While the old files are back, the access point refuses the password for a while, as one that answers too late seems to:
# NetworkManager has no secrets then, and does not try again.
REFUSE = """\
set -x
there() { test "$(cat /root/wifi.yaml)" = "$(cat /etc/netplan/01-wifi.yaml)"; }
while there; do sleep 1; done; until there; do sleep 1; done
began=$(date +%s); systemctl stop lab-ap; sed 's/=lab-password/=other-password/' /root/hostapd.conf >/root/other.conf
systemd-run --unit=lab-refuses ip netns exec ap hostapd /root/other.conf
for _ in $(seq 240); do
  journalctl -u NetworkManager --since @$began | grep 'wlan0): no secrets' >/root/refused && break; sleep 1
done
systemctl stop lab-refuses; systemd-run --unit=lab-ap ip netns exec ap hostapd /root/hostapd.conf
"""


def put(path: str, text: str) -> None:
    sh(NODE, f"cat >{path} <<'END'\n{text}END\nchmod 600 {path}")


def reached_by(interface: str) -> bool:
    """Whether the node answers, and has its management there. A connection that the move breaks would hang."""
    try:
        return "10.0.2.15/24" in lab("ssh", NODE, f"ip -br -4 address show dev {interface}", check=False, patience=30)
    except subprocess.TimeoutExpired:
        return False


def over_wifi() -> bool:
    return reached_by("wlan0")


def over_cable() -> bool:
    return reached_by("enP7s7")


@pytest.fixture(scope="module", autouse=True)
def wifi() -> Iterator[None]:
    for path, text in {
        "wifi.yaml": WIFI,
        "hostapd.conf": HOSTAPD,
        "move": MOVE,
        "back": BACK,
        "refuse": REFUSE,
    }.items():
        put(f"/root/{path}", text)
    sh(NODE, "systemd-run --on-active=10 --unit=lab-move sh /root/move")
    try:
        wait_for(over_wifi, 900, "Wi-Fi")
        yield
    finally:
        if over_wifi():
            sh(NODE, "systemd-run --on-active=10 --unit=lab-back sh /root/back")
        wait_for(over_cable, 900, "the cable")


def timed(what: str, seconds: float) -> None:
    print(f"\nWi-Fi | {what} | {seconds:.0f} s", flush=True)


def test_the_fabric_is_made_changed_back_and_taken_down_over_wifi() -> None:
    planned = play("playbooks/plan.yml", limit=LIMIT)
    assert planned.code == 0, planned.output
    assert "down for up to 60 s" in " ".join(planned.output.split()), planned.output
    for book, tags, changed in (
        ("site.yml", ("--tags", "fabric"), True),
        ("site.yml", ("--tags", "fabric"), False),
        ("playbooks/teardown.yml", (), True),
    ):
        start = time.monotonic()
        run = play(book, *tags, "-e", "netplan_vf_rollback_timeout=300", limit=LIMIT)
        assert run.code == 0, run.output
        assert bool(sum(run.changed.values())) is changed, run.output
        timed(f"{book}, changed: {changed}", time.monotonic() - start)
        if changed and tags:
            said = " ".join(run.output.split())
            assert "takes wlan0, over which this run reaches the node, down for up to 60 s" in said, run.output
            assert "after 360 s instead of 300 s" in said, run.output
        assert over_wifi()


def test_a_change_that_cuts_wifi_off_goes_back() -> None:
    """Another address for the management: the old one is back without intervention, and so is the owner's file.

    Also where the access point refuses once.
    """
    sh(NODE, "systemd-run --unit=lab-refuse sh /root/refuse")
    before, start = sh(NODE, "cd /etc/netplan; stat -c '%n %a' *; sha256sum *"), time.monotonic()
    asked = {
        "change_content": WIFI.replace("10.0.2.15/24", "10.0.2.99/24"),
        "change_foreign": "absorb",
        "change_timeout": 120,
    }
    run = play(CHANGE, "-e", json.dumps(asked), limit=LIMIT)
    assert run.code != 0
    assert "cut this node off" in " ".join(run.output.split()), run.output
    assert "lab-password" not in run.output
    timed("a change that cuts the node off, until the play ends", time.monotonic() - start)
    wait_for(over_wifi, 300, "Wi-Fi after the rollback")
    assert "no secrets" in sh(NODE, "cat /root/refused"), "the access point did not refuse, so nothing is shown"
    assert sh(NODE, "cd /etc/netplan; stat -c '%n %a' *; sha256sum *") == before
    assert over_wifi()
