"""The knowledge base as an owner extends it: folders of his own, laid over the shipped data."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
import yaml

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.knowledge import KnowledgeError, get, load
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import load_tables

ENTRY: dict[str, t.Any] = {
    "id": "mine",
    "title": "A machine of mine",
    "pf_device_ids": ["1234:abcd"],
    "slots": [{"slot": "p0f0", "port": 0, "function": 0, "netdev": "eth7", "pci": "0000:07:00.0"}],
    "default_ports": {"switch": [0], "direct": [0], "triangle": [0], "ring": [0]},
    "vf_stride": 4,
    "source": ["seen on my desk"],
    "verified": "measured",
}


def write(folder: pathlib.Path, entry: t.Any, name: str = "mine.yml") -> str:
    """Put an entry (or raw text) into an overlay; return the overlay."""
    (folder / "hardware").mkdir(parents=True, exist_ok=True)
    text = entry if isinstance(entry, str) else yaml.safe_dump(entry)
    (folder / "hardware" / name).write_text(text, encoding="utf-8")
    return str(folder)


def refusal(*overlays: str, kind: str = "hardware") -> str:
    with pytest.raises(KnowledgeError) as caught:
        load(kind, overlays)
    return str(caught.value)


def test_shipped_entries_say_where_they_come_from() -> None:
    assert get("hardware", "spark")["origin"].endswith("knowledge/hardware/spark.yml")


@pytest.mark.parametrize("name", ["mine.yml", "mine.yaml", "deeper/mine.yml"])
def test_an_owners_entry_is_added(tmp_path: pathlib.Path, name: str) -> None:
    (tmp_path / "hardware" / "deeper").mkdir(parents=True)
    loaded = load("hardware", [write(tmp_path, ENTRY, name)])
    assert loaded["mine"]["vf_stride"] == 4
    assert loaded["mine"]["origin"] == str(tmp_path / "hardware" / name)
    assert "spark" in loaded


def test_a_file_may_hold_a_list_of_entries(tmp_path: pathlib.Path) -> None:
    overlay = write(tmp_path, {"entries": [ENTRY, {**ENTRY, "id": "other"}]})
    assert {"mine", "other"} <= set(load("hardware", [overlay]))


def test_a_shipped_entry_is_replaced_only_if_it_is_meant(tmp_path: pathlib.Path) -> None:
    told = refusal(write(tmp_path, {**ENTRY, "id": "spark"}))
    for part in ("mine.yml: id:", "'spark' is already defined in", "spark.yml", "`replaces: spark`"):
        assert part in told
    replaced = get("hardware", "spark", [write(tmp_path, {**ENTRY, "id": "spark", "replaces": "spark"})])
    assert replaced["title"] == "A machine of mine"
    assert "replaces" not in replaced


def test_an_overlay_without_entries_of_the_kind_is_fine(tmp_path: pathlib.Path) -> None:
    assert load("hardware", [str(tmp_path)]) == load("hardware")


def test_the_later_of_two_overlays_must_mean_it_too(tmp_path: pathlib.Path) -> None:
    first, second = write(tmp_path / "a", ENTRY), write(tmp_path / "b", {**ENTRY, "vf_stride": 2})
    assert "already defined" in refusal(first, second)
    second = write(tmp_path / "b", {**ENTRY, "vf_stride": 2, "replaces": "mine"})
    assert get("hardware", "mine", [first, second])["vf_stride"] == 2


def without(key: str) -> dict[str, t.Any]:
    return {name: value for name, value in ENTRY.items() if name != key}


@pytest.mark.parametrize(
    ("entry", "parts"),
    [
        (without("source"), ["'source' is a required property"]),
        (without("id"), ["'id' is a required property"]),
        ({**ENTRY, "colour": "gold"}, ["'colour' was unexpected"]),
        ({**ENTRY, 7: "gold"}, ["7", "unexpected"]),
        ({**ENTRY, "vf_stride": "4"}, ["vf_stride", "'4' is not of type 'integer'"]),
        ({**ENTRY, "vf_stride": 0}, ["vf_stride", "0 is less than the minimum of 1"]),
        ({**ENTRY, "pf_device_ids": ["15B3:1021"]}, ["pf_device_ids.0", "15B3:1021"]),
        ({**ENTRY, "slots": [{**ENTRY["slots"][0], "pci": "1:2"}]}, ["slots.0.pci", "1:2"]),
        ({**ENTRY, "verified": "guessed"}, ["verified", "guessed"]),
        ({**ENTRY, "id": "Mine!"}, ["id", "Mine!"]),
        ({**ENTRY, "replaces": "nobody"}, ["replaces", "'nobody'", "'mine'"]),
        ({**ENTRY, "replaces": "mine"}, ["replaces", "no hardware entry 'mine' to replace"]),
        ({"entries": ENTRY}, ["entries: a list is needed"]),
        ({"entries": [ENTRY, "spark"]}, ["entries.1", "a dictionary is needed"]),
        ({"entries": [ENTRY, ENTRY]}, ["'mine' is already defined"]),
        ("", ["a dictionary is needed"]),
        ("- id: mine\n", ["a dictionary is needed"]),
        ("id: [\n", ["not valid YAML", "line 2"]),
        ("id: mine\nid: yours\n", ["the key 'id' is given twice", "line 2"]),
        ("slots:\n  - {port: 0, port: 1}\n", ["the key 'port' is given twice", "line 2"]),
        ("? [a]\n: b\n", ["['a'] cannot be a key"]),
        ("id: !!python/object/apply:os.getcwd []\n", ["not valid YAML", "python/object"]),
        ("id: \x07\n", ["not valid YAML"]),
    ],
    ids=str,
)
def test_a_bad_entry_is_one_error_that_names_file_and_key(
    tmp_path: pathlib.Path, entry: t.Any, parts: list[str]
) -> None:
    told = refusal(write(tmp_path, entry))
    for part in [str(tmp_path / "hardware" / "mine.yml"), *parts]:
        assert part in told
    assert "Traceback" not in told


def test_a_file_that_is_not_text_is_named(tmp_path: pathlib.Path) -> None:
    overlay = write(tmp_path, ENTRY)
    (tmp_path / "hardware" / "mine.yml").write_bytes(b"\xff\xfe\x00")
    assert "mine.yml" in refusal(overlay)


def test_an_overlay_that_is_not_there_is_refused(tmp_path: pathlib.Path) -> None:
    told = refusal(str(tmp_path / "nowhere"))
    assert "nowhere: there is no such folder" in told
    assert "dgxspark_knowledge_dirs" in told


def test_a_folder_that_nobody_would_read_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "hardwear").mkdir()
    told = refusal(str(tmp_path))
    assert "hardwear" in told
    assert "Kinds: " in told


def test_an_unknown_kind_and_an_unknown_entry_are_told_with_what_there_is() -> None:
    assert "hardware" in refusal(kind="hardwear")
    with pytest.raises(KnowledgeError, match=r"no hardware entry 'sparc'\. Known: lab, spark"):
        get("hardware", "sparc")


def test_without_jsonschema_there_is_one_error_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knowledge, "JSONSCHEMA_ERROR", ImportError("No module named 'jsonschema'"))
    with pytest.raises(KnowledgeError, match=r"pip install 'jsonschema>=4\.18'"):
        load("hardware")


def test_a_library_is_what_load_returns_with_the_same_refusals(tmp_path: pathlib.Path) -> None:
    entry = {key: value for key, value in get("engines", "vllm-0.17.0").items() if key != "origin"}
    mine, folder = {**entry, "id": "vllm-0.17.0-mine", "version": "0.17.0-mine"}, tmp_path / "engines"
    folder.mkdir()

    def write_table(**table: t.Any) -> None:
        (folder / "mine.yml").write_text(yaml.safe_dump(table), encoding="utf-8")

    write_table(**mine)
    library, overlays = knowledge.Library("engines", [str(tmp_path)]), [str(tmp_path)]
    assert dict(library) == load("engines", overlays) and library.own == {"vllm-0.17.0-mine"}
    write_table(**entry, replaces="vllm-0.17.0")
    library = knowledge.Library("engines", overlays)
    assert dict(library) == load("engines", overlays) and len(library) == len(load("engines"))
    for wrong in (entry, {**mine, "environment": [1]}, {**mine, "replaces": "vllm-0.17.0"}):
        write_table(**wrong)
        told = refusal(*overlays, kind="engines")
        with pytest.raises(KnowledgeError) as caught:
            knowledge.Library("engines", overlays)
        assert str(caught.value) == told and "mine.yml" in told


def test_a_table_of_the_owner_whose_id_is_not_its_engine_and_version_is_refused(tmp_path: pathlib.Path) -> None:
    entry = {key: value for key, value in get("engines", "vllm-0.17.0").items() if key != "origin"}
    (tmp_path / "engines").mkdir()
    (tmp_path / "engines" / "mine.yml").write_text(yaml.safe_dump({**entry, "id": "vllm-9"}), encoding="utf-8")
    with pytest.raises(KnowledgeError, match=r"mine.yml: id: 'vllm-9' is not .* Write id: vllm-0\.17\.0\."):
        load_tables([str(tmp_path)])
