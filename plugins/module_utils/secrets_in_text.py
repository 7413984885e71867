# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find what looks like a secret: by its form (a token of Hugging Face, a hash of a password) or by the name before it.

The names are those of secret_names. A value after a name is found in the ways that programs write it: assignments, JSON and Python
(escaped, too), lists of arguments, `name` and `value` of Kubernetes, lines of `kubectl describe`, options, XML; below a name by
secrets_in_tables, by what it is in by secrets_in_manifests. Time is linear in the text: every expression is anchored or bounded.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils import (
    secret_names,
    secrets_in_manifests,
    secrets_in_tables,
)

STARS = secrets_in_tables.STARS
_NAME_MOST, _VALUE_MOST, _LINES_MOST = 80, 4096, 60  # characters; lines of one value

# Tokens that are recognisable by their form. Prefixes as their issuers document them.
_TOKENS = (
    r"hf_|api_org_|nvapi-|sk-|gsk_|xai-|r8_|pplx-|gh[pousr]_|github_pat_|gl(?:pat|rt|dt|cbt|agent|soat|ft)-|xox[abeoprs]-|xapp-|"
    r"sk_(?:live|test)_|rk_(?:live|test)_|whsec_|dckr_(?:pat|oat)_|npm_|pypi-|AIza|ya29\.|SG\.|hv[sbr]\.|do[opr]_v1_|tskey-|lsv2_|"
    r"wandb_v1_|shp(?:at|ca|pa|ss)_|ATATT3|ops_eyJ|glsa_"
)
# Lower-case texts one of which is in every match (none: no such text), the expression, and what comes instead.
_FORMS: tuple[tuple[tuple[str, ...], re.Pattern[str], str], ...] = (
    (
        (),
        re.compile(
            rf"(?<![A-Za-z0-9])(?:{_TOKENS})(?=[a-z_-]{{0,60}}[0-9A-Z])[A-Za-z0-9_-]{{8,400}}(?:\.[A-Za-z0-9_-]{{1,400}}){{0,3}}"
        ),
        STARS,
    ),
    (
        ("akia", "asia", "abia", "acca"),
        re.compile(r"(?<![A-Za-z0-9])(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{12,20}(?![A-Za-z0-9])"),
        STARS,
    ),
    (("eyj",), re.compile(r"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{10,4000}(?:\.[A-Za-z0-9_-]{0,4000}){1,4}"), STARS),
    (
        ("age-secret-key", "age1pq"),
        re.compile(
            r"AGE-SECRET-KEY-1[A-Za-z0-9]{10,100}(?![A-Za-z0-9])|(?<![A-Za-z0-9])age1pq[a-z0-9]{20,4000}", re.IGNORECASE
        ),
        STARS,
    ),
    (("k10",), re.compile(r"(?<![A-Za-z0-9])K10[0-9a-f]{20,64}::[^\s\"']{1,300}"), STARS),
    # Hashes of passwords: bcrypt, and crypt(3)'s and Argon2's with their parameters.
    (
        ("$",),
        re.compile(
            r"\$(?:2[abxy]?|1|5|6|7|y|gy|md5|sha1|apr1|argon2[a-z]{1,2}|scrypt|pbkdf2[a-z0-9-]{0,8})\$[A-Za-z0-9./+=,$-]{12,400}"
        ),
        STARS,
    ),
    ((":aa",), re.compile(r"(?<![0-9])[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9])"), STARS),
    # Signed addresses and webhooks.
    (
        ("=",),
        re.compile(
            r"(?i)([?&;](?:x-amz-(?:signature|credential|security-token)|sig|signature|se?cret|code|state|key)=)[^\s&\"'<>]{8,2000}"
        ),
        rf"\1{STARS}",
    ),
    (
        ("hooks.", "webhooks"),
        re.compile(r"(?i)(hooks\.slack\.com/[a-z]{1,20}/|discord(?:app)?\.com/api/webhooks/)[A-Za-z0-9/_-]{8,200}"),
        rf"\1{STARS}",
    ),
    (
        ("accountkey=", "accesskey=", "accesssignature="),
        re.compile(r"(?i)((?:AccountKey|SharedAccessKey|SharedAccessSignature)=)[^\s;\"']{8,2000}"),
        rf"\1{STARS}",
    ),
    (
        ("bearer", "basic", "digest", "negotiate"),
        re.compile(
            r"(?i:\b(bearer|basic|digest|negotiate))([ \t]{1,4})(?=[^\s]{0,40}[0-9A-Z=/+])[A-Za-z0-9._~+/=-]{6,4000}"
        ),
        rf"\1\2{STARS}",
    ),
    # A login in an address, and a proxy's without a scheme.
    (
        ("://",),
        re.compile(
            r"(://)(?!\*\*\*@)[^\s/@:\"'<>]{0,100}:(?![0-9]{1,5}/)[^\s@\"'<>]{1,200}(?:@[^\s@\"'<>]{1,100}){0,3}@"
        ),
        rf"\1{STARS}@",
    ),
    (
        ("proxy",),
        re.compile(
            r"(?i)(proxy[a-z_]{0,12}[\"']?\s{0,4}[=:]\s{0,4}[\"']?)(?!\*\*\*@)[^\s/@:\"'<>]{1,100}:[^\s@\"'<>]{1,200}@"
        ),
        rf"\1{STARS}@",
    ),
    # netrc, and the options of curl, docker login and sshpass that have one letter.
    (("login",), re.compile(r"(\blogin\s{1,40}\S{1,100}\s{1,40}password\s{1,40})(?!\*\*\*)\S{1,300}"), rf"\1{STARS}"),
    (
        ("curl",),
        re.compile(
            r"(\bcurl\b[^\n]{0,300}?\s(?:-u|--user|--proxy-user)[\s=]{1,4})(?!\*\*\*)[\"']?[^\s:]{1,100}:[^\s]{1,300}"
        ),
        rf"\1{STARS}",
    ),
    (
        ("sshpass", "login", "mysql"),
        re.compile(r"(\b(?:sshpass|login|mysql|mysqldump)\b[^\n]{0,200}?\s-p\s{0,4})(?!\*\*\*)[\"']?[^\s\"']{3,300}"),
        rf"\1{STARS}",
    ),
    (
        ("identified",),
        re.compile(r"(?i)(\bidentified\s{1,4}by\s{1,4}(?:password\s{1,4})?)(?!'\*\*\*)'[^'\n]{1,300}'"),
        rf"\1{STARS}",
    ),
)
# The rest of a long token that begins in the previous piece of a line.
_LONG = re.compile(r"[A-Za-z0-9_.=-]{160,4000}")
# Without one of these words, no name in a text is secret.
_CORE = re.compile(r"(?i)pass|secret|token|key|cred|auth|psk|pwd|cookie")
_IDENTIFIER = re.compile(r"[A-Za-z0-9_.-]{0,80}")
_SPACE = re.compile(r"\s{0,200}")
_QUOTE = re.compile(r"(\\{0,15})([\"'`])")
_BETWEEN = re.compile(
    # after the name: its closing quote or bracket, then `=`, `:`, `=>`, `:=`, `==`, and the whitespace around it
    r"(?P<close>\\{0,15}[\"'`])?(?P<bracket>[\])]{0,2})(?P<space>[ \t]{0,200})(?P<sign>=>|:=|={1,2}|:(?!:)|,|>|\||\(|)(?P<after>[ \t]{0,200})"
)
_VALUE = re.compile(
    r"(?:[\s,;{}]|\\{1,8}[nt]|-){0,80}\\{0,15}[\"']?value\\{0,15}[\"']?[ \t]{0,20}[:=][ \t]{0,80}", re.IGNORECASE
)
_VALUE_BEFORE = re.compile(
    r"(value\\{0,15}[\"']?[ \t]{0,20}[:=][ \t]{0,80})([^\n]{1,300}?)"
    r"((?:[\s,;]|\\{1,8}[nt]|-){1,80}\\{0,15}[\"']?(?:name|key)\\{0,15}[\"']?[ \t]{0,20}[:=][ \t]{0,80}\\{0,15}[\"']?)\Z",
    re.IGNORECASE,
)
_NEXT_LINE = re.compile(
    r"[ \t]{0,200}(?:[|>][+-]?\d?[ \t]{0,20})?\r?\n([ \t]{1,200}(?:-[ \t]{1,20})?|-[ \t]{1,20})(?=\S)"
)
_NEXT_WORD = re.compile(r"[ \t\r]{0,20}\n[ \t]{0,200}(?:-[ \t]{1,20})?|\0")
_WRAPPED = re.compile(r"[bBuUrRfF]{0,2}(?=\\{0,15}[\"'])|[A-Za-z_][A-Za-z_.]{0,40}\((?=\\{0,15}[\"'])")
_OPEN = re.compile(
    r"(?i)(?:true|false|yes|no|on|off|null|none|nil|undefined|unset|optional|required|0|1|~|x{3,}|redacted|masked|hidden|\*{3,})"
    r"(?![A-Za-z0-9_+/=-])|<[^<>\n]{1,120}>|secret (?:\\?\"[^\"\n]{1,80}\" )?not found|\$\{?[A-Za-z_][A-Za-z0-9_]{0,80}\}?(?![A-Za-z0-9])"
    r"|\$\(|\{\{[^\n]{0,200}\}\}|\*\*\*"
)
_TRIPLE = re.compile(r"\"{3}|'{3}")
_SETS = re.compile(r"(?:\bENV|\bsetenv|\bset(?: -[a-zA-Z]{1,4}){1,3})[ \t]{1,8}\Z")  # a Dockerfile's, csh's and fish's
_ASSIGNED = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,80}[=:]")
_DOUBLED = re.compile(r"''|'\\''")
_FIELD = re.compile(r"[\w.-]{1,80}\\{0,15}[\"']?[ \t]{0,4}[=:](?!:)|[\"'{\[(\\]|\s|\Z")
_CODED = re.compile(r"(?=[^\s\"',;]{0,200}[A-Za-z])(?=[^\s\"',;]{0,200}[0-9A-Z])[^\s\"',;]{8,2000}")
_HAS_DIGIT = re.compile(r"(?=[^\s\"',;]{0,100}[0-9])(?=[^\s\"',;]{0,100}[A-Za-z])[^\s\"',;]{6,}")


