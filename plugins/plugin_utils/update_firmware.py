# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Firmware in an update: which device of which Spark gets which version, what is refused before anything is touched, and the way back."""

from __future__ import annotations

import fnmatch
import re
import shlex
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.firmware import Device, Firmware
from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import line, read_in
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, Finding
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.knowledge import Entry
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.known_bad import device_findings
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.update import NEWEST, Begun, Part, Share

NAME = "firmware"
ONE_WAY = "Firmware can mostly not be taken back."
# They go into commands, as fwupd's formats have them: numbers, triplets, hexadecimal, dates.
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+~_-]{0,63}")
_WAITS = "update-pending"  # the problem of a device whose new version awaits the restart
# What a restart from afar does not end, in fwupd's words.
_BY_HAND = {
    "locked": "it is locked (fwupdmgr unlock)",
    "needs-shutdown": "its new version runs after the power was cut, which needs a hand",
    "needs-activation": "it is to be activated by hand (fwupdmgr activate)",
}

Machines = t.Mapping[str, Firmware]


@dataclass(frozen=True, slots=True)
class _Kind:
    """The devices of one kind, by host. label: for messages."""

    guid: str
    label: str
    devices: dict[str, Device]


def reported(read: t.Mapping[str, t.Any]) -> tuple[dict[str, Firmware], dict[str, str]]:
    """Return what node_firmware reported of each host, and why a node's lists could not be refreshed. CollectionError for another form."""
    machines = {
        host: read_in(Firmware, seen["firmware"], f"{host}: firmware")
        for host, seen in read.items()
        if "firmware" in (seen or {})
    }
    unread = {host: Firmware(error="node_firmware failed there") for host in read if host not in machines}
    return machines | unread, {
        host: line(seen["stale"], 300) for host, seen in read.items() if (seen or {}).get("stale")
    }


def plan(
    machines: Machines,
    stated: t.Mapping[str, str],
    known_bad: t.Sequence[Entry],
    begun: t.Mapping[str, Begun],
    *,
    restarts: bool = True,
    stale: t.Mapping[str, str] | None = None,
) -> Part:
    """Return what the devices of each node get.

    machines: what fwupd says on each, in the inventory's order. stated: versions by a pattern of names or GUIDs (`newest`: the
    newest that all Sparks are offered and nothing is known against); the first pattern that fits a device counts. begun: what earlier
    runs noted. restarts: whether nodes may be restarted. stale: why a node's lists could not be refreshed. Raises CollectionError
    for a version that is none.
    """
    for pattern, version in stated.items():
        if not _VERSION.fullmatch(version):
            raise CollectionError(
                f"spark_update_firmware: {pattern}={version} is not a device with a version. Write, for example, "
                f'{{"*": {NEWEST}}}, or a device\'s name or GUID of `fwupdmgr get-devices` with a version.'
            )
    if not stated:
        return Part(NAME)
    if not restarts:
        raise CollectionError("spark_update_reboot: never. New firmware runs after a restart; leave it at auto.")
    refusals = [f"{host}: its firmware cannot be read: {seen.error}." for host, seen in machines.items() if seen.error]
    if refusals:
        return Part(NAME, refusals=tuple(refusals))
    notes = [f"{host}: fwupd's lists could not be refreshed: {why}." for host, why in (stale or {}).items()]
    chosen: dict[str, str] = {}
    kinds = {kind.guid: kind for kind in _kinds(machines)}
    left = dict(kinds)
    for pattern, version in stated.items():
        fit = [kind for kind in left.values() if _fits(pattern, kind)]
        if not fit and not any(_fits(pattern, kind) for kind in kinds.values()):
            refusals.append(f"firmware {pattern}: no Spark has such a device. fwupd can update {_known(kinds)}.")
        if version != NEWEST and len(fit) > 1:
            said = ", ".join(f"{kind.label} ({kind.guid})" for kind in fit)
            refusals.append(
                f"firmware {pattern}: {version} cannot be meant for {len(fit)} kinds of devices: {said}. Name one GUID."
            )
            continue
        for kind in fit:
            del left[kind.guid]
            good, said_of, why_not = _choose(kind, version, known_bad)
            notes += said_of
            refusals += why_not
            if good is not None:
                chosen[kind.guid] = good
    shares: dict[str, Share] = {}
    for host in machines:
        share, why_not = _share(host, [kinds[guid] for guid in chosen], chosen, begun.get(host))
        refusals += why_not
        if share:
            shares[host] = share
    if any(share.steps for share in shares.values()):
        notes.insert(0, ONE_WAY)
    return Part(NAME, chosen, {} if refusals else shares, tuple(dict.fromkeys(notes)), tuple(refusals))


def awry(share: Share | None, firmware: Firmware | None) -> list[str]:
    """Return what is wrong with a node's firmware after its turn."""
    if share is None:
        return []
    if firmware is None or firmware.error:
        return [f"its firmware could not be read: {firmware.error if firmware else 'no answer'}"]
    found = []
    for guid, version in share.wanted.items():
        for device in (each for each in firmware.devices if each.kind == guid):
            if device.version != version:
                why = f" ({device.failed})" if device.failed else " (it awaits a restart)" if device.awaits else ""
                found.append(f"the firmware of {device.name} is {device.version}, not {version}{why}")
    missing = share.wanted.keys() - {device.kind for device in firmware.devices}
    return found + [f"fwupd does not list the device {guid} any more" for guid in sorted(missing)]


