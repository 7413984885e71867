"""Joining a K3s that is there already: the token's file, the server's answers, and each reason why a node cannot join."""

from __future__ import annotations

import dataclasses
import ipaddress
import pathlib
import typing as t
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.k3s import joined
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.k3s.config import Settings
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.k3s.joined import Joined
from ansible_collections.dgxspark.cluster.tests.support.k3s_server import MADE, PASSWORD, Server, go_network

VERSION = "v1.36.4+k3s1"
URL = "https://192.0.2.1:6443"
Plain = dict[str, t.Any]
WANTED = Settings(VERSION, "https://192.0.2.9")


def token(server: Server, words: str = f"node:{PASSWORD}") -> joined.Token:
    return joined.parse_token(server.token(words), "f")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("k3s"))
    yield made
    made.close()


def why(*words: t.Any, **more: t.Any) -> str:
    with pytest.raises(CollectionError) as caught:
        joined.ask(*words, **more)
    return str(caught.value)


@pytest.mark.parametrize("words", [f"node:{PASSWORD}", MADE, f"other:{PASSWORD}"])
def test_the_server_says_which_networks_it_has_and_nothing_else_is_kept(server: Server, words: str) -> None:
    seen = joined.ask(server.url, token(server, words))
    assert (seen.accepted, seen.pods, seen.services) == (True, ("10.42.0.0/16",), ("10.43.0.0/16",))
    assert "psk" not in repr(seen) and PASSWORD not in repr(token(server))


def test_two_families_and_a_root_in_a_bundle(server: Server) -> None:
    two = {"ClusterIPRanges": [go_network("10.1.0.0/16"), go_network("fd00::/56")], "ServiceIPRanges": [go_network("10.2.0.0/16")]}  # fmt: skip
    kept, server.config = server.config, two
    try:
        assert joined.ask(server.url, token(server)).pods == ("10.1.0.0/16", "fd00::/56")
    finally:
        server.config = kept


@pytest.mark.parametrize("said", [True, False, None])
def test_a_mirror_that_only_one_side_has(server: Server, said: bool | None) -> None:
    """The servers' setting decides for every agent; releases before 1.29 say nothing of it."""
    kept = server.config
    server.config = {**kept, **({} if said is None else {"EmbeddedRegistry": said})}
    try:
        seen = joined.ask(server.url, token(server))
    finally:
        server.config = kept
    assert seen.mirror is bool(said)
    same, other = (dataclasses.replace(WANTED, embedded_registry=wanted) for wanted in (bool(said), not said))
    assert joined.findings(seen, "spark1", same, {}, new=True) == []
    (found,) = joined.findings(seen, "spark1", other, {}, new=True)
    assert (found.id, found.severity) == ("k3s.join-mirror", "warning" if said else "error")
    assert ("Set k3s_embedded_registry: true" if said else "Leave k3s_embedded_registry out") in str(found)
    assert joined.findings(Joined(URL), "spark1", other, {}, new=False) == []


def test_a_token_goes_to_no_server_whose_ca_it_does_not_name(server: Server) -> None:
    server.seen.clear()
    other = joined.parse_token(f"K10{'a' * 64}::node:{PASSWORD}", "f")
    assert "belongs to another cluster" in why(server.url, other)
    assert server.seen == [""], "the token was not sent"


def test_a_wrong_token_prevents_new_nodes_alone(server: Server) -> None:
    seen = joined.ask(server.url, token(server, "node:other"))
    assert seen.accepted is False
    (found,) = joined.findings(seen, "spark1", WANTED, {}, new=True)
    assert (
        found.id == "k3s.join-token" and "is wrong, or has expired" in str(found) and "k3s token create" in str(found)
    )
    assert joined.findings(seen, "spark1", WANTED, {}, new=False) == []
    none = joined.ask(server.url, None)
    assert "k3s_token_file is not set" in str(joined.findings(none, "spark1", WANTED, {}, new=True)[0])


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "192.0.2.1", "https://", "https://127.0.0.1/path"])
def test_what_is_no_url_of_a_server(url: str) -> None:
    assert "is not the URL of a K3s server" in why(url, None)


def test_a_server_that_cannot_be_reached(server: Server) -> None:
    said = why("https://127.0.0.1:1", None)
    assert "the K3s server https://127.0.0.1:1 (k3s_url) cannot be reached" in said and "refused" in said


@pytest.mark.parametrize(
    "config",
    [{}, [], {"ClusterIPRange": None}, {"ClusterIPRange": {"IP": "x", "Mask": "!"}, "ServiceIPRange": {}}, "x"],
)
def test_an_answer_without_networks(server: Server, config: t.Any) -> None:
    kept, server.config = server.config, config
    try:
        assert "does not say which networks" in why(server.url, token(server))
    finally:
        server.config = kept


