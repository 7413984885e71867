"""Firmware in an update: which device gets what, what is refused before anything is touched, and what is said of the way back."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.firmware import Device, Firmware, Release
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import update, update_firmware
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.update import Begun, Machine

EC, SOC = "aaaaaaaa-0000-5000-8000-000000000001", "bbbbbbbb-0000-5000-8000-000000000002"
BAD = {
    "id": "ec-2-0", "component": "device_firmware", "device": "Embedded*", "versions": "==2.0", "severity": "error",
    "message": "EC 2.0 turns the fans off.", "remedy": "Use 1.9.", "source": ["test"], "verified": "reported",
}  # fmt: skip


def device(
    version: str = "1.0", *offers: str, guid: str = EC, name: str = "Embedded Controller", **more: t.Any
) -> Device:
    releases = tuple(Release(each, newer=each > version, older=each < version) for each in sorted(offers, reverse=True))
    return Device("d" * 40, (guid,), name, version, **{"releases": releases, **more})


def sparks(*devices: Device) -> dict[str, Firmware]:
    return {f"spark{number}": Firmware((each,)) for number, each in enumerate(devices, 1)}


def plan(machines: dict[str, Firmware], stated: dict[str, str], **more: t.Any) -> update.Part:
    return update_firmware.plan(machines, stated, more.pop("known_bad", []), more.pop("begun", {}), **more)


def whole(machines: dict[str, Firmware], stated: dict[str, str], **more: t.Any) -> update.Update:
    """The update of nothing but firmware."""
    part = plan(machines, stated, **more)
    nodes = {host: Machine({}, booted_s=1000.0) for host in machines}
    return update.plan(nodes, {}, [], [], more.get("begun", {}), parts=[part], only_stated=True)


def test_the_newest_goes_to_one_spark_after_the_other_with_its_way_back() -> None:
    made = whole(sparks(device("1.0", "1.9", "1.0"), device("1.0", "1.9")), {"*": "newest"})
    lines = update.plan_lines(made)
    assert lines[0] == f"note: {update_firmware.ONE_WAY}"
    assert lines[1] == "first, alone: spark1 gets firmware of Embedded Controller 1.0 -> 1.9 and is restarted"
    assert (
        "then, if spark1 is no worse: spark2 gets firmware of Embedded Controller 1.0 -> 1.9, for good and" in lines[2]
    )
    first, second = made.turns
    assert first.parts["firmware"].steps == ({"id": "d" * 40, "version": "1.9", "older": False},)
    assert f"fwupdmgr install {'d' * 40} 1.0 --allow-older" in first.back[0]
    assert "none, for fwupd does not offer 1.0 any more" in second.back[0]
    assert made.aim == {f"firmware {EC}": "1.9"}


def test_nothing_is_planned_where_firmware_is_not_asked_for_or_is_there() -> None:
    assert plan(sparks(device("1.0", "1.9")), {}) == update.Part("firmware")
    made = whole(sparks(device("1.9"), device("1.9")), {"*": "newest"})
    assert not made.turns and not made.refusals


def test_the_newest_is_one_that_all_are_offered_and_nothing_is_known_against() -> None:
    machines = sparks(device("1.0", "1.9", "2.0"), device("1.0", "1.9", "2.0"), device("1.5", "1.9", "2.0", "2.1"))
    made = plan(machines, {"*": "newest"}, known_bad=[BAD])
    assert made.wanted == {EC: "1.9"} and any(
        "2.0 is passed over: EC 2.0 turns the fans off" in note for note in made.notes
    )
    apart = plan(sparks(device("1.0", "1.9"), device("3.0")), {"*": "newest"})
    assert not apart.wanted and "stays (1.0 on spark1, 3.0 on spark2)" in apart.notes[0]


@pytest.mark.parametrize(
    ("machines", "stated", "said"),
    [
        (sparks(device("1.0", "2.0")), {"Embedded*": "2.0"}, "EC 2.0 turns the fans off. Use 1.9."),
        (sparks(device("1.0", "1.9"), device("1.0")), {EC: "1.9"}, "fwupd does not offer it to spark2, which has 1.0"),
        (sparks(device("1.0", "1.9")), {"BIOS": "newest"}, "no Spark has such a device. fwupd can update Embedded Controller"),
        (sparks(device("1.0", "1.9", problems=("require-ac-power",))), {"*": "newest"}, "fwupd says require-ac-power"),
        (sparks(device("1.0", "1.9", flags=("needs-shutdown",))), {"*": "newest"}, "the power was cut"),
        (sparks(device("1.0", "1.9", flags=("locked",))), {"*": "newest"}, "it is locked"),
        (sparks(device("1.0", "1.9", awaits="1.5")), {"*": "newest"}, "1.5 awaits a restart; restart it first"),
        ({"spark1": Firmware(error="fwupdmgr is not installed")}, {"*": "newest"}, "cannot be read: fwupdmgr is not installed"),
    ],
)  # fmt: skip
def test_what_must_not_be_done_is_refused_before_anything_is_touched(
    machines: dict[str, Firmware], stated: dict[str, str], said: str
) -> None:
    made = whole(machines, stated, known_bad=[BAD])
    assert made.turns == () and any(said in refusal for refusal in made.refusals), made


def test_what_a_node_says_of_its_devices_goes_quoted_into_the_way_back_and_no_option_is_a_version() -> None:
    odd = Device(
        "$(reboot)",
        (EC,),
        "EC",
        "1.0",
        releases=(Release("--force", newer=True), Release("1.9", newer=True), Release("1.0")),
    )
    made = whole(sparks(odd), {"*": "newest"})
    assert made.aim == {f"firmware {EC}": "1.9"} and "install '$(reboot)' 1.0" in made.turns[0].back[0]


def test_a_version_that_could_mean_two_devices_is_refused_and_a_guid_means_one() -> None:
    both = (device("1.0", "1.9"), device("1.0", "1.9", guid=SOC, name="Embedded SoC"))
    machines = {host: Firmware(both) for host in ("spark1", "spark2")}
    assert "Name one GUID" in plan(machines, {"Embedded*": "1.9"}).refusals[0]
    assert plan(machines, {SOC: "1.9"}).wanted == {SOC: "1.9"}
    assert plan(machines, {SOC: "1.0", "*": "newest"}).wanted == {SOC: "1.0", EC: "1.9"}


def test_an_older_version_that_is_stated_and_offered_leads_back() -> None:
    made = plan(sparks(device("1.9", "1.0")), {EC: "1.0"})
    assert made.shares["spark1"].steps[0]["older"] is True
    assert not plan(sparks(device("1.9", "1.0")), {EC: "newest"}).shares
    blocked = device("1.9", releases=(Release("1.0", older=True, blocked=True),))
    assert "does not offer it" in plan(sparks(blocked), {EC: "1.0"}).refusals[0]


def test_no_version_that_is_none_and_no_firmware_without_a_restart() -> None:
    for version in ("1.0; reboot", "--force", ""):
        with pytest.raises(CollectionError, match="spark_update_firmware"):
            plan(sparks(device()), {"*": version})
    with pytest.raises(CollectionError, match="spark_update_reboot"):
        plan(sparks(device()), {"*": "newest"}, restarts=False)


def test_a_run_that_was_killed_goes_on_where_it_was() -> None:
    aim = {f"firmware {EC}": "1.9"}
    begun = {"spark2": Begun(aim, {}, None, 1000.0, parts={"firmware": {EC: "1.0"}})}
    staged = whole(sparks(device("1.0", "1.9"), device("1.0", "1.9", awaits="1.9")), {EC: "1.9"}, begun=begun)
    first = staged.turns[0]
    assert (first.host, first.resumed, first.restart, first.parts["firmware"].steps) == ("spark2", True, True, ())
    restarted = whole(sparks(device("1.0", "1.9"), device("1.9", "1.0")), {EC: "1.9"}, begun=begun).turns[0]
    assert (restarted.host, restarted.restart) == ("spark2", False) and "1.0 --allow-older" in restarted.back[0]
    proven = {"spark2": Begun(aim, {}, None, 1000.0, True, {"firmware": {EC: "1.0"}})}
    over = whole(sparks(device("1.9"), device("1.9")), {EC: "1.9"}, begun=proven)
    assert over.turns == ()
    another = {"spark2": Begun({"x": "1"}, {}, None, 1000.0, parts={"firmware": {EC: "1.0"}})}
    assert whole(sparks(device("1.9"), device("1.9")), {EC: "1.9"}, begun=another).turns == ()


def test_firmware_that_does_not_run_after_the_restart_is_worse() -> None:
    share = plan(sparks(device("1.0", "1.9")), {EC: "1.9"}).shares["spark1"]
    assert update_firmware.awry(share, Firmware((device("1.9"),))) == []
    failed = update_firmware.awry(share, Firmware((device("1.0", failed="1.9: failed to write"),)))
    assert failed == ["the firmware of Embedded Controller is 1.0, not 1.9 (1.9: failed to write)"]
    assert "awaits a restart" in update_firmware.awry(share, Firmware((device("1.0", awaits="1.9"),)))[0]
    assert "does not list" in update_firmware.awry(share, Firmware())[0]
    assert "could not be read" in update_firmware.awry(share, None)[0]
    assert update_firmware.awry(None, None) == []
