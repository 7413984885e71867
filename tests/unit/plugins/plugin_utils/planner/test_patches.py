"""Which start-up patches a launch needs: by engine version, image feature and settings; and the texts of the shipped ones."""

from __future__ import annotations

import itertools
import json
import pathlib
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.rank import patches as applier
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.judgement import facts, patches
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.judgement.table import serving_table
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan

SHIPPED = knowledge.load("patches")
JIT, CUTLASS, MOE, MODELOPT = "sglang-jit-sm12x", "cutlass-dsl-sm12x", "sglang-cutlass-moe-ep", "sglang-modelopt-ep"
QWEN = "qwen3.5-397b-a17b-nvfp4"
HOSTS = {"hosts": ["spark1", "spark2", "spark3", "spark4"]}


def ids(profile: t.Any, overrides: dict[str, t.Any] | None = None, overlays: t.Sequence[str] = ()) -> list[str]:
    return [patch["id"] for patch in launch_plan(profile, HOSTS, overrides, overlays)["patches"]]


def at(version: str, **more: t.Any) -> dict[str, t.Any]:
    return {"engine": {"version": version, "versions": ""}, **more}  # whatever the profile claims


def test_expert_parallelism_on_the_version_that_the_seed_ran() -> None:
    assert ids(QWEN, at("0.5.10", parallel={"ep": 4})) == [CUTLASS, MOE, JIT, MODELOPT]


def test_without_expert_parallelism_the_experts_are_all_at_home() -> None:
    assert ids(QWEN, at("0.5.10", parallel={"ep": 1})) == [CUTLASS, JIT]


@pytest.mark.parametrize(
    ("version", "some"), [("0.5.10", True), ("0.5.15", True), ("0.5.16", False), ("0.5.23", False)]
)
def test_from_0_5_16_on_upstream_has_no_need_of_them(version: str, some: bool) -> None:
    assert bool(ids(QWEN, at(version, parallel={"ep": 4}))) is some


def test_a_model_that_is_not_nvfp4_needs_the_kernels_target_alone() -> None:
    assert ids("gemma-4-31b-it") == [JIT]


def test_a_quantization_that_was_named_by_hand() -> None:
    wanted = {"parallel": {"ep": 4}, "settings": {"quantization": "moe_wna16"}}
    for version, found in (("0.5.10", True), ("0.5.21", True), ("0.5.22", False)):
        assert ("sglang-wna16-ep" in ids(QWEN, at(version, **wanted))) is found
    assert "sglang-wna16-ep" not in ids(QWEN, at("0.5.10", settings=wanted["settings"], parallel={"ep": 1}))


def test_vllm_has_its_own() -> None:
    assert ids("qwen3.5-122b-a10b-nvfp4-vllm") == []
    document: dict[str, t.Any] = {"image": {"features": {}}, "parallel": {"ep": 2}, "model": {"known": False},
                                  "quant": {}, "settings": {"quantization": "moe_wna16"}}  # fmt: skip
    for version, found in (("0.17.1", ["vllm-wna16-ep"]), ("0.33.0", [])):
        assert [p["id"] for p in patches.needed(patches.load_patches(), "vllm", version, document)] == found


@pytest.mark.parametrize(("has", "left"), [(True, [CUTLASS, JIT]), (False, [CUTLASS, MOE, JIT, MODELOPT])])
def test_an_image_that_has_it_needs_no_patch(tmp_path: pathlib.Path, has: bool, left: list[str]) -> None:
    """The owner says so about the image, in an overlay; what nobody states counts as missing."""
    folder = tmp_path / "images"
    folder.mkdir()
    entry = {"id": "mine", "image": "me/mine:1", "engine": {"name": "sglang", "version": "0.5.10"},
             "features": {"moe_fp4_ep": has}, "source": ["I built it"], "verified": "reported"}  # fmt: skip
    (folder / "mine.yml").write_text(json.dumps(entry), encoding="utf-8")
    wanted = {"engine": {"version": "0.5.10", "image": "me/mine:1"}, "parallel": {"ep": 4}}
    assert ids(QWEN, wanted, [str(tmp_path)]) == left


def test_the_plan_tells_what_the_applier_takes() -> None:
    """Through JSON, as it goes into a container: nothing is lost and nothing is a surprise."""
    told = launch_plan(QWEN, HOSTS, at("0.5.10", parallel={"ep": 4}))["patches"]
    made = applier.from_plain(json.loads(json.dumps(told)))
    assert [patch.id for patch in made] == [CUTLASS, MOE, JIT, MODELOPT]
    assert [len(patch.edits) for patch in made] == [1, 2, 1, 3]
    assert all(entry["why"] and entry["title"] for entry in told)


def test_the_table_names_them() -> None:
    lines = serving_table(launch_plan(QWEN, HOSTS, at("0.5.10", parallel={"ep": 4})))
    assert [line.split()[1].rstrip(":") for line in lines if line.startswith("patch ")] == [CUTLASS, MOE, JIT, MODELOPT]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"when": "parallel.ep >"}, "patch 'mine': when:"),
        ({"unless": "no_such"}, "unless: there is no image feature 'no_such'"),
        ({"engines": {"sglang": "newer"}}, "patch 'mine': engines: version range: 'newer'"),
        ({"file": "../etc/passwd"}, "file"),
        ({"edits": []}, "edits"),
    ],
)
def test_a_bad_entry_is_refused(tmp_path: pathlib.Path, change: dict[str, t.Any], words: str) -> None:
    (tmp_path / "patches").mkdir()
    entry = {key: value for key, value in SHIPPED[JIT].items() if key != "origin"} | {"id": "mine"} | change
    (tmp_path / "patches" / "mine.yml").write_text(json.dumps(entry), encoding="utf-8")
    with pytest.raises(CollectionError, match=words):
        patches.load_patches([str(tmp_path)])


def test_what_makes_a_patch_unnecessary_is_a_feature_that_an_image_may_have() -> None:
    for name, entry in SHIPPED.items():
        assert entry.get("unless") in facts.image_features(), name


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_text_is_marked_and_its_edits_are_apart(name: str) -> None:
    """A reader of a patched file sees who patched it; and no edit can be mistaken for another one."""
    (patch,) = applier.from_plain([p.plain for p in patches.load_patches() if p.id == name])
    assert any(f"dgxspark.cluster: {name}" in edit.replace for edit in patch.edits)
    for one, other in itertools.permutations(patch.edits, 2):
        assert one.expect not in other.expect
        assert one.expect not in other.replace


@pytest.mark.parametrize("name", SHIPPED)
@given(data=st.data())
def test_a_shipped_patch_on_a_file_of_its_pieces(name: str, data: st.DataObject) -> None:
    """Old, new, missing or doubled, in any order: all edits are in the new text once, or there is no new text."""
    (patch,) = applier.from_plain([p.plain for p in patches.load_patches() if p.id == name])
    pieces = [text for edit in patch.edits for text in (edit.expect, edit.replace)]
    text = "".join(data.draw(st.lists(st.sampled_from(["", "x = 1\n", *pieces]), max_size=5)))
    try:
        new, _state = applier.edited(text, patch)
    except applier.PatchError:
        return
    assert [new.count(edit.replace) for edit in patch.edits] == [1] * len(patch.edits)
    assert applier.edited(new, patch) == (new, "applied before")
