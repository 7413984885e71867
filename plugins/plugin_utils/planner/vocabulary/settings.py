# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One vocabulary for settings: whatever name an owner writes becomes canonical here, once, before anything reads it.

A setting has one canonical name: its id in `knowledge/settings/`, else the engine's own flag with underscores. Its aliases
are the id's `aliases`, every name a flag has in the version's table, the flags and variables that express an id
(`SGLANG_ENABLE_SPEC_V2` is `enable_spec_v2`), and the keys of a flag's JSON object (`speculative_config.method`).
"""

from __future__ import annotations

import functools
import json
import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import from_json
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, Finding
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.versions import (
    counted,
    is_of_image,
    release,
    same_release,
)

from . import flag_table
from .images import Images, find_image, load_images

Entry = t.Mapping[str, t.Any]
Settings = dict[str, t.Any]
# What the plan itself sets for each rank: canonical name → where the owner sets it.
SET_BY_PLAN = {
    "model": "the profile's model",
    "tp_size": "parallel.tp",
    "pp_size": "parallel.pp",
    "ep_size": "parallel.ep",
    "enable_expert_parallel": "parallel.ep",
    "nnodes": "parallel.nodes",
    "node_rank": "the order of the hosts",
    "headless": "the order of the hosts",
    "dist_init_addr": "the fabric plan and instance.dist_port",
    "master_addr": "the fabric plan",
    "master_port": "instance.dist_port",
    "port": "instance.port",
}
_TRUE, _FALSE = frozenset(("1", "true", "yes", "on", "y", "t")), frozenset(("0", "false", "no", "off", "n", "f"))


@dataclass(frozen=True, eq=False)
class Tables:
    """Engine versions and settings by id. images: by name and by digest; an entry names the table read from its image."""

    engines: t.Mapping[str, Entry]
    settings: t.Mapping[str, Entry]
    images: Images = field(default_factory=dict)

    @functools.cached_property
    def names(self) -> dict[str, str]:
        """Every name of a setting, including aliases, with its id."""
        return {name: key for key, entry in self.settings.items() for name in (key, *entry.get("aliases", ()))}

    @functools.cached_property
    def opposites(self) -> dict[str, str]:
        """Names that mean the opposite of an id, with that id."""
        return {name: key for key, entry in self.settings.items() for name in entry.get("opposites", ())}

    @functools.cached_property
    def parsers(self) -> dict[str, flag_table.Parser]:
        """The parsers of the engine versions by id, which is engine and version."""
        named = {key: key.partition("-") for key in self.engines}
        return {
            key: flag_table.Parser(engine, version, functools.partial(self.engines.__getitem__, key))
            for key, (engine, _dash, version) in named.items()
        }

    def version_of(self, engine: str, version: str, image: str | None) -> str:
        """Return the version that selects an image's own table if one was read from it; else the version given."""
        own = find_image(self.images, image)
        read = own.get("table") in self.engines and own["engine"]["name"] == engine
        return str(own["engine"]["version"]) if read else version

    @functools.cached_property
    def _dialects(self) -> dict[flag_table.Parser, Dialect]:
        return {}

    def versions(self, engine: str) -> list[flag_table.Parser]:
        """Return the versions of one engine, oldest first, without tables read from single images."""
        own = [p for p in self.parsers.values() if p.engine == engine and not is_of_image(p.version)]
        return sorted(own, key=lambda parser: (release(parser.version), parser.version))

    def parser(self, engine: str, version: str) -> flag_table.Parser | None:
        """Return the table of a version, else of its release: `v0.5.13-dev` uses that of 0.5.13."""
        own = self.parsers.get(f"{engine}-{version}")
        return own or next((p for p in self.versions(engine) if same_release(p.version, version)), None)

    def nearest(self, engine: str, version: str) -> flag_table.Parser | None:
        """Return the table of a version's release, else of the newest release before it, else the oldest; None for an unknown engine."""
        own = self.parser(engine, version)
        if own is None and (known := self.versions(engine)):
            own = next((p for p in reversed(known) if release(p.version) < counted(version)), known[0])
        return own

    def neighbours(self, engine: str, version: str) -> list[flag_table.Parser]:
        """Return the two tables around a release without one, or the two nearest if all are on one side."""
        known = self.versions(engine)
        after = sum(release(p.version) < counted(version) for p in known)
        first = min(max(after - 1, 0), max(len(known) - 2, 0))
        return known[first : first + 2]

    def dialect(self, engine: str, version: str) -> Dialect:
        """Return the setting names for a version; for an engine without a table, only the common ones."""
        parser = self.nearest(engine, version) or flag_table.Parser(engine, version, lambda: NO_TABLE)
        if parser not in self._dialects:
            self._dialects[parser] = Dialect(self, parser)
        return self._dialects[parser]


