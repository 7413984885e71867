"""What is newer than the knowledge: releases of engines and of the platform's parts, and the registries of recipes.

Usage: refresh.py [--write] | --new ENGINE | --looked KIND [PART=VERSION …]. Prints a report in Markdown: what is newer, what it touches,
what a person must decide, and when each kind of knowledge was last held against its sources. --write dates the kinds of which all was
reached (knowledge/looks); --looked dates one that a person has gone through, with the newest releases seen. --new prints the engine's
releases beyond its newest flag table, one a line, for tools/add_engine.py, which adds them.
What is looked at: tools/refresh.yml. What cannot be reached is listed as not looked at. GITHUB_TOKEN raises GitHub's limit.
"""

from __future__ import annotations

import datetime
import os
import pathlib
import re
import runpy
import sys
from collections.abc import Iterable
from typing import Any

import yaml
from packaging.version import InvalidVersion, Version

ROOT = pathlib.Path(__file__).resolve().parents[1]
runpy.run_path(str(ROOT / "tools" / "own_collection.py"))

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import from_json, line  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import http_client, knowledge  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import (  # noqa: E402
    PROFILE_KIND,
    extended_profile,
    load_tables,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.versions import matches  # noqa: E402

LOOKS = ROOT / "knowledge" / "looks" / "last.yml"
HEAD = (
    "---\n# yaml-language-server: $schema=../schema/files/looks.json\n# yamllint disable rule:line-length rule:indentation\n"
    "# When each kind of knowledge was last held against its sources. Written by tools/refresh.py (--write, --looked).\n"
)
INDEX, GITHUB = "https://pypi.org/pypi", "https://api.github.com/repos"
Plain = dict[str, Any]


class Asked:
    """Answers of the index and of GitHub. `unreached`: what could not be had, and why."""

    def __init__(self, index: str = INDEX, github: str = GITHUB) -> None:
        self.index, self.github = index, github
        self.unreached: dict[str, str] = {}

    def json(self, name: str, url: str) -> Any:
        """Return an answer's JSON; None if there is none."""
        token = os.environ.get("GITHUB_TOKEN", "") if url.startswith(GITHUB) else ""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            with http_client.client(10.0) as asked:
                return from_json(http_client.small(asked, url, headers, 64 * 2**20, 120.0).raise_for_status().content)
        except (CollectionError, ValueError, http_client.httpx.HTTPError) as exc:
            self.unreached[name] = line(str(exc), 160)
            return None

    def package(self, name: str) -> list[str]:
        """Return a package's final releases that have files and are not withdrawn, in order."""
        said = self.json(name, f"{self.index}/{name}/json")
        files = said.get("releases") if isinstance(said, dict) else None
        return finals(files) if isinstance(files, dict) else []

    def release(self, repository: str) -> str | None:
        """Return the tag of a repository's latest release."""
        said = self.json(repository, f"{self.github}/{repository}/releases/latest")
        tag = said.get("tag_name") if isinstance(said, dict) else None
        return line(tag, 60) if isinstance(tag, str) else None

    def commit(self, repository: str) -> str | None:
        """Return a repository's newest commit and its day."""
        said = self.json(repository, f"{self.github}/{repository}/commits?per_page=1")
        try:
            return line(f"{said[0]['sha'][:10]} of {said[0]['commit']['committer']['date'][:10]}", 60)
        except (TypeError, KeyError, IndexError):
            return None


def finals(files: Plain) -> list[str]:
    """Return the final releases among an index's, in order."""
    found = []
    for text, held in files.items():
        try:
            version = Version(text)
        except InvalidVersion:
            continue
        usable = isinstance(held, list) and any(isinstance(each, dict) and not each.get("yanked") for each in held)
        if usable and not (version.is_prerelease or version.is_devrelease or version.local):
            found.append(version)
    return [str(version) for version in sorted(found)]


def tables(engine: str) -> list[str]:
    """Return the engine's releases that have a flag table, in order."""
    return [parser.version for parser in load_tables().versions(engine)]


def without_table(engine: str, releases: list[str]) -> list[str]:
    """Return the releases without a table that are newer than the oldest one with a table."""
    held = tables(engine)
    return [each for each in releases if each not in held and Version(each) > Version(held[0])]


def touched(engine: str, version: str) -> tuple[list[str], list[str]]:
    """Return the profiles whose range does not hold a release, and the rules that do judge it."""
    known = knowledge.shared(PROFILE_KIND)
    apart = []
    for name, raw in known.items():
        own = extended_profile(dict(raw), known)["engine"]
        if own["name"] == engine and own.get("versions") and not matches(version, own["versions"]):
            apart.append(name)
    rules = [
        name
        for name, entry in knowledge.shared("rules").items()
        for ranges in [entry.get("engines") or {}]
        if engine in ranges and matches(version, ranges[engine] or "")
    ]
    return apart, rules


def engines(asked: Asked, looked: Plain) -> list[str]:
    """Return the report's lines on the engines."""
    lines = []
    for name, entry in looked.items():
        if "engine" not in entry or not (releases := asked.package(name)):
            continue
        newest, new = tables(name)[-1], without_table(name, releases)
        lines.append(f"- {name}: newest release {releases[-1]}, newest table {newest}.")
        if not new:
            continue
        apart, rules = touched(name, releases[-1])
        lines += [
            f"  - without a table: {', '.join(new)} (`python tools/add_engine.py {name} VERSION`). Touches {entry['touches']}.",
            f"  - {len(apart)} profiles claim ranges without {releases[-1]}, and {len(rules)} rules without an upper limit judge it: "
            "decide after reading its release notes which still hold.",
        ]
    return lines


def packages(asked: Asked, looked: Plain) -> list[str]:
    """Return the report's lines on other packages."""
    lines = []
    for name, entry in looked.items():
        if "known" not in entry or not (releases := asked.package(name)):
            continue
        file, _colon, key = entry["known"].partition(": ")
        found = re.search(rf"(?m)^{re.escape(key)}: *\"?([\d.]+)", (ROOT / file).read_text(encoding="utf-8"))
        if found and Version(releases[-1]) > Version(found[1]):
            lines.append(
                f"- {name}: {releases[-1]}, here {found[1]}. Touches {entry['touches']}. Decide whether to move."
            )
    return lines


def platform(asked: Asked, looked: Plain) -> list[str]:
    """Return the report's lines on the platform's parts."""
    known = {entry["component"]: entry["version"] for entry in knowledge.shared("platform").values()}
    k3s = max(
        (name for name in knowledge.shared("k3s")), key=lambda each: Version(each.lstrip("v").replace("+k3s", "."))
    )
    lines = []
    for repository, entry in looked.items():
        if not (tag := asked.release(repository)):
            continue
        here = k3s if entry.get("kind") == "k3s" else known[entry["component"]]
        if tag.lstrip("v") != here.lstrip("v"):
            lines.append(
                f"- {repository}: {tag}, here {here}. Touches {entry['touches']}. Decide whether it is newer and to be pinned."
            )
    return lines


def today() -> str:
    """Return the day."""
    return datetime.datetime.now(tz=datetime.UTC).date().isoformat()


def reached(asked: Asked, looked: Plain) -> list[str]:
    """Return the kinds of knowledge all of whose sources were reached."""
    return [kind for kind, names in looked["dates"].items() if not asked.unreached.keys() & set(names)]


def dated(text: str, kinds: Iterable[str], day: str, newest: Plain | None = None) -> str:
    """Return the file of last looks with these kinds' day, and the newest releases that were seen of a kind's parts."""
    entries = yaml.safe_load(text)["entries"]
    if unknown := set(kinds) - {entry["id"] for entry in entries}:
        raise SystemExit(f"There is no knowledge of kind {', '.join(sorted(unknown))}.")
    for entry in entries:
        if entry["id"] in kinds:
            entry["looked"] = day
            if newest:
                entry["newest"] = {**entry.get("newest", {}), **newest}
        knowledge.validate("looks", entry, str(LOOKS))
    return HEAD + yaml.safe_dump({"entries": entries}, sort_keys=False, default_flow_style=None, width=10000)


def last_looks() -> list[str]:
    """Return the report's lines on when each kind was last looked at, the oldest first."""
    days: dict[str, list[str]] = {}
    for kind, entry in sorted(knowledge.load("looks").items()):
        days.setdefault(entry["looked"], []).append(kind)
    return [f"- {day}: {', '.join(kinds)}" for day, kinds in sorted(days.items())]


def report(asked: Asked, looked: Plain) -> str:
    """Return the report."""
    parts = {
        "Engines": engines(asked, looked["packages"]),
        "Packages": packages(asked, looked["packages"]),
        "Platform": platform(asked, looked["releases"]),
        "Recipes": [f"- {name}: newest commit {seen}" for name in looked["recipes"] if (seen := asked.commit(name))],
        "Not looked at": [f"- {name}: {why}" for name, why in asked.unreached.items()],
        "Last looks before this one": last_looks(),
    }
    missed = {"Platform": looked["releases"], "Recipes": looked["recipes"], "Engines": looked["packages"]}
    shown = []
    for name, lines in parts.items():
        whole = not asked.unreached.keys() & set(missed.get(name, ()))
        shown.append(f"## {name}\n\n" + "\n".join(lines or ["- nothing" if whole else "- not looked at"]))
    return "\n\n".join([f"# What is newer than the knowledge, {today()}", *shown]) + "\n"


def main(arguments: list[str]) -> int:
    """Print the report, or an engine's new releases."""
    asked = Asked()
    if arguments[:1] == ["--new"] and len(arguments) == 2 and arguments[1] in ("vllm", "sglang"):
        engine = arguments[1]
        newest = Version(tables(engine)[-1])
        print("\n".join(each for each in without_table(engine, asked.package(engine)) if Version(each) > newest))
        return int(bool(asked.unreached))
    held = LOOKS.read_text(encoding="utf-8")
    if arguments[:1] == ["--looked"] and len(arguments) > 1:
        parts = dict(each.split("=", 1) for each in arguments[2:])
        LOOKS.write_text(dated(held, [arguments[1]], today(), parts), encoding="utf-8")
        return 0
    if arguments not in ([], ["--write"]):
        raise SystemExit(__doc__)
    looked = yaml.safe_load((ROOT / "tools" / "refresh.yml").read_text(encoding="utf-8"))
    print(report(asked, looked), end="")
    if arguments:
        LOOKS.write_text(dated(held, reached(asked, looked), today()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
