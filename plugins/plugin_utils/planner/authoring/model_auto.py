# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a model's facts come from if its profile states none: the nodes' weights, the controller's cache, the hub, a sibling.

A repository's files are foreign: their size and depth are bounded, and no code of theirs is run. Whatever fails is remembered, so
that the plan can say where it looked.
"""

from __future__ import annotations

import os
import pathlib
import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import line
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.module_utils.weights.cache import folder

from ..model import checkpoint
from ..profile import profile
from ..profile.model_files import CONFIG, QUANT
from . import model_source
from .model_source import INDEX, Source

Plain = dict[str, t.Any]
AUTO = "auto"
_NAMES = (CONFIG, QUANT, INDEX)
_MOST_SAID = 300  # characters of a reason
_OFF = ("", "0", "false", "no", "off")


@dataclass(frozen=True)
class Places:
    """Where to look. nodes: files that `weights_info` returned; unread: why it returned none. environment: as for the weights."""

    nodes: t.Mapping[str, t.Any] = field(default_factory=dict)
    unread: str = ""
    hub: model_source.Hub = field(default_factory=model_source.Hub)

    @property
    def offline(self) -> bool:
        """Whether the hub is not to be asked."""
        said = self.hub.environment.get("HF_HUB_OFFLINE") or os.environ.get("HF_HUB_OFFLINE", "")
        return said.lower() not in _OFF


def wanted(entry: str | Plain, overlays: t.Sequence[str] = ()) -> str:
    """Return the hub's name of a profile's model if the profile states no facts, else an empty string."""
    found = profile.find(entry, overlays)
    return "" if "facts" in found else str(found["model"])


def look(entry: Plain, places: Places, overlays: t.Sequence[str] = ()) -> Plain | None:
    """Return a model's files in the form `launch_plan` takes, from the first place that has them; None if the profile has facts.

    `tried` says of the others why they have none. Without any file, `sibling` is the facts of a profile of the same model stored
    in another format, if there is one.
    """
    if "facts" in entry:
        return None
    model, revision = str(entry["model"]), entry.get("revision")
    tried: list[str] = []
    places_in_order: tuple[tuple[str, t.Callable[[], Source]], ...] = (
        ("the weights on the nodes", lambda: _of_nodes(model, places)),
        ("the controller's Hugging Face cache", lambda: _cached(model, revision)),
        ("the hub", lambda: _of_hub(model, revision, places)),
    )
    for name, ask in places_in_order:
        try:
            source = ask()
        except CollectionError as exc:
            tried.append(f"{name}: {line(str(exc), _MOST_SAID).rstrip('.')}")
            continue
        return {
            "config": source.files[CONFIG],
            "quant": source.files.get(QUANT),
            "index": source.files.get(INDEX),
            "where": f"{CONFIG} of {source.where}{f' at {source.revision}' if source.revision else ''}",
            "from": name,
            "tried": tried,
        }
    return {"config": None, "tried": tried, "sibling": _sibling(entry, overlays)}


def _of_nodes(model: str, places: Places) -> Source:
    if places.unread:
        raise CollectionError(places.unread)
    if CONFIG not in places.nodes:
        raise CollectionError("none there, or not looked at.")
    return model_source.checked(places.nodes, f"the weights of {model} on a node", model, None)


def _cached(model: str, revision: str | None) -> Source:
    _refuse_other(model)
    place = cache() / folder(model)
    if not place.is_dir():
        raise CollectionError("it does not have this model.")
    if revision and (place / "snapshots" / revision).is_dir():
        place = place / "snapshots" / revision
    return model_source.folder(str(place), headers=False)


def cache() -> pathlib.Path:
    """Return the folder of the controller's Hugging Face cache, as that library finds it."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    own = os.environ.get("HF_HOME") or f"{home}/huggingface"
    return pathlib.Path(os.environ.get("HF_HUB_CACHE") or f"{own}/hub").expanduser()


def _of_hub(model: str, revision: str | None, places: Places) -> Source:
    _refuse_other(model)
    if places.offline:
        raise CollectionError("not asked: HF_HUB_OFFLINE is set.")
    return model_source.hub(model, revision, places.hub, _NAMES)


def _refuse_other(model: str) -> None:
    if not model_source.is_on_hub(model):
        raise CollectionError("the model's name is none of the hub.")


# --- a profile of the same model in another format --------------------------------------------------------------------


def _sibling(entry: Plain, overlays: t.Sequence[str]) -> Plain | None:
    """Return `profile`, `facts`, `precision` and `format` of a profile whose model has the same name but for its format."""
    words = _formats(overlays)
    own, named = _plain_name(str(entry["model"]), words)
    if not own:
        return None
    known = profile.entries(overlays)
    for name, raw in known.items():
        found = profile.extended(dict(raw), known)
        if "facts" in found and _plain_name(str(found["model"]), words)[0] == own:
            return {
                "profile": name,
                "facts": found["facts"],
                "precision": _stored(found, named),
                "format": named,
            }
    return None


def _stored(found: Plain, named: str) -> Plain:
    """Return how the tensors are stored: those that the sibling quantises, in the named format."""
    if not named:
        return {}
    theirs = {kind: each for kind, each in found.get("precision", {}).items() if each != checkpoint.PLAIN}
    kinds = theirs or {"experts" if "moe" in found["facts"] else "dense": named}
    return dict.fromkeys(kinds, named)


def _formats(overlays: t.Sequence[str]) -> dict[str, str]:
    """Return the formats by the words that name them."""
    return {checkpoint.PLAIN: checkpoint.PLAIN} | {
        str(word).lower(): str(entry["id"])
        for entry in checkpoint.entries(overlays)
        for word in (entry["id"], *entry.get("methods", ()), *entry.get("words", ()))
    }


def _plain_name(model: str, words: t.Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    """Return a model's name without its owner and without words of formats, and the first format that those name."""
    parts = [part for part in re.split(r"[^a-z0-9.]+", model.rpartition("/")[2].lower()) if part]
    named = [words[part] for part in parts if part in words]
    return tuple(part for part in parts if part not in words), named[0] if named else ""
