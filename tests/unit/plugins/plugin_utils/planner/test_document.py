"""What a rule may ask is typed once: the documents that plans make fit its schema, and so do the rules that read them."""

from __future__ import annotations

import json
import pathlib
import typing as t

import jsonschema
import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.judgement import (
    document,
    knowledge_base,
    rules,
    sizes,
    verdict,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.profile.profile import find, resolve
from ansible_collections.dgxspark.cluster.tools import rule_facts

KNOWN = knowledge_base.base()
SCHEMA = jsonschema.Draft202012Validator(document.schema())


@pytest.mark.parametrize("name", sorted(knowledge.shared("profile")))
def test_a_plan_s_document_fits_its_schema(name: str) -> None:
    settled = sizes.resolve(resolve(find(name), {}, KNOWN.tables), KNOWN)
    made = verdict.rule(settled, sizes.size(settled, None, KNOWN), verdict.Platform(), KNOWN).document
    SCHEMA.validate(json.loads(json.dumps(made)))


def rule(when: str, folder: pathlib.Path) -> t.Any:
    entry = {"id": "mine.one", "severity": "error", "names": ["tp"], "when": when, "message": "m", "remedy": "r"}
    entry["source"] = [{"from": "here", "verified": "measured"}]
    (folder / "rules").mkdir()
    (folder / "rules" / "mine.yml").write_text(json.dumps({"entries": [entry]}))
    return rules.load_rules([str(folder)])


@pytest.mark.parametrize(
    ("when", "said"),
    [
        ("model.hybird", "Did you mean model.hybrid"),
        ("parallel.tp > `1` && modle.known", "Did you mean model"),
        ("chunk.zzz", "There are: chunk.uneven"),
    ],
)
def test_a_fact_that_no_plan_has_is_refused(when: str, said: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(knowledge.KnowledgeError, match=said):
        rule(when, tmp_path)


@pytest.mark.parametrize(
    "when", ["settings.anything_new", "length(environment[?starts_with(@, 'X')]) > `0`", "image.features.x"]
)
def test_open_names_and_projections_are_not_judged(when: str, tmp_path: pathlib.Path) -> None:
    assert rule(when, tmp_path)


def test_the_guide_is_made_of_the_types() -> None:
    assert rule_facts.GUIDE.read_text(encoding="utf-8") == rule_facts.document(), "run tools/rule_facts.py"
