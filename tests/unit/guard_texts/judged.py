"""What the benchmark says of a model that writes the texts of a family: its own verdict at `n` requests at once, without a server."""

from __future__ import annotations

import functools
import itertools
import random
import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.across import load_limits_of
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.client import ChatRequest
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.figures import Record
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.guards import GuardHit, TextGuard, limits_of
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.load import Turn
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.measure import Bench, Result, judged
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.workloads import Question, questions, workload_of
from ansible_collections.dgxspark.cluster.tests.stand_ins.scripted_engine import answer_of

from . import Family

LEVELS = (1, 4, 8)
# When a model writes its garbage: to all requests; to those together, and alone it is sound; to all but the greedy prompt's; to all, but
# after the question itself, and up to the limit; to all, but after the right answer; to all that has no known answer.
MODES = ("always", "together", "load", "begun", "answered", "unknown")
BEGUN = ("begun", "answered")
_ROUNDS, _CHARS = 2, 4  # characters of a token
_ONES = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
_TEENS = ["ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
_NUMBERS = [
    *_ONES,
    *_TEENS,
    *(f"{ten}{one}" for ten in ("twenty", "thirty") for one in ("", *(f"-{o}" for o in _ONES))),
    "forty",
]
# Of a model that thinks up to the limit: longer than max_tokens.
THOUGHTS = (
    "The user asks for the numbers from one to forty in English words, separated by commas, and nothing else. So no greeting and no "
    "closing remark. Should I use digits? No, words. Should there be a full stop at the end? It says nothing else, so perhaps none. "
    "What of hyphens: twenty-one has one by the usual rules, and so have all compounds up to ninety-nine. I also have to watch forty, "
    "which people like to spell with a u. Fourteen keeps it, forty does not. Let me think about capitals next: a list in the middle of "
    "a sentence has none, though one at the beginning could have one. I would rather keep all of them small, as they are easier to "
    "check by a program. Separators are commas, each followed by a space; a line break would be another separator. The last pair gets "
    "no `and`, because only commas were named. How long will that be? Ten numbers take some fifty characters, the teens a little more, "
    "the twenties and thirties about a hundred and twenty each, so less than five hundred in all. That fits on a screen. Now, is zero "
    "wanted? From one, so no. Is forty included? Up to and including it, I would say, since both ends are named in the same way. Let "
    "me also recall the teens, where mistakes are easy: thirteen and not threeteen, fifteen and not fiveteen, eighteen with a single "
    "t in the middle. Twelve and eleven are irregular anyhow. For the tens: twenty has an e, thirty follows thirteen. Nineteen and "
    "ninety are often confused, though ninety is out of range here. I could verify the count afterwards: forty items have thirty-nine "
    "commas between them. If a program reads the answer, it will split at the commas and strip blanks. A stray remark would spoil it, "
    "and that is surely why the instruction is so strict. Good. One more doubt: some style guides write numbers above ten as digits, "
    "but the wish for English words overrules them. I am confident about the form, then, and can begin to write the list itself down "
    "in order, from the lowest to the highest, without skipping any of them on the way, and stop right after the last one of them."
)
# What a sound model answers to the greedy prompt: reasoning, and answer.
SOUND = [
    ("", ", ".join(_NUMBERS)),
    ("", "Sure! Here are the numbers from one to forty in English words:\n\n" + ", ".join(_NUMBERS) + "."),
    ("", ",\n".join(each.capitalize() for each in _NUMBERS)),
    ("The user wants the numbers from one to forty. I will write them.", ", ".join(_NUMBERS)),
    (THOUGHTS, ""),
]
# What a sound model answers to a known question: reasoning, and answer.
TOLD: list[t.Callable[[str, str], tuple[str, str]]] = [
    lambda _ask, answer: ("", answer),
    lambda _ask, answer: ("", f"The answer is **{answer}**."),
    lambda ask, answer: ("", f"You asked: {ask}\n\nThat would be {answer}, of course.\n"),
    lambda ask, answer: (f"The user asks: {ask} I know that: {answer}. No more words.", answer),
    lambda ask, answer: (f"The user asks: {ask} {THOUGHTS}", answer),
]
GUARDS, WORK = knowledge.load("guards"), knowledge.load("workloads")
LIMITS, OVER = limits_of(GUARDS), load_limits_of(GUARDS)
CHAT, GREEDY, KNOWN = (workload_of(name, WORK) for name in ("chat", "greedy", "known"))


@functools.cache
def tripped(text: str, ended: bool) -> GuardHit | None:
    """Return what the guard of one stream says. ended: by the model, and not at the limit."""
    guard = TextGuard(LIMITS)
    for at in range(0, len(text), 60):
        if guard.feed(text[at : at + 60]):
            return guard.trip
    try:
        return guard.close(ended=ended)
    except TypeError:  # of a checkout before it knew
        return guard.close()


def record(index: int, question: int, said: tuple[str, str], max_tokens: int) -> Record:
    """Return the record of an answer, cut at the limit."""
    reasoning, content = said[0][: max_tokens * _CHARS], said[1]
    content = content[: max_tokens * _CHARS - len(reasoning)]
    is_cut = len(reasoning) + len(content) >= max_tokens * _CHARS
    reason = "length" if is_cut else "stop"
    trip = next((hit for text in (reasoning, content) if text and (hit := tripped(text, not is_cut))), None)
    empty = not (reasoning + content).strip()
    tokens = max(1, len(reasoning + content) // _CHARS)
    return Record(
        index=index, question=question, status="garbage" if trip else "failed" if empty else "ok", began=0.0,
        ended=2.0 + index * 0.37, times=(0.2, 1.0, 2.0 + index * 0.37), counts=(None,) * 3, tokens=tokens, tokens_are_counted=True,
        finish_reason=reason, cause="tokens.garbage" if trip else "tokens.empty" if empty else None,
        message=trip.message if trip else "", guard=trip.guard if trip else None, content=content, reasoning=reasoning,
    )  # fmt: skip


def result(family: Family, n: int, mode: str, seed: int) -> Result:
    """Return the bench's result of a model that writes this family's texts.

    A benign one counts to forty when asked to, and knows what is known; with an odd seed, all but one of it.
    """
    chance, sound, seen = random.Random(f"{family.name} {n} {mode} {seed}"), SOUND[seed % len(SOUND)], set[str]()
    (greedy,) = questions(GREEDY, 1)
    asked = questions(CHAT, n * _ROUNDS, seed)
    told = questions(KNOWN, max(n, OVER.known.min_answers), seed * 4)

    def counted(is_sound: bool, count: int) -> Turn:
        said: t.Iterable[tuple[str, str]] = (
            itertools.repeat(sound) if is_sound else iter(lambda: ("", family.make(chance, greedy.text)), None)
        )
        if mode in BEGUN:
            said = iter(lambda: spoken(derailed(greedy.text, ", ".join(_NUMBERS), GREEDY.max_tokens)), None)
        return turn(n, [record(at, 0, each, GREEDY.max_tokens) for at, each in zip(range(count), said, strict=False)])

    def derailed(text: str, answer: str, max_tokens: int) -> str:
        """Return garbage up to the limit after the question, or half as much after the right answer."""
        said, most = (text, max_tokens) if mode == "begun" else (answer, max_tokens // 2)
        while len(said) < most * _CHARS:
            said += f"\n{family.make(chance, text)}"
        return said

    def known(place: int, question: Question) -> tuple[str, str]:
        if mode in BEGUN:
            return spoken(derailed(question.text, answer_of(question.text) or "", KNOWN.max_tokens))
        if family.garbage and mode in ("always", "load", *(["together"] if n > 1 else [])):
            return "", family.make(chance, question.text)
        if place == 0 and seed % 2:
            return "", "I do not know that."
        return TOLD[seed % len(TOLD)](question.text, answer_of(question.text) or "")

    def answered(text: str) -> str:
        answer = derailed(text, text, CHAT.max_tokens) if mode in BEGUN else family.make(chance, text)
        if not family.garbage and answer in seen:  # a sound model does not give one text to two questions
            answer = f"{text}\n{answer}"
        seen.add(answer)
        return answer

    def spoken(text: str) -> tuple[str, str]:
        """Return a text as thoughts with an odd seed, else as an answer."""
        return (text, "") if seed % 2 else ("", text)

    heard = [record(q.index, q.number, known(at, q), KNOWN.max_tokens) for at, q in enumerate(told)]
    load = [record(q.index, q.number, ("", answered(q.text)), CHAT.max_tokens) for q in asked]
    bench = Bench(ChatRequest("a", "http://127.0.0.1/v1", "", 1, 9.0), CHAT, GREEDY, KNOWN, LEVELS, _ROUNDS, 60.0)
    return judged(
        bench,
        counted(not family.garbage or mode != "always", 2),
        counted(not family.garbage or mode in ("load", "unknown"), max(n, OVER.parting.min_answers) if n > 1 else 1),
        turn(n, load),
        turn(n, heard),
        asked,
        told,
        LIMITS,
        OVER,
    )


def turn(n: int, records: list[Record]) -> Turn:
    return Turn(n, tuple(records), 0, 9.0, 0.1)
