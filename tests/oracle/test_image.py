"""The engines' own wheels as images: the program of inspect_image.yml reads from them what the shipped tables say.

Only a wheel's sources and its parser's requirements are installed there: no torch, no GPU, no compiled part of the engine.
"""

from __future__ import annotations

import pathlib

import pytest
from engine_parsers import tables
from engine_parsers.sources import NotAvailable, packages, source

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import (
    image_entries,
    load_patches,
    load_tables,
    read_image_report,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.judgement.patches import concerned
from ansible_collections.dgxspark.cluster.tests.unit.image_trees import DIGEST, lay, run

IN_EVERY_RUN = (("sglang", "0.5.13"), ("vllm", "0.17.1"))
VERSIONS = [
    pytest.param(engine, version, marks=() if (engine, version) in IN_EVERY_RUN else pytest.mark.long)
    for engine, versions in tables.VERSIONS.items()
    for version in versions
]
OWN = ("id", "version", "source", "origin")


@pytest.mark.parametrize(("engine", "version"), VERSIONS)
def test_an_image_says_what_the_shipped_table_says(engine: str, version: str, tmp_path: pathlib.Path) -> None:
    try:
        made = source(engine, version)
        site = f"{made.folder}:{packages(made)}"
    except NotAvailable as exc:
        pytest.skip(f"not run: {exc}")
    ran = run(site, tmp_path / "programs")
    assert ran.returncode == 0, ran.stderr
    said = read_image_report(ran.stdout)
    assert said.unread == ("torch: torch is not installed",)
    owner, image = tmp_path / "dgxspark", f"registry.example/{engine}:{version}"
    entries = image_entries(said, image, DIGEST, str(owner))
    lay(owner, {file.path: file.text for file in entries.files})
    table = load_tables([str(owner)]).parsers[f"{engine}-{version}+image.abababababab"].table
    shipped = tables.shipped(engine)[version]
    assert {k: v for k, v in table.items() if k not in OWN} == {k: v for k, v in shipped.items() if k not in OWN}
    written = knowledge.load("images", [str(owner)])[f"own-registry.example-{engine}-{version}"].get("patches", {})
    # An image reports on every patch for a package that it has: one for other releases is `drifted`, as if the image lacked
    # what it never needs. The entry has only those for this release.
    mine = [patch for patch in concerned(load_patches(), engine, version) if patch.plain["package"]["name"] == engine]
    assert written == {patch.id: said.patches[patch.id] for patch in mine}
