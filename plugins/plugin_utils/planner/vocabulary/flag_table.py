# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Flags of an argument list: a flag's specification, a value's type and choices, and how both are written."""

from __future__ import annotations

import difflib
import functools
import json
import math
import operator
import re
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import from_json

Spec = t.Mapping[str, t.Any]
Fault = tuple[str, str, str]  # kind, why, remedy

_NAMES = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "json": "a dictionary, a list or a JSON text",
    "list": "a list",
}
_BOUNDS: dict[str, tuple[str, t.Callable[[t.Any, t.Any], bool]]] = {
    "minimum": ("at least", operator.ge),
    "maximum": ("at most", operator.le),
    "above": ("above", operator.gt),
    "below": ("below", operator.lt),
}


def which(versions: t.Sequence[str]) -> str:
    """List the versions that have something."""
    return f"Versions that have it: {', '.join(versions)}." if versions else ""


def nearest(name: str, known: t.Iterable[str]) -> str:
    """Suggest the names that may have been meant."""
    spelled = {other.replace("-", "_"): other for other in known}
    close = _close(name, tuple(spelled))
    return f"Did you mean {' or '.join(spelled[c] for c in close)}?" if close else ""


@functools.lru_cache(maxsize=512)
def _close(name: str, known: tuple[str, ...]) -> list[str]:
    # Cached: an unknown name takes longer to compare with all flags than a plan takes to make, and its remedies' plans have it, too.
    return difflib.get_close_matches(name, known, n=2, cutoff=0.75)


class Parser:
    """One version's flag table: flags by all their names, declared variables, required flags.

    The table is read on first access to anything but the engine's name and version.
    """

    def __init__(self, engine: str, version: str, read: t.Callable[[], Spec]) -> None:
        self.engine = engine
        self.version = version
        self._read = read

    @functools.cached_property
    def table(self) -> Spec:
        """The table as stored."""
        return self._read()

    @functools.cached_property
    def flags(self) -> dict[str, tuple[str, Spec]]:
        """Each flag's primary name and specification, by all its names."""
        return {
            alias: (name, spec)
            for name, spec in self.table["flags"].items()
            for alias in (name, *spec.get("aliases", ()))
        }

    @functools.cached_property
    def off(self) -> dict[str, str]:
        """The toggles' primary names by the flags that turn them off, including those that the engine hides from its help."""
        return {
            off: name
            for name, spec in self.table["flags"].items()
            if spec["type"] == "toggle"
            for off in (spec["off"], *spec.get("off_aliases", ()))
        }

    @functools.cached_property
    def environment(self) -> frozenset[str]:
        """The declared variables."""
        return frozenset(self.table["environment"])

    @functools.cached_property
    def required(self) -> tuple[str, ...]:
        """The required flags."""
        return tuple(name for name, spec in self.table["flags"].items() if spec.get("required"))

    def spec(self, flag: str) -> Spec | None:
        """Return the specification of a flag by its full name or an alias."""
        found = self.flags.get(flag)
        return found[1] if found else None

    def knows(self, part: Spec) -> bool:
        """Whether this version has what a part of a setting's way needs."""
        if "flag" in part:
            spec = self.spec(part["flag"])
            return spec is not None and spec.get("deprecated") not in ("refused", "no effect")
        if "env" in part:
            return bool(part.get("foreign")) or part["env"] in self.environment
        return "positional" not in part or part["positional"] in self.table["positionals"]

    def primary(self, flag: str) -> str:
        """Return a flag's primary name."""
        return self.flags[flag][0]


def expected(spec: Spec) -> str:
    """Return the type of a flag's value in settings."""
    kind: str = spec["type"]
    if kind in ("switch", "toggle"):
        return "bool"
    return f"list of {kind}" if spec.get("many") or spec.get("repeat") else kind


