# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures as people write them."""

from __future__ import annotations

from decimal import Decimal


def significant(value: float, digits: int = 3) -> str:
    """Format a figure to so many digits that count, without a power of ten: 0.0123, 36, 1360."""
    return format(Decimal(f"{value:.{digits}g}"), "f")
