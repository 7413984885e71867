"""The limit guard: on invented inventories by the function, on the shipped ones by the real command."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import textwrap
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.inventory_limit import all_hosts, check_limit
from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT

SPARKS = ("spark1", "spark2", "spark3", "spark4")


def inventory(spark: t.Sequence[str] | None, dgx: t.Sequence[str] = SPARKS) -> dict[str, list[str]]:
    groups = {"all": [*dict.fromkeys([*(spark or ()), "controller", *dgx])], "dgx": list(dgx)}
    return groups | ({"spark": list(spark)} if spark is not None else {})


GOOD = inventory(["controller", *SPARKS])
FOUR = inventory(SPARKS)
LAST = inventory([*SPARKS, "controller"])


def problems(limit: str, groups: dict[str, list[str]], reached: t.Sequence[str] = SPARKS) -> list[str]:
    return [str(finding) for finding in check_limit(limit, groups, reached, ["dgx"])]


@pytest.mark.parametrize(
    "limit",
    [
        *("", "spark", "dgx", "all", "spark1", "spark1,spark3", "spark1:spark3", "dgx:!spark3", "spark*"),
        *(
            "spark[1-4]",
            "spark[1:4]",
            "spark[2]",
            "spark[2:3]",
            "spark[1:]",
            "spark[1-4],controller",
            "all:&spark[1:4]",
        ),
        *("dgx[0:3]", "dgx[0]", "dgx[1:]", "~^spark[1-4]$", "@hosts.retry", "spark[-1]"),
    ],
)
def test_what_reaches_whom_it_names_passes(limit: str) -> None:
    assert problems(limit, GOOD) == []


@pytest.mark.parametrize(
    ("limit", "beyond", "instead"),
    [
        ("spark[1:4]", "spark3, spark4", "~^spark[1-2]$"),
        ("spark[1-3]", "spark3", "~^spark[1-2]$"),
        ("spark[2:3]", "spark3", "~^spark2$"),
    ],
)
def test_a_limit_beyond_the_group_says_so(limit: str, beyond: str, instead: str) -> None:
    [said] = problems(limit, inventory(["controller", *SPARKS[:2]], SPARKS[:2]), SPARKS[:2])
    assert f"the inventory has no {beyond}: it would reach only" in said
    assert f"-l '{instead}'" in said


def test_a_host_without_its_comma_is_said_to_be_one(tmp_path: pathlib.Path) -> None:
    with pytest.raises(CollectionError, match=r"-i 192\.0\.2\.11: there is no such file.* -i '192\.0\.2\.11,'"):
        all_hosts({"all": []}, sources=[str(tmp_path / "192.0.2.11")])
    for sources in ([], [str(tmp_path)], ["192.0.2.11,"]):
        with pytest.raises(CollectionError, match="The inventory has no hosts"):
            all_hosts({"all": []}, sources=sources)
    assert all_hosts({"all": ["spark1"]}, sources=["absent"]) == "all"


def test_a_file_that_ansible_could_not_read_is_named_before_the_advice(tmp_path: pathlib.Path) -> None:
    (tmp_path / "hosts.yml").write_text("all: {", encoding="utf-8")
    with pytest.raises(
        CollectionError, match=r"^-i hosts\.yml: if Ansible warns of it, above, .* The inventory has no hosts"
    ):
        all_hosts({"all": []}, sources=[str(tmp_path / "hosts.yml")])


def test_who_forgot_to_enter_the_folder_that_discover_wrote_is_told_so(tmp_path: pathlib.Path) -> None:
    with pytest.raises(
        CollectionError, match=r"no such .* here\. dgxspark\.cluster\.discover writes one into .* cd into that"
    ):
        all_hosts({"all": []}, sources=[str(tmp_path / "inventory")])
    (tmp_path / "my-cluster" / "inventory").mkdir(parents=True)
    with pytest.raises(CollectionError, match=r"There is one in my-cluster: type `cd my-cluster` first\.$"):
        all_hosts({"all": []}, sources=[str(tmp_path / "inventory")])


def test_a_playbook_that_needs_no_inventory_asks_for_what_it_needs_first() -> None:
    with pytest.raises(CollectionError, match=r"give the number of .* -e sparks=2, or an inventory with -i\.$"):
        all_hosts({"all": []}, unless="{{ sparks is defined }}")


def test_the_examples_that_are_offered_are_there() -> None:
    with pytest.raises(CollectionError) as told:
        all_hosts({"all": []})
    named = re.search(r"a copy of one of (\S+)\.$", str(told.value))
    assert named and (pathlib.Path(named[1]) / "direct").is_dir()


def test_where_addresses_suffice_they_are_what_is_asked_for() -> None:
    """discover is not told to give the folder that discover writes."""
    with pytest.raises(CollectionError, match=r"-i '192\.0\.2\.11,192\.0\.2\.12,'$") as told:
        all_hosts({"all": []}, addresses=True)
    assert "discover" not in str(told.value)


def test_without_an_inventory_no_file_is_blamed_that_nobody_named() -> None:
    with pytest.raises(CollectionError, match="Give one with -i"):
        all_hosts({"all": []}, sources=["/etc/ansible/hosts"])


@pytest.mark.parametrize("groups", [FOUR, LAST], ids=["four Sparks", "controller last"])
@pytest.mark.parametrize(
    ("limit", "names"),
    [
        ("spark[1-4]", "~^spark[1-4]$"),
        ("spark[1:4]", "~^spark[1-4]$"),
        ("spark[2:3]", "~^spark[2-3]$"),
        ("spark[1]", "~^spark1$"),
        ("spark[2:]", "~^spark[2-4]$"),
        ("spark1:spark[2:3]", "~^spark[2-3]$"),
        ("controller,spark[2-3]", "~^spark[2-3]$"),
        ("all:!spark[1:2]", "~^spark[1-2]$"),
    ],
)
def test_positions_that_are_other_names_are_refused_with_the_command(
    groups: dict[str, list[str]], limit: str, names: str
) -> None:
    (told,) = problems(limit, groups)
    assert "counted from 0" in told
    assert f"-l '{names}'" in told


def test_the_refusal_names_both_what_is_reached_and_what_was_meant() -> None:
    (told,) = problems("spark[1-2]", FOUR)
    assert "counted from 0: spark2, spark3" in told
    assert "looks like spark1, spark2" in told


def test_a_group_that_is_not_there_is_named() -> None:
    (told,) = problems("spark[1-4]", inventory(None), reached=[])
    assert "does not have: no hosts" in told


def test_names_with_leading_zeros_are_read_as_such() -> None:
    dgx = ["node08", "node09", "node10"]
    groups = {"all": dgx, "node": dgx, "dgx": dgx}
    (told,) = problems("node[08:10]", groups, reached=["node08"])
    assert "looks like node08, node09, node10" in told
    assert "-l '~^node(08|09|10)$'" in told


def test_many_names_make_a_command_that_means_just_them() -> None:
    dgx = [f"spark{number}" for number in range(1, 13)]
    (told,) = problems("spark[9-12]", inventory(dgx, dgx), dgx)
    assert "-l '~^spark(9|10|11|12)$'" in told


def test_a_limit_that_leaves_nobody_is_refused_with_an_example() -> None:
    (told,) = problems("controller", GOOD, reached=["controller"])
    assert "--limit controller" in told
    assert "no host of the group dgx" in told
    assert "-l '~^spark1$'" in told


def test_one_of_several_groups_is_enough() -> None:
    groups = {**GOOD, "k3s_server": ["controller"]}
    assert check_limit("controller", groups, ["controller"], ["dgx", "k3s_server"]) == []


def test_an_inventory_without_the_group_is_told_where_to_put_the_sparks() -> None:
    (told,) = [str(f) for f in check_limit("", {"all": ["a"]}, ["a"], ["dgx"])]
    assert "no host is in the group dgx" in told
    assert "inventories/example/hosts.yml" in told


# --- the real command -----------------------------------------------------------------------------------------------------

# Nothing here connects: the guard asserts on the controller, and so does the second play.
PLAY = """
- name: Guard
  ansible.builtin.import_playbook: dgxspark.cluster.guard
