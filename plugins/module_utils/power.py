# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's GPU power over time, as nvidia-smi reports it."""

from __future__ import annotations

import pathlib
import time
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import Run
from ansible_collections.dgxspark.cluster.plugins.module_utils.health import read_gpus

Sample = tuple[float, float]


def read_power(
    run: Run,
    path: str | None = None,
    seconds: float = 0.0,
    every: float = 1.0,
    clock: t.Callable[[], float] = time.time,
    wait: t.Callable[[float], None] = time.sleep,
) -> tuple[list[Sample], str]:
    """Return readings of the power of all GPUs together, in watts, each with its time in seconds since 1970; and why they end early, or "".

    One reading without a path; else one every so many seconds, as long as the file at path is there, and for at most `seconds`.
    """
    found: list[Sample] = []
    end = clock() + seconds
    while True:
        gpus, problem = read_gpus(run)
        watts = [gpu.power_w for gpu in gpus if gpu.power_w is not None]
        if problem or not gpus or len(watts) < len(gpus):
            return found, problem or "nvidia-smi reports no power for this GPU"
        found.append((clock(), sum(watts)))
        if path is None or not pathlib.Path(path).exists():
            return found, ""
        if clock() + every > end:
            return found, f"the readings end after {seconds:.0f} s"
        wait(every)
