"""What fwupd says, read: devices, what is offered, what awaits a restart, why something failed; and nothing that is not for a terminal."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils import firmware
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

ID, GUID = "0123456789abcdef0123456789abcdef01234567", "b585990a-003e-5270-89d5-3705a17f9a43"
DEVICE = {
    "Name": "Embedded Controller",
    "DeviceId": ID,
    "Guid": [GUID],
    "Version": "1.2.2",
    "Flags": ["updatable", "supported"],
}
OFFERS = {
    "Releases": [
        {"Version": "1.2.4", "Flags": ["is-upgrade"]},
        {"Version": "1.2.1", "Flags": ["is-downgrade", "blocked-version"]},
    ]
}
BOOTED = 1000.0


def said(**answers: t.Any) -> t.Callable[[t.Sequence[str]], tuple[int, str, str]]:
    """Return a fwupdmgr: by verb an answer, or its exit status and an answer."""
    usual = {
        "get-devices": {"Devices": [DEVICE]},
        "get-releases": OFFERS,
        "get-history": (2, {"Error": {"Message": "No history"}}),
    }
    told = usual | {name.replace("_", "-"): answer for name, answer in answers.items()}

    def run(argv: t.Sequence[str]) -> tuple[int, str, str]:
        assert argv[0] == "fwupdmgr" and "--json" in argv and "--assume-yes" in argv and "--no-reboot-check" in argv
        answer = told[argv[1]]
        rc, answer = answer if isinstance(answer, tuple) else (0, answer)
        return rc, answer if isinstance(answer, str) else json.dumps(answer), ""

    return run


def history(state: int, modified: int, to: str = "1.2.4", **more: t.Any) -> dict[str, t.Any]:
    return {
        "Devices": [{"DeviceId": ID, "UpdateState": state, "Modified": modified, "Releases": [{"Version": to}], **more}]
    }


def test_devices_are_read_with_what_they_are_offered() -> None:
    other = {**DEVICE, "Flags": ["internal"]}
    read = firmware.read_firmware(said(get_devices={"Devices": [DEVICE, other]}), BOOTED)
    (device,) = read.devices
    assert (device.id, device.guids, device.version, device.awaits, read.error) == (ID, (GUID,), "1.2.2", None, None)
    assert device.releases == (
        firmware.Release("1.2.4", newer=True),
        firmware.Release("1.2.1", older=True, blocked=True),
    )


@pytest.mark.parametrize(
    ("past", "awaits", "failed"),
    [
        (history(2, 2000), "1.2.4", None),
        (history(4, 2000), "1.2.4", None),
        (history(2, 900), None, "1.2.4: installed before the last restart, and 1.2.2 still runs"),
        (history(3, 2000, UpdateError="failed to\x1b[2J write"), None, "1.2.4: failed to [2J write"),
        (history(2, 2000, "1.2.2"), None, None),
    ],
)
def test_the_history_tells_what_awaits_a_restart_and_what_failed(
    past: dict[str, t.Any], awaits: str | None, failed: str | None
) -> None:
    (device,) = firmware.read_firmware(said(get_history=past), BOOTED).devices
    assert (device.awaits, device.failed) == (awaits, failed)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((127, ""), "fwupdmgr is not installed (apt-get install fwupd)"),
        ((1, {"Error": {"Message": "Failed to connect\x07 to daemon"}}), "Failed to connect to daemon (exit status 1)"),
        ((0, "{"), "get-devices"),
        ((0, {"Devices": [[]] * 3}), None),
        ((2, {"Error": {"Message": "No detected devices"}}), None),
        ((0, {"Devices": [{"Flags": ["updatable"], "DeviceId": 7, "Name": None, "Guid": "x"}]}), None),
    ],
)
def test_what_cannot_be_read_is_said_and_what_has_another_form_is_left_out(answer: t.Any, why: str | None) -> None:
    read = firmware.read_firmware(said(get_devices=answer), BOOTED)
    assert (why is None and read.error is None) or (why is not None and why in str(read.error) and not read.devices)


def test_answers_are_bounded() -> None:
    many = [{**DEVICE, "Name": "x" * 900, "Guid": ["g"] * 900} for _ in range(100)]
    read = firmware.read_firmware(said(get_devices={"Devices": many}), BOOTED)
    assert len(read.devices) == firmware.MOST_DEVICES
    assert all(
        len(device.name) == firmware.LONGEST and len(device.guids) == firmware.MOST_TEXTS for device in read.devices
    )
    assert firmware.read_firmware(said(get_devices=(0, " " * (firmware.MOST + 1) + "{}")), BOOTED).error


def test_an_installation_that_fwupd_has_nothing_to_do_for_is_none() -> None:
    firmware.install(said(install=(0, "")), ID, "1.2.4")
    refused = {"Error": {"Message": "Embedded Controller is not currently updatable"}}
    with pytest.raises(CollectionError, match=r"install .* is not currently updatable \(exit status 2\)"):
        firmware.install(said(install=(2, refused)), ID, "1.2.4")
