"""The hub's real library against a stand-in for the hub (tests/stand_ins/hub.py), on loopback."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tracemalloc
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.transfer import parcel as parcels
from ansible_collections.dgxspark.cluster.plugins.module_utils.transfer.progress import Progress
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.module_utils.weights import cache
from ansible_collections.dgxspark.cluster.plugins.module_utils.weights.fetch import FetchRequest, ask, fetch, prospect
from ansible_collections.dgxspark.cluster.tests.stand_ins.hub import Hub, Repo
from ansible_collections.dgxspark.cluster.tests.support.parcels import seal

PYTHON = sys.executable if importlib.util.find_spec("huggingface_hub") else ""
pytestmark = pytest.mark.skipif(not PYTHON, reason="not run: no huggingface_hub here (requirements/test.txt)")
REPO = "org/model"
BIG = os.urandom(2**20 + 3)
FILES = {
    "config.json": b'{"a": 1}',
    "model-1.safetensors": BIG,
    "model-2.safetensors": BIG[::-1],
    "same.safetensors": BIG,
    "sub/tokenizer.json": b"{}" * 50,
}
TOTAL = sum(map(len, FILES.values())) - len(BIG)  # equal files are stored once


@pytest.fixture
def hub() -> t.Iterator[Hub]:
    made = Hub()
    made.repos[REPO] = Repo(dict(FILES))
    yield made
    made.stop()


def wanted(hub: Hub, folder: pathlib.Path, **more: t.Any) -> FetchRequest:
    # As with an owner's proxy: errors are reported at once, not after minutes of retries.
    environment = {"HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1"}
    return FetchRequest(str(folder / "cache"), REPO, python=PYTHON, environment=environment, **more)


def test_the_library_gets_no_token_that_was_left_on_the_node(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\ncat >/dev/null; printf \'{"env": "%s"}\\n\' "$(env | tr \'\\n"\' "  ")"\n', "utf-8")
    python.chmod(0o755)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH"):
        monkeypatch.setenv(name, "hf_left")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    asked = FetchRequest(
        str(tmp_path), REPO, python=str(python), token="/run/token", environment={"HF_ENDPOINT": "http://hub"}
    )
    env = str(ask(asked, {"do": "list"})["env"]).split()
    assert not any("hf_left" in word for word in env)
    assert {"HF_TOKEN_PATH=/run/token", "HF_ENDPOINT=http://hub", "HTTPS_PROXY=http://proxy:3128"} <= set(env)


def hub_of(asked: FetchRequest) -> str:
    """Where an engine looks."""
    return f"{asked.root}/{cache.HUB}"


def have(asked: FetchRequest) -> cache.Manifest:
    with Progress(None) as progress:
        return fetch(asked, progress)


def test_a_download_is_verified_listed_and_found_by_an_engine_without_a_network(
    hub: Hub, tmp_path: pathlib.Path
) -> None:
    asked = wanted(hub, tmp_path)
    assert prospect(asked) == {"revision": "a" * 40, "total": TOTAL, "missing": TOTAL}
    made = have(asked)
    assert {f.path: f.sha256 for f in made.files} == {k: hashlib.sha256(v).hexdigest() for k, v in FILES.items()}
    assert made.revision == "a" * 40 and made.size == TOTAL
    assert cache.read(asked.root, REPO, None) == made
    # What an engine does: the library itself, without a network, by the repository's name alone.
    code = f"import huggingface_hub as h; print(h.snapshot_download({REPO!r}))"
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": hub_of(asked), "HF_ENDPOINT": hub.url}
    seen = len(hub.requests)
    found = subprocess.run([PYTHON, "-c", code], env=env, check=True, capture_output=True, text=True).stdout.strip()
    assert {p: (pathlib.Path(found) / p).read_bytes() for p in FILES} == FILES
    assert len(hub.requests) == seen


def test_the_second_time_nothing_is_asked_or_moved_and_the_commit_stays(hub: Hub, tmp_path: pathlib.Path) -> None:
    asked = wanted(hub, tmp_path)
    have(asked)
    hub.repos[REPO].commit = "b" * 40  # the branch has moved on
    hub.requests.clear()
    assert have(asked).revision == "a" * 40
    assert prospect(asked)["missing"] == 0
    assert hub.requests == []
    assert parcels.state(cache.parcel(asked.root, t.cast(cache.Manifest, cache.read(asked.root, REPO, None)))).whole


@pytest.mark.more
def test_another_commit_is_fetched_and_moves_only_what_differs(hub: Hub, tmp_path: pathlib.Path) -> None:
    have(wanted(hub, tmp_path))
    hub.repos[REPO].commit = "b" * 40
    hub.repos[REPO].files["config.json"] = b'{"a": 2}'
    hub.sent.clear()
    made = have(wanted(hub, tmp_path, revision="b" * 40))
    assert made.revision == "b" * 40
    assert hub.sent == {"config.json": 8}
    assert cache.current(wanted(hub, tmp_path).root, REPO) == "b" * 40


def test_a_connection_that_breaks_is_mended_within_the_run(hub: Hub, tmp_path: pathlib.Path) -> None:
    hub.repos[REPO].cut["model-2.safetensors"] = 2**19
    assert have(wanted(hub, tmp_path)).size == TOTAL
    assert sum(line == "GET /cdn/org/model/model-2.safetensors" for line in hub.requests) == 2


@pytest.mark.more
def test_an_interrupted_download_keeps_the_files_that_came_whole(hub: Hub, tmp_path: pathlib.Path) -> None:
    asked = wanted(hub, tmp_path)
    have(asked)
    manifest = t.cast(cache.Manifest, cache.read(asked.root, REPO, None))
    lost = next(f for f in manifest.files if f.path == "model-2.safetensors")
    base = pathlib.Path(hub_of(asked)) / cache.folder(REPO)
    (base / "blobs" / lost.blob).unlink()
    left = base / "blobs" / f"{lost.blob}.0badcafe.incomplete"
    left.write_bytes(b"x" * 1000)
    os.utime(left, (1, 1))
    hub.sent.clear()
    assert prospect(asked)["missing"] == lost.size
    have(asked)
    assert set(hub.sent) == {"model-2.safetensors"}
    assert not left.exists()


def test_wrong_bytes_are_named_and_do_not_stay(hub: Hub, tmp_path: pathlib.Path) -> None:
    asked = wanted(hub, tmp_path)
    hub.repos[REPO].spoiled = {"model-2.safetensors"}
    with pytest.raises(
        CollectionError, match=r"org/model: model-2\.safetensors has other bytes than the hub promised \(SHA-256"
    ):
        have(asked)
    assert cache.read(asked.root, REPO, None) is None
    hub.repos[REPO].spoiled = {"config.json"}
    hub.sent.clear()
    with pytest.raises(CollectionError, match=r"config\.json has other bytes"):
        shutil.rmtree(asked.root)
        have(asked)
    hub.repos[REPO].spoiled = set()
    hub.sent.clear()
    assert have(asked).revision == "a" * 40
    assert hub.sent == {"config.json": 8}


@pytest.mark.more
@pytest.mark.parametrize(
    ("repo", "token", "said"),
    [
        (Repo(dict(FILES), private=True), None, r"The hub requires a token \(401\).*k8s_dgx_hf_token"),
        (Repo(dict(FILES), gated=True), None, r"The repository is gated.*Accept its terms"),
        (Repo(dict(FILES), gated=True, allowed=("hf_other",)), "hf_mine", r"The repository is gated.*Accept its terms"),
        (Repo(dict(FILES), gated=True, allowed=("hf_mine",)), "hf_mine", None),
        (Repo(dict(FILES), private=True, allowed=("hf_mine",)), "hf_mine", None),
    ],
)
def test_who_may_not_read_is_told_so_before_anything_moves(
    hub: Hub, tmp_path: pathlib.Path, repo: Repo, token: str | None, said: str | None
) -> None:
    hub.repos[REPO] = repo
    place = tmp_path / "token"
    if token:
        place.write_text(token)
    asked = wanted(hub, tmp_path, token=str(place) if token else None)
    if said is None:
        assert have(asked).size == TOTAL
        return
    with pytest.raises(CollectionError, match=said):
        prospect(asked)
    assert not hub.sent


def test_an_unknown_commit_and_a_hub_that_is_not_there_are_named(hub: Hub, tmp_path: pathlib.Path) -> None:
    with pytest.raises(CollectionError, match="no such revision"):
        prospect(wanted(hub, tmp_path, revision="c" * 40))
    asked = wanted(hub, tmp_path)
    asked = dataclasses.replace(asked, environment={**asked.environment, "HF_ENDPOINT": "http://127.0.0.1:9"})
    with pytest.raises(CollectionError, match=r"could not be reached.*model_weights_source"):
        prospect(asked)
    with pytest.raises(CollectionError, match="no huggingface_hub"):
        prospect(dataclasses.replace(asked, python="/usr/bin/python3"))


def test_a_full_disk_is_told_before_anything_moves(hub: Hub, tmp_path: pathlib.Path) -> None:
    with pytest.raises(CollectionError, match=r"GiB free, but org/model needs .* must stay free"):
        have(wanted(hub, tmp_path, reserve_gib=2**30))
    assert not hub.sent


def test_a_folder_with_a_list_needs_no_hub(hub: Hub, tmp_path: pathlib.Path) -> None:
    asked = wanted(hub, tmp_path)
    made = have(asked)
    hub.stop()
    disk = tmp_path / "disk"
    shutil.copytree(hub_of(asked), disk, symlinks=True)
    elsewhere = dataclasses.replace(asked, root=str(tmp_path / "other"), source=str(disk), python="/nowhere")
    assert prospect(elsewhere)["missing"] == TOTAL
    assert have(elsewhere) == made
    assert parcels.state(cache.parcel(elsewhere.root, made)).whole
    blob = disk / cache.folder(REPO) / "blobs" / made.files[1].blob
    blob.write_bytes(b"\0" * made.files[1].size)
    third = dataclasses.replace(elsewhere, root=str(tmp_path / "third"))
    with pytest.raises(CollectionError, match="it is damaged"):
        have(third)
    assert cache.read(third.root, REPO, None) is None
    blob.unlink()
    with pytest.raises(CollectionError, match="is not there, though the list"):
        have(third)
    blob.symlink_to(blob.name)
    with pytest.raises(CollectionError, match=rf"{blob.name} cannot be read: it is a symlink where none is followed"):
        have(third)
    (disk / cache.folder(REPO) / f"dgxspark-{made.revision}.json").unlink()
    with pytest.raises(CollectionError, match="has no list of org/model"):
        prospect(third)


def test_absent_takes_away_what_is_ours_and_nothing_else(hub: Hub, tmp_path: pathlib.Path) -> None:
    asked = wanted(hub, tmp_path)
    made = have(asked)
    base = pathlib.Path(hub_of(asked)) / cache.folder(REPO)
    theirs = base / "snapshots" / ("d" * 40) / "model.safetensors"
    theirs.parent.mkdir()
    shared = next(f for f in made.files if f.path == "model-2.safetensors")
    theirs.symlink_to(f"../../blobs/{shared.blob}")
    before = sorted(base.rglob("*"))
    assert cache.remove(asked.root, REPO, dry=True)
    assert sorted(base.rglob("*")) == before
    assert cache.remove(asked.root, REPO)
    assert theirs.read_bytes() == FILES["model-2.safetensors"]
    assert {p.name for p in base.rglob("*") if p.is_file()} == {shared.blob, "model.safetensors"}
    assert cache.remove(asked.root, REPO) == []


@pytest.mark.parametrize(
    ("read", "place", "chosen"),
    [
        (cache.read, f"{cache.OWN}/{cache.folder(REPO)}/{'a' * 40}.json", f"{cache.OWN}/{cache.folder(REPO)}/main"),
        (cache.brought, f"{cache.folder(REPO)}/dgxspark-{'a' * 40}.json", f"{cache.folder(REPO)}/refs/main"),
    ],
)
def test_a_list_that_is_none_of_ours_is_refused(
    tmp_path: pathlib.Path,
    read: t.Callable[[str, str, str | None], cache.Manifest | None],
    place: str,
    chosen: str,
) -> None:
    bad = {
        "repo": REPO,
        "revision": "a" * 40,
        "files": [{"path": "x", "blob": "../../etc/passwd", "size": 1, "sha256": "0" * 64}],
    }
    for path, text in ((place, json.dumps(bad)), (chosen, "a" * 40)):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    with pytest.raises(CollectionError, match="it is not a list written by this collection"):
        read(str(tmp_path), REPO, None)
    with pytest.raises(CollectionError, match="is not the name of a repository on the hub"):
        cache.folder("../../etc")


# --- what a rank that can write to its cache does ----------------------------------------------------------------------


def test_lists_and_seals_are_root_s_alone(hub: Hub, tmp_path: pathlib.Path) -> None:
    asked = wanted(hub, tmp_path)
    before = os.umask(0o022)
    try:
        have(asked)
    finally:
        os.umask(before)
    own = pathlib.Path(asked.root) / cache.OWN
    assert own.stat().st_mode & 0o777 == 0o700
    readable = pathlib.Path(asked.root) / "huggingface"
    assert {path.name for path in readable.rglob("*") if path.name.endswith(".json") and not path.is_symlink()} == {
        f"dgxspark-{'a' * 40}.json"
    }


def test_a_rank_that_changes_a_file_the_list_beside_it_and_the_times_deceives_nobody(
    hub: Hub, tmp_path: pathlib.Path
) -> None:
    asked = wanted(hub, tmp_path)
    made = have(asked)
    base = pathlib.Path(hub_of(asked)) / cache.folder(REPO)
    file = next(f for f in made.files if f.path == "model-2.safetensors")
    seen = (base / "blobs" / file.blob).stat()
    evil = b"\0" * file.size
    (base / "blobs" / file.blob).write_bytes(evil)
    os.utime(base / "blobs" / file.blob, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    beside = base / f"dgxspark-{made.revision}.json"
    beside.write_text(beside.read_text().replace(file.sha256, hashlib.sha256(evil).hexdigest()))
    (base / "refs/main").write_text("e" * 40)
    assert cache.read(asked.root, REPO, None) == made
    state = parcels.state(cache.parcel(asked.root, made))
    assert {change.subject for change in state.changes} == {
        str(base / "blobs" / file.blob), str(beside), str(base / "refs/main")
    }  # fmt: skip
    assert have(asked) == made
    assert (base / "blobs" / file.blob).read_bytes() == FILES[file.path]
    assert parcels.state(cache.parcel(asked.root, made)).whole


@pytest.mark.more
def test_to_verify_is_to_ask_the_hub(hub: Hub, tmp_path: pathlib.Path) -> None:
    """Files are not compared with a list that somebody forged for them."""
    asked = wanted(hub, tmp_path)
    made = have(asked)
    file = next(f for f in made.files if f.path == "model-2.safetensors")
    evil = b"\0" * file.size
    fake = cache.File(file.path, hashlib.sha256(evil).hexdigest(), file.size, hashlib.sha256(evil).hexdigest())
    forged = dataclasses.replace(made, files=tuple(fake if f == file else f for f in made.files))
    (pathlib.Path(hub_of(asked)) / cache.folder(REPO) / "blobs" / fake.blob).write_bytes(evil)
    seal(cache.parcel(asked.root, forged))
    assert have(asked) == forged
    assert have(dataclasses.replace(asked, verify=True)) == made
    # Without the hub the node's own list is all there is, which is reported.
    hub.stop()
    said: list[str] = []
    with Progress(None) as progress:
        assert fetch(dataclasses.replace(asked, verify=True), progress, said.append) == made
    assert "compared only with this node's own list" in said[0]


@pytest.mark.more
@pytest.mark.parametrize("path", ["", "/blobs", "/refs", "/snapshots", f"/snapshots/{'a' * 40}"])
def test_a_download_writes_nothing_through_a_folder_that_is_a_link(hub: Hub, tmp_path: pathlib.Path, path: str) -> None:
    asked = wanted(hub, tmp_path)
    outside = tmp_path / "etc"
    outside.mkdir()
    place = pathlib.Path(f"{hub_of(asked)}/{cache.folder(REPO)}{path}")
    place.parent.mkdir(parents=True)
    place.symlink_to(outside)
    with pytest.raises(CollectionError, match="is a symlink, or not a directory"):
        have(asked)
    assert not any(outside.iterdir())


def test_a_download_writes_nothing_through_a_file_that_is_a_link(hub: Hub, tmp_path: pathlib.Path) -> None:
    asked = wanted(hub, tmp_path)
    outside = tmp_path / "shadow"
    outside.write_text("root's own")
    blobs = {hashlib.sha256(data).hexdigest() for data in FILES.values()}
    base = pathlib.Path(hub_of(asked)) / cache.folder(REPO)
    names = [f"blobs/{blob}{end}" for blob in blobs for end in ("", ".incomplete", ".part", ".0badcafe.incomplete")]
    for name in (*names, "refs/main", f"dgxspark-{'a' * 40}.json"):
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).symlink_to(outside)
    made = have(asked)
    assert outside.read_text() == "root's own"
    assert parcels.state(cache.parcel(asked.root, made)).whole
    assert {f.path: (base / "snapshots" / made.revision / f.path).read_bytes() for f in made.files} == FILES
    # And removing it leaves what the links point to.
    other = base / "snapshots" / ("d" * 40)
    other.symlink_to(tmp_path)
    with pytest.raises(CollectionError, match=f"{other} is a symlink, or not a directory"):
        cache.remove(asked.root, REPO)
    other.unlink()
    assert cache.remove(asked.root, REPO)
    assert outside.read_text() == "root's own"


def test_small_files_are_read_by_our_list_and_never_by_a_link(hub: Hub, tmp_path: pathlib.Path) -> None:
    asked = wanted(hub, tmp_path)
    made = have(asked)
    assert cache.small_files(asked.root, made, ["config.json", "hf_quant_config.json"]) == {"config.json": {"a": 1}}
    # A rank points the snapshot's link elsewhere: what is read is the blob in the list.
    link = pathlib.Path(hub_of(asked), cache.folder(REPO), "snapshots", made.revision, "config.json")
    link.unlink()
    link.symlink_to("/etc/passwd")
    assert cache.small_files(asked.root, made, ["config.json"]) == {"config.json": {"a": 1}}
    blob = next(f.blob for f in made.files if f.path == "config.json")
    place = pathlib.Path(hub_of(asked), cache.folder(REPO), "blobs", blob)
    place.unlink()
    place.symlink_to("/etc/passwd")
    with pytest.raises(CollectionError):
        cache.small_files(asked.root, made, ["config.json"])
    place.unlink()
    place.write_text('{"a": 2}', encoding="utf-8")
    with pytest.raises(CollectionError, match="differs from the list of this collection"):
        cache.small_files(asked.root, made, ["config.json"])
    # Nor is a file read whose size shows that it is another one.
    with place.open("wb") as file:
        file.truncate(256 * 2**20)
    tracemalloc.start()
    with pytest.raises(CollectionError, match="differs from the list of this collection"):
        cache.small_files(asked.root, made, ["config.json"])
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20


def held(root: pathlib.Path, name: str, content: bytes) -> tuple[cache.File, cache.Manifest]:
    """Lay a repository of one file into a node's cache."""
    sha256 = hashlib.sha256(content).hexdigest()
    place = root / cache.HUB / cache.folder(REPO) / "blobs" / sha256
    place.parent.mkdir(parents=True)
    place.write_bytes(content)
    file = cache.File(name, sha256, len(content), sha256)
    return file, cache.Manifest(REPO, "a" * 40, (file,))


