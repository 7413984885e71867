"""The applier of start-up patches, on invented files: all of a file or nothing, twice is once, drift is refused."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.rank import patches
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.rank.patches import (
    Edit,
    Patch,
    PatchError,
    apply,
)

SCRIPT = pathlib.Path(patches.__file__)
SOURCE = """\
LIMITS = [
    10,
]


def limit(which):
    return LIMITS[which]
"""
RAISED = SOURCE.replace("    10,\n", "    10,\n    12,  # twelve too\n").replace(
    "return LIMITS[which]", "return LIMITS[which % len(LIMITS)]"
)
EDITS = (
    Edit("    10,\n]\n", "    10,\n    12,  # twelve too\n]\n", fixed=("ALL_LIMITS",)),
    Edit("return LIMITS[which]\n", "return LIMITS[which % len(LIMITS)]\n"),
)
ONE = Patch("raise-limits", "engine", ">=1,<2", "engine/core/limits.py", EDITS, moved=("engine/new/limits.py",))


def site(root: pathlib.Path, text: str = SOURCE, file: str = ONE.file) -> pathlib.Path:
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def plain(patch: Patch) -> dict[str, t.Any]:
    return {
        "id": patch.id,
        "package": {"name": patch.package, "versions": patch.versions},
        "file": patch.file,
        "moved": list(patch.moved),
        "edits": [{"expect": e.expect, "replace": e.replace, "fixed": list(e.fixed)} for e in patch.edits],
        "why": "the plan tells more than the applier needs",
    }


def test_all_edits_of_a_file_are_made(tmp_path: pathlib.Path) -> None:
    path = site(tmp_path)
    assert [(o.id, o.state, o.path) for o in apply([ONE], tmp_path)] == [("raise-limits", "applied", path)]
    assert path.read_text() == RAISED


def test_a_second_run_writes_nothing(tmp_path: pathlib.Path) -> None:
    path = site(tmp_path)
    apply([ONE], tmp_path)
    first = path.stat()
    assert [o.state for o in apply([ONE], tmp_path)] == ["applied before"]
    assert (path.read_text(), path.stat().st_ino, path.stat().st_mtime_ns) == (RAISED, first.st_ino, first.st_mtime_ns)


@pytest.mark.parametrize(
    "drifted",
    [
        SOURCE.replace("10,", "11,"),  # the first edit's code is another
        SOURCE.replace("[which]", "[ which ]"),  # the second's
        SOURCE + SOURCE,  # it occurs twice
        "",
    ],
    ids=["first", "second", "twice", "empty"],
)
def test_drift_is_refused_and_the_file_left(tmp_path: pathlib.Path, drifted: str) -> None:
    path = site(tmp_path, drifted)
    before = path.stat()
    with pytest.raises(PatchError, match=r"raise-limits.*limits\.py.*drifted.*>=1,<2.*Nothing was changed"):
        apply([ONE], tmp_path)
    assert (path.read_text(), path.stat().st_ino, path.stat().st_mtime_ns) == (
        drifted,
        before.st_ino,
        before.st_mtime_ns,
    )
    assert [p.name for p in path.parent.iterdir()] == ["limits.py"]


def test_a_half_patched_file_is_finished(tmp_path: pathlib.Path) -> None:
    path = site(tmp_path, SOURCE.replace("return LIMITS[which]", "return LIMITS[which % len(LIMITS)]"))
    assert [o.state for o in apply([ONE], tmp_path)] == ["applied"]
    assert path.read_text() == RAISED


def test_what_upstream_has_fixed_is_left(tmp_path: pathlib.Path) -> None:
    text = "ALL_LIMITS = range(99)\n"
    path = site(tmp_path, text)
    assert [o.state for o in apply([Patch("p", "engine", "<2", ONE.file, EDITS[:1])], tmp_path)] == ["not needed"]
    assert path.read_text() == text


# The same edits as an image's author made them: other comments, other line breaks, no trace of us.
FIRST_IN_IMAGE = SOURCE.replace("    10,\n]\n", "    10, 12,\n    # for newer machines\n]\n")
SECOND_IN_IMAGE = "    # wraps round\n\n    return LIMITS[which % len( LIMITS )]\n"


@pytest.mark.parametrize(
    "text",
    [
        FIRST_IN_IMAGE.replace("    return LIMITS[which]\n", SECOND_IN_IMAGE),
        RAISED.replace("  # twelve too", ""),
        RAISED.replace("twelve too", "by the image"),
        RAISED.replace("\n", "\r\n"),
    ],
    ids=["its own form", "no comment", "another comment", "its line ends"],
)
def test_an_edit_that_the_image_has_counts_as_done(tmp_path: pathlib.Path, text: str) -> None:
    path = site(tmp_path)
    path.write_bytes(text.encode())
    first = path.stat()
    assert [(o.state, o.path) for o in apply([ONE], tmp_path)] == [("applied before", path)]
    assert (path.read_bytes(), path.stat().st_ino) == (text.encode(), first.st_ino)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        (FIRST_IN_IMAGE, FIRST_IN_IMAGE.replace("[which]", "[which % len(LIMITS)]")),
        (
            SOURCE.replace("    return LIMITS[which]\n", SECOND_IN_IMAGE),
            RAISED.replace("    return LIMITS[which % len(LIMITS)]\n", SECOND_IN_IMAGE),
        ),
    ],
    ids=["first", "second"],
)
def test_of_a_patch_only_the_edits_that_are_missing_are_made(tmp_path: pathlib.Path, text: str, result: str) -> None:
    path = site(tmp_path, text)
    (outcome,) = apply([ONE], tmp_path)
    assert (outcome.state, sorted(outcome.edits)) == ("applied", ["applied", "applied before"])
    assert path.read_text() == result
    assert [o.state for o in apply([ONE], tmp_path)] == ["applied before"]


def test_one_edit_that_is_there_does_not_hide_that_another_has_drifted(tmp_path: pathlib.Path) -> None:
    text = FIRST_IN_IMAGE.replace("[which]", "[int(which)]")
    path = site(tmp_path, text)
    with pytest.raises(PatchError, match=r"edit 2 of 2: .*'return LIMITS\[which\]' ….*drifted"):
        apply([ONE], tmp_path)
    assert path.read_text() == text


@pytest.mark.parametrize(
    "text",
    [
        RAISED.replace("    return", "        return").replace(
            "which):\n", "which):\n    if which:\n"
        ),  # inside a condition
        RAISED.replace("len(LIMITS)]", "len(LIMITS)] + 1"),
    ],
    ids=["indented", "goes on"],
)
def test_what_only_looks_like_the_result_is_drift(tmp_path: pathlib.Path, text: str) -> None:
    edits = (Edit("def limit(which):\n    return LIMITS[which]\n", "def limit(which):\n    return LIMITS[which % len(LIMITS)]\n"),
             EDITS[1])  # fmt: skip
    path = site(tmp_path, text)
    with pytest.raises(PatchError, match="drifted"):
        apply([Patch("p", "engine", "<2", ONE.file, edits)], tmp_path)
    assert path.read_text() == text


def test_a_known_fix_counts_before_the_code_that_it_left_in_place(tmp_path: pathlib.Path) -> None:
    """A fix that adds a line after the code that we replace leaves our `expect` in place: do not apply it twice."""
    text = SOURCE.replace("    10,\n]\n", "    10,\n]\nLIMITS = [ *LIMITS , 12 ]  # more\n")
    path = site(tmp_path, text)
    edit = Edit("    10,\n]\n", EDITS[0].replace, fixed=("LIMITS = [*LIMITS,",))
    assert [o.state for o in apply([Patch("p", "engine", "<2", ONE.file, (edit,))], tmp_path)] == ["not needed"]
    assert path.read_text() == text


def test_code_that_has_moved_from_a_file_that_is_still_there(tmp_path: pathlib.Path) -> None:
    """The old file only re-exports; an edit whose code is still in it is made all the same."""
    path = site(tmp_path, "from engine.new.limits import *\n")
    with pytest.raises(PatchError, match="drifted"):
        apply([ONE], tmp_path)
    site(tmp_path, file="engine/new/limits.py")
    assert [o.state for o in apply([ONE], tmp_path)] == ["not needed"]
    half = "from engine.new.limits import LIMITS\n\n\ndef limit(which):\n    return LIMITS[which]\n"
    path.write_text(half, encoding="utf-8")
    (outcome,) = apply([ONE], tmp_path)
    assert (outcome.state, outcome.edits) == ("applied", ("not needed", "applied"))
    assert path.read_text() == half.replace("[which]", "[which % len(LIMITS)]")


def test_a_file_that_is_gone(tmp_path: pathlib.Path) -> None:
    """Missing is refused, unless the code is known to have moved."""
    with pytest.raises(PatchError, match="no such file"):
        apply([ONE], tmp_path)
    site(tmp_path, file="engine/new/limits.py")
    assert [(o.state, o.path) for o in apply([ONE], tmp_path)] == [("not needed", None)]


def test_nothing_at_all_is_written_where_one_patch_is_refused(tmp_path: pathlib.Path) -> None:
    good = site(tmp_path)
    other = Patch("other", "engine", "<2", "engine/other.py", (Edit("a = 1\n", "a = 2\n"),))
    third = Patch("third", "engine", "<2", "engine/third.py", (Edit("a = 1\n", "a = 2\n"),))
    site(tmp_path, "b = 1\n", other.file)
    with pytest.raises(PatchError) as refused:
        apply([ONE, other, third], tmp_path)
    assert good.read_text() == SOURCE
    # All problems are reported at once.
    assert "patch other:" in str(refused.value) and "patch third:" in str(refused.value)


def test_two_patches_of_one_file(tmp_path: pathlib.Path) -> None:
    first, second = (Patch(f"p{i}", "engine", "<2", ONE.file, (edit,)) for i, edit in enumerate(EDITS))
    path = site(tmp_path)
    assert [o.state for o in apply([first, second], tmp_path)] == ["applied", "applied"]
    assert path.read_text() == RAISED


def test_a_result_that_does_not_compile_is_refused(tmp_path: pathlib.Path) -> None:
    path = site(tmp_path)
    with pytest.raises(PatchError, match="does not compile"):
        apply([Patch("p", "engine", "<2", ONE.file, (Edit("def limit(which):\n", "def limit(which:\n"),))], tmp_path)
    assert path.read_text() == SOURCE


def test_mode_and_line_ends_are_kept_and_the_compiled_form_dropped(tmp_path: pathlib.Path) -> None:
    path = site(tmp_path)
    path.write_bytes(SOURCE.encode() + b"WINDOWS = 1\r\n")
    path.chmod(0o640)
    for name in ("limits.cpython-312.pyc", "limits.cpython-312.opt-1.pyc", "limits_other.cpython-312.pyc"):
        (path.parent / "__pycache__").mkdir(exist_ok=True)
        (path.parent / "__pycache__" / name).write_bytes(b"old")
    apply([ONE], tmp_path)
    assert path.read_bytes() == RAISED.encode() + b"WINDOWS = 1\r\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert [p.name for p in (path.parent / "__pycache__").iterdir()] == ["limits_other.cpython-312.pyc"]


def test_check_writes_nothing(tmp_path: pathlib.Path) -> None:
    path = site(tmp_path)
    assert [o.state for o in apply([ONE], tmp_path, check=True)] == ["applied"]
    assert path.read_text() == SOURCE


def test_a_folder_that_cannot_be_written(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = site(tmp_path)

    def refuse(*_a: object, **_k: object) -> t.NoReturn:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(patches.tempfile, "mkstemp", refuse)
    with pytest.raises(PatchError, match=r"limits\.py: cannot be written: .*Read-only.*left as it is"):
        apply([ONE], tmp_path)
    assert path.read_text() == SOURCE


def test_a_run_that_is_killed_while_writing_leaves_the_old_file(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed just before the new file takes the old one's place; the next run ends the work."""
    path = site(tmp_path)

    class Killed(BaseException):
        pass

    def kill(*_a: object) -> t.NoReturn:
        raise Killed

    with monkeypatch.context() as context:
        context.setattr(pathlib.Path, "replace", kill)
        with pytest.raises(Killed):
            apply([ONE], tmp_path)
    assert path.read_text() == SOURCE
    apply([ONE], tmp_path)
    assert path.read_text() == RAISED


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"file": "/etc/passwd"}, "file"),
        ({"file": "engine/../../x.py"}, "file"),
        ({"file": ""}, "file"),
        ({"edits": []}, "edits"),
        ({"edits": [{"expect": "a"}]}, "replace"),
        ({"package": "engine"}, "package"),
        ({"id": None}, "id"),
        ({"moved": ["../x"]}, "moved"),
    ],
)
def test_a_bad_list_is_refused_by_key(change: dict[str, t.Any], named: str) -> None:
    with pytest.raises(PatchError, match=named):
        patches.from_plain([plain(ONE) | change])
    assert patches.from_plain([plain(ONE)]) == [ONE]


