# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove secrets, names, addresses and serial numbers from texts, so that a reader still sees which host talks to which.

Removes every form of what is known to be private (inventory, nodes), and whatever merely looks like an address or a token. A
secret becomes `***`; anything else gets a pseudonym such as `addr-3`, the same one for the same thing. When in doubt, it redacts:
even a version of four numbers. Redaction is idempotent.
"""

from __future__ import annotations

import base64
import binascii
import collections
import functools
import re
import typing as t
import urllib.parse
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.secrets_in_text import STARS, mask
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import ip, knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.support import forms
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.support.addresses import Addresses, Label

KINDS = ("spark", "host", "domain", "user", "mail", "addr", "mac", "guid", "serial", "id", "path")
_ROUNDS = 6  # a replacement may expose the text beside it
_DEPTH = 3  # levels of decoding: base64 in a URL in base64

# A word may also begin after a JSON escape \n or \t.
_BEGIN = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf]))"
_END = r"(?![A-Za-z0-9])"
_PSEUDONYM = re.compile(rf"(?:{'|'.join(KINDS)})x*-\d+")
_PORT = re.compile(rf"((?:{_PSEUDONYM.pattern}|localhost)[)\]]{{0,2}}):\d{{1,5}}(?![\d:.])")
_ESCAPED = re.compile(r"\\u00([2-7][0-9A-Fa-f])")
_PERCENT = re.compile(r"%[0-9A-Fa-f]{2}")
_WORD = re.compile(r"[^\s\"'<>]+")
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{3,}={0,2}")
_BLOB = re.compile(r"[A-Za-z0-9+/]{60,}={0,2}")
_PEM = re.compile(r"-----BEGIN [A-Z0-9 ]{1,60}-----.*?(?:-----END [A-Z0-9 ]{1,60}-----|\Z)", re.DOTALL)
_USERINFO = re.compile(r"(?<=://)(?!\*\*\*@)[^\s/@\"'<>]{1,300}@")
_MAIL = re.compile(
    r"[A-Za-z0-9._%+-]{1,80}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*"
    r"\.(?!service\b|socket\b|timer\b|target\b|device\b|mount\b|slice\b|scope\b)[A-Za-z]{2,}"
)
_SERIAL = re.compile(
    r"(?i)(serial(?:[ _-]?(?:number|num|no)\.?)?\\?[\"']?(?:\s{1,8}|\s{0,8}[:=]\s{0,8})\\?[\"']?)(?=[\w.-]{0,60}\d)([A-Z0-9][\w.-]{5,60})"
)
_HOME = re.compile(r"(?<=/home/)[^/\s\"'\\:,;]{2,64}|(?<=/Users/)[^/\s\"'\\:,;]{2,64}")
_SESSION = re.compile(r"(?i)(?<=\bfor user )[\w.-]{2,64}|(?<=\baccepted publickey for )[\w.-]{2,64}")
_URL_HOST = re.compile(r"(?<=://)(?:\*\*\*@)?([A-Za-z0-9_.-]{1,253})")
# Only for public texts: hosts without a scheme, such as `user@host`, an image's registry, a fully qualified name.
_AT = re.compile(r"(?<![\w.@/+-])[A-Za-z0-9][\w.+-]{0,80}@(?!sha256:)[A-Za-z][A-Za-z0-9.-]*[A-Za-z0-9]")
_REGISTRY = re.compile(
    r"(?<![\w./:@-])((?=[a-z0-9-]*[.:])[a-z0-9][a-z0-9.-]*[a-z0-9])(?=(?::\d{2,5})?/[a-z0-9._/-]+(?::[\w.-]+|@sha256:))"
)
_WHOLE_NAME = re.compile(r"(?<![\w./@-])(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w(-]|\.\w)")
_PATH = re.compile(r"(?<![\w.:/-])/(?:home|Users|srv|mnt|media|data|nfs|export|scratch|net|volumes?)/[^\s\"'\\,;:)\]]+")


@dataclass(frozen=True, slots=True)
class Private:
    """A text that must not leak. kind: `secret`, or the prefix of its pseudonym. of: its owner, if that has several names."""

    kind: str
    text: str
    of: str = ""


@functools.cache
def public(kind: t.Literal["name", "domain", "ending"]) -> frozenset[str]:
    """Return names that stay because they identify nobody: of users, hosts and domains, or domains of URLs.

    ending: last parts of a name that mark it as a host outside a URL.
    """
    entries = knowledge.load("redaction").values()
    return frozenset(name for entry in entries if entry["kind"] == kind for name in entry["names"])


def private_names(text: str, kind: str, host: str) -> list[Private]:
    """Return what is private in a host's name: an address, or its first part and its domain."""
    if not text:
        return []
    address = ip.address(text)
    if address is not None:
        return [Private("addr", str(address))]
    short, _dot, domain = text.partition(".")
    return [Private(kind, short, host), *([Private("domain", domain)] if domain else [])]


