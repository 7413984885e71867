# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tells letters drawn at random from letters of a language. Pure.

It needs no model of a language: the character sets of the 1980s list the characters in common use (GB 2312, Big5 and JIS X 0208 in
their first level, KS X 1001), and Python has them as codecs. Of all ideographs of Unicode a third is in common use, of a text's nearly
all are. Latin letters at random are not told from abbreviations and names; ask something with a known answer for these.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass

# Codec, and the first bytes of its characters in common use.
_COMMON = (("gb2312", 0xB0, 0xD7), ("big5", 0xA4, 0xC6), ("euc_jp", 0xB0, 0xCF), ("euc_kr", 0xB0, 0xC8))
_RARE = frozenset("ёфцщъэ")  # 1 to 5 % of the letters of eight languages, see knowledge/guards
_ONE = {"HIRAGANA": "CJK", "KATAKANA": "CJK", "IDEOGRAPHIC": "CJK", "KATAKANA-HIRAGANA": "CJK"}
_RUNS = re.compile(r"[A-Za-z]+")
_MARKS = re.compile(r"[!-/:-@\[-`{-~]")


@dataclass(frozen=True, slots=True)
class Soup:
    """Letters at random, each judged in texts with enough of them.

    lost: of at least `min_lost` replacement characters, the largest share of the text. common: of at least `min_signs` ideographs and
    Hangul syllables, the least share in common use. rare: of at least `min_letters` Cyrillic letters, the largest share of its rare
    ones. kinds: in more than half of its pieces of `min_chars` ASCII characters, this many kinds of punctuation, with runs of at most
    `run` letters on average. scripts: this many in more than half of at least `min_pieces` pieces of `piece` characters.
    """

    min_lost: int
    lost: float
    min_signs: int
    common: float
    min_letters: int
    rare: float
    min_chars: int
    kinds: int
    run: float
    scripts: int
    min_pieces: int
    piece: int


def soup(text: str, limits: Soup) -> str | None:
    """Return what is random about the letters of a text; None if nothing is."""
    counts = Counter(text.casefold())
    lost = counts["\ufffd"]
    if lost >= limits.min_lost and lost > limits.lost * len(text):
        return f"{lost} of its {len(text)} characters are bytes that form none"
    scripts = {char: name for char in counts if (name := script(char))}
    signs = [char for char, name in scripts.items() if name in ("CJK", "HANGUL") and char > "\u3400"]
    count, common = sum(counts[char] for char in signs), sum(counts[char] for char in signs if _is_common(char))
    if count >= limits.min_signs and common < limits.common * count:
        return f"{count - common} of its {count} ideographs or syllables are in no common use"
    count = sum(counts[char] for char, name in scripts.items() if name == "CYRILLIC")
    rare = sum(counts[char] for char in _RARE)
    if count >= limits.min_letters and rare > limits.rare * count:
        return f"{rare} of its {count} Cyrillic letters are ones that are rare in every language"
    solid = "".join(text.split())
    parts = _pieces(solid, limits.min_chars)
    strange = sum(part.isascii() and len(set(_MARKS.findall(part))) >= limits.kinds for part in parts)
    runs = _RUNS.findall(solid)
    if strange * 2 > len(parts) and sum(map(len, runs)) <= limits.run * max(1, len(runs)):
        return f"{limits.kinds} or more kinds of punctuation are among letters that form no words"
    pieces = _pieces(text, limits.piece) if len(set(scripts.values())) >= limits.scripts else []
    wild = sum(_scripts(piece) >= limits.scripts for piece in pieces)
    if len(pieces) >= limits.min_pieces and wild * 2 > len(pieces):
        return f"{wild} of {len(pieces)} pieces of {limits.piece} characters mix {limits.scripts} or more scripts"
    return None


def _pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text) - size + 1, size)]


@functools.lru_cache(maxsize=1 << 16)
def script(char: str) -> str:
    """Return a letter's script, as the first word of its name; "" for anything else."""
    if not char.isalpha():
        return ""
    name = unicodedata.name(char, "").partition(" ")[0]
    return _ONE.get(name, name)


def _scripts(piece: str) -> int:
    """Return how many scripts a piece of text has with two letters or more each."""
    found = Counter(map(script, piece))
    return sum(count > 1 for name, count in found.items() if name)


@functools.lru_cache(maxsize=1 << 16)
def _is_common(char: str) -> bool:
    for codec, first, last in _COMMON:
        try:
            coded = char.encode(codec)
        except UnicodeEncodeError:
            continue
        if len(coded) == 2 and first <= coded[0] <= last:
            return True
    return False
