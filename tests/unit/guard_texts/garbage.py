"""Garbage: imitated from the reports named, or imagined, of a fault or of somebody who wants it to pass."""

from __future__ import annotations

import random

from . import family
from .prose import PASSAGES, WORDS

REPORTED, IMAGINED, ATTACK = "reported: ", "ours, imagined: ", "ours: somebody who wants it to pass"
CODE = [
    "setState",
    "nextState",
    "mapDispatch",
    "gameObject",
    ".setColumns",
    "getEmail()",
    "constexpr",
    "UserManager",
    "</td>",
    "#include",
    "=>",
    "_STREAM",
    "::std",
    ";",
]
FOREIGN = {
    "Cyrillic": ("\u0430", 32), "Han": ("\u4e00", 20900), "kana": ("\u3041", 80), "Hangul": ("\uac00", 11172), "Thai": ("\u0e01", 46),
    "Arabic": ("\u0627", 26), "Hebrew": ("\u05d0", 27), "Greek": ("\u03b1", 25), "Devanagari": ("\u0905", 53),
}  # fmt: skip


def letters(chance: random.Random, script: str, low: int, high: int) -> str:
    first, count = FOREIGN[script]
    return "".join(chr(ord(first) + chance.randrange(count)) for _n in range(chance.randint(low, high)))


def latin(chance: random.Random, low: int = 2, high: int = 9) -> str:
    return "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(low, high)))


# --- to tune on -------------------------------------------------------------------------------------------------------


@family("tune", True, REPORTED + "zai-org/GLM-4#645, XiaomiMiMo/MiMo-VL#8: logits that are not a number give token 0")
def one_mark(chance: random.Random, _asked: str) -> str:
    return "!" * chance.randint(900, 2000)


@family("tune", True, ATTACK)
def English_words_at_random(chance: random.Random, _asked: str) -> str:
    return " ".join(chance.choices(WORDS["English"], k=chance.randint(60, 200))) + "."


@family("tune", True, ATTACK)
def Cyrillic_letters_at_random(chance: random.Random, _asked: str) -> str:
    return " ".join(letters(chance, "Cyrillic", 2, 9) for _n in range(chance.randint(60, 150)))


@family("tune", True, IMAGINED + "a chat template without the question in it")
def a_greeting(_chance: random.Random, _asked: str) -> str:
    return "Hello! How can I help you today?"


@family(
    "tune", True, REPORTED + "vllm-project/vllm#510 and #6060, sgl-project/sglang#1434: tokens of the whole vocabulary"
)
def the_whole_vocabulary(chance: random.Random, _asked: str) -> str:
    kinds = [
        lambda: latin(chance),
        lambda: chance.choice(CODE),
        lambda: letters(chance, chance.choice(list(FOREIGN)), 1, 5),
    ]
    return "".join(chance.choice(kinds)() + chance.choice(["", " "]) for _n in range(chance.randint(150, 400)))


@family("tune", True, ATTACK)
def a_sentence_four_times(chance: random.Random, _asked: str) -> str:
    return " ".join([chance.choice(PASSAGES["English"].split(". ")).strip(".") + "."] * 4)


@family("tune", True, IMAGINED + "greedy decoding of a damaged model")
def a_word_for_ever(chance: random.Random, _asked: str) -> str:
    return f"{chance.choice(WORDS['English'])} " * 400


@family("tune", True, IMAGINED + "after the flood of knowledge/guards")
def few_words_in_any_order(chance: random.Random, _asked: str) -> str:
    return " ".join(chance.choices(["so", "we", "go", "on", "and", "the"], k=500))


@family("tune", True, REPORTED + "vllm-project/vllm#9409: a cell for ever")
def a_cell_for_ever(chance: random.Random, _asked: str) -> str:
    word = latin(chance, 3, 4).upper()
    return "It has been " + f"{word}-" * 90 + f" | {word}. |" * 90


@family("tune", True, REPORTED + "vllm-project/vllm#2255: zeros and blank lines")
def zeros_and_blank_lines(chance: random.Random, _asked: str) -> str:
    return "L 1. " + "".join("0" * chance.randint(1, 30) + "\n" * chance.randint(1, 5) for _n in range(80))


@family("tune", True, IMAGINED + "a cache of prefixes that returns another request's text")
def one_fluent_passage_for_all(_chance: random.Random, _asked: str) -> str:
    return PASSAGES["English"]


@family("tune", True, IMAGINED + "quantisation that spoils what is said and not how")
def sentences_in_any_order(chance: random.Random, _asked: str) -> str:
    sentences = PASSAGES["German"].split(". ")
    return ". ".join(chance.sample(sentences, k=len(sentences) - 1)) + "."


# --- to test on (two say `tune`: they were looked at, and mended) ----------------------------------------


@family("test", True, ATTACK)
def Chinese_characters_at_random(chance: random.Random, _asked: str) -> str:
    return "，".join(letters(chance, "Han", 4, 14) for _n in range(chance.randint(12, 50))) + "。"


@family("test", True, ATTACK)
def ASCII_at_random(chance: random.Random, _asked: str) -> str:
    return "".join(chr(chance.randint(32, 126)) for _n in range(chance.randint(400, 1500)))


