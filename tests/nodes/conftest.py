"""The cluster of two real nodes, once for all tests of this folder. KEEP=1 leaves it up, and reuses one that is up."""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Iterator

import pytest

from ansible_collections.dgxspark.cluster.tests.nodes.asked import condition, until
from ansible_collections.dgxspark.cluster.tests.nodes.cluster import NODES, STAND_IN, Site
from ansible_collections.dgxspark.cluster.tests.nodes.lane import Lane


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    lane = Lane()
    lane.build()
    keep = bool(os.environ.get("KEEP"))
    print(STAND_IN)
    try:
        made = Site(tmp_path_factory.mktemp("site"), lane)
        if not (keep and all(map(lane.up, NODES))):
            lane.stop_all()
            for node in NODES:
                lane.start(node)
            lane.start_control_plane()
            with concurrent.futures.ThreadPoolExecutor() as pool:
                list(pool.map(lane.join, NODES))
        until("joined: both nodes Ready", 300, lambda: sum(map(condition, made.listed("nodes"))) == len(NODES))
        yield made
    finally:
        if not keep:
            lane.stop_all()
