"""The cluster of two real nodes, once for all tests of this folder."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator

import pytest

from ansible_collections.dgxspark.cluster.tests.nodes.cluster import NODES, STAND_IN, Site, condition, until
from ansible_collections.dgxspark.cluster.tests.nodes.lane import Lane


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    lane = Lane()
    lane.build()
    lane.stop_all()
    print(STAND_IN)
    try:
        for node in NODES:
            lane.start(node)
        lane.start_control_plane()
        made = Site(tmp_path_factory.mktemp("site"), lane)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(lane.join, NODES))
        until("joined: both nodes Ready", 300, lambda: sum(map(condition, made.listed("nodes"))) == len(NODES))
        yield made
    finally:
        lane.stop_all()
