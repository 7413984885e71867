"""Which image a name stands for on nodes: what a kubelet lists, why a pull failed, digests that change, and disk space."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import GIB, CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import image

Plain = dict[str, t.Any]
A, B = f"sha256:{'a' * 64}", f"sha256:{'401b' * 16}"
ENGINE = "registry.example/engine:1"


def node(name: str, *images: Plain) -> Plain:
    return {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "status": {"images": list(images)}}


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("sglang", "docker.io/library/sglang:latest"),
        ("scitrera/dgx-spark-sglang:0.5.10", "docker.io/scitrera/dgx-spark-sglang:0.5.10"),
        ("index.docker.io/a/b:1", "docker.io/a/b:1"),
        ("localhost/engine", "localhost/engine:latest"),
        ("registry.example:5000/a/b", "registry.example:5000/a/b:latest"),
        (f"nvcr.io/nvidia/vllm:25.09@{A}", f"nvcr.io/nvidia/vllm@{A}"),
    ],
)
def test_names_as_containerd_keeps_them(written: str, kept: str) -> None:
    assert image.full(written) == kept
    assert image.full(kept) == kept


# Messages of containerd 2.x and kubelet 1.32 and newer.
SAID = [
    (
        f'failed to resolve reference "x@{B}": unexpected status from HEAD request to https://x/v2: 401 Unauthorized',
        "requires authentication",
    ),
    (f'failed to resolve reference "x@{B}": x@{B}: not found', "no such image"),
    (
        "pull access denied, repository does not exist or may require authorization: server message: insufficient_scope",
        "requires authentication",
    ),
    (f"failed to extract layer {B}: write /var/lib/rancher/k3s/agent/x: no space left on device", "disk is full"),
    (f"no match for platform in manifest {B}: not found", "not built for these nodes"),
    ('Get "https://registry.example/v2/": dial tcp 192.0.2.1:443: connect: no route to host', "cannot be reached"),
    ("dial tcp: lookup registry.example on 192.0.2.53:53: no such host", "cannot be reached"),
    ("unexpected status from HEAD request to https://x/v2: 429 Too Many Requests", "limits the rate"),
    ('Container image "x" is not present with pull policy of Never', "is Never"),
    (
        "unexpected status from HEAD request to https://x/v2/engine/manifests/404: 500 Internal Server Error",
        "cannot be pulled",
    ),
    (f"something new about {B}", "cannot be pulled"),
]


@pytest.mark.parametrize(("text", "meant"), SAID)
def test_what_a_failed_pull_means(text: str, meant: str) -> None:
    assert meant in image.cause(text).says
    assert image.cause(text).remedy


@given(st.text("0123456789abcdef", min_size=64, max_size=64))
def test_a_digest_is_no_cause(digest: str) -> None:
    """4 in 100 digests contain 401 or 403."""
    told = f'failed to resolve reference "registry.example/engine@sha256:{digest}": sha256:{digest}: not found'
    assert "no such image" in image.cause(told).says


def test_what_a_node_lists() -> None:
    pulled = node("a", {"names": [f"registry.example/engine@{A}", ENGINE], "sizeBytes": 9})
    assert image.listed(pulled, ENGINE) == image.Listed(A, 9)
    assert image.listed(pulled, f"{ENGINE}@{A}") == image.Listed(A, 9)
    assert image.listed(pulled, "registry.example/engine:2") is None
    imported = node("a", {"names": [ENGINE], "sizeBytes": 9})
    assert image.listed(imported, ENGINE) == image.Listed(None, 9)
    # Two repositories of one image: the digest is that of the one asked for.
    both = node("a", {"names": [f"mirror.example/e@{B}", f"registry.example/engine@{A}", ENGINE]})
    assert image.listed(both, ENGINE) == image.Listed(A, 0)
    assert image.listed({"metadata": {"name": "a"}}, ENGINE) is None


def test_the_first_digest_is_kept_and_another_one_refused_unless_told() -> None:
    first = image.judge(ENGINE, {"a": A, "b": A}, {}, accept=False)
    assert first == {"digest": A, "record": {ENGINE: A}, "problems": []}
    moved = image.judge(ENGINE, {"a": B, "b": B}, first["record"], accept=False)
    assert moved["record"] == first["record"] and A in moved["problems"][0] and B in moved["problems"][0]
    assert image.judge(ENGINE, {"a": B}, first["record"], accept=True) == {
        "digest": B,
        "record": {ENGINE: B},
        "problems": [],
    }
    for accept in (True, False):
        mixed = image.judge(ENGINE, {"a": A, "b": B}, {}, accept=accept)
        assert mixed["digest"] is None and mixed["record"] == {} and "a: sha256:aaa" in mixed["problems"][0]
    # A name with a digest needs no record, and it is no error if nothing is known.
    assert image.judge(f"{ENGINE}@{A}", {"a": A}, {}, accept=False)["record"] == {}
    assert image.judge(ENGINE, {}, {ENGINE: A}, accept=False) == {"digest": None, "record": {ENGINE: A}, "problems": []}


def test_digests_that_a_node_lists_of_one_image_are_no_difference() -> None:
    """An index and its manifest: a kubelet lists either, or both, in any order."""
    index, manifest, other = A, B, f"sha256:{'c' * 64}"
    both = node("b", {"names": [f"registry.example/engine@{each}" for each in (manifest, index)] + [ENGINE]})
    same = image.alike([node("a", {"names": [f"registry.example/engine@{index}", ENGINE]}), both, {"metadata": {}}])
    hosts = {"a": index, "b": manifest}
    assert image.judge(ENGINE, hosts, {}, accept=False, same=same)["problems"] == []
    # The record keeps the digest that came first.
    for before in (index, manifest):
        judged = image.judge(ENGINE, hosts, {ENGINE: before}, accept=False, same=same)
        assert judged == {"digest": before, "record": {ENGINE: before}, "problems": []}
    (said,) = image.judge(ENGINE, {**hosts, "c": other}, {}, accept=False, same=same)["problems"]
    assert "a, b: sha256:aaa" in said and "c: sha256:ccc" in said
    assert other in image.judge(ENGINE, {"c": other}, {ENGINE: index}, accept=False, same=same)["problems"][0]
    # Two nodes without a common digest have one image if a third node lists both digests.
    third = node("c", {"names": [f"x@{manifest}", f"x@{other}"]})
    assert len(set(image.alike([both, third, node("d")]).values())) == 1


@given(st.dictionaries(st.sampled_from([ENGINE, "docker.io/a/b:1", "localhost/c:latest"]), st.sampled_from([A, B])))
def test_the_record_is_read_as_it_was_written(known: dict[str, str]) -> None:
    made = image.record_object("n", known)
    assert image.record([{"metadata": {"name": "other"}}, made]) == known
    assert image.record([]) == {}


def test_a_record_that_was_spoilt_is_refused() -> None:
    made = image.record_object("n", {ENGINE: A})
    made["data"]["digests"] = f"{ENGINE} latest\n"
    with pytest.raises(CollectionError, match="dgxspark-images"):
        image.record([made])


def room(free: float, total: float = 1000, size: int = 10 * GIB, **choices: t.Any) -> Plain:
    nodes = [node("a", {"names": [ENGINE], "sizeBytes": size} if size else {}), node("b")]
    mounts = [
        {"mount": "/", "size_available": 0, "size_total": 10**12},
        {"mount": "/var/lib", "size_available": int(free * GIB), "size_total": int(total * GIB)},
        {"mount": "/var/lib/rancher-other", "size_available": 0, "size_total": 1},
    ]
    told = {"path": "/var/lib/rancher/k3s/agent/containerd", "reserve_gib": 20, "assumed_gib": 40, **choices}
    return image.room(ENGINE, nodes, {"one": "a", "two": "b"}, {"two": mounts}, told)


def test_room_is_judged_on_the_disk_of_images_where_the_image_is_lacking() -> None:
    whole = room(free=400)
    assert whole == {"lacking": ["two"], "need_gib": 40.0, "problems": []}
    (short,) = room(free=59.9)["problems"]
    assert short.startswith("two: 59.9 GiB are free") and "20 GiB must stay free" in short
    # 130 GiB less 40 of 1,000: 91 % full.
    (late,) = room(free=130)["problems"]
    assert "would be 91 % full, and from 85 % on, the kubelet removes images" in late
    assert room(free=130, gc_percent="95")["problems"] == []
    (guess,) = room(free=50, size=0)["problems"]
    assert "an assumption: k8s_dgx_image_room_gib" in guess
    assert room(free=0, size=0, assumed_gib=0)["problems"] == []
    # However small, an image that is judged takes room; only 0 means that no disk need be read.
    assert room(free=0, size=GIB // 1000)["need_gib"] > 0 and room(free=0, size=GIB // 1000)["problems"]
    assert room(free=0, size=0, assumed_gib=0)["need_gib"] == 0


def test_a_disk_that_is_not_known_is_not_judged() -> None:
    found = image.room(ENGINE, [node("a")], {"one": "a"}, {}, {"path": "/x", "assumed_gib": 40})
    assert found == {"lacking": ["one"], "need_gib": 40.0, "problems": []}