def test_a_config_as_python_writes_it_is_read(tmp_path: pathlib.Path) -> None:
    """NVIDIA-Nemotron-3-Super's has an infinity."""
    _file, made = held(tmp_path, "config.json", b'{"time_step_limit": [0.0, Infinity]}')
    assert cache.small_files(str(tmp_path), made, ["config.json"]) == {"config.json": {"time_step_limit": [0.0, None]}}


def test_the_list_of_tensors_of_the_largest_models_is_read(tmp_path: pathlib.Path) -> None:
    """A trillion parameters in NVFP4: 60 layers of 384 experts, three matrices of four tensors each."""
    kinds = [
        f"{p}_proj.{s}"
        for p in ("gate", "up", "down")
        for s in ("weight", "weight_scale", "weight_scale_2", "input_scale")
    ]
    name = "language_model.model.layers.{}.mlp.experts.{}.{}"
    names = [name.format(layer, expert, kind) for layer in range(60) for expert in range(384) for kind in kinds]
    content = json.dumps({"weight_map": dict.fromkeys(names, "model-00001-of-00119.safetensors")}, indent=2).encode()
    file, made = held(tmp_path, "model.safetensors.index.json", content)
    assert len(content) > 30_000_000
    assert len(cache.small_files(str(tmp_path), made, [file.path])[file.path]["weight_map"]) == 276_480
    large = dataclasses.replace(made, files=(dataclasses.replace(file, size=cache.JSON_MOST + 1),))
    with pytest.raises(CollectionError, match="more than the 134217728 that are read from such a file"):
        cache.small_files(str(tmp_path), large, [file.path])
