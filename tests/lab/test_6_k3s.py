"""The role k3s on four nodes with real systemd, by site.yml. Stand-in: real K3s not run (tests/stand_ins/k3s)."""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import signal
from collections.abc import Iterator

import pytest
import yaml
from harness import NODES, make_so, sh, wait_for
from kube import BAD, NEXT, UNITS, VERSION, Cluster, plain, release

pytestmark = pytest.mark.long

PLACES = (
    "/etc/rancher /etc/systemd/system /usr/local/bin /var/lib/rancher /var/lib/dgxspark/k3s /var/lib/kubelet /run/k3s"
)


def tree(node: str) -> str:
    return sh(node, f"find {PLACES} -printf '%y %m %p %l\\n' 2>/dev/null | sort", check=False)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Four nodes: spark1 is the server. Everything is gone again at the end."""
    make_so()
    made = Cluster(tmp_path_factory.mktemp("k3s"))
    made.before = {node: tree(node) for node in NODES}  # type: ignore[attr-defined]
    first = made.run()
    assert first.code == 0, first.output
    made.first = first  # type: ignore[attr-defined]
    yield made
    made.run("-e", "k3s_state=absent")


def test_own_units_bring_up_a_node_on_every_spark(cluster: Cluster) -> None:
    assert cluster.nodes() == dict.fromkeys(NODES, VERSION)
    for node, unit in UNITS.items():
        assert sh(node, f"systemctl is-active {unit}; systemctl is-enabled {unit}").split() == ["active", "enabled"]
        assert sh(node, f"systemctl show --value --property=Type,KillMode {unit}").split() == ["notify", "process"]
    server = yaml.safe_load(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    assert server == "https://10.77.0.1:6443"


def test_the_second_run_changes_nothing(cluster: Cluster) -> None:
    again = cluster.run()
    assert again.code == 0, again.output
    assert {node: again.changed[node] for node in NODES} == dict.fromkeys(NODES, 0)


def test_no_secret_is_in_the_journal_or_where_others_can_read(cluster: Cluster) -> None:
    token = sh("spark1", "cat /etc/rancher/k3s/token")
    for node in NODES:
        assert sh(node, f"journalctl --no-pager -o cat | grep -c -- {token}", check=False) in ("", "0")
        assert sh(node, f"find /etc /var/lib /run /tmp -type f -perm /044 -exec grep -l {token} {{}} + 2>/dev/null", check=False) == ""  # fmt: skip
    assert token not in cluster.first.output  # type: ignore[attr-defined]


def test_a_node_comes_back_by_itself_after_its_process_died(cluster: Cluster) -> None:
    sh("spark2", "systemctl kill --signal=KILL k3s-agent && sleep 8")
    assert sh("spark2", "systemctl is-active k3s-agent", check=False) == "active"


def test_an_agent_joins_again_while_the_server_is_outside_the_limit(cluster: Cluster) -> None:
    gone = cluster.run("-e", "k3s_state=absent", limit="spark4")
    assert gone.code == 0, gone.output
    assert set(cluster.nodes()) == set(NODES[:3])
    back = cluster.run(limit="spark4")
    assert back.code == 0, back.output
    assert set(cluster.nodes()) == set(NODES)


def test_a_wrong_token_is_named_and_leaves_nothing(cluster: Cluster) -> None:
    assert cluster.run("-e", "k3s_state=absent", limit="spark4").code == 0
    kept = sh("spark1", "cat /var/lib/rancher/k3s/server/agent-token")
    sh("spark1", f"echo '{kept.rpartition(':')[0]}:{'0' * 64}' > /var/lib/rancher/k3s/server/agent-token")
    try:
        failed = cluster.run(limit="spark4")
    finally:
        sh("spark1", f"echo '{kept}' > /var/lib/rancher/k3s/server/agent-token")
    assert failed.code != 0
    assert "The server does not know the token." in plain(failed)
    assert tree("spark4") == cluster.before["spark4"]  # type: ignore[attr-defined]
    assert cluster.run(limit="spark4").code == 0


def test_an_unreachable_server_is_named_and_leaves_nothing(cluster: Cluster) -> None:
    assert cluster.run("-e", "k3s_state=absent", limit="spark4").code == 0
    failed = cluster.run(limit="spark4", k3s_url="https://10.77.0.1:6999", k3s_start_timeout=15)
    assert failed.code != 0
    assert "The server cannot be reached." in plain(failed)
    assert tree("spark4") == cluster.before["spark4"]  # type: ignore[attr-defined]
    assert cluster.run(limit="spark4").code == 0


def test_a_failed_upgrade_goes_back_and_a_good_one_goes_through(cluster: Cluster) -> None:
    release(cluster.releases, BAD, broken="starting kubernetes: failed to find memory cgroup (v2)")
    failed = cluster.run(k3s_version=BAD, k3s_checksums={})
    assert failed.code != 0
    assert f"The node is back on {VERSION}, which is running." in plain(failed)
    assert cluster.nodes() == dict.fromkeys(NODES, VERSION)
    upgraded = cluster.run(k3s_version=NEXT, k3s_checksums={})
    assert upgraded.code == 0, upgraded.output
    assert cluster.nodes() == dict.fromkeys(NODES, NEXT)
    refused = cluster.run()
    assert refused.code != 0 and "downgrade" in plain(refused)


def test_a_node_goes_back_by_itself_after_its_controller_died(cluster: Cluster) -> None:
    release(cluster.releases, BAD, broken="starting kubernetes: failed to find memory cgroup (v2)")
    before = cluster.nodes()["spark1"]

    def upgrade() -> None:
        os.setsid()
        cluster.run(k3s_version=BAD, k3s_checksums={})

    controller = multiprocessing.get_context("fork").Process(target=upgrade)
    controller.start()
    assert controller.pid
    wait_for(lambda: BAD in sh("spark1", "k3s --version", check=False), 300, "spark1: the new binary")
    os.killpg(controller.pid, signal.SIGKILL)  # ansible-playbook and its ssh
    controller.join()
    wait_for(lambda: before in sh("spark1", "k3s --version", check=False), 120, "spark1: the binary from before")
    wait_for(lambda: sh("spark1", "systemctl is-active k3s", check=False) == "active", 60, "spark1: k3s")
    wait_for(lambda: sh("spark1", "ls /var/lib/dgxspark/k3s") == "record.json", 60, "spark1: nothing kept")


def test_absent_leaves_nothing(cluster: Cluster) -> None:
    gone = cluster.run("-e", "k3s_state=absent")
    assert gone.code == 0, gone.output
    assert {node: tree(node) for node in NODES} == cluster.before  # type: ignore[attr-defined]
    assert not cluster.kubeconfig.exists()


def test_without_the_groups_site_runs_as_before(tmp_path: pathlib.Path) -> None:
    run = make_so()
    assert set(run.changed) == set(NODES)
    assert all(count == 0 for count in run.changed.values()), run.output
