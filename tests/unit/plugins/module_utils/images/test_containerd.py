"""With real containerds: pulled once from a registry (a stand-in), handed on, imported by the others, and taken away again."""

from __future__ import annotations

import os
import pathlib
import platform
import socket
import threading
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.images import have, layout
from ansible_collections.dgxspark.cluster.plugins.module_utils.images.containerd import LABEL, Containerd, Login
from ansible_collections.dgxspark.cluster.plugins.module_utils.images.have import Seen, Wanted
from ansible_collections.dgxspark.cluster.plugins.module_utils.images.reference import parse
from ansible_collections.dgxspark.cluster.plugins.module_utils.parcels.progress import Progress
from ansible_collections.dgxspark.cluster.plugins.module_utils.parcels.relay import Counter, Link, relay
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import FabricError
from ansible_collections.dgxspark.cluster.tests.stand_ins import registry
from ansible_collections.dgxspark.cluster.tests.unit.containerds import PORT, Room, why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())
NAME = f"127.0.0.1:{PORT}/ours/engine:1"
ENGINE = parse(NAME)
HERE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()] if not why_not() else "amd64"
SECRET = "p4ss-Zq9Zq9"
LAYERS = [{"engine": b"#!/bin/sh\n", "large": os.urandom(3 * 2**20)}, {"library": os.urandom(2**20)}]


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Room]:
    made = Room(tmp_path_factory.mktemp("room"))
    made.registry()
    yield made
    made.close()


@pytest.fixture(scope="module")
def nodes(room: Room) -> list[Containerd]:
    return [room.node("node1"), room.node("node2")]


@pytest.fixture
def image(room: Room, nodes: list[Containerd]) -> t.Iterator[registry.Image]:
    made = registry.several(LAYERS)
    shelf = room.folder / "registry"
    registry.lay(shelf, {"ours/engine:1": made})
    yield made
    for path in shelf.iterdir():
        path.unlink()
    for node in nodes:
        if left := node.names():
            node.remove(left)


