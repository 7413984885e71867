# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's firmware as fwupd has it: devices, what they run, what they are offered, what awaits a restart; and its installation.

Every answer is `fwupdmgr --json`. Its exit status 2 is "nothing to do" for what only reads, and a refusal for `install`.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import NOT_FOUND, Run
from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import MIB, Unreadable, from_json, printable
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

NO_PROGRAM = "fwupdmgr is not installed (apt-get install fwupd)"
NOTHING = 2
MOST_DEVICES, MOST_RELEASES, MOST_TEXTS = 64, 64, 32
LONGEST = 200  # characters of a name, version or reason
MOST = 4 * MIB  # bytes of one answer
_FAILED = (3, 5)  # UpdateState: failed, failed for a passing reason (1: pending, 2: success, 4: needs a restart)
_ALONE = ("--json", "--assume-yes", "--no-reboot-check", "--no-unreported-check", "--no-metadata-check")

Plain = t.Mapping[str, t.Any]


@dataclass(frozen=True, slots=True)
class Release:
    """A version that fwupd can install. newer, older: than what runs. blocked: by the device or the owner's list of approved ones."""

    version: str
    newer: bool = False
    older: bool = False
    blocked: bool = False


@dataclass(frozen=True, slots=True)
class Device:
    """A device whose firmware fwupd can update.

    id: on this node. guids: of its kind, the same on every node. flags, problems: in fwupd's words. awaits: a version that is
    installed and runs after the next restart. failed: why the last update failed, with its version.
    """

    id: str
    guids: tuple[str, ...]
    name: str
    version: str
    flags: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    releases: tuple[Release, ...] = ()
    awaits: str | None = None
    failed: str | None = None

    @property
    def kind(self) -> str:
        """What it has in common with its like on other nodes."""
        return self.guids[0] if self.guids else self.id


@dataclass(frozen=True, slots=True)
class Firmware:
    """All of them. error: why they could not be read."""

    devices: tuple[Device, ...] = ()
    error: str | None = None


def read_firmware(run: Run, booted_s: float | None) -> Firmware:
    """Read the devices. booted_s: when the node booted, in seconds since 1970; None if unknown: then nothing awaits a restart."""
    try:
        listed = _ask(run, ["get-devices"])
        past = {str(entry.get("DeviceId")): entry for entry in _mappings(_ask(run, ["get-history"]).get("Devices"))}
        able = [seen for seen in _mappings(listed.get("Devices")) if "updatable" in _texts(seen.get("Flags"))]
        return Firmware(
            tuple(_device(run, seen, past.get(str(seen.get("DeviceId")), {}), booted_s) for seen in able[:MOST_DEVICES])
        )
    except CollectionError as exc:
        return Firmware(error=str(exc))


def refresh(run: Run) -> str | None:
    """Fetch the lists of what is offered; return why that failed. Lists that are new enough are no failure."""
    try:
        _ask(run, ["refresh"])
    except CollectionError as exc:
        return str(exc)
    return None


def install(run: Run, device: str, version: str, *, older: bool = False) -> None:
    """Install a version, or stage it for the next restart, which is not made. Raises CollectionError with fwupd's reason."""
    # A device that cannot be updated now is status 2 here: not success.
    _answer(run, ["install", device, version, *(["--allow-older"] if older else [])], (0,))


def _ask(run: Run, words: t.Sequence[str]) -> Plain:
    return _answer(run, words, (0, NOTHING))


def _answer(run: Run, words: t.Sequence[str], good: t.Sequence[int]) -> Plain:
    rc, out, err = run(["fwupdmgr", *words, *_ALONE])
    if rc == NOT_FOUND:
        raise CollectionError(NO_PROGRAM)
    try:
        said = from_json(out, "fwupdmgr", most=MOST) if out.strip() else {}
    except Unreadable as exc:
        if rc in good:
            raise CollectionError(f"fwupdmgr {words[0]}: {printable(str(exc), LONGEST)}") from exc
        said = {}
    said = said if isinstance(said, dict) else {}
    error = said.get("Error")
    if rc in good and not (rc == 0 and error):
        return said
    told = error.get("Message") if isinstance(error, dict) else None
    raise CollectionError(
        f"fwupdmgr {' '.join(words)}: {printable(str(told or err or out), LONGEST) or 'no reason given'} (exit status {rc})"
    )


def _device(run: Run, seen: Plain, past: Plain, booted_s: float | None) -> Device:
    device, version = _text(seen.get("DeviceId")), _text(seen.get("Version"))
    offered = _mappings(_ask(run, ["get-releases", device]).get("Releases")) if _is_id(device) else []
    awaits, failed = _past(past, version, booted_s)
    return Device(
        id=device,
        guids=tuple(sorted(_texts(seen.get("Guid")))),
        name=_text(seen.get("Name")),
        version=version,
        flags=_texts(seen.get("Flags")),
        problems=_texts(seen.get("Problems")),
        releases=tuple(map(_release, offered[:MOST_RELEASES])),
        awaits=awaits,
        failed=failed,
    )


def _past(past: Plain, version: str, booted_s: float | None) -> tuple[str | None, str | None]:
    """Return the version that awaits a restart, and why the last update failed: what the history says of it."""
    to = next((_text(release.get("Version")) for release in _mappings(past.get("Releases"))), "")
    if not to or to == version:
        return None, None
    if past.get("UpdateState") in _FAILED:
        return None, f"{to}: {_text(past.get('UpdateError')) or 'no reason given'}"
    at = past.get("Modified")
    if booted_s is not None and isinstance(at, int) and at > booted_s:
        return to, None
    return None, f"{to}: installed before the last restart, and {version} still runs"


def _release(seen: Plain) -> Release:
    flags = _texts(seen.get("Flags"))
    blocked = any(flag.startswith("blocked") for flag in flags)
    return Release(_text(seen.get("Version")), "is-upgrade" in flags, "is-downgrade" in flags, blocked)


def _is_id(text: str) -> bool:
    return len(text) == 40 and all(char in "0123456789abcdef" for char in text)


def _mappings(value: t.Any) -> list[Plain]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _texts(value: t.Any) -> tuple[str, ...]:
    return tuple(map(_text, value[:MOST_TEXTS])) if isinstance(value, list) else ()


def _text(value: t.Any) -> str:
    return printable(value, LONGEST) if isinstance(value, str) else ""
