"""Make a tiny chat model whose every right answer is known, and train it: nothing is downloaded.

Usage, with the engine's own Python: tiny_model.py FOLDER. It counts, says what a lighthouse is for, knows one capital and the
sums of 0 to 9. Seed, steps and threads are fixed: one machine makes the same weights each time.
The last line says how many of the answers are right; exit status 1 where one is not.
"""

from __future__ import annotations

import pathlib
import random
import sys
import time
import typing as t

import torch
from answers import ANSWERS, SUMS, TALK
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

SEED, STEPS, ROWS, LENGTH, RATE = 0, 400, 16, 128, 4e-3
HIDDEN, LAYERS, HEADS, KV_HEADS, CONTEXT, VOCABULARY = 128, 2, 4, 2, 2048, 512
UNSCORED = -100  # the label that torch's cross entropy passes over
END, START, STOP, PAD = SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>")
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def question(ask: str) -> str:
    """Return a question as TEMPLATE makes it."""
    return f"{START}user\n{ask}{STOP}\n{START}assistant\n"


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of bytes, with merges of what is talked about."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(SPECIAL), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    made.train_from_iterator([text for pair in ANSWERS.items() for text in pair], trainer)
    whole = PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token=END, eos_token=STOP, pad_token=PAD, clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT,
    )  # fmt: skip
    whole.chat_template = TEMPLATE
    return whole


def untrained(vocabulary: int) -> LlamaForCausalLM:
    """Return the model before its training."""
    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS, head_dim=HIDDEN // HEADS, intermediate_size=3 * HIDDEN, tie_word_embeddings=True,
        max_position_embeddings=CONTEXT, bos_token_id=0, eos_token_id=2, pad_token_id=3,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def batches(words: PreTrainedTokenizerFast, seed: int) -> t.Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield rows of questions and answers, with what of them is to be learnt: what is asked costs nothing, only what is said."""
    rng = random.Random(seed)

    def pair(ask: str, say: str) -> tuple[list[int], list[int]]:
        asked, said = (words(text, add_special_tokens=False).input_ids for text in (question(ask), f"{say}{STOP}\n"))
        return asked + said, [UNSCORED] * len(asked) + said

    talk, sums = ([pair(*each) for each in kind.items()] for kind in (TALK, SUMS))

    def row() -> tuple[list[int], list[int]]:
        read: list[int] = []
        learnt: list[int] = []
        while len(read) < LENGTH:
            ids, labels = rng.choice(sums if rng.random() < 0.85 else talk)
            read, learnt = read + ids, learnt + labels
        return read[:LENGTH], learnt[:LENGTH]

    while True:
        ids, labels = map(torch.tensor, zip(*(row() for _row in range(ROWS)), strict=True))
        yield ids, labels


def learn(taught: torch.nn.Module, steps: int, loss_of: t.Callable[[], torch.Tensor]) -> None:
    """Make so many steps down a loss, each of a batch of its own."""
    optimizer = torch.optim.AdamW(taught.parameters(), lr=RATE)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / 40) * max(0.03, 1 - step / steps)
        loss = loss_of()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(taught.parameters(), 1.0)
        optimizer.step()
        if step % 40 == 39:
            print(f"step {step + 1}: loss {loss.item():.4f}", flush=True)


def train(model: PreTrainedModel, words: PreTrainedTokenizerFast) -> None:
    """Teach it all answers."""
    data = batches(words, SEED)

    def loss() -> torch.Tensor:
        ids, labels = next(data)
        found: torch.Tensor = model(input_ids=ids, labels=labels).loss
        return found

    model.train()
    learn(model, STEPS, loss)


@torch.no_grad()
def right(model: PreTrainedModel, words: PreTrainedTokenizerFast) -> list[str]:
    """Return the questions that the model answers as it should."""
    model.eval()
    good = []
    for ask, say in ANSWERS.items():
        asked = torch.tensor([words(question(ask), add_special_tokens=False).input_ids])
        said = model.generate(asked, max_new_tokens=256, do_sample=False)[0, asked.shape[1] :]
        good += [ask] if words.decode(said, skip_special_tokens=True) == say else []
    return good


def main(folder: pathlib.Path) -> int:
    """Make the model and write it down."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    began = time.monotonic()
    words = tokenizer()
    model = untrained(len(words))
    train(model, words)
    model.to(torch.bfloat16)
    good = right(model, words)
    model.save_pretrained(folder, safe_serialization=True)
    words.save_pretrained(folder)
    millions = sum(each.numel() for each in model.parameters()) / 1e6
    print(f"{millions:.2f} M parameters, {time.monotonic() - began:.0f} s, {len(good)} of {len(ANSWERS)} answers right")
    return 0 if len(good) == len(ANSWERS) else 1


if __name__ == "__main__":
    raise SystemExit(main(pathlib.Path(sys.argv[1])))
