# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Order of K3s releases (`v1.36.4+k3s1`), and which steps between them are allowed."""

from __future__ import annotations

import functools
import re
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, Finding
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import versions

if t.TYPE_CHECKING:
    from packaging.version import Version

_RELEASE = re.compile(r"^v(\d+\.\d+\.\d+)(-(?:rc|alpha|beta)\.?\d+)?\+k3s(\d+)$")
# A kubelet may be three minors older than its API server, and never newer (Kubernetes version skew policy).
AGENT_SKEW = 3

Step = t.Literal["install", "keep", "upgrade", "refused"]


@functools.cache
def release(text: str) -> Version:
    """Return a release as a version; CollectionError for anything else, such as a channel's name."""
    match = _RELEASE.match(text) if isinstance(text, str) else None
    if not match:
        raise CollectionError(
            f"k3s_version: {text!r} is not a K3s release. Write it in full, such as v1.36.4+k3s1 (a channel such as "
            "stable would be another version tomorrow)."
        )
    return versions.exact("{}{}+{}".format(*match.groups("")))


def step(installed: str | None, wanted: str, subject: str) -> tuple[Step, list[Finding]]:
    """Return the step from the installed release to the wanted one.

    installed: None without K3s. subject: the host, for the message. A downgrade is refused, since the data store may hold
    what the older release cannot read; so is skipping a minor, which Kubernetes does not support.
    """
    new = release(wanted)
    if installed is None:
        return "install", []
    try:
        old = release(installed)
    except CollectionError:
        found = f"K3s there reports version {installed!r}, which is not a release."
        remedy = "Remove it by hand, or with k3s_state=absent, and run again."
        return "refused", [Finding("k3s.unknown-version", "error", subject, found, remedy)]
    if old == new:
        return "keep", []
    if new < old:
        message = f"{installed} is installed, and {wanted} is older: a downgrade can lose the cluster's data."
        remedy = f"Set k3s_version to {installed} or newer. To go back, restore a backup made with the older release."
        return "refused", [Finding("k3s.downgrade", "error", subject, message, remedy)]
    if new.major != old.major or new.minor > old.minor + 1:
        message = f"{installed} is installed, and {wanted} skips a minor release."
        remedy = f"Go one minor at a time: set k3s_version to a v{old.major}.{old.minor + 1} release first."
        return "refused", [Finding("k3s.skipped-minor", "error", subject, message, remedy)]
    return "upgrade", []


def skew(agent: str, server: str, subject: str) -> list[Finding]:
    """Find an agent that would be newer than its server, or more than three minors older."""
    new, of_server = release(agent), release(server)
    if new > of_server:
        message = f"it would get {agent}, but its server has {server}: an agent must not be newer than its server."
        return [
            Finding(
                "k3s.newer-agent", "error", subject, message, "Upgrade the server first: include it in the limit (-l)."
            )
        ]
    if new.minor < of_server.minor - AGENT_SKEW:
        message = f"it would get {agent}, but its server has {server}: that is more than {AGENT_SKEW} minors older."
        return [Finding("k3s.older-agent", "error", subject, message, f"Set k3s_version to {server}.")]
    return []
