# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refuse secrets in what everyone can read: a plan is printed and kept, and a rank's command and environment are text in pods."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils import secret_names, secrets_in_text
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

# The variables that keep a key in a Secret, by words of the settings, flags and variables that would show it.
_KEPT = dict.fromkeys(("hf", "hugging", "huggingface", "hub"), "k8s_dgx_hf_token")
_KEPT |= dict.fromkeys(("vllm", "sglang", "admin"), "k8s_dgx_api_key")


def of_profile(settings: t.Mapping[str, t.Any], environment: t.Mapping[str, str]) -> None:
    """Refuse a profile, with the overrides laid on it, that has a secret for a setting or variable. CollectionError names it."""
    shown = secrets_in_text.shown([], environment)
    if shown:
        raise _refused(f"environment.{shown} is or holds a secret", shown)
    for name, value in settings.items():
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        named = secret_names.secret(name) and value not in (None, "", True, False)
        if named or secrets_in_text.formed(text) or secrets_in_text.after_names(text) != text:
            raise _refused(f"settings.{name} is or holds a secret", name)


def of_command(rank: int, argv: t.Sequence[str], environment: t.Mapping[str, str]) -> None:
    """Refuse a rank's command or environment with a secret in it. CollectionError names the flag or variable."""
    shown = secrets_in_text.shown(argv, environment)
    if shown:
        raise _refused(f"plan: rank {rank} gets a secret by {shown}", shown)


def _refused(what: str, name: str) -> CollectionError:
    said = secret_names.words(name)
    kept = next((_KEPT[word] for word in said if word in _KEPT), "k8s_dgx_api_key" if said == ["api", "key"] else None)
    remedy = (
        f"and give it in {kept}"
        if kept
        else "or let the Sparks reach what it is for without it: ranks get no secret but those of k8s_dgx_hf_token and k8s_dgx_api_key"
    )
    return CollectionError(
        f"{what}, which everyone can see who may read plans, pods and ConfigMaps. Remove it from the profile or the "
        f"overrides, {remedy}."
    )
