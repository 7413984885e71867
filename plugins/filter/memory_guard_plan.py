# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: memory_guard_plan
short_description: Say what the memory guard lays on a node
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Makes the files of the role memory_guard of the figures of a hardware class (C(knowledge/memory_guard)).
  - Figures that contradict each other are refused.
positional: overrides, parts, knowledge_dirs
options:
  _input:
    description: The hardware class, such as V(spark).
    type: str
    required: true
  overrides:
    description: >-
      Figures over the class's own, in its shape, such as C({kill: {term_mib: 768}}).
    type: dict
    default: {}
  parts:
    description: What is wanted of C(protected), C(kill) and C(load).
    type: list
    elements: str
    default: [kill, load, protected]
  knowledge_dirs:
    description: The owner's folders of knowledge.
    type: list
    elements: str
    default: []
requirements:
  - jsonschema (Python library, on the controller)
"""

EXAMPLES = r"""
- name: Show which files a Spark would get
  ansible.builtin.debug:
    msg: "{{ ('spark' | dgxspark.cluster.memory_guard_plan).files | map(attribute='path') }}"
"""

RETURN = r"""
_value:
  description: >-
    C(files), each with C(path), C(content) and C(mode); the units to C(enable) and, after a change, to C(restart);
    C(adjust), the OOM score by unit; and whether C(earlyoom) is needed.
  type: dict
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


def memory_guard_plan(profile: str, overrides: t.Any = None, parts: t.Any = None, knowledge_dirs: t.Any = ()) -> t.Any:
    """Return the plan."""
    from ansible_collections.dgxspark.cluster.plugins.plugin_utils.memory_guard import PARTS, plan

    return plan(str(profile), overrides, PARTS if parts is None else parts, [str(path) for path in knowledge_dirs])


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"memory_guard_plan": as_filter("memory_guard_plan", memory_guard_plan)}
