"""What of an image is moved, and archives that are not what they say."""

from __future__ import annotations

import io
import json
import os
import pathlib
import tarfile

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.images import layout
from ansible_collections.dgxspark.cluster.plugins.module_utils.images.reference import parse
from ansible_collections.dgxspark.cluster.plugins.module_utils.parcels import parcel as parcels
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import FabricError, to_plain
from ansible_collections.dgxspark.cluster.tests.stand_ins import registry

NAME = "registry.example/engine:1"
LAYERS = [{"engine": os.urandom(5000)}, {"library": os.urandom(300)}]


def made(platform: str = "linux/arm64") -> tuple[registry.Image, layout.Listing]:
    image = registry.several(LAYERS)
    return image, layout.listing(image.blobs.__getitem__, image.digest, platform)


def goal(folder: pathlib.Path, found: layout.Listing) -> parcels.Parcel:
    return layout.parcel(str(folder), found, parse(NAME).kept(found.digest))


@pytest.mark.parametrize("architecture", ["arm64", "amd64"])
def test_only_what_the_nodes_run_is_moved(architecture: str) -> None:
    image, found = made(f"linux/{architecture}")
    assert {blob.digest for blob in found.blobs} == set(image.wanted[architecture])
    assert found.size == sum(len(image.blobs[digest]) for digest in image.wanted[architecture])
    assert layout.checked(to_plain(found), "listing") == found


def test_an_image_for_other_machines_is_refused_by_name() -> None:
    image = registry.several(LAYERS)
    with pytest.raises(FabricError, match=r"not for linux/riscv64; it is for linux/amd64, linux/arm64"):
        layout.listing(image.blobs.__getitem__, image.digest, "linux/riscv64")
    alone = registry.single(LAYERS, "amd64")
    with pytest.raises(FabricError, match="not for linux/arm64; it is for linux/amd64"):
        layout.listing(alone.blobs.__getitem__, alone.digest, "linux/arm64")


def test_what_is_packed_comes_out_again(tmp_path: pathlib.Path) -> None:
    image, found = made()
    registry.archive(image, tmp_path / "a.tar", NAME)
    first, second = goal(tmp_path / "one", found), goal(tmp_path / "two", found)
    with (tmp_path / "a.tar").open("rb") as stream:
        layout.unpack(first, "a.tar", stream)
    packed = io.BytesIO()
    layout.pack(first, packed)
    packed.seek(0)
    layout.unpack(second, "what was packed", packed)
    assert parcels.state(second).whole
    # What stands for the image there is its digest, under the name for which the kubelet looks.
    entry = json.loads((tmp_path / "two/index.json").read_text())["manifests"][0]
    assert (entry["digest"], entry["annotations"][layout.NAME]) == (
        image.digest,
        f"registry.example/engine@{image.digest}",
    )


def spoiled(path: pathlib.Path, image: registry.Image, digest: str, *, leave_out: bool = False) -> None:
    blobs = {**image.blobs, digest: image.blobs[digest][:-1] + bytes([255 - image.blobs[digest][-1]])}
    if leave_out:
        del blobs[digest]
    registry.archive(registry.Image(image.digest, blobs), path, NAME)


@pytest.mark.parametrize(
    ("leave_out", "said"), [(False, "has other bytes than the name of"), (True, "lacks .* it is not whole")]
)
def test_a_damaged_archive_is_refused_and_nothing_of_it_counts(
    tmp_path: pathlib.Path, leave_out: bool, said: str
) -> None:
    image, found = made()
    layer = image.wanted["arm64"][-1]
    spoiled(tmp_path / "a.tar", image, layer, leave_out=leave_out)
    target = goal(tmp_path / "one", found)
    with (tmp_path / "a.tar").open("rb") as stream, pytest.raises(FabricError, match=said):
        layout.unpack(target, "a.tar", stream)
    assert not (tmp_path / "one/index.json").exists()
    assert not (tmp_path / "one/blobs/sha256" / layer.partition(":")[2]).exists()
    # A good one goes on with what was right.
    registry.archive(image, tmp_path / "b.tar", NAME)
    with (tmp_path / "b.tar").open("rb") as stream:
        layout.unpack(target, "b.tar", stream)
    assert parcels.state(target).whole


def test_an_archive_that_ends_in_the_middle_is_damaged(tmp_path: pathlib.Path) -> None:
    image, found = made()
    registry.archive(image, tmp_path / "a.tar", NAME)
    cut = (tmp_path / "a.tar").read_bytes()[:6000]
    with pytest.raises(FabricError, match=r"is damaged|lacks"):
        layout.unpack(goal(tmp_path / "one", found), "a.tar", io.BytesIO(cut))


def test_an_archive_says_which_image_it_has(tmp_path: pathlib.Path) -> None:
    image, found = made()
    path = str(tmp_path / "a.tar")
    registry.archive(image, tmp_path / "a.tar", NAME)
    assert layout.archived(path, parse(NAME), "linux/arm64") == found
    assert layout.archived(path, parse(f"{NAME}@{image.digest}"), "linux/arm64") == found
    with pytest.raises(FabricError, match=rf"no image sha256:0000.*but {image.digest}.*skopeo copy --all"):
        layout.archived(path, parse(f"{NAME}@sha256:{'0' * 64}"), "linux/arm64")
    with pytest.raises(FabricError, match=r"is not there \(k8s_dgx_image_archive\)"):
        layout.archived(str(tmp_path / "none.tar"), parse(NAME), "linux/arm64")
    (tmp_path / "text.tar").write_text("no archive")
    with pytest.raises(FabricError, match="cannot be read as an archive"):
        layout.archived(str(tmp_path / "text.tar"), parse(NAME), "linux/arm64")
    with tarfile.open(tmp_path / "old.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("manifest.json"))
    with pytest.raises(FabricError, match=r"has no index\.json.*from release 25 on"):
        layout.archived(str(tmp_path / "old.tar"), parse(NAME), "linux/arm64")


def test_of_several_images_the_one_of_that_name_is_meant(tmp_path: pathlib.Path) -> None:
    images = {tag: registry.single([{tag: os.urandom(50)}], "arm64") for tag in ("1", "2")}
    entries = [
        {"digest": image.digest, "size": 1, "mediaType": registry.MANIFEST, "annotations": {layout.TAG: tag}}
        for tag, image in images.items()
    ]
    both = registry.Image(blobs={**images["1"].blobs, **images["2"].blobs})
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        files = {f"./blobs/{digest.replace(':', '/')}": data for digest, data in both.blobs.items()}
        for name, data in {"./index.json": json.dumps({"manifests": entries}).encode(), **files}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    path = str(tmp_path / "a.tar")
    assert layout.archived(path, parse("registry.example/engine:2"), "linux/arm64").digest == images["2"].digest
    with pytest.raises(FabricError, match=r"2 images that may be registry\.example/engine:3"):
        layout.archived(path, parse("registry.example/engine:3"), "linux/arm64")


@pytest.mark.parametrize("text", [b"[]", b"{", b"{}"])
def test_what_is_no_manifest_is_refused(text: bytes) -> None:
    image = registry.Image()
    digest, _size = image.add(text)
    with pytest.raises(FabricError, match="is no manifest of an image"):
        layout.listing(image.blobs.__getitem__, digest, "linux/arm64")
