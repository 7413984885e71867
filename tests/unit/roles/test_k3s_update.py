"""update.yml with K3s, on hosts that are namespaces, with tests/stand_ins/k3s: REAL K3S IS NOT RUN HERE."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator

import pytest
import yaml

from ansible_collections.dgxspark.cluster.tests.support.k3s_owner import Owner, Run
from ansible_collections.dgxspark.cluster.tests.unit.k3s_releases import NEW, NEWER, OLD, release
from ansible_collections.dgxspark.cluster.tests.unit.namespaces import Lan, needed
from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT

pytestmark = [needed(), pytest.mark.more]
SPARKS = ["spark1", "spark2", "spark3"]
BAD = """\
entries:
  - id: k3s-bad
    component: k3s
    versions: ">={release}"
    severity: error
    message: Its servers lose their nodes.
    remedy: Stay on the release before.
    source: [test]
    verified: reported
"""


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Owner]:
    """A server and two agents with the old release, and update.yml in place of the role's play."""
    folder = tmp_path_factory.mktemp("k3s-update")
    lan = Lan(folder / "lan")
    for number in (1, 2, 3):
        lan.host(f"spark{number}", f"192.0.2.1{number}")
    made = Owner(folder, lan)
    installed = made.run(limit=":".join(SPARKS))
    assert installed.code == 0, installed.output
    (folder / "play.yml").write_text(
        yaml.safe_dump([{"ansible.builtin.import_playbook": str(ROOT / "playbooks/update.yml")}]), "utf-8"
    )
    (folder / "dgx.yml").write_text(yaml.safe_dump({"dgx": {"hosts": dict.fromkeys(SPARKS)}}), "utf-8")
    yield made
    lan.close()


def update(owner: Owner, version: str, *arguments: str) -> Run:
    return owner.run(
        "-i", "dgx.yml", *arguments, limit=":".join(SPARKS), k3s_version=version, k3s_checksums={}, spark_update_k3s=True,
        spark_update_proof=[], spark_update_refresh=False, spark_update_kubernetes=False, dgxspark_fabric={"topology": "switch"},
    )  # fmt: skip


def releases(owner: Owner) -> dict[str, str]:
    return {name: node["status"]["nodeInfo"]["kubeletVersion"] for name, node in owner.nodes().items()}


def test_k3s_goes_to_one_node_after_the_other_servers_first(owner: Owner) -> None:
    shown = update(owner, NEW, "--check", "-e", "spark_update_canary=spark3")
    assert shown.code == 0, shown.output
    assert (
        f"first, alone: spark1 gets K3s {OLD} -> {NEW}" in shown.plain
        and "then, if spark1 is no worse: spark3" in shown.plain
    )
    assert set(releases(owner).values()) == {OLD} and not (owner.folder / "update").exists()
    made = update(owner, NEW)
    assert made.code == 0, made.output
    assert releases(owner) == dict.fromkeys(SPARKS, NEW)
    noted = json.loads((owner.folder / "update" / "node-spark2.json").read_text("utf-8"))
    assert noted["proven"] is True and noted["parts"] == {"k3s": {"k3s": OLD}}
    again = update(owner, NEW)
    assert again.code == 0 and set(again.changed.values()) == {0} and "Nothing is updated" in again.plain, again.output


def test_a_release_that_does_not_start_stops_at_the_first_which_goes_back_by_itself(owner: Owner) -> None:
    before = releases(owner)
    release(owner.releases, NEWER, broken="starting kubernetes: failed to find memory cgroup (v2)")
    failed = update(owner, NEWER)
    assert failed.code == 2 and "spark1 is worse, or its update failed" in failed.plain, failed.output
    assert f"The node is back on {before['spark1']}, which is running." in failed.plain
    assert releases(owner) == before and not (owner.folder / "update" / "node-spark3.json").read_text("utf-8").count(
        NEWER
    )


def test_an_older_and_a_known_bad_release_are_refused_before_anything_is_touched(
    owner: Owner, tmp_path: pathlib.Path
) -> None:
    before = releases(owner)
    older = update(owner, OLD)
    assert older.code == 2 and "downgrade" in older.plain
    (tmp_path / "versions").mkdir()
    (tmp_path / "versions/bad.yml").write_text(BAD.format(release=NEWER.partition("+")[0].lstrip("v")), "utf-8")
    bad = update(owner, NEWER, "-e", f"dgxspark_knowledge_dirs={tmp_path}")
    assert bad.code == 2 and "Its servers lose their nodes." in bad.plain, bad.output
    assert releases(owner) == before
