"""The action weights_plan: the launch plan, the role's variables and the hosts' registered results in; who gets what from where out."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.tests.support.weights import GIB, REPO, A, has, nothing
from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs as inputs
from ansible_collections.dgxspark.cluster.tests.unit.actions import play, run
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import names

Plain = dict[str, t.Any]
ROLE: Plain = {
    "model_weights_revisions": {REPO: A},
    "model_weights_host": "",
    "model_weights_disk_reserve_gib": "20",
    "model_weights_copy_port": "47110",
    "model_weights_copy_patience": 60,
    "model_weights_copy_addresses": {},
    "model_weights_verify": "false",
}


def variables(hostvars: dict[str, Plain], **more: t.Any) -> Plain:
    launch = {"weights": [{"repo": REPO, "revision": None}], "ranks": [{"host": host} for host in names(2)]}
    return play(hostvars, model_weights_plan=launch, dgxspark_plan={"hosts": inputs.fabric(2)}, **{**ROLE, **more})


def test_repositories_are_named_before_anything_is_read() -> None:
    made = run("weights_plan", variables({"spark1": {}}))
    assert (made["wanted"], "repos" in made) == ([{"repo": REPO, "revision": A}], False)
    made = run("weights_plan", variables({"spark1": {}}, model_weights_revisions={REPO: "main"}))
    assert "is not a commit" in made["msg"]


def test_one_fetches_and_the_other_copies_where_there_is_room_for_the_image_as_well() -> None:
    hostvars = {host: {"seen": nothing(free_gib=130)} for host in names(2)}
    made = run("weights_plan", variables(hostvars), seen="seen")
    assert [(repo["holder"], repo["fetch"], repo["lacking"]) for repo in made["repos"]] == [
        ("spark1", True, ["spark2"])
    ]
    assert made["problems"] == []  # nobody knows how large it is
    answer = {"item": {"repo": REPO}, "prospect": {"total": 100 * GIB, "missing": 100 * GIB}}
    hostvars["spark1"]["asked"] = {"results": [{"skipped": True}, answer]}
    made = run("weights_plan", variables(hostvars), seen="seen", asked="asked")
    assert made["problems"] == []
    made = run("weights_plan", variables(hostvars), seen="seen", asked="asked", image_gib=20)
    assert [problem.split(":")[0] for problem in made["problems"]] == ["spark1", "spark2"]


def test_a_host_that_has_it_is_copied_from_and_one_that_was_not_read_is_named() -> None:
    hostvars = {"spark1": {"seen": nothing()}, "spark2": {"seen": has()}}
    made = run("weights_plan", variables(hostvars), seen="seen")
    assert [(repo["holder"], repo["fetch"], repo["lacking"]) for repo in made["repos"]] == [
        ("spark2", False, ["spark1"])
    ]
    made = run("weights_plan", variables({"spark1": {"seen": has()}, "spark2": {}}), seen="seen")
    assert made["msg"].startswith("dgxspark.cluster.weights_plan: spark2: the weights there were not read.")