def _kinds(machines: Machines) -> t.Iterator[_Kind]:
    """Yield each kind of device. Of two alike on one node fwupd is asked by their ids; that is left to the owner."""
    by_guid: dict[str, dict[str, Device]] = {}
    for host, firmware in machines.items():
        for device in firmware.devices:
            by_guid.setdefault(device.kind, {}).setdefault(host, device)
    for guid, devices in by_guid.items():
        names = [device.name for device in devices.values()]
        yield _Kind(guid, names[0] or guid, devices)


def _fits(pattern: str, kind: _Kind) -> bool:
    return any(
        fnmatch.fnmatchcase(name, pattern) for device in kind.devices.values() for name in (device.name, *device.guids)
    )


def _known(kinds: t.Mapping[str, _Kind]) -> str:
    return ", ".join(f"{kind.label} ({guid})" for guid, kind in kinds.items()) or "none there"


def _offered(device: Device) -> list[str]:
    """Return what it may get, newest first, and what it has."""
    newer = [release.version for release in device.releases if release.newer and not release.blocked]
    return [*filter(_VERSION.fullmatch, newer), device.version]


def _choose(kind: _Kind, version: str, known_bad: t.Sequence[Entry]) -> tuple[str | None, list[str], list[str]]:
    """Return a version for all devices of a kind, with notes and refusals."""
    notes: list[str] = []

    def bad(wanted: str) -> list[Finding]:
        names = [kind.label, *next(iter(kind.devices.values())).guids]
        return device_findings(names, wanted, known_bad)

    if version == NEWEST:
        offers = {host: _offered(device) for host, device in kind.devices.items()}
        for wanted in next(iter(offers.values())):
            if any(wanted not in offer for offer in offers.values()):
                continue
            against = [finding for finding in bad(wanted) if finding.severity != "info"]
            if not against or all(device.version == wanted for device in kind.devices.values()):
                return wanted, notes, []
            notes.append(f"firmware of {kind.label} {wanted} is passed over: {against[0].message}")
        told = ", ".join(f"{device.version} on {host}" for host, device in kind.devices.items())
        return None, [*notes, f"firmware of {kind.label} stays ({told}): no good version is there for all."], []
    refusals = [
        f"firmware of {kind.label} {version}: fwupd does not offer it to {host}, which has {device.version}. "
        f"`fwupdmgr get-releases {device.id}` there shows what it offers."
        for host, device in kind.devices.items()
        if version not in (device.version, device.awaits) and not _offers(device, version)
    ]
    for finding in bad(version):
        said = f"firmware of {kind.label} {version}: {finding.message} {finding.remedy}"
        (refusals if finding.severity == "error" else notes).append(said)
    return version, notes, refusals


def _share(
    host: str, kinds: t.Sequence[_Kind], chosen: t.Mapping[str, str], begun: Begun | None
) -> tuple[Share | None, list[str]]:
    """Return what one node gets, and why it may not."""
    steps, does, before, back, refusals, waits = [], [], dict[str, str | None](), [], [], False
    for kind in kinds:
        device, version = kind.devices.get(host), chosen[kind.guid]
        if device is None:
            continue
        noted = begun.parts.get(NAME, {}).get(kind.guid) if begun and not begun.proven else None
        old = noted or device.version
        if device.version == version and old == version:
            continue
        before[kind.guid] = old
        if device.version == version:
            pass  # installed by the run that was killed
        elif device.awaits == version:
            waits = True
            does.append(f"firmware of {kind.label} {old} -> {version}, which awaits the restart")
        else:
            refusals += [f"{host}: the firmware of {kind.label} cannot be updated: {why}." for why in _hindered(device)]
            older = any(release.version == version and release.older for release in device.releases)
            steps.append({"id": device.id, "version": version, "older": older})
            way = "" if _offers(device, old) else ", for good"
            does.append(f"firmware of {kind.label} {old} -> {version}{way}")
        back.append(_back(host, kind.label, device, old))
    if not before:
        return None, refusals
    wanted = {guid: chosen[guid] for guid in before}
    return Share(tuple(does), tuple(steps), before, wanted, tuple(back), restart=bool(steps) or waits), refusals


def _hindered(device: Device) -> list[str]:
    found = [why for flag, why in _BY_HAND.items() if flag in device.flags]
    found += [f"fwupd says {problem}" for problem in device.problems if problem != _WAITS]
    if device.awaits:
        found.append(f"{device.awaits} awaits a restart; restart it first")
    return found


def _offers(device: Device, version: str) -> bool:
    return version in [release.version for release in device.releases if not release.blocked]


def _back(host: str, label: str, device: Device, old: str) -> str:
    if _offers(device, old):
        return (
            f"on {host}, the older firmware of {label}, if the new one lets it: sudo fwupdmgr install "
            f"{shlex.quote(device.id)} {shlex.quote(old)} --allow-older; sudo reboot"
        )
    return f"on {host}, the firmware of {label}: none, for fwupd does not offer {old} any more"
