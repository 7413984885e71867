"""A bundle as bundle_fetch leaves it, with a few bytes per artefact."""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bundle import manifest
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bundle.wanted import artefacts


def lay(
    folder: pathlib.Path,
    choices: t.Mapping[str, t.Any],
    contents: t.Mapping[str, bytes] | None = None,
    knowledge_dirs: t.Sequence[str] = (),
) -> dict[str, pathlib.Path]:
    """Fill a folder with a list of artefacts; return name → file. contents: bytes by artefact name, where they matter."""
    made = {}
    for wanted in artefacts(choices, knowledge_dirs):
        data = (contents or {}).get(wanted.name, wanted.path.encode())
        path = folder / wanted.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        assert wanted.sha256 in (None, digest), f"{wanted.name}: its bytes must be given"
        manifest.note(str(folder), dataclasses.replace(wanted, sha256=digest, size=len(data)))
        made[wanted.name] = path
    return made
