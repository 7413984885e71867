"""Benign texts that look odd for good reason: tables, drawings, lists of moves, numbers, programs, logs and short right answers."""

from __future__ import annotations

import itertools
import json
import random

from . import family

MADE = "ours: made here, as models answer such questions"
ISSUE = "issue 47: what earlier guards called garbage"


# --- to tune on -------------------------------------------------------------------------------------------------------


@family("tune", False, ISSUE)
def an_identity_matrix(chance: random.Random, _asked: str) -> str:
    size = chance.randint(8, 24)
    return "\n".join(" ".join(str(int(row == column)) for column in range(size)) for row in range(size))


@family("tune", False, ISSUE)
def the_Tower_of_Hanoi(chance: random.Random, _asked: str) -> str:
    words = chance.choice(["Move disk {} from {} to {}.", "Move disk {} from peg {} to peg {}", "{}: {} -> {}"])

    def moves(count: int, source: str, target: str, other: str) -> list[str]:
        if not count:
            return []
        return [
            *moves(count - 1, source, other, target),
            words.format(count, source, target),
            *moves(count - 1, other, target, source),
        ]

    return "\n".join(moves(chance.randint(5, 6), "A", "C", "B"))


@family("tune", False, ISSUE)
def a_drawing_of_boxes(chance: random.Random, _asked: str) -> str:
    width, rows = chance.randint(2, 6), chance.randint(4, 9)
    edge = "+" + "------+" * width
    return "\n".join([edge, *itertools.chain.from_iterable(["|" + "      |" * width, edge] for _n in range(rows))])


@family("tune", False, MADE)
def a_program_in_Python(chance: random.Random, _asked: str) -> str:
    names = chance.sample(["load", "save", "count", "find", "merge", "split", "check", "print"], 5)
    return "\n".join(
        f"def {name}(items):\n    for item in items:\n        if not item:\n            return None\n    return items\n"
        for name in names
    )


@family("tune", False, MADE)
def a_table(chance: random.Random, _asked: str) -> str:
    rows = [f"| spark{n} | {chance.choice(['up', 'down'])} | {chance.randint(1, 900)} |" for n in range(30)]
    return "\n".join(["| host | state | speed |", "|---|---|---|", *rows])


@family("tune", False, MADE)
def a_log(chance: random.Random, _asked: str) -> str:
    return "\n".join(f"2026-11-28 15:{n % 60:02d}:{chance.randint(0, 59):02d} INFO worker ready" for n in range(60))


@family("tune", False, MADE)
def a_short_answer(chance: random.Random, _asked: str) -> str:
    number = chance.randint(2, 9999)
    return chance.choice(
        [f"{number}", f"It is {number}.", f"{number} km", f"No, {number}.", f"About {number} of them."]
    )


@family("tune", False, MADE)
def records(chance: random.Random, _asked: str) -> str:
    return json.dumps([{"id": n, "ok": chance.random() < 0.9} for n in range(60)], indent=2)


# --- to test on -------------------------------------------------------------------------------------------------------


@family("test", False, ISSUE)
def permutations(chance: random.Random, _asked: str) -> str:
    return "\n".join(" ".join(each) for each in itertools.permutations("ABCDE"[: chance.randint(4, 5)]))


@family("test", False, ISSUE)
def a_drum_tab(chance: random.Random, _asked: str) -> str:
    bar = "HH|x-x-x-x-|x-x-x-x-|\nSD|----o---|----o---|\nBD|o-------|o---o---|\n"
    return "\n".join([bar] * chance.randint(4, 8))


@family("test", False, ISSUE)
def dots_of_pytest(chance: random.Random, _asked: str) -> str:
    lines = [f"tests/test_{n}.py {'.' * chance.randint(5, 50)}" for n in range(12)]
    return "\n".join([*lines, "." * 72, "." * 72, "." * chance.randint(3, 70), "12 passed in 3.1s"])


@family("test", False, MADE)
def bare_dots(chance: random.Random, _asked: str) -> str:
    return "\n".join("." * 72 + f" [{n * 10:3d}%]" for n in range(1, 11))


@family("test", False, MADE)
def a_triangle_of_stars(chance: random.Random, _asked: str) -> str:
    return "\n".join("*" * n for n in range(1, chance.randint(8, 24)))


