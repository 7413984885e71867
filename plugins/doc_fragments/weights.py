# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations


class ModuleDocFragment:
    # What every module takes that moves weights.
    DOCUMENTATION = r"""
options:
  cache_dir:
    description: >-
      The folder of caches. Weights are in C(huggingface/hub) below it, in the hub's layout; lists and seals in C(weights), which
      only root may open.
    type: path
    required: true
  verify:
    description: >-
      Read every file again, including those verified before, and compare them with the hub's list if the hub can be reached.
    type: bool
    default: false
"""
