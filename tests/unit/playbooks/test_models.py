"""models.yml as a new owner runs it: no Spark, no inventory."""

from __future__ import annotations

import pathlib
import re
import shutil

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.discover.folder import CONFIG_TEXT
from ansible_collections.dgxspark.cluster.tests.unit.owner import NO_ANSIBLE, ROOT, Owner, can_run

pytestmark = pytest.mark.skipif(not can_run(), reason=NO_ANSIBLE)


@pytest.mark.more
@pytest.mark.older_core
def test_what_sparks_can_run_is_listed_without_any(tmp_path: pathlib.Path) -> None:
    owner = Owner(tmp_path)
    typed = ("-e", "sparks=1", "-e", "sort=speed", "-e", "dgxspark_models_file=models.html", "-e", "nccl_of_mine=1")
    (tmp_path / "ansible.cfg").write_text(CONFIG_TEXT, encoding="utf-8")  # what discover writes
    (tmp_path / "inventory").mkdir()
    done = owner.typed(str(ROOT / "playbooks" / "models.yml"), *typed)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " configurations fit 1 Spark: " in done.stdout and "Sorted by speed" in done.stdout
    # The answer, and nothing of Ansible's frame: what is not the answer is short.
    assert "TASK [" not in done.stdout and "RECAP" not in done.stdout and "ok: [" not in done.stdout
    assert re.search(r"(?m)^Done in \d+ s: 1 change\.$", done.stdout)
    around = done.stdout[: done.stdout.index(" configurations fit")].splitlines()
    assert len(around) < 8, around
    assert "What 1 Spark can run" in (tmp_path / "models.html").read_text(encoding="utf-8")
    # Another prefix than nccl_ would have ended the run before anything was planned.
    assert "nccl_of_mine (-e): no playbook or role" in " ".join((done.stdout + done.stderr).split())


@pytest.mark.more
def test_before_there_is_a_cluster_an_owner_hears_what_can_be_asked(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = Owner(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    shutil.copytree(ROOT / "inventories" / "example", tmp_path / "inventory")
    nobody = ("-e", "ansible_host=127.0.0.1", "-e", "ansible_port=1")
    done = owner.typed(str(ROOT / "playbooks" / "models.yml"), "-i", "inventory", *nobody)
    assert done.returncode == 2, done.stdout + done.stderr
    said = " ".join((done.stdout + done.stderr).split())
    assert "There is no kubeconfig" in said and "without a cluster: -e sparks=4" in said
