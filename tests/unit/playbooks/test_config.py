"""The configuration beside a copied inventory: the answer alone, and Ansible's own output where it is asked for."""

from __future__ import annotations

import pathlib
import shutil

import pytest

from ansible_collections.dgxspark.cluster.tests.unit.owner import NO_ANSIBLE, ROOT, Owner, can_run

PLAY = """
- hosts: spark_controller
  gather_facts: false
  tasks:
    - name: Say it
      dgxspark.cluster.show: {lines: [the answer]}
"""

pytestmark = pytest.mark.skipif(not can_run(), reason=NO_ANSIBLE)


@pytest.mark.more
@pytest.mark.parametrize(
    ("callback", "options", "frame"),
    [("", (), ""), ("", ("-v",), "TASK [Say it]"), ("ansible.builtin.minimal", (), "controller | SUCCESS")],
)
def test_ansible_s_own_output_stays_at_hand(
    callback: str, options: tuple[str, ...], frame: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = Owner(tmp_path)
    shutil.copytree(ROOT / "inventories" / "direct", tmp_path / "inventory")
    (tmp_path / "inventory" / "dgxspark" / "model_profiles").mkdir(parents=True)
    (tmp_path / "inventory" / "dgxspark" / "model_profiles" / "mine.yml").write_text("id: mine\n", encoding="utf-8")
    shutil.copy(ROOT / "inventories" / "ansible.cfg", tmp_path)
    (tmp_path / "play.yml").write_text(PLAY, encoding="utf-8")
    if callback:
        monkeypatch.setenv("ANSIBLE_STDOUT_CALLBACK", callback)
    done = owner.typed("play.yml", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    assert ("the answer" in done.stdout) and frame in done.stdout
    assert ("RECAP" in done.stdout) is ("-v" in options)