def test_a_server_that_is_not_ready_or_is_none(server: Server) -> None:
    server.status = 503
    try:
        assert "is not ready: 503" in why(server.url, token(server))
    finally:
        server.status = 200
    kept = server.authority.read_bytes()
    server.authority.write_bytes(b"hello")
    try:
        assert "not as a K3s server" in why(server.url, None)
    finally:
        server.authority.write_bytes(kept)


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("K10" + "a" * 64 + "::node:x", 0o644, "mode 0644: others can read the token. chmod 600"),
        ("K10" + "a" * 64 + "::server:secret-word", 0o600, "the servers' token"),
        ("secret-word", 0o600, "lacks the digest"),
        ("", 0o600, "that is no token"),
        ("secret-word of two lines\nmore", 0o600, "that is no token"),
        ("s" * 5000, 0o600, "is not a file with a token"),
        (None, 0o600, "cannot be read: No such file"),
    ],
)
def test_a_file_that_has_no_token_for_agents(tmp_path: pathlib.Path, text: str | None, mode: int, said: str) -> None:
    path = tmp_path / "token"
    if text is not None:
        path.touch(mode=mode)
        path.chmod(mode)
        path.write_text(text)
    with pytest.raises(CollectionError) as caught:
        joined.read_token(str(path))
    assert said in str(caught.value) and "secret-word" not in str(caught.value)
    assert "k3s token create" in str(caught.value) or "chmod" in str(caught.value)


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader_or_is_shown(text: str) -> None:
    try:
        joined.parse_token(text, "f")
    except CollectionError as exc:
        assert len(text) < 20 or text not in str(exc)


networks = st.builds(
    lambda number, prefix: str(ipaddress.ip_network((number, prefix), strict=False)),
    st.integers(0x0A000000, 0x0AFFFFFF),
    st.integers(8, 30),
)


@given(networks, networks)
def test_every_overlap_with_a_rail_is_found_and_nothing_else(pods: str, pool: str) -> None:
    seen = Joined(URL, True, pods=(pods,), services=("192.168.0.0/16",))
    found = joined.findings(seen, "spark1", WANTED, {"address_pool": pool}, new=True)
    overlaps = ipaddress.ip_network(pods).overlaps(ipaddress.ip_network(pool))
    assert [each.id for each in found] == ["k3s.join-network"] * overlaps
    assert all(pods in str(each) and pool in str(each) for each in found)


def test_a_fabric_s_own_subnets_are_rails_too_and_without_a_fabric_there_are_none() -> None:
    seen = Joined(URL, True, pods=("10.42.0.0/16",), services=("10.43.0.0/16",))
    fabric = {"address_pool": "10.100.0.0/16", "subnets": {"p0f0v0": "10.43.7.0/24"}}
    (found,) = joined.findings(seen, "spark1", WANTED, fabric, new=True)
    assert "services" in str(found) and "reserved_networks.services: 10.43.0.0/16" in str(found)
    assert joined.findings(seen, "spark1", WANTED, {}, new=True) == []


def node(name: str, version: str, *, server: bool = False) -> Plain:
    labels = {"node-role.kubernetes.io/control-plane": "true"} if server else {}
    return {"metadata": {"name": name, "labels": labels}, "status": {"nodeInfo": {"kubeletVersion": version}}}


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ("v1.36.4+k3s1", ""),
        ("v1.36.9+k3s1", ""),
        ("v1.35.2+k3s1", "an agent must not be newer than its server. Set k3s_version to v1.35.2+k3s1."),
        ("v1.40.0+k3s1", "more than 3 minors older. Set k3s_version to v1.40.0+k3s1."),
        ("v1.36.4+rke2r1", "which is not a release of K3s"),
        ("v1.36.4", "which is not a release of K3s"),
    ],
)
def test_releases_that_do_not_go_together(server: str, said: str) -> None:
    newer = "v1.41.1+k3s1" if said else "v1.36.9+k3s1"
    listed = [node("a", newer, server=True), node("b", server, server=True), node("c", "v1.30.1+k3s1")]
    seen = joined.with_nodes(Joined(URL, True), listed)
    found = joined.findings(seen, "spark1", WANTED, {}, new=True)
    assert bool(found) == bool(said) and all(said in str(each) for each in found)


def test_a_name_that_is_taken() -> None:
    seen = joined.with_nodes(Joined(URL, True), [node("spark1", VERSION)])
    assert "kubectl delete node spark1" in str(joined.findings(seen, "spark1", WANTED, {}, new=True)[0])
    assert joined.findings(seen, "spark1", WANTED, {}, new=False) == []
    assert joined.findings(seen, "spark2", WANTED, {}, new=True) == []
