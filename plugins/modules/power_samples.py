#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: power_samples
short_description: Read the power of a node's GPU
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Reads the power that the node's GPUs draw, by C(nvidia-smi), once or over a time. It changes nothing.
  - Over a time it is meant for C(async) with C(poll=0). It ends when the file O(path) is removed.
  - What a Spark draws besides its GPU is not in it.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  path:
    description: A file. As long as it exists, the power is read again and again. By default it is read once.
    type: path
  seconds:
    description: Seconds after which the readings end, whether or not O(path) exists.
    type: float
    default: 0
  every:
    description: Seconds between two readings.
    type: float
    default: 1
requirements:
  - C(nvidia-smi) on the node
seealso:
  - module: dgxspark.cluster.bench_energy
"""

EXAMPLES = r"""
- name: Read the power once
  dgxspark.cluster.power_samples:
  register: power
"""

RETURN = r"""
samples:
  description: Pairs of a time, in seconds since 1970 by the node's clock, and the watts of all GPUs together.
  returned: success
  type: list
  elements: list
  sample: [[1790000000.25, 41.5]]
problem:
  description: Why there are no more readings, or an empty text.
  returned: success
  type: str
  sample: nvidia-smi is not installed
offset_s:
  description: How far the node's clock is ahead of the controller's, in seconds, to within half of the time that the task took.
  returned: without O(path), if there is a reading
  type: float
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import module_runner
from ansible_collections.dgxspark.cluster.plugins.module_utils.power import read_power

ARGUMENTS: dict[str, dict[str, object]] = {
    "path": {"type": "path"},
    "seconds": {"type": "float", "default": 0},
    "every": {"type": "float", "default": 1},
}


def main() -> None:
    """Read the power and return it."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    wanted = module.params
    samples, problem = read_power(module_runner(module), wanted["path"], wanted["seconds"], wanted["every"])
    module.exit_json(changed=False, samples=samples, problem=problem)


if __name__ == "__main__":
    main()
