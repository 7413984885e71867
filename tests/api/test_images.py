"""The role k8s_dgx with the engine's image, as its owner runs it: four Sparks on this machine, each with a containerd of its own.

The registry and the cluster are stand-ins (tests/stand_ins); so is containerd, but in the one test that says so.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import socket
import threading
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.stand_ins import kube_api, registry
from ansible_collections.dgxspark.cluster.tests.unit.containerds import PORT, Room, why_not
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import names

pytestmark = pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN)
LAYERS = [{"engine": b"#!/bin/sh\n", "large": os.urandom(2 * 2**20)}, {"library": os.urandom(2**20)}]
SECRET = "p4ss-Zq9Zq9Zq9"
TELL = {"name": "Tell", "ansible.builtin.debug": {"msg": "pinned {{ __k8s_dgx_image.reference }}"}, "run_once": True}
STAND_IN = str(harness.ROOT / "tests/stand_ins/ctr")


class Owner(harness.Site):
    """Four Sparks, a cluster and a registry."""

    def __init__(self, folder: pathlib.Path, ctr: str, host: str) -> None:
        self.cluster = kube_api.Cluster(names(4))
        self.server = kube_api.serve(self.cluster, folder / "kubeconfig")
        self.image, self.asked = registry.several(LAYERS), f"{host}/ours/engine:1"
        self.repository = f"{host}/ours/engine"
        registry.lay(folder / "registry", {"ours/engine:1": self.image})
        nodes = f"{folder}/{{{{ inventory_hostname }}}}"
        super().__init__(
            folder,
            folder / "kubeconfig",
            k8s_dgx_image_state="present",
            k8s_dgx_image=self.asked,
            k8s_dgx_containerd={"ctr": ctr, "address": f"{nodes}/sock", "root": f"{nodes}/root"},
            k8s_dgx_serving={"cache_dir": f"{folder}/cache/{{{{ inventory_hostname }}}}"},
            k8s_dgx_files_dir=str(folder / "files"),
            k8s_dgx_disk_reserve_gib=0,
            k8s_dgx_copy_addresses={name: f"127.0.0.{number}" for number, name in enumerate(names(4), 1)},
            k8s_dgx_copy_port=47120,
        )

    @property
    def sent(self) -> list[str]:
        """The layers that the registry has sent."""
        found = [line[6:] for line in registry.sent(self.folder / "registry") if line.startswith("blobs/")]
        return [digest for digest in found if len(self.image.blobs.get(digest, b"")) > 10000]

    def pods(self) -> set[tuple[str, str]]:
        """What the ranks ask for, and how."""
        made = [each["spec"]["containers"][0] for each in self.cluster.pods().values()]
        return {(each["image"], each["imagePullPolicy"]) for each in made}

    def left(self) -> list[str]:
        """What of moving images is still on the nodes."""
        return [str(path) for path in (self.folder / "cache").glob("*/images")]


class StandIns(Owner):
    """Each Spark's containerd is tests/stand_ins/ctr."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.registry = registry.serve(folder / "registry")
        threading.Thread(target=self.registry.serve_forever, daemon=True).start()
        super().__init__(folder, STAND_IN, f"127.0.0.1:{self.registry.server_port}")

    def has(self) -> dict[str, dict[str, str]]:
        """Names and digests that each Spark's containerd keeps for the kubelet, where all of it is there."""
        found = {}
        for name in names(4):
            place = self.folder / name / "sock.d"
            images = json.loads((place / "images.json").read_text()) if (place / "images.json").exists() else {}
            blobs = {path.name for path in place.glob("blobs/*")}
            found[name] = {
                kept: image["digest"]
                for kept, image in images.get("k8s.io", {}).items()
                if any(set(needed) <= blobs for needed in self.image.wanted.values())
            }
        return found

    def everywhere(self) -> bool:
        kept = {f"{self.repository}@{self.image.digest}": self.image.digest}
        return self.has() == dict.fromkeys(names(4), kept)


@pytest.fixture
def owner(tmp_path: pathlib.Path) -> t.Iterator[StandIns]:
    made = StandIns(tmp_path)
    yield made
    made.server.shutdown()
    made.registry.shutdown()


@pytest.fixture
def alone(owner: StandIns) -> StandIns:
    """The plan and the image, without a cluster."""
    owner.parts("plan", "image", then=[TELL])
    return owner


def test_an_image_comes_once_and_goes_round(alone: StandIns) -> None:
    code, said, changed = alone.run("--check", "--diff")
    assert (code, changed > 0) == (0, True), said
    # What would move, and what the pods would ask for, is known before anything moved.
    assert f"pinned {alone.asked}@{alone.image.digest}" in said
    assert f"of {alone.asked} (sha256:" in said and "to be fetched" in said and "to be copied from spark3" in said
    assert not any(alone.has().values()) and not alone.sent
    # One pull, four Sparks.
    assert alone.good() > 0
    assert alone.everywhere()
    assert sorted(alone.sent) == sorted(set(alone.sent)) and len(alone.sent) == 2
    assert alone.left() == []
    # Again: nothing changes; the tag is not asked for, even where it moved.
    registry.lay(alone.folder / "registry", {"ours/engine:1": registry.several([{"other": os.urandom(2**16)}])})
    before = registry.sent(alone.folder / "registry")
    assert alone.good() == 0
    assert registry.sent(alone.folder / "registry") == before
    # Only where it is asked anew.
    code, said, _changed = alone.run("--check", k8s_dgx_image_refresh=True)
    assert code == 0, said
    assert f"pinned {alone.asked}@{alone.image.digest}" not in said and "to be fetched" in said
    # A Spark that lost it (the kubelet cleans up where disks are full) has it of another one.
    (alone.folder / "spark3/sock.d/images.json").unlink()
    assert alone.good() > 0
    assert alone.everywhere()
    assert len(alone.sent) == 2


