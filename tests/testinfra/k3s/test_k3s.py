"""What the role k3s left on a server and an agent, seen from outside it. REAL K3S IS NOT RUN HERE: its stand-in is."""

from __future__ import annotations

import json

import pytest
import yaml

from ansible_collections.dgxspark.cluster.tests.testinfra.hosts import STAND_INS, reach

UNITS = {"spark1": "k3s.service", "spark2": "k3s-agent.service"}
ADDRESSES = {"spark1": "192.0.2.11", "spark2": "192.0.2.12"}


@pytest.mark.parametrize("name", UNITS)
def test_its_unit_runs_and_is_enabled(name: str) -> None:
    shown = reach(name).check_output(f"systemctl show --property=ActiveState,UnitFileState {UNITS[name]}")
    assert set(shown.split()) == {"ActiveState=active", "UnitFileState=enabled"}


@pytest.mark.parametrize("name", UNITS)
def test_the_program_is_the_release(name: str) -> None:
    assert reach(name).file("/usr/local/bin/k3s").mode == 0o755
    assert "v1.36.105+k3s1" in reach(name).check_output("/usr/local/bin/k3s --version")


@pytest.mark.parametrize("name", UNITS)
def test_what_holds_a_token_is_for_root_only(name: str) -> None:
    for path in ("/etc/rancher/k3s/config.yaml", "/etc/rancher/k3s/token"):
        file = reach(name).file(path)
        assert (file.user, file.mode) == ("root", 0o600), path


@pytest.mark.parametrize("name", ADDRESSES)
def test_k3s_is_told_the_address_of_its_host(name: str) -> None:
    config = yaml.safe_load(reach(name).file("/etc/rancher/k3s/config.yaml").content_string)
    assert config["node-ip"] == ADDRESSES[name]


def test_the_agent_does_not_have_the_token_of_servers() -> None:
    server, agent = reach("spark1"), reach("spark2")
    theirs = server.file("/etc/rancher/k3s/token").content_string
    assert agent.file("/etc/rancher/k3s/token").content_string.strip() != theirs.strip()


def test_the_server_knows_both_nodes() -> None:
    listed = json.loads(reach("spark1").check_output("k3s kubectl get nodes -o json"))["items"]
    assert {node["metadata"]["name"] for node in listed} == set(UNITS)
    assert {node["status"]["nodeInfo"]["kubeletVersion"] for node in listed} == {"v1.36.105+k3s1"}


def test_the_kubeconfig_leads_to_the_server_and_is_its_owner_s_only() -> None:
    place = STAND_INS / "kubeconfig"
    assert place.stat().st_mode & 0o777 == 0o600
    assert yaml.safe_load(place.read_text())["clusters"][0]["cluster"]["server"] == "https://192.0.2.11:6443"
