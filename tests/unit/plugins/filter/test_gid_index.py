"""The filter gid_index."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.dgxspark.cluster.plugins.filter.gid_index import FilterModule

gid_index = FilterModule().filters()["gid_index"]


def entry(index: int) -> dict[str, t.Any]:
    return {
        "slot": "p0f0",
        "vf": 0,
        "hca": "rocep1s0f0v0",
        "port": 1,
        "netdev": "enp1s0f0v0",
        "address": "10.100.0.1",
        "index": index,
        "place": "host",
    }


def test_plain_in_and_plain_out() -> None:
    answer = gid_index({"spark1": [entry(3)], "spark2": [entry(3)]})
    assert isinstance(answer, dict) and answer["fits"] is True and answer["index"] == 3
    assert gid_index({"spark1": [entry(3)], "spark2": [entry(4)]})["index"] is None


@pytest.mark.parametrize(
    "value", [[], None, {"spark1": None}, {"spark1": [{"index": 3}]}, {"spark1": [{**entry(3), "x": 1}]}]
)
def test_bad_input_is_ansible_s_error(value: t.Any) -> None:
    with pytest.raises(AnsibleFilterError, match="gid_index"):
        gid_index(value)