def fault(value: t.Any, kind: str, limits: Spec | None = None) -> Fault | None:
    """Return what is wrong with a value: its type, or its range (`minimum`, `maximum`, `above`, `below`)."""
    if kind.startswith("list of "):
        if not isinstance(value, (list, tuple)):
            value = [value]
        return next((found for item in value if (found := fault(item, kind.removeprefix("list of ")))), None)
    if isinstance(value, str) and value in (limits or {}).get("words", ()):
        return None
    if not _is(value, kind):
        return "type", f"{value!r} is not {_NAMES[kind]}.", f"Give {_NAMES[kind]}."
    bounds = limits or {}
    if "pattern" in bounds and not re.fullmatch(bounds["pattern"], value):
        return "type", f"{value!r} does not have the form {bounds['pattern']}.", "Write it in that form."
    for name, (word, holds) in _BOUNDS.items():
        if name in bounds and not holds(value, bounds[name]):
            said = [f"{_BOUNDS[other][0]} {bounds[other]}" for other in _BOUNDS if other in bounds]
            return "range", f"{value!r} is not {word} {bounds[name]}.", f"Give a number {' and '.join(said)}."
    return None


def _is(value: t.Any, kind: str) -> bool:
    if kind == "bool":
        return isinstance(value, bool)
    if kind == "int":
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == "float":
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if kind == "list":
        return isinstance(value, (list, tuple))
    if kind == "json":
        return isinstance(value, (dict, list)) or (isinstance(value, str) and _is_json(value))
    return isinstance(value, str) and value != "" and "\x00" not in value


def _is_json(text: str) -> bool:
    try:
        from_json(text)
    except ValueError:
        return False
    return True


def accepted(value: t.Any, spec: Spec) -> bool:
    """Whether a value is among a flag's choices; `known` values, which the engine checks later, ignore case, as it does."""
    if "choices" in spec:
        return any(
            value == choice and isinstance(value, bool) == isinstance(choice, bool) for choice in spec["choices"]
        )
    if "known" in spec and isinstance(value, str):
        return value.lower() in {str(known).lower() for known in spec["known"]}
    return True


def is_default(value: t.Any, spec: Spec) -> bool:
    """Whether a value is the flag's default, whose type may not be the flag's: an empty string, or false for a string flag."""
    return "default" in spec and type(value) is type(spec["default"]) and bool(value == spec["default"])


def translate(value: t.Any, part: Spec, spec: Spec | None) -> t.Any:
    """Convert our value to the engine's as one part of a way specifies; None means that nothing is written.

    `values` replaces (`*` for all others), `synonyms` offers candidates, of which the first that the version accepts is
    used, `half` takes the host or the port of `host:port`.
    """
    if "values" in part:
        key = json.dumps(value) if isinstance(value, (bool, int, float)) else str(value)
        values: Spec = part["values"]
        return values.get(key, values.get("*", value))
    if "half" in part:
        host, _colon, port = str(value).rpartition(":")
        return host.strip("[]") if part["half"] == "host" else int(port)
    candidates = part.get("synonyms", {}).get(value, ()) if isinstance(value, str) else ()
    return next((other for other in candidates if spec is None or accepted(other, spec)), value)


def written(flag: str, spec: Spec, value: t.Any) -> list[str]:
    """Return a flag and its value as words; an empty list if nothing needs to be written."""
    if spec["type"] == "switch":
        return [f"--{flag}"] if value else []
    if spec["type"] == "toggle":
        return [f"--{flag}" if value else f"--{spec['off']}"]
    items = list(value) if isinstance(value, (list, tuple)) and spec["type"] != "json" else [value]
    texts = [_text(item) for item in items]
    if spec.get("repeat"):
        return [word for text in texts for word in (f"--{flag}", text)]
    if len(texts) == 1 and texts[0].startswith("-"):
        return [f"--{flag}={texts[0]}"]  # a separate word would be read as a flag
    return [f"--{flag}", *texts] if texts else []


def _text(value: t.Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        return json.dumps(value, sort_keys=True)
    return repr(value) if isinstance(value, float) else str(value)
