"""Texts in, one archive out: reproducible, bounded, nothing private in its file names either."""

from __future__ import annotations

import io
import os
import pathlib
import tarfile
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.support import archive, controller
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.support.archive import Piece
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.support.redact import Private, Redactor

PIECES = [Piece("kitchen/log.txt", "kitchen to 10.0.0.2\n"), Piece("cellar/log.txt", "10.0.0.2 is annabel's\n")]
PRIVATE = [Private("spark", "kitchen", "kitchen"), Private("spark", "cellar", "cellar"), Private("user", "annabel")]


def files(content: bytes) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        assert {(e.mode, e.uid, e.gid, e.uname, e.mtime) for e in tar.getmembers()} == {(0o600, 0, 0, "", 0)}
        return {e.name: tar.extractfile(e).read().decode() for e in tar.getmembers()}  # type: ignore[union-attr]


def test_the_same_texts_make_the_same_archive() -> None:
    made = archive.build("bug", PRIVATE, PIECES, {}, {"collection": "1"})
    assert made.content == archive.build("bug", PRIVATE, PIECES[::-1], {}, {"collection": "1"}).content
    assert files(made.content)["bug/spark-1/log.txt"] == "spark-1 to addr-1\n"
    assert made.replaced == {"spark": 3, "user": 1, "addr": 2}
    assert set(files(made.content)) == {f"bug/{name}" for name in made.files}


def test_where_something_known_would_be_left_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Redactor, "redact", lambda _self, text: text)
    with pytest.raises(CollectionError, match=r"would still contain names of the cluster's nodes.*nothing was written"):
        archive.build("bug", PRIVATE, PIECES, {}, {})


def test_a_text_is_bounded_from_a_whole_line_on() -> None:
    read = [{"item": {"name": "log"}, "stdout": "hf_abcdefghij0123456789 old\n" * 100 + "last"}]
    (piece,), why = archive.pieces_of("kitchen", {"read": read}, 100)
    assert why is None and len(piece.text) < 140
    assert piece.text.startswith("[cut: ") and piece.text.endswith(" old\nlast\n")
    assert all(line.startswith(("hf_", "[cut", "last")) for line in piece.text.splitlines())


@pytest.mark.parametrize(
    ("seen", "why"),
    [(None, "nothing was read"), ({}, "nothing was read"), ({"read": [], "error": "timed out"}, "timed out")],
)
def test_a_node_that_gave_nothing_is_said(seen: t.Any, why: str) -> None:
    pieces, said = archive.pieces_of("kitchen", seen, 100)
    assert not pieces and said is not None and why in said


def test_what_a_node_is_known_by() -> None:
    said = "host: gx10 gx10.hidden.example\nuser: annabel Annabel O\nserial: 12345678 Default\naddr: 5c:25:73:3c:12:34\ndomain: lan2\n"
    found = archive.identities("kitchen", {"identity": said})
    assert {(each.kind, each.text) for each in found} == {
        ("spark", "gx10"),
        ("domain", "hidden.example"),
        ("user", "annabel"),
        ("user", "Annabel"),
        ("serial", "12345678"),
        ("addr", "5c:25:73:3c:12:34"),
        ("domain", "lan2"),
    }
    assert {each.of for each in found if each.kind == "spark"} == {"kitchen"}


def test_secrets_of_variables_and_of_the_files_that_they_name(tmp_path: pathlib.Path) -> None:
    (tmp_path / "key").write_text("of the file\n", encoding="utf-8")
    variables = {
        "ansible_become_password": 12345678,
        "k8s_dgx_serving": {"environment": [{"HF_TOKEN": "of the list"}], "max_tokens": 4096},
        "k8s_dgx_api_key_file": "key",
        "another_key_file": "not/there",
        "use_token": True,
        "some_secret": "none",
        "ansible_user": "annabel",
        "ansible_host": "kitchen.hidden.example",
    }
    found = controller.of_host("kitchen", variables, True, tmp_path)
    assert {each.text for each in found if each.kind == "secret"} == {"12345678", "of the list", "of the file"}
    assert {each.text for each in found if each.kind != "secret"} == {"kitchen", "hidden.example", "annabel"}
    assert [key for key in variables if controller.tells(key, variables[key])] == [*variables]
    assert not [key for key in ("dgxspark_plan", "__seen", "hostvars") if controller.tells(key, {"token": "x"})]


def test_a_file_with_a_secret_that_cannot_be_read_ends_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object, **_more: object) -> str:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "key").write_text("x", encoding="utf-8")
    monkeypatch.setattr(pathlib.Path, "read_text", refuse)
    with pytest.raises(CollectionError, match=r"Permission denied.*could not be kept out"):
        controller.of_host("kitchen", {"api_key_file": "key"}, True, tmp_path)


def test_the_newest_report_of_each_kind(tmp_path: pathlib.Path) -> None:
    for age, name in enumerate(("fabric-1.json", "fabric-2.json", "doctor-1.json")):
        (tmp_path / name).write_text(f'"{name}"', encoding="utf-8")
        os.utime(tmp_path / name, (age, age))
    assert [piece.path for piece in controller.reports(tmp_path, 100)] == [
        "reports/fabric-2.json",
        "reports/doctor-1.json",
    ]
    assert "left out: 15 bytes" in controller.reports(tmp_path, 10)[0].text
    assert controller.reports(tmp_path / "none", 10) == []
