# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's disk that takes no module: what Ansible's connections say of it, in one sentence with its remedy."""

from __future__ import annotations

import errno

from ansible_collections.dgxspark.cluster.plugins.module_utils.oserrors import reason

_SAID = {"No space left on device": errno.ENOSPC, "Read-only file system": errno.EROFS}
_NO_FOLDER = "Failed to create temporary directory"


def fault(said: str) -> str | None:
    """Return what an error of a connection says of the node's disk, or None."""
    for words, number in _SAID.items():
        if words in said:
            return f"Ansible cannot write a module to the node: {reason(OSError(number, words))}"
    if _NO_FOLDER not in said:
        return None
    return (
        "Ansible cannot make its temporary folder on the node: its disk is full or read-only, or this run's user "
        "may not write there. `mkdir -p ~/.ansible/tmp` on the node shows why (`df -h ~`, `findmnt -T ~`). Mend that, and run again."
    )
