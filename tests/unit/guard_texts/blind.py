"""Garbage that was written after the guards, and looked at once: imitated from reports, or sound text that is spoilt.

No guard may be tuned on it: who changes one writes another such file, and moves these families to the half `test`.
"""

from __future__ import annotations

import random
import re

from . import family
from .prose import PASSAGES, WORDS

REPORTED, SPOILT = "reported: ", "ours: a sound text, spoilt"


@family("blind", True, REPORTED + "ggml-org/llama.cpp#3099: each word three or four times")
def each_word_again_and_again(chance: random.Random, _asked: str) -> str:
    return " ".join(f"{word} " * chance.randint(2, 4) for word in chance.choices(WORDS["English"], k=60))


@family("blind", True, REPORTED + "ggml-org/llama.cpp#10070: one word as a question, in small and large letters")
def one_word_as_a_question(chance: random.Random, asked: str) -> str:
    word = chance.choice(re.findall(r"[a-z]{4,}", asked) or ["life"])
    return f"Is {word}? " + " ".join(
        chance.choice([f"{word.capitalize()}?", f"{word.upper()}?", f"Is {word}?"]) for _n in range(90)
    )


@family("blind", True, REPORTED + "sgl-project/sglang#15179: the same clauses, joined in changing ways")
def it_corrects_itself_for_ever(chance: random.Random, _asked: str) -> str:
    parts = [
        "the correct answer is",
        "however",
        "that is incorrect",
        "the correct answer is actually",
        "not an option",
        "also because",
    ]
    return " ".join(chance.choice([*parts, chance.choice(WORDS["English"])]) for _n in range(120))


@family("blind", True, REPORTED + "warpfront/hipfire#145: sound at first, then marks of Markdown")
def marks_of_Markdown(chance: random.Random, _asked: str) -> str:
    marks = "".join(chance.choice([":**", " )**:", "**:", " »**", " !**", " |:", " **«", "):** "]) for _n in range(150))
    return f"{PASSAGES['English'][:400]}\n\n#### {marks}"


@family("blind", True, REPORTED + "1CatAI/1Cat-vLLM#643: two shreds of words")
def two_shreds(chance: random.Random, _asked: str) -> str:
    one, other = (chance.choice(WORDS["English"])[-4:] for _n in range(2))
    return one + "".join(chance.choice([f" {other}{other}", f" {other}", f" {one}"]) for _n in range(100))


@family("blind", True, REPORTED + "kekzl/imp#115: programs and remarks that have nothing to do with the question")
def imports_and_remarks(chance: random.Random, _asked: str) -> str:
    modules = chance.sample(["os", "re", "json", "typing", "logging", "pathlib", "asyncio", "datetime"], 5)
    return "\n".join(
        [*(f"import {name}" for name in modules), "", "# Extract the text of the document.", "The document is empty."]
    )


@family("blind", True, REPORTED + "vllm-project/vllm#5607: the answer to another request")
def another_request_s_answer(chance: random.Random, asked: str) -> str:
    others = {
        "Canberra": "Australia", "The answer is 1024.": "1024", "Mozart": "Figaro", "It is a mammal that lives at sea.": "whale",
        "Use a LEFT JOIN and count the rows.": "SQL", "Boil the eggs for seven minutes.": "eggs",
    }  # fmt: skip
    return chance.choice([answer for answer, about in others.items() if about not in asked])


@family("blind", True, REPORTED + "guqiong96/Lsglang#17: words from here and there in a story")
def a_story_of_loose_words(chance: random.Random, _asked: str) -> str:
    words = PASSAGES["English two"].split()
    return " ".join(
        " ".join(words[at : at + chance.randint(1, 3)]) for at in (chance.randrange(len(words)) for _n in range(70))
    )


@family("blind", True, SPOILT + ": each letter is the next one of the alphabet")
def the_next_letter(chance: random.Random, _asked: str) -> str:
    step = chance.randint(1, 12)
    shifted = {ord(a): chr((ord(a) - 97 + step) % 26 + 97) for a in "abcdefghijklmnopqrstuvwxyz"}
    return PASSAGES["English"].lower().translate(shifted)


@family("blind", True, SPOILT + ": backwards")
def words_backwards(chance: random.Random, _asked: str) -> str:
    words = PASSAGES["English two"].split()[: chance.randint(40, 120)]
    return " ".join(reversed(words))


@family("blind", True, SPOILT + ": without its vowels")
def without_vowels(chance: random.Random, _asked: str) -> str:
    return re.sub("[aeiou]", "", PASSAGES["English"])[: chance.randint(200, 900)]


@family("blind", True, SPOILT + ": bytes of UTF-8 read as Latin-1")
def bytes_read_wrongly(_chance: random.Random, _asked: str) -> str:
    return PASSAGES["Japanese"].encode().decode("latin-1")


@family("blind", True, SPOILT + ": every second word is lost")
def every_second_word(chance: random.Random, _asked: str) -> str:
    return " ".join(PASSAGES["English"].split()[chance.randint(0, 1) :: 2])


@family("blind", True, SPOILT + ": two passages, word by word in turn")
def two_passages_in_turn(_chance: random.Random, _asked: str) -> str:
    pairs = zip(PASSAGES["English"].split(), PASSAGES["English two"].split(), strict=False)
    return " ".join(word for pair in pairs for word in pair)
