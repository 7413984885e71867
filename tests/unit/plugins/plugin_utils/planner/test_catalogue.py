"""What a number of Sparks can run: the planner's judgement as a list, sorted as asked, and what to serve instead of too large a model."""

from __future__ import annotations

import functools
import re

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report import catalogue_page
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.authoring import catalogue, catalogue_text
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan
from ansible_collections.dgxspark.cluster.tools import model_table

FEW = (
    "nemotron-3-super-120b-nvfp4",  # variants, and measured runs equal to some
    "gpt-oss-120b-vllm",
    "qwen3-vl-8b-instruct-fp8",
    "apertus-70b-instruct-nvfp4",  # no facts
)


@functools.cache
def listed(sparks: int) -> catalogue.Catalogue:
    return catalogue.catalogue(sparks, profiles=FEW)


def test_every_variant_is_listed_once_and_as_the_planner_judges_it() -> None:
    made = listed(4)
    everyone = [*made.fits, *made.others]
    variants = [
        (name, each) for name in FEW for each in knowledge.shared("profile")[name].get("variants") or ["default"]
    ]
    assert sorted((each.profile, each.variant) for each in everyone) == sorted(variants)
    assert not {each.name for each in made.fits} & {each.name for each in made.others}
    [measured, *_more] = [each for each in made.fits if each.origin == "measured"]
    plan = launch_plan(measured.profile, {}, {"variant": measured.variant})
    row = next(each for each in plan["evidence"] if each["equal"] and each["id"] == measured.source.split(":")[0])
    assert measured.speed == {level: row[level] for level in ("n1", "n4", "n8") if row[level] is not None}
    assert measured.verdict == plan["verdict"] and measured.sparks == plan["parallel"]["nodes"]
    assert measured.left_gib == pytest.approx(plan["memory"]["free_gib"] - plan["memory"]["used_gib"], abs=0.06)
    [estimated, *_more] = [each for each in made.fits if each.origin == "estimated"]
    assert all(estimated.low[level] <= estimated.speed[level] <= estimated.high[level] for level in estimated.speed)


def test_what_needs_more_sparks_is_folded_with_the_reason() -> None:
    made = listed(2)
    assert all(each.sparks <= 2 for each in made.fits)
    folded = catalogue_text.folded(made.others)
    assert {each.profile for each in folded["needs 4 Sparks"]} == {FEW[0], FEW[3]}
    text = "\n".join(catalogue_text.lines(made))
    assert f"  needs 4 Sparks: {FEW[3]}, {FEW[0]}" in text


@pytest.mark.parametrize("sort", sorted(catalogue.SORTS))
def test_it_is_sorted_as_asked(sort: str) -> None:
    made = catalogue.arranged(4, sort, [*listed(4).others, *listed(4).fits])
    keys = [catalogue.SORTS[sort](each) for each in made.fits]
    assert keys == sorted(keys) and len(keys) > 3
    assert sorted(each.name for each in made.fits) == sorted(each.name for each in listed(4).fits)
    assert made.others == listed(4).others


def test_text_and_page_mark_what_was_not_measured() -> None:
    made = listed(4)
    text, page = "\n".join(catalogue_text.lines(made)), catalogue_page.page(made)
    assert page == catalogue_page.page(made)
    for each in made.fits:
        shown = each.variant.replace("default", "-")
        [line] = [line for line in text.splitlines() if line.split()[:2] == [each.profile, shown]]
        assert ("~" in line) == (each.origin == "estimated")
        assert each.model in page
    heads = re.findall(r'<th scope="col">([^<]*)</th>', page.partition("</thead>")[0])
    assert heads[:4] == ["Model", "Sparks", "GiB left", "tokens/s at 1"], (
        "a phone shows four columns before one scrolls"
    )
    assert f"{made.fits[0].engine}, {made.fits[0].quantization}</small>" in page
    assert text.splitlines()[0] == catalogue_text.heading(made) and catalogue_text.heading(made) in page
    # A terminal shows the end of a long list.
    assert catalogue_text.heading(made) in text.splitlines()[-5:]


def test_bad_questions_are_refused() -> None:
    with pytest.raises(CollectionError, match="sparks: 0 is not a number of Sparks"):
        catalogue.catalogue(0)
    with pytest.raises(CollectionError, match=r"sort: 'sped' is not one of .*Did you mean speed\?"):
        catalogue.catalogue(2, "sped")


def test_a_profile_for_more_sparks_names_the_nearest_that_fit() -> None:
    with pytest.raises(CollectionError) as refused:
        launch_plan("nemotron-3-super-120b-nvfp4", {"hosts": ["spark1", "spark2"]})
    text = str(refused.value)
    assert "4 nodes are needed, the cluster has 2" in text and "-e sparks=2" in text
    [instead] = re.findall(r"The nearest that fit: ([^.]*(?:\.\d[^.]*)*)\. ", text)
    named = [each.split(" (")[0] for each in instead.split(", ")]
    assert 1 <= len(named) <= 3
    for each in named:
        made = launch_plan(each, {"hosts": ["spark1", "spark2"]})
        assert made["verdict"] != "blocked"


def test_an_unknown_profile_names_the_three_nearest_and_not_all() -> None:
    with pytest.raises(CollectionError) as refused:
        launch_plan("nemotron-3-super-120b-nvpf4")
    text = str(refused.value)
    assert "Did you mean nemotron-3-super-120b-nvfp4" in text
    assert sum(name in text for name in knowledge.shared("profile")) <= 3
    with pytest.raises(
        CollectionError, match=r"There is no profile 'zzz'\. `ansible-playbook dgxspark\.cluster\.models"
    ):
        launch_plan("zzz")


@pytest.mark.more
def test_the_guide_of_models_is_what_the_planner_says() -> None:
    assert model_table.GUIDE.read_text(encoding="utf-8") == model_table.document(), "run tools/model_table.py"
    assert model_table.README.read_text(encoding="utf-8") == model_table.readme(), "run tools/model_table.py"


def test_a_beginning_means_the_profiles_that_begin_so() -> None:
    """'qwen3.6-35b' was answered with profiles of another model, and without the one that fits one Spark."""
    with pytest.raises(CollectionError) as told:
        launch_plan("qwen3.6-35b")
    said = str(told.value).partition("Did you mean ")[2].partition("?")[0]
    assert len(said) > 0 and all(each.startswith("qwen3.6-35b") for each in said.replace(" or ", ", ").split(", ")), (
        told.value
    )


def test_no_name_at_all_asks_for_one() -> None:
    with pytest.raises(
        CollectionError, match=r"^No model is named: -e k8s_dgx_model_profile=NAME, .*models -e sparks=N` lists"
    ):
        launch_plan("")