@family("test", False, MADE)
def the_game_of_life(chance: random.Random, _asked: str) -> str:
    return "\n".join("".join(chance.choices(".#", k=40)) for _row in range(20))


@family("test", False, MADE)
def a_truth_table(chance: random.Random, _asked: str) -> str:
    count = chance.randint(3, 5)
    return "\n".join(" ".join("TF"[bit] for bit in bits) for bits in itertools.product((0, 1), repeat=count))


@family("test", False, MADE)
def fizz_and_buzz(chance: random.Random, _asked: str) -> str:
    return "\n".join(
        "Fizz" * (n % 3 == 0) + "Buzz" * (n % 5 == 0) or str(n) for n in range(1, chance.choice([51, 101]))
    )


@family("test", False, MADE)
def counting_in_binary(chance: random.Random, _asked: str) -> str:
    return chance.choice(["\n", ", "]).join(f"{n:06b}" for n in range(64))


@family("test", False, MADE)
def a_sequence_of_DNA(chance: random.Random, _asked: str) -> str:
    return "".join(chance.choices("ACGT", k=chance.randint(200, 600)))


@family("test", False, MADE)
def moves_of_chess(chance: random.Random, _asked: str) -> str:
    return " ".join(
        f"{n}. {chance.choice('NBRQ')}{chance.choice('abcdefgh')}{chance.randint(1, 8)} {chance.choice('abcdefgh')}5"
        for n in range(1, 40)
    )


@family("test", False, MADE)
def a_multiplication_table(chance: random.Random, _asked: str) -> str:
    most = chance.randint(9, 14)
    return "\n".join(" ".join(f"{a * b:3d}" for b in range(1, most)) for a in range(1, most))


@family("test", False, MADE)
def comma_separated_values(chance: random.Random, _asked: str) -> str:
    return "\n".join(f"{n},{chance.choice(['open', 'closed'])},{chance.random():.3f}" for n in range(80))


@family("test", False, MADE)
def a_program_in_C(chance: random.Random, _asked: str) -> str:
    names = chance.sample(["port", "mtu", "rank", "seed", "size", "left"], 4)
    return "\n".join(
        f'int read_{name}(FILE *in) {{\n    int {name} = 0;\n    if (fscanf(in, "%d", &{name}) != 1)\n        return -1;\n    return {name};\n}}\n'
        for name in names
    )


@family("test", False, MADE)
def a_schema_in_SQL(chance: random.Random, _asked: str) -> str:
    return "\n".join(
        f"CREATE TABLE {name} (\n  id INTEGER PRIMARY KEY,\n  name TEXT NOT NULL\n);\n"
        for name in chance.sample(["book", "copy", "member", "loan", "shelf"], 4)
    )


@family("test", False, MADE)
def a_page_of_HTML(chance: random.Random, _asked: str) -> str:
    return (
        "<ul>\n"
        + "\n".join(f'  <li><a href="#{n}">Chapter {n}</a></li>' for n in range(chance.randint(10, 40)))
        + "\n</ul>"
    )


@family("test", False, MADE)
def a_trace_of_an_error(chance: random.Random, _asked: str) -> str:
    return "\n".join(
        [
            "Traceback (most recent call last):",
            *[
                f'  File "/srv/app.py", line {chance.randint(1, 400)}, in walk\n    return walk(node.next)'
                for _n in range(20)
            ],
            "RecursionError: maximum recursion depth exceeded",
        ]
    )


@family("test", False, MADE)
def a_song_with_a_refrain(chance: random.Random, _asked: str) -> str:
    verses = [
        "The boats went out at four",
        "The captain counted one by one",
        "They came back late and cold",
        "And when the keeper went to bed",
    ]
    return "\n".join(
        f"{verse}\nOh, the lamp on the hill,\nthe lamp on the hill,\nit never stands still.\n"
        for verse in chance.sample(verses, 4)
    )


@family("test", False, MADE)
def bottles_of_beer(chance: random.Random, _asked: str) -> str:
    first = chance.randint(10, 40)
    return "\n".join(
        f"{n} bottles of beer on the wall, {n} bottles of beer. Take one down, pass it around, {n - 1} bottles of beer on the wall."
        for n in range(first, 0, -1)
    )


