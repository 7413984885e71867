# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pod that runs an engine's image once on a node (see once.py), to read its contents."""

from __future__ import annotations

import functools
import hashlib
import json
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.engine_parser import (
    engine_sglang,
    engine_vllm,
    fake_torch,
    reader,
    run,
    stubs,
)
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.rank import patches
from ansible_collections.dgxspark.cluster.plugins.module_utils.source import source_of
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import once, pod
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import (
    COMPONENT_LABEL,
    MANAGER,
    Plain,
    image,
    labels,
    settings,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import load_patches

INSPECT = f"{MANAGER}/inspect"  # label: a checksum of the image's name
ROOM = "2Gi"  # size limit of the scratch folder
ASKED = "asked.json"


@functools.cache
def sources() -> dict[str, str]:
    """Return the programs: file name → text."""
    programs = (reader, run, stubs, fake_torch, engine_sglang, engine_vllm, patches)
    return {f"{program.__name__.rpartition('.')[2]}.py": source_of(program) for program in programs}


def reader_input(overlays: t.Sequence[str] = ()) -> str:
    """Return the reader's input as JSON: the patches to look for, and the model whose defaults the parser reports."""
    patches_ = [patch.plain for patch in load_patches(overlays)]
    return json.dumps({"patches": patches_, "probe": knowledge.get("probes", "dense")["config"]})


def objects(
    reference: str, host: str, kubernetes: t.Mapping[str, t.Any] | None, timeout_s: int, overlays: t.Sequence[str] = ()
) -> tuple[list[Plain], Plain]:
    """Return the objects that the pod needs, the namespace first, and the pod. host: where it runs. kubernetes: an owner's Settings.

    timeout_s: for the pull and the run together. Raises CollectionError for values that no manifest can express.
    """
    chosen = settings(kubernetes)
    named = image(reference, "the image to be read")
    name = f"inspect-{hashlib.sha256(named.encode()).hexdigest()[:12]}"
    job = once.OneShotPod(
        name=name,
        container="inspect",
        image=named,
        command=("python3", f"{pod.PROGRAMS}/reader.py", f"{pod.PROGRAMS}/{ASKED}"),
        files={**sources(), ASKED: reader_input(overlays)},
        labels=labels() | {COMPONENT_LABEL: "image-inspect", INSPECT: name},
        host=host,
        timeout_s=timeout_s,
        limits={"cpu": "4", "memory": "6Gi", "ephemeral-storage": "3Gi"},
        room=ROOM,
        secrets={},
    )
    return once.objects(job, chosen)


def selector(made: Plain) -> list[str]:
    """Return the label selectors of this pod."""
    return [f"{INSPECT}={made['metadata']['labels'][INSPECT]}"]
