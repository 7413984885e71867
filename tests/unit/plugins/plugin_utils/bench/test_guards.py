"""The guards: garbage of the kinds that were seen trips them, and text that repeats itself for good reason does not.

All texts are invented. The true ones are what collapsed models wrote: one mark for ever, one word, two words, a paragraph.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import pathlib
import random
import sysconfig
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.guards import (
    Answer,
    GuardHit,
    TextGuard,
    compare,
    limits_of,
)
from ansible_collections.dgxspark.cluster.tests.support.properties import examples
from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT

LIMITS = limits_of(knowledge.load("guards"))

PROSE = (
    "A lighthouse stands where the coast is dangerous and shows passing ships where they are. In former days a keeper "
    "lived there with his family, carried oil up the stairs at dusk and kept the lamp burning until the morning. Today "
    "most lights switch themselves on, report their own faults and are visited by a boat only a few times each year. "
    "Sailors still look for them, although satellites tell a ship's place within a few metres, because a light on a "
    "rock cannot be jammed and needs no receiver. Each has a rhythm of its own, so that nobody takes one for another. "
)
COLLAPSED = {
    "one mark": "!" * 900,
    "one mark after a good beginning": PROSE + "!" * 900,
    "one mark with blanks": PROSE + "! " * 500,
    "blank lines": PROSE + "\n" * 900,
    "one word": PROSE + "the " * 300,
    "one word without an end": "and" * 400,
    "two words": PROSE + "of the " * 200,
    "two words with commas": PROSE + "yes, no, " * 120,
    "a sentence": PROSE + "I am sorry, but I cannot continue with this request. " * 20,
    "a paragraph": PROSE * 5,
    "a chapter": (PROSE + PROSE[::-1]) * 5,
    "a table's row": "| a | b |\n" * 90,
    "a Chinese sentence": "灯塔为船只指明方向。" * 90,
    "two Chinese characters": "的是" * 400,
    "a number": "0, " * 300,
    "json without an end": '{"a": [' + '{"x": 1}, ' * 100,
    "a loop with noise": PROSE
    + "".join(f"the answer is that {word}, " for _n in range(40) for word in ("yes", "no", "I see")),
    "few words in any order": PROSE + " ".join(random.Random(7).choices(["so", "we", "go", "on", "and"], k=600)),
    "few Chinese characters in any order": "".join(random.Random(7).choices("的是不了在", k=700)),
    "words and marks": PROSE + "well... " * 150,
}

PYTHON = "\n".join(
    f"    def test_{name}(self) -> None:\n        self.assertEqual({name}({value}), {value + 1})\n"
    f"        self.assertRaises(ValueError, {name}, None)\n"
    for value, name in enumerate(["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"] * 4)
)
GO = "".join(
    f'\tvalue{n}, err := read{n}(ctx, "key-{n}")\n\tif err != nil {{\n\t\treturn nil, err\n\t}}\n' for n in range(60)
)
C_TABLE = "static const uint16_t crc[] = {\n" + "".join(
    "    " + ", ".join(f"0x{(n * 40503) & 0xFFFF:04x}" for n in range(row, row + 8)) + ",\n" for row in range(0, 256, 8)
)
OK_TABLE = "| host | " + " | ".join(f"check {n}" for n in range(10)) + " |\n" + "|---" * 11 + "|\n"
OK_TABLE += "".join(f"| spark{n} | " + "ok | " * 10 + "\n" for n in range(1, 80))
POEM = "".join(
    f"{verse}\nOh, the lamp, the lamp, the lamp on the hill,\nit turns and it turns and it never stands still.\n\n"
    for verse in (
        "The herring boats went out at four\nwith nothing but the dark before,",
        "The captain counted one by one\nthe seconds till the flash had gone,",
        "My mother stood upon the quay\nand wished the weather out to sea,",
        "They came back late, they came back cold,\nwith half the catch that they had sold,",
        "And when the keeper went to bed\nthe fog bell told the rocks instead,",
        "So if you sail and if you roam\nlook for the light that brings you home,",
    )
)
BOTTLES = "".join(
    f"{n} bottles of beer on the wall, {n} bottles of beer. Take one down and pass it around, {n - 1} bottles of beer on "
    "the wall.\n"
    for n in range(99, 40, -1)
)
CHINESE = (
    "灯塔是位于海岸、港口或河道的塔状建筑，用来指引船只的方向。古时候人们用火把照明，后来改用油灯，再后来改用电灯。"
    "守塔人每天傍晚把灯油提上塔顶，一直守到天亮。现在大多数灯塔已经自动化，但航海者仍然依靠它们，因为卫星信号可能受到干扰，"
    "而岩石上的一束光却不会。每座灯塔都有自己的节奏，所以没有人会认错。港口的老人说，风浪越大，灯光就越显得温暖。"
    "学校的孩子们常常在假期去参观，他们沿着螺旋楼梯数台阶，到了顶上就能看见整个海湾和远处的岛屿。"
)
JAPANESE = (
    "灯台は、船が安全に航海できるように、夜のあいだ光を出しつづける塔です。むかしは灯台守が家族とともに住み、毎晩ランプに"
    "火をともしていました。いまはほとんどが自動になり、年に数回だけ点検の船がおとずれます。それでも漁師たちは、衛星よりも"
    "まず岬の光を見て、自分の位置をたしかめるといいます。"
)
HONEST = {
    "prose": PROSE,
    "a listing of tests": PYTHON,
    "a listing with the same check again and again": GO,
    "a table of numbers in C": C_TABLE,
    "a table in which all is well": OK_TABLE,
    "a table of figures": "".join(f"| {n} | {n * n} | {n**3} | {n % 7} |\n" for n in range(1, 150)),
    "a JSON array of records": json.dumps(
        [{"name": f"spark{n}", "state": "up", "mtu": 9000, "speed": 200000, "ok": True} for n in range(120)], indent=2
    ),
    "a JSON array of small records": json.dumps([{"x": n} for n in range(300)]),
    "a JSON array of numbers": json.dumps(list(range(600))),
    "equal layers of a config.json": json.dumps(
        {"layer_types": ["full_attention"] * 94, "vocab_size": 151936}, indent=2
    ),
    "layers of two kinds": json.dumps({"layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 20}, indent=2),
    "a vector of zeros": "The vector is [" + "0.0, " * 767 + "0.0], as was to be shown.",
    "a matrix": "\n".join(", ".join("1" if row == column else "0" for column in range(24)) for row in range(24)),
    "records in YAML": "".join(f"- name: spark{n}\n  state: up\n  mtu: 9000\n  driver: mlx5_core\n" for n in range(90)),
    "comma-separated values": "".join(f"2026-11-{1 + n % 28:02d},spark{n},open,open,closed,open\n" for n in range(150)),
    "a poem with a refrain": POEM,
    "a song that counts": BOTTLES,
    "Chinese": CHINESE,
    "Japanese": JAPANESE,
    "a rule and a heading": "=" * 78 + "\nResults\n" + "=" * 78 + "\n\n" + PROSE + "\n" + "-" * 78 + "\n",
    "numbers in words": ", ".join(
        f"{ten}{one}" for ten in ("twenty", "thirty", "forty", "fifty") for one in ("", "-one", "-two", "-three")
    ),
    "steps": "".join(f"Step {n}: take part {n}, turn it, and put it onto part {n + 1}.\n" for n in range(1, 60)),
    "an HTML table": "".join(f"<tr><td>{n}</td><td>{n * 3}</td><td>open</td></tr>\n" for n in range(120)),
    "a dialogue": "".join(
        f'"{line}," said {who}.\n'
        for line, who in itertools.islice(
            zip(
                itertools.cycle(["No", "Yes", "Then go", "I will not", "You must", "Why me", "Who else"]),
                itertools.cycle(["Anna", "the keeper", "Tom", "the boy"]),
                strict=False,
            ),
            90,
        )
    ),
    "a hex dump": "".join(
        f"{n * 16:08x}  " + " ".join(f"{(n * 37 + b * 11) % 256:02x}" for b in range(16)) + "\n" for n in range(60)
    ),
}

WRITTEN = ("plugins", "roles", "knowledge", "docs", "lab", "tests", "tools", "playbooks", "changelogs", "benchmarks")
MOST_OF_A_KIND = 60
LENGTH = 4000


def look(text: str, *cuts: int) -> GuardHit | None:
    guard = TextGuard(LIMITS)
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    for begin, end in itertools.pairwise(places):
        guard.feed(text[begin:end])
    return guard.close()


@pytest.mark.parametrize("name", COLLAPSED)
def test_garbage_trips_a_guard(name: str) -> None:
    trip = look(COLLAPSED[name])
    assert trip is not None
    assert trip.message
    assert trip.sample


@pytest.mark.parametrize("name", HONEST)
def test_honest_text_does_not(name: str) -> None:
    assert look(HONEST[name]) is None


def written() -> dict[str, str]:
    """Texts that people and programs wrote for this repository, of every kind in it, as long as an answer of 1000 tokens."""
    files: dict[str, list[pathlib.Path]] = {}
    for path in sorted(
        path
        for folder in WRITTEN
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.stat().st_size >= 1000
    ):
        files.setdefault(path.suffix, []).append(path)
    found = {}
    for path in itertools.chain.from_iterable(group[:MOST_OF_A_KIND] for group in files.values()):
        with contextlib.suppress(UnicodeDecodeError):
            text = path.read_text(encoding="utf-8")
            for begin in range(0, min(len(text), 3 * LENGTH), LENGTH):
                if len(text) - begin >= 1000:
                    found[f"{path.relative_to(ROOT)} from {begin}"] = text[begin : begin + LENGTH]
    return found


def test_no_false_alarm_on_hundreds_of_normal_texts() -> None:
    texts = written()
    kinds = {name.rpartition(" from ")[0].rpartition(".")[2] for name in texts}
    assert len(texts) >= 300
    assert kinds >= {"py", "yml", "json", "md", "rst", "css", "j2", "log", "txt"}
    assert {name: trip.message for name, text in texts.items() if (trip := look(text))} == {}


@pytest.mark.parametrize("name", HONEST)
def test_honest_text_before_garbage_does_not_hide_it(name: str) -> None:
    trip = look(HONEST[name] + "\n" + "!" * 1200)
    assert trip is not None
    assert trip.guard == "loop"
    assert trip.at >= len(HONEST[name])


def test_a_guard_trips_long_before_the_token_limit() -> None:
    guard = TextGuard(LIMITS)
    fed = 0
    while guard.feed("! ") is None and fed < 20000:
        fed += 2
    assert fed < 1000


@pytest.mark.parametrize(
    ("text", "guard"),
    [
        ("!" * 64, "single"),
        ("the " * 12, "single"),
        ("哈" * 30, None),  # one run of letters counts as one token unless the server says otherwise
        ("foo bar " * 32, "flood"),
        ("0" * 512, "single"),
        ("0" * 64, "single"),
        ("and" * 128, "single"),
        ("Zeros: " + "0" * 512, "single"),
        ("1" + "0" * 100, None),  # a number that was asked for
        ("0." + "0" * 300 + "1", None),
        (f"10 to the 512th is 1{'0' * 512}.", None),
        ("ab" * 20, None),
        ("0123456789abcdef" * 20, None),
        ("No.", None),
        ("", None),
        ("ha ha ha", None),
        ("1, 2, 3, 4, 5, 6, 7, 8, 9, 10", None),
    ],
)
def test_a_short_answer_is_judged_at_its_end(text: str, guard: str | None) -> None:
    trip = look(text)
    assert (trip.guard if trip else None) == guard


TEXTS = st.one_of(
    st.sampled_from(list(HONEST.values())),
    st.sampled_from(list(COLLAPSED.values())),
    st.text(max_size=300),
    st.builds(lambda a, b, n: a + b * n, st.text(max_size=80), st.text(min_size=1, max_size=40), st.integers(0, 120)),
)


@settings(deadline=None, max_examples=examples(60))
@given(TEXTS, st.lists(st.integers(0, 100000), max_size=40))
@example(COLLAPSED["a Chinese sentence"], [400])  # the position of a match within a piece
def test_what_is_found_does_not_depend_on_the_pieces(text: str, cuts: list[int]) -> None:
    assert look(text, *cuts) == look(text)


@settings(deadline=None, max_examples=examples(60))
@given(st.text(min_size=1, max_size=250).filter(lambda text: text.strip() != ""), st.sampled_from(["", PROSE, GO]))
def test_any_exact_repetition_is_found(unit: str, before: str) -> None:
    repeats = max(4, 800 // len(unit) + 1) + 3
    assert look(before + unit * repeats) is not None


@settings(deadline=None, max_examples=examples(40))
@given(st.integers(0, 2**32))
def test_random_words_never_trip(seed: int) -> None:
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _n in range(120)]
    assert look(" ".join(rng.choices(words, k=500))) is None


def test_one_request_s_state_is_its_own() -> None:
    good, bad = TextGuard(LIMITS), TextGuard(LIMITS)
    for piece in (PROSE[n : n + 7] for n in range(0, len(PROSE), 7)):
        good.feed(piece)
        bad.feed("! ! ! ! ! ! ! !\n")
    assert bad.close() is not None
    assert good.close() is None


# --- over all requests ------------------------------------------------------------------------------------------------


def answers(speeds: list[float | None], content: bool = True, reason: str = "stop") -> list[Answer]:
    return [Answer(f"n{n}", speed, content, reason) for n, speed in enumerate(speeds)]


def found(given_answers: list[Answer]) -> dict[str, str]:
    return {sign.id: sign.severity for sign in compare(given_answers, LIMITS.requests)}


def test_the_fingerprint_of_a_collapsed_model() -> None:
    """Eight requests as observed: equal to two decimal places, only reasoning, all cut at the limit."""
    assert found(answers([18.06, 18.0601, 18.0599] + [18.06] * 5, content=False, reason="length")) == {
        "tokens.no-content": "error",
        "tokens.identical-speed": "error",
        "tokens.all-length": "error",
    }


def test_one_of_the_signs_alone_is_odd_at_most() -> None:
    assert found(answers([18.06] * 4)) == {"tokens.identical-speed": "warning"}
    assert found(answers([18.06, 18.9, 17.2], reason="length")) == {"tokens.all-length": "warning"}
    assert found(answers([18.06] * 4, reason="length")) == {
        "tokens.identical-speed": "error",
        "tokens.all-length": "error",
    }


def test_healthy_requests_have_nothing_in_common() -> None:
    assert found(answers([21.93, 22.05, 21.71, 22.4])) == {}
    assert found([]) == {}


def test_of_one_request_only_its_content_counts() -> None:
    assert found(answers([18.06], reason="length")) == {}
    assert found(answers([18.06], content=False)) == {"tokens.no-content": "error"}


def test_unknown_speeds_are_not_equal() -> None:
    assert found(answers([None, None, None])) == {}


def test_wrong_limits_are_named() -> None:
    entries = knowledge.load("guards")
    with pytest.raises(CollectionError, match="the entry 'flood' is missing"):
        limits_of({name: entry for name, entry in entries.items() if name != "flood"})
    spoilt = {**entries, "loop": {**entries["loop"], "values": {"min_chars": 600, "repeats": 4, "maximum": 3}}}
    with pytest.raises(CollectionError, match=r"guards\.loop: unknown key 'maximum'"):
        limits_of(spoilt)


MACHINE = {
    "the standard library": (sysconfig.get_path("stdlib"), "*.py"),
    "packages": (sysconfig.get_path("purelib"), "**/*.py"),
    "Markdown": (sysconfig.get_path("purelib"), "**/*.md"),
    "JSON": (sysconfig.get_path("purelib"), "**/*.json"),
    "YAML": (sysconfig.get_path("purelib"), "**/*.yml"),
    "JavaScript": (sysconfig.get_path("purelib"), "**/*.js"),
    "licences": ("/usr/share/common-licenses", "*"),
    "copyright notes": ("/usr/share/doc", "*/copyright"),
    "headers in C": ("/usr/include", "**/*.h"),
    "Perl": ("/usr/share/perl", "**/*.pm"),
    "tables of locales": ("/usr/share/i18n/locales", "*"),
    "lessons in many languages and scripts": ("/usr/share/vim", "**/tutor.*"),
}


@pytest.mark.long
def test_no_false_alarm_on_what_lies_on_this_machine() -> None:
    trips, looked = {}, Counter[str]()
    for kind, (folder, pattern) in MACHINE.items():
        files = sorted(path for path in pathlib.Path(folder).glob(pattern) if path.is_file())
        for path in files[:MOST_OF_A_KIND]:
            with contextlib.suppress(UnicodeDecodeError, OSError):
                text = path.read_text(encoding="utf-8")
                for begin in range(0, min(len(text), 3 * LENGTH), LENGTH):
                    if len(text) - begin >= 1000:
                        looked[kind] += 1
                        trip = look(text[begin : begin + LENGTH])
                        if trip:
                            trips[f"{path} from {begin}"] = trip.message
    print(f"\n{looked.total()} texts: {dict(looked)}")
    if looked.total() < 300:
        pytest.skip(f"not run: {looked.total()} texts are here")
    assert trips == {}
