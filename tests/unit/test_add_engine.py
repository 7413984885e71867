"""What a new engine version changes, in words: no wheel is needed."""

from __future__ import annotations

import pathlib
import sys
import typing as t

import pytest

if (_tools := str(pathlib.Path(__file__).resolve().parents[2] / "tools")) not in sys.path:
    sys.path.insert(0, _tools)

from engine_parsers import decisions, tables

BEFORE = tables.shipped("sglang")["0.5.10"]


def after(**flags: t.Any) -> dict[str, t.Any]:
    """Return the same table with other flags; None takes one away."""
    changed = {**BEFORE["flags"], **{name.replace("_", "-"): spec for name, spec in flags.items()}}
    return {**BEFORE, "version": "0.5.99", "flags": {name: spec for name, spec in changed.items() if spec is not None}}


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"brand_new": {"type": "int"}}, ["new flags: brand-new"]),
        ({"tensor_parallel_size": None}, ["flags that are gone: tensor-parallel-size"]),
        ({"base_gpu_id": {"type": "int", "default": 1}}, ["--base-gpu-id: default: 0 → 1"]),
        (
            {"tensor_parallel_size": {**BEFORE["flags"]["tensor-parallel-size"], "aliases": ["tp"]}},
            ["flags with other spellings: tensor-parallel-size"],
        ),
        ({}, []),
    ],
)
def test_what_became_of_flags(flags: dict[str, t.Any], says: list[str]) -> None:
    assert list(decisions.of_flags(BEFORE, after(**flags))) == says


def test_a_choice_that_came_and_a_default_that_changed() -> None:
    assert decisions.changed({"choices": ["a", "b"]}, {"choices": ["a", "c"]}) == "choices: +c -b"
    made = {"tp1": {**BEFORE["facts"]["defaults_on_gb10"]["tp1"], "page_size": 64}, "tp4": {}}
    told = list(decisions.of_flags(BEFORE, {**BEFORE, "facts": {"defaults_on_gb10": made}}))
    assert told[0] == "defaults on a GB10 (tp1): page_size: 1 → 64. See knowledge/choices/sglang.yml"


def test_a_setting_of_ours_that_cannot_be_said_any_more_is_told() -> None:
    assert not list(decisions.of_settings(BEFORE, after()))
    (told,) = decisions.of_settings(BEFORE, after(tensor_parallel_size=None))
    assert told.startswith("setting tp_size: no way to say it is left.")


def test_patches_are_tried_on_the_new_files(tmp_path: pathlib.Path) -> None:
    (patch,) = (each for each in decisions.load_patches() if each.id == "vllm-wna16-ep")
    place = tmp_path / patch.plain["file"]
    place.parent.mkdir(parents=True)
    (code,) = (edit["expect"] for edit in patch.plain["edits"])
    depth = range(0, len(code) - len(code.lstrip()), 4)
    opened = "".join(f"{' ' * at}{'if True' if at else 'def load()'}:\n" for at in depth)
    place.write_text(opened + code, encoding="utf-8")
    (told,) = decisions.of_patches("vllm", "0.99.0", tmp_path)
    assert told.startswith("patch vllm-wna16-ep: the fault is in this version, too, and the patch fits.")
    place.write_text("", encoding="utf-8")
    assert not list(decisions.of_patches("vllm", "0.99.0", tmp_path))
    (told,) = decisions.of_patches("vllm", "0.17.1", tmp_path)
    assert "where it is drifted" in told
