"""A bundle is filled from stand-ins of the outside, on loopback: REAL REGISTRIES, GITHUB AND PYPI ARE NOT ASKED HERE."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import pathlib
import tarfile
import threading
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import http_client
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bundle import get, manifest, registry, transfer
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bundle.wanted import Artefact
from ansible_collections.dgxspark.cluster.tests.stand_ins import registry as registries
from ansible_collections.dgxspark.cluster.tests.stand_ins.outside import Outside

K3S = "k3s/v1.36.4+k3s1"
BINARY, IMAGES = b"binary" * 50_000, b"images" * 70_000
LAYERS = [{"engine": b"e" * 5000}, {"model": b"m" * 3000}]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def file(name: str, data: bytes, **more: t.Any) -> Artefact:
    given: dict[str, t.Any] = {"sha256": sha256(data), "listed": f"{K3S}/sha256sum-arm64.txt"} | more
    source = f"https://github.com/releases/{name}"
    return Artefact("file", name, "v1.36.4+k3s1", source, f"{K3S}/{name}", "k3s", "arm64", **given)


LIST = Artefact(
    "file", "list", "v1.36.4+k3s1", "https://github.com/releases/sums", f"{K3S}/sha256sum-arm64.txt", "k3s", "arm64"
)
K3S_ARM64 = file("k3s-arm64", BINARY)


def image(source: str, **more: t.Any) -> Artefact:
    given: dict[str, t.Any] = {"arch": "arm64"} | more
    return Artefact("image", "engine", "1.2", source, "images/engine.tar", "k8s_dgx", **given)


class World:
    """The outside, a registry in it, and the way there."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.outside, self.folder, self.bundle = Outside(), folder, str(folder / "bundle")
        sums = f"{sha256(BINARY)}  k3s-arm64\n{sha256(IMAGES)} *k3s-airgap-images-arm64.tar.zst\n"
        self.outside.files = {
            "/releases/k3s-arm64": BINARY,
            "/releases/images": IMAGES,
            "/releases/sums": sums.encode(),
        }
        self.store = folder / "registry"
        self.several = registries.several(LAYERS)
        registries.lay(self.store, {"acme/engine:1.2": self.several})
        self.server = registries.serve(self.store)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        here = f"http://127.0.0.1:{self.server.server_port}"
        self.mirrors = {"https://github.com": self.outside.url, "https://pypi.org": self.outside.url, "docker.io": here}

    def have(self, artefact: Artefact, **more: t.Any) -> get.Had:
        check = more.pop("check", False)
        with http_client.client() as asked:
            way = get.Way(asked, self.mirrors, **more)
            return get.have(self.bundle, artefact, way, check=check)

    def path(self, artefact: Artefact) -> pathlib.Path:
        return pathlib.Path(self.bundle, artefact.path)


