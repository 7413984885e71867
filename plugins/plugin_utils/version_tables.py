# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shipped flag tables of all versions of an engine, in one file: what versions share is stated once, with its range.

`versions` lists the versions in order, with what is each one's own. A range is `>=0.5.12`, or `>=0.5.12,<0.5.16`, by the
versions of that list; an open one holds to the newest. `flags` and `facts` have a value by range for each name, `positionals`
a value by range, `environment` the names by range. The file is JSON, which is read ten times faster than YAML: every plan
waits for it. tools/engine_parsers/tables.py writes it. Only the standard library is used: stand-ins of engines read it, too.
"""

from __future__ import annotations

import json
import re
import typing as t

Entry = dict[str, t.Any]
Ranged = t.Mapping[str, t.Any]
_RANGE = re.compile(r">=([^<>=,]+)(?:,<([^<>=,]+))?")


class _Ranges(dict[str, range]):
    """The positions of versions by the text of a range."""

    def __init__(self, versions: t.Iterable[str]) -> None:
        super().__init__()
        self._at = {version: position for position, version in enumerate(versions)}

    def __missing__(self, text: str) -> range:
        ends = _RANGE.fullmatch(text)
        first, last = ends.groups() if ends else ("", None)
        if first not in self._at or (last is not None and self._at.get(last, -1) <= self._at[first]):
            raise ValueError(f"{text!r} is not a range of its versions. Write it such as >=0.5.12,<0.5.16.")
        self[text] = range(self._at[first], len(self._at) if last is None else self._at[last])
        return self[text]


class VersionTables:
    """One engine's tables by version. Entries share their parts: treat them as read-only."""

    def __init__(self, text: str) -> None:
        """Read a file's text. ValueError if it is not such a file."""
        document = json.loads(text)
        try:
            self._engine, self._verified = str(document["engine"]), str(document["verified"])
            self._versions: Ranged = document["versions"]
            self._ranged: dict[str, Ranged] = {
                key: dict(document[key]) for key in ("positionals", "facts", "flags", "environment")
            }
            self._ranges = _Ranges(self._versions)
        except (KeyError, TypeError, ValueError) as exc:
            raise ValueError(f"it is not a file of tables by version ({type(exc).__name__}: {exc}).") from exc

    @property
    def ids(self) -> dict[str, str]:
        """The versions, in order, by the ids of their tables."""
        return {f"{self._engine}-{version}": version for version in self._versions}

    @property
    def digests(self) -> dict[str, str]:
        """The digest of each version's table, as it was when it was read from the engine."""
        return {version: own["sha256"] for version, own in self._versions.items()}

    def table(self, version: str) -> Entry:
        """Return one version's whole table. ValueError names a range that is none, or a name with two values."""
        position, own = list(self._versions).index(version), self._versions[version]

        def one(where: str, by_range: Ranged) -> list[t.Any]:
            held = self._at(position, where, by_range)
            if len(held) > 1:
                raise ValueError(f"{where}: {len(held)} of its ranges have version {version}.")
            return held

        def named(kind: str) -> Entry:
            return {name: held for name, by in self._ranged[kind].items() for held in one(f"{kind}.{name}", by)}

        return {
            "id": f"{self._engine}-{version}",
            "engine": self._engine,
            "version": version,
            "source": own["source"],
            "verified": self._verified,
            "requires": own["requires"],
            "facts": named("facts"),
            "positionals": [name for held in one("positionals", self._ranged["positionals"]) for name in held],
            "flags": named("flags"),
            "environment": sorted(
                name for names in self._at(position, "environment", self._ranged["environment"]) for name in names
            ),
        }

    def _at(self, position: int, where: str, by_range: Ranged) -> list[t.Any]:
        try:
            return [value for text, value in by_range.items() if position in self._ranges[text]]
        except ValueError as exc:
            raise ValueError(f"{where}: {exc}") from exc