NO_TABLE: Entry = {"facts": {}, "flags": {}, "environment": [], "positionals": []}


@functools.lru_cache(maxsize=8)
def _loaded(overlays: tuple[str, ...], _stamp: tuple[tuple[str, int], ...]) -> Tables:
    engines = knowledge.Library("engines", overlays)
    for key in engines.own:
        entry = engines[key]
        if key != (name := f"{entry['engine']}-{entry['version']}"):
            raise knowledge.KnowledgeError(
                f"{entry['origin']}: id: {key!r} is not the table's engine and version. Write id: {name}."
            )
    return Tables(engines, knowledge.load("settings", overlays), load_images(overlays))


def load_tables(overlays: t.Sequence[str] = ()) -> Tables:
    """Return the shipped tables with the owner's merged in; they are read again only if one of the owner's files changes."""
    folders = tuple(map(str, overlays))
    return _loaded(folders, knowledge.stamp(folders))


def _parts(entry: Entry, engine: str) -> t.Iterator[tuple[Entry, bool]]:
    """Yield all parts of an id's ways, each with whether it alone expresses the whole way."""
    for way in entry.get(engine, ()):
        parts = way if isinstance(way, list) else [way]
        for part in parts:
            yield part, len(parts) == 1


def _inverse(part: Entry) -> dict[str, t.Any]:
    """Map the engine's words to our values, for a part with `values` or `synonyms`."""
    found: dict[str, t.Any] = {}
    for ours, theirs in part.get("values", {}).items():
        if theirs is not None and ours != "*":
            found.setdefault(str(theirs).lower(), json.loads(ours) if ours in ("true", "false") else ours)
    for ours, several in part.get("synonyms", {}).items():
        for theirs in several:
            found.setdefault(str(theirs).lower(), ours)
    return found


class Dialect:
    """The names of one engine version."""

    def __init__(self, tables: Tables, parser: flag_table.Parser) -> None:
        self.tables = tables
        self.parser = parser
        self.flags: dict[str, tuple[str, Entry]] = {}  # a flag that expresses a whole id
        self.variables: dict[str, tuple[str, Entry]] = {}
        self.keys: dict[str, dict[str, tuple[str, Entry]]] = {}  # flag → key of its JSON object → id
        for key, entry in tables.settings.items():
            said = not parser.flags or any(
                all(map(parser.knows, way if isinstance(way, list) else [way])) for way in entry.get(parser.engine, ())
            )
            for part, whole in _parts(entry, parser.engine):
                if "key" in part:
                    self.keys.setdefault(part["flag"], {}).setdefault(part["key"], (key, part))
                elif "flag" in part and whole and parser.spec(part["flag"]) is not None and "half" not in part:
                    self.flags.setdefault(parser.primary(part["flag"]), (key, part))
                elif "env" in part and whole and said:
                    # The engine ignores variables of other releases, and it would reject the plan's equivalent.
                    self.variables.setdefault(part["env"], (key, part))
        self._named: dict[str, tuple[str, t.Literal["", "opposite", "words"]]] = {}

    def named(self, name: str) -> tuple[str, t.Literal["", "opposite", "words"]]:
        """Return the canonical name and how to convert the value: unchanged, negated, or from the engine's words."""
        if name not in self._named:
            if len(self._named) > 4096:
                self._named.clear()
            self._named[name] = self._find(name)
        return self._named[name]

    def _find(self, name: str) -> tuple[str, t.Literal["", "opposite", "words"]]:
        spelled, flag = name.replace("-", "_"), name.replace("_", "-")
        if spelled in self.tables.names:
            return self.tables.names[spelled], ""
        if spelled in self.tables.opposites:
            return self.tables.opposites[spelled], "opposite"
        if self.parser.spec(flag) is None:
            if flag not in self.parser.off:
                return name, ""
            key, turned = self._find(self.parser.off[flag])  # a toggle's second flag is the opposite of its first
            return key, "words" if turned == "words" else "" if turned == "opposite" else "opposite"
        primary = self.parser.primary(flag)
        own = primary.replace("-", "_")
        if own in self.tables.names:
            return self.tables.names[own], ""
        if own in self.tables.opposites:
            return self.tables.opposites[own], "opposite"
        if primary in self.flags:
            return self.flags[primary][0], "words"
        return own, ""

    def translated(self, key: str, part: Entry | None, value: t.Any) -> t.Any:
        """Return our value for the engine's; a value that both spell alike is unchanged."""
        if part is None:
            part = next((p for p, _w in _parts(self.tables.settings.get(key, {}), self.parser.engine)), {})
        if isinstance(value, (dict, list)):
            return value
        spec = self.parser.spec(part.get("flag", ""))
        if "synonyms" in part and spec is not None and not flag_table.accepted(value, spec):
            return value  # not a value of this version: the version's own check reports it
        return _inverse(part).get(str(value).lower(), value)

    def entry(self, key: str) -> Entry | None:
        """Return the entry of a canonical name."""
        return self.tables.settings.get(key)


