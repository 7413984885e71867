# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The source of the programs that run in a rank's container, for its ConfigMap."""

from __future__ import annotations

import functools

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.rank import (
    auth_proxy,
    patches,
    preflight,
    rendezvous,
    supervisor,
)
from ansible_collections.dgxspark.cluster.plugins.module_utils.source import flat

CAUSES = {**preflight.CAUSES, **supervisor.CAUSES}


@functools.cache
def sources() -> dict[str, str]:
    """Return file name → text."""
    return flat((preflight, supervisor, rendezvous, auth_proxy, patches))
