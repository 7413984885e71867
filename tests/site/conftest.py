"""The site of four real nodes, once for all tests of this folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from ansible_collections.dgxspark.cluster.tests.nodes import lane
from ansible_collections.dgxspark.cluster.tests.site import site


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[site.Served]:
    """The site, before anything is on its nodes. KEEP=1 leaves at the end what is there."""
    if reason := lane.why_not() or site.why_not():
        pytest.skip(reason)
    print(site.STAND_IN)
    made = site.Served(tmp_path_factory.mktemp("site"))
    made.reach()
    try:
        yield made
        if not os.environ.get("KEEP"):
            made.run(playbook="playbooks/teardown.yml")
    finally:
        made.leave()
