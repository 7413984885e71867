"""Every file compiles on the Python that runs the tests, and every plugin imports: enough for what the older core does not test."""

from __future__ import annotations

import importlib
import pathlib
import subprocess
import sys

import pytest

from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT

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


# Imports each plugin of a list, each as the first of ours, in one process. It has the standard library, what argv names,
# and no other collection.
BARE = """
import importlib, runpy, sys
OWN = "ansible_collections.dgxspark.cluster."
allowed = [*sys.stdlib_module_names, OWN[:-1], *sys.argv[2].split(",")]

class Refused:
    def find_spec(self, name, path=None, target=None):
        if not any(f"{name}.".startswith(f"{each}.") or each.startswith(f"{name}.") for each in allowed):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

import ansible  # on a node it is an empty package
runpy.run_path(sys.argv[1])
sys.meta_path.insert(0, Refused())
for name in sys.stdin.read().split():
    for own in [each for each in sys.modules if each.startswith(OWN)]:
        del sys.modules[own]
    try:
        importlib.import_module(name)
    except Exception as exc:
        print(f"{name}: {exc!r}")
"""
NODE = ("module_utils", "modules")


@pytest.mark.more
@pytest.mark.parametrize(
    ("on_node", "allowed"), [(True, "ansible.module_utils"), (False, "ansible,jinja2,markupsafe,yaml")]
)
def test_a_plugin_is_imported_where_nothing_but_ansible_is_installed(on_node: bool, allowed: str) -> None:
    """A missing package is one sentence when it is needed: `ansible-doc` and Galaxy import plugins without it.

    ansible-test's `import` test checks the same, but imports Ansible again for each file (`make test-long`).
    """
    names = [
        ".".join(("ansible_collections.dgxspark.cluster", *path.with_suffix("").parts))
        for path in PLUGINS
        if (path.parts[1] in NODE) is on_node
    ]
    command = [sys.executable, "-c", BARE, str(ROOT / "tools" / "own_collection.py"), allowed]
    ran = subprocess.run(command, input=" ".join(names), check=False, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", ""), ran.stdout + ran.stderr
