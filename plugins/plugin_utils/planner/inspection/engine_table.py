# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Converts what was read from an engine (module_utils/programs/engine_parser/reader.py) to the flag table of that version.

The shipped tables come from the engines' wheels (tools/engine_flags.py), an owner's from an image (inspect_image.yml).
"""

from __future__ import annotations

import json
import re
import textwrap
import typing as t

Plain = dict[str, t.Any]
SUPPRESSED = "==SUPPRESS=="
NO_VALUE = {"_StoreTrueAction", "_StoreFalseAction", "DeprecatedAction", "DeprecatedStoreTrueAction"}
REQUIRES = ("flashinfer-python", "sglang-kernel", "torch", "transformers")
WIDTH = 150


def entry(engine: str, version: str, source: str, requires: t.Mapping[str, str], read: t.Mapping[str, t.Any]) -> Plain:
    """Return the whole table. source: what it was read from. read: the result of `reader.read`."""
    facts = dict(read["facts"])
    known = dict(facts.pop("known_values", {}))
    table: Plain = {}
    positionals = []
    for action in read["flags"]:
        if not action["options"]:
            positionals.append(action["dest"])
            continue
        name, flag = _flag(action)
        if name in known:
            flag["known"] = known.pop(name)
        table[name] = flag
    if known:
        facts["known_values"] = dict(sorted(known.items()))
    return {
        "id": f"{engine}-{version}", "engine": engine, "version": version, "source": [source], "verified": "vendor",
        "requires": {name: requires[name] for name in REQUIRES if requires.get(name)},
        "facts": dict(sorted(facts.items())), "positionals": positionals,
        "flags": dict(sorted(table.items())), "environment": sorted(set(read["environment"])),
    }  # fmt: skip


def _flag(action: t.Mapping[str, t.Any]) -> tuple[str, Plain]:
    long = [option.removeprefix("--") for option in action["options"] if option.startswith("--")]
    name, others = long[0], long[1:]
    flag: Plain = {"type": action["type"]}
    kind = action["action"]
    if kind in ("BooleanOptionalAction", "EnableDisableAction"):
        flag = {"type": "toggle"}
        off = _negations(long)
        flag["off"] = off[0] if off else f"no-{name}"
        if off[1:]:
            flag["off_aliases"] = off[1:]
        others = [o for o in others if o not in off]
    elif action["nargs"] == 0 or kind in NO_VALUE:
        flag = {"type": "switch"}
    if others:
        flag["aliases"] = others
    if action["choices"] is not None:
        flag["choices"] = sorted(action["choices"], key=str)  # some come from a set, which has no order
    if action["nargs"] in ("+", "*"):
        flag["many"] = "some" if action["nargs"] == "+" else "any"
    elif action["nargs"] == "?":
        flag["bare"] = action["const"]
    elif isinstance(action["nargs"], int) and action["nargs"]:
        flag["many"] = action["nargs"]
    if kind == "_AppendAction":
        flag["repeat"] = True
    if action["required"]:
        flag["required"] = True
    default = action["default"]
    configuration = isinstance(default, dict) and default  # a configuration object: not a default to record
    if default not in (None, SUPPRESSED) and not (flag["type"] == "switch" and default is False) and not configuration:
        flag["default"] = default
    flag.update(_deprecation(action))
    return name, flag


def _negations(options: t.Sequence[str]) -> list[str]:
    """Return a toggle's names that turn it off: `no-x` for a name x before it, and `disable-x` for `enable-x` or the reverse."""
    swapped = {"enable": "disable", "disable": "enable"}
    found: list[str] = []
    for at, option in enumerate(options):
        begins, _dash, rest = option.partition("-")
        meant = {option.removeprefix("no-")} - {option} | (
            {f"{swapped[begins]}-{rest}"} if begins in swapped else set()
        )
        if meant & (set(options[:at]) - set(found)):
            found.append(option)
    return found


def _deprecation(action: t.Mapping[str, t.Any]) -> Plain:
    said = action["help"] or ""
    if action["error_message"]:
        return {"deprecated": "refused", "use": action["error_message"]}
    if action["action"] == "DeprecatedAction":
        return {"deprecated": "no effect"}
    by_help = re.match(r"\W*deprecated|--[\w-]+ is deprecated", said, re.I)
    if not (action["new_flag"] or action["deprecated"] or by_help or action["action"].startswith("Deprecated")):
        return {}
    named = re.search(r"(?:use|alias for)\s+(--[\w=-]+|[A-Z][A-Z_]+=\S+)", said, re.I)
    use = action["new_flag"] or (named[1] if named else None)
    effect = "no effect" if "no effect" in said.lower() else True
    return {"deprecated": effect} | ({"use": use} if use else {})


# --- text -----------------------------------------------------------------------------------------------------------

PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.+/-]*")
WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def scalar(value: t.Any) -> str:
    """Format a value so that YAML 1.1 and 1.2 read it the same way."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{scalar(str(k))}: {scalar(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(scalar, value)) + "]"
    if isinstance(value, float) and "e" in repr(value):
        digits, exponent = repr(value).split("e")
        return f"{digits if '.' in digits else digits + '.0'}e{int(exponent):+d}"
    if isinstance(value, str) and PLAIN.fullmatch(value) and value.lower() not in WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)


def _wrapped(first: str, rest: str) -> str:
    return "\n".join(
        textwrap.wrap(first, WIDTH, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False)
    )


def _block(mapping: t.Mapping[str, t.Any], indent: str) -> t.Iterator[str]:
    for name, item in mapping.items():
        if isinstance(item, dict) and any(isinstance(part, dict) for part in item.values()):
            yield f"{indent}{name}:"
            yield from _block(item, f"{indent}  ")
        else:
            yield _wrapped(f"{indent}{name}: {scalar(item)}", f"{indent}  ")


def text(table: t.Mapping[str, t.Any], header: str) -> str:
    """Format a table or another entry under a header: one flag per line, in the given order."""
    lines = [header.rstrip()]
    for key, value in table.items():
        if key == "facts":
            lines += [f"{key}:", *_block(value, "  ")]
        elif key == "flags":
            lines += [f"{key}:", *(_wrapped(f"  {name}: {scalar(flag)}", "    ") for name, flag in value.items())]
        else:
            lines.append(_wrapped(f"{key}: {scalar(value)}", "  "))
    return "\n".join(lines) + "\n"