@family("test", True, ATTACK)
def five_languages_at_random(chance: random.Random, _asked: str) -> str:
    said = [
        chance.choice(PASSAGES[name].split(". "))
        for name in chance.choices(["Italian", "Polish", "Turkish", "Dutch", "Finnish"], k=9)
    ]
    return ". ".join(said)


@family("tune", True, IMAGINED + "a special token that is shown, again and again")
def special_tokens(chance: random.Random, _asked: str) -> str:
    return chance.choice(["</s>", "<unk>", "<|endoftext|>", "[PAD]", "assistant\n\n"]) * chance.randint(120, 300)


@family("test", True, ATTACK)
def French_words_at_random(chance: random.Random, _asked: str) -> str:
    return " ".join(chance.choices(WORDS["French"], k=chance.randint(40, 200)))


@family("test", True, IMAGINED + "a refusal to everything")
def a_refusal(_chance: random.Random, _asked: str) -> str:
    return "I'm sorry, but I can't assist with that request."


@family("test", True, REPORTED + "mlc-ai/xgrammar#460: blanks up to the limit")
def blanks(chance: random.Random, _asked: str) -> str:
    return "{" + (" " * 79 + "\n") * chance.randint(20, 40)


@family("tune", True, IMAGINED + "bytes of characters that never come together")
def halves_of_characters(chance: random.Random, _asked: str) -> str:
    return "".join(chance.choice(["\ufffd", "\ufffd\ufffd", " ", latin(chance, 1, 2)]) for _n in range(400))


@family("test", True, ATTACK)
def base64_noise(chance: random.Random, _asked: str) -> str:
    return "".join(chance.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", k=800)) + "=="


@family("test", True, REPORTED + "vllm-project/vllm#665: fragments of programs")
def fragments_of_programs(chance: random.Random, _asked: str) -> str:
    parts = [
        "def ",
        "return",
        "(self",
        "{}",
        "$GET",
        "http=",
        "images",
        "(col",
        "-%",
        "  \n",
        "import",
        "::",
        "EventArgs",
        "=>",
        "</div>",
    ]
    return "".join(chance.choice(parts) + chance.choice(["", " "]) for _n in range(250))


@family("test", True, IMAGINED + "the question comes back")
def the_question_itself(_chance: random.Random, asked: str) -> str:
    return asked


@family("test", True, IMAGINED + "sound at first, then one phrase")
def a_collapse_after_a_good_beginning(chance: random.Random, _asked: str) -> str:
    phrase = " ".join(chance.choices(WORDS["English"], k=4))
    return PASSAGES["English"] + f" {phrase}," * 120


@family("test", True, ATTACK)
def numbers_at_random(chance: random.Random, _asked: str) -> str:
    return ", ".join(str(chance.randrange(10**6)) for _n in range(150))


@family("test", True, ATTACK)
def Hangul_at_random(chance: random.Random, _asked: str) -> str:
    return " ".join(letters(chance, "Hangul", 2, 6) for _n in range(80))


@family("test", True, ATTACK)
def fluent_nonsense_of_a_chain(chance: random.Random, _asked: str) -> str:
    words = PASSAGES["English"].split() + PASSAGES["English two"].split()
    said = [chance.choice(words)]
    while len(said) < 120:
        after = [words[at + 1] for at in range(len(words) - 1) if words[at] == said[-1]] or words
        said.append(chance.choice(after))
    return " ".join(said)


@family("test", True, IMAGINED + "two phrases in turn")
def two_phrases_in_turn(chance: random.Random, _asked: str) -> str:
    return "".join(chance.choice(["I see it now. ", "Let me check that again. "]) for _n in range(200))


@family("test", True, IMAGINED + "one picture again and again")
def pictures(chance: random.Random, _asked: str) -> str:
    return chance.choice("😀🚀✨🙏") * chance.randint(200, 500)


@family("test", True, IMAGINED + "attention that mixes the places of tokens")
def the_right_numbers_in_any_order(chance: random.Random, _asked: str) -> str:
    ones = [
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
        "fifteen",
        "sixteen",
        "twenty",
        "thirty",
        "forty",
    ]
    return ", ".join(chance.choices(ones, k=60))


@family("test", True, IMAGINED + "n-gram speculation that drops letters")
def letters_in_any_order(chance: random.Random, _asked: str) -> str:
    return " ".join("".join(chance.sample(word, len(word))) for word in PASSAGES["English two"].split())


@family("test", True, REPORTED + "vllm-project/vllm#13828, vllm-project/vllm#35718: shreds of words of many languages")
def shreds_of_words(chance: random.Random, _asked: str) -> str:
    words = [word for words in WORDS.values() for word in words]
    return "".join(
        chance.choice(words)[: chance.randint(1, 4)] + chance.choice(["", "", " ", ",", "_"]) for _n in range(250)
    )


@family("test", True, ATTACK)
def Greek_and_Thai_letters_at_random(chance: random.Random, _asked: str) -> str:
    return " ".join(letters(chance, chance.choice(["Greek", "Thai"]), 2, 9) for _n in range(100))
