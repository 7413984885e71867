"""The cluster of two real nodes, once for all tests of this folder."""

from __future__ import annotations

import concurrent.futures
import time
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
    began = time.monotonic()
    try:
        for node in NODES:
            lane.start(node)
        lane.start_control_plane()
        made = Site(tmp_path_factory.mktemp("site"), lane)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(lane.join, NODES))
        until(
            "both nodes Ready", 300, lambda: sum(condition(node) for node in made.listed("nodes")) == len(NODES), began
        )
        yield made
    finally:
        lane.stop_all()
