# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Derives a profile's facts and precision from a model's own files: config.json, and hf_quant_config.json if there is one."""

from __future__ import annotations

import collections
import dataclasses
import math
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, from_plain

from . import config_precision
from .config_json import Config, Unread, family, find
from .model import Attention, Dense, Diffusion, Facts, Head, Linear, Mla, Moe, tensors
from .sparse import Compressed, GroupIndexer, Hyper, Indexer, LatentIndexer, Lookup

Plain = dict[str, t.Any]
# Bytes per state value by torch type name.
_STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def _plain(value: t.Any) -> Plain:
    """Return a dataclass as plain data in the form of a profile, without fields that have their default."""
    found = {}
    for field in dataclasses.fields(value):
        held = getattr(value, field.name)
        if held == field.default:
            continue
        if dataclasses.is_dataclass(held):
            held = _plain(held)
        elif isinstance(held, tuple):
            held = [_plain(each) if dataclasses.is_dataclass(each) else each for each in held]
        found[field.name] = held
    return found


def _attention(config: Config, layers: int, sliding: bool = False, indexed: bool = True) -> Attention:
    what = "sliding attention" if sliding else "attention"

    def figure(name: str) -> int | None:
        own = config.count(f"sliding_{name}") if sliding else None
        return own if own is not None else config.count(name)

    heads = figure("heads") or config.needed("heads", what)
    dim, values = figure("head_dim"), figure("value_head_dim")
    return Attention(
        layers=layers,
        heads=heads,
        kv_heads=figure("kv_heads") or heads,
        # The value transformers uses if head_dim is missing.
        head_dim=dim if dim is not None else max(config.needed("hidden_size", what) // heads, 1),
        gated=config.flag("gated_attention", False),
        window=config.needed("window", what) if sliding else None,
        indexer=_group_indexer(config) if indexed and not sliding else None,
        value_dim=None if values == dim else values,
    )


def _indexer(config: Config, ratio: int) -> Indexer | None:
    """Read the token indexer, if the family's entry has one; index_topk counts blocks, or keys of `ratio` tokens; index_budget tokens."""
    heads = config.count("index_heads")
    if heads is None:
        return None
    what = "sparse attention"
    chosen = config.count("index_topk")
    return Indexer(
        heads=heads,
        head_dim=config.needed("index_head_dim", what),
        budget=chosen * (config.count("index_block") or ratio) if chosen else config.needed("index_budget", what),
    )


def _group_indexer(config: Config) -> GroupIndexer | None:
    ratio = config.count("index_ratio") or 1
    own = _indexer(config, ratio)
    return GroupIndexer(own.heads, own.head_dim, own.budget, ratio) if own else None


def _latent_indexer(config: Config, layers: int) -> LatentIndexer | None:
    """Read the indexer of latent layers: all have one, those that a list names, or every so many after the first ones."""
    own = _indexer(config, 1)
    if own is None:
        return None
    said = config.figure("index_types")[1]
    every, first = config.count("index_every") or 1, config.count("index_offset", 2) or 0
    if isinstance(said, (list, tuple)) and len(said) >= layers:
        having = sum(each != "shared" for each in said[:layers])
    else:
        having = sum(max(layer - first + 1, 0) % every == 0 for layer in range(layers))
    if not having:
        return None
    return LatentIndexer(
        own.heads, own.head_dim, own.budget, config.count("index_ratio") or 1, None if having == layers else having
    )


def _compressed(config: Config, layers: int, ratio: int | None) -> Compressed:
    what = "compressed attention"
    indexed = ratio is not None and ratio == config.count("indexed_ratio")
    return Compressed(
        layers=layers,
        heads=config.needed("heads", what),
        head_dim=config.needed("head_dim", what),
        rope_dim=config.needed("rope_dim", what),
        q_lora_rank=config.needed("q_lora_rank", what),
        o_lora_rank=config.needed("o_lora_rank", what),
        o_groups=config.needed("o_groups", what),
        window=config.needed("window", what),
        ratio=ratio,
        indexer=_indexer(config, ratio) if indexed and ratio else None,
    )


def _lookup(config: Config) -> Lookup | None:
    layers, what = config.count("lookup_layers", 0), "a table of lookups"
    if not layers:
        return None
    return Lookup(
        layers=layers,
        rows=config.needed("lookup_rows", what),
        width=config.needed("lookup_width", what),
        conv=config.count("lookup_conv"),
    )


def _hyper(config: Config) -> Hyper | None:
    streams = config.count("hyper_streams")
    return Hyper(streams, config.needed("hyper_rank", "hyper-connections")) if streams else None


def _mla(config: Config, layers: int) -> Mla:
    what = "latent attention"
    return Mla(
        layers=layers,
        heads=config.needed("heads", what),
        kv_lora_rank=config.needed("kv_lora_rank", what),
        nope_dim=config.needed("nope_dim", what),
        rope_dim=config.needed("rope_dim", what, 0),  # some models give latent layers no positions
        v_dim=config.needed("v_dim", what),
        q_lora_rank=config.count("q_lora_rank"),
        indexer=_latent_indexer(config, layers),
    )


def _linear(config: Config, layers: int) -> Linear:
    kind = config.of.entry["mixer"].get("linear")
    if kind is None:
        raise Unread(
            f"{config.where}: {config.architecture} has linear attention layers of an unknown kind. "
            "Write the profile's facts by hand."
        )
    what = "linear attention"
    stored = config.of.entry.get("modules", {}).get("linear", {}).values()
    path, named = config.figure("state_dtype")
    if named is not None and str(named) not in _STATE_BYTES:
        raise config.wrong(path, named, f"one of {', '.join(_STATE_BYTES)}")
    return Linear(
        kind=kind,
        layers=layers,
        key_heads=config.needed("key_heads", what),
        key_dim=config.needed("key_dim", what),
        value_heads=config.needed("value_heads", what),
        value_dim=config.needed("value_dim", what),
        conv=config.count("conv") or 4,
        state_bytes=_STATE_BYTES[str(named or "float32")],
        gate_rank=config.count("gate_rank"),
        interleaved=kind == "gdn" and any({"qkv", "z"} <= set(parts) for parts in stored),
    )


def _moe(config: Config, layers: int) -> Moe:
    what = "a layer with experts"
    shared = config.count("shared_intermediate", 0) or 0
    copies = config.count("shared_experts", 0)
    if shared and copies is None and "shared_experts" in config.of.entry["reads"]:
        copies = 0  # files of this family state how many shared experts there are; this one does not
    return Moe(
        layers=layers,
        experts=config.needed("experts", what),
        top_k=config.needed("top_k", what),
        intermediate=config.needed("moe_intermediate", what),
        gated=config.flag("gated_experts", True),
        latent=config.count("latent"),
        shared_intermediate=shared * (1 if copies is None else copies),
    )


def _dense(config: Config, layers: int) -> Dense:
    width = config.needed("intermediate", "a dense layer")
    return Dense(layers=layers, intermediate=width, gated=config.flag("gated_dense", True))


def _fed(config: Config, kinds: t.Sequence[str]) -> tuple[Moe | None, Dense | None]:
    experts, dense = (sum(kind in (name, "both") for kind in kinds) for name in ("experts", "dense"))
    return _moe(config, experts) if experts else None, _dense(config, dense) if dense else None


def _diffusion(config: Config) -> Diffusion | None:
    canvas = config.count("canvas")
    if canvas is None:
        return None
    path, steps = config.figure("denoising_steps")
    if not isinstance(steps, (list, tuple)) or len(steps) != 3:
        raise config.wrong(path, steps, "three numbers: the minimum, usual and maximum number of steps")
    return Diffusion(canvas=canvas, steps=tuple(config.whole(each, path, 1) for each in steps))


def _head(config: Config, mixer: str, feed: str) -> Head | None:
    said = config.of.entry["head"]
    layers = config.layers(config.whole(find(said["layers"], config.data) or 0, said["layers"], 0), said["layers"])
    if not layers:
        return None
    mixer = said.get("mixer", mixer)
    moe, dense = _fed(config, [feed] * layers)
    return Head(
        attention=_attention(config, layers) if mixer == "attention" else None,
        mla=_mla(config, layers) if mixer == "mla" else None,
        compressed=_compressed(config, layers, None) if mixer == "compressed" else None,
        moe=moe,
        dense=dense,
    )


def _vision_params(config: Config) -> int:
    """Return the weights of the vision tower; 0 if there is none, or if the family's entry does not describe it."""
    said = config.of.entry.get("vision")
    tower = find(said["at"], config.data) if said else None
    if not said or not isinstance(tower, t.Mapping):
        return 0
    data = {**tower, "model": config.data}

    def side(path: str) -> int:
        value = find(path, data)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise CollectionError(
                f"{config.where}: {said['at']}.{path}: {value!r} is not a whole number of at least 0."
            )
        return int(value)

    width = side(said["width"])
    block = 4 * width**2 + (3 if said.get("gated") else 2) * width * side(said["intermediate"])
    return side(said["layers"]) * block + sum(
        math.prod(side(path) for path in matrix) for matrix in said.get("matrices", ())
    )


def read(config: Config) -> tuple[Facts, list[str], list[str]]:
    """Return the facts, and the kind of each layer's mixer and feed-forward block."""
    layers = config.layers(config.needed("layers", "every model"), config.figure("layers")[0])
    experts = config.count("experts", 0) or 0
    mixer = config.of.entry["mixer"].get("usual", "attention")
    feed = config.of.entry["feed"].get("with_experts", "experts") if experts else "dense"
    mixers = config.kinds("mixer", mixer, layers)
    feeds = config.kinds("feed", feed, layers, plain=not experts)
    counted = collections.Counter(mixers)
    moe, dense = _fed(config, feeds)
    facts = Facts(
        architecture=config.architecture,
        hidden_size=config.needed("hidden_size", "every model"),
        vocab_size=config.needed("vocab_size", "every model"),
        native_context=config.needed("native_context", "every model"),
        attention=tuple(
            _attention(config, number, kind == "sliding", kind == "sparse" or "sparse" not in counted)
            for kind, number in counted.items()
            if kind in ("attention", "sliding", "sparse")
        ),
        mla=_mla(config, counted["mla"]) if counted["mla"] else None,
        compressed=tuple(
            _compressed(config, number, ratio) for ratio, number in collections.Counter(config.ratios(layers)).items()
        )
        if counted["compressed"]
        else (),
        linear=_linear(config, counted["linear"]) if counted["linear"] else None,
        moe=moe,
        dense=dense,
        head=_head(config, mixer, feed),
        lookup=_lookup(config),
        hyper=_hyper(config),
        tied_embeddings=config.flag("tied_embeddings", False),
        first_layer=config.of.entry.get("first_layer", "attention"),
        position=config.of.entry.get("position", "rope"),
        vision_params=_vision_params(config),
        diffusion=_diffusion(config),
    )
    return facts, mixers, feeds


def model_facts(
    config: t.Mapping[str, t.Any],
    quant: t.Mapping[str, t.Any] | None = None,
    overlays: t.Sequence[str] = (),
    where: str = "config.json",
    stored: t.Mapping[str, str] | None = None,
) -> Plain:
    """Return what a profile states about a model, from the model's own files.

    config: its config.json. quant: its hf_quant_config.json, read if config.json has no quantization.
    overlays: the owner's knowledge folders. where: the file's name in errors. stored: the format of each module by
    its tensors (`checkpoint.formats`), read if neither file states quantization.

    family: the entry of knowledge/architectures/ used to read it; None: no entry matches. facts and precision have the form
    of the profile keys of the same names; facts is None if the family is unknown and the file has keys that the standard reading
    would misread. quantization: `method` of the checkpoint, and its `kv_cache`. drafter: for a draft model, the contents of the
    profile key of the same name, except the model's name. stated: the plain figures in the file, also if facts is None.
    inferred: keys of the result that the file does not state. unread: what could not be read or is not counted, one sentence
    each: for findings.

    Raises CollectionError, naming file and key, for a value of the wrong type, and for a missing key or an unknown kind of layer
    if the family is known (for an unknown family it goes into unread, and facts is None).
    """
    for name, given in ((where, config), ("hf_quant_config.json", {} if quant is None else quant)):
        if not isinstance(given, t.Mapping):
            raise CollectionError(f"{name}: a dictionary is needed, not {type(given).__name__}.")
    of = family(config, where, overlays)
    own = Config(config, of, where)
    answer: Plain = {
        "family": of.id if of.known else None,
        "facts": None,
        "precision": {},
        "quantization": {"method": None, "kv_cache": None},
        "drafter": None,
        "stated": {
            name: value
            for name in ("hidden_size", "vocab_size", "native_context", "layers")
            if (value := own.count(name)) is not None
        },
        "inferred": [],
        "unread": [f"{where}: {own.architecture}: not counted: {what}." for what in own.remarks("uncounted")],
    }
    if "vision" not in of.entry and isinstance(own.data.get("vision_config"), t.Mapping):
        answer["unread"].append(f"{where}: {own.architecture}: not counted: the vision tower (vision_config).")
    if not of.known:
        strange = own.remarks("not_plain")
        if strange:
            answer["unread"].append(
                f"{where}: the architecture {own.architecture} is not known here, and it is not a plain transformer: what could not be "
                f"read is {'; '.join(strange)}. Write the profile's facts by hand, or describe the family in architectures/ of "
                "dgxspark_knowledge_dirs."
            )
            return answer
    try:
        facts, mixers, feeds = read(own)
    except Unread as exc:
        if of.known:
            raise
        answer["unread"].append(str(exc))
        return answer
    if not of.known:
        answer["inferred"].append("facts")
        answer["unread"].append(
            f"{where}: the architecture {own.architecture} is not known here: it was read as a plain transformer."
        )
    answer["facts"] = _plain(facts)
    from_plain(Facts, answer["facts"], where)  # verify that the profile reader accepts it
    found = config_precision.read(own, facts, mixers, feeds, quant, overlays, stored)
    answer["precision"] = found.precision
    answer["quantization"] = {"method": found.method, "kv_cache": found.kv_cache}
    answer["inferred"] += found.inferred
    answer["unread"] += found.unread
    if "drafter" in of.entry:
        whole = sum(item.params for item in tensors(facts, collections.defaultdict(lambda: "bf16")))
        answer["drafter"] = {"params": round(whole), "precision": "bf16", **of.entry["drafter"]}
        if not of.entry["drafter"].get("frozen_kv"):
            answer["drafter"]["attention"] = answer["facts"]["attention"]
    return answer
