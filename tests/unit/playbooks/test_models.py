"""models.yml as a new owner runs it: no Spark, no inventory."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.dgxspark.cluster.tests.unit.owner import NO_ANSIBLE, ROOT, Owner, can_run

pytestmark = pytest.mark.skipif(not can_run(), reason=NO_ANSIBLE)


@pytest.mark.older_core
def test_what_sparks_can_run_is_listed_without_any(tmp_path: pathlib.Path) -> None:
    owner = Owner(tmp_path)
    typed = ("-e", "sparks=1", "-e", "sort=speed", "-e", "dgxspark_models_file=models.html", "-e", "nccl_of_mine=1")
    done = owner.typed(str(ROOT / "playbooks" / "models.yml"), *typed)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " configurations fit 1 Spark: " in done.stdout and "Sorted by speed" in done.stdout
    assert "What 1 Spark can run" in (tmp_path / "models.html").read_text(encoding="utf-8")
    # Another prefix than nccl_ would have ended the run before anything was planned.
    assert "nccl_of_mine (-e): no playbook or role" in " ".join((done.stdout + done.stderr).split())
