#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: model_catalogue
short_description: List what a number of Sparks can run
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Plans every profile and variant for this many Sparks and lists those that fit, with the memory that they leave, their speed
    (measured by an equal run, or estimated), context, verdict and source; and the others with the reason. It needs no Spark.
  - M(dgxspark.cluster.launch_plan) decides whether a profile fits. Runs on the controller through its action plugin.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.serving.knowledge
options:
  sparks:
    description: How many Sparks there are.
    type: int
    required: true
  sort:
    description: >-
      The order. V(verdict), what a run has proven first, then by speed; V(speed), tokens/s of a single request; V(throughput),
      tokens/s of eight at once; V(memory), what stays free; V(context); V(sparks), the fewest first; V(model), by name.
    type: str
    default: verdict
requirements:
  - jsonschema, jmespath and packaging (Python libraries, on the controller)
seealso:
  - module: dgxspark.cluster.kube_models
  - module: dgxspark.cluster.launch_plan
"""

EXAMPLES = r"""
- name: List what two Sparks can run, the fastest first
  dgxspark.cluster.model_catalogue:
    sparks: 2
    sort: speed
  register: listed
  delegate_to: localhost
"""

RETURN = r"""
models:
  description: >-
    C(fits) and C(others), each a list of variants with C(profile), C(variant), C(model), C(sparks), C(quantization), C(state)
    (V(fits), V(tight), V(not known) or V(does not fit)), C(verdict), C(context), C(left_gib), C(speed) (C(n1), C(n4), C(n8)),
    C(origin) (V(measured) or V(estimated)), C(source) and C(why).
  type: dict
  returned: success
table:
  description: RV(models) as lines for a terminal.
  type: list
  elements: str
  returned: success
page:
  description: RV(models) as a self-contained HTML page.
  type: str
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "sparks": {"type": "int", "required": True},
    "sort": {"type": "str", "default": "verdict"},
    "knowledge_dirs": {"type": "list", "elements": "path", "default": []},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
