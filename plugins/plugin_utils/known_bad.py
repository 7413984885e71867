# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Known-bad versions of NCCL, kernel, driver …: the only reader of `knowledge/versions`."""

from __future__ import annotations

import fnmatch
import re
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.health import Health
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, Finding, Node, Severity
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.versions import matches, release

DEVICE = "device_firmware"  # the component of firmware that fwupd installs; its entries name the device


def load_known_bad(overlays: t.Sequence[str] = ()) -> tuple[knowledge.Entry, ...]:
    """Return the known-bad versions, with the owner's."""
    return tuple(knowledge.shared("versions", tuple(overlays)).values())


def platform_findings(
    platform: t.Mapping[str, str], known_bad: t.Sequence[knowledge.Entry], whole: bool = True
) -> tuple[list[Finding], dict[str, str]]:
    """Compare versions of NCCL, kernel, driver … with the known-bad ones.

    whole: whether the kernel's command line is known; if not, an error that an option there could fix becomes a warning.
    """
    found, environment = [], {}
    for entry in known_bad:
        version = platform.get(entry["component"])
        if (
            not version
            or "shows" in entry
            or not matches(str(release(version)), entry["versions"])
            or not re.search(entry.get("build", ""), version)
            or entry.get("with", "") not in platform.get("cmdline", "")
        ):
            continue
        if entry.get("unless") and entry["unless"] in platform.get("cmdline", ""):
            continue
        open_ = None if whole else entry.get("unless")
        severity: Severity = "warning" if open_ and entry["severity"] == "error" else entry["severity"]
        environment.update(entry.get("environment", {}))
        found.append(
            Finding(
                f"platform.{entry['id']}",
                "info" if entry.get("environment") else severity,
                "",
                said(entry) + (f" Its command line was not read: with {open_} it is fine." if open_ else ""),
                entry["remedy"],
                (entry["component"],),
                tuple(entry["source"]),
            )
        )
    return found, environment


def device_findings(names: t.Sequence[str], version: str, known_bad: t.Sequence[knowledge.Entry]) -> list[Finding]:
    """Return what is known against a version of a device's firmware. names: its name and the GUIDs of its kind, as fwupd has them."""
    entries = [
        entry
        for entry in known_bad
        if entry["component"] == DEVICE and any(fnmatch.fnmatchcase(name, entry["device"]) for name in names)
    ]
    try:
        return platform_findings({DEVICE: version}, entries)[0]
    except CollectionError:  # a version that does not start with a number cannot be compared
        return []


def said(entry: knowledge.Entry) -> str:
    """Return an entry's message, with what speaks against it."""
    return " ".join([entry["message"], *([f"Disputed: {entry['disputed']}"] if "disputed" in entry else [])])


def node_versions(health: Health | None, node: Node | None) -> dict[str, str]:
    """Return a node's versions by component, including those of its fabric functions."""
    found = dict(health.versions) if health else {}
    if node:
        if node.kernel:
            found.setdefault("kernel", node.kernel)
        for key, values in (
            ("firmware", {f.firmware for f in node.functions if f.firmware}),
            ("nic_driver", {f"{f.driver} {f.driver_version}" for f in node.functions if f.driver_version}),
        ):
            if values:
                found[key] = ", ".join(sorted(values))
    return found


def node_findings(
    health: Health | None, node: Node | None, known_bad: t.Sequence[knowledge.Entry]
) -> list[tuple[Finding, str]]:
    """Return the findings on a node's known-bad versions, each with the version."""
    versions = node_versions(health, node)
    if health:
        versions["cmdline"] = health.cmdline
    found = []
    for entry in known_bad:
        try:
            bad, _environment = platform_findings(versions, [entry])
        except CollectionError:  # a version that does not start with a number cannot be compared
            continue
        found += [(finding, versions[entry["component"]]) for finding in bad]
    return found
