# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What rules may ask: the plan's facts as one plain document. Whatever needs arithmetic is computed here and named.

model: known, architecture, hybrid, linear (mamba2, gdn), experts, experts_per_gpu, gated_experts, expert_rows (of an
expert's first matrix on one GPU), expert_rows_rest (modulo 128), latent, head_dim_max, position, first_layer, head,
drafter, frozen_drafter, sliding, native_context. quant: tool (modelopt, compressed-tensors, none), experts (precision),
dense_fp4 (FP4 layers outside the routed experts). parallel: nodes, tp, pp, ep, tp_pp. engine: name, version.
image: name, features (true, false, null = unknown). settings: the plan's. speculation: on, algorithm, steps, topk,
tokens. graphs: max_bs, running, over. context: length, native, over_native. memory: see `memory_facts`.
"""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.memory import Pools
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.model import Format
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.profile import Profile
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.speculation import Draft

Document = dict[str, t.Any]


@functools.cache
def image_features() -> tuple[str, ...]:
    """Return the names of the features that an image may have: those of its schema."""
    return tuple(knowledge.schema("images")["properties"]["features"]["properties"])


def model_facts(profile: Profile) -> Document:
    """Return what rules may ask of the model; all but `known` and `drafter` are None where it is not known."""
    facts = profile.facts
    drafter = profile.drafter
    asked: Document = {
        "known": facts is not None,
        "drafter": drafter is not None or bool(profile.settings.get("speculative_draft_model_path")),
        "frozen_drafter": bool(drafter and drafter.frozen_kv),
    }
    if facts is None:
        return asked
    moe, cut = facts.moe, profile.cut
    asked |= {
        "architecture": facts.architecture,
        "hybrid": facts.hybrid,
        "linear": facts.linear.kind if facts.linear else None,
        "experts": moe.experts if moe else 0,
        "latent": bool(moe and moe.latent),
        "head_dim_max": facts.head_dim_max,
        "position": facts.position,
        "first_layer": facts.first_layer,
        "head": facts.head is not None,
        "sliding": any(a.window for a in facts.attention),
        "native_context": facts.native_context,
    }
    if moe:
        rows = (2 if moe.gated else 1) * moe.intermediate * cut.ep // cut.tp
        asked |= {
            "gated_experts": moe.gated,
            "experts_per_gpu": moe.experts // cut.ep,
            "expert_rows": rows,
            "expert_rows_rest": rows % 128,
        }
    return asked


def _holds_fp4(stored: Format) -> bool:
    """Whether a kind of tensors has some in FP4: kernels are needed for one layer as for all."""
    names = {stored} if isinstance(stored, str) else {*stored, stored["rest"]}
    return not names.isdisjoint(("nvfp4", "mxfp4"))


def quant_facts(profile: Profile) -> Document:
    """Return how the checkpoint is quantized, as far as kernels are chosen by it."""
    named = str(profile.settings.get("quantization") or "")
    tool = "modelopt" if named.startswith("modelopt") else named if named == "compressed-tensors" else "none"
    facts, precision = profile.facts, profile.precision
    dense: list[str] = []
    if facts:
        dense = ["attention"] * bool(facts.attention or facts.mla) + ["dense"] * bool(facts.dense)
        dense += ["linear"] * bool(facts.linear)
        dense += ["shared_experts"] * bool(facts.moe and facts.moe.shared_intermediate)
    return {
        "tool": tool,
        "experts": precision["experts"] if facts and facts.moe else None,
        "dense_fp4": any(_holds_fp4(precision[kind]) for kind in dense),
    }


def memory_facts(pools: Pools | None) -> Document:
    """Return the memory plan for rules: GiB, shares, counts. known is false where the model is not known."""
    if pools is None:
        return {"known": False}
    return {
        "known": True,
        "free_gib": pools.free,
        "free_assumed": pools.free_assumed,
        "free_most_gib": pools.free_most,
        "weights_gib": pools.weights,
        "mamba_gib": pools.mamba,
        "kv_gib": pools.kv,
        "kv_most_gib": pools.kv_most,
        "draft_gib": pools.draft,
        "load_peak_gib": pools.load_peak,
        "load_peak_over": pools.load_peak > pools.free_most >= pools.weights,
        "reserve_gib": pools.reserve,
        "reserve_needed_gib": pools.draft + pools.graphs + pools.activations + pools.context,
        "floor": pools.floor,
        "ceiling": pools.ceiling,
        "ceiling_most": min(pools.free_most / pools.total, 1.0) if pools.total else pools.ceiling,
        "chosen": pools.chosen,
        "kv_tokens": pools.kv_tokens,
        "kv_tokens_most": pools.kv_tokens_most,
        "max_running_requests": pools.max_running_requests,
        "mamba_slots": pools.mamba_slots,
        "slots_per_request": pools.slots_per_request,
    }


def document(
    profile: Profile,
    settings: t.Mapping[str, t.Any],
    draft: Draft | None,
    pools: Pools | None,
    features: t.Mapping[str, bool],
) -> Document:
    """Build the whole document for one plan. settings: with what the plan added."""
    cut = profile.cut
    limit = settings.get("cuda_graph_max_bs")
    running = settings.get("max_running_requests")
    if running and pools and pools.max_running_requests:
        running = min(running, pools.max_running_requests)
    length = settings.get("context_length") or settings.get("max_model_len")
    native = profile.facts.native_context if profile.facts else None
    return {
        "model": model_facts(profile),
        "quant": quant_facts(profile),
        "parallel": {"nodes": profile.nodes, "tp": cut.tp, "pp": cut.pp, "ep": cut.ep, "tp_pp": cut.tp * cut.pp},
        "engine": {"name": profile.engine.name, "version": profile.engine.version},
        "image": {"name": profile.engine.image, "features": {key: features.get(key) for key in image_features()}},
        "settings": settings,
        "speculation": {
            "on": True,
            "algorithm": draft.algorithm,
            "steps": draft.steps,
            "topk": draft.topk,
            "tokens": draft.tokens,
        }
        if draft
        else {"on": False, "algorithm": ""},
        "graphs": {
            "max_bs": limit,
            "running": running,
            "over": bool(not settings.get("disable_cuda_graph") and limit and running and running > limit),
        },
        "context": {
            "length": length or native,
            "native": native,
            "over_native": bool(length and native and length > native),
        },
        "memory": memory_facts(pools),
    }
