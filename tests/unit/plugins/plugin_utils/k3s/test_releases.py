"""Which way from one K3s release to another is allowed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.k3s.releases import release, skew, step

RELEASES = st.builds("v1.{}.{}+k3s{}".format, st.integers(20, 45), st.integers(0, 20), st.integers(1, 4))


@pytest.mark.parametrize(
    ("installed", "wanted", "expected", "found"),
    [
        (None, "v1.36.4+k3s1", "install", None),
        ("v1.36.4+k3s1", "v1.36.4+k3s1", "keep", None),
        ("v1.36.4+k3s1", "v1.36.4+k3s2", "upgrade", None),
        ("v1.36.4+k3s1", "v1.36.10+k3s1", "upgrade", None),
        ("v1.35.9+k3s1", "v1.36.4+k3s1", "upgrade", None),
        ("v1.36.0-rc2+k3s1", "v1.36.0+k3s1", "upgrade", None),
        ("v1.36.4+k3s1", "v1.36.3+k3s1", "refused", "k3s.downgrade"),
        ("v1.36.4+k3s2", "v1.36.4+k3s1", "refused", "k3s.downgrade"),
        ("v1.36.4+k3s1", "v1.35.9+k3s1", "refused", "k3s.downgrade"),
        ("v1.34.9+k3s1", "v1.36.4+k3s1", "refused", "k3s.skipped-minor"),
        ("v1.36.4+k3s1", "v2.0.0+k3s1", "refused", "k3s.skipped-minor"),
        ("dev", "v1.36.4+k3s1", "refused", "k3s.unknown-version"),
    ],
)
def test_ways(installed: str | None, wanted: str, expected: str, found: str | None) -> None:
    way, findings = step(installed, wanted, "spark1")
    assert (way, [finding.id for finding in findings]) == (expected, [found] if found else [])
    for finding in findings:
        assert finding.subject == "spark1"
        assert finding.remedy


@pytest.mark.parametrize("text", ["stable", "1.36.4+k3s1", "v1.36.4", "v1.36+k3s1", "", None, 1.36])
def test_what_is_no_release_is_refused_by_name(text: str) -> None:
    with pytest.raises(CollectionError, match=r"k3s_version: .*v1\.36\.4\+k3s1"):
        release(text)


@given(RELEASES, RELEASES)
def test_a_way_is_never_open_in_both_directions(one: str, other: str) -> None:
    ways = {step(one, other, "x")[0], step(other, one, "x")[0]}
    assert ways == {"keep"} if one == other else ways in ({"upgrade", "refused"}, {"refused"})


@given(RELEASES, RELEASES)
def test_an_agent_is_never_newer_than_its_server(agent: str, server: str) -> None:
    findings = skew(agent, server, "spark1")
    assert bool(findings) == (release(agent) > release(server) or release(agent).minor < release(server).minor - 3)
