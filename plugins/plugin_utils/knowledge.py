# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The only loader of `knowledge/` and the owner's overlays: returns checked plain values.

A *kind* is a folder of YAML files with one JSON Schema per entry, `knowledge/schema/<kind>.json`. A file holds one
entry, or a list of entries under the key `entries`; in a list file, `common` may hold what the entries share
(dictionaries are merged, the entry's own value wins). An owner's folder has the same layout and adds entries; to reuse
the id of a shipped entry, one must say `replaces: <id>`.

An owner's entries are checked at each read; the shipped ones are checked by a test (`check`).

The flag tables of `engines` ship as one file for all versions of an engine (`version_tables.py`); an owner's file holds one.

Model profiles do not live in a folder named after their kind: the shipped ones belong to the role, and an owner's are in
`model_profiles/`.
"""

from __future__ import annotations

import datetime
import functools
import json
import pathlib
import pickle
import typing as t

import yaml

try:
    import jsonschema
except ImportError as exc:
    jsonschema = None  # type: ignore[assignment,unused-ignore]
    JSONSCHEMA_ERROR: ImportError | None = exc
else:
    JSONSCHEMA_ERROR = None

from ansible_collections.dgxspark.cluster.plugins.module_utils import foreign
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.version_tables import VersionTables

COLLECTION = pathlib.Path(__file__).resolve().parents[2]
SHIPPED = COLLECTION / "knowledge"

# kind -> (folder of the shipped entries, folder in an owner's overlay), for kinds outside knowledge/<kind>
FOLDERS = {"profile": (COLLECTION / "roles" / "k8s_dgx" / "model_profiles", "model_profiles")}

EDITORS = "# yaml-language-server: $schema="

Entry = dict[str, t.Any]


class KnowledgeError(CollectionError):
    """A bad entry: the message names the file and the key, and says what is wrong and what to do."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A YAML loader that refuses duplicate keys. PyYAML silently keeps the last."""

    lenient = False


class _Foreign(_Loader):
    """A YAML loader for other tools' files: of duplicate keys the last wins, as it does in those tools."""

    lenient = True


def _mapping(loader: _Loader, node: yaml.MappingNode, deep: bool = False) -> dict[t.Any, t.Any]:
    seen: set[t.Any] = set()
    for key_node, _value in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            continue
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, t.Hashable):
            raise yaml.constructor.ConstructorError(None, None, f"{key!r} cannot be a key", key_node.start_mark)
        if key in seen and not loader.lenient:
            raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} is given twice", key_node.start_mark)
        seen.add(key)
    loader.flatten_mapping(node)
    return dict(loader.construct_pairs(node, deep=deep))


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def _bounded(kind: str) -> t.Callable[[_Loader, yaml.ScalarNode], t.Any]:
    """Return a constructor for numbers or dates that refuses those that Python cannot hold, with their line."""
    usual = yaml.SafeLoader.yaml_constructors[f"tag:yaml.org,2002:{kind}"]

    def construct(loader: _Loader, node: yaml.ScalarNode) -> t.Any:
        try:
            if len(node.value) > 60:
                raise ValueError("it is too long")
            made = usual(loader, node)
            if isinstance(made, int) and abs(made) >= 10**foreign.DIGITS:
                raise ValueError(f"it has more than {foreign.DIGITS} digits")
        except (ValueError, OverflowError) as exc:
            said = f"{foreign.line(node.value, 40)!r} is not a {kind}: {exc}"
            raise yaml.constructor.ConstructorError(None, None, said, node.start_mark) from exc
        return made

    return construct


for _kind in ("int", "float", "timestamp"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _bounded(_kind))


LARGEST = 256 * 1024  # bytes; for files that are not ours


