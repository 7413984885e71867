# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rule may ask: the facts of a plan as one document. Anything that needs arithmetic is computed and named here.

The types are its JSON Schema (`schema`) and the guide's tables (`described`); facts.py makes the document.
"""

from __future__ import annotations

import functools
import types
import typing as t


class Model(t.TypedDict, total=False):
    """The model, at this split and engine version. All but `known`, `drafter` and `frozen_drafter` are missing for an unknown model."""

    known: t.Annotated[bool, "its facts are known"]
    drafter: t.Annotated[bool, "there is a drafter: the profile's, or one that the settings name"]
    frozen_drafter: t.Annotated[bool, "the drafter reads the model's own cache"]
    architecture: t.Annotated[str, "its class, as config.json names it"]
    hybrid: t.Annotated[bool, "layers of linear attention beside those of full attention"]
    linear: t.Annotated[str | None, "the kind of its linear layers: mamba2 or gdn"]
    experts: t.Annotated[int, "routed experts; 0: none"]
    experts_per_gpu: t.Annotated[int, "of them, with this split"]
    gated_experts: t.Annotated[bool, "experts have a gate"]
    expert_rows: t.Annotated[int, "rows of an expert's first matrix on one GPU"]
    expert_rows_rest: t.Annotated[int, "of them, modulo 128"]
    latent: t.Annotated[bool, "experts work in a smaller, latent width"]
    head_dim_max: t.Annotated[int, "the widest attention head"]
    latent_indexer: t.Annotated[bool, "an indexer selects the tokens that its latent attention reads"]
    indexer_ratio: t.Annotated[int, "an indexer of attention caches one key per this many tokens; 0: none"]
    value_dims_differ: t.Annotated[bool, "layers with a window have values of a different width"]
    merge_state_threads: t.Annotated[int, "threads per block of FlashInfer's MergeState; CUDA launches 1024 at most"]
    kv_heads_misfit: t.Annotated[int | None, "a number of KV heads that does not fit tp"]
    position: t.Annotated[str, "how positions are encoded; none: not at all"]
    first_layer: t.Annotated[str, "the kind of the first layer"]
    head: t.Annotated[bool, "the checkpoint has a prediction head (MTP)"]
    sliding: t.Annotated[bool, "layers with a window"]
    vision: t.Annotated[bool, "it reads pictures"]
    canvas: t.Annotated[int | None, "tokens of a denoised block; null: it does not denoise"]
    native_context: t.Annotated[int, "tokens it was made for"]
    tied_embeddings: t.Annotated[bool, "input and output share an embedding"]
    pipeline: t.Annotated[
        bool | None, "its class can be split by layers in this version; null: not read there, as for the next ones"
    ]
    start_layer: t.Annotated[bool | None, "a stage tells its own layers"]
    balanced: t.Annotated[bool | None, "experts can be balanced between GPUs"]
    states_all: t.Annotated[bool | None, "with prefix caching, states are kept at every block"]
    registered: t.Annotated[bool | None, "the version has its class"]
    transformers: t.Annotated[bool | None, "the Transformers backend may serve it, where the version has no class"]
    config_unknown: t.Annotated[bool | None, "the version has the class, and nothing there knows the configuration"]
    mtp_refused: t.Annotated[bool | None, "the version rejects method mtp for it"]
    class_versions: t.Annotated[str, "the versions that have the class"]


class Quant(t.TypedDict):
    """How the checkpoint is quantized, as far as it decides the kernels."""

    tool: t.Annotated[str, "what quantized it: modelopt, compressed-tensors, unknown or none"]
    method: t.Annotated[str | None, "the checkpoint's own quant_method; none: it is not quantized; null: not known"]
    asked: t.Annotated[str | None, "the method that is set or follows; null where only the running engine decides"]
    stored: t.Annotated[list[str], "formats in the checkpoint"]
    experts: t.Annotated[str | t.Mapping[str, t.Any] | None, "the experts' format"]
    dense_fp4: t.Annotated[bool, "FP4 layers outside the routed experts"]


class Parallel(t.TypedDict):
    """The split."""

    nodes: t.Annotated[int, "Sparks"]
    tp: t.Annotated[int, "tensor parallelism"]
    pp: t.Annotated[int, "pipeline stages"]
    ep: t.Annotated[int, "expert parallelism"]
    tp_pp: t.Annotated[int, "ranks"]
    tp_alone: t.Annotated[int | None, "the most of these ranks that tensor parallelism alone can use; null: not known"]
    ep_alone: t.Annotated[int, "the matching expert parallelism"]


class Engine(t.TypedDict):
    """The engine."""

    name: t.Annotated[str, "sglang or vllm"]
    version: t.Annotated[str, "its version"]


class Image(t.TypedDict):
    """The image."""

    name: t.Annotated[str | None, "as the profile names it"]
    features: t.Annotated[
        dict[str, bool | None], "what it has, by name (knowledge/schema/images.json); null: not known"
    ]


class Patches(t.TypedDict):
    """The launch's start-up patches."""

    known: t.Annotated[bool, "they are decided; false while their own conditions are evaluated"]
    scheduled: t.Annotated[list[str], "their ids (knowledge/patches)"]