@pytest.mark.long
def test_an_archive_on_the_controller_goes_round_without_a_registry(alone: StandIns) -> None:
    archive = alone.folder / "engine.tar"
    registry.archive(alone.image, archive, "ours/engine:1")
    alone.registry.shutdown()
    choices = {"k8s_dgx_image_archive": str(archive), "k8s_dgx_image_archive_remote": False}
    code, said, _changed = alone.run("--check", **choices)
    assert code == 0, said
    assert f"pinned {alone.asked}@{alone.image.digest}" in said
    assert alone.good(**choices) > 0
    assert alone.everywhere() and alone.left() == []
    assert alone.good(**choices) == 0
    # One that has something else is refused by name.
    code, said, _changed = alone.run(**choices, k8s_dgx_image=f"{alone.repository}@sha256:{'0' * 64}")
    assert code != 0
    assert f"has no image sha256:{'0' * 64}, but {alone.image.digest}" in re.sub(r"\s+", " ", said)


def test_where_there_is_no_room_nothing_moves(alone: StandIns) -> None:
    code, said, _changed = alone.run(k8s_dgx_disk_reserve_gib=10**7)
    assert code != 0
    assert "spark4: " in said and "GiB are to stay free" in said and "Nothing was moved" in said
    assert not any(alone.has().values()) and not alone.sent and alone.left() == []


@pytest.mark.long
def test_an_image_that_cannot_be_had_leaves_the_one_that_serves_alone(owner: StandIns) -> None:
    assert owner.good() > 0
    pinned = f"{owner.asked}@{owner.image.digest}"
    assert owner.pods() == {(pinned, "IfNotPresent")}
    code, said, _changed = owner.run(k8s_dgx_image=f"{owner.repository}:2")
    assert code != 0
    assert "There is no such image" in said and "k8s_dgx_image" in said
    assert owner.pods() == {(pinned, "IfNotPresent")}
    # A pull policy that would ask the registry at each start is refused, too.
    code, said, _changed = owner.run(
        k8s_dgx_serving={"image_pull": "Always", "cache_dir": str(owner.folder / "cache/all")}
    )
    assert code != 0 and "image_pull is Always" in said
    code, said, _changed = owner.run(k8s_dgx_image_state="absent")
    assert code != 0 and "k8s_dgx_image_state is absent, but k8s_dgx_state is present" in said
    # Gone, when it is told so, and nothing else.
    place = owner.folder / "spark1/sock.d/images.json"
    theirs = json.loads(place.read_text())
    theirs["k8s.io"]["theirs:1"] = {"digest": owner.image.digest, "labels": {}}
    place.write_text(json.dumps(theirs))
    assert owner.good(k8s_dgx_state="absent", k8s_dgx_image_state="absent") > 0
    assert owner.has() == {**{name: {} for name in names(4)}, "spark1": {"theirs:1": owner.image.digest}}
    assert owner.good(k8s_dgx_state="absent", k8s_dgx_image_state="absent") == 0


@pytest.mark.long
def test_a_copy_that_broke_is_gone_on_with(alone: StandIns) -> None:
    with socket.create_server(("127.0.0.2", 47120)):  # takes the next one's connection, and never answers
        code, said, _changed = alone.run(k8s_dgx_copy_patience=3)
    assert code != 0
    assert "127.0.0.2 port 47120 is taken by something else" in said and "k8s_dgx_copy_port" in said
    assert alone.has()["spark1"] and not alone.has()["spark3"]
    assert alone.left()
    # What one has pulled is not asked for again, and nothing is left lying about.
    before = registry.sent(alone.folder / "registry")
    assert alone.good() > 0
    assert alone.everywhere() and alone.left() == []
    assert registry.sent(alone.folder / "registry") == before


@pytest.mark.long
@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_with_real_containerds(tmp_path: pathlib.Path) -> None:
    room = Room(tmp_path)
    nodes = [room.node(name) for name in names(4)]
    try:
        owner = Owner(tmp_path, str(room.ctr), f"127.0.0.1:{PORT}")
        room.registry()
        owner.parts("plan", "image", then=[TELL])
        # The registry wants somebody known; what he is known by is nowhere.
        registry.lay(tmp_path / "registry", {"ours/engine:1": owner.image}, f"owner:{SECRET}")
        code, said, _changed = owner.run()
        assert code != 0 and "wants somebody known" in said and "k8s_dgx_image_password" in said
        code, said, _changed = owner.run("-vvv", "--diff", k8s_dgx_image_user="owner", k8s_dgx_image_password=SECRET)
        assert code == 0, said
        assert SECRET not in said
        (tmp_path / "variables.json").unlink()
        (tmp_path / "registry/login").unlink()
        files = [path for place in (".", "cache", "files", "home") for path in (tmp_path / place).glob("**/*")]
        assert not [path for path in files if path.is_file() and SECRET.encode() in path.read_bytes()]
        kept = f"{owner.repository}@{owner.image.digest}"
        assert [[row.ready for row in node.rows(f"name=={kept}")] for node in nodes] == [[True]] * 4
        assert len(owner.sent) == len(set(owner.sent)) == 2
        assert owner.left() == []
        assert owner.good() == 0
        nodes[2].remove(nodes[2].names())
        assert owner.good() > 0
        assert nodes[2].rows(f"name=={kept}")[0].ready
        assert len(owner.sent) == 2
        owner.parts("plan", "image", "image_absent", then=[TELL])
        owner.good(k8s_dgx_image_state="absent")
        assert [node.names() for node in nodes] == [[]] * 4
        owner.server.shutdown()
    finally:
        room.close()
