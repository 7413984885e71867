# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The source of the programs that run in a rank's container, for its ConfigMap."""

from __future__ import annotations

import functools
import pathlib

from ansible_collections.dgxspark.cluster.plugins.module_utils.kube import preflight, supervisor
from ansible_collections.dgxspark.cluster.plugins.module_utils.serving import patches

CAUSES = {**preflight.CAUSES, **supervisor.CAUSES}


@functools.cache
def sources() -> dict[str, str]:
    """Return file name → text."""
    programs = (preflight, supervisor, patches)
    paths = (pathlib.Path(str(program.__file__)) for program in programs)
    return {path.name: path.read_text(encoding="utf-8") for path in paths}
