"""k3s_node and k3s_info on hosts that are namespaces, with tests/stand_ins/k3s: REAL K3S IS NOT RUN HERE."""

from __future__ import annotations

import hashlib
import json
import pathlib
import platform
import signal
import subprocess
import sys
import time
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.k3s.plan import start_signs
from ansible_collections.dgxspark.cluster.tests.unit.namespaces import STAND_INS, Host, Lan, needed

pytestmark = needed()
OLD, NEW = "v1.36.4+k3s1", "v1.36.5+k3s1"
PLACES = ("/etc", "/usr/local/bin", "/var/lib")
STAGING = "/var/lib/dgxspark-k3s-staging"
SIGNS = start_signs()
CALL = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
from ansible.module_utils.testing import patch_module_args
import importlib
module = importlib.import_module("ansible_collections.dgxspark.cluster.plugins.modules." + sys.argv[2])
with patch_module_args(json.load(sys.stdin)):
    module.main()
"""


def begin(host: Host, module: str, check: bool = False, **arguments: t.Any) -> subprocess.Popen[str]:
    """Start a module on a host, as Ansible would, without Ansible."""
    words = [
        "nsenter",
        "-t",
        str(host.process.pid),
        "-m",
        "-n",
        "--",
        sys.executable,
        "-c",
        CALL,
        json.dumps(sys.path),
        module,
    ]
    started = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert started.stdin
    started.stdin.write(json.dumps({**arguments, "_ansible_check_mode": check}))
    started.stdin.close()
    started.stdin = None
    return started


def call(host: Host, module: str, check: bool = False, **arguments: t.Any) -> dict[str, t.Any]:
    """Run a module on a host; return its result."""
    out, err = begin(host, module, check, **arguments).communicate(timeout=600)
    assert out, err
    return t.cast(dict[str, t.Any], json.loads(out.splitlines()[-1]))


def stage(host: Host, version: str, broken: str = "", images: bool = False) -> str:
    """Put a release of the stand-in into the host's staging folder; return its digest."""
    text = (STAND_INS / "k3s").read_text(encoding="utf-8") + f"# VERSION {version}\n"
    text += f"# BROKEN {broken}\n" if broken else ""
    source = host.folder / "k3s-binary"
    source.write_text(text, encoding="utf-8")
    host.sh(f"mkdir -p {STAGING} && cp {source} {STAGING}/k3s-binary")
    if images:
        archive = f"k3s-airgap-images-{platform.machine()}.tar.zst"
        host.sh(f"cd {STAGING} && echo images > {archive} && sha256sum k3s-binary {archive} > sums.txt")
    return hashlib.sha256(text.encode()).hexdigest()


def server(host: Host, sha256: str | None, version: str = OLD, **more: t.Any) -> dict[str, t.Any]:
    config = f"node-name: s\nnode-ip: {host.address}\ntoken-file: /etc/rancher/k3s/token\n"
    config += "agent-token-file: /etc/rancher/k3s/agent-token\n"
    return {
        "role": "server", "version": version, "file": "k3s-binary", "config": config, "first": True, "timeout": 30,
        "signs": SIGNS, **({"sha256": sha256} if sha256 else {}), **more,
    }  # fmt: skip


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Iterator[Host]:
    lan = Lan(tmp_path / "lan")
    yield lan.host("s", "192.0.2.11")
    lan.close()


