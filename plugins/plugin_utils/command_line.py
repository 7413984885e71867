# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a command line Ansible would pass over in silence: tags that the playbook does not have, words of `-e` without a name."""

from __future__ import annotations

import functools
import pathlib
import re
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Finding
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import near_names

COLLECTION = pathlib.Path(__file__).resolve().parents[2]
_PLAYBOOKS = COLLECTION / "playbooks"
_EVERY = frozenset({"all", "tagged", "untagged", "always", "never"})  # Ansible's own
_TAGS = re.compile(r"(?<!\w)tags:\s*(?:&\w+\s*)?(?P<tags>\[[^\]]*\]|\w[\w-]*)")
_FILES = re.compile(r"(?:import_playbook|include_tasks|import_tasks):\s*(?P<file>[\w./-]+\.yml)")
_ROLES = re.compile(r"(?:name|role):\s*dgxspark\.cluster\.(?P<role>\w+)")


@functools.cache
def tags_of(playbook: pathlib.Path) -> frozenset[str]:
    """Return the tags of a playbook of this collection, of the playbooks and tasks that it names, and of their roles."""
    found: set[str] = set()
    seen: set[pathlib.Path] = set()
    left = [playbook.resolve()]
    while left:
        path = left.pop()
        if path in seen or not path.is_file():
            continue
        seen.add(path)
        text = path.read_text(encoding="utf-8")
        for match in _TAGS.finditer(text):
            found |= set(re.findall(r"\w[\w-]*", match["tags"]))
        left += [(path.parent / match["file"]).resolve() for match in _FILES.finditer(text)]
        for match in _ROLES.finditer(text):
            left += sorted((COLLECTION / "roles" / match["role"]).glob("tasks/*.yml"))
    return frozenset(found - _EVERY)


def _ours(playbook: str) -> pathlib.Path | None:
    """Return the file of a playbook as it is called, if it is one of this collection."""
    if playbook.startswith("dgxspark.cluster."):
        return _PLAYBOOKS / f"{playbook.removeprefix('dgxspark.cluster.')}.yml"
    path = pathlib.Path(playbook).resolve()
    return path if path.parent in (_PLAYBOOKS, COLLECTION) and path.is_file() else None


def tags(playbooks: t.Sequence[str], given: t.Mapping[str, str]) -> list[Finding]:
    """Return the tags that no task of these playbooks has: with --tags nothing would run, with --skip-tags everything.

    playbooks: as the command line names them; with one that is not of this collection, whose tags are not ours to know, none is
    judged. given: the option of each tag, by tag.
    """
    files = [_ours(each) for each in playbooks]
    known = frozenset().union(*(tags_of(each) for each in files if each)) | _EVERY
    if not files or None in files:
        return []
    name = " and ".join(each.stem for each in files if each)
    has = f"{name} has: {', '.join(sorted(known - _EVERY)) or 'no tags'}."
    return [
        Finding(
            "command.tag",
            "error",
            f"{option} {tag}",
            f"no task of {name} has this tag.",
            near_names.meant(tag, sorted(known - _EVERY), 1) or has,
        )
        for tag, option in sorted(given.items())
        if tag not in known
    ]


def stray(extra: t.Mapping[str, t.Any]) -> list[Finding]:
    """Return the words of `-e` that have no name. extra: what Ansible made of all `-e`."""
    rest = str(extra.get("_raw_params", "")).strip()
    if not rest:
        return []
    return [
        Finding(
            "command.stray",
            "error",
            "-e",
            f"{rest[:80]!r} is not NAME=VALUE, and would be ignored: -e separates its values by spaces.",
            "Put a value with spaces in quotes: -e \"NAME='a value'\". Save a command line, a recipe or a log in a file, and give "
            "the file's path.",
        )
    ]
