from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.profile import model_files, profile
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import plan

HOSTS = ["spark1", "spark2", "spark3", "spark4"]
NAME = "glm-4.7-nvfp4"
CONFIG = pathlib.Path(__file__).resolve().parents[4] / "oracle" / "models" / "glm4_moe.json"


def own(**changes: t.Any) -> dict[str, t.Any]:
    """The shipped profile as written by an owner who knows its settings and nothing about the model."""
    entry = {key: value for key, value in profile.find(NAME).items() if key not in ("origin", "facts", "precision")}
    return entry | {"id": "mine", "precision": {}} | changes


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    held = json.loads(CONFIG.read_text(encoding="utf-8"))["config.json"]
    (tmp_path / "config.json").write_text(json.dumps(held), encoding="utf-8")
    quant = {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head", "*self_attn*"]}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": quant}), encoding="utf-8")
    return tmp_path


def found(made: dict[str, t.Any]) -> dict[str, dict[str, t.Any]]:
    return {finding["rule"]: finding for finding in made["findings"]}


def test_facts_come_of_the_model_s_own_files(folder: pathlib.Path) -> None:
    without = plan.launch_plan(own(), {"hosts": HOSTS})
    assert "facts.unjudged" in found(without)
    made = plan.launch_plan(own(), {"hosts": HOSTS}, files=model_files.read(str(folder)))
    assert "facts.unjudged" not in found(made)
    shipped = plan.launch_plan(NAME, {"hosts": HOSTS})
    assert made["memory"]["weights_gib"] == pytest.approx(shipped["memory"]["weights_gib"], rel=0.05)
    assert made["memory"]["kv_bytes_token"] == shipped["memory"]["kv_bytes_token"]
    assert made == plan.launch_plan(own(), {"hosts": HOSTS}, files=model_files.read(str(folder / "config.json")))


@pytest.mark.parametrize("number", ["Infinity", "-Infinity"])
def test_what_python_calls_a_number_is_read_as_none(folder: pathlib.Path, number: str) -> None:
    """NVIDIA-Nemotron-3-Super's config.json has `"time_step_limit": [0.0, Infinity]`."""
    plain = model_files.read(str(folder))
    text = (folder / "config.json").read_text(encoding="utf-8")
    (folder / "config.json").write_text(
        text.replace("{", f'{{"time_step_limit": [0.0, {number}],', 1), encoding="utf-8"
    )
    held = model_files.read(str(folder))
    assert held["config"] == {**plain["config"], "time_step_limit": [0.0, None]}
    made = plan.launch_plan(own(), {"hosts": HOSTS}, files=held)
    assert made["memory"] == plan.launch_plan(own(), {"hosts": HOSTS}, files=plain)["memory"]


def test_a_profile_s_own_facts_count_and_a_difference_is_told(folder: pathlib.Path) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"hidden_size": 4096}), encoding="utf-8")
    made = plan.launch_plan(NAME, {"hosts": HOSTS}, files=model_files.read(str(folder)))
    assert "hidden_size" in found(made)["facts.differ"]["message"]
    assert made["memory"] == plan.launch_plan(NAME, {"hosts": HOSTS})["memory"]


def test_files_as_a_node_s_weights_have_them(folder: pathlib.Path) -> None:
    read = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in folder.iterdir()}
    by_path = plan.launch_plan(own(), {"hosts": HOSTS}, files=model_files.given(str(folder), None))
    of_node = plan.launch_plan(own(), {"hosts": HOSTS}, files=model_files.given(None, read))
    assert of_node["memory"] == by_path["memory"]
    assert model_files.given(None, None) is None
    with pytest.raises(CollectionError, match=r"no config\.json, or are not there yet"):
        model_files.given(None, {})


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_files_that_cannot_be_read_are_one_error_that_names_them(tmp_path: pathlib.Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(CollectionError, match=r"config\.json") as caught:
        model_files.read(str(tmp_path))
    assert "Name the model's config.json" in str(caught.value)
