# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one exception that the lab shows to its user."""

from __future__ import annotations


class LabError(Exception):
    """Something the user can act on: what happened, and what to do about it."""

    def __init__(self, cause: str, remedy: str = "") -> None:
        super().__init__(cause)
        self.cause = cause
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.cause}\n  {self.remedy}" if self.remedy else self.cause
