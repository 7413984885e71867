"""From bare nodes to a verified fabric with the inventory that discover writes; inventories/lab only says how to reach the nodes."""

from __future__ import annotations

import json
import pathlib

import pytest
import yaml
from harness import NODES, play, sh

pytestmark = pytest.mark.long

STATE = "ip -br address; ip route; cat /sys/class/net/*/device/sriov_numvfs; ls /etc/netplan /etc/systemd/system"
# What comes from the lab's emulation, and cannot be discovered.
LAB = ("-e", "netplan_vf_rollback_timeout=180")


def test_the_discovered_inventory_takes_bare_nodes_to_verified(tmp_path: pathlib.Path, report: pathlib.Path) -> None:
    assert play("playbooks/teardown.yml").code == 0
    for node in NODES:  # as DGX OS leaves them
        sh(node, "ip link set enp1s0f0np0 up; ip link set enP2p1s0f0np0 up")
    before = {node: sh(node, STATE) for node in NODES}
    folder = tmp_path / "my-cluster"
    look = ("-e", f"dgxspark_discover_to={folder}", "-e", "dgxspark_discover_window=30", "-e", "ansible_become=false")
    for expected in (1, 0):
        seen = play("playbooks/discover.yml", *look)
        assert seen.code == 0, seen.output
        assert sum(seen.changed.values()) == expected, seen.output
    assert {node: sh(node, STATE) for node in NODES} == before
    fabric = yaml.safe_load((folder / "inventory/group_vars/dgx.yml").read_text())["dgxspark_fabric"]
    assert (fabric["hardware"], fabric["topology"], fabric["ports"]) == ("lab", "switch", [0])
    assert "10.0.2.0/24" in fabric["management_networks"]

    made = play("site.yml", "-e", f"dgxspark_report_file={report}", *LAB, inventory=str(folder / "inventory"))
    assert made.code == 0, made.output
    assert json.loads(report.read_text())["verdict"] == "passed"
    again = play("site.yml", "--tags", "fabric", *LAB, inventory=str(folder / "inventory"))
    assert not any(again.changed.values()), again.output
    rediscovered = play("playbooks/discover.yml", *look)
    assert rediscovered.code == 0 and not any(rediscovered.changed.values()), rediscovered.output