@dataclass
class _Layer:
    """One layer during conversion to canonical names."""

    dialect: Dialect
    settings: Settings
    given: dict[str, str]
    faults: list[Finding]

    def refuse(self, kind: str, name: str, why: str, remedy: str) -> None:
        self.faults.append(Finding(f"arguments.{kind}", "error", name, why, remedy))

    def put(self, key: str, name: str, value: t.Any) -> None:
        """Store one value under its canonical name; a second name for it in the same layer is an error."""
        if key in self.given:
            other = self.given[key].partition(".")[2]
            self.refuse("conflict", name, f"it is the same setting as {other}.", "Give one of the two.")
            return
        self.given[key] = name
        wrong = self.wrong(key, value)
        if wrong:
            self.refuse(wrong[0], name, wrong[1], wrong[2])
        else:
            self.settings[key] = self.listed(key, value)

    def is_switch(self, key: str) -> bool:
        """Whether a setting is boolean: an engine's word for it may mean the opposite of ours, so strings are rejected."""
        entry = self.dialect.entry(key)
        return entry is not None and entry["type"] == "bool"

    def listed(self, key: str, value: t.Any) -> t.Any:
        """Return a value in the parser's form: a flag that takes several gets a list, and an empty list becomes None."""
        if value is None or isinstance(value, dict):
            return value
        entry, spec = self.dialect.entry(key), self.dialect.parser.spec(key.replace("_", "-"))
        kind = entry["type"] if entry else flag_table.expected(spec) if spec else ""
        if not kind.startswith("list of "):
            return value
        return (value or None) if isinstance(value, (list, tuple)) else [value]

    def wrong(self, key: str, value: t.Any) -> flag_table.Fault | None:
        """Return what is wrong with a value's type or range, by our entry or else by the engine's flag."""
        if value is None:
            return None
        entry = self.dialect.entry(key)
        if entry:
            return flag_table.fault(value, entry["type"], entry)
        spec = self.dialect.parser.spec(key.replace("_", "-"))
        if spec is None or spec.get("deprecated") in ("refused", "no effect") or flag_table.is_default(value, spec):
            return None
        if isinstance(value, dict) and spec["type"] == "str":
            return None  # a string flag that the engine itself parses as JSON
        return flag_table.fault(value, flag_table.expected(spec))

    def setting(self, name: str, value: t.Any) -> None:
        """Apply one setting as written."""
        key, turned = self.dialect.named(name)
        said = f"settings.{name}"
        if turned == "opposite" and isinstance(value, bool):
            value = not value
        elif turned == "words" and value is not None:
            flag, parser = name.replace("_", "-"), self.dialect.parser
            if flag in parser.off:
                flag, value = parser.off[flag], not value if isinstance(value, bool) else value
            _key, part = self.dialect.flags[parser.primary(flag)]
            ours = self.dialect.translated(key, part, value)
            entry = self.dialect.entry(key)
            if entry and flag_table.fault(ours, entry["type"], entry) and "values" in part:
                key, ours = flag.replace("-", "_"), value  # a value that the flag has and the id does not
            value = ours
        elif isinstance(value, str) and not self.is_switch(key):
            value = self.dialect.translated(key, None, value)
        if self.object(key, name, value):
            return
        self.put(key, said, value)

    def object(self, key: str, name: str, value: t.Any) -> bool:
        """Split a flag's JSON object if ids exist for its keys; False if the flag is not of that kind."""
        keys = self.dialect.keys.get(key.replace("_", "-"))
        if not keys:
            return False
        if value is None:  # the whole object is unset
            for own, _part in keys.values():
                self.put(own, f"settings.{name}", None)
        if isinstance(value, str):
            try:
                value = from_json(value)
            except ValueError:
                return False
        if not isinstance(value, dict):
            return False
        rest = {}
        for inner, item in value.items():
            own, part = keys.get(inner, ("", {}))
            ours = self.dialect.translated(own, part, item) if own else item
            entry = self.dialect.entry(own)
            if not entry or (flag_table.fault(ours, entry["type"]) and "values" in part):
                rest[inner] = item
            else:
                self.put(own, f"settings.{name}", ours)
        if rest or not value:
            self.put(key, f"settings.{name}", rest)
        return True

    def variable(self, name: str, value: t.Any) -> bool:
        """Apply a variable that expresses a setting; False if it expresses none."""
        if name not in self.dialect.variables:
            return False
        key, part = self.dialect.variables[name]
        entry = self.dialect.entry(key)
        if value is None:  # unset, whatever name it was set by
            self.put(key, f"environment.{name}", None)
            return True
        if entry and entry["type"] == "bool":
            ours: t.Any = self.truth(name, value, part)
            if ours is None:
                return True
            if not isinstance(ours, bool):
                self.put(key, f"environment.{name}", False)  # another of the variable's own words, which is passed on
                return False
        elif entry and entry["type"] == "int" and re.fullmatch(r"-?[0-9]{1,20}", str(value)):
            ours = int(value)
        else:
            ours = self.dialect.translated(key, part, value)
        self.put(key, f"environment.{name}", ours)
        return True

    def truth(self, name: str, value: t.Any, part: Entry) -> bool | str | None:
        """Return what a variable says about a boolean setting: its own words first (`disk`), else any for true and false.

        A variable whose words are not truth values may have more of them than we know: the word itself. None: refused.
        """
        text, words = str(value).lower(), _inverse(part)
        if text in words:
            return bool(words[text])
        logical = {word in _TRUE: ours for word, ours in words.items() if word in _TRUE | _FALSE}
        if words and not logical:
            return text
        if text in _TRUE | _FALSE:
            return bool(logical.get(text in _TRUE, text in _TRUE))
        self.refuse("type", f"environment.{name}", f"{value!r} is neither true nor false.", "Write 1 or 0.")
        return None

    def other(self, name: str, value: t.Any) -> None:
        """Check a variable that expresses no setting: its value is passed on as a string."""
        if isinstance(value, bool) or not isinstance(value, (str, int, type(None))):
            why = f"{value!r} is neither a text nor a whole number."
            self.refuse("type", f"environment.{name}", why, "Write the variable's value in quotes.")


