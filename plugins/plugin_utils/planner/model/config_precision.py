# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a checkpoint stores each kind of tensor: its list of quantized modules, looked up for every module of every layer.

The list is `quantization_config` of config.json (ModelOpt, compressed-tensors, FP8, MXFP4, AWQ, GPTQ) or ModelOpt's
hf_quant_config.json. A module is excluded, named with its own format, or in the default format. Router, embeddings,
output layer and convolutions never get the default format: engines leave them unquantized unless they are named.
"""

from __future__ import annotations

import collections
import fnmatch
import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.expressions import Expression

from .checkpoint import entries
from .config_json import Config, Unread, find
from .model import Facts, Head, head_params
from .sparse import compressed_parts, hyper_params, indexer_params, latent_index_params

PLAIN = "bf16"
_UNUSUAL = ("router", "embeddings")  # kinds that are quantized only if named
_WHOLE = ("experts", "head")  # kinds for which a profile holds only one format
_TRIFLE = 1000  # a share below one in this many is not reported, as norms are not counted
Tree = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class Stored:
    """What was read: precision in a profile's form, the tool's name, the cache's format, and what is uncertain."""

    precision: dict[str, t.Any] = field(default_factory=dict)
    method: str | None = None
    kv_cache: str | None = None
    inferred: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Module:
    """One module of one layer: its kind, its name without prefixes, its weights."""

    kind: str
    name: str
    params: int
    unusual: bool = False


