"""What stays on a node: the same text for controller and node, and files that the node's own tools accept."""

from __future__ import annotations

import hashlib
import json
import pathlib
import shutil
import subprocess
import sys
import typing as t
import zipfile

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import persist
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import FileState, Node

DOCUMENT: dict[str, t.Any] = {
    "version": 1,
    "functions": [{"slot": "p0f0", "pci": "0000:01:00.0", "vf_count": 0, "vfs": []}],
}


def installed(files: persist.Files, **units: str) -> Node:
    states = [FileState(p, hashlib.sha256(c).hexdigest(), m) for p, (c, m) in files.items()]
    return Node(files=tuple(states), units={persist.UNIT: "enabled"} | units)


def test_the_installed_program_runs_alone_and_has_all_that_it_imports(tmp_path: pathlib.Path) -> None:
    content, mode = persist.managed_files(DOCUMENT, persist.program())[persist.SCRIPT]
    program = tmp_path / "fabric-restore"
    program.write_bytes(content)
    program.chmod(int(mode, 8))
    with zipfile.ZipFile(program) as archive:
        assert archive.namelist() == ["__main__.py", "document.py", "files.py", "locks.py"]
    for command in ([sys.executable, "-I", "-S", program], [program]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (2, "usage: fabric-restore boot | dev NAME\n")


def test_the_program_is_the_same_on_another_python() -> None:
    """The controller compares what a node's Python would write."""
    top = next(p for p in map(pathlib.Path, sys.path) if (p / "ansible_collections" / "dgxspark").exists())
    code = f"import sys, hashlib; sys.path.insert(0, {str(top)!r}); from {persist.__name__} import program; "
    code += "print(hashlib.sha256(program()).hexdigest())"
    for version in ("3.10", "3.11", "3.12", "3.13", "3.14"):
        python = shutil.which(f"python{version}")
        if python and not subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode:
            done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
            assert done.stdout.strip() == hashlib.sha256(persist.program()).hexdigest(), (version, done.stderr)


def test_ansible_s_own_loader_gives_the_same_program() -> None:
    """On the controller, Ansible's own loader loads collections; modules come out of a zip."""
    top = next(p for p in map(pathlib.Path, sys.path) if (p / "ansible_collections" / "dgxspark").exists())
    code = f"""
import hashlib
from ansible.utils.collection_loader._collection_finder import _AnsibleCollectionFinder
_AnsibleCollectionFinder(paths=[{str(top)!r}])._install()
from {persist.__name__} import program
print(hashlib.sha256(program()).hexdigest())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == hashlib.sha256(persist.program()).hexdigest(), done.stderr


def test_roce_info_is_asked_for_just_what_is_managed() -> None:
    assert set(persist.managed_files(DOCUMENT, b"")) == set(persist.PATHS)


def test_the_config_is_what_the_restorer_reads() -> None:
    content, _mode = persist.managed_files(DOCUMENT, b"")[persist.CONFIG]
    assert json.loads(content) == DOCUMENT


def test_an_installed_node_differs_in_nothing() -> None:
    files = persist.managed_files(DOCUMENT, b"x")
    assert persist.file_changes(installed(files), files) == []


def test_a_bare_node_lacks_every_file_and_the_unit() -> None:
    files = persist.managed_files(DOCUMENT, b"x")
    assert {change.subject for change in persist.file_changes(Node(), files)} == {*persist.PATHS, persist.UNIT}


@pytest.mark.parametrize("path", persist.PATHS)
def test_each_file_that_was_changed_by_hand_is_seen(path: str) -> None:
    files = persist.managed_files(DOCUMENT, b"x")
    by_hand = files | {path: (b"something else", files[path][1])}
    assert [(c.subject, c.what) for c in persist.file_changes(installed(by_hand), files)] == [(path, "file")]
    open_to_all = files | {path: (files[path][0], "0777")}
    assert [(c.subject, c.what) for c in persist.file_changes(installed(open_to_all), files)] == [(path, "mode")]


def test_a_disabled_unit_is_seen() -> None:
    files = persist.managed_files(DOCUMENT, b"x")
    node = installed(files, **{persist.UNIT: "disabled"})
    assert [(c.subject, c.before, c.after) for c in persist.file_changes(node, files)] == [
        (persist.UNIT, "disabled", "enabled")
    ]


def test_removal_names_what_is_there() -> None:
    files = persist.managed_files(DOCUMENT, b"x")
    assert {change.subject for change in persist.removal_changes(installed(files))} == {*persist.PATHS, persist.UNIT}
    assert persist.removal_changes(Node()) == []


def test_the_rule_speaks_of_our_functions_only() -> None:
    rule, _mode = persist.managed_files(DOCUMENT, b"")[persist.RULE]
    lines = [line for line in rule.decode().splitlines() if "dgxspark-fabric-vf@" in line]
    assert len(lines) == 2 and all("0000:01:00.0" in line for line in lines)
