"""The site of four real nodes, once for all tests of this folder; a lab's fifth machine is its server, and no Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ansible_collections.dgxspark.cluster.tests.site import site


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[site.Served]:
    """The site, with nothing on its nodes; if its server is not a Spark, a run limited to it has set up the server."""
    if reason := site.why_not():
        pytest.skip(reason)
    server = site.FIFTH if site.has_a_fifth() else "spark1"
    with site.standing(tmp_path_factory.mktemp("site"), server) as made:
        if made.elsewhere:
            assert made.good(limit=server, tags="k3s") > 0
            made.server_has = site.tree(server)
        yield made
