"""A streamed answer, and whether it is whole: a gateway may go on elsewhere with a stream that broke, and `[DONE]` ends what is half, too."""

from __future__ import annotations

import json
import re
import typing as t

# scripted_engine.py counts in forty words, if it is asked to.
COUNT: dict[str, t.Any] = {
    "messages": [{"role": "user", "content": "count from one to forty"}], "max_tokens": 40, "stream": True,
}  # fmt: skip


def words(text: str) -> str:
    """Return what a stream says."""
    return "".join(json.loads(f'"{each}"') for each in re.findall(r'"content": ?"((?:[^"\\]|\\.)*)"', text))


def fault(status: int, text: str) -> str:
    """Return what is wrong with an answer to COUNT, or an empty text."""
    said = words(text).split()
    whole = status == 200 and text.rstrip().endswith("data: [DONE]")
    right = len(said) == 40 and said[0] == "one," and said[-1] == "forty."
    return "" if whole and right else f"{status}: {len(said)} of 40 words: {text[-300:]}"