@family("test", False, MADE)
def the_code_of_Morse(chance: random.Random, _asked: str) -> str:
    return " ".join("".join(chance.choices(".-", k=chance.randint(1, 4))) for _n in range(90))


@family("test", False, MADE)
def a_tree_of_files(chance: random.Random, _asked: str) -> str:
    return "\n".join(f"{'│   ' * chance.randint(0, 3)}├── part{n}.py" for n in range(40))


@family("test", False, MADE)
def a_hex_dump(chance: random.Random, _asked: str) -> str:
    return "\n".join(
        f"{n * 16:08x}  " + " ".join(f"{chance.randrange(256):02x}" for _b in range(16)) for n in range(30)
    )


@family("test", False, MADE)
def checksums(chance: random.Random, _asked: str) -> str:
    return "\n".join(f"{chance.getrandbits(256):064x}  file-{n}.bin" for n in range(12))


@family("test", False, MADE)
def passwords(chance: random.Random, _asked: str) -> str:
    return "\n".join(
        f"{n}. " + "".join(chance.choices("abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789!#%+", k=16))
        for n in range(1, 21)
    )


@family("test", False, MADE)
def a_formula_in_LaTeX(chance: random.Random, _asked: str) -> str:
    size = chance.randint(4, 8)
    rows = " \\\\\n".join(" & ".join(str(int(a == b)) for b in range(size)) for a in range(size))
    return "\\[\nI = \\begin{pmatrix}\n" + rows + "\n\\end{pmatrix}\n\\]"


@family("test", False, MADE)
def greetings_of_the_world(_chance: random.Random, _asked: str) -> str:
    said = {
        "English": "Hello",
        "Russian": "Привет",
        "Chinese": "你好",
        "Japanese": "こんにちは",
        "Korean": "안녕하세요",
        "Greek": "Γειά σου",
        "Arabic": "مرحبا",
        "Hindi": "नमस्ते",
        "Thai": "สวัสดี",
        "Hebrew": "שלום",
    }
    return "\n".join(f"- {name}: {word}" for name, word in said.items())


@family("test", False, MADE)
def a_grid_of_Sudoku(chance: random.Random, _asked: str) -> str:
    return "\n".join(
        " ".join(str((row * 3 + row // 3 + column) % 9 + 1) for column in range(9))
        for row in chance.sample(range(9), 9)
    )


@family("test", False, MADE)
def Roman_numerals(_chance: random.Random, _asked: str) -> str:
    tens, ones = ["", "X", "XX", "XXX", "XL", "L"], ["", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX"]
    return ", ".join(ten + one for ten in tens for one in ones if ten + one)


@family("test", False, MADE)
def a_histogram(chance: random.Random, _asked: str) -> str:
    return "\n".join(
        f"{month} {'#' * chance.randint(5, 60)}"
        for month in ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    )


@family("test", False, MADE)
def true_and_false(chance: random.Random, _asked: str) -> str:
    return "\n".join(f"{n}. {chance.choice(['True', 'False'])}" for n in range(1, 81))


@family("test", False, MADE)
def right_numbers(chance: random.Random, _asked: str) -> str:
    number = chance.randint(2, 9999)
    return chance.choice(
        [f"The sum is {number}.", f"{number} apples", f"**{number}**", f"\\boxed{{{number}}}", f"Answer: {number}"]
    )


@family("test", False, MADE)
def a_difference_of_files(chance: random.Random, _asked: str) -> str:
    return "\n".join(
        [
            "--- a/x.yml",
            "+++ b/x.yml",
            *[f"@@ -{n},1 +{n},1 @@\n-  mtu: 1500\n+  mtu: 9000" for n in chance.sample(range(400), 20)],
        ]
    )


@family("test", False, MADE)
def names(chance: random.Random, _asked: str) -> str:
    return "\n".join(
        f"{n}. {chance.choice(['Anna', 'Tom', 'Mei', 'Olu', 'Jan'])} {chance.choice(['Berg', 'Costa', 'Li', 'Okafor', 'Novak'])}"
        for n in range(1, 51)
    )
