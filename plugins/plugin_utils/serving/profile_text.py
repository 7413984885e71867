# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A new profile as a file: YAML with marks where a person decides, under a seal that tells an edited one."""

from __future__ import annotations

import hashlib
import json
import pathlib
import textwrap
import typing as t

import yaml

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

MARK = "# decide:"
_SEAL = "# sealed: "
_WIDTH = 120


class _Dumper(yaml.SafeDumper):
    """Lists are indented below their key, as yamllint wants them."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _dumped(key: str, value: t.Any) -> str:
    """Return one key. Settings stand one by one, to be changed; figures that belong together stand in one line."""
    style = None if isinstance(value, (dict, list)) and key != "settings" else False
    return str(
        yaml.dump(
            {key: value}, Dumper=_Dumper, sort_keys=False, default_flow_style=style, width=_WIDTH, allow_unicode=True
        )
    )


def body(profile: t.Mapping[str, t.Any], decide: t.Sequence[tuple[str, str]]) -> str:
    """Return a profile as YAML. decide: what a person decides, by the key that it stands above."""
    lines: list[str] = []
    profile = json.loads(json.dumps(profile))  # Ansible's strings are of a type that YAML has no form for
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
    """Return a file: the profile under a head that says what made it. of: what it was made of."""
    made = f"---\n# Made by dgxspark.cluster.profile of {of}. Where a person decides, it says `{MARK[2:]}`.\n"
    return f"{made}{_SEAL}{_seal(text)}\n{text}"


def edited(file: str) -> bool:
    """Whether somebody wrote in a file since it was made, or made it himself."""
    _head, found, rest = file.partition(f"\n{_SEAL}")
    said, _line, text = rest.partition("\n")
    return not found or said.strip() != _seal(text)


def refuse_edited(path: pathlib.Path, text: str) -> None:
    """Raise CollectionError where a file that is not ours alone would be overwritten by another text."""
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
