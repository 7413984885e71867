# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parses an engine's command line into flags with typed values: the inverse of `arguments`, by the same tables."""

from __future__ import annotations

import decimal
import re
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import from_json
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

from ..vocabulary import flag_table

MOST = 4096  # words of a command: ten times as many as the engines have flags
# vLLM's short names, which its tables leave out (vLLM 0.17.1 engine/arg_utils.py; -sc was added later).
_SHORT = {
    "vllm": {
        "tp": "tensor-parallel-size",
        "pp": "pipeline-parallel-size",
        "dp": "data-parallel-size",
        "dpn": "data-parallel-rank",
        "dpr": "data-parallel-start-rank",
        "dpl": "data-parallel-size-local",
        "dpa": "data-parallel-address",
        "dpp": "data-parallel-rpc-port",
        "dpb": "data-parallel-backend",
        "dph": "data-parallel-hybrid-lb",
        "dpe": "data-parallel-external-lb",
        "dcp": "decode-context-parallel-size",
        "pcp": "prefill-context-parallel-size",
        "ep": "enable-expert-parallel",
        "q": "quantization",
        "n": "nnodes",
        "r": "node-rank",
        "cc": "compilation-config",
        "ac": "attention-config",
        "sc": "speculative-config",
        "asc": "api-server-count",
    }
}
# SGLang also accepts these as prefixes of the names in its table.
_PREFIXES = {"sglang": {"tp": "tp-size", "pp": "pp-size", "dp": "dp-size", "ep": "ep-size"}}
# human_readable_int of vLLM 0.17.1 to 0.33.0 (engine/arg_utils.py, utils/argparse_utils.py): lowercase suffixes are decimal,
# uppercase ones binary. That of SGLang 0.5.10 to 0.5.23 (srt/utils/common.py): SI and IEC. Neither takes a binary fraction.
_SIZES = {
    "vllm": {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40},
    "sglang": {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40},
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([A-Za-z]{1,2})")
_CANDIDATES = 8  # named in the error about an ambiguous flag


@dataclass(frozen=True)
class Given:
    """One flag as written. name: the version's own name if it has one; value: typed; fault: why it cannot be read."""

    name: str
    value: t.Any
    text: str
    known: bool = True
    fault: str = ""


def _json(text: str) -> t.Any:
    try:
        return from_json(text)
    except ValueError:
        return text


def _size(text: str, engine: str) -> int | None:
    """Return a whole number with a suffix as the engine reads it; None if it refuses the text."""
    found = _SIZE.fullmatch(text.strip())
    unit = _SIZES[engine].get(found[2]) if found else None
    if found is None or unit is None:
        return None
    if "." not in found[1]:
        return int(decimal.Decimal(found[1]) * unit)
    if unit % 1000:  # binary
        return None
    return int(decimal.Decimal(found[1]) * unit) if engine == "sglang" else int(float(found[1]) * unit)


def typed(text: str, kind: str, engine: str) -> t.Any:
    """Convert a word to a flag's type; a word that does not fit stays a string, for the settings check to reject."""
    if kind == "json":
        return _json(text)
    if kind == "int":
        if re.fullmatch(r"[+-]?[0-9]{1,20}", text):
            return int(text)
        sized = _size(text, engine)
        return text if sized is None else sized
    if kind == "float":
        try:
            return float(text)
        except ValueError:
            return text
    return text


def _inner(text: str) -> t.Any:
    """Return a dotted flag's value as vLLM reads it: JSON if it parses, else the string."""
    return _json(text) if text not in ("True", "False") else text == "True"


class _Reader:
    def __init__(self, words: t.Sequence[str], parser: flag_table.Parser) -> None:
        self.words, self.parser, self.at = list(words), parser, 0

    def named(self, word: str) -> tuple[str, bool, bool]:
        """Return a flag's name, whether this form turns it off, and whether the table has it."""
        bare = word.lstrip("-")
        own = _SHORT.get(self.parser.engine, {}).get(bare) if not word.startswith("--") else None
        flag = (own or bare).replace("_", "-")
        flag = _PREFIXES.get(self.parser.engine, {}).get(flag, flag) if self.parser.spec(flag) is None else flag
        if self.parser.spec(flag) is not None:
            return self.parser.primary(flag), False, True
        if flag in self.parser.off:
            return self.parser.off[flag], True, True
        begun = self.begun(word, flag)
        return (*begun.pop(), True) if len(begun) == 1 else (flag, False, False)

    def begun(self, word: str, flag: str) -> set[tuple[str, bool]]:
        """Return the flags that an abbreviation may mean (argparse: allow_abbrev), and whether each is turned off by it."""
        if not word.startswith("--"):
            return set()
        on = {(self.parser.primary(name), False) for name in self.parser.flags if name.startswith(flag)}
        return on | {(name, True) for off, name in self.parser.off.items() if off.startswith(flag)}

    def ambiguous(self, word: str, flag: str) -> str:
        """Return what is wrong with an abbreviation that may mean several flags, as argparse refuses it; else nothing."""
        names = sorted(self.parser.table["flags"][name]["off"] if off else name for name, off in self.begun(word, flag))
        if len(names) < 2:
            return ""
        more = f" and {len(names) - _CANDIDATES} more" if len(names) > _CANDIDATES else ""
        listed = ", ".join(f"--{name}" for name in names[:_CANDIDATES])
        return f"ambiguous: it could be {listed}{more}, and the engine does not start; write the flag in full"

    def is_flag(self, word: str) -> bool:
        return len(word) > 1 and word.startswith("-") and not re.fullmatch(r"-[\d.].*", word)

    def following(self, limit: int | None = None) -> list[str]:
        """Consume the words up to the next flag."""
        first = self.at
        while self.at < len(self.words) and (limit is None or self.at - first < limit):
            if self.is_flag(self.words[self.at]):
                break
            self.at += 1
        return self.words[first : self.at]

    def read(self) -> tuple[list[str], list[Given]]:
        """Return the positional words, and the flags in order."""
        alone, found = [], []
        while self.at < len(self.words):
            word = self.words[self.at]
            self.at += 1
            if not self.is_flag(word):
                alone.append(word)
            elif word != "--":
                found.append(self.flag(word))
        return alone, found

    def flag(self, word: str) -> Given:
        first = self.at - 1
        head, equals, tail = word.partition("=")
        head, dot, path = head.partition(".")
        name, off, known = self.named(head)
        inline = [tail] if equals else None
        spec = self.parser.spec(name) if known else None
        if dot:
            taken = inline if inline is not None else self.following(1)
            value: t.Any = _inner(taken[0]) if taken else True
            for key in reversed(path.split(".")):
                value = {key: value}
            return Given(name, value, self.text(first), known, "" if known else self.ambiguous(head, name))
        if spec is None:
            taken = inline if inline is not None else self.following()
            return Given(name, self.unknown(taken), self.text(first), False, self.ambiguous(head, name))
        if spec["type"] in ("switch", "toggle"):
            if inline is not None:
                value = (tail.lower() in ("true", "1")) != off if tail.lower() in ("true", "false", "1", "0") else tail
                return Given(name, value, self.text(first))
            return Given(name, not off, self.text(first))
        many = bool(spec.get("many"))
        taken = inline if inline is not None else self.following(None if many else 1)
        if not taken and not many:
            taken = self.dashed()
        if not taken and spec.get("many") != "any":
            return Given(name, None, self.text(first), fault="its value is missing")
        values = [typed(item, spec["type"], self.parser.engine) for item in taken]
        return Given(name, values if many or spec.get("repeat") else values[0], self.text(first))

    def dashed(self) -> list[str]:
        """Consume a value that begins with a dash but is not a flag of this version."""
        after = self.words[self.at : self.at + 1]
        if not after or after[0].startswith("--") or self.named(after[0].partition("=")[0])[2]:
            return []
        self.at += 1
        return after

    def unknown(self, taken: list[str]) -> t.Any:
        """Guess the value of a flag that the table does not have from its words alone."""
        values = [_json(item) for item in taken]
        return True if not values else values[0] if len(values) == 1 else values

    def text(self, first: int) -> str:
        return " ".join(self.words[first : self.at])


def read_flags(words: t.Sequence[str], parser: flag_table.Parser) -> tuple[list[str], list[Given]]:
    """Parse an argument list by a version's table: the positional words, then each flag with its typed value.

    A flag that the table does not have is kept as written, with the words up to the next flag as its value. Raises CollectionError if
    there are more words than any command has.
    """
    if len(words) > MOST:
        raise CollectionError(f"its command has {len(words)} words, and {MOST} at most are read.")
    return _Reader(words, parser).read()


def merged(given: t.Sequence[Given], parser: flag_table.Parser) -> dict[str, Given]:
    """Return the flags by name as the parser resolves them: the last one wins, objects and repeated flags accumulate."""
    out: dict[str, Given] = {}
    for one in given:
        before = out.get(one.name)
        spec = parser.spec(one.name) or {}
        if before and isinstance(before.value, dict) and isinstance(one.value, dict):
            value: t.Any = _laid(before.value, one.value)
        elif before and spec.get("repeat"):
            value = [*before.value, *one.value]
        else:
            out[one.name] = one
            continue
        out[one.name] = Given(one.name, value, f"{before.text} {one.text}", one.known, one.fault or before.fault)
    return out


def _laid(base: t.Mapping[str, t.Any], over: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    both = {k: _laid(base[k], v) for k, v in over.items() if isinstance(v, dict) and isinstance(base.get(k), dict)}
    return {**base, **over, **both}
