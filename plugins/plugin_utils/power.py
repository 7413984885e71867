# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The unit that limits a node's GPU clock (role spark_power), built from a hardware class's figure or the owner's."""

from __future__ import annotations

import pathlib
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.health import CLOCK_UNIT
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import hardware

Plain = dict[str, t.Any]

NAME = pathlib.PurePath(CLOCK_UNIT).name
# Below the first a GPU does not work; 3003 MHz is what GB10 can at most.
LEAST, MOST = 300, 3003
# A restart of the node or a reload of the driver forgets the limit; nvidia-persistenced keeps the driver loaded in between.
_TEXT = """\
# Written by the Ansible role dgxspark.cluster.spark_power; its next run undoes changes by hand.
[Unit]
Description=Limit the clock of the GPU to {mhz} MHz
Wants=nvidia-persistenced.service
After=nvidia-persistenced.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/nvidia-smi -lgc 0,{mhz}
ExecStop=/usr/bin/nvidia-smi -rgc

[Install]
WantedBy=multi-user.target
"""


def limit(profile: str, mhz: int | str | None, dirs: t.Sequence[str] = ()) -> int:
    """Return the clock limit in MHz: the owner's, or the hardware class's. CollectionError for one that no GPU can have.

    mhz: a number, or the text that `-e` makes of it.
    """
    if isinstance(mhz, str) and mhz.isascii() and mhz.isdigit() and len(mhz) <= len(str(MOST)):
        mhz = int(mhz)
    if mhz is not None and (not isinstance(mhz, int) or isinstance(mhz, bool)):
        raise CollectionError(f"spark_power_clock_mhz: {repr(mhz)[:40]} is not a whole number of MHz, such as 2000.")
    gpu = hardware.health(profile, dirs).get("gpu") or {}
    wanted = mhz if mhz is not None else gpu.get("limit_mhz")
    if wanted is None:
        raise CollectionError(
            f"The hardware class {profile} has no clock limit (knowledge/health). Set spark_power_clock_mhz, or leave spark_power out."
        )
    low = gpu.get("low_clock_mhz", LEAST)
    if not low <= wanted <= MOST:
        raise CollectionError(
            f"spark_power_clock_mhz: {wanted} must be between {low:.0f} and {MOST}: below, the limit would look like the low-power state."
        )
    return int(wanted)


def plan(profile: str, mhz: int | None = None, dirs: t.Sequence[str] = ()) -> Plain:
    """Return `mhz`, and `files`, `enable` and `restart` as the module unit_files takes them."""
    wanted = limit(profile, mhz, dirs)
    return {
        "mhz": wanted,
        "files": [{"path": CLOCK_UNIT, "content": _TEXT.format(mhz=wanted), "mode": "0644"}],
        "enable": [NAME],
        "restart": [NAME],
    }