def mask(text: str) -> str:
    """Replace what looks like a secret with asterisks."""
    text = secrets_in_tables.mask(secrets_in_manifests.mask(text))
    lower = text.lower()
    for hints, expression, replacement in _FORMS:
        if not hints or any(hint in lower for hint in hints):
            text = expression.sub(replacement, text)
    return after_names(_LONG.sub(STARS, text))


def formed(text: str) -> bool:
    """Whether a text has a token in it, or a login in an address: a secret by its form, whatever its name."""
    return any(expression.search(text) for _hints, expression, _replacement in _FORMS)


def shown(argv: t.Sequence[str], environment: t.Mapping[str, str]) -> str | None:
    """Return the flag or variable of a command that has a secret for its value, None if there is none. In doubt it has one."""
    for name, value in environment.items():
        if value and (secret_names.secret(name) or formed(value) or formed(f"{name}={value}")):
            return name
    for at, word in enumerate(argv):
        flag, equals, value = word.partition("=")
        named = flag.startswith("-") and secret_names.secret(flag)
        if named and (equals or (at + 1 < len(argv) and not argv[at + 1].startswith("--"))):
            return flag
        if formed(word) or (not word.startswith("-") and after_names(word) != word) or after_names(value) != value:
            before = argv[at - 1] if at and argv[at - 1].startswith("-") and not flag.startswith("-") else flag
            return before if before.startswith("-") else f"argument {at}"
    return None