def _any(forms: t.Sequence[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(f"(?:{form})" for form in forms)) if forms else None


def _expression(name: str) -> Expression:
    return Expression(name.removeprefix("re:"), "quantization_config")


class Names:
    """A list of modules as checkpoints write them.

    A name, or one with `*`, also covers everything inside it, and a name may be a suffix (ModelOpt, transformers); a regular
    expression (`re:`, compressed-tensors) covers only the modules it matches.
    """

    def __init__(self, given: t.Iterable[str]) -> None:
        names = list(given)
        self.expressions = [_expression(name) for name in names if name.startswith("re:")]
        plain = [name for name in names if not name.startswith("re:")]
        wild = [name for name in plain if "*" in name or "?" in name]
        # Most lists have one pattern per layer, with its only `*` at the end: those need no regular expression.
        begins = [name for name in wild if not set(name[:-1]) & set("*?[") and name.endswith("*")]
        self.begins = tuple(name[:-1] for name in begins)
        self.wild = _any([fnmatch.translate(name) for name in wild if name not in begins])
        self.exact = set(plain).difference(wild)

    def have(self, name: str, prefixes: t.Sequence[str]) -> bool:
        """Whether the list contains a module, by its name with any of the prefixes."""
        parts = name.split(".")
        if any(".".join(parts[at:]) in self.exact for at in range(len(parts))):
            return True
        if any(each.match(prefix + name) for each in self.expressions for prefix in prefixes):
            return True
        if any((prefix + name).startswith(self.begins) for prefix in prefixes):
            return True
        above = [prefix + ".".join(parts[:end]) for prefix in prefixes for end in range(1, len(parts) + 1)]
        return any(each in self.exact or (self.wild is not None and self.wild.match(each)) for each in above)


@dataclass(frozen=True)
class Scheme:
    """A checkpoint's list. usual: the format of modules that it does not name; None: they are not quantized."""

    method: str | None = None
    kv_cache: str | None = None
    usual: str | None = None
    left_out: Names = field(default_factory=lambda: Names(()))
    named: tuple[tuple[Names, str], ...] = ()
    unread: tuple[str, ...] = ()

    def format(self, module: Module, prefixes: t.Sequence[str]) -> str:
        """Return the format of one module."""
        if self.left_out.have(module.name, prefixes):
            return PLAIN
        for names, form in self.named:
            if names.have(module.name, prefixes):
                return form
        return PLAIN if module.unusual or self.usual is None else self.usual


class _Formats:
    """The tools' names for the formats."""

    def __init__(self, entries: t.Iterable[Tree]) -> None:
        self.entries = tuple(entries)

    def by(self, key: str, name: t.Any) -> str | None:
        return next((str(each["id"]) for each in self.entries if name in each.get(key, ())), None)

    def of(self, weights: t.Any) -> str | None:
        """Return the format of a weight scheme such as `{num_bits: 4, type: float, group_size: 16}`."""
        if not isinstance(weights, t.Mapping):
            return None
        for each in self.entries:
            for known in each.get("weights", ()):
                if all(weights.get(key) == value for key, value in known.items()):
                    return str(each["id"])
        return None

    def cache(self, stated: t.Any) -> str | None:
        return self.of(stated) if isinstance(stated, t.Mapping) else self.by("algorithms", stated)


def _names(stated: Tree, key: str, where: str) -> list[str]:
    given = stated.get(key) or []
    if not isinstance(given, (list, tuple)) or not all(isinstance(name, str) for name in given):
        raise CollectionError(f"{where}: {key}: a list of modules is needed, not {given!r}.")
    return list(given)


def _groups(groups: t.Any, where: str, formats: _Formats) -> tuple[str | None, list[tuple[Names, str]], list[str]]:
    """Read config_groups: the default format (a group for all linear layers), formats of named modules, and unknown entries."""
    if not isinstance(groups, t.Mapping):
        raise CollectionError(f"{where}: config_groups: a dictionary is needed, not {groups!r}.")
    usual, named, unread = None, [], []
    for name, group in groups.items():
        if not isinstance(group, t.Mapping):
            raise CollectionError(f"{where}: config_groups.{name}: a dictionary is needed, not {group!r}.")
        weights = group.get("weights")
        form = formats.of(weights)
        if form is None:
            keys = ("num_bits", "type", "group_size")
            shown = {key: weights.get(key) for key in keys} if isinstance(weights, t.Mapping) else weights
            unread.append(f"{where}: config_groups.{name}: weights {shown}: unknown format.")
            continue
        targets = _names(group, "targets", where) or ["Linear"]
        # A layer class has no dot and starts with a capital letter.
        if any(re.match(r"[A-Z]\w*$", target) for target in targets):
            usual = form
        modules = [target for target in targets if not re.match(r"[A-Z]\w*$", target)]
        if modules:
            named.append((Names(modules), form))
    return usual, named, unread


def scheme(stated: Tree, where: str, formats: t.Iterable[Tree]) -> Scheme:
    """Read a checkpoint's list. CollectionError names the key of a value of the wrong type."""
    known = _Formats(formats)
    producer = stated.get("producer")
    made_by = producer.get("name") if isinstance(producer, t.Mapping) else None
    method, algorithm = stated.get("quant_method") or made_by, stated.get("quant_algo")
    layers = stated.get("quantized_layers") or {}
    if not isinstance(layers, t.Mapping) or not all(isinstance(each, t.Mapping) for each in layers.values()):
        raise CollectionError(f"{where}: quantized_layers: a dictionary keyed by module is needed.")
    usual = known.by("methods", method) or known.by("algorithms", algorithm)
    named: list[tuple[Names, str]] = []
    unread: list[str] = []
    bits = stated.get("bits", stated.get("w_bit"))
    if usual == "int4":
        if bits not in (None, 4):
            unread.append(f"{where}: bits: {bits}-bit weights are not known.")
            usual = None
        else:
            usual = known.of({"num_bits": 4, "type": "int", "group_size": stated.get("group_size")})
    by_format = collections.defaultdict(list)
    for name, each in layers.items():
        by_format[str(each.get("quant_algo"))].append(str(name))
    for each_algorithm, names in by_format.items():
        form = known.by("algorithms", each_algorithm)
        if form is None:
            unread.append(f"{where}: quantized_layers: {each_algorithm!r} ({names[0]}) is not a known format.")
        else:
            named.append((Names(names), form))
    if not layers and stated.get("config_groups") and usual is None:
        usual, named, unread = _groups(stated["config_groups"], where, known)
    if usual is None and not named and not unread and method != algorithm:
        unread.append(f"{where}: quant_method {method!r}, quant_algo {algorithm!r}: no known way to store tensors.")
    left_out = [
        name
        for key in ("ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers")
        for name in _names(stated, key, where)
    ]
    cache = stated.get("kv_cache_quant_algo") or stated.get("kv_cache_scheme")
    return Scheme(
        str(method) if method else None, known.cache(cache), usual, Names(left_out), tuple(named), tuple(unread)
    )


def _by_tensors(tensors: t.Mapping[str, str]) -> Scheme:
    """Build a list of modules from the tensors' names."""
    held = collections.defaultdict(list)
    for module, form in tensors.items():
        held[form].append(module)
    return Scheme(named=tuple((Names(names), form) for form, names in held.items() if form != PLAIN))


def _sizes(facts: Facts, kind: str, own: t.Any) -> dict[str, int]:
    """Return the weights of each part of one layer's block."""
    hidden = facts.hidden_size
    if kind == "attention":
        width, out = own.heads * own.head_dim, own.heads * own.values
        keys, values = (hidden * own.kv_heads * each for each in (own.head_dim, own.values))
        index = indexer_params(own.indexer, hidden) if own.indexer else 0
        return {
            "q": hidden * width * (2 if own.gated else 1),
            "k": keys,
            "v": values,
            "o": out * hidden,
            "index": index,
        }
    if kind == "compressed":
        return compressed_parts(own, hidden)
    if kind == "mla":
        query = own.heads * (own.nope_dim + own.rope_dim)
        rank = own.q_lora_rank
        queries, keys = latent_index_params(own.indexer, hidden, rank or hidden, own.layers) if own.indexer else (0, 0)
        return {
            "index": queries,
            "index_k": keys,
            "q": 0 if rank else hidden * query,
            "q_a": hidden * rank if rank else 0,
            "q_b": rank * query if rank else 0,
            "kv_a": hidden * (own.kv_lora_rank + own.rope_dim),
            "kv_b": own.kv_lora_rank * own.heads * (own.nope_dim + own.v_dim),
            "o": own.heads * own.v_dim * hidden,
        }
    if kind == "linear":
        by_value, by_head = own.gates(hidden)
        return {
            "qkv": hidden * own.conv_width,
            "z": by_value,
            "gate": by_head,
            "out": own.inner * hidden,
            "conv": own.conv_width * own.conv,
        }
    if kind == "dense":
        each = hidden * own.intermediate
    elif kind == "experts":
        each = own.experts * (own.latent or hidden) * own.intermediate
    elif kind == "shared_experts":
        each = hidden * own.shared_intermediate
    else:
        each = hidden * (own.latent or 0) if kind == "latent" else own.experts * hidden
    return {"gate": each if own.gated else 0, "up": each, "down": each, "all": each}


def _names_of(config: Config, kind: str) -> t.Mapping[str, t.Any]:
    """Return the modules of a kind by name. Raises Unread if the family's entry names none, as an owner's entry may."""
    said: t.Mapping[str, t.Any] | None = config.of.entry["modules"].get(kind)
    if said is None:
        raise Unread(
            f"{config.where}: {config.architecture} has layers of the kind {kind}, and modules.{kind} of its family names none of "
            "their modules: how they are stored cannot be read. Add it to the family's entry in architectures/ of "
            "dgxspark_knowledge_dirs, or write the profile's facts by hand."
        )
    return said


def _block(config: Config, facts: Facts, kind: str, own: t.Any, prefix: str) -> list[Module]:
    """List one block's modules. A part that several modules hold is split evenly."""
    sizes = _sizes(facts, kind, own)
    said = _names_of(config, kind)
    holders = collections.Counter(part for parts in said.values() for part in parts)
    found = []
    for name, parts in said.items():
        params = sum(sizes[part] // holders[part] for part in parts)
        if params:
            told = "attention" if kind in ("mla", "compressed") else kind
            found.append(
                Module(
                    told, f"{prefix}.{name}", params, kind in _UNUSUAL or parts[0] in ("conv", "compress", "index_k")
                )
            )
    return found


def _fed(config: Config, facts: Facts, block: Facts | Head, feed: str, prefix: str) -> list[Module]:
    found = []
    if feed in ("dense", "both") and block.dense:
        found += _block(config, facts, "dense", block.dense, prefix)
    if feed in ("experts", "both") and block.moe:
        kinds = ["experts", "router"] + ["latent"] * bool(block.moe.latent)
        for kind in kinds + ["shared_experts"] * bool(block.moe.shared_intermediate):
            found += _block(config, facts, kind, block.moe, prefix)
    return found


def _head(config: Config, facts: Facts, head: Head, layers: int) -> list[Module]:
    """List the prediction head's modules: those of each of its layers, and the one that joins it to the model."""
    found: list[Module] = []
    feed = "both" if head.moe and head.dense else "experts" if head.moe else "dense"
    prefix = ""
    for stage in range(head.layers):
        prefix = config.of.entry["head"]["name"].format(layers=layers + stage, stage=stage)
        mixer = "attention" if head.attention else "mla" if head.mla else "compressed"
        found += _block(config, facts, mixer, head.attention or head.mla or head.compressed, prefix)
        found += _fed(config, facts, head, feed, prefix)
    found.append(Module("head", f"{prefix}.eh_proj", head_params(facts, head), True))
    return [Module("head", each.name, each.params, each.unusual) for each in found]


def _named(config: Config, kind: str) -> str:
    """Return the family's first name for a kind that counts as one module; the kind's own name if there is none."""
    return str(next(iter(config.of.entry["modules"].get(kind, (kind,)))))


def modules(config: Config, facts: Facts, mixers: t.Sequence[str], feeds: t.Sequence[str]) -> list[Module]:
    """List all modules whose weights are counted (`model.tensors`); those of the prediction head have the kind `head`."""
    found = []
    whole = sorted((each for each in facts.attention if each.window is None), key=lambda each: each.indexer is not None)
    sliding = next((each for each in facts.attention if each.window is not None), None)
    own = {"mla": facts.mla, "linear": facts.linear, "sliding": sliding}
    own |= {"attention": whole[0], "sparse": whole[-1]} if whole else {}
    by_ratio = {each.ratio: each for each in facts.compressed}
    ratios = config.ratios(len(mixers)) if facts.compressed else []
    for layer, (mixer, feed) in enumerate(zip(mixers, feeds, strict=True)):
        prefix = f"layers.{layer}"
        if mixer == "compressed":
            found += _block(config, facts, mixer, by_ratio[ratios[layer]], prefix)
        elif mixer != "none":
            kind = "attention" if mixer in ("sliding", "sparse") else mixer
            found += _block(config, facts, kind, own[mixer], prefix)
        found += _fed(config, facts, facts, feed, prefix)
    tables = list(config.of.entry["modules"]["embeddings"])[: 1 if facts.tied_embeddings else 2]
    found += [Module("embeddings", name, facts.vocab_size * facts.hidden_size, True) for name in tables]
    if facts.vision_params:
        # A list among the language model's keys covers only the language model.
        alone = "quantization_config" not in config.top
        found.append(Module("vision", _named(config, "vision"), int(facts.vision_params), alone))
    if facts.lookup:
        found.append(Module("lookup", _named(config, "lookup"), facts.lookup.params, True))
    if facts.hyper:
        params = hyper_params(facts.hyper, facts.hidden_size, facts.blocks)
        found.append(Module("hyper", _named(config, "hyper"), params, True))
    if facts.head:
        found += _head(config, facts, facts.head, len(mixers))
    return found


def _written(counted: t.Mapping[str, int]) -> str | dict[str, t.Any]:
    """Format weight counts by format as profiles do: one format, or counts plus `rest` for the most common one."""
    most = max(counted, key=lambda form: counted[form])
    whole = sum(counted.values())
    told = {form: number for form, number in sorted(counted.items()) if form != most and number * _TRIFLE >= whole}
    return {**told, "rest": most} if told else most


def _said(config: Config) -> tuple[list[tuple[tuple[str, ...], str]], dict[str, str]]:
    """List the formats that a kind's own key states: the suffixes of its modules' names, and the format.

    Also return, by kind, the stated formats that are unknown.
    """
    found, unknown = [], {}
    for kind, stored in config.of.entry.get("stored", {}).items():
        named = find(stored["read"], config.data)
        if named is not None and not isinstance(named, str):
            raise config.wrong(stored["read"], named, "the name of a format")
        form = stored["formats"].get(named)
        if form:
            found.append((tuple(_names_of(config, kind)), str(form)))
        elif named is not None:
            unknown[kind] = (
                f"{config.where}: {stored['read']}: {named!r} is not a known format ({', '.join(stored['formats'])}): "
                f"how {kind} are stored is taken from the list of modules."
            )
    return found, unknown


def read(
    config: Config,
    facts: Facts,
    mixers: t.Sequence[str],
    feeds: t.Sequence[str],
    quant: Tree | None = None,
    overlays: t.Sequence[str] = (),
    tensors: t.Mapping[str, str] | None = None,
) -> Stored:
    """Return how the checkpoint stores each kind of tensor. As in profiles, BF16 kinds are left out.

    tensors: each module's format by its tensors (`checkpoint.formats`), used if no list of modules is stated.
    """
    where = f"{config.where}: quantization_config"
    stated = config.data.get("quantization_config") or config.data.get("compression_config")
    if not stated and quant:
        where, inner = "hf_quant_config.json", quant.get("quantization", quant)
        stated = {"quant_method": "modelopt", **inner} if isinstance(inner, t.Mapping) else inner
    if stated is not None and not isinstance(stated, t.Mapping):
        raise CollectionError(f"{where}: a dictionary is needed, not {stated!r}.")
    held = dict(config.of.entry["held"]) if facts.moe else {}
    if not stated and not tensors:
        return Stored(held)
    known = entries(overlays)
    plan = scheme(stated, where, known) if stated else _by_tensors(tensors or {})
    if plan.unread:
        return Stored(held, plan.method, plan.kv_cache, ["precision"], list(plan.unread))
    counted: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    prefixes = config.of.entry["prefixes"]
    said, unknown = _said(config)
    unseen: set[str] = set()
    seen = Names(tensors) if tensors and not stated else None
    for module in modules(config, facts, mixers, feeds):
        own = next((form for ends, form in said if module.name.endswith(ends)), None)
        counted[module.kind][own or plan.format(module, prefixes)] += module.params
        if seen and not module.unusual and module.kind != "head" and not seen.have(module.name, prefixes):
            unseen.add(module.kind)
    precision = {kind: _written(forms) for kind, forms in counted.items()}
    inferred = [f"precision.{kind}" for kind in sorted(unseen | unknown.keys())]
    for kind in _WHOLE:
        stored = precision.get(kind)
        if isinstance(stored, dict):
            precision[kind] = stored["rest"]
            if counted[kind][stored["rest"]] < 0.9 * counted[kind].total():
                inferred.append(f"precision.{kind}")
    precision = {kind: form for kind, form in precision.items() if form != PLAIN} | held
    return Stored(precision, plan.method, plan.kv_cache, inferred, list(unknown.values()))
