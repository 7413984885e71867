# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge the variables of all roles before the first one touches a node: Ansible itself does so only when each role begins."""

from __future__ import annotations

import functools
import pathlib
import typing as t

import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Finding

ROLES = pathlib.Path(__file__).parents[2] / "roles"
_TYPES = ("int", "float", "bool")  # texts may be secrets, or come from slow lookups: only their role reads those


@functools.cache
def _options() -> dict[str, dict[str, t.Any]]:
    found: dict[str, dict[str, t.Any]] = {}
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for path in sorted(ROLES.glob("*/meta/argument_specs.yml")):
        found |= yaml.load(path.read_text(encoding="utf-8"), loader)["argument_specs"]["main"]["options"]
    return found


@functools.cache
def specs() -> dict[str, dict[str, t.Any]]:
    """Return type and choices of the roles' variables that can be judged by themselves, by name."""
    return {
        name: {key: spec[key] for key in ("type", "choices") if key in spec}
        for name, spec in _options().items()
        if spec.get("type") in _TYPES or "choices" in spec
    }


def texts_for_mappings(given: t.Mapping[str, t.Any]) -> list[Finding]:
    """Return the variables of `-e` that are a text where a role wants a mapping. given: their values, by name.

    NAME=VALUE makes a text of every value; a role would combine it with its own mapping, and end in Ansible's words.
    """
    found = []
    for name, value in given.items():
        if isinstance(value, str) and "{{" not in value and _options().get(name, {}).get("type") == "dict":
            message = f"{value[:80]!r} is a text, and this variable is a mapping."
            remedy = f'Write it as JSON: -e \'{{"{name}": {{"KEY": "VALUE"}}}}\', or in a file: -e @FILE.yml'
            found.append(Finding("arguments.text", "error", f"{name} (-e)", message, remedy))
    return found


def judge(hosts: t.Mapping[str, t.Mapping[str, t.Any]]) -> list[Finding]:
    """Return what is wrong with hosts' variables, each fault once for all hosts that have it. None is not judged.

    hosts: their values, by the names of `specs()`.
    """
    known = specs()
    faults: dict[tuple[str, str], list[str]] = {}
    for host, values in hosts.items():
        for name, value in values.items():
            if value is not None and name in known:
                for message in ArgumentSpecValidator({name: known[name]}).validate({name: value}).error_messages:
                    faults.setdefault((name, message), []).append(host)
    return [
        Finding(
            "arguments.wrong",
            "error",
            f"{name} ({found[0]}{f' and {len(found) - 1} more' if len(found) > 1 else ''})",
            f"{message.rstrip('.')}.",
            "Correct it; nothing was changed.",
        )
        for (name, message), found in faults.items()
    ]