def test_installed_kept_and_taken_away_without_a_trace(host: Host) -> None:
    host.sh(
        "mkdir -p /etc/cni/net.d /var/lib/other && echo mine > /etc/cni/net.d/10-mine.conf && echo x > /var/lib/other/x"
    )
    before = host.tree(*PLACES)
    digest = stage(host, OLD, images=True)
    archive = f"k3s-airgap-images-{platform.machine()}.tar.zst"
    wanted = server(host, digest, images=archive, sums="sums.txt", registries="configs: {}\n")
    foretold = call(host, "k3s_node", check=True, **wanted)
    done = call(host, "k3s_node", **wanted)
    assert done["changed"] and done["changes"] == foretold["changes"], done
    assert "configs" not in json.dumps(done)
    modes = host.sh("stat -c '%a %n' /etc/rancher/k3s/*").splitlines()
    assert {line.split()[0] for line in modes} == {"600"}, modes
    assert host.sh("ls /var/lib/rancher/k3s/agent/images") == archive
    seen = call(host, "k3s_info", registries="configs: {}\n")["machine"]["k3s"]
    assert (seen["version"], seen["role"], seen["active"], seen["enabled"]) == (OLD, "server", "active", "enabled")
    assert seen["token"] and seen["registries"] and seen["sha256"] == digest and seen["images"] == OLD
    assert not call(host, "k3s_info")["machine"]["k3s"]["registries"], "a file that should not be there is told"
    token = host.sh("cat /etc/rancher/k3s/token")
    assert len(token) == 64 and token not in json.dumps([done, seen])
    again = call(host, "k3s_node", **wanted)
    assert again["changed"] is False, again
    gone = call(host, "k3s_node", state="absent")
    assert gone["changed"], gone
    assert host.tree(*PLACES) == before
    assert call(host, "k3s_node", state="absent")["changed"] is False


def test_an_agent_takes_no_token_of_a_server(host: Host) -> None:
    before = host.tree(*PLACES)
    wanted = {
        **server(host, stage(host, OLD)),
        "role": "agent",
        "first": False,
        "token": f"K10{'a' * 64}::server:{'b' * 64}",
    }
    failed = call(host, "k3s_node", **wanted)
    assert failed["failed"] and "the join token is the servers' own" in failed["msg"]
    assert "b" * 64 not in json.dumps(failed)
    assert host.tree(*PLACES) == before


@pytest.mark.more
def test_a_failed_upgrade_puts_back_binary_files_and_data(host: Host) -> None:
    assert call(host, "k3s_node", **server(host, stage(host, OLD)))["changed"]
    host.sh('echo \'{"kept": {"labels": {}}}\' > /var/lib/rancher/k3s/server/db/state.db')
    files = host.tree("/etc/rancher", "/usr/local/bin", "/var/lib/dgxspark/k3s/record.json")
    digest = stage(host, NEW, broken="starting kubernetes: failed to find memory cgroup (v2)")
    failed = call(host, "k3s_node", **server(host, digest, NEW, registries="a: secret\n"))
    assert failed["failed"] and "The kernel does not offer the cgroup controllers" in failed["msg"]
    assert f"The node is back on {OLD}, which is running." in failed["msg"]
    assert host.tree("/etc/rancher", "/usr/local/bin", "/var/lib/dgxspark/k3s/record.json") == files
    assert "kept" in host.sh("cat /var/lib/rancher/k3s/server/db/state.db")
    assert host.sh("ls /var/lib/dgxspark/k3s") == "record.json"
    assert call(host, "k3s_node", **server(host, stage(host, NEW), NEW))["changed"]
    assert call(host, "k3s_info")["machine"]["k3s"]["version"] == NEW


BROKEN = "starting kubernetes: failed to find memory cgroup (v2)"


def interrupt(host: Host, number: signal.Signals, wanted: t.Mapping[str, t.Any]) -> None:
    """Start an installation, and signal it once its binary is in place."""
    running, until = begin(host, "k3s_node", **wanted), time.monotonic() + 60
    while wanted["version"] not in host.sh("cat /usr/local/bin/k3s", check=False) and time.monotonic() < until:
        pass  # at once: what stands between the binary and the record is killed, too
    running.send_signal(number)
    running.communicate(timeout=120)


@pytest.mark.more
def test_an_upgrade_whose_connection_breaks_ends_by_itself(host: Host) -> None:
    """Ansible gives a command with become a terminal; when the connection breaks, its processes get SIGHUP."""
    assert call(host, "k3s_node", **server(host, stage(host, OLD)))["changed"]
    interrupt(host, signal.SIGHUP, server(host, stage(host, NEW, broken=BROKEN), NEW))
    seen = call(host, "k3s_info")["machine"]["k3s"]
    assert (seen["version"], seen["active"]) == (OLD, "active")
    assert host.sh("ls /var/lib/dgxspark/k3s") == "record.json"


