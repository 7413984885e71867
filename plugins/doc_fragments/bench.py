# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations


class ModuleDocFragment:
    # What is asked of a served model.
    DOCUMENTATION = r"""
options:
  model:
    description: The served model's name. By default the first that the server lists.
    type: str
  workloads:
    description:
      - The workloads to run, by their names in C(knowledge/workloads) or in the owner's folders, such as V(chat), V(generation),
        V(long-context), V(code), V(reasoning) or V(agents).
    type: list
    elements: str
    default: [chat]
  levels:
    description: The numbers of concurrent requests.
    type: list
    elements: int
    default: [1, 4, 8, 16]
  rounds:
    description: How many requests each concurrent stream sends, one after the other.
    type: int
    default: 2
  seconds:
    description: Seconds after which a level starts no more requests. Requests already started may take their workload's time.
    type: float
    default: 120
  seed:
    description: The seed for the filler text and for the server's sampling. By default the workload's own.
    type: int
  mode:
    description:
      - V(quick) takes about a minute, requests short answers at increasing concurrency, and reports in C(answer) what users get and
        what limits it. O(workloads), O(levels), O(rounds) and O(seconds) are not used then.
      - V(arena) also has the installed llama-benchy measure several depths of context by concurrency. Not from a pod.
    type: str
    choices: [full, quick, arena]
    default: full
  knowledge_dirs:
    description: Your knowledge folders, on top of the shipped one. Kinds C(workloads), C(guards) and C(metrics) are used.
    type: list
    elements: path
    default: []
"""
