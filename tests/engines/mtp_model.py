"""Make the tiny chat model with a trained multi-token-prediction head, as MiMo has it: nothing is downloaded.

Usage, with the engine's own Python: mtp_model.py FOLDER. The trunk is Qwen2's and learns what tiny_model.py teaches. The head then learns,
with the trunk as it is, the token after next: from the trunk's state at a token, before its last norm, and from the next token's
embedding; and from its own output in the trunk's place, which is how an engine drafts further ones.
The last line says how many answers are right, and how many of the answers' tokens the head foretells, by draft step; exit status 1
where an answer is wrong, or fewer than half of the first drafts are right.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time
import typing as t

import torch
from answers import ANSWERS
from safetensors.torch import load_file, save_file
from tiny_model import CONTEXT, HEADS, HIDDEN, KV_HEADS, LAYERS, SEED, UNSCORED, batches, learn, right, tokenizer, train
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Model
from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm

STEPS, DRAFTS = 120, 3
WEIGHTS = "model.safetensors"


def configuration(vocabulary: int, layers: int) -> Qwen2Config:
    """Return the trunk's configuration, or with one layer the head's."""
    return Qwen2Config(
        vocab_size=vocabulary, hidden_size=HIDDEN, num_hidden_layers=layers, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS,
        intermediate_size=3 * HIDDEN, tie_word_embeddings=True, max_position_embeddings=CONTEXT, bos_token_id=0, eos_token_id=2,
        pad_token_id=3,
    )  # fmt: skip


class Head(torch.nn.Module):
    """One prediction layer of MiMo: two norms, a projection, a layer of the trunk's kind and a norm (vLLM models/mimo_mtp.py)."""

    def __init__(self, config: Qwen2Config) -> None:
        super().__init__()
        self.token_layernorm = Qwen2RMSNorm(HIDDEN, config.rms_norm_eps)
        self.hidden_layernorm = Qwen2RMSNorm(HIDDEN, config.rms_norm_eps)
        self.input_proj = torch.nn.Linear(2 * HIDDEN, HIDDEN, bias=False)
        self.block = Qwen2Model(config)  # its layer and its last norm; its embeddings are not used
        self.block.embed_tokens = None

    def forward(self, states: torch.Tensor, embedded: torch.Tensor, first: int) -> torch.Tensor:
        """Return the states that foretell. first: the position of the first of them; the token beside position 0 is not seen."""
        positions = torch.arange(first, first + states.shape[1]).expand(states.shape[:2])
        embedded = embedded.masked_fill((positions == 0).unsqueeze(-1), 0)
        joined = self.input_proj(torch.cat([self.hidden_layernorm(states), self.token_layernorm(embedded)], -1))
        out: torch.Tensor = self.block(inputs_embeds=joined, position_ids=positions, use_cache=False).last_hidden_state
        return out

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return its weights under the names of a checkpoint."""
        found = {}
        for name, weight in self.state_dict().items():
            own = name.replace("block.layers.0.", "").replace("block.norm.", "final_layernorm.")
            found[f"model.mtp_layers.0.{own}"] = weight.to(torch.bfloat16).contiguous()
        return found


def foretold(trunk: Qwen2ForCausalLM, head: Head, ids: torch.Tensor) -> t.Iterator[tuple[int, torch.Tensor]]:
    """Yield for each draft step how far ahead of a row's tokens it looks, and what it says of them."""
    states: list[torch.Tensor] = []
    hook = trunk.model.norm.register_forward_pre_hook(lambda _norm, given: states.append(given[0]))
    with torch.no_grad():
        trunk(input_ids=ids)
        embedded = trunk.model.embed_tokens(ids)
    hook.remove()
    state = states[0]
    for step in range(DRAFTS):
        ahead = step + 2
        state = head(state[:, : ids.shape[1] - ahead], embedded[:, ahead - 1 : -1], step)
        yield ahead, trunk.lm_head(state)


def teach(head: Head, trunk: Qwen2ForCausalLM, data: t.Iterator[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Teach the head the tokens of the answers."""

    def loss() -> torch.Tensor:
        ids, labels = next(data)
        each = [
            torch.nn.functional.cross_entropy(said.flatten(0, 1), labels[:, ahead:].flatten(), ignore_index=UNSCORED)
            for ahead, said in foretold(trunk, head, ids)
        ]
        return torch.stack(each).sum()

    learn(head, STEPS, loss)


@torch.no_grad()
def hits(head: Head, trunk: Qwen2ForCausalLM, data: t.Iterator[tuple[torch.Tensor, torch.Tensor]]) -> list[float]:
    """Return the share of right drafts by step, where all before them are right."""
    ids, labels = next(data)
    found = []
    for ahead, said in foretold(trunk, head, ids):
        wanted = labels[:, ahead:]
        found.append((said.argmax(-1) == wanted)[wanted != UNSCORED].float().mean().item())
    return found


def main(folder: pathlib.Path) -> int:
    """Make the model and write it down."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    began = time.monotonic()
    words = tokenizer()
    torch.manual_seed(SEED)
    trunk = Qwen2ForCausalLM(configuration(len(words), LAYERS))
    train(trunk, words)
    trunk.to(torch.bfloat16)
    good = right(trunk, words)
    trunk.save_pretrained(folder, safe_serialization=True)
    words.save_pretrained(folder)

    trunk.to(torch.float32).requires_grad_(False)
    head = Head(configuration(len(words), 1))
    teach(head, trunk, batches(words, SEED + 1))
    drafts = hits(head, trunk, batches(words, SEED + 2))
    written = load_file(folder / WEIGHTS)
    written["lm_head.weight"] = written["model.embed_tokens.weight"].clone()  # MiMo's are not tied
    save_file(written | head.tensors(), folder / WEIGHTS, {"format": "pt"})
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    # Qwen2's own type has a tokenizer of its own, which the engines would take instead of the one that it was trained with.
    config |= {
        "architectures": ["MiMoForCausalLM"],
        "model_type": "llama",
        "head_dim": HIDDEN // HEADS,
        "num_nextn_predict_layers": 1,
    }
    config |= {"tie_word_embeddings": False, "rope_theta": config["rope_parameters"]["rope_theta"]}
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    shares = ", ".join(f"{share:.2f}" for share in drafts)
    print(f"{time.monotonic() - began:.0f} s, {len(good)} answers right, drafts right by step: {shares}")
    return 0 if len(good) == len(ANSWERS) and drafts[0] >= 0.5 else 1


if __name__ == "__main__":
    raise SystemExit(main(pathlib.Path(sys.argv[1])))
