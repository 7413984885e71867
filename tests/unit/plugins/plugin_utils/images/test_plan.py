"""Who has an engine's image, who pulls it, who copies it from whom, and what is refused before anything moves."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.images.reference import parse
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import FabricError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.images.plan import decide
from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs as inputs
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import names

Plain = dict[str, t.Any]
A, B, GIB = "sha256:" + "a" * 64, "sha256:" + "b" * 64, 2**30
TAG = "registry.example/engine:1"
SIZE = 10 * GIB


def listing(digest: str = A) -> Plain:
    return {"digest": digest, "kind": "k", "platform": "linux/arm64", "blobs": [{"digest": digest, "size": SIZE}]}


def has(
    digest: str | None = A, here: bool = True, kept: bool | None = None, free_gib: float = 500, **more: t.Any
) -> Plain:
    disk = {"device": 1, "free_mib": int(free_gib * 1024)}
    return {
        "digest": digest,
        "here": here,
        "kept": here if kept is None else kept,
        "listing": listing(digest) if here and digest else None,
        "total": SIZE if here else 0,
        "platform": "linux/arm64",
        "staged": False,
        "rooms": {"root": disk, "stage": disk},
        **more,
    }


def nothing(**more: t.Any) -> Plain:
    return has(None, False, **more)


def told(digest: str = A, **more: t.Any) -> Plain:
    return {"digest": digest, "total": SIZE, "listing": listing(digest), **more}


def test_where_all_have_it_nothing_is_to_be_done() -> None:
    made = decide(TAG, {name: has() for name in names(4)}, inputs.fabric(4))
    assert [made[key] for key in ("fetch", "have", "lacking", "clean", "chain", "moves", "problems")] == [
        False,
        [],
        [],
        [],
        {},
        [],
        [],
    ]
    # Pods ask for what the nodes have, in the owner's words.
    assert made["reference"] == f"{TAG}@{A}"


def test_where_nobody_has_it_one_pulls_and_the_others_are_a_chain() -> None:
    seen = {name: nothing() for name in names(4)}
    first = decide(TAG, seen, inputs.fabric(4))
    assert (first["holder"], first["fetch"], first["reference"], first["problems"]) == ("spark1", True, None, [])
    made = decide(TAG, seen, inputs.fabric(4), prospect=told())
    assert (made["have"], made["lacking"], made["reference"]) == (["spark1"], names(4)[1:], f"{TAG}@{A}")
    assert {host: link["parent"] and link["parent"][0] for host, link in made["chain"].items()} == {
        "spark1": None,
        "spark2": "spark1",
        "spark3": "spark2",
        "spark4": "spark3",
    }
    assert made["listing"] == listing()
    assert made["moves"][0].startswith("spark1: 10.0 GiB of registry.example/engine:1 (sha256:aaaaaaaa")


def test_a_whole_image_says_more_than_a_record_and_the_holder_first() -> None:
    seen = {"spark1": has(B, here=False), "spark2": has(A), "spark3": has(B)}
    made = decide(TAG, seen, inputs.fabric(3))
    assert (made["digest"], made["holder"], made["fetch"], made["lacking"]) == (
        A,
        "spark2",
        False,
        ["spark1", "spark3"],
    )
    assert decide(TAG, seen, inputs.fabric(3), {"source": "spark3"})["digest"] == B
    # A record alone is enough to ask for the same again.
    alone = decide(TAG, {"spark1": nothing(), "spark2": has(B, here=False)}, inputs.fabric(2))
    assert (alone["digest"], alone["fetch"]) == (B, True)


def test_a_digest_is_taken_at_its_word() -> None:
    made = decide(f"{TAG}@{A}", {"spark1": has(B), "spark2": has(A)}, inputs.fabric(2))
    assert (made["holder"], made["lacking"], made["reference"]) == ("spark2", ["spark1"], f"{TAG}@{A}")


def test_to_ask_anew_moves_only_what_has_changed() -> None:
    seen = {name: has() for name in names(2)}
    asks = decide(TAG, seen, inputs.fabric(2), {"refresh": True})
    assert (asks["fetch"], asks["digest"]) == (True, None)
    same = decide(TAG, seen, inputs.fabric(2), {"refresh": True}, told(A))
    assert (same["fetch"], same["have"], same["lacking"]) == (False, [], [])
    other = decide(TAG, seen, inputs.fabric(2), {"refresh": True}, told(B))
    assert (other["fetch"], other["have"], other["lacking"]) == (True, ["spark1"], ["spark2"])


def test_who_has_it_under_another_name_copies_nothing() -> None:
    made = decide(TAG, {"spark1": has(), "spark2": has(kept=False)}, inputs.fabric(2))
    assert (made["have"], made["lacking"], made["problems"]) == (["spark2"], [], [])
    assert made["moves"] == [f"spark2: {TAG} gets the name for which the kubelet looks"]


def test_what_an_interrupted_run_left_goes_where_nothing_moves() -> None:
    made = decide(TAG, {"spark1": has(), "spark2": has(staged=True), "spark3": nothing(staged=True)}, inputs.fabric(3))
    assert made["clean"] == ["spark2"]


@given(st.floats(0, 200), st.booleans(), st.integers(0, 20))
def test_room_is_judged_before_anything_moves(free: float, one_disk: bool, archive: int) -> None:
    """It takes the image packed (where it is laid out, and in containerd) and unpacked, and an archive that is copied."""
    rooms = {
        "root": {"device": 1, "free_mib": 10**7},
        "stage": {"device": 1 if one_disk else 2, "free_mib": int(free * 1024)},
    }
    rooms["root"]["free_mib"] = rooms["stage"]["free_mib"] if one_disk else 10**7
    made = decide(TAG, {"spark1": nothing(rooms=rooms), "spark2": has()}, inputs.fabric(2), {"reserve_gib": 20})
    need = 20 + (50 if one_disk else 10)
    assert bool(made["problems"]) == (int(free * 1024) / 1024 < need)
    alone = decide(TAG, {"spark1": nothing(rooms=rooms)}, {}, {"reserve_gib": 20}, told(bytes=archive * GIB))
    assert alone["need_gib"] == 40 + archive + (10 if archive else 0)
    need = 20 + archive + (40 if one_disk else 0) + (10 if archive else 0)
    assert bool(alone["problems"]) == (bool(archive or one_disk) and int(free * 1024) / 1024 < need)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(FabricError, match="k8s_dgx_image_host: 'other' has no rank"):
        decide(TAG, {"spark1": has()}, {}, {"source": "other"})
    no_way = decide(TAG, {"spark1": has(), "spark2": nothing()}, {})
    assert "share no wire of the fabric" in no_way["problems"][0]
    always = decide(TAG, {"spark1": has()}, {}, {"pull": "Always"})
    assert "image_pull is Always" in always["problems"][0]


@pytest.mark.parametrize(
    ("written", "asked", "pinned"),
    [
        ("engine", "docker.io/library/engine:latest", f"engine@{A}"),
        ("ours/engine:1.2", "docker.io/ours/engine:1.2", f"ours/engine:1.2@{A}"),
        ("index.docker.io/ours/engine:1", "docker.io/ours/engine:1", f"index.docker.io/ours/engine:1@{A}"),
        ("localhost/engine:1", "localhost/engine:1", f"localhost/engine:1@{A}"),
        ("spark1:5000/engine", "spark1:5000/engine:latest", f"spark1:5000/engine@{A}"),
        (f"r.example/a/b:1@{B}", f"r.example/a/b@{B}", f"r.example/a/b:1@{A}"),
    ],
)
def test_names_are_what_the_kubelet_makes_of_them(written: str, asked: str, pinned: str) -> None:
    made = parse(written)
    assert (made.asked, made.pinned(A)) == (asked, pinned)
    assert parse(made.pinned(A)).asked == parse(made.kept(A)).asked == made.kept(A)


@pytest.mark.parametrize("wrong", ["", "two words", "engine@sha256:12", "engine@md5:" + "0" * 32])
def test_what_is_no_image_is_refused(wrong: str) -> None:
    with pytest.raises(FabricError, match="is no image that can be pulled"):
        parse(wrong)