def laid_over(base: t.Mapping[str, t.Any], over: t.Mapping[str, t.Any], dialect: Dialect) -> Settings:
    """Merge a profile's settings over those of the profile it extends, whatever names the two use."""
    own = {dialect.named(str(name))[0] for name in over}
    kept = {name: value for name, value in base.items() if name in over or dialect.named(str(name))[0] not in own}
    return knowledge.merged(kept, over)


def read_layer(
    settings: t.Mapping[str, t.Any], environment: t.Mapping[str, t.Any], dialect: Dialect
) -> tuple[Settings, dict[str, t.Any], list[Finding], dict[str, str]]:
    """Return one layer's settings by canonical names, its other variables, all faults, and the name each setting was given by."""
    layer = _Layer(dialect, {}, {}, [])
    for name, value in settings.items():
        layer.setting(str(name), value)
    kept = {str(name): value for name, value in environment.items() if not layer.variable(str(name), value)}
    for name, value in kept.items():
        layer.other(name, value)
    return layer.settings, kept, layer.faults, layer.given


def canonical(
    settings: t.Mapping[str, t.Any], environment: t.Mapping[str, t.Any], dialect: Dialect, where: str
) -> tuple[Settings, dict[str, t.Any]]:
    """Return one profile layer's settings by canonical names, and the variables that express no setting.

    None unsets a setting of a lower layer. where: names the layer in errors. Raises CollectionError whose
    `findings` list every fault of the layer at once: two names for one setting, a value of a wrong type or out of range,
    a setting that the plan itself sets for each rank (parallelism, ports, addresses).
    """
    found, kept, faults, given = read_layer(settings, environment, dialect)
    for key in sorted(found.keys() & SET_BY_PLAN.keys()):
        faults.append(
            Finding(
                "arguments.owned", "error", given[key], "the plan sets it for each rank.", f"Give {SET_BY_PLAN[key]}."
            )
        )
    if faults:
        raise CollectionError(" ".join(f"{where}: {fault}" for fault in faults), findings=faults)
    return found, kept
