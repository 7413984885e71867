"""The server is a machine that is no Spark and that the limit leaves out: a lab of five (`tools/with_lab.py 5 …`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import NODES, sh

from ansible_collections.dgxspark.cluster.tests.nodes.asked import condition
from ansible_collections.dgxspark.cluster.tests.site import site

pytestmark = pytest.mark.long
SERVER = "spark5"


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[site.Served]:
    """The server is there, put by a run that is limited to it."""
    if reason := site.why_not():
        pytest.skip(reason)
    if sh(SERVER, "echo here", check=False) != "here":
        pytest.skip("not run: the lab has no fifth machine")
    with site.standing(tmp_path_factory.mktemp("site"), SERVER, "all") as made:
        assert made.good(limit=SERVER, tags="k3s") > 0
        yield made


def test_the_sparks_of_the_limit_join_a_server_outside_of_it_and_serve(elsewhere: site.Served) -> None:
    before = site.tree(SERVER)
    assert elsewhere.good() > 0
    assert sorted(each["metadata"]["name"] for each in elsewhere.listed("nodes") if condition(each)) == [*NODES, SERVER]
    ranks = elsewhere.ranks()
    assert {rank: pod["spec"]["nodeName"] for rank, pod in ranks.items()} == dict(enumerate(NODES))
    assert all(condition(pod) for pod in ranks.values())
    elsewhere.has_its_vfs()
    elsewhere.gives_tokens()
    assert {line for line in before.splitlines() if "/etc/" in line} == {
        line for line in site.tree(SERVER).splitlines() if "/etc/" in line
    }


def test_nothing_of_ours_runs_on_the_server(elsewhere: site.Served) -> None:
    """No rank, and no daemon that only a Spark needs."""
    pods = elsewhere.listed("pods", "--all-namespaces", "-l", "app.kubernetes.io/managed-by=dgxspark.cluster")
    assert pods
    assert not [pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName") == SERVER]


def test_a_second_run_changes_nothing_with_the_server_outside(elsewhere: site.Served) -> None:
    assert elsewhere.good() == 0
