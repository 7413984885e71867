"""The lookup, by the real command: the owner's folder beside the inventory, one by variable, and errors."""

from __future__ import annotations

import ast
import json
import os
import pathlib
import subprocess
import sys

import pytest
import yaml

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge


def ask(folder: pathlib.Path, expression: str, *arguments: str) -> tuple[int, str]:
    (folder / "hosts.yml").write_text("all: {hosts: {here: {ansible_connection: local}}}\n", encoding="utf-8")
    collections = next(p for p in sys.path if (pathlib.Path(p) / "ansible_collections/dgxspark/cluster").is_dir())
    message = json.dumps({"msg": "{{ " + expression + " }}"})
    ansible = pathlib.Path(sys.executable).parent / "ansible"
    done = subprocess.run(
        [ansible, "here", "-i", folder / "hosts.yml", "-m", "debug", "-a", message, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": collections,
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
        },
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def own_class(folder: pathlib.Path) -> None:
    entry = {key: value for key, value in knowledge.get("hardware", "spark").items() if key != "origin"}
    (folder / "hardware").mkdir(parents=True)
    text = yaml.safe_dump({**entry, "id": "mine", "vf_stride": 3})
    (folder / "hardware" / "mine.yml").write_text(text, encoding="utf-8")


def test_a_shipped_entry(tmp_path: pathlib.Path) -> None:
    code, output = ask(tmp_path, "lookup('dgxspark.cluster.knowledge', 'hardware', 'spark').pf_device_ids[0]")
    assert code == 0, output
    assert '"msg": "15b3:1021"' in output


@pytest.mark.more
def test_the_owners_folder_beside_the_inventory(tmp_path: pathlib.Path) -> None:
    own_class(tmp_path / "dgxspark")
    code, output = ask(tmp_path, "lookup('dgxspark.cluster.knowledge', 'hardware').mine.vf_stride")
    assert code == 0, output
    assert '"msg": 3' in output


@pytest.mark.more
def test_a_folder_by_variable(tmp_path: pathlib.Path) -> None:
    own_class(tmp_path / "elsewhere")
    expression = "lookup('dgxspark.cluster.knowledge', 'hardware', 'mine').vf_stride"
    code, output = ask(tmp_path, expression)
    assert code != 0
    assert "There is no hardware entry 'mine'. Known: lab, spark." in output
    code, output = ask(
        tmp_path, expression, "-e", json.dumps({"dgxspark_knowledge_dirs": [str(tmp_path / "elsewhere")]})
    )
    assert code == 0, output
    assert '"msg": 3' in output


def test_the_folders_themselves_are_the_same(tmp_path: pathlib.Path) -> None:
    code, output = ask(tmp_path, "lookup('dgxspark.cluster.knowledge_dirs')")
    assert code == 0, output
    assert '"msg": []' in output
    (tmp_path / "dgxspark").mkdir()
    code, output = ask(tmp_path, "lookup('dgxspark.cluster.knowledge_dirs')")
    assert f'"msg": [ "{tmp_path}/dgxspark" ]' in output
    code, output = ask(
        tmp_path,
        "lookup('dgxspark.cluster.knowledge_dirs')",
        *("-e", json.dumps({"dgxspark_knowledge_dirs": ["/elsewhere"]})),
    )
    assert '"msg": [ "/elsewhere" ]' in output


@pytest.mark.parametrize(
    ("terms", "told"), [("'hardwear', 'spark'", "no knowledge of kind 'hardwear'"), ("", "a kind")]
)
def test_wrong_terms_are_told(tmp_path: pathlib.Path, terms: str, told: str) -> None:
    code, output = ask(tmp_path, f"lookup('dgxspark.cluster.knowledge'{terms and ', '}{terms})")
    assert code != 0
    assert told in output
    assert "Traceback" not in output


def test_no_lookup_hands_on_what_caused_its_error() -> None:
    """Ansible prints each cause after the error, whose text has it already."""
    folder = pathlib.Path(str(knowledge.__file__)).parents[1] / "lookup"
    raised = [node for path in folder.glob("*.py") for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    causes = [node.cause for node in raised if isinstance(node, ast.Raise) and node.cause]
    assert causes and all(isinstance(cause, ast.Constant) and cause.value is None for cause in causes)
