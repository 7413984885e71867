"""The fabric as a playbook calls it: the plan by its filter, differences and table by actions on the hosts' facts."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
import yaml
from ansible.errors import AnsibleConnectionFailure, AnsibleError, AnsibleFilterError
from ansible.plugins.action import ActionBase

from ansible_collections.dgxspark.cluster.plugins.action import roce_info
from ansible_collections.dgxspark.cluster.plugins.filter import fabric_plan
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import persist
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    CollectionError,
    FileState,
    Function,
    Netdev,
    Node,
    to_plain,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.changes import changes as differences
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.table import table
from ansible_collections.dgxspark.cluster.tests.unit.actions import play, run
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import names

ROLE = pathlib.Path(__file__).resolve().parents[4] / "roles" / "sriov_roce"
SETTINGS = {"topology": "switch", "vf_count": 2}

plan = fabric_plan.FilterModule().filters()["fabric_plan"]


def changes(planned: t.Any, node: t.Any, **arguments: t.Any) -> dict[str, t.Any]:
    """Return the action's result for the host; raise its failure."""
    variables = play({"spark1": {}}, dgxspark_plan={"hosts": {"spark1": planned}}, dgxspark_roce=node)
    made = run("fabric_changes", variables, **arguments)
    if made.get("failed"):
        raise AnsibleError(made["msg"])
    return made


def bare(**more: t.Any) -> dict[str, t.Any]:
    """Return a node of the shipped class as it comes out of its box."""
    functions = tuple(
        Function(pci=pci, totalvfs=8, numvfs=0, netdev=Netdev(name, mac=f"48:b0:2d:00:00:0{number}", mtu=1500))
        for number, (name, pci) in enumerate([("enp1s0f0np0", "0000:01:00.0"), ("enP2p1s0f0np0", "0002:01:00.0")])
    )
    plain: dict[str, t.Any] = to_plain(Node(functions=functions, **more))
    return plain


def test_a_plan_is_json_and_has_every_host() -> None:
    made = plan(names(3), SETTINGS, {"spark2": {"dgxspark_roce": bare()}})
    assert json.loads(json.dumps(made)) == made
    assert [host["detected"] for host in made["hosts"].values()] == [False, True, False]


def test_a_refusal_is_ansibles_error_and_names_the_filter() -> None:
    with pytest.raises(AnsibleFilterError, match=r"dgxspark\.cluster\.fabric_plan: .*dgxspark_fabric\.mtu"):
        plan(names(2), {**SETTINGS, "mtu": "big"}, {})


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("spark1", SETTINGS, {}), "the hosts: a list of names is needed, not the text"),
        (([1, 2], SETTINGS, {}), "the hosts: a list of names"),
        ((["spark1"], SETTINGS, ["spark1"]), "hostvars: a dictionary is needed, not the list"),
        ((["spark1"], SETTINGS, {}, "dgxspark"), "knowledge_dirs: a list of names"),
        ((["spark1", "spark1"], SETTINGS, {}), "spark1"),
    ],
)
def test_arguments_of_a_wrong_shape_are_told(arguments: tuple[t.Any, ...], told: str) -> None:
    with pytest.raises(AnsibleFilterError) as caught:
        plan(*arguments)
    assert told in str(caught.value)


def test_the_table_is_aligned_and_marks_what_was_not_seen() -> None:
    lines = table(plan(names(2), SETTINGS, {"spark2": {"dgxspark_roce": bare()}}))
    assert lines[0] == "Fabric: switch, 2 hosts, 1 pair"
    assert "spark1 (index 1, from inventory alone)" in lines
    assert "spark2 (index 2)" in lines
    vf = next(line for line in lines if "10.100.8.2/24" in line)
    head = next(line for line in lines if "function" in line)
    assert vf.index("10.100.8.2/24") == head.index("IPv4")
    assert vf.index("02:d6:00:02:01:00") == head.index("MAC")
    assert vf.split()[-1] == "?"
    assert not any("would change" in line for line in lines)
    assert max(map(len, lines)) < 120


def test_the_table_tells_changes_refusals_and_who_was_not_reached() -> None:
    made = plan(names(3), SETTINGS, {"spark2": {"dgxspark_roce": bare()}})
    would = {"spark2": [{"subject": "p0f0", "what": "VFs", "before": 0, "after": 2}], "spark3": []}
    against = {"spark2": [{"severity": "error", "subject": "p0f0v1", "message": "it is in use.", "remedy": "Stop it."}]}
    lines = table(made, would, against)
    blocks = "\n".join(lines).split("\n\n")
    assert "would change: not known, the host was not reached" in blocks[1]
    assert "p0f0: VFs 0 -> 2" in blocks[2]
    assert "error: p0f0v1: it is in use. Stop it." in blocks[2]
    assert "would change: nothing" in blocks[3]


