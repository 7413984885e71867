# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names whose values are secret: of variables, flags, settings and keys. The one list, for what is redacted and what is refused."""

from __future__ import annotations

import functools
import re

ALWAYS, CODED = "always", "coded"

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
# Each alone makes a name secret, wherever it stands in it.
_SECRET = frozenset([
    "password", "passwords", "passwd", "passphrase", "passphrases", "passcode", "secret", "secrets", "credential",
    "credentials", "psk", "apikey", "apikeys", "authorization", "cookie", "requirepass", "masterauth", "htpasswd",
    "privatekey", "secretkey", "accesskey", "authtoken", "authkey", "identitytoken", "passwort",
])  # fmt: skip
_ENDINGS = ("password", "passwd", "passphrase", "apikey", "secretkey", "accesskey")
# … unless the last word says that the value is where it is, what it is called, or how it is treated.
_ABOUT = frozenset([
    "py", "go", "cpp", "rs", "js", "md", "html", "pub",
    "file", "files", "path", "paths", "dir", "folder", "name", "names", "ref", "refs", "type", "mode", "policy",
    "length", "size", "count", "provider", "manager", "store", "class", "id", "ids", "url", "uri", "host", "enabled",
    "required", "version", "age", "expiry", "ttl", "label", "labels", "namespace", "resource", "mount", "volume",
    "keyfile",
])  # fmt: skip
_KEYS = frozenset([
    "api", "access", "private", "secret", "signing", "sign", "encryption", "encrypt", "auth", "admin", "account",
    "master", "ssh", "deploy", "license", "licence", "shared", "session", "client", "storage", "wandb", "app",
    "webhook", "service", "hmac", "jwt", "wep", "preshared",
])  # fmt: skip
_TOKENS = frozenset([
    "hf", "hub", "huggingface", "hugging", "api", "access", "auth", "agent", "server", "bearer", "refresh", "session",
    "csrf", "xsrf", "github", "gitlab", "slack", "bot", "user", "admin", "registry", "k3s", "kube", "wandb", "ngc",
    "secret", "join", "bootstrap", "personal", "deploy", "security", "service", "vault", "npm", "pypi", "account",
    "oauth", "client", "jwt", "webhook", "private", "cluster", "node", "upload", "download", "push", "pull", "mirror",
    "proxy", "login",
])  # fmt: skip
# Whose `pass` is a password: ansible_become_pass, vault_pass. A compiler has passes, too.
_PASSES = frozenset([
    "become", "ssh", "vault", "user", "admin", "root", "sudo", "db", "ftp", "smtp", "mail", "login", "key", "http", "proxy", "ldap",
    "redis", "wifi", "bmc", "ipmi", "mysql", "postgres", "bind", "basic", "connection",
])  # fmt: skip
# How the value is written: HF_TOKEN_B64.
_WRITTEN = frozenset(["b", "base", "encoded", "plain", "plaintext", "raw", "value"])
# Tokens and passes of a language model, which logs and flags count or name.
_LANGUAGE = frozenset([
    "per", "first", "next", "last", "new", "cached", "max", "min", "num", "total", "input", "output", "prompt", "bos",
    "eos", "pad", "unk", "sep", "cls", "mask", "image", "video", "audio", "start", "end", "stop", "begin", "special",
    "think", "thinking", "text", "draft", "added", "decoder", "generated", "prefill", "decode", "context", "tool",
    "call", "single", "multi", "forward", "backward", "second", "each", "one",
])  # fmt: skip
_OPEN_KEYS = frozenset([
    "public", "cache", "sort", "primary", "foreign", "partition", "group", "routing", "kv", "block", "prefix", "hash",
    "dict", "state", "config", "lookup", "row", "map", "enum", "hot", "weight", "missing", "unexpected", "any", "graph",
    "link", "plain", "read", "unknown", "has",
])  # fmt: skip


def words(name: str) -> list[str]:
    """Return the words of a name in lower case, without what counts or codes at its end: DB_PASSWORD2, dbPassword, PASSWORD_B64."""
    found = [word.lower() for word in _WORD.findall(name)]
    while found and (found[-1].isdigit() or (len(found) > 1 and found[-1] in _WRITTEN)):
        found.pop()
    return found


@functools.lru_cache(maxsize=8192)
def kind(name: str) -> str | None:
    """Return ALWAYS if the value of such a name is a secret, CODED if it is one when it looks like one, None if it is none."""
    split = words(name)
    if not split:
        return None
    last, before = split[-1], split[-2] if len(split) > 1 else ""
    if split[0] in ("no", "allow", "enable", "disable", "ask"):
        return None
    if last in _ABOUT and before not in ("account",):
        return None
    # PGPASSWORD, ansible_vaultpassword
    if any(word in _SECRET or word.endswith(_ENDINGS) for word in split) or (
        last == "pwd" and before not in ("", "old")
    ):
        return ALWAYS
    if last in ("key", "keys"):
        return ALWAYS if before in _KEYS else None
    if last == "token":
        if before in _LANGUAGE:
            return None
        return ALWAYS if before in _TOKENS or name.isupper() else CODED
    if last == "tokens":
        return ALWAYS if before in _TOKENS else None
    if last == "pass" and before in _PASSES:
        return ALWAYS
    return CODED if last in ("pass", "auth") and before not in _LANGUAGE else None


def secret(name: str) -> bool:
    """Whether the value of a variable, flag or setting of this name counts as a secret. In doubt it does: SOME_KEY, TOKEN_2."""
    split = words(name)
    if kind(name) or (
        split and split[-1] in ("pass", "pwd") and len(split) > 1 and split[-2] not in (*_LANGUAGE, "old")
    ):
        return True
    return (
        len(split) > 1
        and split[0] not in ("no", "allow", "enable", "disable")
        and split[-1] == "key"
        and split[-2] not in _OPEN_KEYS | _LANGUAGE
    )


def of_file(name: str) -> bool:
    """Whether a variable or flag of this name names a file with a secret in it."""
    found = re.fullmatch(r"(?i)(.*?)[_-]?file", name)
    return found is not None and (secret(found[1]) or words(found[1])[-1:] == ["key"])
