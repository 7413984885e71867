# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations


class ModuleDocFragment:
    # What is asked of a served model.
    DOCUMENTATION = r"""
options:
  model:
    description: The served model's name. By default the first that the server names.
    type: str
  workloads:
    description:
      - What is asked, by the names of C(knowledge/workloads) and of the owner's folders, such as V(chat), V(generation),
        V(long-context), V(code), V(reasoning) or V(agents).
    type: list
    elements: str
    default: [chat]
  levels:
    description: Requests at once.
    type: list
    elements: int
    default: [1, 4, 8, 16]
  rounds:
    description: How many requests each of those that run at once sends in turn.
    type: int
    default: 2
  seconds:
    description: After how many seconds a level begins no more requests. What was begun may take its workload's time.
    type: float
    default: 120
  seed:
    description: Of the filling text and of the server's sampling. By default the workload's own.
    type: int
  mode:
    description:
      - V(quick) takes about a minute, asks short answers at more and more requests at once, and says in C(answer) what users get
        and what limits it. O(workloads), O(levels), O(rounds) and O(seconds) are not used then.
    type: str
    choices: [full, quick]
    default: full
  knowledge_dirs:
    description: Your knowledge folders, on top of the shipped one. Kinds C(workloads), C(guards) and C(metrics) are used.
    type: list
    elements: path
    default: []
"""
