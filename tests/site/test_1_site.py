"""site.yml from bare nodes to a served model: the roles' own units and objects on real nodes, unchanged by a second run.

What is real and what stands in: site.py. RDMA in pods is not run: soft-RoCE does not survive the move into their namespaces, and what
the stand-in for Multus makes there only provides GID tables.
"""

from __future__ import annotations

import re

import pytest
from harness import NODES, sh

from ansible_collections.dgxspark.cluster.tests.nodes.asked import condition, restarts
from ansible_collections.dgxspark.cluster.tests.site.site import TWO, Served, spelled, tree

pytestmark = pytest.mark.long


def test_site_brings_bare_nodes_to_a_served_model(served: Served) -> None:
    assert served.good() > 0
    for node in served.all:
        assert sh(node, f"systemctl is-active {'k3s' if node == served.server else 'k3s-agent'}") == "active"
    assert sorted(node["metadata"]["name"] for node in served.listed("nodes") if condition(node)) == list(served.all)
    ranks = served.ranks()
    assert {rank: pod["spec"]["nodeName"] for rank, pod in ranks.items()} == dict(enumerate(NODES))
    assert all(condition(pod) for pod in ranks.values())
    assert not any(restarts(pod) for pod in ranks.values())


def test_a_server_outside_of_the_limit_is_left_as_it_is_and_runs_nothing_of_ours(served: Served) -> None:
    """No rank, and no daemon that only a Spark needs."""
    if not served.elsewhere:
        pytest.skip("the server is a Spark of the limit: see a lab of five")
    mine = [line for line in served.server_has.splitlines() if "/etc/" in line]
    assert mine
    assert [line for line in tree(served.server).splitlines() if "/etc/" in line] == mine
    pods = served.listed("pods", "--all-namespaces", "-l", "app.kubernetes.io/managed-by=dgxspark.cluster")
    assert pods
    assert not [pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName") == served.server]


def test_each_rank_has_its_vfs_with_address_mtu_and_arp_settings(served: Served) -> None:
    served.has_its_vfs()
    # On the nodes the VFs of index 0 are gone, those of index 1 are not.
    for node in NODES:
        assert re.findall(r"en\w+f0v\d", sh(node, "ls /sys/class/net")) == ["enP2p1s0f0v1", "enp1s0f0v1"]


def test_the_api_gives_tokens_and_the_logs_say_what_was_done(served: Served) -> None:
    served.gives_tokens()


def test_ranks_are_unprivileged_and_hold_what_the_plugins_gave(served: Served) -> None:
    served.is_unprivileged()


def test_no_token_is_where_others_can_read_it(served: Served) -> None:
    """In argv, environments, logs, facts and diffs of the run, and world-readable files of nodes and of this machine."""
    join = sh(served.server, "cat /var/lib/rancher/k3s/server/token").rpartition(":")[2]
    for token in (join, served.hf_token):
        assert len(token) > 8
        assert token not in served.said
        for node in served.all:
            where = "/proc/[0-9]*/cmdline /proc/[0-9]*/environ"
            assert sh(node, f"grep -l {spelled(token)} {where} 2>/dev/null", check=False) == ""
            assert sh(node, f"journalctl --no-pager | grep -c {spelled(token)}", check=False) == "0"
            places = "/etc /var/lib /var/log /run /tmp /root /home"
            found = f"find {places} -xdev -type f -perm /044 -exec grep -l {spelled(token)} {{}} + 2>/dev/null"
            assert sh(node, found, check=False) == ""
    assert served.kubeconfig.stat().st_mode & 0o777 == 0o600


def test_a_second_run_changes_nothing_while_they_serve(served: Served) -> None:
    before = {pod["metadata"]["uid"]: restarts(pod) for pod in served.ranks().values()}
    assert served.good() == 0
    assert served.serve("--check", "--diff") == 0
    assert {pod["metadata"]["uid"]: restarts(pod) for pod in served.ranks().values()} == before
    assert all(condition(pod) for pod in served.ranks().values())


def test_a_switch_serves_the_other_model_behind_the_same_service(served: Served) -> None:
    served.switches(lambda: served.serve(k8s_dgx_model_profile=TWO))