def run(tmp_path: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the file alone, in a bare interpreter, as a container does."""
    environment = {"PATH": os.defpath, "PYTHONPATH": str(tmp_path / "site")}
    command = [sys.executable, "-S", str(SCRIPT), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path, env=environment)


def test_the_command(tmp_path: pathlib.Path) -> None:
    """It finds the file where Python would import it from, and never imports it."""
    path = site(tmp_path / "site", SOURCE)
    (path.parent.parent / "__init__.py").write_text("raise SystemExit('imported')\n", encoding="utf-8")
    listed = tmp_path / "patches.json"
    listed.write_text(json.dumps([plain(ONE)]), encoding="utf-8")
    said = run(tmp_path, "--check", str(listed))
    assert (said.returncode, said.stdout) == (0, f"patch raise-limits: would be applied: {path}\n"), said.stderr
    said = run(tmp_path, str(listed))
    assert (said.returncode, said.stdout, said.stderr) == (0, f"patch raise-limits: applied: {path}\n", "")
    assert path.read_text() == RAISED
    assert run(tmp_path, str(listed)).stdout == f"patch raise-limits: applied before: {path}\n"
    path.write_text(FIRST_IN_IMAGE, encoding="utf-8")
    said = run(tmp_path, str(listed))
    assert (
        said.stdout == f"patch raise-limits: applied: {path} (1 of its 2 edits; the others are there or not needed)\n"
    )
    path.write_text("drifted = 1\n", encoding="utf-8")
    said = run(tmp_path, str(listed))
    assert (said.returncode, said.stdout) == (1, "")
    assert "raise-limits" in said.stderr and "Traceback" not in said.stderr


def test_the_command_with_a_list_that_is_none(tmp_path: pathlib.Path) -> None:
    listed = tmp_path / "patches.json"
    for content in ("{", "{}", '[{"id": "p"}]', "[1]"):
        listed.write_text(content, encoding="utf-8")
        said = run(tmp_path, str(listed))
        assert said.returncode == 1 and "Traceback" not in said.stderr and "refused" in said.stderr, content
    listed.write_text("[]", encoding="utf-8")
    assert run(tmp_path, str(listed)).returncode == 0


LINES = st.lists(st.sampled_from(["a = 1\n", "b = 2\n", "c = 3\n", "a = 9  # p\n", "d = 4\n"]), max_size=8).map("".join)


@given(LINES)
def test_any_file_is_patched_wholly_or_left(text: str) -> None:
    """Whatever the file: refused without a new text, or a text on which the patch finds nothing more to do."""
    patch = Patch("p", "e", "", "e/f.py", (Edit("a = 1\n", "a = 9  # p\n"), Edit("b = 2\n", "b = 2\nb += 1\n")))
    try:
        new, _state = patches.edited(text, patch)
    except PatchError:
        return
    assert patches.edited(new, patch) == (new, "applied before")
    assert new.count("a = 9  # p\n") == 1 and "b = 2\nb += 1\n" in new