def read_yaml(path: pathlib.Path) -> t.Any:
    """Read one YAML file. KnowledgeError names the file and line of the fault."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise KnowledgeError(f"{path}: cannot be read: {exc}. Check the path and its permissions.") from exc
    return pickle.loads(_pickled(text, str(path)))


@functools.lru_cache(maxsize=1024)
def _pickled(text: str, where: str) -> bytes:
    # Callers change what they get, and a copy takes a twentieth of the time of parsing.
    return pickle.dumps(parse_yaml(text, where))


def parse_yaml(text: str, where: str, written_out: int | None = None) -> t.Any:
    """Parse YAML. KnowledgeError names `where` and the line of the fault.

    written_out: for a file that is not ours, the most values it may have with its aliases expanded; duplicate keys are then
    allowed, and the last wins.
    """
    at = f"{where}: " if where else ""
    try:
        # Owners edit these files too: allow no tags, objects or duplicate keys.
        if written_out is not None:
            if len(text) > 2 * LARGEST:
                raise KnowledgeError(f"{at}it has more than {2 * LARGEST} characters.")
            _check_depth(text)
            if _nodes(yaml.compose(text, Loader=_Loader), {}) > written_out:
                raise KnowledgeError(f"{at}its aliases (*name) expand to more than {written_out} values. Use fewer.")
        return yaml.load(text, Loader=_Loader if written_out is None else _Foreign)
    except (yaml.YAMLError, RecursionError) as exc:
        told = " ".join(str(exc).split()).replace(' in "<unicode string>", line', " at line")
        raise KnowledgeError(f"{at}not valid YAML: {told}") from exc


def _check_depth(text: str) -> None:
    """Raise YAMLError if a document is nested too deeply: libyaml's composer would end the whole process."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > foreign.DEPTH:
            raise yaml.composer.ComposerError(None, None, f"more than {foreign.DEPTH} levels{event.start_mark}")


def _nodes(node: yaml.Node | None, known: dict[int, float]) -> float:
    """Return the number of values in a node with its aliases expanded; infinity if the node contains itself."""
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if id(node) not in known:
        known[id(node)] = float("inf")
        pairs = node.value if isinstance(node, yaml.SequenceNode) else [each for pair in node.value for each in pair]
        known[id(node)] = 1 + sum(_nodes(each, known) for each in pairs)
    return known[id(node)]


