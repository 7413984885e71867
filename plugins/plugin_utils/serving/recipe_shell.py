# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A shell command as words, as a POSIX shell would split it. It is read and never run.

What a command prints (`$(…)`, backquotes) is as unknown as a variable that nothing sets; here-documents, groups and branches
are refused.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_BRACED = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)(?:(:?[-?])([^}]*))?\}")
_UNSET = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*|what a command prints)\}")
_PRINTED = "${what a command prints}"
_BRANCHES = frozenset(
    [
        "if",
        "then",
        "else",
        "elif",
        "fi",
        "for",
        "while",
        "until",
        "do",
        "done",
        "case",
        "esac",
        "function",
        "select",
        "{",
        "}",
        "[[",
    ]
)


@dataclass(frozen=True)
class Command:
    """One simple command: its words, what is assigned in front of it, and what a shell does after it (`|`, `&&` …)."""

    words: tuple[str, ...]
    assigned: tuple[tuple[str, str], ...] = ()
    after: str = ""

    def __str__(self) -> str:
        return " ".join([*(f"{name}=…" for name, _value in self.assigned), *self.words])


def unset(text: str) -> str | None:
    """Return the name of the first variable in a word that nothing set."""
    found = _UNSET.search(text)
    return found.group(1) if found else None


def expanded(text: str, variables: t.Mapping[str, str]) -> str:
    """Put variables into a text that is no shell word, as Compose does: `$NAME`, `${NAME:-default}`, `$$` for a dollar."""
    lexer = _Lexer(text, dict(variables), compose=True)
    out = ""
    while lexer.at < len(text):
        out += lexer.dollar() if text[lexer.at] == "$" else lexer.take()
    return out


def commands(text: str, variables: t.Mapping[str, str] | None = None) -> list[Command]:
    """Split a text into its commands. variables: what is set before; what the text assigns itself is added in its order.

    A variable that nothing set stays as `${NAME}`. Raises CollectionError for what only a shell could know.
    """
    # As sparkrun has it: blanks after a backslash at the end of a line do not end the command.
    lexer = _Lexer(re.sub(r"\\[ \t\r]+\n", "\\\\\n", text.replace("\r\n", "\n")), dict(variables or {}))
    lexer.run()
    return lexer.found


@dataclass
class _Lexer:
    text: str
    variables: dict[str, str]
    compose: bool = False
    at: int = 0
    found: list[Command] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    assigned: list[tuple[str, str]] = field(default_factory=list)
    word: str | None = None
    quoted: bool = False

    def take(self) -> str:
        self.at += 1
        return self.text[self.at - 1]

    def refuse(self, what: str) -> CollectionError:
        line = self.text.count("\n", 0, self.at) + 1
        return CollectionError(
            f"line {line}: {what}, which only a shell can work out, and nothing of a recipe is run. Write the words themselves there."
        )

    def run(self) -> None:
        while self.at < len(self.text):
            char = self.take()
            if char == "\\":
                if self.at < len(self.text) and self.text[self.at] == "\n":
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
                self.at -= 1
                self.add(self.dollar(), bare=True)
            elif char == "#" and self.word is None:
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif char in " \t":
                self.end_word()
            elif char in "\n;&|":
                self.operator(char)
            elif char in "<>":
                self.redirect(char)
            elif char in "()":
                raise self.refuse("a group of commands in parentheses")
            else:
                self.add(char, bare=True)
        self.end_word()
        self.end_command("")

    def add(self, text: str, bare: bool = False) -> None:
        self.word = (self.word or "") + text
        self.quoted = self.quoted or not bare

    def single(self) -> None:
        end = self.text.find("'", self.at)
        if end < 0:
            raise self.refuse("a single quote is not closed")
        self.add(self.text[self.at : end])
        self.at = end + 1

    def double(self) -> None:
        self.add("")
        while True:
            if self.at >= len(self.text):
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
                self.at -= 1
                self.add(self.dollar())
            else:
                self.add(char)

    def dollar(self) -> str:
        """Read `$…` and return what it stands for."""
        self.at += 1
        rest = self.text[self.at :]
        if self.compose and rest.startswith("$"):
            self.at += 1
            return "$"
        if rest.startswith("("):
            return self.printed()
        if braced := _BRACED.match(rest):
            self.at += braced.end()
            name, how, default = braced.groups()
            value = self.variables.get(name)
            if how and (value is None or (how.startswith(":") and not value)):
                return default if how.endswith("-") else f"${{{name}}}"
            return f"${{{name}}}" if value is None else value
        if rest.startswith("{"):
            raise self.refuse(f"{'$' + rest.split('}')[0]}}}")
        if named := _NAME.match(rest):
            self.at += named.end()
            return self.variables.get(named.group(), f"${{{named.group()}}}")
        return "$"

    def backquoted(self) -> str:
        end = self.text.find("`", self.at)
        if end < 0:
            raise self.refuse("a backquote is not closed")
        self.at = end + 1
        return _PRINTED

    def printed(self) -> str:
        """Pass over `$(…)`."""
        depth, first = 0, self.at
        while self.at < len(self.text):
            depth += {"(": 1, ")": -1}.get(self.take(), 0)
            if depth == 0:
                return _PRINTED
        self.at = first
        raise self.refuse("$( is not closed")

    def operator(self, char: str) -> None:
        self.end_word()
        while self.at < len(self.text) and self.text[self.at] in ";&|" and char != "\n":
            char += self.take()
        self.end_command(char.strip())

    def redirect(self, char: str) -> None:
        """Leave out where output goes; a here-document is refused."""
        if self.word is not None and self.word.isdigit() and not self.quoted:
            self.word = None
        self.end_word()
        while self.at < len(self.text) and self.text[self.at] in "<>&":
            char += self.take()
        if "<" in char:
            raise self.refuse("input from elsewhere, <")
        skip = re.compile(r"[ \t]*[^\s;&|]+").match(self.text, self.at)
        self.at = skip.end() if skip else self.at

    def end_word(self) -> None:
        if self.word is None:
            return
        set_ = None if self.words else _ASSIGNED.fullmatch(self.word)
        if set_:
            self.assigned.append((set_.group(1), set_.group(2)))
        elif not self.words and self.word in _BRANCHES and not self.quoted:
            raise self.refuse(f"a branch or loop, {self.word}")
        else:
            self.words.append(self.word)
        self.word, self.quoted = None, False

    def end_command(self, after: str) -> None:
        if not (self.words or self.assigned):
            return
        made = Command(tuple(self.words), tuple(self.assigned), after)
        self.words, self.assigned = [], []
        if not made.words:
            self.variables.update(made.assigned)
        elif made.words[0] in ("export", "declare", "readonly"):
            for word in made.words[1:]:
                name, given, value = word.partition("=")
                self.variables |= {name: value} if given else {}
        self.found.append(made)
