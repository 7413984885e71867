"""What an image's inspection printed → entries of an owner's folder, and the plan that uses them."""

from __future__ import annotations

import copy
import pathlib
import typing as t

import pytest
import yaml

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.engine_parser.reader import framed
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.inspection import inspected
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.profile.profile import find, resolve
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.vocabulary.arguments import build_argv
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.vocabulary.settings import load_tables
from ansible_collections.dgxspark.cluster.tests.unit.image_trees import DIGEST, REPO, SAID, lay

Plain = dict[str, t.Any]
VERSION = "0.17.1+image.abababababab"
SHIPPED = "scitrera/dgx-spark-sglang:0.5.12"


def write(folder: pathlib.Path, said: Plain | None = None, image: str = REPO) -> inspected.Entries:
    """Write the entries as the playbook does, twice, since an owner may run it twice."""
    for _time in range(2):
        there = [str(folder)] if folder.is_dir() else []
        made = inspected.entries(inspected.document(framed(said or SAID)), image, DIGEST, str(folder), there)
        lay(folder, {file.path: file.text for file in made.files})
    return made


def but(**changed: t.Any) -> Plain:
    return {**copy.deepcopy(SAID), **changed}


def test_an_image_becomes_two_entries_that_the_loader_takes(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "dgxspark"
    made = write(folder)
    assert [file.path for file in made.files] == [
        "images/registry.example-fork-nightly.yml",
        f"engines/vllm/{VERSION}.yml",
    ]
    image = knowledge.load("images", [str(folder)])["own-registry.example-fork-nightly"]
    assert (image["digest"], image["engine"]) == (DIGEST, {"name": "vllm", "version": VERSION})
    assert image["features"] == {"cudnn": False, "wna16_ep": True}
    assert image["packages"]["torch"] == "2.10.0+cu130" and image["architectures"] == ["sm_121a"]
    table = load_tables([str(folder)]).parsers[f"vllm-{VERSION}"].table
    assert table["flags"]["fork-only"] == {"type": "int", "default": 7}
    assert table["flags"]["enable-x"] == {"type": "toggle", "off": "no-enable-x", "default": True}
    assert table["flags"]["attention-backend"] == {"type": "str", "choices": ["A", "B"], "known": ["A"]}
    assert table["positionals"] == ["model_tag"] and table["requires"] == {"torch": "==2.10.0"}


def test_a_plan_with_the_image_speaks_of_it_by_tag_and_by_digest(tmp_path: pathlib.Path) -> None:
    write(tmp_path)
    tables = load_tables([str(tmp_path)])
    profile = find("qwen3.5-122b-a10b-nvfp4-vllm")  # it claims this release
    for named in (REPO, f"registry.example/fork@{DIGEST}"):
        assert resolve(profile, {"engine": {"image": named}}, tables).engine.version == VERSION
    assert resolve(profile, {}, tables).engine.version == profile["engine"]["version"]
    assert "--fork-only" in build_argv("vllm", VERSION, {"fork_only": 8}, tables).argv


@pytest.mark.parametrize(("version", "nearest"), [("0.17.1", "0.17.1"), ("0.22.9", "0.22.1"), ("0.99.0", "0.33.0")])
def test_another_image_of_that_release_is_not_planned_by_it(tmp_path: pathlib.Path, version: str, nearest: str) -> None:
    write(tmp_path, but(version=version))
    tables = load_tables([str(tmp_path)])
    parser = tables.nearest("vllm", version)
    assert parser is not None and parser.version == nearest
    assert f"vllm-{version}+image.abababababab" in tables.parsers


def test_an_owners_patch_is_told_and_one_for_another_release_is_not(tmp_path: pathlib.Path) -> None:
    shipped = next(entry for entry in knowledge.load("patches").values() if entry["id"] == "vllm-wna16-ep")
    own = {key: value for key, value in shipped.items() if key != "origin"} | {"id": "own-edit"}
    lay(tmp_path, {"patches/own.yml": yaml.safe_dump({"entries": [own]})})
    write(tmp_path, but(patches={"own-edit": "needed", "vllm-wna16-ep": "there", "sglang-wna16-ep": "drifted"}))
    image = knowledge.load("images", [str(tmp_path)])["own-registry.example-fork-nightly"]
    assert image["patches"] == {"own-edit": "needed", "vllm-wna16-ep": "there"}


def test_what_was_known_of_a_shipped_image_is_kept(tmp_path: pathlib.Path) -> None:
    said = but(
        engine="sglang", version="0.5.12", parser=None, patches={}, cudnn_frontend=True, unread=["parser: \x1b[2Jno"]
    )
    write(tmp_path, said, SHIPPED)
    image = knowledge.load("images", [str(tmp_path)])["scitrera-sglang-0.5.12"]
    assert image["features"] == {"cudnn": False, "nemotron_mtp": False, "sm121_patches": False}
    assert image["engine"]["version"] == "0.5.12" and "table" not in image
    assert image["unread"] == ["parser: [2Jno"]


def test_features_that_an_owner_added_are_kept_and_an_entry_elsewhere_is_refused(tmp_path: pathlib.Path) -> None:
    (file, _table) = write(tmp_path).files
    entry = yaml.safe_load(file.text)
    lay(tmp_path, {file.path: yaml.safe_dump(entry | {"features": {"gemma4_mtp": True, "cudnn": True}})})
    assert write(tmp_path).image["features"] == {"cudnn": False, "gemma4_mtp": True, "wna16_ep": True}
    (tmp_path / file.path).rename(tmp_path / "images" / "mine.yml")
    with pytest.raises(CollectionError, match=r"mine\.yml"):
        write(tmp_path)


BAD: list[t.Any] = [
    "[]",
    but(more=1),
    but(engine="other"),
    but(version=3),
    but(patches={"x": "maybe"}),
    but(parser={**SAID["parser"], "flags": [{"options": ["--x"]}]}),
    but(packages=["torch"]),
]


@pytest.mark.parametrize("said", BAD, ids=range(len(BAD)))
def test_a_document_of_another_form_is_refused(said: t.Any) -> None:
    with pytest.raises(CollectionError, match="has an unknown format"):
        inspected.document(framed(said))


def test_a_log_that_is_too_long_or_no_number_is_refused() -> None:
    with pytest.raises(CollectionError, match="characters"):
        inspected.document("x" * (inspected.LARGEST + 1))
    with pytest.raises(CollectionError, match="NaN"):
        inspected.document(framed(but(parser={**SAID["parser"], "facts": {"x": float("nan")}})))


def flagged(**changed: t.Any) -> Plain:
    parser = copy.deepcopy(SAID["parser"])
    parser["flags"][1] |= changed
    return but(parser=parser)


NONSENSE = [
    but(version="../../etc"),
    but(version="0.17.1/../../x"),
    but(packages={"../x": "1"}),
    but(packages={"torch": "x" * 100}),
    but(architectures=["sm_121a; rm"]),
    flagged(options=["-x"]),
    flagged(options=["--a b"]),
    flagged(default="\ud800"),
    but(parser={**SAID["parser"], "facts": {}}),
    but(parser={**SAID["parser"], "environment": ["A B"]}),
    but(unread=["x"] * 11),
]


@pytest.mark.parametrize("said", NONSENSE, ids=range(len(NONSENSE)))
def test_nonsense_is_refused_before_anything_is_written(said: Plain, tmp_path: pathlib.Path) -> None:
    with pytest.raises(CollectionError, match="Nothing was written"):
        inspected.entries(inspected.document(framed(said)), REPO, DIGEST, str(tmp_path / "own"))


def test_a_value_that_looks_like_yaml_is_a_text(tmp_path: pathlib.Path) -> None:
    write(tmp_path, flagged(default="!!python/object:os.system {x: &a 1}", type="str"))
    table = load_tables([str(tmp_path)]).parsers[f"vllm-{VERSION}"].table
    assert table["flags"]["fork-only"]["default"] == "!!python/object:os.system {x: &a 1}"
