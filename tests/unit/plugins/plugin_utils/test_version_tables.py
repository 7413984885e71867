"""Tables of many versions in one file: what is written reads back as the same tables, and a wrong file says where it is wrong."""

from __future__ import annotations

import json
import pathlib
import sys
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.version_tables import VersionTables

if (_tools := str(pathlib.Path(__file__).resolve().parents[4] / "tools")) not in sys.path:
    sys.path.insert(0, _tools)

from engine_parsers import tables

NAMES = st.sampled_from(["a", "tp-size", 'with "quotes" and spaces', "ünïcode", "{", "[1,  2]", "\\", "#"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=4,
)
PARTS = st.fixed_dictionaries(
    {
        "source": st.lists(NAMES, min_size=1, max_size=1),
        "requires": st.dictionaries(NAMES, NAMES, max_size=2),
        "facts": st.dictionaries(NAMES, VALUES, max_size=2).map(lambda found: dict(sorted(found.items()))),
        "positionals": st.lists(NAMES, max_size=1),
        "flags": st.dictionaries(NAMES, VALUES, max_size=4).map(lambda found: dict(sorted(found.items()))),
        "environment": st.lists(NAMES, unique=True, max_size=4).map(sorted),
    }
)


def whole(version: str, parts: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return a table in the order of its keys."""
    return {
        "id": f"vllm-{version}", "engine": "vllm", "version": version, "source": parts["source"], "verified": "vendor",
        **{key: parts[key] for key in ("requires", "facts", "positionals", "flags", "environment")},
    }  # fmt: skip


@given(st.lists(PARTS, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_what_is_written_reads_back_in_any_order_of_versions(parts: list[dict[str, t.Any]], random: t.Any) -> None:
    made = {f"0.{minor}.0": whole(f"0.{minor}.0", each) for minor, each in enumerate(parts, 8)}
    order = random.sample(sorted(made), len(made))
    text = tables.text({version: made[version] for version in order})
    read = VersionTables(text)
    assert list(read.ids.values()) == list(made)  # 0.8.0 is before 0.10.0
    assert [json.dumps(read.table(version)) for version in made] == [json.dumps(each) for each in made.values()]
    assert tables.text({version: read.table(version) for version in made}) == text


def test_what_versions_share_is_stated_once() -> None:
    flag = {"type": "int"}
    made = {v: whole(v, {"facts": {}, "requires": {}} | {"source": ["x"], "positionals": [], "environment": ["A"]}
                     | {"flags": {"old": flag} if v == "1.0" else {"new": flag}}) for v in ("1.0", "1.1", "1.2")}  # fmt: skip
    found = tables.document(made)
    assert found["flags"] == {"new": {">=1.1": flag}, "old": {">=1.0,<1.1": flag}}
    assert found["environment"] == {">=1.0": ["A"]}


DOCUMENT: dict[str, t.Any] = {
    "engine": "vllm", "verified": "vendor", "positionals": {}, "facts": {}, "environment": {},
    "versions": {v: {"source": ["x"], "requires": {}, "sha256": ""} for v in ("1.0", "1.1")},
    "flags": {"x": {">=1.0": {"type": "int"}}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"flags": {"x": {">=1.2": {}}}}, r"flags\.x: '>=1\.2' is not a range of its versions"),
        ({"flags": {"x": {">=1.1,<1.0": {}}}}, r"flags\.x: '>=1\.1,<1\.0' is not"),
        ({"flags": {"x": {"1.0": {}}}}, r"flags\.x: '1\.0' is not"),
        ({"flags": {"x": {">=1.0": {}, ">=1.0,<1.1": {}}}}, r"flags\.x: 2 of its ranges have version 1\.0"),
        ({"environment": {"": ["A"]}}, r"environment: '' is not"),
        ({"versions": None}, "not a file of tables by version"),
        ({"flags": [1]}, "not a file of tables by version"),
    ],
)
def test_a_wrong_file_says_where(change: dict[str, t.Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        VersionTables(json.dumps(DOCUMENT | change)).table("1.0")


@pytest.mark.parametrize("engine", tables.ENGINES)
def test_a_shipped_table_is_what_was_read_of_the_engine(engine: str) -> None:
    """A slip of the hand in a generated file is found without the engine's wheel."""
    text = tables.path(engine).read_text(encoding="utf-8")
    read = VersionTables(text)
    changed = [v for v, digest in read.digests.items() if tables.digest(read.table(v)) != digest]
    again = f"It is generated: git checkout {tables.path(engine).name}, or python tools/engine_flags.py {engine}"
    assert not changed, f"The tables of {engine} {', '.join(changed)} were changed by hand. {again} {' '.join(changed)}"
    assert tables.text(tables.shipped(engine)) == text, f"{tables.path(engine)} was changed by hand. {again}"
