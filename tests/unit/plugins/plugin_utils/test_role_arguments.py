"""The variables of all roles, judged before the first role begins."""

from __future__ import annotations

import pytest
import yaml

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import role_arguments
from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("netplan_vf_rollback_timeout", "soon"),
        ("netplan_vf_foreign_stanzas", "adopt"),
        ("sriov_roce_reset_stranded", "perhaps"),
        ("k3s_state", "gone"),
    ],
)
def test_a_value_that_a_later_role_would_refuse_is_named(name: str, value: str) -> None:
    (found,) = role_arguments.judge({"spark1": {name: value}})
    assert name in found.subject and "spark1" in found.subject and value in found.message


def test_what_roles_accept_passes() -> None:
    given = {
        "netplan_vf_rollback_timeout": "60",
        "sriov_roce_trust": "yes",
        "sriov_roce_spoof_check": None,
        "mine": "x",
    }
    assert role_arguments.judge({"spark1": given}) == []


def test_every_role_s_own_defaults_pass() -> None:
    judged = 0
    for path in sorted(ROOT.glob("roles/*/defaults/main.yml")):
        values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        plain = {name: value for name, value in values.items() if "{{" not in str(value)}
        judged += len(set(plain) & set(role_arguments.specs()))
        assert role_arguments.judge({"spark1": plain}) == [], path
    assert judged > 30


@pytest.mark.parametrize("name", ["k8s_dgx_overrides", "dgxspark_fabric", "k3s_registries"])
def test_a_text_where_a_mapping_belongs_is_refused_with_how_to_write_one(name: str) -> None:
    """-e k8s_dgx_overrides=two ended in "expected dicts but got a '_AnsibleTaggedStr'"."""
    (found,) = role_arguments.texts_for_mappings({name: "two"})
    assert found.severity == "error" and found.subject == f"{name} (-e)" and "'two'" in found.message
    assert f'{{"{name}": {{' in found.remedy


def test_mappings_templates_and_what_is_no_mapping_pass() -> None:
    given = {
        "k8s_dgx_overrides": {"variant": "two"},
        "dgxspark_fabric": "{{ mine }}",
        "k8s_dgx_recipe": "x.sh",
        "sparks": "2",
    }
    assert role_arguments.texts_for_mappings(given) == []


def test_a_fault_of_all_hosts_is_said_once() -> None:
    wrong = {"k8s_dgx_traffic_shape": "fast"}
    hosts = {f"spark{number}": wrong for number in range(1, 9)} | {"spark9": {"k8s_dgx_traffic_shape": "single"}}
    (found,) = role_arguments.judge(hosts)
    assert found.subject == "k8s_dgx_traffic_shape (spark1 and 7 more)" and "fast" in found.message
    both = role_arguments.judge({"spark1": wrong, "spark2": {"k8s_dgx_traffic_shape": "slow"}})
    assert [each.subject for each in both] == ["k8s_dgx_traffic_shape (spark1)", "k8s_dgx_traffic_shape (spark2)"]