- name: Say who is reached
  hosts: dgx
  gather_facts: false
  tasks:
    - name: Say it
      ansible.builtin.debug:
        msg: "reached={{ ansible_play_hosts_all | join('+') }}."
      run_once: true
"""


def run(folder: pathlib.Path, source: pathlib.Path | str, limit: str | None) -> tuple[int, str]:
    play = folder / "play.yml"
    play.write_text(PLAY, encoding="utf-8")
    if isinstance(source, str):
        place = folder / "hosts.yml"
        place.write_text(textwrap.dedent(source), encoding="utf-8")
        source = place
    collections = next(p for p in sys.path if (pathlib.Path(p) / "ansible_collections/dgxspark/cluster").is_dir())
    done = subprocess.run(
        [
            pathlib.Path(sys.executable).parent / "ansible-playbook",
            play,
            "-i",
            source,
            *(["-l", limit] if limit else []),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": collections, "ANSIBLE_NOCOLOR": "1"},
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize("shipped", ["example", "lab"])
@pytest.mark.parametrize("limit", ["spark[1-4]", "spark[1:4]", "~^spark[1-4]$", None])
def test_the_shipped_inventories_reach_exactly_the_four_sparks(
    tmp_path: pathlib.Path, shipped: str, limit: str | None
) -> None:
    code, output = run(tmp_path, ROOT / "inventories" / shipped, limit)
    assert code == 0, output
    assert "reached=spark1+spark2+spark3+spark4." in output


def test_a_single_number_is_the_sparks_number(tmp_path: pathlib.Path) -> None:
    code, output = run(tmp_path, ROOT / "inventories" / "example", "spark[2]")
    assert code == 0, output
    assert "reached=spark2." in output


FOUR_SPARKS = """
    spark:
      children:
        dgx:
          hosts: {spark1: , spark2: , spark3: , spark4: }
"""
CONTROLLER_LAST = """
    spark:
      children:
        dgx:
          hosts: {spark1: , spark2: , spark3: , spark4: }
        spark_controller:
          hosts: {controller: {ansible_connection: local}}
"""
NO_SPARK = """
    spark:
      hosts: {controller: , machine1: }
"""


@pytest.mark.more
@pytest.mark.parametrize("source", [FOUR_SPARKS, CONTROLLER_LAST], ids=["four Sparks", "controller last"])
def test_a_group_in_another_order_is_refused_and_the_command_it_names_works(
    tmp_path: pathlib.Path, source: str
) -> None:
    code, output = run(tmp_path, source, "spark[1-4]")
    assert code != 0
    assert "reached=" not in output
    assert "-l '~^spark[1-4]$'" in output
    code, output = run(tmp_path, source, "~^spark[1-4]$")
    assert code == 0, output
    assert "reached=spark1+spark2+spark3+spark4." in output


def test_a_limit_without_a_spark_is_refused(tmp_path: pathlib.Path) -> None:
    code, output = run(tmp_path, ROOT / "inventories" / "example", "controller")
    assert code != 0
    assert "it leaves no host of the group dgx" in output


def test_an_inventory_without_the_group_is_refused(tmp_path: pathlib.Path) -> None:
    code, output = run(tmp_path, NO_SPARK, None)
    assert code != 0
    assert "no host is in the group dgx" in output