def wanted(folder: pathlib.Path, **more: t.Any) -> Wanted:
    return Wanted(ENGINE, str(folder / "stage"), **more)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def copy(first: have.Parcel, second: have.Parcel) -> None:
    """Hand a parcel from one folder to the other, over loopback."""
    port, failed = free_port(), []

    def one(goal: have.Parcel, link: Link) -> None:
        try:
            relay(goal, link, "token", Counter())
        except FabricError as exc:
            failed.append(str(exc))

    ends = [
        (first, Link("node1", port, None, ("node2",), ("127.0.0.1",), 20)),
        (second, Link("node2", port, ("node1", "127.0.0.1"), (), (), 20)),
    ]
    threads = [threading.Thread(target=one, args=end) for end in ends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed


def test_one_pulls_and_the_other_has_it_by_the_same_digest(
    nodes: list[Containerd], image: registry.Image, room: Room, tmp_path: pathlib.Path
) -> None:
    one, two = nodes
    assert have.look(one, ENGINE) == Seen()
    # What it is, and how large: nothing of it stays.
    told = have.prospect(one, wanted(tmp_path))
    assert (told.digest, told.size) == (image.digest, sum(len(image.blobs[each]) for each in image.wanted[HERE]))
    assert (one.names(), one.run(["namespaces", "ls", "-q"]).split().count("dgxspark")) == ([], 0)
    # Once from the registry, by digest; laid out for the other.
    made, changed = have.have(one, wanted(tmp_path / "one", share=True), Progress(None))
    assert (made, changed) == (told, True)
    sent = registry.sent(room.folder / "registry")
    layers = [line for line in sent if line.startswith("blobs/") and len(image.blobs[line[6:]]) > 1000]
    assert len(layers) == len(set(layers)) == 2
    here = Wanted(ENGINE, str(tmp_path / "two"))
    copy(have.parcel_of(wanted(tmp_path / "one"), made), have.parcel_of(here, made))
    have.bring(two, here, made, Progress(None))
    assert registry.sent(room.folder / "registry") == sent
    for node in nodes:
        # A tag that we resolved stands for its digest, without anybody being asked.
        assert have.look(node, ENGINE) == Seen(image.digest, True, True)
        assert have.look(node, parse(ENGINE.pinned(image.digest))) == Seen(image.digest, True, True)
        assert node.names(f'labels."{LABEL}"=={NAME}') == [ENGINE.kept(image.digest)]
        # The CRI plugin, whom the kubelet asks, has seen it.
        assert node.names('labels."io.cri-containerd.image"==managed', f"name=={ENGINE.kept(image.digest)}")
    # Again: nothing changes, nobody is asked, and what was laid out goes.
    assert have.have(one, wanted(tmp_path / "one"), Progress(None)) == (made, False)
    assert not (tmp_path / "one/stage").exists()
    assert registry.sent(room.folder / "registry") == sent


def test_what_we_put_there_goes_and_nothing_else(
    nodes: list[Containerd], image: registry.Image, room: Room, tmp_path: pathlib.Path
) -> None:
    one = nodes[0]
    other = registry.single([{"other": os.urandom(2**16)}], HERE)
    registry.lay(room.folder / "registry", {"ours/engine:1": image, "theirs/tool:2": other})
    theirs = f"127.0.0.1:{PORT}/theirs/tool:2"
    one.run(["images", "pull", theirs])
    before = set(one.names())
    have.have(one, wanted(tmp_path), Progress(None))
    planned, _stay = have.gone(one, ENGINE, str(tmp_path / "stage"), dry=True)
    assert ENGINE.kept(image.digest) in {change.subject for change in planned}
    gone, stay = have.gone(one, ENGINE, str(tmp_path / "stage"))
    assert (gone, stay) == (planned, [])
    assert set(one.names()) == before
    there = set(one.run(["content", "ls", "-q"]).split())
    assert not there & set(image.wanted[HERE]) and set(other.wanted[HERE]) <= there
    assert have.gone(one, ENGINE, str(tmp_path / "stage")) == ([], [])
    # What somebody else pulled under this name is not ours, and stays.
    one.run(["images", "pull", NAME])
    assert have.gone(one, ENGINE, str(tmp_path / "stage")) == ([], [])
    assert have.look(one, ENGINE) == Seen(image.digest, True, False)
    # It only lacks the name for which the kubelet looks: that is ours, and goes alone.
    assert have.have(one, wanted(tmp_path), Progress(None))[1]
    assert have.look(one, ENGINE).kept
    have.gone(one, ENGINE, str(tmp_path / "stage"))
    assert have.look(one, ENGINE) == Seen(image.digest, True, False)


def test_a_tag_that_moved_is_followed_when_it_is_asked_anew(
    nodes: list[Containerd], image: registry.Image, room: Room, tmp_path: pathlib.Path
) -> None:
    one = nodes[0]
    have.have(one, wanted(tmp_path), Progress(None))
    moved = registry.single([{"engine": os.urandom(2**16)}], HERE)
    registry.lay(room.folder / "registry", {"ours/engine:1": moved})
    # Nobody is asked by itself.
    assert have.look(one, ENGINE) == Seen(image.digest, True, True)
    new = have.prospect(one, wanted(tmp_path)).digest
    assert new == moved.digest
    have.have(one, wanted(tmp_path, digest=new), Progress(None))
    assert have.look(one, ENGINE) == Seen(moved.digest, True, True)
    # Both are ours, and go.
    have.gone(one, ENGINE, str(tmp_path / "stage"))
    assert one.names() == []


def test_an_archive_takes_the_same_path(nodes: list[Containerd], image: registry.Image, tmp_path: pathlib.Path) -> None:
    archive = tmp_path / "engine.tar"
    registry.archive(image, archive, NAME)
    asked = wanted(tmp_path, archive=str(archive), share=True)
    assert have.prospect(nodes[1], asked).digest == image.digest
    made, changed = have.have(nodes[1], asked, Progress(None))
    assert changed and have.look(nodes[1], ENGINE) == Seen(image.digest, True, True)
    laid = pathlib.Path(have.folder(asked.stage, made.digest))
    assert {f"sha256:{path.name}" for path in (laid / "blobs/sha256").iterdir()} == set(image.wanted[HERE])
    # What ctr exports is an archive, too.
    nodes[1].run(
        ["images", "export", "--platform", nodes[1].platform, str(tmp_path / "again.tar"), ENGINE.kept(image.digest)]
    )
    assert layout.archived(str(tmp_path / "again.tar"), ENGINE, nodes[1].platform) == made


def test_a_password_is_in_no_argv_and_no_environment(
    nodes: list[Containerd], image: registry.Image, room: Room, tmp_path: pathlib.Path
) -> None:
    (room.folder / "registry/login").write_text(f"owner:{SECRET}", encoding="utf-8")
    with pytest.raises(FabricError, match=r"wants somebody known.*k8s_dgx_image_user"):
        have.prospect(nodes[0], wanted(tmp_path))
    with pytest.raises(FabricError, match=r"wants somebody known"):
        have.prospect(nodes[0], wanted(tmp_path, login=Login("owner", "wrong")))
    seen: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            for process in pathlib.Path("/proc").glob("[0-9]*"):
                for name in ("cmdline", "environ"):
                    try:
                        said = (process / name).read_bytes()
                    except OSError:
                        continue
                    seen.add("login" if SECRET.encode() in said else "user" if b"--user\0owner\0" in said else "")

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        made, _changed = have.have(nodes[0], wanted(tmp_path, login=Login("owner", SECRET)), Progress(None))
    finally:
        over.set()
        watcher.join()
    assert made.digest == image.digest
    assert seen == {"", "user"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (f"127.0.0.1:{PORT}/ours/engine:2", "There is no such image"),
        ("127.0.0.1:1/ours/engine:1", r"cannot be reached from this node.*k8s_dgx_image_archive"),
        (f"127.0.0.1:{PORT}/ours/engine@sha256:{'0' * 64}", "There is no such image"),
        # No status of HTTP, though it has the digits of some.
        (f"127.0.0.1:{PORT}/ours/engine-403@sha256:{'401403429' * 7}0", "There is no such image"),
    ],
)
def test_an_image_that_cannot_be_had_says_why(
    nodes: list[Containerd], image: registry.Image, tmp_path: pathlib.Path, name: str, said: str
) -> None:
    with pytest.raises(FabricError, match=said):
        have.prospect(nodes[0], Wanted(parse(name), str(tmp_path)))
    assert nodes[0].names() == []


def test_an_image_for_other_machines_is_refused_before_it_comes(
    nodes: list[Containerd], image: registry.Image, room: Room, tmp_path: pathlib.Path
) -> None:
    registry.lay(room.folder / "registry", {"ours/engine:1": registry.single(LAYERS, "s390x")})
    with pytest.raises(FabricError, match=rf"is not for linux/{HERE}; it is for linux/s390x"):
        have.have(nodes[0], wanted(tmp_path), Progress(None))
    assert nodes[0].names() == []


def test_a_containerd_that_does_not_answer_is_named(room: Room) -> None:
    silent = Containerd((str(room.ctr), "--address", "/nonexistent/sock", "--connect-timeout", "1s"), "/tmp")
    with pytest.raises(FabricError, match="containerd does not answer"):
        silent.names()
