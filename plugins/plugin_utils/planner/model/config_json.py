# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a model's config.json by its family's entry (`knowledge/architectures/`): checked figures, layer by layer.

The data defines which key means what; this module names wrong or missing keys in errors.
"""

from __future__ import annotations

import functools
import re
import typing as t
from dataclasses import dataclass

try:
    import jmespath
except ImportError as exc:
    jmespath = None
    JMESPATH_ERROR: ImportError | None = exc
else:
    JMESPATH_ERROR = None

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge

KIND = "architectures"
STANDARD = "standard"
MOST_LAYERS = 4096  # each is visited; a file that states more is broken
Entry = t.Mapping[str, t.Any]
_LAID_OVER = ("reads", "mixer", "feed", "head", "modules", "held")
_BY_HAND = "write the profile's facts by hand, or describe the family in architectures/ of dgxspark_knowledge_dirs"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Unread(CollectionError):
    """A part of a model that could not be read: a key is missing, or a kind of layer is unknown."""


@dataclass(frozen=True)
class Family:
    """How to read one file: the entry merged over the standard one. known: whether the file's family has an entry."""

    id: str
    entry: Entry
    known: bool


def _paths(own: Entry, standard: Entry) -> dict[str, tuple[str, ...]]:
    """List the paths of each figure: the family's own, then the standard one, unless the family says `only`."""
    usual = {name: (path,) for name, path in standard.items()}
    named = {
        name: (path["only"],) if isinstance(path, t.Mapping) else tuple(dict.fromkeys((path, *usual.get(name, ()))))
        for name, path in own.items()
    }
    return usual | named


def _laid(own: Entry, standard: Entry) -> dict[str, t.Any]:
    """Merge a family's entry over the standard one: figures, marks and module lists item by item, all else as a whole.

    A figure uses the first of its paths that finds something; the standard marks follow the family's.
    """
    joined = {key: {**standard.get(key, {}), **own.get(key, {})} for key in _LAID_OVER}
    joined["reads"] = _paths(own.get("reads", {}), standard["reads"])
    for key in ("mixer", "feed"):
        mine = own.get(key, {})
        usual = () if mine.get("alone") else standard[key].get("marks", ())
        joined[key]["marks"] = [*mine.get("marks", ()), *usual]
    return {"prefixes": standard["prefixes"], "text": standard["text"], **own, **joined}


@functools.lru_cache(maxsize=512)
def _compiled(path: str) -> t.Any:
    if jmespath is None:
        raise CollectionError(
            f"The Python package jmespath is missing on the controller ({JMESPATH_ERROR}). "
            "Install it: pip install 'jmespath>=1.0'"
        )
    try:
        return jmespath.compile(path)
    except jmespath.exceptions.JMESPathError as exc:
        raise knowledge.KnowledgeError(f"architectures: {path}: {' '.join(str(exc).split())}.") from exc


def find(path: str, data: t.Any) -> t.Any:
    """Return what a path finds; None if it finds nothing or meets a value of another type."""
    try:
        return _compiled(path).search(data)
    except (jmespath.exceptions.JMESPathError, TypeError):
        return None


def _classes(config: Entry, where: str) -> list[str]:
    named = config.get("architectures") or []
    if not isinstance(named, (list, tuple)) or not all(isinstance(name, str) for name in named):
        raise CollectionError(f"{where}: architectures: {named!r} is not a list of names.")
    return list(named)


def family(config: Entry, where: str, overlays: t.Sequence[str] = ()) -> Family:
    """Choose the entry by model_type, else by class; the standard one if the file has no entry."""
    known = knowledge.shared(KIND, overlays)
    standard = known[STANDARD]
    kind, classes = config.get("model_type"), _classes(config, where)
    if kind is not None and not isinstance(kind, str):
        raise CollectionError(f"{where}: model_type: {kind!r} is not a name.")
    # An owner's entries come last and win.
    for key, values in (("model_types", [kind]), ("classes", classes)):
        for name, entry in reversed(list(known.items())):
            if set(entry.get(key, ())) & set(values):
                return Family(name, _laid(entry, standard), True)
    return Family(STANDARD, {**standard, **_laid({}, standard)}, False)


