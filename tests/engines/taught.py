"""What a trained tiny model answers in a group, how fast, and what the engine counts meanwhile."""

from __future__ import annotations

import json
import re
import time
import typing as t

from ansible_collections.dgxspark.cluster.tests.engines.answers import ANSWERS, COUNTING
from ansible_collections.dgxspark.cluster.tests.engines.groups import Group, Plain

TURNS = 6
COUNTED = re.compile(r"^\S*(?:spec_|generation_tokens|num_requests)\S*(?:\{.*\})? \S+$", re.MULTILINE)


def taught(group: Group) -> Plain:
    """Ask all that the model was taught, then its longest answer again and again.

    Return the questions that were answered wrongly, tokens and seconds of the long answers, one after the other, and the metrics of
    speculation before and after all of it.
    """
    before = _counted(group)
    wrong = {ask: answer for ask in ANSWERS if (answer := said(group, ask)[0]) != ANSWERS[ask]}
    began, tokens = time.monotonic(), 0
    for _turn in range(TURNS):
        tokens += said(group, COUNTING)[1]
    seconds = round(time.monotonic() - began, 3)
    return {
        "asked": len(ANSWERS),
        "wrong": wrong,
        "tokens": tokens,
        "seconds": seconds,
        "metrics": [before, _counted(group)],
    }


def said(group: Group, ask: str, patience_s: float = 240) -> tuple[str, int]:
    """Return the answer and its tokens."""
    body = {
        "model": group.plan["model"],
        "messages": [{"role": "user", "content": ask}],
        "max_tokens": 256,
        "temperature": 0,
    }
    status, text = group.ask("/v1/chat/completions", body, patience_s)
    if status != 200:
        return f"status {status}: {text[:200]}", 0
    answer: t.Any = json.loads(text)
    return str(answer["choices"][0]["message"]["content"]).strip(), int(answer["usage"]["completion_tokens"])


def _counted(group: Group) -> str:
    """Return the lines of the metrics that count drafts and tokens."""
    return "\n".join(COUNTED.findall(group.ask("/metrics")[1]))
