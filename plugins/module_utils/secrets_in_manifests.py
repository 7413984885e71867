# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find secrets by what they are in, whatever their own names: a Secret of Kubernetes, and the input of a command.

Secrets are read in YAML and JSON, escaped too. If a text has one, `data` of its other objects is redacted as well. Time is linear in the
text: every expression is anchored or bounded.
"""

from __future__ import annotations

import re

from ansible_collections.dgxspark.cluster.plugins.module_utils.secrets_in_tables import STARS

_SECRET = re.compile(r"kind\\{0,15}\"?[ \t]{0,8}:\s{0,8}\\{0,15}\"?Secret(?![A-Za-z0-9])")
_TEXTS = re.compile(r"stringData(?=\\{0,15}\"?[ \t]{0,8}:)")
_JSON = re.compile(r"(?<![A-Za-z])(?:stringData|data|binaryData)\\{0,15}\"\s{0,8}:\s{0,8}\{[^{}]{1,65536}")
_JSON_VALUE = re.compile(r"(:\s{0,80}\\{0,15}\")(?!\*\*\*)[^\"\\]{1,65536}")
_YAML = re.compile(
    r"(?m)^( {0,40})(?:- )?(?:stringData|data|binaryData):[ \t]{0,8}\r?$((?:\n\1[ \t]{1,40}[^\n]{0,65536}){1,200})"
)
_YAML_VALUE = re.compile(r"(?m)^([ \t]{1,80}[\w.-]{1,253}:[ \t]{1,8})(?![|>][+-]?\s*$|\*\*\*)([^\n]{1,65536})")
_YAML_BLOCK = re.compile(r"(?m)^([ \t]{1,80})(?![\w.-]{1,253}:(?:[ \t]|$)|\*\*\*)\S[^\n]{0,65536}")
_READERS = r"(?:sudo\s{1,4}(?:-[A-Za-z]{1,8}\s{1,4}){0,4}?-[A-Za-z]{0,8}S|chpasswd|passwd|su\b|docker\s{1,4}login|podman\s{1,4}login|cryptsetup)"
_COMMANDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("echo", re.compile(rf"(\b(?:echo|printf)\s{{1,4}}(?:-[neE]{{1,3}}\s{{1,4}})?)[^\n|]{{1,300}}?(?=\s{{0,4}}\|\s{{0,4}}(?:sudo\s{{1,4}})?{_READERS})")),
    ("printf", re.compile(rf"(\bprintf\s{{1,4}})[^\n|]{{1,300}}?(?=\s{{0,4}}\|\s{{0,4}}(?:sudo\s{{1,4}})?{_READERS})")),
    ("<<<", re.compile(rf"({_READERS}[^\n<]{{0,200}}<<<\s{{0,4}})[^\n]{{1,300}}")),
    ("pass:", re.compile(r"(-pass(?:in|out)?[ =]{1,4}[\"']?pass:)[^\s\"']{1,300}")),
    ("ipmitool", re.compile(r"(\bipmitool\b[^\n]{0,200}?\s-P\s{0,4})[\"']?[^\s\"']{1,300}")),
)  # fmt: skip


def mask(text: str) -> str:
    """Replace with asterisks what a Secret holds, and what a command is given for a password."""
    lower = text.lower()
    for hint, expression in _COMMANDS:
        if hint in lower:
            text = expression.sub(rf"\1{STARS}", text)
    if "data" not in lower or not (_SECRET.search(text) or _TEXTS.search(text)):
        return text
    text = _JSON.sub(lambda found: _JSON_VALUE.sub(rf"\1{STARS}", found[0][:-1]) + found[0][-1], text)
    return _YAML.sub(lambda found: found[0][: found.start(2) - found.start()] + _values(found[2]), text)


def _values(block: str) -> str:
    """Replace the values of a YAML mapping, of texts in several lines too."""
    return _YAML_BLOCK.sub(rf"\1{STARS}", _YAML_VALUE.sub(rf"\1{STARS}", block))
