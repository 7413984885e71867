"""Figures as people write them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.significant import significant


@given(st.floats(-1e12, 1e12), st.integers(1, 6))
def test_a_figure_is_near_its_value_and_has_no_power_of_ten(value: float, digits: int) -> None:
    said = significant(value, digits)
    assert re.fullmatch(r"-?\d+(\.\d+)?", said), said
    assert float(said) == pytest.approx(value, rel=0.6 * 10 ** (1 - digits), abs=0)


def test_examples() -> None:
    assert [significant(value) for value in (1364.0, 36.04, 0.01234, 28930.0)] == ["1360", "36", "0.0123", "28900"]