class Config:
    """One file's figures. where: the file's name in errors."""

    def __init__(self, config: Entry, of: Family, where: str) -> None:
        self.where = where
        self.of = of
        self.top = config
        text = find(of.entry["text"], config)
        self.data: dict[str, t.Any] = {**config, **(text if isinstance(text, t.Mapping) else {})}
        classes = _classes(config, where) or list(of.entry.get("classes", ()))
        if not classes:
            raise CollectionError(f"{where}: architectures is missing. Give the whole config.json of the model.")
        self.architecture = classes[0]

    def _named(self, path: str, value: t.Any) -> str:
        """Name the key that a wrong value came from."""
        names = [name for name in _NAME.findall(path) if self.data.get(name) == value]
        return names[0] if names else path

    def wrong(self, path: str, value: t.Any, needed: str) -> CollectionError:
        """Return an error for a key whose value has the wrong type."""
        return CollectionError(f"{self.where}: {self._named(path, value)}: {value!r} is not {needed}.")

    def whole(self, value: t.Any, path: str, least: int) -> int:
        """Return the value as a checked whole number."""
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.wrong(path, value, f"a whole number of at least {least}")
        return int(value)

    def layers(self, value: int, path: str) -> int:
        """Return a checked number of layers."""
        if value > MOST_LAYERS:
            raise self.wrong(path, value, f"a number of layers, at most {MOST_LAYERS}")
        return value

    def figure(self, name: str) -> tuple[str, t.Any]:
        """Return the path that finds a figure and its value; all paths and None if none finds it."""
        paths = self.of.entry["reads"].get(name, ())
        for path in paths:
            value = find(path, self.data)
            if value is not None:
                return path, value
        return " || ".join(paths) or name, None

    def count(self, name: str, least: int = 1) -> int | None:
        """Return a figure; None if the file or the family has none."""
        path, value = self.figure(name)
        return None if value is None else self.whole(value, path, least)

    def needed(self, name: str, what: str, least: int = 1) -> int:
        """Return a required figure. what: what needs it."""
        value = self.count(name, least)
        if value is None:
            raise Unread(
                f"{self.where}: {self.figure(name)[0]} is missing: {what} of {self.architecture} needs it. "
                f"Give the whole config.json of the model, or {_BY_HAND}."
            )
        return value

    def flag(self, name: str, usual: bool) -> bool:
        """Return a boolean figure; `usual` if the file has none."""
        path, value = self.figure(name)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(path, value, "true or false")
        return usual if value is None else value

    def remarks(self, key: str) -> list[str]:
        """Return the family's remarks that apply to this file."""
        return [
            each["what"]
            for each in self.of.entry.get(key, ())
            if find(each["read"], self.data) not in (None, False, "", [], {})
        ]

    def kinds(self, of: t.Literal["mixer", "feed"], usual: str, count: int, plain: bool = False) -> list[str]:
        """Return the kind of each layer. plain: a model without experts, to which only marks with words apply."""
        found = [usual] * count
        for mark in self.of.entry[of].get("marks", ()):
            value = find(mark["read"], self.data)
            if value in (None, False, "", []) or (plain and "words" not in mark):
                continue
            if "words" in mark:
                found = self._worded(mark, value, count)
            elif "at" in mark:
                layers = self._numbers(mark, value)
                found = [
                    mark["at"] if layer in layers else mark.get("others", kind) for layer, kind in enumerate(found)
                ]
            elif "first" in mark:
                first = min(self.whole(value, mark["read"], 0), count)
                found[:first] = [mark["first"]] * first
            else:
                step = self.whole(value, mark["read"], 1)
                found = [mark["every"] if (i + 1) % step == 0 else mark["others"] for i in range(count)]
        return found

    def ratios(self, layers: int) -> list[int | None]:
        """Return each layer's compression ratio; None if it sees only its window."""
        path, stated = self.figure("ratios")
        if not isinstance(stated, list) or len(stated) < layers:
            raise self.wrong(path, stated, f"a list with a number for each of the {layers} layers")
        return [self.whole(each, path, 0) or None for each in stated[:layers]]

    def _list(self, mark: Entry, value: t.Any) -> t.Sequence[t.Any]:
        if not isinstance(value, (list, tuple, str) if "words" in mark else (list, tuple)):
            raise self.wrong(mark["read"], value, "a list")
        return value

    def _numbers(self, mark: Entry, value: t.Any) -> set[int]:
        """Return layer numbers, counted from 0, from a list or a comma-separated string."""
        begin = mark.get("counted_from", 0)
        if isinstance(value, str) and re.fullmatch(r"\s*\d{1,6}\s*(,\s*\d{1,6}\s*)*", value, re.ASCII):
            value = [int(layer) for layer in value.split(",")]
        return {self.whole(layer, mark["read"], begin) - begin for layer in self._list(mark, value)}

    def _worded(self, mark: Entry, value: t.Any, count: int) -> list[str]:
        words = [str(word) for word in self._list(mark, value)]
        key = self._named(mark["read"], value)
        # Entries beyond the last layer are prediction layers, which some files list too.
        if len(words) < count:
            raise CollectionError(f"{self.where}: {key}: it has {len(words)} entries for {count} layers.")
        unknown = [(i, word) for i, word in enumerate(words[:count]) if word not in mark["words"]]
        if unknown:
            layer, word = unknown[0]
            raise Unread(
                f"{self.where}: {key}: {word!r} (layer {layer}) is not one of {', '.join(mark['words'])}: "
                f"it is not known what such a layer consists of. To continue, {_BY_HAND}."
            )
        return [mark["words"][word] for word in words[:count]]
