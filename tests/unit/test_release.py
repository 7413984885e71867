"""A release: its version is in one place, and a tag that is no release is refused with every reason."""

from __future__ import annotations

import pathlib
import re

import pytest
import yaml

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT
from ansible_collections.dgxspark.cluster.tools import release

OWN = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["version"]


def test_the_version_is_in_one_place() -> None:
    assert re.fullmatch(release.VERSION, OWN)
    assert knowledge.collection_version() == OWN
    files = [
        ROOT / name for name in ("README.md", "AGENTS.md", "CONTRIBUTING.md", "llms.txt", "Makefile", "pyproject.toml")
    ]
    for pattern in (
        "*.yml",
        "meta/*",
        "docs/**/*.rst",
        "docs/site/**/*",
        ".github/**/*.yml",
        "requirements/*.in",
        "tools/*.py",
    ):
        files += (path for path in ROOT.glob(pattern) if path.is_file())
    of_ours = re.compile(rf"(?i)(?:version|dgxspark[-.]cluster)\W{{1,4}}v?{re.escape(OWN)}\b")
    found = {str(path.relative_to(ROOT)) for path in files if of_ours.search(path.read_text(encoding="utf-8"))}
    assert found == {"galaxy.yml"}


def checkout(folder: pathlib.Path, version: str, released: bool, fragment: bool) -> pathlib.Path:
    fragments = folder / "changelogs" / "fragments"
    fragments.mkdir(parents=True)
    (folder / "galaxy.yml").write_text(f"version: {version}\n", encoding="utf-8")
    (folder / "CHANGELOG.rst").write_text("v1.2.3\n======\n" if released else "Nothing yet\n", encoding="utf-8")
    if released:
        (folder / "changelogs" / "changelog.yaml").write_text("releases: {1.2.3: {}}\n", encoding="utf-8")
    if fragment:
        (fragments / "new.yml").write_text("---\n", encoding="utf-8")
    return folder


def test_a_release_is_one(tmp_path: pathlib.Path) -> None:
    assert release.problems("1.2.3", checkout(tmp_path, "1.2.3", True, False)) == []


@pytest.mark.parametrize(
    ("tag", "version", "released", "fragment", "told"),
    [
        (
            "v1.2.3",
            "1.2.3",
            True,
            False,
            ["The tag is v1.2.3, the version in galaxy.yml 1.2.3. They must be the same."],
        ),
        ("1.2.4", "1.2.3", True, False, ["The tag is 1.2.4"]),
        (
            "1.2",
            "1.2",
            False,
            False,
            ["no semantic version", "changelog.yaml has no release 1.2", "CHANGELOG.rst has no"],
        ),
        ("1.2.3", "1.2.3", True, True, ["1 not yet in the changelog, such as new.yml"]),
        ("1.2.4", "1.2.4", True, False, ["changelog.yaml has no release 1.2.4", "CHANGELOG.rst has no section v1.2.4"]),
    ],
)
def test_a_tag_that_is_no_release_is_refused(
    tmp_path: pathlib.Path, tag: str, version: str, released: bool, fragment: bool, told: list[str]
) -> None:
    found = release.problems(tag, checkout(tmp_path, version, released, fragment))
    assert len(found) == len(told)
    assert all(text in problem for text, problem in zip(told, found, strict=True)), found


def test_a_tag_s_workflow_builds_tests_and_attaches() -> None:
    flow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
    assert list(flow["on"]) == ["push"] and flow["on"]["push"]["tags"]
    jobs = flow["jobs"]
    assert jobs["publish"]["needs"] == ["build", "test"]
    # Only the job that runs nothing of the repository may write to it.
    assert flow["permissions"] == {"contents": "read"}
    assert [name for name, job in jobs.items() if "permissions" in job] == ["publish"]
    assert not [step for step in jobs["publish"]["steps"] if "checkout" in step.get("uses", "")]
    said = {name: "\n".join(step.get("run", "") for step in job["steps"]) for name, job in jobs.items()}
    assert "tools/release.py" in said["build"] and "make test" in said["test"]
    # A maintainer takes the same steps here, without a tag (`make release`).
    rehearsed = (ROOT / "tools" / "rehearse_release.py").read_text(encoding="utf-8")
    for step in ("tools/release.py", "SHA256SUMS", '"collection", "install"', '"sparks=2"', "antsibull-changelog"):
        assert step in rehearsed, step
    assert "SHA256SUMS" in said["publish"] and "gh release create" in said["publish"]
