# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When each kind of knowledge was last held against its sources, and what is newer than it: the only reader of `knowledge/looks`."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import line
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.versions import release

KIND = "looks"
PARTS = "versions"
REMEDY = "Nothing is known to be bad in it, because nothing is known. Look for a newer release of this collection."
ENGINES = {"sglang": "SGLang", "vllm": "vLLM"}
_NAMES = {
    "kernel": "Kernel",
    "driver": "GPU driver",
    "nccl": "NCCL",
    "dgx_os": "DGX OS",
    "firmware": "ConnectX-7 firmware",
    "k3s": "K3s",
    "device_plugin": "NVIDIA device plugin",
}


def day(kind: str, overlays: t.Sequence[str] = ()) -> str:
    """Return the day on which a kind of knowledge was last held against its sources."""
    return str(knowledge.shared(KIND, overlays)[kind]["looked"])


def parts(overlays: t.Sequence[str] = ()) -> knowledge.Entry:
    """Return the last look at the platform's parts, for `newer_parts`."""
    return knowledge.shared(KIND, overlays)[PARTS]


def newer_parts(versions: t.Mapping[str, str], entry: knowledge.Entry) -> dict[str, str]:
    """Return by component what to say of each part of the platform that is newer than the newest one known here."""
    found = {}
    for component, newest in entry["newest"].items():
        here = versions.get(component, "")
        try:
            newer = [each for each in here.split(", ") if here and release(each) > release(newest)]
        except CollectionError:  # a version that does not start with a number cannot be compared
            continue
        if newer:
            found[component] = (
                f"{_NAMES[component]} {line(', '.join(newer), 60)} is newer than the newest one that is known here, {newest} "
                f"(looked at on {entry['looked']})."
            )
    return found


def newer_engine(engine: str, version: str, newest: str) -> str:
    """Return what to say of an engine's release that is newer than the newest flag table."""
    return (
        f"{ENGINES.get(engine, engine)} {line(version, 60)} is newer than the newest table, {newest} "
        f"(the package index was looked at on {day('engines')})"
    )
