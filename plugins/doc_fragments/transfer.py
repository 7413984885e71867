# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations


class ModuleDocFragment:
    # What every module takes that moves large files, be they weights or an image.
    DOCUMENTATION = r"""
options:
  reserve_gib:
    description: Disk space in GiB that has to stay free.
    type: float
    default: 0
  progress:
    description: A file to write the progress to.
    type: path
"""
