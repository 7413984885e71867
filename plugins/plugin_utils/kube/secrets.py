# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Secrets that the ranks of an instance read: those that download read the hub's token, the first one the API key."""

from __future__ import annotations

import base64

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.api_key import secret_name
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.running import selectors
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import (
    COMPONENT_LABEL,
    INSTANCE_LABEL,
    MANAGED_BY_LABEL,
    MANAGER,
    Plain,
    thing,
)

COMPONENT = "api-key"
KEY_LABEL = f"{MANAGER}/{COMPONENT}"  # its value tells keys apart


def secrets(namespace: str, instance: str, token: str | None = None, key: str | None = None) -> list[Plain]:
    """Return the Secrets. None: there is no token, or no key. Raises CollectionError if the key is malformed."""
    own = {MANAGED_BY_LABEL: MANAGER, INSTANCE_LABEL: instance}
    found: list[Plain] = []
    if token is not None:
        found.append(_secret(f"serve-{instance}-hf-token", namespace, own, {"token": token}))
    if key is not None:
        name = secret_name(key, namespace, instance)
        more = {COMPONENT_LABEL: COMPONENT, KEY_LABEL: name[-16:]}
        found.append({**_secret(name, namespace, own | more, {"key": key}), "immutable": True})
    return found


def others(instance: str, read: list[Plain]) -> list[str]:
    """Return the selectors of all Secrets of the instance except those in use; one without a key label is the token."""
    keys = [each["metadata"]["labels"].get(KEY_LABEL) for each in read]
    without_token = [f"{COMPONENT_LABEL}={COMPONENT}"] if None in keys else []
    return selectors(instance) + without_token + [f"{KEY_LABEL}!={key}" for key in keys if key]


def _secret(name: str, namespace: str, own: dict[str, str], texts: dict[str, str]) -> Plain:
    coded = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    return thing("v1", "Secret", name, namespace, own, type="Opaque", data=coded)
