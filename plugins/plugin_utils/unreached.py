# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a host was not reached, by what ssh said: a name, a port, a login, a host key, or a host that is off, each with its remedy."""

from __future__ import annotations

import re
import typing as t

_FRAME = re.compile(r"^(?:Task failed: )?Failed to connect to the host via ssh: (?:ssh: )?")
_PORT = re.compile(r"^ssh: connect to host (\S+) port (\d+): (.+)$")


class Why(t.NamedTuple):
    """Why, and what to do. id: of the doctor's finding. off: whether the node itself is likely to be down, and what ran there with it."""

    id: str
    cause: str
    remedy: str
    off: bool = False


# What OpenSSH says -> why. The first that fits counts.
_SAID: tuple[tuple[str, Why], ...] = (
    (
        "resolve hostname|name resolution",
        Why(
            "node.name",
            "This controller does not find the name's address; the node itself was not asked.",
            "Give its address, in the inventory as ansible_host or in place of the name after -i, or "
            "let the controller know the name (/etc/hosts, DNS, ~/.ssh/config).",
        ),
    ),
    (
        "banner exchange",
        Why(
            "node.hangs",
            "Its kernel takes the connection, but its ssh server does not answer: it has most likely run out of memory.",
            "Try again in a minute. If it stays so, its power must be cut and given again.",
            off=True,
        ),
    ),
    (
        "refused|kex_exchange_identification|Connection (?:closed|reset)",
        Why(
            "node.no-ssh",
            "It is up, and lets nobody in at that port.",
            "Start its ssh server at its console (`systemctl enable --now ssh`), or set the port that it has in the inventory (ansible_port).",
        ),
    ),
    (
        "(?i)host key|host identification",
        Why(
            "node.host-key",
            "It is up, and this controller does not know its key, or knows another one: it was reinstalled, or another machine has "
            "its address.",
            "`ssh ADDRESS` shows its key. If it was reinstalled, `ssh-keygen -R ADDRESS` first, which forgets the old one.",
        ),
    ),
    (
        "Permission denied|Too many authentication failures|No more authentication methods",
        Why(
            "node.login",
            "It is up, and refuses this user or key.",
            "Name its user (`-u NAME`, or ansible_user in the inventory), or install your key: `ssh-copy-id NAME@ADDRESS`.",
        ),
    ),
    (
        "timed out|No route|unreachable|Host is down",
        Why(
            "node.down",
            "It is off, hangs, or has another address.",
            "Is it on, and is this its address? If it answers ping and no ssh, it has most likely run out of memory, and its power must be "
            "cut and given again.",
            off=True,
        ),
    ),
)
UNKNOWN = Why("node.down", "It could not be reached, or reading it failed.", "`ssh ADDRESS true` by hand shows why.")


def why(said: str) -> Why:
    """Return why a host was not reached. said: ssh's or Ansible's message, which may have text around it."""
    return next((known for pattern, known in _SAID if re.search(pattern, said)), UNKNOWN)


def plain(said: str) -> str:
    """Return the message in one line, as ssh says it: without what Ansible puts before it."""
    return _FRAME.sub("ssh: ", " ".join(said.split()))


def short(said: str) -> tuple[str, str]:
    """Return the message in one line that hosts with the same fault share, and the host's address if ssh names it."""
    line = plain(said)
    found = _PORT.match(line)
    return (f"ssh, port {found[2]}: {found[3]}", found[1]) if found else (line[:300], "")
