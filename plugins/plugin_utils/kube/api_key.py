# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The API key: check its form, and derive the name of the Secret that holds it.

The name depends on the key: a new key means a new Secret, so the ranks change and are replaced, and a rollback of the old group
still finds its own Secret. Many can see the name, so its derivation is slow (PBKDF2), and short keys are refused.
"""

from __future__ import annotations

import functools
import hashlib
import re

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import label

LEAST, MOST = 16, 1024
ROUNDS = 400_000  # one guess costs a fifth of a second on a controller
_KEY = re.compile(r"[A-Za-z0-9._~+/=-]+")  # the characters of a bearer token (RFC 6750)


def secret_name(key: str, namespace: str, instance: str) -> str:
    """Return the Secret's name. Raises CollectionError, which never shows the key, if the key is malformed."""
    text = str(key)
    if not LEAST <= len(text) <= MOST or not _KEY.fullmatch(text):
        raise CollectionError(
            f"k8s_dgx_api_key: this is not a valid key ({len(text)} characters): {LEAST} to {MOST} letters, digits and ._~+/=- are "
            "needed. `openssl rand -hex 32` generates one."
        )
    return f"serve-{label(instance, 'instance.name', 40)}-api-{mark(text, namespace, instance)}"


@functools.lru_cache(maxsize=8)
def mark(key: str, namespace: str, instance: str) -> str:
    """Return a text that tells keys apart and, seen by many, costs who guesses."""
    salt = f"dgxspark.cluster/{namespace}/{instance}".encode()
    return hashlib.pbkdf2_hmac("sha256", key.encode(), salt, ROUNDS, 8).hex()
