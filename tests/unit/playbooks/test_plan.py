"""plan.yml and the guard as an owner runs them, with no node that answers."""

from __future__ import annotations

import json
import os
import pathlib
import shutil

import pytest

from ansible_collections.dgxspark.cluster.tests.support.playbooks import play, started
from ansible_collections.dgxspark.cluster.tests.unit.owner import NO_ANSIBLE, ROOT, can_run

pytestmark = pytest.mark.skipif(not can_run(), reason=NO_ANSIBLE)


@pytest.fixture
def example(tmp_path: pathlib.Path) -> pathlib.Path:
    shutil.copytree(ROOT / "inventories" / "example", tmp_path / "inventory")
    return tmp_path


@pytest.mark.older_core
@pytest.mark.parametrize("form", ["json", pytest.param("yaml", marks=pytest.mark.more)])
def test_the_tables_stand_as_they_are_in_either_format_of_results(example: pathlib.Path, form: str) -> None:
    """Neither quoted nor wrapped, and without a literal \\n."""
    code, output = play(
        example,
        "plan.yml",
        *("-i", "inventory", "-l", "spark[1:4]", "-e", "ansible_host=127.0.0.1", "-e", "ansible_port=1"),
        *("-e", "k8s_dgx_model_profile=gemma-4-31b-it"),
        ANSIBLE_CALLBACK_RESULT_FORMAT=form,
    )
    assert code == 0, output
    lines = output.splitlines()
    assert "Fabric: switch, 4 hosts, 6 pairs" in lines
    head = next(line for line in lines if line.startswith("  function  VF"))
    first = next(line for line in lines if "10.100.0.1/24" in line)
    assert first.index("10.100.0.1/24") == head.index("IPv4")
    assert "spark4 (index 4, from inventory alone)" in lines
    assert "rank 0    spark1" in lines
    assert any("NCCL's variables are left out for all ranks" in line for line in lines)
    assert "\\n" not in output


@pytest.mark.more
def test_a_relative_path_begins_where_the_owner_is_and_a_program_can_read_the_result(example: pathlib.Path) -> None:
    """Whatever PWD says: a script that starts the playbook in another directory passes on its shell's PWD."""
    done = started(
        example,
        "plan.yml",
        *("-i", "inventory", "-e", "ansible_host=127.0.0.1", "-e", "ansible_port=1", "--tags", "fabric"),
        *("-e", "dgxspark_plan_file=plan.json"),
        PWD="/",
        ANSIBLE_STDOUT_CALLBACK="ansible.posix.json",
        ANSIBLE_COLLECTIONS_PATH=f"{example / 'collections'}:{os.environ['ANSIBLE_COLLECTIONS_PATH']}",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((example / "plan.json").read_text())["topology"] == "switch"
    assert len(json.loads(done.stdout)["plays"]) > 1, "the table stands in the JSON"
    assert "Fabric: switch, 4 hosts, 6 pairs" in done.stderr.splitlines()
    assert not (ROOT / "playbooks/plan.json").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    ("playbook", "limit"),
    [("plan.yml", ()), ("site.yml", ("-l", "spark[1:4]")), ("verify.yml", ()), ("teardown.yml", ())],
)
def test_an_inventory_without_hosts_is_refused(tmp_path: pathlib.Path, playbook: str, limit: tuple[str, ...]) -> None:
    """With a limit, not even the implicit localhost is left for a play to report it on."""
    (tmp_path / "empty.yml").write_text("all: {children: {dgx: {}}}\n", encoding="utf-8")
    code, output = play(tmp_path, playbook, "-i", "empty.yml", *limit)
    assert code != 0
    assert "The inventory has no hosts, so there is nothing to work on. Give one with -i" in " ".join(output.split())


@pytest.mark.more
def test_the_syntax_can_be_checked_without_an_inventory(tmp_path: pathlib.Path) -> None:
    (tmp_path / "empty.yml").write_text("all:\n", encoding="utf-8")
    code, output = play(tmp_path, "site.yml", "-i", "empty.yml", "--syntax-check")
    assert code == 0, output