class Speculation(t.TypedDict, total=False):
    """Speculative decoding. Without it, `steps`, `topk` and `tokens` are missing."""

    on: t.Annotated[bool, "it is used"]
    algorithm: t.Annotated[str, "in capitals, as SGLang names it; vLLM's method"]
    steps: t.Annotated[int, "steps of the drafter"]
    topk: t.Annotated[int, "branches of each step"]
    tokens: t.Annotated[int, "draft tokens that are verified at once"]
    drafter: t.Annotated[bool, "the settings name a drafter"]


class Graphs(t.TypedDict):
    """CUDA graphs."""

    max_bs: t.Annotated[int | None, "the largest captured batch"]
    running: t.Annotated[t.Any, "requests at once"]
    over: t.Annotated[bool, "more requests than the largest captured batch"]


class Context(t.TypedDict):
    """The context."""

    length: t.Annotated[int | None, "tokens, as set; else the model's own"]
    native: t.Annotated[int | None, "tokens that the model was made for"]
    over_native: t.Annotated[bool, "longer than that"]


class Chunk(t.TypedDict):
    """Chunks of a prefill."""

    uneven: t.Annotated[bool, "a chunk is not a whole number of the cache's pages"]


class Memory(t.TypedDict, total=False):
    """One rank's memory in GiB. All but `known` are missing for an unknown model. …most: with the most free memory possible, where it was not measured."""

    known: t.Annotated[bool, "it was planned"]
    free_gib: t.Annotated[float, "free before the load"]
    free_assumed: t.Annotated[bool, "that was not measured"]
    free_most_gib: t.Annotated[float, "the most that may be free"]
    free_even: t.Annotated[
        float,
        "free on the node with the least, in % of what the one with the most has; 100 where it was not measured",
    ]
    free_needed_gib: t.Annotated[float, "what the chosen knob needs to be free"]
    weights_gib: t.Annotated[float, "weights"]
    weights_measured: t.Annotated[bool, "they were measured with this split"]
    load_peak_gib: t.Annotated[float, "the most during the load"]
    load_peak_over: t.Annotated[bool, "that is more than is free, though the weights fit"]
    mamba_gib: t.Annotated[float, "states of linear layers"]
    kv_gib: t.Annotated[float, "cache"]
    kv_most_gib: t.Annotated[float, "cache"]
    kv_high_gib: t.Annotated[float, "the most the cache may hold"]
    draft_gib: t.Annotated[float, "drafter"]
    sampler_gib: t.Annotated[float, "sampler"]
    sampler_needed_gib: t.Annotated[float, "what the sampler needs"]
    reserve_gib: t.Annotated[float, "left outside the pools"]
    reserve_most_gib: t.Annotated[float, "left outside the pools"]
    reserve_needed_gib: t.Annotated[float, "needed there, with activations, which are an estimate"]
    reserve_least_gib: t.Annotated[float, "certainly needed there"]
    floor: t.Annotated[float, "the knob's least value"]
    floor_most: t.Annotated[float, "the knob's least value"]
    ceiling: t.Annotated[float, "its greatest"]
    ceiling_most: t.Annotated[float, "its greatest"]
    chosen: t.Annotated[float, "its value"]
    fits: t.Annotated[bool, "some value leaves room for the cache and for what is outside it"]
    suggested: t.Annotated[float | None, "such a value"]
    kv_tokens: t.Annotated[int, "tokens of cache"]
    kv_tokens_most: t.Annotated[int, "tokens of cache"]
    kv_tokens_high: t.Annotated[int, "the most tokens it may hold"]
    max_running_requests: t.Annotated[int | None, "requests that fit at once"]
    mamba_slots: t.Annotated[int | None, "states that fit"]
    slots_per_request: t.Annotated[int | None, "states of a request"]
    slots_for_eight: t.Annotated[int | None, "states of eight requests"]
    blocks: t.Annotated[int | None, "blocks of vLLM's cache"]
    block_tokens: t.Annotated[int | None, "tokens of a block"]


