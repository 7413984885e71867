"""What else is on a node: LLDP in the three forms in which it is found, networks, and stacks by their processes."""

from __future__ import annotations

import json
import pathlib
import socket
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.lldp import Neighbour, parse_frame, read_lldp
from ansible_collections.dgxspark.cluster.plugins.module_utils.survey import Net, Signs, Survey, read_survey
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, from_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.tests.unit.fakes import FakeRun

ROUTES = [
    {"dst": "default", "gateway": "192.0.2.1", "dev": "enP7s7", "flags": []},
    {"dst": "192.0.2.0/24", "dev": "enP7s7", "protocol": "kernel", "scope": "link"},
    {"dst": "172.17.0.0/16", "dev": "docker0", "scope": "link", "flags": ["linkdown"]},
    {"type": "unreachable", "dst": "10.9.0.0/16"},
    {"type": "local", "dst": "192.0.2.11", "dev": "enP7s7", "table": "local"},
]


def tlv(kind: int, value: bytes) -> bytes:
    return (kind << 9 | len(value)).to_bytes(2, "big") + value


def frame(capabilities: int = 0b10100) -> bytes:
    mac = bytes.fromhex("48a98a000001")
    head = bytes.fromhex("0180c200000e") + mac + b"\x88\xcc"
    body = tlv(1, b"\x04" + mac) + tlv(2, b"\x05qsfp56-dd-1-1") + tlv(3, b"\0\x78") + tlv(5, b"crs812")
    return head + body + tlv(7, b"\0\x14" + capabilities.to_bytes(2, "big")) + tlv(0, b"")


SWITCH = Neighbour("enp1s0f0np0", "48:a9:8a:00:00:01", "qsfp56-dd-1-1", "crs812", bridge=True)


def test_an_lldp_frame_is_read_and_a_damaged_one_says_less() -> None:
    assert parse_frame("enp1s0f0np0", frame()) == SWITCH
    assert not parse_frame("enp1s0f0np0", frame(0b10000000)).bridge
    for end in range(len(frame())):
        parse_frame("x", frame()[:end])


def test_neighbours_come_of_networkd_s_json_its_files_or_lldpd(tmp_path: pathlib.Path) -> None:
    (tmp_path / "sys/class/net/enp1s0f0np0").mkdir(parents=True)
    (tmp_path / "sys/class/net/enp1s0f0np0/ifindex").write_text("7\n")
    sysfs, run = Sysfs(str(tmp_path / "sys")), FakeRun()
    asked: tuple[t.Any, ...] = (sysfs, run, ["enp1s0f0np0"], str(tmp_path))
    assert read_lldp(*asked) == []

    lying = tmp_path / "run/systemd/netif/lldp"
    lying.mkdir(parents=True)
    (lying / "7").write_bytes(len(frame()).to_bytes(8, "little") + frame() + b"\xff" * 9)
    assert read_lldp(*asked) == [SWITCH]
    (lying / "7").unlink()

    one = {"ChassisID": SWITCH.chassis, "PortID": SWITCH.port, "SystemName": "crs812", "EnabledCapabilities": 20}
    of = [
        {"InterfaceIndex": n, "InterfaceName": name, "Neighbors": [one]}
        for n, name in ((7, "enp1s0f0np0"), (2, "enP7s7"))
    ]
    run.on(("networkctl",), (0, json.dumps({"Neighbors": of}), ""))
    assert read_lldp(*asked) == [SWITCH]
    run.on(("networkctl",), (0, "LINK CHASSIS-ID\n", ""))  # before systemd 257 there is a table alone

    chassis = {
        "id": [{"type": "mac", "value": SWITCH.chassis}],
        "name": [{"value": "crs812"}],
        "capability": [{"type": "Bridge", "enabled": True}, {"type": "Router", "enabled": False}],
    }
    port = {"id": [{"type": "ifname", "value": SWITCH.port}]}
    said = {"lldp": [{"interface": [{"name": "enp1s0f0np0", "chassis": [chassis], "port": [port]}]}]}
    run.on(("lldpctl",), (0, json.dumps(said), ""))
    assert read_lldp(*asked) == [SWITCH]


def survey(tmp_path: pathlib.Path, run: FakeRun, **more: t.Any) -> Survey:
    run.on(("ip", "-j", "-4", "route"), (0, json.dumps(ROUTES), ""))
    return read_survey(Sysfs(str(tmp_path / "sys")), run, system_root=str(tmp_path), **more)


