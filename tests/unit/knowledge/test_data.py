"""The shipped data: every entry by its schema, every schema by JSON Schema, and what a schema cannot express."""

from __future__ import annotations

import json
import pathlib
import typing as t

import jsonschema
import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.settings import DEFAULTS, topologies
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.topologies import TOPOLOGIES
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import make

SCHEMAS = sorted((knowledge.SHIPPED / "schema").glob("*.json"))
KINDS = [path.stem for path in SCHEMAS]
HOSTS = {each.name: each.most or 4 for each in TOPOLOGIES.values()}


def objects(schema: t.Any, where: str = "") -> t.Iterator[tuple[str, dict[str, t.Any]]]:
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield where, schema
        for key, value in schema.items():
            yield from objects(value, f"{where}/{key}")
    elif isinstance(schema, list):
        for position, value in enumerate(schema):
            yield from objects(value, f"{where}/{position}")


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.stem)
def test_a_schema_is_one_and_lets_no_unknown_key_pass(path: pathlib.Path) -> None:
    schema = json.loads(path.read_text(encoding="utf-8"))
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)
    found = list(objects(schema))
    assert found
    # Closed, or open with a schema for additional properties.
    assert not [where for where, each in found if each.get("additionalProperties", True) is True]
    assert {"id", "source"} <= set(schema["required"])
    # How well it is known (`verified`): for the whole entry, or for each source.
    each_source = schema["properties"]["source"].get("items", {}).get("required", ())
    assert "verified" in schema["required"] or "verified" in each_source


def test_the_fabrics_schema_has_every_setting_and_what_to_say_of_it() -> None:
    schema = json.loads((knowledge.COLLECTION / "docs" / "schema" / "dgxspark-fabric.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    stated = {name: default for name, default in DEFAULTS.items() if default is not None}
    assert not list(jsonschema.Draft202012Validator({**schema, "required": []}).iter_errors(stated))

    def silent(value: t.Any) -> t.Iterator[t.Any]:
        if isinstance(value, dict):
            if ("type" in value and value["type"] != "null") or "enum" in value or "anyOf" in value:
                yield from [] if "description" in value else [value]
            for each in value.values():
                yield from silent(each)

    assert not list(silent(schema))


def test_every_folder_has_a_schema_and_every_schema_a_folder() -> None:
    folders = sorted(p.name for p in knowledge.SHIPPED.iterdir() if p.is_dir() and p.name != "schema")
    assert folders == [kind for kind in KINDS if kind not in knowledge.FOLDERS]


@pytest.mark.parametrize("kind", KINDS)
def test_every_shipped_entry_is_good_and_sourced(kind: str) -> None:
    entries = knowledge.load(kind)
    assert entries
    knowledge.check(kind)  # nothing else does
    for name, entry in entries.items():
        assert entry["source"], name
        sources = [source if isinstance(source, str) else source["from"] for source in entry["source"]]
        assert all(source.strip() for source in sources), name


HARDWARE = knowledge.load("hardware")


@pytest.mark.parametrize("name", HARDWARE)
def test_a_hardware_class_fits_together(name: str) -> None:
    slots, ports = HARDWARE[name]["slots"], HARDWARE[name]["default_ports"]
    assert [slot["slot"] for slot in slots] == [f"p{slot['port']}f{slot['function']}" for slot in slots]
    for key in ("slot", "netdev", "pci"):
        assert len({slot[key] for slot in slots}) == len(slots), key
    assert set(ports) | {"single"} == set(topologies())
    assert {port for used in ports.values() for port in used} <= {slot["port"] for slot in slots}


@pytest.mark.parametrize("name", HARDWARE)
@pytest.mark.parametrize("topology", topologies())
def test_a_hardware_class_can_be_planned_with_defaults(name: str, topology: str) -> None:
    ports = {slot["port"] for slot in HARDWARE[name]["slots"]}
    if TOPOLOGIES[topology].neighbours and len(ports) < 2:
        pytest.skip("not run: a ring takes two ports")
    plan = make(HOSTS[topology], {"topology": topology}, HARDWARE[name])
    assert len(plan["hosts"]) == HOSTS[topology]


def test_every_head_of_keys_and_values_of_a_profile_has_whole_heads_of_queries() -> None:
    """A slip of the hand in a new profile, whose model has no config.json here to compare with."""

    def uneven(value: t.Any) -> t.Iterator[t.Any]:
        for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from uneven(each)
        if isinstance(value, dict) and {"heads", "kv_heads"} <= set(value) and value["heads"] % value["kv_heads"]:
            yield value

    found = {name: list(uneven(entry.get("facts"))) for name, entry in knowledge.load("profile").items()}
    assert not {name: each for name, each in found.items() if each}


def test_an_engine_table_s_id_is_its_engine_and_version() -> None:
    library, loaded = knowledge.Library("engines"), knowledge.load("engines")
    assert dict(library) == loaded and len(library) == len(loaded)
    assert {name: f"{entry['engine']}-{entry['version']}" for name, entry in loaded.items()} == {n: n for n in loaded}
