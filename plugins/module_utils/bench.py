# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arguments that the modules bench and bench_pod share; the doc fragment `bench` documents them."""

from __future__ import annotations

import typing as t

# The request to a served model. It is in module_utils, as Ansible ships nothing else along with a module.
ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "model": {"type": "str"},
    "workloads": {"type": "list", "elements": "str", "default": ["chat"]},
    "levels": {"type": "list", "elements": "int", "default": [1, 4, 8, 16]},
    "rounds": {"type": "int", "default": 2},
    "seconds": {"type": "float", "default": 120},
    "seed": {"type": "int"},
    "mode": {"type": "str", "choices": ["full", "quick", "arena"], "default": "full"},
}
