# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A new profile as a file: YAML with marks for open decisions, under a checksum that reveals edits."""

from __future__ import annotations

import hashlib
import json
import pathlib
import textwrap
import typing as t

import yaml

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge

MARK = "# decide:"
_SEAL = "# sealed: "
_WIDTH = 120


class _Dumper(yaml.SafeDumper):
    """Indents lists below their key, as yamllint requires."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _dumped(key: str, value: t.Any) -> str:
    """Return one key as YAML. Settings get one line each, for editing; figures that belong together share a line."""
    style = None if isinstance(value, (dict, list)) and key != "settings" else False
    return str(
        yaml.dump(
            {key: value}, Dumper=_Dumper, sort_keys=False, default_flow_style=style, width=_WIDTH, allow_unicode=True
        )
    )


def body(profile: t.Mapping[str, t.Any], decide: t.Sequence[tuple[str, str]]) -> str:
    """Return a profile as YAML. decide: open decisions, each with the key it is placed above."""
    lines: list[str] = []
    profile = json.loads(json.dumps(profile))  # PyYAML has no representation for Ansible's string types
    keys = list(profile)
    for key in [*keys, *dict.fromkeys(key for key, _text in decide if key not in profile)]:
        for text in (text for at, text in decide if at == key):
            lines += textwrap.wrap(
                f"{MARK} {text}", _WIDTH, subsequent_indent="#   ", break_long_words=False, break_on_hyphens=False
            )
        if key in profile:
            lines += _dumped(key, profile[key]).splitlines()
    return "\n".join(lines) + "\n"


def _seal(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def sealed(text: str, of: str) -> str:
    """Return a file: the profile under a header with its origin. of: what it was made from."""
    made = f"---\n# Made by dgxspark.cluster.profile from {of}. Where a person must decide, it says `{MARK[2:]}`.\n"
    return knowledge.for_editors(f"{made}{_SEAL}{_seal(text)}\n{text}", "profile")


def edited(file: str) -> bool:
    """Whether a file was edited since it was made, or written by hand."""
    _head, found, rest = file.partition(f"\n{_SEAL}")
    said, _line, text = rest.partition("\n")
    return not found or said.strip() != _seal(text)


def refuse_edited(path: pathlib.Path, text: str) -> None:
    """Raise CollectionError if this would overwrite an edited or hand-written file with different text."""
    try:
        there = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as exc:
        raise CollectionError(f"{path}: cannot be read: {exc}. Name another file.") from exc
    if there != text and edited(there):
        raise CollectionError(
            f"{path}: it was edited or written by hand. Name another file, or allow overwriting it "
            "(-e dgxspark_profile_overwrite=true)."
        )
