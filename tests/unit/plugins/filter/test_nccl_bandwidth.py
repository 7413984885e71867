"""The filter nccl_bandwidth."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.dgxspark.cluster.plugins.filter.nccl_bandwidth import FilterModule

nccl_bandwidth = FilterModule().filters()["nccl_bandwidth"]
ROW = 'NCCL_BENCH {"operation": "all_reduce", "bytes": 1073741824, "ranks": 2, "calls": 2, "rounds_us": [50000.0]}'


def test_plain_figures_come_out() -> None:
    made = nccl_bandwidth(f"noise\n{ROW}\n")
    assert made["rows"][0]["busbw"] == pytest.approx(21.47483648)
    assert made["summaries"][0]["large_busbw"] == pytest.approx(21.47483648)
    assert (made["complete"], made["about"]) == (False, None)
    assert nccl_bandwidth(f'{ROW}\nNCCL_BENCH_END {{"ranks": 2}}')["complete"] is True


@pytest.mark.parametrize("value", [None, [], "", "nothing of it", "NCCL_BENCH {"])
def test_bad_input_is_ansible_s_error(value: t.Any) -> None:
    with pytest.raises(AnsibleFilterError, match="nccl_bandwidth"):
        nccl_bandwidth(value)
