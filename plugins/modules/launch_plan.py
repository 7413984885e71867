#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: launch_plan
short_description: Plan how a model is launched on Sparks
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Says before any weight is loaded whether a model will run, why not, how much memory it takes, and what each rank is
    started with. It decides on the controller, where profiles and knowledge lie, and touches no node.
  - The verdict is V(blocked) where a rule of severity error holds or an equal measured configuration was bad, V(proven)
    where an equal one was stable, else V(unproven).
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.serving
  - dgxspark.cluster.serving.knowledge
options:
  profile:
    description: The id of a profile, the name of a model that has one profile, or a profile as a dictionary.
    type: raw
    required: true
  traffic_shape:
    description:
      - Chooses the variant that was measured best for 1, 4 or 8 requests at once, or a compromise. A variant in
        O(overrides) wins.
    type: str
    choices: [single, agents, throughput, mixed]
  model_config:
    description:
      - The model's own C(config.json) on the controller, or the folder that has it and perhaps C(hf_quant_config.json).
        It gives the facts that O(profile) does not state; where both do, the profile counts, and a difference is told.
    type: path
  fail_when_blocked:
    description: Fail where the verdict is V(blocked), with every error and its remedy.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Plan the model, and stop where it would not run
  dgxspark.cluster.launch_plan:
    profile: "{{ k8s_dgx_model_profile }}"
    cluster:
      hosts: "{{ groups['dgx'] }}"
      nodes: "{{ dict(groups['dgx'] | zip(groups['dgx'] | map('extract', hostvars, 'dgxspark_roce'))) }}"
  run_once: true
  delegate_to: localhost
"""

RETURN = r"""
plan:
  description: The plan.
  type: dict
  returned: success
  contains:
    verdict:
      description: V(blocked), V(unproven) or V(proven).
      type: str
      returned: always
    conflict:
      description: Whether rules and measured rows disagree.
      type: bool
      returned: always
    findings:
      description: What rules say, with C(rule), C(severity), C(names), C(message), C(remedy) and C(source).
      type: list
      elements: dict
      returned: always
    evidence:
      description: Equal and near measured rows, with C(differs) and what they came to.
      type: list
      elements: dict
      returned: always
    memory:
      description: The memory of one rank in GiB, with C(floor), C(ceiling) and C(chosen) of the engine's knob.
      type: dict
      returned: always
    patches:
      description:
        - The start-up patches that this image needs at this version and these settings, with C(id), C(title), C(why),
          C(package), C(file) and C(edits); C(moved), where the code that they change went in later versions. As JSON, this
          is what C(plugins/module_utils/serving/patches.py) takes in the container, before the engine starts.
      type: list
      elements: dict
      returned: always
    weights:
      description: The repositories that ranks load, each with C(repo) and the C(revision) that the profile pins (or null).
      type: list
      elements: dict
      returned: always
    ranks:
      description: For each rank C(host), C(settings), C(argv) and C(env).
      type: list
      elements: dict
      returned: always
recommendation:
  description: The choice for O(traffic_shape), with its measured row or the words that there is none.
  type: dict
  returned: with O(traffic_shape)
"""

from ansible.module_utils.basic import AnsibleModule

ARGUMENTS: dict[str, dict[str, object]] = {
    "profile": {"type": "raw", "required": True},
    "cluster": {"type": "dict", "default": {}},
    "overrides": {"type": "dict", "default": {}},
    "traffic_shape": {"type": "str", "choices": ["single", "agents", "throughput", "mixed"]},
    "model_config": {"type": "path"},
    "fail_when_blocked": {"type": "bool", "default": True},
    "knowledge_dirs": {"type": "list", "elements": "path", "default": []},
}


def main() -> None:
    """Never reached by way of Ansible: the action plugin of this name does the work on the controller."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    module.fail_json(
        msg="launch_plan runs on the controller, by its action plugin. Call it as dgxspark.cluster.launch_plan."
    )


if __name__ == "__main__":
    main()
