"""Missing Python packages are named together, with the command for the interpreter that runs Ansible."""

from __future__ import annotations

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import packages

WANTED = ["netaddr>=1.0", "jsonschema>=4.18"]


def test_all_that_is_missing_or_too_old_is_named_at_once() -> None:
    there = {"jsonschema": "4.10.3", "httpx": "0.28.1", "kubernetes": "31.0.0", "packaging": "24.1"}
    text = packages.problem(there.get)
    assert "\n" not in text
    assert "lacks Python packages: jmespath>=1.0, jsonschema>=4.18 (4.10.3 is installed), netaddr>=1.0. Install" in text
    assert text.endswith(" jmespath>=1.0 jsonschema>=4.18 netaddr>=1.0") or "'netaddr>=1.0'" in text
    assert packages.problem(lambda _name: "99") == ""


@pytest.mark.parametrize("version", ["4.18", "4.18.0", "4.18.1rc1", "5", "10.0", "2024.1"])
def test_a_version_that_is_new_enough_is_accepted(version: str) -> None:
    assert not packages.missing(["jsonschema>=4.18"], lambda _name: version)


@pytest.mark.parametrize(
    ("executable", "prefix", "own", "managed", "line"),
    [
        ("/home/me/dgxspark/bin/python", "/home/me/dgxspark", True, True, "/home/me/dgxspark/bin/python -m pip install 'netaddr>=1.0'"),
        ("/p/bin/python", "/home/me/.local/share/pipx/venvs/ansible-core", True, True, "pipx inject ansible-core 'netaddr>=1.0'"),
        ("/u/bin/python", "/home/me/.local/share/uv/tools/ansible-core", True, False, "uv pip install --python /u/bin/python 'netaddr>=1.0'"),
        ("/usr/bin/python3", "/usr", False, False, "/usr/bin/python3 -m pip install 'netaddr>=1.0'"),
    ],
)  # fmt: skip
def test_the_command_fits_the_environment(executable: str, prefix: str, own: bool, managed: bool, line: str) -> None:
    assert packages.command(["netaddr>=1.0"], executable, prefix, own=own, managed=managed) == line


def test_where_pip_refuses_an_environment_is_made() -> None:
    line = packages.command(["netaddr>=1.0"], "/usr/bin/python3", "/usr", own=False, managed=True)
    assert line.startswith(
        "python3 -m venv ~/dgxspark && ~/dgxspark/bin/pip install 'ansible-core>=2.19' 'netaddr>=1.0'"
    )
