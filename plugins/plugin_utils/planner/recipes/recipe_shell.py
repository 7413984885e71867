# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Splits a shell script into commands of words, as a shell would. The script is read, never run.

What only running it could tell counts as an unset variable: a command's output, assignments in a branch or loop.
A command in a branch or loop is marked by its `inside`. The script is assumed to start without arguments.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

MOST = 1_000_000  # characters that a script's variables may expand to in all: a few kilobytes can expand to terabytes
WORD = 64 * 1024  # characters of one word
DEEP, NEAR = 40, 8192  # levels of constructs within each other; characters within which a brace must be closed
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=(.*)", re.DOTALL)
_BRACED = re.compile(r"\{([#!]?)([A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*])(\[[^]{}]*\])?(:?[-=?+])?")
_UNSET = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*|[0-9]+|what [^{}]*)\}")
_FIELD = re.compile(r"(?:\$\{what [^{}]*\}|\S)+")
# A placeholder that a person fills in: <MODEL>.
_PERSON = re.compile(r"([A-Za-z][\w./:-]*)>")
_SKIPPED = re.compile(r"[ \t]*(?:\"(?:\\.|[^\"])*\"|'[^']*'|[^\s;&|()<>])+", re.DOTALL)
_HERE = re.compile(r"(-?)[ \t]*(['\"]?)([A-Za-z_][\w.-]*)\2")
_PRINTED = "${what a command prints}"
_OPENS = frozenset(["if", "for", "while", "until", "select", "case"])
_BETWEEN = frozenset(["then", "else", "elif", "do", "!"])
_CLOSES = {"fi": ("if",), "done": ("for", "while", "until", "select"), "esac": ("case",), "}": ("{",)}
DECLARES = ("export", "declare", "readonly", "local", "typeset")


@dataclass(frozen=True)
class Command:
    """One simple command: its words, the assignments before it, and the operator after it (`|`, `&&` …).

    inside: its branch or loop (`if`, `for` … or `||`), else empty.
    """

    words: tuple[str, ...]
    assigned: tuple[tuple[str, str], ...] = ()
    after: str = ""
    inside: str = ""

    def __str__(self) -> str:
        return " ".join([*(f"{name}=…" for name, _value in self.assigned), *self.words])


def unset(text: str) -> str | None:
    """Return the name of the first unset variable in a word."""
    found = _UNSET.search(text)
    return found.group(1) if found else None


def expanded(text: str, variables: t.Mapping[str, str]) -> str:
    """Substitute variables in a text that is not a shell word, as Compose does: `$NAME`, `${NAME:-default}`, `$$` for a dollar."""
    return _Lexer(text, dict(variables), compose=True).flat()


def commands(text: str, given: t.Mapping[str, str] | None = None) -> list[Command]:
    """Split a text into its commands. given: variables that keep their values, whatever the text assigns to them.

    An unset variable stays as `${NAME}`. Raises CollectionError if it is not shell text.
    """
    # As in sparkrun: blanks after a backslash at the end of a line do not end the command.
    lexer = _Lexer(re.sub(r"\\[ \t\r]+\n", "\\\\\n", text.replace("\r\n", "\n")), dict(given or {}), given or {})
    lexer.run()
    return lexer.found


def _unknown(name: str) -> str:
    return f"${{what a shell makes of {name}}}"


