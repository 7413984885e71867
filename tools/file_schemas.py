"""Write the JSON Schemas of whole files that an owner writes, for editors, and name each in the files that ship.

`knowledge/schema/<kind>.json` is the form of one entry. A file holds an entry, or a list of entries with what they share, and an owner's
entry may replace a shipped one: that is `knowledge/schema/files/<kind>.json`. The group's variables (`group_vars/dgx.yml`) are those of
the roles' argument specs: `docs/schema/group-vars.json`.

Usage: file_schemas.py
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import runpy
import sys
import typing as t

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
runpy.run_path(str(ROOT / "tools" / "own_collection.py"))

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.knowledge import EDITORS, without_editors  # noqa: E402

SCHEMAS = ROOT / "knowledge" / "schema"
FILES = SCHEMAS / "files"
GROUP = ROOT / "docs" / "schema" / "group-vars.json"
PUBLIC = "https://raw.githubusercontent.com/dgxspark/cluster/main"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_WIDTH = 140
_GENERATED = {"model_classes"}  # large, and nobody edits one
_TYPES = {"str": ["string", "number"], "path": ["string"], "int": ["integer"], "float": ["number"], "bool": ["boolean"]}
_TYPES |= {"list": ["array"], "dict": ["object"]}
# What Ansible computes when it reads the file.
_EXPRESSION = {"type": "string", "pattern": r"\{\{|\{%"}

Schema = dict[str, t.Any]


def of_file(kind: str) -> Schema:
    """Return the schema of a file of this kind."""
    entry = json.loads((SCHEMAS / f"{kind}.json").read_text(encoding="utf-8"))
    parts: Schema = {"replaces": {"description": "The id of a shipped entry that this one replaces.", "type": "string"}}
    for name, form in entry["properties"].items():
        # Dictionaries are merged key by key, so that one of these may lack what another one has.
        merged = form.get("type") == "object" or "$ref" in form
        parts[name] = (
            {"type": "object"} if merged and _is_object(entry, form) else {"$ref": f"../{kind}.json#/properties/{name}"}
        )
    return {
        "$schema": _DIALECT,
        "title": f"A file of knowledge/{kind}, or of an owner's own: one entry, or a list of entries with what they share",
        "type": "object",
        "if": {"required": ["entries"]},
        "then": {
            "additionalProperties": False,
            "properties": {
                "common": {"description": "What the entries share; an entry's own value wins.", "$ref": "#/$defs/part"},
                "entries": {"type": "array"},
            },
            "if": {"required": ["common"]},
            "then": {"properties": {"entries": {"items": {"$ref": "#/$defs/part"}}}},
            "else": {"properties": {"entries": {"items": {"$ref": "#/$defs/entry"}}}},
        },
        "else": {"$ref": "#/$defs/entry"},
        "$defs": {
            "entry": {
                "if": {"required": ["replaces"]},
                "then": {"$ref": "#/$defs/part"},
                "else": {"$ref": f"../{kind}.json"},
            },
            "part": {"type": "object", "additionalProperties": False, "properties": parts},
        },
    }


def _is_object(whole: Schema, form: Schema) -> bool:
    while "$ref" in form:
        target: t.Any = whole
        for key in form["$ref"].removeprefix("#/").split("/"):
            target = target[key]
        form = target
    return form.get("type") == "object"


def of_group() -> Schema:
    """Return the schema of the group's variables."""
    known: dict[str, Schema] = {}
    for path in sorted(ROOT.glob("roles/*/meta/argument_specs.yml")):
        for point in yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"].values():
            for name, option in point.get("options", {}).items():
                known.setdefault(name, _variable(option))
    known["dgxspark_fabric"] = {"anyOf": [{"$ref": "dgxspark-fabric.json"}, _EXPRESSION]}
    prefixes = sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())
    return {
        "$schema": _DIALECT,
        "title": "Variables of a group of Sparks, such as group_vars/dgx.yml",
        "type": "object",
        "properties": dict(sorted(known.items())),
        "propertyNames": {
            "description": "A name that begins as those of a role is one of the role's. Others may be Ansible's, or yours.",
            "if": {"pattern": f"^({'|'.join(each for each in prefixes if each not in ('k3s', 'nccl'))})_"},
            "then": {"enum": sorted(known)},
        },
    }


def _variable(option: Schema) -> Schema:
    told = option.get("description", "")
    marked = " ".join((told if isinstance(told, str) else " ".join(map(str, told))).split())
    text = re.sub(r"\b[A-Z]\(([^)]*)\)", r"\1", marked)  # Ansible's markup, which editors do not know
    if "choices" in option and option.get("type") != "list":
        form: list[Schema] = [{"enum": option["choices"]}]
    elif option.get("type", "str") in _TYPES:
        form = [{"type": _TYPES[option.get("type", "str")]}]
    else:
        return {"description": text}
    return {"description": text, "anyOf": [*form, {"type": "null"}, _EXPRESSION]}


def texts() -> dict[pathlib.Path, str]:
    """Return each schema as its file has it."""
    kinds = sorted(path.stem for path in SCHEMAS.glob("*.json") if path.stem not in _GENERATED)
    made = {FILES / f"{kind}.json": of_file(kind) for kind in kinds} | {GROUP: of_group()}
    return {path: laid_out(form) + "\n" for path, form in made.items()}


def laid_out(value: t.Any, indent: int = 0) -> str:
    """Return a value as JSON: on one line what fits there, else one line for each part."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(flat) + indent <= _WIDTH or not isinstance(value, dict):
        return flat
    inner = " " * (indent + 2)
    parts = [f"{inner}{json.dumps(key)}: {laid_out(own, indent + 2)}" for key, own in value.items()]
    return "{\n" + ",\n".join(parts) + "\n" + " " * indent + "}"


def shipped() -> dict[pathlib.Path, pathlib.Path]:
    """Return each shipped file that an owner may copy, with its schema."""
    found = {}
    for schema in FILES.glob("*.json"):
        profiles = schema.stem == "profile"
        folder = ROOT / "roles" / "k8s_dgx" / "model_profiles" if profiles else ROOT / "knowledge" / schema.stem
        found |= dict.fromkeys(sorted(folder.rglob("*.yml")), schema)
    found |= dict.fromkeys(sorted(ROOT.glob("inventories/*/group_vars/dgx.yml")), GROUP)
    return found


def line(path: pathlib.Path, schema: pathlib.Path) -> str:
    """Return the comment in a shipped file that names its schema.

    Relative to the file, it is the same where the collection is installed. An inventory is there to be copied, to anywhere.
    """
    copied = path.is_relative_to(ROOT / "inventories")
    place = f"{PUBLIC}/{schema.relative_to(ROOT)}" if copied else os.path.relpath(schema, path.parent)
    return f"{EDITORS}{place}"


def main() -> int:
    """Write all of it."""
    FILES.mkdir(exist_ok=True)
    for path, text in texts().items():
        path.write_text(text, encoding="utf-8")
    for path, schema in shipped().items():
        head, *rest = without_editors(path.read_text(encoding="utf-8")).splitlines()
        if head != "---":
            print(f"{path}: its first line is not ---", file=sys.stderr)
            return 1
        path.write_text("\n".join([head, line(path, schema), *rest]) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
