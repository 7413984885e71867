# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where K3s is on a node, and the files of it that are the same on all nodes of a role."""

from __future__ import annotations

import typing as t

BINARY = "/usr/local/bin/k3s"
ETC = "/etc/rancher/k3s"
CONFIG = f"{ETC}/config.yaml"
TOKEN = f"{ETC}/token"
AGENT_TOKEN = f"{ETC}/agent-token"  # on servers: agents can join with it, servers cannot
REGISTRIES = f"{ETC}/registries.yaml"
DATA = "/var/lib/rancher/k3s"
OURS = "/var/lib/dgxspark/k3s"
RECORD = f"{OURS}/record.json"
STAGING = "/var/lib/dgxspark-k3s-staging"  # a folder of its own, so that it can be deleted as a whole
BEFORE = f"{OURS}/before"
CDI = "/etc/cdi/nvidia.yaml"
AT_BOOT = "/etc/tmpfiles.d/dgxspark-k3s.conf"
UNITS = {"server": "k3s.service", "agent": "k3s-agent.service"}
RUNTIME = "/usr/bin/nvidia-container-runtime"
TOOLKIT = "/usr/bin/nvidia-ctk"

Role = t.Literal["server", "agent"]

_HEAD = "# Written by the Ansible role dgxspark.cluster.k3s; its next run undoes changes by hand.\n"


def unit_path(role: str) -> str:
    """Return the path of a role's unit."""
    return f"/etc/systemd/system/{UNITS[role]}"


def unit(role: Role) -> str:
    """Return the systemd unit. All of K3s's settings are in its config file: no secret, no flag, no environment of ours.

    An owner's environment, such as a proxy, is read from the files from which upstream's unit reads it (install.sh of k3s-io/k3s).
    KillMode is `process` so that pods survive a restart of K3s. Limits, and Delegate for cgroups, are K3s's own
    (install.sh of k3s-io/k3s). After several failed starts the unit keeps trying, as K3s's own does.
    """
    return f"""{_HEAD}[Unit]
Description=K3s {role}
Documentation=https://docs.k3s.io
Wants=network-online.target
After=network-online.target dgxspark-fabric.service

[Service]
Type=notify
EnvironmentFile=-/etc/default/%N
EnvironmentFile=-/etc/sysconfig/%N
EnvironmentFile=-/etc/systemd/system/{UNITS[role]}.env
ExecStartPre=-/sbin/modprobe -a br_netfilter overlay
ExecStart={BINARY} {role}
KillMode=process
Delegate=yes
UMask=0022
LimitNOFILE=1048576
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
TimeoutStartSec=0
Restart=always
RestartSec=5s

[Install]
WantedBy=multi-user.target
"""


def at_boot() -> str:
    """Return what systemd-tmpfiles removes at each boot: CNI's cached results of pods that ended with the node.

    If a node loses power within half a minute of a pod's start, the pod's file holds only zeros. libcni before 1.2 can then neither
    tear that pod down nor start it again, until someone removes the file (containernetworking/cni, issue 1055 and pull
    1072; containerd 1.7 has libcni 1.1). Without the file it uses the network's configuration; address leases are kept
    elsewhere. Multus itself removes its own unreadable files.
    """
    return f"{_HEAD}R! /var/lib/cni/results\n"


def fixed(role: Role) -> dict[str, str]:
    """Return the files, by path, that are the same on all nodes of a role. Their mode is 0644."""
    return {unit_path(role): unit(role), AT_BOOT: at_boot()}
