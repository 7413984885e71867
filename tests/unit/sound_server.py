"""A scripted model server that is sound: it counts to forty when asked to, knows what the bench asks, and answers all else with other words."""

from __future__ import annotations

import random

from ansible_collections.dgxspark.cluster.tests.stand_ins.scripted_engine import answer_of
from ansible_collections.dgxspark.cluster.tests.unit.chat_server import Answer, Request, sse

ONES = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen"
TENS = [f"{ten}{one}" for ten in ("twenty", "thirty") for one in ("", *(f"-{one}" for one in ONES.split()[:9]))]
NUMBERS = ", ".join([*ONES.split(), "nineteen", *TENS, "forty"]) + "."


def words(seed: str, count: int = 30) -> list[str]:
    """Return this many words, always the same for one seed."""
    chance = random.Random(seed)
    return ["".join(chance.choices("abcdefghij", k=chance.randint(2, 8))) + " " for _n in range(count)]


def sound(request: Request) -> Answer:
    """Answer a request."""
    text = request.body["messages"][0]["content"]
    if "one to forty" in text:
        return sse(*(f"{word} " for word in NUMBERS.split()), tokens=60)
    known = answer_of(text)
    if known is not None:
        return sse(*(f"{word} " for word in known.split()), tokens=len(known.split()))
    return sse(*words(text), tokens=30, pause=0.004)
