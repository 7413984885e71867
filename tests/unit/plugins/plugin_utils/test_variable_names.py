"""A misspelled variable is named with what was meant; no variable of a guide, an inventory or a test is refused."""

from __future__ import annotations

import re

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import variable_names
from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT

# What sets a variable: a YAML key, a JSON key, name=value.
_SET = re.compile(r"""(?:^|[\s{,'"(])(?P<name>[a-z0-9]+(?:_[a-z0-9]+)+)(?:: |:$|"\s*:|'\s*:|=(?!=))""", re.MULTILINE)
TEXTS = (
    *("README.md", "docs/docsite/rst/*.rst", "inventories/**/*.yml", "roles/*/README.md", "benchmarks/*.py"),
    *("molecule/**/*.yml", "lab/**/*.yml", "tests/**/*.yml", "tests/**/*.py"),
)


@pytest.mark.parametrize(
    ("name", "meant", "severity"),
    [
        ("dgxspark_fabrik", "dgxspark_fabric", "error"),
        ("k8s_dgx_model_profil", "k8s_dgx_model_profile", "error"),
        ("sriov_roce_reset_stranted", "sriov_roce_reset_stranded", "error"),
        ("netplan_vf_foreign_stanza", "netplan_vf_foreign_stanzas", "error"),
        ("dgxspark_bench_ur", "dgxspark_bench_url", "error"),
        ("dgxspark_knowledge_dir", "dgxspark_knowledge_dirs", "error"),
        ("k3s_versoin", "k3s_version", "warning"),
        ("nccl_debugg", "nccl_debug", "warning"),
    ],
)
def test_a_misspelled_name_is_found_with_what_was_meant(name: str, meant: str, severity: str) -> None:
    [found] = variable_names.check({name: "-e"})
    assert (found.severity, found.subject) == (severity, f"{name} (-e)")
    assert f"Did you mean {meant}?" in found.remedy


def test_a_name_cut_short_is_told_with_each_that_begins_so() -> None:
    [found] = variable_names.check({"k8s_dgx_model": "-e"})
    assert "Did you mean k8s_dgx_model_config or k8s_dgx_model_profile?" in found.remedy


@pytest.mark.parametrize(("name", "meant"), [("sort_by", "sort"), ("log_file", "log"), ("num_sparks", "sparks")])
def test_a_name_with_a_word_of_ours_is_told_with_it(name: str, meant: str) -> None:
    [found] = variable_names.short({name: "1"}, alone=True)
    assert (found.severity, found.remedy) == ("error", f"Did you mean {meant}?")
    [beside] = variable_names.short({name: "1"}, alone=False)
    assert beside.severity == "warning", "a template of the owner's inventory may read it"


def test_names_of_others_are_none_of_our_business() -> None:
    given = ("ansible_user", "sparks", "my_dgxspark_fabric", "netplan_path", "k8s_version", "dgxspark")
    assert not variable_names.unknown(given)


def test_a_name_that_is_like_none_says_so() -> None:
    [found] = variable_names.check({"dgxspark_of_my_own_making": "inventory, host spark1"})
    assert found.remedy == "Remove it. A variable of your own needs another prefix than dgxspark_."


def test_every_option_of_every_role_is_known() -> None:
    names = {
        name
        for path in ROOT.glob("roles/*/meta/argument_specs.yml")
        for name in re.findall(r"(?m)^      (\w+):$", path.read_text(encoding="utf-8"))
    }
    assert len(names) > 100 and not variable_names.unknown(names)


def test_no_variable_of_guides_inventories_and_tests_is_refused() -> None:
    found = {
        name: str(path.relative_to(ROOT))
        for pattern in TEXTS
        for path in sorted(ROOT.glob(pattern))
        if path.name not in ("test_variable_names.py", "test_file_schemas.py")  # they misspell on purpose
        for name in _SET.findall(path.read_text(encoding="utf-8"))
    }
    given = {name: where for name, where in found.items() if variable_names.ours(name)}
    assert len(given) > 140
    assert [str(each) for each in variable_names.check(given) if each.severity == "error"] == []


@pytest.mark.parametrize(
    ("name", "meant"), [("spark", "sparks"), ("logs", "log"), ("befor", "before"), ("log-text", "log_text")]
)
def test_a_name_like_a_short_one_of_ours_is_an_error_whoever_else_may_read_it(name: str, meant: str) -> None:
    for alone in (True, False):
        [found] = variable_names.short({name: "2"}, alone=alone)
        assert (found.severity, found.subject) == ("error", f"{name} (-e)")
        assert found.remedy == f"Did you mean {meant}?"


def test_a_name_that_nothing_reads_is_an_error_without_an_inventory_and_a_warning_with_one() -> None:
    """With one, its own templates may read it."""
    [alone], [beside] = (variable_names.short({"colour": "red"}, alone=each) for each in (True, False))
    assert (alone.severity, beside.severity) == ("error", "warning")
    assert alone.remedy == "Remove it."


def test_a_key_of_the_overrides_says_where_it_belongs() -> None:
    [found] = variable_names.short({"variant": "two"}, alone=True)
    assert found.remedy.endswith("""-e '{"k8s_dgx_overrides": {"variant": …}}'""")


def test_short_names_and_names_of_others_pass() -> None:
    names = ("sparks", "sort", "log", "log_text", "before", "after", "ansible_user", "k8s_dgx_recipe", "_raw_params")
    assert variable_names.short(dict.fromkeys(names, "1"), alone=True) == []


@pytest.mark.parametrize("name", ["recipe", "model_profile", "free_gib"])
def test_a_name_without_its_prefix_is_told_with_it(name: str) -> None:
    [found] = variable_names.short({name: "x"}, alone=True)
    assert (found.severity, found.remedy) == ("error", f"Did you mean k8s_dgx_{name}?")