@dataclass
class _Lexer:
    text: str
    variables: dict[str, str]
    given: t.Mapping[str, str] = field(default_factory=dict)
    compose: bool = False
    left: list[int] = field(default_factory=lambda: [MOST])  # shared with the lexers of inner texts
    depth: int = 0
    array: bool = False  # only the words up to a closing parenthesis
    at: int = 0
    arrays: dict[str, list[str]] = field(default_factory=dict)
    found: list[Command] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    assigned: list[tuple[str, str]] = field(default_factory=list)
    word: str | None = None
    quoted: bool = False
    emptied: bool = False  # the word contains an empty array
    header: str = ""  # of `for` or `case`: the words up to its body
    function: bool = False  # its name was read, its body follows
    open: list[tuple[str, str]] = field(
        default_factory=list
    )  # unclosed constructs, each with the `inside` of its commands
    here: list[tuple[str, bool]] = field(default_factory=list)  # delimiters of here-documents that begin below

    def take(self) -> str:
        self.at += 1
        return self.text[self.at - 1]

    def next(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def refuse(self, what: str) -> CollectionError:
        line = self.text.count("\n", 0, self.at) + 1
        return CollectionError(
            f"line {line}: {what}, which only a shell can evaluate, and nothing in a recipe is run. Write the result there."
        )

    def spend(self, count: int) -> None:
        """Count characters or elements that variables expand to."""
        self.left[0] -= count
        if self.left[0] < 0:
            raise self.refuse(f"its variables expand to more than {MOST} characters")

    def within(self, text: str, **more: t.Any) -> _Lexer:
        """Return a lexer of an inner text, with the same variables and limits."""
        if self.depth >= DEEP:
            raise self.refuse(f"constructs are nested more than {DEEP} levels deep")
        shared: dict[str, t.Any] = {"arrays": self.arrays, "left": self.left, "depth": self.depth + 1}
        return _Lexer(text, self.variables, compose=self.compose, **shared, **more)

    def inside(self) -> str:
        """Return what makes it uncertain that a command here runs; empty if it is certain."""
        return next((kind for _opened, kind in self.open if kind), self.guarded())

    def guarded(self) -> str:
        before = self.found[-1] if self.found else None
        if before is None or before.after not in ("&&", "||"):
            return ""
        asked = before.words and before.words[0] in ("[", "[[", "test", "((")
        return "||" if before.after == "||" else "&&" if asked or before.inside == "&&" else ""

    def run(self) -> None:
        while self.at < len(self.text):
            if len(self.open) > DEEP:
                raise self.refuse(f"constructs are nested more than {DEEP} levels deep")
            char = self.take()
            if self.array and char in ")\n":
                self.end_word()
                if char == ")":
                    return
            elif char == "\\":
                if self.next("\n"):
                    self.at += 1
                elif self.at < len(self.text):
                    self.add(self.take())
            elif char == "'":
                self.single()
            elif char == '"':
                self.double()
            elif char == "`":
                self.add(self.backquoted())
            elif char == "$":
                self.bare(self.dollar())
            elif char == "#" and self.word is None:
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif char in " \t":
                self.end_word()
            elif char in "<>" or (char == "&" and self.next(">")):
                self.redirect(char)
            elif char in "\n;&|":
                self.operator(char)
            elif char == "(":
                self.parenthesis()
            elif char == ")":
                self.closed()
            else:
                self.add(char, bare=True)
        if self.array:
            raise self.refuse("a parenthesis is not closed")
        self.end_word()
        self.end_command("")
        if self.open:
            raise self.refuse(f"{self.open[-1][0]} is not closed")

    def add(self, text: str, bare: bool = False) -> None:
        self.word = (self.word or "") + text
        if len(self.word) > WORD:
            raise self.refuse(f"a word has more than {WORD} characters")
        self.quoted = self.quoted or not bare

    def bare(self, value: str | list[str]) -> None:
        """Add an unquoted variable's value: a shell splits it at blanks, but not in an assignment."""
        assigns = (not self.words or self.words[0] in DECLARES) and self.word and _ASSIGNED.fullmatch(self.word)
        if isinstance(value, list):
            self.several([piece for item in value for piece in _FIELD.findall(item)])
        elif assigns or not re.search(r"\s", value):
            if value or self.word is not None:
                self.add(value, bare=True)
        else:
            if value[0].isspace():
                self.end_word()
            self.several(_FIELD.findall(value))
            if value[-1].isspace():
                self.end_word()

    def several(self, values: list[str]) -> None:
        """Add an array's elements, each as a separate word."""
        self.emptied = self.emptied or not values
        for number, value in enumerate(values):
            if number:
                self.end_word()
            self.add(value)

    def single(self) -> None:
        end = self.text.find("'", self.at)
        if end < 0:
            raise self.refuse("a single quote is not closed")
        self.add(self.text[self.at : end])
        self.at = end + 1

    def double(self) -> None:
        first = self.at
        self.add("")
        while True:
            if self.at >= len(self.text):
                self.at = first
                raise self.refuse("a double quote is not closed")
            char = self.take()
            if char == '"':
                return
            if char == "\\" and self.at < len(self.text) and self.text[self.at] in '"\\$`\n':
                after = self.take()
                self.add("" if after == "\n" else after)
            elif char == "`":
                self.add(self.backquoted())
            elif char == "$":
                value = self.dollar()
                if isinstance(value, list):
                    self.several(value)
                else:
                    self.add(value)
            else:
                self.add(char)

    def flat(self) -> str:
        """Return the text as one word with variables substituted."""
        out = ""
        while self.at < len(self.text):
            char = self.take()
            if char == "$":
                value = self.dollar()
                out += value if isinstance(value, str) else " ".join(value)
            elif self.compose or char not in "\"'`":
                out += self.take() if char == "\\" and not self.compose and self.at < len(self.text) else char
        return out

    def dollar(self) -> str | list[str]:
        """Read what follows a `$` and return its value; a list for the elements of an array."""
        value = self.value()
        self.spend(len(value) if isinstance(value, str) else sum(map(len, value)) + len(value))
        return value

    def value(self) -> str | list[str]:
        """Return the value of what follows a `$`."""
        rest = self.text[self.at : self.at + NEAR]
        if self.compose and rest.startswith("$"):
            self.at += 1
            return "$"
        if rest.startswith("("):
            return self.printed()
        if rest.startswith("{"):
            return self.braced(rest)
        if named := _NAME.match(rest):
            self.at += named.end()
            name = named.group()
            return self.arrays[name][0] if self.arrays.get(name) else self.variables.get(name, f"${{{name}}}")
        if self.compose or not rest or rest[0] not in "@*#?$!-0123456789":
            return "$"
        self.at += 1
        special: dict[str, str | list[str]] = {"@": [], "*": [], "#": "0"}
        return f"${{{rest[0]}}}" if rest[0].isdigit() else special.get(rest[0], _unknown(f"${rest[0]}"))

    def braced(self, rest: str) -> str | list[str]:
        """Read `{…}` after a dollar."""
        depth = 0
        for end, char in enumerate(rest):  # noqa: B007
            depth += {"{": 1, "}": -1}.get(char, 0)
            if depth == 0:
                break
        else:
            raise self.refuse("${ is not closed")
        self.at += end + 1
        begun = _BRACED.match(rest)
        if not begun or begun[1]:
            return _unknown(rest[1:end])
        _length, name, index, how = begun.groups()
        after = rest[begun.end() : end]
        value: str | list[str] | None = self.variables.get(name)
        if name in "@*":
            value, how = [], how or ":"
        elif index in ("[@]", "[*]"):
            value = self.arrays.get(name)
        elif index:
            return _unknown(rest[1:end])
        if after and not how:
            return _unknown(rest[1:end])
        missing = value is None or (bool(how) and how.startswith(":") and not value)
        if how and how[-1] == "+":
            return "" if missing else value if isinstance(value, list) else self.inner(after)
        if how and how[-1] in "-=" and missing:
            made = self.inner(after)
            if how[-1] == "=":
                self.variables[name] = made
            return made if made or index is None else []
        if value is None:
            return [] if index and name in self.arrays else f"${{{name}}}"
        return f"${{{name}}}" if missing and how and how[-1] == "?" else value

    def inner(self, text: str) -> str:
        return self.within(text).flat()

    def backquoted(self) -> str:
        end = self.text.find("`", self.at)
        if end < 0:
            raise self.refuse("a backquote is not closed")
        self.at = end + 1
        return _PRINTED

    def printed(self) -> str:
        """Skip `(…)` after a dollar, `<` or `>`; quoted parentheses do not count."""
        depth, first = 0, self.at
        while self.at < len(self.text):
            char = self.take()
            if char == "\\":
                self.at += 1
            elif char in "'\"" and (end := self.text.find(char, self.at)) >= 0:
                self.at = end + 1
            depth += {"(": 1, ")": -1}.get(char, 0)
            if depth == 0:
                return _PRINTED
        self.at = first
        raise self.refuse("$( is not closed")

    def parenthesis(self) -> None:
        assigned = _ASSIGNED.fullmatch(self.word) if self.word and not self.quoted else None
        if assigned and not assigned[3] and (not self.words or self.words[0] in DECLARES):
            self.word = None
            self.elements(assigned[1], bool(assigned[2]))
        elif self.word and not self.words and re.match(r"[ \t]*\)", self.text[self.at :]):
            self.at = self.text.index(")", self.at) + 1
            self.word, self.function = None, True
        elif self.word is None and not self.words and self.next("("):
            end = self.text.find("))", self.at)
            if end < 0:
                raise self.refuse("(( is not closed")
            self.at = end + 2
            self.words = ["(("]
        elif self.word is None and not self.words:
            if not (self.open and self.open[-1][0] == "case"):
                self.open.append(("(", self.guarded()))
        else:
            raise self.refuse("a parenthesis in a word")

    def elements(self, name: str, more: bool) -> None:
        """Read the elements of an array."""
        inner = self.within(self.text, array=True, at=self.at)
        inner.run()
        self.at = inner.at
        self.assigned.append((name, " ".join(inner.words)))
        if not self.inside() and name not in self.given:
            self.spend(len(self.arrays.get(name, [])) if more else 0)
            self.arrays[name] = [*(self.arrays.get(name, []) if more else []), *inner.words]

    def closed(self) -> None:
        self.end_word()
        opened = self.open[-1][0] if self.open else ""
        if opened == "case":
            self.words, self.assigned = [], []  # a pattern
        elif opened == "(":
            self.end_command("")
            self.open.pop()
        else:
            raise self.refuse("a parenthesis that nothing opens")

    def operator(self, char: str) -> None:
        self.end_word()
        while char != "\n" and self.at < len(self.text) and self.text[self.at] in ";&|" and not self.next("&>"):
            char += self.take()
        self.end_command(char.strip())
        if char != "\n":
            return
        for end, tabs in self.here:
            found = re.compile(rf"^{'[	]*' if tabs else ''}{re.escape(end)}[ \t]*$", re.MULTILINE).search(
                self.text, self.at
            )
            if not found:
                raise self.refuse(f"a here-document without its end, {end}")
            self.at = found.end()
        self.here = []

    def redirect(self, char: str) -> None:
        """Skip redirections."""
        if char == "<" and (person := _PERSON.match(self.text, self.at)):
            self.at = person.end()
            self.add(f"${{what <{person[1]}> stands for}}")
            return
        if self.word is not None and self.word.isdigit() and not self.quoted:
            self.word = None
        self.end_word()
        while self.at < len(self.text) and self.text[self.at] in "<>&|" and len(char) < 3:
            char += self.take()
        if char == "<<" and (begins := _HERE.match(self.text, self.at)):
            self.at = begins.end()
            self.here.append((begins[3], bool(begins[1])))
            return
        blank = re.compile(r"[ \t]*(?=[<>]?\()").match(self.text, self.at)
        if blank:
            self.at = self.text.index("(", blank.end())
            self.printed()
        elif skip := _SKIPPED.match(self.text, self.at):
            self.at = skip.end()

    def keyword(self, word: str) -> bool:
        """Handle a word of the shell's grammar."""
        if word in _OPENS:
            self.open.append((word, word))
            self.header = word if word in ("for", "select", "case") else ""
        elif word == "{":
            self.open.append(("{", "" if self.function else self.guarded()))
            self.function = False
        elif word == "function":
            self.header = word
        elif word in _CLOSES:
            if not self.open or self.open[-1][0] not in _CLOSES[word]:
                raise self.refuse(f"{word} that nothing opens")
            self.open.pop()
        elif word == "[[":
            end = re.compile(r"\s\]\](?=[\s;&|)]|$)").search(self.text, self.at)
            if not end:
                raise self.refuse("[[ is not closed")
            self.at = end.end()
            self.words.append("[[")
        else:
            return word in _BETWEEN
        return True

    def end_word(self) -> None:
        word, quoted, emptied = self.word, self.quoted, self.emptied
        self.word, self.quoted, self.emptied = None, False, False
        if word is None or (emptied and not word):
            return
        if self.array:
            self.words.append(word)
        elif self.header == "function":
            self.header, self.function = "", True
        elif set_ := None if self.words else _ASSIGNED.fullmatch(word):
            before = self.variables.get(set_[1], "") if set_[2] else ""
            self.spend(len(before))
            self.assigned.append((set_[1], before + set_[3]))
            if not self.inside():
                self.arrays.pop(set_[1], None)
        elif self.words or self.assigned or quoted or self.header or not self.keyword(word):
            self.words.append(word)

    def declared(self, word: str) -> str:
        name, equals, _value = word.partition("=")
        return f"{name}={self.given[name]}" if equals and name in self.given else word

    def end_command(self, after: str) -> None:
        header, self.header = self.header, ""
        words = tuple(self.words)
        assigned = tuple((name, self.given.get(name, value)) for name, value in self.assigned)
        if words and words[0] in DECLARES:
            words = tuple(self.declared(word) for word in words)
        self.words, self.assigned = [], []
        if header in ("for", "select", "case") or not (words or assigned):
            return
        made = Command(words, assigned, after, self.inside())
        self.found.append(made)
        said = [word.partition("=") for word in words[1:]] if words and words[0] in DECLARES else []
        if not made.inside and (said or not words):
            for name, value in [*assigned, *((name, value) for name, equals, value in said if equals)]:
                self.variables[name] = value