# Values after names


def after_names(text: str) -> str:
    """Replace the values of secret names, also in the lines after the name: YAML's, and the arguments of a pod."""
    made: list[str] = []
    done = 0
    for core in _CORE.finditer(text):
        if core.start() < done:
            continue
        start, end = _name(text, core.start(), max(done, 0))
        kind = secret_names.kind(text[start:end])
        if kind is None:
            continue
        for begin, past in _values(text, start, end, kind, done):
            if begin >= done and past > begin:
                made += [text[done:begin], STARS]
                done = past
    return "".join([*made, text[done:]]) if made else text


def _name(text: str, at: int, least: int) -> tuple[int, int]:
    """Return where the name around a place begins and ends."""
    start = at
    while start > max(least, at - _NAME_MOST) and (text[start - 1].isalnum() or text[start - 1] in "_-."):
        start -= 1
    # A letter of an escape, such as of \n, is no part of the name.
    if start > 0 and text[start - 1] == "\\" and text[start] in "nrt":
        start += 1
    found = _IDENTIFIER.match(text, at)
    end = found.end() if found else at
    while end > at and text[end - 1] in ".-":
        end -= 1
    return start, end


def _values(text: str, start: int, end: int, kind: str, done: int) -> t.Iterator[tuple[int, int]]:
    """Yield the parts of a text that are the values of the name at start:end."""
    always = kind == secret_names.ALWAYS
    flag = text[start : start + 1] == "-"
    name = text[start:end]
    yield from _before(text, start, done)
    found = _BETWEEN.match(text, end)
    if found is None:  # it matches the empty text, too
        return
    sign, place = found["sign"], found.end()
    quoted = bool(found["close"])
    valued = _VALUE.match(text, found.start("space"))
    if valued:
        yield from _value(text, valued.end(), always, _line_of(text, valued.start(), valued.end()))
    elif sign == ",":
        place = _SPACE.match(text, place).end() if flag else place  # type: ignore[union-attr]  # it matches the empty text, too
        if quoted and _QUOTE.match(text, place):
            yield from _value(text, place, always or flag, False)
    elif sign in ("(", ">", "|"):
        if always and (
            (sign == "|" and _first(text, start))
            or (sign == "(" and _QUOTE.match(text, place))
            or (sign == ">" and text[start - 1 : start] == "<")
        ):
            yield from _value(text, place, True, False)
    elif sign:
        following = _NEXT_LINE.match(text, place) if sign == ":" else None
        if following is None:
            whole = (sign == ":" and _first(text, start)) or name.lower().endswith(
                ("phrase", "cookie", "authorization")
            )
            yield from _value(text, place, always, whole)
        elif always and ("|" in following[0] or ">" in following[0]):
            yield from _block(text, following)
        elif "-" in following[1]:
            yield from _items(text, following, always)
    elif flag:
        if found["after"] or found["space"]:
            yield from _value(text, place, True, False, option=True)
        elif quoted or text[place : place + 1] in ("\n", "\r", "\0"):
            following = _NEXT_WORD.match(text, place)
            if following:
                yield from _value(text, following.end(), True, False, option=True)
    elif not quoted and found["space"] and len(found["space"]) < 5:
        last = name.lower()
        test = _HAS_DIGIT if last.endswith(("password", "passwd", "passphrase", "requirepass")) else _CODED
        if always and _SETS.search(text[max(0, start - 24) : start]):
            yield from _value(text, place, True, False)
            return
        ends = last.endswith(("key", "token", "password", "passwd", "passphrase", "requirepass"))
        if ends and test.match(text, place) and not _ASSIGNED.match(text, place):
            yield from _value(text, place, True, False)


