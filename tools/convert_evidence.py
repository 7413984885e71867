"""Convert a JSON list of measured rows (as read from published logs) into knowledge/evidence/*.yml, one file per table.

Usage: python tools/convert_evidence.py measured_rows.json knowledge/evidence
`common` holds what all rows of a file share. tools/seed_figures.yml has what the seeds say about a row beside its log.
"""

from __future__ import annotations

import json
import pathlib
import re
import sys
import typing as t

import yaml

Row = dict[str, t.Any]
HEADER = (
    "---\n# yaml-language-server: $schema=../schema/files/evidence.json\n# yamllint disable rule:line-length rule:indentation\n"
    "# Measured rows, converted by tools/convert_evidence.py. Figures and verdicts as the source states them.\n"
)
GIB_PER_GB = 1e9 / 2**30
# Notes on how a row was measured. Any other note speaks against the row: a caveat.
REMARKS = ("re-run", "the engine ", "thinking off", "image built", "a prompt with")
MORE = pathlib.Path(__file__).with_name("seed_figures.yml")


def converted(raw: Row) -> Row:
    """Return one row in the collection's form (schema: knowledge/schema/evidence.json)."""
    engine = raw["engine"]
    build = raw[engine]
    release = re.match(r"\d+\.\d+\.\d+", build)
    assert release, f"{raw['id']}: {build!r} is not a version"
    measured = {key: value for key, value in raw["measured"].items() if key != "load_peak_gb"}
    if "load_peak_gb" in raw["measured"]:
        measured["load_peak_gib"] = round(raw["measured"]["load_peak_gb"] * GIB_PER_GB, 1)
    row: Row = {
        "id": raw["id"],
        "model": raw["model"],
        "engine": {"name": engine, "version": release.group(), "image": raw["image"]},
        # Drops a remark that the log's table cut off in the middle.
        "platform": {
            key: re.sub(r"\s*\([^()]*$", "", raw[key]) for key in ("driver", "cuda", "kernel", "nccl") if raw.get(key)
        },
        "nodes": raw["nnodes"],
        "tp": raw["tp"],
        "pp": raw["pp"],
        "ep": raw["ep"],
        "settings": raw["settings"],
        "varied": raw["varied"],
        "verdict": raw["verdict"],
        "status": raw["raw_status"],
        "measured": measured,
        "case": raw["case"],
        "section": raw["section"],
        "source": [raw["source"] + (f" line {raw['line']}" if raw.get("line") else "")],
    }
    # A seed that only reports a figure is not a log of the run.
    row["verified"] = "reported" if raw["source"].lower().startswith("seed") else "measured"
    if build != release.group():
        row["engine"]["build"] = build
    if raw.get("note"):
        row["note"] = raw["note"]
    return row


def completed(row: Row, more: Row) -> Row:
    """Return the row with a seed's additions: the log's figures stay, and no remark is lost."""
    for key, value in more.get("measured", {}).items():
        assert row["measured"].setdefault(key, value) == value, f"{row['id']}: {key}: log and seed differ"
    for key, value in more.get("settings", {}).items():
        assert row["settings"].setdefault(key, value) == value, f"{row['id']}: {key}: log and seed differ"
    if "free_gib" in more:
        row["free_gib"] = more["free_gib"]
    if "image" in more:
        row["engine"]["image"] = more["image"]
    if "note" in more:
        own = row.get("note", "")
        row["note"] = more["note"] if not own or own in more["note"] else f"{own}; {more['note']}"
    if any(not part.startswith(REMARKS) for part in row.get("note", "").split("; ") if part):
        row["caveat"] = True
    return row


def shared(rows: list[Row]) -> Row:
    """Return what is the same in all rows, comparing dictionaries key by key."""
    out: Row = {}
    for key, value in rows[0].items():
        if isinstance(value, dict) and all(isinstance(row.get(key), dict) for row in rows):
            inner = shared([row[key] for row in rows])
            if inner:
                out[key] = inner
        elif key != "id" and all(key in row and row[key] == value for row in rows):
            out[key] = value
    return out


def without(row: Row, common: Row) -> Row:
    """Return the row without what `common` has; a required dictionary stays, even if empty."""
    out: Row = {}
    for key, value in row.items():
        if key in common and common[key] == value:
            continue
        out[key] = without(value, common[key]) if isinstance(value, dict) and key in common else value
    return out


def main(source: str, target: str) -> None:
    """Write one file for each model, TP, EP, engine and version."""
    groups: dict[str, list[Row]] = {}
    more = yaml.safe_load(MORE.read_text(encoding="utf-8"))["rows"]
    for raw in json.loads(pathlib.Path(source).read_text(encoding="utf-8")):
        row = completed(converted(raw), more.get(raw["id"], {}))
        model = row["model"].split("/")[-1].lower()
        name = f"{model}-tp{row['tp']}-ep{row['ep']}-{row['engine']['name']}-{row['engine']['version']}"
        groups.setdefault(name, []).append(row)
    for name, rows in groups.items():
        common = shared(rows)
        text = yaml.dump(
            {"common": common, "entries": [without(row, common) for row in rows]},
            sort_keys=False,
            allow_unicode=True,
            default_flow_style=None,
            width=10000,
        )
        (pathlib.Path(target) / f"{name}.yml").write_text(HEADER + text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:3])