def test_the_table_of_no_plan_is_refused() -> None:
    with pytest.raises(CollectionError, match="fabric_plan"):
        table({})


def test_the_table_is_made_of_what_each_host_registered() -> None:
    made = plan(names(3), SETTINGS, {"spark2": {"dgxspark_roce": bare()}})
    change = {"subject": "p0f0", "what": "VFs", "before": 0, "after": 2}
    hostvars = {
        "spark1": {"one": {"skipped": True}},
        "spark2": {"one": {"changes": [change], "findings": []}, "other": {"changes": [change], "findings": []}},
        "spark3": {},
    }
    shown = run("fabric_table", play(hostvars, dgxspark_plan=made), registers=["one", "other"])
    assert shown["changes"] == {"spark2": [change, change]}
    assert shown["findings"] == {"spark2": []}
    assert shown["table"] == table(made, shown["changes"], shown["findings"])
    assert run("fabric_table", play({}, dgxspark_plan=made))["table"] == table(made)


def two() -> dict[str, t.Any]:
    read = {name: {"dgxspark_roce": bare()} for name in names(2)}
    for function in read["spark2"]["dgxspark_roce"]["functions"]:
        function["netdev"]["mac"] = function["netdev"]["mac"].replace("48:b0", "4c:bb")
    return read


def ended(hostvars: dict[str, t.Any], made: t.Any, *, check: bool = False, **more: t.Any) -> str:
    here = {"ansible_play_hosts": list(hostvars), "ansible_run_tags": ["fabric"], **more}
    return "\n".join(
        run("fabric_table", play(hostvars, dgxspark_plan=made, **here), check=check, registers=["one"])["ended"]
    )


def test_a_run_of_the_fabric_ends_with_what_is_there_and_what_comes_next() -> None:
    read = two()
    made = plan(names(2), SETTINGS, read)
    said = ended(read, made)
    assert said.splitlines()[0] == "Fabric: switch, 2 hosts, 1 pair"
    assert "As planned: spark1, spark2, 4 VFs on each" in said
    assert "ansible-playbook dgxspark.cluster.verify -i inventory" in said
    # verify's own answer follows in the same run
    assert "Next" not in ended(read, made, ansible_run_tags=["all"]) and "Next" not in ended(
        read, made, ansible_run_tags=["fabric", "verify"]
    )


def test_a_run_that_lost_a_host_does_not_call_the_fabric_whole() -> None:
    read = two()
    said = ended(read, plan(names(2), SETTINGS, read), ansible_play_hosts=["spark1"])
    assert "As planned: spark1, 4 VFs on each" in said and "Not set up: spark2. The reason is above" in said
    assert "verify" not in said


def test_in_check_mode_it_says_who_would_be_changed() -> None:
    change = {"subject": "p0f0", "what": "VFs", "before": 0, "after": 2}
    read = {name: {**host, "one": {"changes": [], "findings": []}} for name, host in two().items()}
    read["spark2"]["one"] = {"changes": [change], "findings": []}
    said = ended(read, plan(names(2), SETTINGS, read), check=True)
    assert "Check mode: nothing was changed. spark2 would be" in said and "As planned: spark1" in said
    assert "site -i inventory --tags fabric" in said
    read["spark2"]["one"] = read["spark1"]["one"]
    said = ended(read, plan(names(2), SETTINGS, read), check=True)
    assert "Check mode" not in said and "As planned: spark1, spark2" in said


def test_a_single_spark_is_told_what_it_has_that_nothing_is_cabled_and_what_comes_next() -> None:
    made = plan(["spark1"], {"topology": "single"}, {"spark1": {"dgxspark_roce": bare()}})
    said = ended({"spark1": {"dgxspark_roce": bare()}}, made)
    assert "there is no fabric to build" in said
    assert "enp1s0f0np0, enP2p1s0f0np0: none has a cable, and none is needed" in said
    assert "ansible-playbook dgxspark.cluster.models -e sparks=1" in said
    assert "ansible-playbook dgxspark.cluster.site -i inventory" in said and "verify" not in said


def test_a_single_spark_with_a_cable_or_vfs_of_before_is_told_so() -> None:
    made = plan(["spark1"], {"topology": "single"}, {"spark1": {"dgxspark_roce": bare()}})
    node = bare()
    node["functions"][0]["netdev"]["carrier"] = True
    node["functions"][1]["numvfs"] = 4
    said = ended({"spark1": {"dgxspark_roce": node}}, made)
    assert "enp1s0f0np0 has a link" in said and "dgxspark.cluster.discover" in said
    assert "4 VFs of a fabric that was there before" in said and "dgxspark.cluster.teardown" in said
    node["functions"] = []
    assert "no fabric port was found" in ended({"spark1": {"dgxspark_roce": node}}, made)