def _before(text: str, start: int, done: int) -> t.Iterator[tuple[int, int]]:
    """Yield the value that is written before its name, as in {"value": "…", "name": "HF_TOKEN"}."""
    window = text[max(done, start - 480) : start]
    if "alue" not in window[-480:] and "ALUE" not in window:
        return
    if not window.rstrip("\"'\\ \t").endswith((":", "=")):
        return
    at = window.lower().rfind("value")
    found = _VALUE_BEFORE.match(window, at)
    if found and not _OPEN.match(found[2].strip("\"'\\ ")) and "{" not in found[2] and "}" not in found[2]:
        base = start - len(window)
        yield base + found.start(2), base + found.end(2)


def _line_of(text: str, start: int, end: int) -> bool:
    return "\n" in text[start:end]


def _first(text: str, start: int) -> bool:
    """Whether a name is the first word of its line (a list's dash and quotes aside)."""
    at = start
    while at > 0 and text[at - 1] in " \t-\"'|" and start - at < 200:
        at -= 1
    return at == 0 or text[at - 1] == "\n"


def _value(text: str, at: int, always: bool, whole: bool, option: bool = False) -> t.Iterator[tuple[int, int]]:
    """Yield the value that begins at a place. whole: unquoted, it goes to the end of the line."""
    opening = text[at : at + 1]
    if opening in ("[", "("):
        yield from _listed(text, at, always)
        return
    wrapped = _WRAPPED.match(text, at)
    if wrapped:
        at = wrapped.end()
    triple, quote = _TRIPLE.match(text, at), _QUOTE.match(text, at)
    if triple:
        past = text.find(triple[0], triple.end(), triple.end() + _VALUE_MOST)
        if past > triple.end() and always:
            yield triple.end(), past
        return
    if quote:
        begin, past = quote.end(), _closing(text, quote)
        inner = text[begin:past]
        if inner.strip() and not _OPEN.fullmatch(inner) and (always or _CODED.match(inner)):
            yield begin, past
        return
    if _OPEN.match(text, at) or text[at : at + 1] in ("{", ""):
        return
    if option and re.match(r"--?[A-Za-z][\w-]{0,60}(?:[=\s]|\Z)", text[at : at + 80]):
        return
    past = _bare(text, at, whole)
    if past > at and (always or _CODED.match(text, at)):
        yield at, past