@functools.cache
def schema(kind: str) -> dict[str, t.Any]:
    """Return the JSON Schema (2020-12) of one entry of `kind`."""
    path = SHIPPED / "schema" / f"{kind}.json"
    if not path.is_file():
        kinds = ", ".join(sorted(p.stem for p in path.parent.glob("*.json")))
        raise KnowledgeError(f"There is no knowledge of kind {kind!r}. Kinds: {kinds}.")
    loaded: dict[str, t.Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def for_editors(text: str, kind: str) -> str:
    """Return a YAML file that begins with ---, with the comment by which editors find the form of such a file.

    kind: of its entries, or "group-vars". The path is that of this installation: it works without a network, and fits its release.
    """
    known = SHIPPED / "schema" / "files" / f"{kind}.json"
    path = known if kind != "group-vars" else COLLECTION / "docs" / "schema" / "group-vars.json"
    head, rest = text.split("\n", 1)
    return f"{head}\n{EDITORS}{path.as_uri()}\n{rest}"


def without_editors(text: str) -> str:
    """Return a file without that comment: it differs from machine to machine, and is no change."""
    return "".join(each for each in text.splitlines(keepends=True) if not each.startswith(EDITORS))


def validate(kind: str, entry: t.Any, where: str) -> None:
    """Check one entry against its kind's schema. KnowledgeError names `where`, and each fault with its key."""
    if found := faults(schema(kind), entry):
        raise KnowledgeError(f"{where}: {'; '.join(dict.fromkeys(found))}. See knowledge/schema/{kind}.json.")


def require_jsonschema() -> None:
    """Raise KnowledgeError with the install command if the Python package jsonschema is missing."""
    if JSONSCHEMA_ERROR is not None:
        raise KnowledgeError(
            f"The Python package jsonschema is missing on the controller ({JSONSCHEMA_ERROR}). "
            "Install it: pip install 'jsonschema>=4.18'"
        )


def errors(form: t.Mapping[str, t.Any], value: t.Any, *, typed: bool = False) -> list[t.Any]:
    """Validate a value against a JSON Schema (2020-12); return the jsonschema.ValidationErrors in the order of their keys.

    typed: an integer is one in YAML, too; to JSON Schema 4.0 is one.
    """
    require_jsonschema()
    found = (_typed() if typed else jsonschema.Draft202012Validator)(form).iter_errors(value)
    return sorted(found, key=lambda each: (list(map(str, each.absolute_path)), each.message))


@functools.cache
def _typed() -> t.Any:
    form = jsonschema.Draft202012Validator
    checker = form.TYPE_CHECKER.redefine(
        "integer", lambda _checker, each: isinstance(each, int) and not isinstance(each, bool)
    )
    return jsonschema.validators.extend(form, type_checker=checker)


def faults(form: t.Mapping[str, t.Any], value: t.Any) -> list[str]:
    """Validate a value against a JSON Schema (2020-12) and return the faults, each with its key."""
    best = [jsonschema.exceptions.best_match([each]) for each in errors(form, value)]
    return [f"{'.'.join(str(p) for p in each.absolute_path) or '(top level)'}: {each.message}" for each in best]


def merged(base: t.Mapping[str, t.Any], over: t.Mapping[str, t.Any]) -> Entry:
    """Lay `over` on `base`: dictionaries are merged key by key, anything else is replaced."""
    out = dict(base)
    for key, value in over.items():
        old = out.get(key)
        out[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return out


def _folder(kind: str, root: pathlib.Path) -> pathlib.Path:
    shipped, owners = FOLDERS.get(kind, (SHIPPED / kind, kind))
    return shipped if root == SHIPPED else root / owners


def _files(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in (".yml", ".yaml") and path.is_file())


def _by_version(kind: str) -> t.Iterator[tuple[pathlib.Path, str, VersionTables]]:
    """Yield the ids of shipped entries that stand in one file for all versions, each with its file."""
    for path in sorted((SHIPPED / kind).glob("*.json")):
        try:
            tables = VersionTables(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as exc:
            raise KnowledgeError(f"{path}: {exc}") from exc
        yield from ((path, name, tables) for name in tables.ids)


def _table(path: pathlib.Path, tables: VersionTables, name: str) -> Entry:
    try:
        return tables.table(tables.ids[name])
    except ValueError as exc:
        raise KnowledgeError(f"{path}: {exc}") from exc


def _entries(kind: str, root: pathlib.Path, checked: bool) -> t.Iterator[tuple[pathlib.Path, Entry]]:
    for path, name, tables in _by_version(kind) if root == SHIPPED else ():
        entry = json.loads(
            json.dumps(_table(path, tables, name))
        )  # callers change what they get, and tables share parts
        if checked:
            validate(kind, entry, f"{path}: {name}")
        yield path, entry
    for path in _files(_folder(kind, root)):
        document = read_yaml(path)
        is_list = isinstance(document, dict) and "entries" in document and set(document) <= {"entries", "common"}
        listed = document["entries"] if is_list else [document]
        common = document.get("common", {}) if is_list else {}
        if not isinstance(listed, list):
            raise KnowledgeError(f"{path}: entries: a list is needed, not {type(listed).__name__}.")
        if not isinstance(common, dict):
            raise KnowledgeError(f"{path}: common: a dictionary is needed, not {type(common).__name__}.")
        for position, own in enumerate(listed):
            where = f"{path}: entries.{position}" if is_list else f"{path}"
            if not isinstance(own, dict):
                raise KnowledgeError(f"{where}: a dictionary is needed, not {type(own).__name__}.")
            where += f" (id {own['id']})" if is_list and "id" in own else ""
            entry = merged(common, own)
            if checked:
                validate(kind, {key: value for key, value in entry.items() if key != "replaces"}, where)
            yield path, entry


def check(kind: str) -> None:
    """Check the shipped entries of a kind, which reading skips. KnowledgeError for the first bad one."""
    for _path, _entry in _entries(kind, SHIPPED, True):
        pass


def _check_overlay(root: pathlib.Path) -> None:
    """Refuse an owner's folder that does not exist, or that has a subfolder of an unknown kind."""
    if not root.is_dir():
        raise KnowledgeError(f"{root}: there is no such folder. Correct dgxspark_knowledge_dirs, or create it.")
    kinds = sorted(_folder(path.stem, root).name for path in (SHIPPED / "schema").glob("*.json"))
    for path in sorted(root.iterdir()):
        if path.is_dir() and not path.name.startswith(".") and path.name not in kinds:
            raise KnowledgeError(f"{path}: there is no knowledge of kind {path.name!r}. Kinds: {', '.join(kinds)}.")


def _owners(kind: str, overlays: t.Sequence[str]) -> list[pathlib.Path]:
    """Return the owner's folders. KnowledgeError if a folder, the kind or jsonschema is missing."""
    require_jsonschema()
    schema(kind)
    folders = [pathlib.Path(overlay).expanduser() for overlay in overlays]
    for folder in folders:
        _check_overlay(folder)
    return folders


def _laid(kind: str, roots: t.Sequence[pathlib.Path], origins: t.Mapping[str, str]) -> dict[str, Entry]:
    """Return the folders' entries, later folders over earlier ones. origins: file by id, for ids already defined."""
    laid: dict[str, Entry] = {}
    there = dict(origins)
    for root in roots:
        for path, entry in _entries(kind, root, root != SHIPPED):
            name = str(entry["id"])
            replaces = entry.get("replaces")
            if replaces is not None and replaces != name:
                raise KnowledgeError(f"{path}: replaces: {replaces!r} is not the entry's own id {name!r}.")
            if replaces is not None and name not in there:
                raise KnowledgeError(f"{path}: replaces: there is no {kind} entry {name!r} to replace.")
            if name in there and replaces is None:
                raise KnowledgeError(
                    f"{path}: id: {name!r} is already defined in {there[name]}. "
                    f"Choose another id, or add `replaces: {name}` to replace that entry."
                )
            there[name] = str(path)
            laid[name] = {k: v for k, v in entry.items() if k != "replaces"} | {"origin": str(path)}
    return laid


def load(kind: str, overlays: t.Sequence[str] = ()) -> dict[str, Entry]:
    """Return all entries of `kind` by id, with the owner's overlays applied.

    Each has a key `origin`, its file. Raises KnowledgeError for the first bad entry, a duplicate id, an overlay entry that
    takes a shipped id without `replaces`, or an overlay that does not exist.
    """
    owners = _owners(kind, overlays)
    return _laid(kind, (SHIPPED, *owners), {})


class Library(t.Mapping[str, Entry]):
    """What `load` returns, but lazy, for kinds that ship one file for all versions (`engines`): a table is made on first access.

    Treat the entries as read-only.
    """

    def __init__(self, kind: str, overlays: t.Sequence[str] = ()) -> None:
        owners = _owners(kind, overlays)
        self._shipped = {name: (path, tables) for path, name, tables in _by_version(kind)}
        self._read = _laid(kind, owners, {name: str(path) for name, (path, _tables) in self._shipped.items()})
        self.own = frozenset(self._read)  # ids of the owner's entries

    def __getitem__(self, name: str) -> Entry:
        """Return one entry."""
        if name not in self._read:
            path, tables = self._shipped[name]
            self._read[name] = {**_table(path, tables, name), "origin": str(path)}
        return self._read[name]

    def __iter__(self) -> t.Iterator[str]:
        """Iterate over the ids."""
        return iter({**self._shipped, **self._read})

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._shipped.keys() | self._read.keys())


@functools.lru_cache(maxsize=64)
def _loaded(kind: str, overlays: tuple[str, ...], _stamp: tuple[tuple[str, int], ...]) -> dict[str, Entry]:
    return load(kind, overlays)


def stamp(overlays: t.Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Return a stamp that changes with the owner's files: each file with its mtime."""
    files = (path for root in overlays for path in sorted(pathlib.Path(root).expanduser().rglob("*.yml")))
    return tuple((str(path), path.stat().st_mtime_ns) for path in files)


def shared(kind: str, overlays: t.Sequence[str] = ()) -> t.Mapping[str, Entry]:
    """Return what `load` returns, cached until an overlay file changes. Treat the entries as read-only."""
    return _loaded(kind, tuple(overlays), stamp(overlays))


def owner_dirs(chosen: t.Sequence[str] | None, inventory_dir: str | None) -> list[str]:
    """Return the owner's folders: the chosen ones (`dgxspark_knowledge_dirs`), else `dgxspark` beside the inventory."""
    if chosen is not None:
        return [str(folder) for folder in chosen]
    default = pathlib.Path(inventory_dir, "dgxspark") if inventory_dir else None
    return [str(default)] if default and default.is_dir() else []


def get(kind: str, name: str, overlays: t.Sequence[str] = ()) -> Entry:
    """Return one entry of `kind`. KnowledgeError lists the known ids if there is none of that name."""
    loaded = load(kind, overlays)
    if name not in loaded:
        raise KnowledgeError(f"There is no {kind} entry {name!r}. Known: {', '.join(sorted(loaded))}.")
    return loaded[name]


def now() -> str:
    """Return the current UTC time for a report."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def collection_version() -> str | None:
    """Return this collection's version: from MANIFEST.json if installed, from galaxy.yml in a checkout."""
    manifest = COLLECTION / "MANIFEST.json"
    if manifest.is_file():
        version = json.loads(manifest.read_text(encoding="utf-8"))["collection_info"]["version"]
    elif (COLLECTION / "galaxy.yml").is_file():
        version = read_yaml(COLLECTION / "galaxy.yml")["version"]
    else:
        return None
    return str(version)
