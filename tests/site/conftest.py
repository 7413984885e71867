"""The site of four real nodes, once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ansible_collections.dgxspark.cluster.tests.site import site


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[site.Served]:
    """The site with spark1 as its server."""
    if reason := site.why_not():
        pytest.skip(reason)
    with site.standing(tmp_path_factory.mktemp("site")) as made:
        yield made
