"""What is refused of a command line before anything runs: tags that do nothing, words without a name, names that nothing reads."""

from __future__ import annotations

import re

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import command_line
from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT

SITE = ["dgxspark.cluster.site"]
PLAYBOOKS = sorted(path.stem for path in (ROOT / "playbooks").glob("*.yml"))


@pytest.mark.parametrize(
    ("playbook", "tag", "meant"),
    [("site", "fabirc", "fabric"), ("site", "memory-guard", "memory_guard"), ("plan", "servin", "serving")],
)
def test_a_tag_that_the_playbook_does_not_have_would_do_nothing_and_is_refused(
    playbook: str, tag: str, meant: str
) -> None:
    [found] = command_line.tags([f"dgxspark.cluster.{playbook}"], {tag: "--tags"})
    assert (found.severity, found.subject) == ("error", f"--tags {tag}")
    assert f"Did you mean {meant}?" in found.remedy and playbook in found.message


def test_a_tag_of_another_playbook_is_refused_with_those_that_this_one_has() -> None:
    [found] = command_line.tags(["dgxspark.cluster.plan"], {"k3s_apply": "--skip-tags"})
    assert found.subject == "--skip-tags k3s_apply" and "fabric" in found.remedy and "serving" in found.remedy


@pytest.mark.parametrize(
    "tag", ["fabric", "nccl", "power", "k3s", "memory_guard", "verify", "serve", "platform", "k8s_dgx_weights"]
)
def test_tags_of_the_playbook_its_roles_and_what_it_imports_are_known(tag: str) -> None:
    assert command_line.tags(SITE, {tag: "--tags"}) == []
    assert command_line.tags([str(ROOT / "playbooks/site.yml")], {tag: "--tags"}) == []
    assert command_line.tags([str(ROOT / "site.yml")], {tag: "--tags"}) == []


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_ansibles_own_words_are_tags_of_every_playbook(playbook: str) -> None:
    words = ("all", "tagged", "untagged", "always", "never")
    assert command_line.tags([f"dgxspark.cluster.{playbook}"], dict.fromkeys(words, "--tags")) == []


def test_tags_of_an_owners_playbook_are_the_owners() -> None:
    assert command_line.tags([*SITE, "/home/me/all.yml"], {"mine": "--tags"}) == []
    assert command_line.tags(["all.yml"], {"mine": "--tags"}) == []
    assert command_line.tags([], {"mine": "--tags"}) == []


@pytest.mark.parametrize("rest", ["serve openai/gpt-oss-120b", "WARN NET/IB : No device found", "sparks"])
def test_words_of_e_that_stand_without_a_name_are_refused(rest: str) -> None:
    """Ansible splits -e 'log=NCCL WARN …' at the spaces, and passes over the rest."""
    [found] = command_line.stray({"log": "NCCL", "_raw_params": rest})
    assert found.severity == "error" and rest in found.message
    assert "file" in found.remedy and "quotes" in found.remedy


def test_values_with_names_are_no_strays() -> None:
    assert command_line.stray({"sparks": "2", "log": "rank0.log"}) == []


def test_no_tag_of_readme_guides_and_benchmarks_is_refused() -> None:
    said = re.compile(r"dgxspark\.cluster\.(?P<playbook>\w+)[^\n`]*?(?P<option>--(?:skip-)?tags)[ =](?P<tags>[\w,-]+)")
    texts = [
        *ROOT.glob("docs/docsite/rst/*.rst"),
        *ROOT.glob("*.md"),
        *ROOT.glob("roles/*/README.md"),
        *ROOT.glob("benchmarks/*.yml"),
    ]
    found = [match for path in texts for match in said.finditer(path.read_text(encoding="utf-8"))]
    assert len(found) > 5
    for match in found:
        given = dict.fromkeys(match["tags"].split(","), match["option"])
        assert command_line.tags([f"dgxspark.cluster.{match['playbook']}"], given) == [], match[0]
