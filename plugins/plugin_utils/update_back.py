# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way back from an update of a node."""

from __future__ import annotations

import re
import shlex
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import line
from ansible_collections.dgxspark.cluster.plugins.module_utils.grub import TRIAL
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import from_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import update

# What a command may name.
_RELEASE = re.compile(r"[0-9][A-Za-z0-9+.~_-]{1,127}")


def way_back(
    turn: t.Mapping[str, t.Any], trial: t.Mapping[str, t.Any], listed: t.Sequence[str], hold: bool = True
) -> list[str]:
    """Return the commands that lead back, in their order, each with the node's name.

    turn: a Turn. trial: the kernel on trial, as boot_trial returns it, or empty. listed: lines of dpkg-query after the installation.
    hold: whether packages are held; apt-get drops the hold of one that it changes.
    """
    done = from_plain(update.Turn, dict(turn), "turn")
    on = f"on {done.host}"
    tried = {key: line(value) for key, value in trial.items()}
    older = [f"{name}={version}" for name, version in done.before.items() if version and version != done.wanted[name]]
    new = [name for name, version in done.before.items() if version is None]
    new += update.came(update.packages("\n".join(listed))[0], done.there, done.wanted)
    lines = []
    if tried.get("kernel"):
        lines.append(
            f"{on}, to boot the kernel {tried['before']}: sudo reboot; or, if it does not answer, cut its power and give it again: the kernel "
            f"{tried['kernel']} was booted once only, and GRUB's default is {tried['entry']}"
        )
    elif done.kernel and _RELEASE.fullmatch(done.kernel) and any(name.startswith("linux-") for name in done.before):
        entry = f"gnulinux-advanced-$u>gnulinux-{done.kernel}-advanced-$u"
        lines.append(
            f'{on}, to boot the kernel {done.kernel} once: u=$(grub-probe --target=fs_uuid /); sudo grub-reboot "{entry}"; sudo reboot'
        )
    again = f"; sudo apt-mark hold {shlex.join(pair.partition('=')[0] for pair in older)}" if hold else ""
    if older:
        lines.append(
            f"{on}, the older versions: sudo apt-get install --allow-downgrades --allow-change-held-packages {shlex.join(older)}{again}"
        )
    if new:
        lines.append(
            f"{on}, what was not there before: sudo apt-get remove --allow-change-held-packages {shlex.join(new)}"
        )
    lines += done.back
    if tried.get("kernel"):
        lines.append(f"{on}, GRUB's own default again: sudo rm {TRIAL}; sudo update-grub")
    return lines