def _bare(text: str, at: int, whole: bool) -> int:
    """Return the end of an unquoted value."""
    most = min(len(text), at + _VALUE_MOST)
    line = text.find("\n", at, most)
    most = most if line < 0 else line
    if whole:
        past = most
    else:
        past = at
        while past < most:
            char = text[past]
            if (
                char.isspace()
                or char == "\0"
                or (char == "\\" and text[past + 1 : past + 2] in ("n", "r", "t") and past > at)
            ):
                break
            if char in ",;&" and _FIELD.match(text, past + 1):
                break
            if char in "<>" and past > at:
                break
            past += 1
    while past > at and text[past - 1] in ")]}\"'`\\,;. \t\r":
        past -= 1
    return past


def _closing(text: str, quote: re.Match[str]) -> int:
    """Return where a quoted text ends: before the same quote, with as many backslashes. Unclosed, it ends with the line."""
    mark, depth = quote[0], len(quote[1])
    at, most = quote.end(), min(len(text), quote.end() + _VALUE_MOST)
    while True:
        at = text.find(mark, at, most)
        if at < 0:
            line = text.find("\n", quote.end(), most)
            return most if line < 0 else line
        slashes = 0
        while slashes < 32 and at - slashes > quote.end() and text[at - slashes - 1] == "\\":
            slashes += 1
        if (depth and not slashes) or (not depth and slashes % 2 == 0):
            # YAML's '' and a shell's '\'' are quotes in a quoted text.
            more = _DOUBLED.match(text, at) if not depth and mark == "'" else None
            if more is None:
                return at
            at = more.end()
            continue
        at += len(mark)


def _listed(text: str, at: int, always: bool) -> t.Iterator[tuple[int, int]]:
    """Yield the values of a list: in one line, or quoted in several."""
    place, most = at + 1, min(len(text), at + _VALUE_MOST)
    while place < most and text[place] not in "])":
        if text[place] == "\n" and not _QUOTE.match(text, _SPACE.match(text, place).end()):  # type: ignore[union-attr]
            return
        if text[place] in " \t,([{\n\r":
            place += 1
            continue
        before = place
        for begin, past in _value(text, place, always, False):
            yield begin, past
            before = past
        quote = _QUOTE.match(text, place)
        place = _closing(text, quote) + len(quote[0]) if quote else max(before, place + 1)


def _block(text: str, following: re.Match[str]) -> t.Iterator[tuple[int, int]]:
    """Yield the lines of YAML's block text."""
    indent = len(following[1])
    at = following.end()
    for _line in range(_LINES_MOST):
        line = text.find("\n", at)
        past = len(text) if line < 0 else line
        if past > at and text[at:past] != STARS:
            yield at, past
        following_line = re.compile(r"\n( {0,200})(?=\S)").match(text, past)
        if following_line is None or len(following_line[1]) < indent:
            return
        at = following_line.end()


def _items(text: str, following: re.Match[str], always: bool) -> t.Iterator[tuple[int, int]]:
    """Yield the items of YAML's list."""
    at = following.end()
    for _line in range(_LINES_MOST):
        yield from _value(text, at, always, True)
        line = text.find("\n", at)
        more = re.compile(r"\n" + re.escape(following[1])).match(text, line) if line >= 0 else None
        if more is None:
            return
        at = more.end()
