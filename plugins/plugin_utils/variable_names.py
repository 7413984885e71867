# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which variables this collection knows, and which of an owner's are probably misspelled.

A name that begins with a prefix of ours and that nothing reads would be passed over in silence. What is known is read from the
roles, the playbooks and the plugins themselves: there is no list to keep.
"""

from __future__ import annotations

import functools
import json
import pathlib
import re
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Finding, Severity
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import near_names

COLLECTION = pathlib.Path(__file__).resolve().parents[2]
# Others use these prefixes too: a name that is not ours may be theirs.
SHARED = frozenset({"k3s", "nccl"})
_YAML = ("playbooks/*.yml", "playbooks/tasks/*.yml", "roles/*/*/*.yml", "roles/*/templates/*.j2")
_CODE = ("plugins/action/*.py", "plugins/lookup/*.py", "plugins/filter/*.py", "plugins/plugin_utils/**/*.py")
_SET = re.compile(r"(?m)^\s*register: *(\w+)")
# A short name, such as `sparks`, is one that a playbook asks for: it has no prefix, and so no other mark.
_ASKED = re.compile(r"(?<![\w.'\"])(?P<name>[a-z][a-z_]*)(?= is (?:not )?defined\b| \| default\()")
_NEAR = 0.8  # how alike a name without our prefix must be to a short name to be taken for it: it may be the owner's own


@functools.cache
def prefixes() -> tuple[str, ...]:
    """Return the prefixes of our variables, without the underscore: the roles' names, and dgxspark."""
    return ("dgxspark", *sorted(path.name for path in (COLLECTION / "roles").iterdir() if path.is_dir()))


@functools.cache
def _pattern() -> re.Pattern[str]:
    # Not an attribute or a module (x.k3s_plan), part of a path, or part of a longer name (__k8s_dgx_plan).
    return re.compile(rf"(?<![\w./-])(?:{'|'.join(prefixes())})_[A-Za-z0-9_]*[A-Za-z0-9]\b")


def ours(name: str) -> str:
    """Return the prefix if a name begins with one of ours, else ""."""
    return max((each for each in prefixes() if name.startswith(f"{each}_")), key=len, default="")


def _named(patterns: t.Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names in these files, and those that a task registers."""
    names, registered = set(), set()
    for pattern in patterns:
        for path in COLLECTION.glob(pattern):
            text = path.read_text(encoding="utf-8")
            names |= set(_pattern().findall(text))
            registered |= set(_SET.findall(text))
    return frozenset(names), frozenset(registered)


@functools.cache
def of_playbooks() -> tuple[frozenset[str], frozenset[str]]:
    """Return the names in roles and playbooks, and those that a task registers."""
    return _named(_YAML)


@functools.cache
def of_plugins() -> frozenset[str]:
    """Return the names that plugins read themselves."""
    return _named(_CODE)[0]


@functools.cache
def _override_keys() -> frozenset[str]:
    """Return the keys of a profile, which overrides may have, and the name of a variant."""
    schema = json.loads((COLLECTION / "knowledge/schema/profile.json").read_text(encoding="utf-8"))
    return frozenset({*schema["properties"], "variant"})


@functools.cache
def short_names() -> frozenset[str]:
    """Return the variables without a prefix that playbooks read, such as sparks."""
    texts = (path.read_text(encoding="utf-8") for pattern in _YAML[:2] for path in COLLECTION.glob(pattern))
    found = {name for text in texts for name in _ASKED.findall(text)}
    return frozenset(
        name for name in found if not (ours(name) or name.startswith(("ansible_", "guard_", "inventory_")))
    )


def unknown(names: t.Iterable[str]) -> list[str]:
    """Return the names with a prefix of ours that nothing here reads."""
    candidates = sorted({name for name in names if ours(name)} - of_playbooks()[0])
    return [name for name in candidates if name not in of_plugins()] if candidates else []


def _meant(name: str, known: t.Sequence[str]) -> str:
    """Return "Did you mean …?", or "": the same prefix makes no two names alike."""
    prefix = f"{ours(name)}_"
    tails = [each.removeprefix(prefix) for each in known if each.startswith(prefix)]
    tail = name.removeprefix(prefix)
    # A name cut short may be the beginning of several.
    begun = [each for each in tails if each.startswith(f"{tail}_")]
    near = near_names.nearest(tail, begun) if begun else near_names.nearest(tail, tails, 1)
    found = [prefix + each for each in near] or near_names.nearest(name, known, 1, 0.85)
    return f"Did you mean {near_names.either(found)}?" if found else ""


def _ending(name: str) -> list[str]:
    """Return the variables of roles and playbooks that are this name after our prefix, at most three."""
    known = of_playbooks()[0] - of_playbooks()[1]
    return [each for each in (f"{prefix}_{name}" for prefix in prefixes()) if each in known][: near_names.MOST]


def short(given: t.Mapping[str, t.Any], *, alone: bool) -> list[Finding]:
    """Return what is wrong with the names of `-e` that have no prefix of ours and that no playbook reads.

    given: the values of `-e`, by name. alone: there is no inventory, whose own templates might read them. A name like one of
    ours is an error, and any is if nothing else can read it; otherwise it is a warning.
    """
    found = []
    for name in sorted(map(str, given)):
        if name.startswith(("_", "ansible_", "guard_")) or ours(name) or name in short_names():
            continue
        near = near_names.alike(name, sorted(short_names()), 1, _NEAR)
        # sort_by of sort: a word of it is one of ours, and the name may still be the owner's own.
        of_words = [each for each in name.split("_") if each in short_names()]
        remedy = f"Did you mean {[*near, *of_words][0]}?" if near or of_words else "Remove it."
        if whole := _ending(name):
            remedy = f"Did you mean {near_names.either(whole)}?"
        elif name in _override_keys():
            remedy = f'It is a key of k8s_dgx_overrides: -e \'{{"k8s_dgx_overrides": {{"{name}": …}}}}\''
        severity: Severity = "error" if alone or near else "warning"
        message = "no playbook of this collection reads a variable of this name."
        found.append(Finding("variables.unread", severity, f"{name} (-e)", message, remedy))
    return found


def check(given: t.Mapping[str, str]) -> list[Finding]:
    """Return what is wrong with an owner's variables: an error, or a warning for a prefix that others use too.

    given: where each variable is set, by name, such as "-e" or "host spark1".
    """
    found = []
    for name in unknown(given):
        known, registered = of_playbooks()
        told = _meant(name, sorted((known | of_plugins()) - registered))
        shared = ours(name) in SHARED
        remedy = told or "Remove it."
        if not shared:
            remedy += f" A variable of your own needs another prefix than {ours(name)}_."
        found.append(
            Finding(
                "variables.unknown",
                "warning" if shared else "error",
                f"{name} ({given[name]})",
                "no playbook or role of this collection reads a variable of this name.",
                remedy,
            )
        )
    return found