@pytest.fixture
def world(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[World]:
    monkeypatch.setattr(transfer, "PAUSE_S", 0.0)
    made = World(tmp_path)
    yield made
    made.outside.stop()
    made.server.shutdown()
    made.server.server_close()


def test_what_is_whole_is_not_asked_for_again(world: World) -> None:
    for artefact in (LIST, K3S_ARM64):
        assert world.have(artefact).changed
    assert world.path(K3S_ARM64).read_bytes() == BINARY
    world.outside.requests.clear()
    for artefact in (LIST, K3S_ARM64):
        assert not world.have(artefact).changed
    assert world.outside.requests == []
    noted = {each.path: each for each in manifest.read(world.bundle).artefacts}
    assert (noted[K3S_ARM64.path].size, noted[K3S_ARM64.path].sha256) == (len(BINARY), sha256(BINARY))
    assert [each.path for each in manifest.checked(world.bundle, [LIST, K3S_ARM64], whole=True)] == [
        LIST.path,
        K3S_ARM64.path,
    ]


def test_check_says_how_large_and_fetches_nothing(world: World) -> None:
    said = world.have(K3S_ARM64, check=True)
    assert said.changed
    assert f"{len(BINARY) / 2**20:.1f} MiB" in said.said
    assert "MiB to be fetched from acme/engine:1.2" in world.have(image("acme/engine:1.2"), check=True).said
    assert not pathlib.Path(world.bundle).exists()
    assert not [each for each in registries.sent(world.store) if each.startswith("blobs/")]


def test_a_download_that_broke_off_goes_on(world: World) -> None:
    world.have(LIST)
    world.outside.cut["/releases/k3s-arm64"] = 1000
    assert world.have(K3S_ARM64).changed
    assert world.path(K3S_ARM64).read_bytes() == BINARY
    ranges = [given for _method, path, given in world.outside.requests if path.startswith("/signed") and given]
    assert ranges == ["bytes=1000-"]


def test_a_leftover_that_is_longer_than_the_file_is_begun_again(world: World) -> None:
    world.have(LIST)
    part = world.path(K3S_ARM64).with_name(".k3s-arm64.part")
    part.write_bytes(b"x" * (len(BINARY) + 5))
    world.have(K3S_ARM64)
    assert world.path(K3S_ARM64).read_bytes() == BINARY
    assert not part.exists()


def test_other_bytes_are_thrown_away_and_named(world: World) -> None:
    world.have(LIST)
    world.outside.spoiled.add("/releases/k3s-arm64")
    with pytest.raises(
        CollectionError, match=rf"k3s-arm64: .* has SHA-256 [0-9a-f]{{64}}, but {sha256(BINARY)} is expected"
    ) as seen:
        world.have(K3S_ARM64)
    assert "signature" not in str(seen.value)
    assert [path.name for path in world.path(K3S_ARM64).parent.iterdir()] == ["sha256sum-arm64.txt"]
    assert manifest.noted(world.bundle, K3S_ARM64) is None


def test_the_release_s_list_vouches_for_what_nobody_else_knows(world: World) -> None:
    world.have(LIST)
    name = "k3s-airgap-images-arm64.tar.zst"
    unknown = file(name, IMAGES, sha256=None)
    world.outside.files[f"/releases/{name}"] = IMAGES
    assert world.have(unknown).there == dataclasses.replace(unknown, sha256=sha256(IMAGES), size=len(IMAGES))
    world.path(unknown).unlink()
    world.outside.spoiled.add(f"/releases/{name}")
    with pytest.raises(CollectionError, match="is expected"):
        world.have(unknown)


def test_a_list_that_is_another_release_s_is_refused(world: World) -> None:
    world.outside.files["/releases/sums"] = f"{'0' * 64}  k3s-arm64\n".encode()
    world.have(LIST)
    with pytest.raises(CollectionError, match=f"{'0' * 64} was found, and {sha256(BINARY)} is expected"):
        world.have(K3S_ARM64)
    assert not world.path(K3S_ARM64).exists()


def test_a_wheel_comes_from_where_the_index_says(world: World) -> None:
    data, name = b"wheel" * 100, "hf_xet-1.8.0-cp38-abi3-manylinux_2_28_aarch64.whl"
    world.outside.wheel("hf-xet", "hf_xet-1.7.0-py3-none-any.whl", b"old")
    world.outside.wheel("hf-xet", name, data)
    wheel = Artefact(
        "python", "hf_xet", "1.8.0", "https://pypi.org/simple/hf-xet/", f"python/{name}", "hub", "arm64", sha256(data)
    )
    assert world.have(wheel).changed
    assert world.path(wheel).read_bytes() == data
    with pytest.raises(CollectionError, match=r"has no hf_xet-9\.whl"):
        world.have(dataclasses.replace(wheel, path="python/hf_xet-9.whl"))


def members(path: pathlib.Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {entry.name: t.cast(t.IO[bytes], tar.extractfile(entry)).read() for entry in tar if entry.isfile()}


def test_an_image_is_an_archive_with_its_name_and_one_architecture(world: World) -> None:
    wanted = image("acme/engine:1.2")
    had = world.have(wanted)
    assert had.there is not None
    assert had.there.digest == world.several.digest
    there = members(world.path(wanted))
    (entry,) = json.loads(there["index.json"])["manifests"]
    assert entry["digest"] == world.several.digest
    # K3s imports images by tag alone, and adds the name with the digest itself (retagImages).
    assert entry["annotations"]["io.containerd.image.name"] == "docker.io/acme/engine:1.2"
    blobs = {name.rpartition("/")[2]: data for name, data in there.items() if name.startswith("blobs/")}
    assert set(blobs) == {digest.removeprefix("sha256:") for digest in world.several.wanted["arm64"]}
    assert all(sha256(data) == name for name, data in blobs.items())
    assert sorted(path.name for path in world.path(wanted).parent.iterdir()) == ["engine.tar"]
    sent = len(registries.sent(world.store))
    assert not world.have(wanted).changed
    assert len(registries.sent(world.store)) == sent
    # The same image makes the same archive.
    first = world.path(wanted).read_bytes()
    world.path(wanted).unlink()
    world.have(wanted)
    assert world.path(wanted).read_bytes() == first


def test_a_tag_that_has_moved_is_taken_when_it_is_asked_for(world: World) -> None:
    wanted = image("acme/engine:1.2")
    world.have(wanted)
    assert not world.have(wanted, refresh=True).changed
    moved = registries.several([{"engine": b"new"}])
    registries.lay(world.store, {"acme/engine:1.2": moved})
    assert not world.have(wanted).changed
    had = world.have(wanted, refresh=True)
    assert had.changed
    assert had.there is not None
    assert had.there.digest == moved.digest


def test_a_bundle_whose_archives_have_names_of_before_is_not_fetched_again(world: World) -> None:
    before = image("acme/engine:1.2")
    world.have(before)
    now = dataclasses.replace(image("docker.io/acme/engine:1.2"), path="images/other-name.tar")
    assert not world.have(now).changed
    assert [each.path for each in manifest.checked(world.bundle, [now])] == [before.path]
    registries.lay(world.store, {"acme/engine:1.2": registries.several([{"engine": b"new"}])})
    assert world.have(now, refresh=True).changed
    assert [each.path for each in manifest.read(world.bundle).artefacts] == [before.path]
    assert sorted(path.name for path in world.path(before).parent.iterdir()) == ["engine.tar"]


@pytest.mark.parametrize("which", ["manifest", "layer"])
def test_a_registry_that_gives_other_bytes_is_refused(world: World, which: str) -> None:
    digest = world.several.wanted["arm64"][{"manifest": 1, "layer": 3}[which]]
    data = (world.store / digest).read_bytes()
    (world.store / digest).write_bytes(data + b" " if which == "manifest" else data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CollectionError, match={"manifest": "the registry gave", "layer": "is expected"}[which]):
        world.have(image("acme/engine:1.2"))
    assert not world.path(image("x")).exists()


def test_a_private_image_needs_a_login_from_a_file(world: World) -> None:
    registries.lay(world.store, {"acme/engine:1.2": world.several}, login="me:secret")
    mirror = world.mirrors["docker.io"].removeprefix("http://")
    config = world.folder / "config.json"
    auth = base64.b64encode(b"me:secret").decode()
    config.write_text(json.dumps({"auths": {"https://index.docker.io/v1/": {"auth": auth}}}), encoding="utf-8")
    for logins in ({}, registry.logins(str(config))):  # Docker's own login is not the mirror's
        with pytest.raises(
            CollectionError, match=rf"a private image needs a login for {mirror} \(dgxspark_bundle_logins"
        ):
            world.have(image("acme/engine:1.2"), logins=logins)
    config.write_text(json.dumps({"auths": {f"http://{mirror}/v2/": {"auth": auth}}}), encoding="utf-8")
    assert world.have(image("acme/engine:1.2"), logins=registry.logins(str(config))).changed


def test_an_image_for_another_architecture_is_refused(world: World) -> None:
    registries.lay(world.store, {"acme/engine:1.2": registries.single(LAYERS, "amd64")})
    with pytest.raises(CollectionError, match="is not for arm64; it is for amd64"):
        world.have(image("acme/engine:1.2"))
    assert world.have(image("acme/engine:1.2", arch="amd64")).changed


def test_what_is_missing_or_wrong_is_one_error_that_names_it(world: World) -> None:
    with pytest.raises(CollectionError, match=r"is not a bundle: bundle\.json is missing"):
        manifest.checked(world.bundle, [LIST])
    for artefact in (LIST, K3S_ARM64):
        world.have(artefact)
    world.path(K3S_ARM64).write_bytes(BINARY[:-1])
    world.path(LIST).unlink()
    with pytest.raises(CollectionError) as seen:
        manifest.checked(world.bundle, [LIST, K3S_ARM64, image("acme/engine:1.2")])
    said = str(seen.value)
    assert f"{world.path(LIST)} is missing" in said
    assert f"{len(BINARY) - 1} bytes were found, but {len(BINARY)} are expected" in said
    assert "engine 1.2 for arm64 (images/engine.tar, for k8s_dgx) is not in the bundle" in said
    # bundle.yml repairs it.
    for artefact in (LIST, K3S_ARM64):
        assert world.have(artefact).changed
    world.path(K3S_ARM64).write_bytes(BINARY[:-1] + b"!")
    with pytest.raises(CollectionError, match=f"SHA-256 [0-9a-f]{{64}} was found, but {sha256(BINARY)} is expected"):
        manifest.checked(world.bundle, [K3S_ARM64], whole=True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("{", "cannot be read"),
        ('{"format": 2}', "has format 2"),
        ('{"format": 1, "more": 1}', "unknown key 'more'"),
        ('{"format": 1, "artefacts": [{"kind": "file"}]}', "is missing"),
    ],
)
def test_a_manifest_of_another_shape_is_refused(tmp_path: pathlib.Path, given: str, said: str) -> None:
    (tmp_path / "bundle.json").write_text(given, encoding="utf-8")
    with pytest.raises(CollectionError, match=said):
        manifest.read(str(tmp_path))


@pytest.mark.parametrize("path", ["/etc/shadow", "../x", "k3s/../../x"])
def test_a_manifest_names_nothing_outside_its_folder(tmp_path: pathlib.Path, path: str) -> None:
    entry = dataclasses.asdict(dataclasses.replace(K3S_ARM64, path=path, size=1))
    (tmp_path / "bundle.json").write_text(json.dumps({"format": 1, "artefacts": [entry]}), encoding="utf-8")
    with pytest.raises(CollectionError, match="not a path below"):
        manifest.read(str(tmp_path))
