# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: nccl_bandwidth
short_description: Compute NCCL's bandwidth by message size from the benchmark's output
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Takes what C(roles/nccl/files/nccl_bench.py) prints, among whatever else is in the log, and returns algorithm and bus bandwidth
    (GB/s, 10^9 bytes, as nccl-tests defines them) and times (µs) of each size, and a table.
options:
  _input:
    description: The output of rank 0.
    type: str
    required: true
seealso:
  - plugin: dgxspark.cluster.nccl_transport
    plugin_type: module
"""

EXAMPLES = r"""
- name: Show the table
  ansible.builtin.debug:
    msg: "{{ (bench.stdout | dgxspark.cluster.nccl_bandwidth).table }}"
"""

RETURN = r"""
_value:
  description: The figures.
  type: dict
  contains:
    rows:
      description:
        - Each operation at each size, with C(operation), C(bytes), C(ranks), C(time_us), C(fastest_us), C(slowest_us),
          C(algbw) and C(busbw).
      type: list
      elements: dict
    summaries:
      description:
        - Each operation with C(latency_us) (up to 64 KiB), C(peak_busbw), C(peak_bytes), C(large_busbw) (from 1 GiB on) and
          C(ratio) (bus bandwidth at 1 MiB over the peak).
      type: list
      elements: dict
    table:
      description: The rows as text.
      type: str
    complete:
      description: Whether the benchmark finished.
      type: bool
    about:
      description: Versions, device and number of ranks; null if it did not finish.
      type: dict
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


def nccl_bandwidth(text: t.Any) -> dict[str, t.Any]:
    """Return the bandwidth figures of a log."""
    from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl import bandwidth

    if not isinstance(text, str):
        raise CollectionError(f"the benchmark's output must be a string, not {type(text).__name__}.")
    rows, about = bandwidth.parse(text)
    if not rows:
        raise CollectionError("it contains no line from the NCCL benchmark. Give the output of rank 0.")
    return {
        "rows": rows,
        "summaries": bandwidth.summaries(rows),
        "table": bandwidth.table(rows),
        "complete": about is not None,
        "about": about,
    }


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"nccl_bandwidth": as_filter("nccl_bandwidth", nccl_bandwidth)}
