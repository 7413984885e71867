# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The source of a program that is part of this collection and is laid on a node, or into a rank's container."""

from __future__ import annotations

import importlib.util
import types

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError


def source_of(program: types.ModuleType) -> str:
    """Return a module's own source, from wherever Python loaded it (a module's zip included)."""
    spec = importlib.util.find_spec(program.__name__)
    read = getattr(spec.loader, "get_source", None) if spec else None
    text = read(program.__name__) if read else None
    if not text:
        raise CollectionError(f"The source of {program.__name__} cannot be read, so nothing can be installed from it.")
    # Ansible's own loader of collections gives bytes.
    return text.decode("utf-8") if isinstance(text, bytes) else str(text)