class PlanDocument(t.TypedDict):
    """What a rule may ask of a plan."""

    model: Model
    quant: Quant
    parallel: Parallel
    engine: Engine
    image: Image
    patches: Patches
    settings: t.Annotated[t.Mapping[str, t.Any], "the settings that the engine runs with, by canonical name"]
    environment: t.Annotated[list[str], "names of the variables that the profile sets; their values may be secret"]
    speculation: Speculation
    graphs: Graphs
    context: Context
    chunk: Chunk
    memory: Memory


_NAMES = {bool: "boolean", int: "integer", float: "number", str: "string", types.NoneType: "null"}


def _parts(of: t.Any) -> dict[str, t.Any]:
    return t.get_type_hints(of, include_extras=True)


@functools.cache
def facts() -> dict[str, tuple[str, ...]]:
    """Return the names of the facts by part; a part whose names are open has none."""
    return {part: tuple(_parts(of)) if t.is_typeddict(of) else () for part, of in _parts(PlanDocument).items()}


def _schema(of: t.Any) -> dict[str, t.Any]:
    if t.get_origin(of) is t.Annotated:
        inner, text = t.get_args(of)
        return {**_schema(inner), "description": text}
    if t.is_typeddict(of):
        fields = {key: _schema(value) for key, value in _parts(of).items()}
        needed = sorted(of.__required_keys__)
        return {
            "type": "object",
            "description": str(of.__doc__),
            "properties": fields,
            "additionalProperties": False,
            **({"required": needed} if needed else {}),
        }
    if t.get_origin(of) in (types.UnionType, t.Union):
        return {"anyOf": [_schema(one) for one in t.get_args(of)]}
    if t.get_origin(of) is list:
        return {"type": "array", "items": _schema(t.get_args(of)[0])}
    if of is t.Any:
        return {}
    return {"type": _NAMES[of]} if of in _NAMES else {"type": "object"}


def schema() -> dict[str, t.Any]:
    """Return the document's JSON Schema."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What a rule may ask",
        **_schema(PlanDocument),
    }


def described() -> list[tuple[str, str, list[tuple[str, str, str]]]]:
    """Return each part with its text and its facts: name, type and meaning."""
    found = []
    for part, of in _parts(PlanDocument).items():
        if t.is_typeddict(of):
            rows = [(key, _said(t.get_args(each)[0]), t.get_args(each)[1]) for key, each in _parts(of).items()]
            found.append((part, str(of.__doc__), rows))
        else:
            found.append((part, f"{t.get_args(of)[1].capitalize()}.", []))
    return found


def _said(of: t.Any) -> str:
    """Return a type as people say it."""
    made = _schema(of)
    kinds = [each.get("type", "anything") for each in made.get("anyOf", [made])]
    return " or ".join("object" if kind == "object" else kind for kind in kinds)
