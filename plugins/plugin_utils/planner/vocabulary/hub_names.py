# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of models: repositories of the hub (owner/name), and folders."""

from __future__ import annotations

import re

_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w.-]+", re.ASCII)


def is_repository(model: str) -> bool:
    """Whether a model is named as the hub does; anything else is a folder."""
    return _REPOSITORY.fullmatch(model) is not None


def model_key(model: str) -> str:
    """Return what two names of one model share: the hub ignores case (and redirects), file systems do not."""
    return model.lower() if is_repository(model) else model