@pytest.mark.more
def test_the_run_after_a_killed_upgrade_goes_back_to_what_was_before_both(host: Host) -> None:
    assert call(host, "k3s_node", **server(host, stage(host, OLD)))["changed"]
    host.sh('echo \'{"kept": {"labels": {}}}\' > /var/lib/rancher/k3s/server/db/state.db')
    wanted = server(host, stage(host, NEW, broken=BROKEN), NEW)
    interrupt(host, signal.SIGKILL, wanted)
    failed = call(host, "k3s_node", **wanted)
    assert failed["failed"] and f"The node is back on {OLD}, which is running." in failed["msg"], failed
    seen = call(host, "k3s_info")["machine"]["k3s"]
    assert (seen["version"], seen["active"]) == (OLD, "active")
    assert "kept" in host.sh("cat /var/lib/rancher/k3s/server/db/state.db")
    assert host.sh("ls /var/lib/dgxspark/k3s") == "record.json"


@pytest.mark.more
def test_a_run_that_was_killed_before_its_binary_was_there_is_gone_on_with(host: Host) -> None:
    """The record is there first: between the two a binary was once taken for someone else's, and every later run refused it."""
    assert call(host, "k3s_node", **server(host, stage(host, OLD)))["changed"]
    host.sh("systemctl stop k3s; rm /usr/local/bin/k3s")
    assert call(host, "k3s_node", **server(host, stage(host, OLD)))["changed"]
    seen = call(host, "k3s_info")["machine"]["k3s"]
    assert (seen["version"], seen["active"]) == (OLD, "active")


@pytest.mark.more
def test_the_run_after_a_killed_installation_leaves_a_bare_node_if_it_fails(host: Host) -> None:
    before = host.tree(*PLACES)
    wanted = server(host, stage(host, OLD, broken=BROKEN))
    interrupt(host, signal.SIGKILL, wanted)
    assert host.sh("stat -c %a /var/lib/dgxspark/k3s/before") == "700"
    failed = call(host, "k3s_node", **wanted)
    assert failed["failed"] and "the node is in its previous state" in failed["msg"], failed
    assert host.tree(*PLACES) == before


@pytest.mark.more
@pytest.mark.parametrize("fault", ["corrupted", "another-version", "unknown-key", "no-binary"])
def test_a_first_run_that_fails_leaves_a_bare_node(host: Host, fault: str) -> None:
    before = host.tree(*PLACES)
    digest = stage(host, NEW if fault == "another-version" else OLD)
    wanted = server(host, digest)
    if fault == "corrupted":
        wanted["sha256"] = "0" * 64
    if fault == "unknown-key":
        host.sh(f"echo '# KEYS server node-name node-ip' >> {STAGING}/k3s-binary")
        wanted["sha256"] = host.sh(f"sha256sum {STAGING}/k3s-binary").split()[0]
    if fault == "no-binary":
        host.sh(f"rm {STAGING}/k3s-binary")
    failed = call(host, "k3s_node", **wanted)
    told = {
        "corrupted": "is corrupted: its SHA-256 is",
        "another-version": f"says that it is {NEW}",
        "unknown-key": "config.yaml has a setting that this release of K3s does not know",
        "no-binary": "did not reach the node",
    }
    assert failed["failed"] and told[fault] in failed["msg"], failed
    assert host.tree(*PLACES) == before


def test_a_full_disk_in_the_middle_leaves_a_bare_node(host: Host) -> None:
    digest = stage(host, OLD)
    host.sh(
        "mount -t tmpfs -o size=16k tiny /etc/systemd/system && head -c 16k /dev/zero > /etc/systemd/system/full || true"
    )
    before = host.tree("/etc/rancher", "/usr/local/bin")
    failed = call(host, "k3s_node", **server(host, digest))
    assert failed["failed"] and "the disk is full" in failed["msg"], failed
    assert host.tree("/etc/rancher", "/usr/local/bin") == before


def test_a_k3s_of_somebody_else_is_left_alone(host: Host) -> None:
    digest = stage(host, OLD)
    host.sh(f"install -m 755 {STAGING}/k3s-binary /usr/local/bin/k3s")
    before = host.tree(*PLACES)
    for arguments in (server(host, digest), {"state": "absent"}):
        refused = call(host, "k3s_node", **arguments)
        assert refused["failed"] and "k3s-uninstall.sh" in refused["msg"]
    assert host.tree(*PLACES) == before