class Redactor:
    """learn() all texts, then redact() each, so that pseudonyms do not depend on where something appears in its plainest form."""

    def __init__(self, private: t.Iterable[Private] = (), *, everybody: bool = False) -> None:
        """Set up what is private.

        everybody: for public texts, also replaces loopback addresses and the like, ports after addresses and names, paths of the
        owner's disks, and any host that is not a public one.
        """
        self.counts: collections.Counter[str] = collections.Counter()
        self._names: dict[str, tuple[str, str]] = {}
        self._secrets: set[str] = set()
        self._labels: dict[tuple[str, str], str] = {}
        self._last: collections.Counter[str] = collections.Counter()
        self._learning = False
        addresses = []
        for each in private:
            if each.kind == "secret":
                self._secret(each.text)
            elif each.kind == "addr":
                addresses.append(each.text)
            else:
                self._name(each.kind, each.text, each.of)
        self._spelled = sorted({s for one in self._secrets for s in forms.spellings(one)}, key=len, reverse=True)
        self._cores = sorted({s for one in self._secrets for s in forms.base64_cores(one)}, key=len, reverse=True)
        self._known_forms = forms.Known(self._secrets)
        self._addresses = Addresses(self._label, everybody)
        self._everybody = everybody
        self._compile()
        for kind, of in dict.fromkeys(self._names.values()):
            self._new(kind, of)
        self.learn(addresses)

    def learn(self, texts: t.Iterable[str]) -> None:
        """Scan texts for addresses and users: what is seen in one form is then recognised in all."""
        known = list(texts)
        for text in known:
            for user in [*_HOME.findall(text), *_SESSION.findall(text)]:
                if not _PSEUDONYM.fullmatch(user.lower()):
                    self._name("user", user)
            for host in _URL_HOST.findall(text):
                if "." in host and not _public_host(host):
                    self._name("host", host)
            # The MACs must be known before a GUID can be attributed to one.
            self._addresses.see(text)
        self._compile()
        self._learning = True
        for text in known:
            self._whole(text)
        self._learning = False

    def redact(self, text: str) -> str:
        """Return the redacted text; `counts` counts the replacements by kind."""
        return self._whole(text)

    def held(self, text: str) -> tuple[str, str] | None:
        """Return kind and text of something private that is left, or None: the final check before writing."""
        if any(each in text for each in (*self._spelled, *self._cores)) or self._known_forms.held(text):
            return "secret", STARS
        found = self._named.search(text) if self._named else None
        return (self._names.get(found.group().lower(), ("host", ""))[0], found.group()) if found else None

    def plain(self, value: t.Any) -> t.Any:
        """Return a plain value with its texts redacted; keys stay."""
        if isinstance(value, t.Mapping):
            return {key: self.plain(each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.plain(each) for each in value]
        return self._whole(value) if isinstance(value, str) else value

    # Private texts

    def _secret(self, text: str) -> None:
        for line in {text.strip(), *(line.strip() for line in text.splitlines())}:
            if len(line) >= forms.LEAST and re.search(r"[A-Za-z0-9]", line):
                self._secrets.add(line)

    def _name(self, kind: str, text: str, of: str = "") -> None:
        text = text.strip().strip(".")
        if len(text) < 2 or text.isdigit() or text.lower() in public("name"):
            return
        self._names.setdefault(text.lower(), (kind, of or text.lower()))

    def _compile(self) -> None:
        names = sorted(self._names, key=lambda name: (-len(name), name))
        either = "|".join(map(re.escape, names))
        self._named = re.compile(rf"{_BEGIN}(?:{either}){_END}", re.IGNORECASE) if names else None

    def _label(self, kind: str, text: str) -> Label:
        if not self._learning:
            self.counts[kind] += 1
        return self._labels.get((kind, text)) or self._new(kind, text)

    def _new(self, kind: str, text: str) -> Label:
        # A pseudonym must neither be nor contain one of the owner's names.
        word = kind
        while word in self._names:
            word += "x"
        while True:
            self._last[kind] += 1
            label = f"{word}-{self._last[kind]}"
            if label not in self._names:
                break
        self._labels[(kind, text)] = label
        return label

    # Redaction of a text

    def _whole(self, text: str, depth: int = 0) -> str:
        # Secrets first, in the whole text: some go on in the next line. Decoded escapes may show more of them.
        for _round in range(_ROUNDS):
            before = text
            text = self._without_secrets(text)
            text = "".join(self._settled(line, depth) for line in text.splitlines(keepends=True))
            if text == before:
                break
        return text

    def _settled(self, line: str, depth: int) -> str:
        if line.isspace():
            return line
        for _round in range(_ROUNDS):
            before, line = line, self._once(line, depth)
            if line == before:
                break
        return line

    def _once(self, line: str, depth: int) -> str:
        if "\\u00" in line:
            line = _ESCAPED.sub(_unescaped, line)
        if depth < _DEPTH:
            if _PERCENT.search(line):
                line = _WORD.sub(lambda found: self._percent(found.group(), depth), line)
            line = _BASE64.sub(lambda found: self._base64(found.group(), depth), line)
        # Most lines contain few kinds: a substring check first is many times faster.
        if "@" in line:
            line = _MAIL.sub(lambda found: self._label("mail", found.group().lower()), line)
        line = self._addresses.replace(line)
        if self._everybody:
            line = self._for_everybody(line)
        lower = line.lower()
        if "serial" in lower:
            line = _SERIAL.sub(self._serial, line)
        if self._named and any(name in lower for name in self._names):
            line = self._named.sub(self._known, line)
        if "/home/" in line or "/Users/" in line:
            line = _HOME.sub(self._user, line)
        if " for " in line:
            line = _SESSION.sub(self._user, line)
        line = _URL_HOST.sub(self._url_host, line) if "://" in line else line
        return _PORT.sub(r"\1:port", line) if self._everybody else line

    def _for_everybody(self, line: str) -> str:
        line = _PATH.sub(lambda found: self._label("path", found.group()), line)
        line = _AT.sub(lambda found: self._label("mail", found.group().lower()), line)
        line = _REGISTRY.sub(self._url_host, line)
        return _WHOLE_NAME.sub(self._whole_name, line)

    def _whole_name(self, found: re.Match[str]) -> str:
        host = found.group().lower()
        ends = host.rpartition(".")[2] in public("ending")
        return self._label("host", host) if ends and not _public_host(host) else found.group()

    def _without_secrets(self, text: str) -> str:
        text = _PEM.sub(lambda _found: self._stars(), text) if "-----BEGIN" in text else text
        for form in self._spelled:
            while form in text:
                text = text.replace(form, self._stars(), 1)
        for core in self._cores:
            if core in text:
                text = re.sub(rf"[A-Za-z0-9+/_-]*{re.escape(core)}[A-Za-z0-9+/_=-]*", lambda _f: self._stars(), text)
        for start, end in reversed(self._known_forms.spans(text)):
            text = text[:start] + self._stars() + text[end:]
        hidden = self._counted(text, mask(text))
        if "://" in hidden:
            hidden = _USERINFO.sub(lambda _found: self._stars() + "@", hidden)
        return _BLOB.sub(self._blob, hidden)

    def _counted(self, before: str, after: str) -> str:
        if not self._learning and before != after:
            self.counts["secret"] += max(1, after.count(STARS) - before.count(STARS))
        return after

    def _stars(self) -> str:
        if not self._learning:
            self.counts["secret"] += 1
        return STARS

    def _blob(self, found: re.Match[str]) -> str:
        text = found.group()
        mixed = all(len(re.findall(kind, text)) > len(text) / 16 for kind in ("[A-Z]", "[a-z]", "[0-9]"))
        path = text.count("/") > max(3, len(text) / 14)
        return self._stars() if mixed and not path else text

    def _percent(self, text: str, depth: int) -> str:
        if not _PERCENT.search(text):
            return text
        decoded = urllib.parse.unquote(text)
        clean = self._whole(decoded, depth + 1)
        return text if clean == decoded else clean.replace('"', "%22").replace("\\", "%5C")

    def _base64(self, text: str, depth: int) -> str:
        for begin in sorted({0, len(text) - len(text.lstrip("/_-"))}):
            decoded = _decoded(text[begin:])
            if decoded is None:
                continue
            clean = self._whole(decoded, depth + 1)
            if clean != decoded:
                return text[:begin] + base64.b64encode(clean.encode()).decode()
        return text

    def _known(self, found: re.Match[str]) -> str:
        return self._label(*self._names.get(found.group().lower(), ("host", found.group().lower())))

    def _serial(self, found: re.Match[str]) -> str:
        number = found.group(2)
        return found.group() if _PSEUDONYM.fullmatch(number) else found.group(1) + self._label("serial", number.lower())

    def _user(self, found: re.Match[str]) -> str:
        name = found.group().lower()
        return found.group() if name in public("name") or _PSEUDONYM.fullmatch(name) else self._label("user", name)

    def _url_host(self, found: re.Match[str]) -> str:
        host = found.group(1).strip(".").lower()
        return found.group() if _public_host(host) else found.group().replace(found.group(1), self._label("host", host))


@functools.lru_cache(maxsize=65536)
def _public_host(host: str) -> bool:
    """Whether a URL's host may stay: a pseudonym, a public name, or a number (addresses have been replaced already)."""
    host = host.strip(".").lower()
    parts = host.split(".")
    return (
        host in public("name")
        or any(host == each or host.endswith("." + each) for each in public("domain"))
        or all(part.isdigit() or not part or _PSEUDONYM.fullmatch(part) for part in parts)
    )


@functools.lru_cache(maxsize=65536)
def _decoded(word: str) -> str | None:
    """Return the text that a word encodes in base64, or None if it encodes none."""
    core = word.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        decoded = base64.b64decode(core + "=" * (-len(core) % 4), validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return decoded if all(each.isprintable() or each in "\r\n\t" for each in decoded) else None


def _unescaped(found: re.Match[str]) -> str:
    char = chr(int(found.group(1), 16))
    return found.group() if char in '"\\\x7f' else char
