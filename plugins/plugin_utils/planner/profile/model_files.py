# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Merges a model's own files with its profile: fills in missing facts and reports differences."""

from __future__ import annotations

import pathlib
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils import foreign
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, Finding

from ..model import checkpoint
from ..model.config_facts import model_facts

MOST = 128 * foreign.MIB  # of one file: see JSON_MOST in weights/cache.py
CONFIG, QUANT = "config.json", "hf_quant_config.json"
Plain = dict[str, t.Any]


def read_json(path: pathlib.Path) -> Plain:
    """Read one of a model's JSON files. Raises CollectionError if it is not a JSON object."""
    try:
        found = foreign.from_json(foreign.read_text(path, "the file", MOST), most=MOST, of_python=True)
    except ValueError as exc:
        raise CollectionError(
            f"{path}: cannot be read as JSON: {exc}. Name the model's config.json or its folder."
        ) from exc
    if not isinstance(found, dict):
        raise CollectionError(f"{path}: an object is needed, not {type(found).__name__}. Name the model's config.json.")
    return found


def read(path: str) -> Plain:
    """Return a model's files in the form `launch_plan` takes. path: its config.json, or the folder that contains it."""
    named = pathlib.Path(path).expanduser()
    config = named / CONFIG if named.is_dir() else named
    quant = config.with_name(QUANT)
    return {"config": read_json(config), "quant": read_json(quant) if quant.is_file() else None, "where": str(config)}


def given(path: str | None, files: t.Mapping[str, t.Any] | None) -> Plain | None:
    """Return a model's files, from the path or else as `weights_info` read them; None if neither is given.

    Raises CollectionError if there is no config.json.
    """
    if path:
        return read(path)
    if files is None:
        return None
    if CONFIG not in files:
        raise CollectionError(
            f"model_files: the weights on the node have no {CONFIG}, or are not there yet. Name the model's own file "
            "(k8s_dgx_model_config), or fetch the weights first."
        )
    return {"config": files[CONFIG], "quant": files.get(QUANT), "where": f"{CONFIG} of the weights"}


def laid_on(
    entry: Plain, files: t.Mapping[str, t.Any] | None, overlays: t.Sequence[str]
) -> tuple[Plain, list[Finding]]:
    """Return the profile, with facts from the model's own files if it states none, and the findings.

    The profile takes precedence; differences are reported. Raises CollectionError if the files are invalid.
    """
    if not files:
        return entry, []
    if files["config"] is None:
        return _without(entry, files)
    where = str(files.get("where", CONFIG))
    stored = None
    if index := files.get("index"):
        stored = checkpoint.formats(checkpoint.indexed(index, where)[0], overlays)
    made = model_facts(files["config"], files.get("quant"), overlays, where, stored)
    if made["quantization"]["method"]:
        entry = {"quant_method": made["quantization"]["method"].lower(), **entry}
    found = [
        _finding("facts.unread", "warning", f"{text}", "Write that part of the facts into the profile.")
        for text in made["unread"]
    ]
    if made["inferred"]:
        text = f"{where}: inferred and not read: {', '.join(made['inferred'])}."
        found.append(
            _finding("facts.inferred", "info", text, "Compare it with the model's card, or write it into the profile.")
        )
    if "facts" in entry:
        differ = sorted(
            key
            for key, value in (made["facts"] or {}).items()
            if key in entry["facts"] and entry["facts"][key] != value
        )
        if differ:
            text = f"{where} differs from the profile: {', '.join(differ)}. The profile takes precedence."
            found.append(
                _finding("facts.differ", "warning", text, "Correct the profile, or name the files of its model.")
            )
        return entry, found
    if not made["facts"]:
        return entry, found
    text = f"The facts of the model come from {files.get('from', 'a file')}: {where}."
    found.append(_finding("facts.from", "info", text, ""))
    precision = {} if "precision" in made["inferred"] and not made["precision"] else made["precision"]
    return {**entry, "facts": made["facts"], "precision": {**precision, **entry.get("precision", {})}}, found


def _without(entry: Plain, files: t.Mapping[str, t.Any]) -> tuple[Plain, list[Finding]]:
    """Return the profile with the facts of a sibling, if there is one, and what was tried."""
    tried = "; ".join(files["tried"])
    tried += "" if tried.endswith("?") else "."
    ways = (
        "Fetch the weights first (dgxspark.cluster.serve does), let the controller reach the hub (dgxspark_hub_endpoint, "
        "dgxspark_hub_token_file), or name the model's config.json (k8s_dgx_model_config)."
    )
    sibling = files.get("sibling")
    if not sibling:
        text = f"No files of the model were found, so it is planned without its facts. Looked in: {tried}"
        return entry, [_finding("facts.not-found", "warning", text, ways)]
    stored = (
        f"stored as its name says, {sibling['format'].upper()}, where that profile's is quantised"
        if sibling["format"]
        else "taken to be stored in BF16, since its name does not say otherwise"
    )
    text = (
        f"No files of the model were found. Its facts are those of profile {sibling['profile']}, whose model has the same name but for "
        f"the format; it is {stored}. Memory and speed hold only if both are right. Looked in: {tried}"
    )
    merged = {**entry, "facts": sibling["facts"], "precision": {**sibling["precision"], **entry.get("precision", {})}}
    return merged, [_finding("facts.sibling", "warning", text, ways)]


def _finding(rule: str, severity: t.Literal["warning", "info"], message: str, remedy: str) -> Finding:
    return Finding(rule, severity, "", message, remedy, ("facts",), ("The model's own files",))