def planned(hostvars: dict[str, t.Any], **settings: t.Any) -> dict[str, t.Any]:
    return run("fabric_plan", play(hostvars, dgxspark_fabric=SETTINGS | settings, groups={"dgx": list(hostvars)}))


def test_the_plan_has_the_names_of_the_nodes_that_were_read() -> None:
    made = planned({"spark1": {}, "spark2": {"dgxspark_roce": bare()}})
    assert made["plan"] == plan(names(2), SETTINGS, {"spark2": {"dgxspark_roce": bare()}})
    assert made["fault"] is None


def test_a_node_that_contradicts_the_inventory_is_named_and_the_inventory_alone_is_planned() -> None:
    """What verify and doctor report on."""
    for facts in (to_plain(Node()), {"functions": "none"}):
        made = planned({"spark1": {"dgxspark_roce": facts}, "spark2": {"dgxspark_roce": bare()}})
        assert "spark1" in made["fault"], made
        assert made["plan"] == plan(names(2), SETTINGS, {})


def test_an_inventory_that_cannot_be_planned_is_a_failure_whatever_the_nodes_show() -> None:
    made = planned({"spark1": {"dgxspark_roce": {"functions": "none"}}}, mtu=1)
    assert made["failed"]
    assert made["msg"].startswith("dgxspark.cluster.fabric_plan: ") and "dgxspark_fabric.mtu" in made["msg"]


def test_a_host_that_was_not_read_has_no_difference() -> None:
    made = run("fabric_changes", play({"spark1": {}}, dgxspark_plan=plan(["spark1"], SETTINGS, {})))
    assert made["msg"].startswith("dgxspark.cluster.fabric_changes: spark1 has not been read")


def test_a_bare_node_would_get_vfs_files_and_addresses() -> None:
    planned = plan(["spark1"], SETTINGS, {"spark1": {"dgxspark_roce": bare()}})["hosts"]["spark1"]
    found = [(change["subject"], change["what"]) for change in changes(planned, bare())["changes"]]
    assert ("p0f0", "VFs") in found
    assert ("p0f1", "VFs") in found
    assert (persist.CONFIG, "file") in found
    assert any("netplan" in subject for subject, _what in found)


def test_each_part_can_be_asked_for_alone() -> None:
    planned = plan(["spark1"], SETTINGS, {"spark1": {"dgxspark_roce": bare()}})["hosts"]["spark1"]
    sriov = changes(planned, bare(), parts=["sriov"])["changes"]
    netplan = changes(planned, bare(), parts=["netplan"], path="/etc/netplan/90-dgxspark-fabric.yaml")["changes"]
    assert sriov
    assert netplan[0]["subject"] == "/etc/netplan/90-dgxspark-fabric.yaml"
    assert changes(planned, bare())["changes"] == sriov + netplan
    assert not any("netplan" in change["subject"] for change in sriov)


def test_a_file_that_is_as_planned_is_no_change() -> None:
    planned = plan(["spark1"], SETTINGS, {"spark1": {"dgxspark_roce": bare()}})["hosts"]["spark1"]
    wrong = bare(files=(FileState(persist.CONFIG, "0" * 64, "0644"),))
    assert any(change["subject"] == persist.CONFIG for change in changes(planned, wrong, parts=["sriov"])["changes"])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (({"trsut": True},), "Did you mean trust?"),
        (({"trust": "yes"},), "options.trust: 'yes' is not of type bool"),
        (({}, ["sriv"]), "Did you mean sriov?"),
    ],
)
def test_wrong_options_of_changes_are_told(arguments: tuple[t.Any, ...], told: str) -> None:
    planned = plan(["spark1"], SETTINGS, {})["hosts"]["spark1"]
    with pytest.raises(CollectionError) as caught:
        differences(planned, bare(), *arguments)
    assert told in str(caught.value)


def test_a_host_without_a_fabric_has_nothing_to_change() -> None:
    planned = plan(["spark1"], {"topology": "single"}, {})["hosts"]["spark1"]
    made = changes(planned, bare())
    assert (made["changes"], made["findings"], made["netplan"]["devices"]) == ([], [], [])


def test_what_the_module_would_refuse_is_a_finding() -> None:
    planned = plan(["spark1"], SETTINGS, {})["hosts"]["spark1"]
    told = changes(planned, to_plain(Node()), parts=["sriov"])
    assert {(finding["id"], finding["severity"]) for finding in told["findings"]} == {("sriov.missing", "error")}
    assert changes(planned, to_plain(Node()), parts=["netplan"])["findings"] == []


def test_a_wrong_shape_is_one_sentence_with_the_key() -> None:
    planned = plan(["spark1"], SETTINGS, {})["hosts"]["spark1"]
    with pytest.raises(
        AnsibleError, match=r"dgxspark\.cluster\.fabric_changes: .*functions\[0\].*unknown key 'colour'"
    ):
        changes(planned | {"functions": [planned["functions"][0] | {"colour": "red"}]}, bare())


