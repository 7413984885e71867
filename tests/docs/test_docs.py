"""Everything that a user can call documents itself, as ansible-doc reads it."""

from __future__ import annotations

import os
import subprocess

import pytest
import yaml

from ansible_collections.dgxspark.cluster.tests.support.documents import ansible_doc
from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT
from ansible_collections.dgxspark.cluster.tools import docs


@pytest.mark.parametrize(("kind", "folder"), [("module", "modules"), ("filter", "filter"), ("lookup", "lookup")])
def test_every_plugin_has_its_documentation(kind: str, folder: str) -> None:
    names = [f"dgxspark.cluster.{path.stem}" for path in sorted((ROOT / "plugins" / folder).glob("*.py"))]
    assert names
    documents = ansible_doc("-t", kind, *names)
    for name in names:
        document = documents[name]
        assert document["doc"]["short_description"], name  # type: ignore[index]
        assert document["examples"], name
        assert document["return"], name


def test_every_role_documents_its_options() -> None:
    names = sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())
    assert names
    documents = ansible_doc("-t", "role", *(f"dgxspark.cluster.{name}" for name in names))
    for name in names:
        entry = documents[f"dgxspark.cluster.{name}"]["entry_points"]["main"]  # type: ignore[index]
        assert entry["short_description"]
        assert all(option.get("description") for option in entry["options"].values()), name


def test_the_action_group_is_the_modules() -> None:
    runtime = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text(encoding="utf-8"))
    modules = sorted(path.stem for path in (ROOT / "plugins" / "modules").glob("*.py"))
    assert sorted(runtime["action_groups"]["dgxspark"]) == modules
    reach = sorted(
        path.stem
        for path in (ROOT / "plugins" / "modules").glob("*.py")
        if '"kubeconfig": {' in path.read_text("utf-8")
    )
    assert reach and sorted(runtime["action_groups"]["kube"]) == reach


@pytest.mark.more
def test_collection_docs_lint() -> None:
    done = subprocess.run(
        [
            docs.PROGRAMS / "antsibull-docs",
            "lint-collection-docs",
            "--plugin-docs",
            "--validate-collection-refs=self",
            ".",
        ],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{docs.PROGRAMS}{os.pathsep}{os.environ['PATH']}"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