def test_networks_of_routes_docker_and_k3s(tmp_path: pathlib.Path) -> None:
    (tmp_path / "etc/docker").mkdir(parents=True)
    pools = [{"base": "10.200.0.0/16", "size": 24}]
    (tmp_path / "etc/docker/daemon.json").write_text(
        json.dumps({"bip": "10.199.0.1/24", "default-address-pools": pools})
    )
    (tmp_path / "etc/rancher/k3s/config.yaml.d").mkdir(parents=True)
    (tmp_path / "etc/rancher/k3s/config.yaml").write_text('token: s\ncluster-cidr: "10.68.0.0/16"\n')
    (tmp_path / "etc/rancher/k3s/config.yaml.d/x.yaml").write_text("service-cidr: [10.69.0.0/16, 'fd00::/108']\n")
    seen = survey(tmp_path, FakeRun())
    assert seen.uplink == "enP7s7"
    assert seen.networks == (
        Net("192.0.2.0/24", "enP7s7", "route"),
        Net("172.17.0.0/16", "docker0", "route"),
        Net("10.199.0.1/24", None, "/etc/docker/daemon.json"),
        Net("10.200.0.0/16", None, "/etc/docker/daemon.json"),
    )
    assert seen.k3s == {"pods": "10.68.0.0/16", "services": "10.69.0.0/16"}
    with pytest.raises(CollectionError, match="iproute2"):
        read_survey(Sysfs(str(tmp_path)), FakeRun())


def test_stacks_are_known_by_units_files_containers_and_processes(tmp_path: pathlib.Path) -> None:
    known = {name: from_plain(Signs, entry["signs"]) for name, entry in knowledge.load("stacks").items()}
    proc, container = tmp_path / "proc", "ab" * 32
    for pid, (cgroup, command, kib) in {
        "11": (f"0::/system.slice/docker-{container}.scope", "/usr/bin/python3\0-m\0vllm.entrypoints.x\0", 2048),
        "12": ("0::/kubepods.slice/x", "sglang\0serve\0", 1024),
        "13": ("0::/user.slice", "/opt/llama-server \0--port\x008080\0", 4096),
        "14": ("0::/user.slice", "", 1),
    }.items():
        (proc / pid / "fd").mkdir(parents=True)
        (proc / pid / "cgroup").write_text(cgroup + "\n")
        (proc / pid / "cmdline").write_text(command)
        (proc / pid / "status").write_text(f"Name:\tx\nPPid:\t1\nRssAnon:\t{kib} kB\n")
    (proc / "13/fd/3").symlink_to("socket:[4242]")
    (proc / "net").mkdir()
    line = "   0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1\n"
    (proc / "net/tcp").write_text("  sl\n" + line)
    (tmp_path / "etc/netplan").mkdir(parents=True)
    (tmp_path / "etc/netplan/10-qsfp.yaml").write_text("")
    run = FakeRun()
    run.on(("docker", "ps"), (0, f"{container} sparkrun_ab12_node_1 scitrera/x:1\n", ""))
    run.on(("nvidia-smi",), (0, "11, 61440\n12, [N/A]\n", ""))
    found = {stack.id: stack for stack in survey(tmp_path, run, stacks=known, proc_root=str(proc)).stacks}
    assert found.keys() == {"sparkrun", "k3s", "engine", "first-stack"}
    assert (found["sparkrun"].memory_mib, found["sparkrun"].signs) == (61442, ("container sparkrun_ab12_node_1",))
    assert found["k3s"].pids == (12,), "a process in a pod is no engine of its own"
    assert (found["engine"].ports, found["engine"].memory_mib, found["engine"].pids) == ((8080,), 4, (13,))
    assert found["first-stack"].processes == 0 and found["first-stack"].signs == ("file /etc/netplan/10-qsfp.yaml",)


def test_a_process_of_this_machine_is_found_with_its_port(tmp_path: pathlib.Path) -> None:
    code = "import socket,time; s=socket.create_server(('127.0.0.1',0)); print(s.getsockname()[1],flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", code, "made-up-serve"], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout
        port = int(child.stdout.readline())
        socket.create_connection(("127.0.0.1", port)).close()
        (stack,) = survey(tmp_path, FakeRun(), stacks={"x": Signs(commands=("made-up-serve$",))}).stacks
        assert (stack.pids, stack.ports) == ((child.pid,), (port,))
        assert survey(tmp_path, FakeRun(), stacks={"x": Signs(commands=("made-up-elsewhere",))}).stacks == ()
    finally:
        child.kill()
        child.wait()
