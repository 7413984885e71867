"""What a person must decide of a new engine version: how its table differs from the one before, and what of our knowledge that touches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.rank import patches as applier
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import FlagTable, load_patches
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.versions import matches

Table = Mapping[str, Any]


def _names(names: Iterator[str] | list[str]) -> str:
    return ", ".join(sorted(names))


def _short(value: Any) -> str:
    return f"{len(value)} of them" if isinstance(value, list) and len(value) > 5 else repr(value)


def changed(before: Any, after: Any) -> str:
    """Say in few words how two values differ: keys of dictionaries, members of lists."""
    if isinstance(before, dict) and isinstance(after, dict):
        keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
        return "; ".join(f"{key}: {changed(before.get(key), after.get(key))}" for key in keys)
    if isinstance(before, list) and isinstance(after, list):
        more = [f"+{each}" for each in after if each not in before]
        return " ".join([*more, *(f"-{each}" for each in before if each not in after)]) or "another order"
    return f"{_short(before)} → {_short(after)}"


def _beyond_spelling(flag: Table) -> Table:
    return {key: value for key, value in flag.items() if key not in ("aliases", "off", "off_aliases")}


def of_flags(before: Table, after: Table) -> Iterator[str]:
    """Yield what became of flags, defaults on a GB10, and what the wheel requires."""
    old, new = before["flags"], after["flags"]
    if added := new.keys() - old.keys():
        yield f"new flags: {_names(added)}"
    if gone := old.keys() - new.keys():
        yield f"flags that are gone: {_names(gone)}"
    both = sorted(name for name in old.keys() & new.keys() if old[name] != new[name])
    respelled = [name for name in both if _beyond_spelling(old[name]) == _beyond_spelling(new[name])]
    if respelled:
        yield f"flags with other spellings: {_names(respelled)}"
    for name in both:
        if name not in respelled:
            yield f"--{name}: {changed(old[name], new[name])}"
    for key in ("tp1", "tp4"):
        was, now = (table["facts"]["defaults_on_gb10"][key] for table in (before, after))
        if was != now:
            yield f"defaults on a GB10 ({key}): {changed(was, now)}. See knowledge/choices/{after['engine']}.yml"
    if before["requires"] != after["requires"]:
        yield f"requires: {changed(before['requires'], after['requires'])}"


def of_settings(before: Table, after: Table) -> Iterator[str]:
    """Yield settings of ours that the version before could express, and this one cannot."""
    engine = after["engine"]
    old, new = (FlagTable(engine, table["version"], lambda table=table: table) for table in (before, after))  # type: ignore[misc]
    for name, entry in knowledge.load("settings").items():
        ways = [way if isinstance(way, list) else [way] for way in entry.get(engine, ())]
        if any(all(map(old.knows, way)) for way in ways) and not any(all(map(new.knows, way)) for way in ways):
            yield f"setting {name}: no way to say it is left. Add one in knowledge/settings/serving.yml, if there is one"


def of_patches(engine: str, version: str, folder: Path) -> Iterator[str]:
    """Yield start-up patches whose range is wrong for this version's own files. folder: the unpacked wheel."""
    for patch in load_patches():
        if patch.plain["package"]["name"] != engine:
            continue
        ours = matches(version, patch.engines[engine])
        try:
            ((outcome,), _texts) = applier.prepare(applier.from_plain([patch.plain]), folder)
            state = str(outcome.state)
        except applier.PatchError:
            state = "drifted"
        if ours and state != "applied":
            yield f"patch {patch.id}: its range has this version, where it is {state}. End the range, or write it anew"
        elif not ours and state == "applied":
            yield f"patch {patch.id}: the fault is in this version, too, and the patch fits. Extend its range in {patch.origin}"
