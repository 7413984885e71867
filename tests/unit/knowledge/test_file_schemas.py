"""The schema that a file names for editors: it exists, accepts the file, and refuses what the collection would refuse."""

from __future__ import annotations

import json
import pathlib
import typing as t
import urllib.parse

import jsonschema
import pytest
import referencing
import yaml

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import profile_text
from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT
from ansible_collections.dgxspark.cluster.tools import file_schemas

SHIPPED = file_schemas.shipped()
SCHEMAS = sorted({*SHIPPED.values()})
TEXTS = file_schemas.texts()


def _at(uri: str) -> referencing.Resource[t.Any]:
    path = pathlib.Path(urllib.parse.unquote(urllib.parse.urlsplit(uri).path))
    return referencing.Resource.from_contents(json.loads(path.read_text(encoding="utf-8")))


def faults(schema: str, value: t.Any) -> list[str]:
    """Validate as an editor does: references are relative to the schema's own file."""
    registry: referencing.Registry[t.Any] = referencing.Registry(retrieve=_at)  # type: ignore[call-arg]
    validator = jsonschema.Draft202012Validator({"$ref": schema}, registry=registry)
    return [f"{each.json_path}: {each.message}" for each in validator.iter_errors(value)]


def of(kind: str) -> str:
    return (file_schemas.FILES / f"{kind}.json").as_uri()


def named(text: str) -> str:
    [found] = [line for line in text.splitlines() if line.startswith(knowledge.EDITORS)]
    assert text.splitlines()[1] == found
    return found.removeprefix(knowledge.EDITORS)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_a_schema_is_what_the_tool_writes(path: pathlib.Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == TEXTS[path], "run tools/file_schemas.py"
    jsonschema.Draft202012Validator.check_schema(json.loads(text))


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda path: path.stem)
def test_each_shipped_file_names_its_schema_which_accepts_it(schema: pathlib.Path) -> None:
    files = [path for path, own in SHIPPED.items() if own == schema]
    assert files
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert text.splitlines()[1] == file_schemas.line(path, schema), f"{path}: run tools/file_schemas.py"
        place = named(text)
        if place.startswith("https:"):
            repository = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["repository"]
            assert place.startswith(repository.replace("github.com", "raw.githubusercontent.com") + "/main/")
            found = ROOT / place.split("/main/")[1]
        else:
            found = (path.parent / place).resolve()
        assert found == schema
        assert faults(found.as_uri(), knowledge.read_yaml(path)) == [], path


def test_every_kind_that_an_owner_writes_has_one() -> None:
    kinds = {path.stem for path in (knowledge.SHIPPED / "schema").glob("*.json")}
    assert kinds - {path.stem for path in file_schemas.FILES.glob("*.json")} == {"model_classes"}


HARDWARE = knowledge.read_yaml(knowledge.SHIPPED / "hardware" / "spark.yml")


@pytest.mark.parametrize(
    ("value", "good"),
    [
        ({"entries": [HARDWARE]}, True),
        ({"replaces": "spark", "id": "spark", "title": "mine"}, True),
        ({"common": {"source": ["mine"]}, "entries": [{"id": "mine"}]}, True),
        ({**HARDWARE, "titel": "mine"}, False),
        ({"id": "mine"}, False),
        ({"entries": [{"id": "mine"}]}, False),
        ({"entries": HARDWARE}, False),
        ({"common": {"sauce": ["mine"]}, "entries": []}, False),
        ({"common": {}, "entries": [{"titel": "mine"}]}, False),
        ({"entries": [], "more": 1}, False),
        ({"replaces": 1, "id": "spark"}, False),
    ],
)
def test_a_file_is_an_entry_or_a_list_with_what_it_shares(value: t.Any, good: bool) -> None:
    assert (faults(of("hardware"), value) == []) is good


@pytest.mark.parametrize(
    ("value", "good"),
    [
        ({"ansible_user": "nvidia", "ansible_become": True, "my_own": [1]}, True),
        ({"k8s_dgx_model_profile": "mine", "netplan_vf_foreign_stanzas": "absorb"}, True),
        ({"netplan_vf_foreign_stanzas": "{{ mine }}", "k3s_of_others": 1}, True),
        ({"dgxspark_fabric": {"topology": "direct"}}, True),
        ({"dgxspark_fabric": {"topology": "star"}}, False),
        ({"dgxspark_fabric": {"topology": "direct", "vfs": 4}}, False),
        ({"k8s_dgx_modle_profile": "mine"}, False),
        ({"netplan_vf_foreign_stanzas": "keep"}, False),
        ({"netplan_vf_rollback_timeout": "soon"}, False),
    ],
)
def test_the_groups_variables_are_those_of_the_roles(value: t.Any, good: bool) -> None:
    assert (faults(file_schemas.GROUP.as_uri(), value) == []) is good


def test_a_generated_profile_names_the_installed_schema() -> None:
    profile = knowledge.read_yaml(knowledge.FOLDERS["profile"][0] / "gemma-4-31b-it.yml")
    text = profile_text.sealed(profile_text.body(profile, [("image", "which")]), "a test")
    assert named(text) == of("profile")
    assert faults(named(text), yaml.safe_load(text)) == []
    assert not profile_text.edited(text)
    # On another machine, or after an upgrade, the collection lies elsewhere: that is no edit.
    assert not profile_text.edited(text.replace(named(text), "file:///elsewhere/profile.json"))
    assert knowledge.without_editors(text).splitlines()[1].startswith("# Made by")