def test_the_role_asks_for_the_files_that_are_compared() -> None:
    variables = yaml.safe_load((ROLE / "vars" / "main.yml").read_text(encoding="utf-8"))
    assert tuple(variables["__sriov_roce_files"]) == (*persist.PATHS, "{{ __sriov_roce_test_program }}")
    assert tuple(variables["__sriov_roce_units"]) == persist.UNITS


@pytest.mark.parametrize(
    ("action", "arguments"),
    [
        ("roce_info", {"device_ids": ["15b3:1021"]}),
        ("unit_files", {"name": "metrics", "state": "absent"}),
        ("node_health", {}),
    ],
    ids=["site.yml's first", "teardown.yml's first", "the doctor's second"],
)
@pytest.mark.parametrize("said", ["Missing sudo password", "Task failed: Incorrect sudo password"])
def test_a_sudo_that_asks_for_a_password_is_told_with_the_way_out(
    action: str, arguments: dict[str, t.Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asks(*_arguments: object, **_named: object) -> None:
        raise AnsibleError(said)

    monkeypatch.setattr(ControllerAction, "_execute_module", asks)
    made = run(action, play({"spark1": {}}), **arguments)
    assert made["failed"]
    for words in (f"dgxspark.cluster.{action}: ", " sudo password: ", "-K", "--become-password-file"):
        assert words in made["msg"]


FULL = "failed to transfer file to /root/.ansible/tmp/x: dd: error writing '/root/.ansible/tmp/x': No space left on device\n1+0 records in"
FOLDER = "Failed to create temporary directory. In some cases, you may have been able to authenticate and did not have permissions on …"


@pytest.mark.parametrize("action", ["roce_info", "netplan_vf"])
@pytest.mark.parametrize(
    ("said", "words"),
    [
        (AnsibleError(FULL), "the disk is full. Free space on it"),
        (AnsibleConnectionFailure(FULL), "the disk is full. Free space on it"),
        (AnsibleError("mkdir: cannot create directory: Read-only file system"), "its file system is read-only"),
        (AnsibleConnectionFailure(FOLDER), "its disk is full or read-only"),
    ],
)
def test_a_disk_that_takes_no_module_is_one_sentence_and_no_broken_connection(
    action: str, said: Exception, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """netplan_vf took the last one for a node that netplan has just cut off, and waited for minutes."""

    def refuses(*_arguments: object, **_named: object) -> None:
        raise said

    monkeypatch.setattr(ActionBase, "_execute_module", refuses)
    arguments = {
        "roce_info": {"device_ids": ["15b3:1021"]},
        "netplan_vf": {"path": "/etc/netplan/90-x.yaml", "state": "absent"},
    }
    if isinstance(said, AnsibleConnectionFailure):
        with pytest.raises(AnsibleConnectionFailure) as caught:
            run(action, play({"spark1": {}}), **arguments[action])
        told = str(caught.value)
    else:
        told = run(action, play({"spark1": {}}), **arguments[action])["msg"]
    assert words in told and "run again" in told and "dd:" not in told


def test_a_node_s_python_that_does_not_start_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def shim(action: roce_info.ActionModule, **_named: object) -> dict[str, t.Any]:
        action._used_interpreter = "/root/.pyenv/shims/python3.13"
        return {"failed": True, "msg": "No start of json char found", "module_stderr": "pyenv: no\n\nhelp", "rc": 127}

    monkeypatch.setattr(ActionBase, "_execute_module", shim)
    made = run("roce_info", play({"spark1": {}}), device_ids=["15b3:1021"])
    assert made["failed"]
    assert made["msg"].startswith(
        "The node's Python /root/.pyenv/shims/python3.13 does not start: pyenv: no. Name another"
    )


def test_an_exception_without_a_text_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ansible says "Task failed." of it, and no more."""

    def fails(*_arguments: object, **_named: object) -> None:
        raise StopIteration

    monkeypatch.setattr(roce_info.ActionModule, "_execute_module", fails)
    with pytest.raises(AnsibleError, match=r"StopIteration, a fault of this collection\..*-vvv"):
        run("roce_info", play({"spark1": {}}), device_ids=["15b3:1021"])


@pytest.mark.parametrize("raised", [AnsibleConnectionFailure("Invalid/incorrect password: no"), AnsibleError("other")])
def test_another_failure_of_a_connection_stays_what_it_is(
    raised: AnsibleError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_arguments: object, **_named: object) -> None:
        raise raised

    monkeypatch.setattr(roce_info.ActionModule, "_execute_module", fails)
    with pytest.raises(type(raised)) as told:
        run("roce_info", play({"spark1": {}}), device_ids=["15b3:1021"])
    assert told.value is raised
