"""Every file is read by the Python that runs the tests, and every plugin imported: what else the older core need not be asked."""

from __future__ import annotations

import importlib
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLUGINS = sorted(path.relative_to(ROOT) for path in (ROOT / "plugins").rglob("*.py") if path.name != "__init__.py")
FOLDERS = ("lab", "plugins", "roles", "tests", "tools")


@pytest.mark.parametrize("path", PLUGINS, ids=str)
def test_a_plugin_is_imported(path: pathlib.Path) -> None:
    importlib.import_module(".".join(("ansible_collections.dgxspark.cluster", *path.with_suffix("").parts)))


def test_all_files_are_python_to_this_python() -> None:
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    assert len(found) > len(PLUGINS)
    for path in found:
        compile(path.read_text(encoding="utf-8"), str(path), "exec", dont_inherit=True)
