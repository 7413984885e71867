#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: model_profile
short_description: Generate a profile from a model's own files
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Reads a model's configuration and its list of tensors, but no weights, and generates a complete profile from them - facts,
    precision by kind, size, parsers, engine, spread, context - with a first plan for the cluster. It runs on the controller and
    writes nothing.
  - What you have to decide is marked C(# decide:) in the text and listed in RV(decide).
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.serving.knowledge
options:
  model:
    description: >-
      A folder on the controller (the model's own, or one in the hub's cache), or else the model's name on the hub, C(org/name).
    type: str
    required: true
  files:
    description: >-
      The model's files as a node has them, parsed, by name - C(config.json), C(hf_quant_config.json), C(generation_config.json),
      C(model.safetensors.index.json). Nothing else is then read.
    type: dict
  revision:
    description: A commit, a branch or a tag of the model on the hub; with O(files) the commit that they are from.
    type: str
  hub_endpoint:
    description: The hub, or a mirror of it.
    type: str
    default: https://huggingface.co
  hub_token_file:
    description: >-
      A file on the controller with the hub's token, with mode 0600. The token is sent only to O(hub_endpoint), over https.
    type: path
  profile_id:
    description: >-
      The profile's id. By default the model's name in lower case, prefixed with C(own-) if a shipped profile has that id.
    type: str
  profile_model:
    description: The model's name on the hub, if O(model) is a folder that does not state it.
    type: str
  engine:
    description: >-
      The engine. Without it, that of the best-proven profile of the same architecture, else the newest vLLM that has a flag table.
    type: str
    choices: [sglang, vllm]
  nodes:
    description: The number of Sparks. By default the fewest that hold the model and a cache.
    type: int
  cluster:
    description: What the plan is for, as in M(dgxspark.cluster.launch_plan).
    type: dict
    default: {}
  path:
    description: >-
      Where the text will be written. An existing file that was edited or written by hand is refused unless O(overwrite) is set.
    type: path
  overwrite:
    description: Overwrite an edited file at O(path).
    type: bool
    default: false
requirements:
  - httpx (Python library, on the controller, for the hub)
seealso:
  - module: dgxspark.cluster.launch_plan
"""

EXAMPLES = r"""
- name: Generate a profile of a model on the hub
  dgxspark.cluster.model_profile:
    model: openai/gpt-oss-120b
    cluster: {hosts: "{{ groups['dgx'] }}"}
  register: made
  run_once: true
  delegate_to: localhost
"""

RETURN = r"""
profile:
  description: The profile, a dictionary that M(dgxspark.cluster.launch_plan) takes.
  type: dict
  returned: success
text:
  description: The profile as a file's text, with what is to be decided, and a seal that tells an edited file from an untouched one.
  type: str
  returned: success
decide:
  description: What you have to decide, each with the C(key) that it is about and C(text).
  type: list
  elements: dict
  returned: success
plan:
  description: The first plan, as M(dgxspark.cluster.launch_plan) returns it.
  type: dict
  returned: success
table:
  description: The first plan as lines for a terminal.
  type: list
  elements: str
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "model": {"type": "str", "required": True},
    "files": {"type": "dict"},
    "revision": {"type": "str"},
    "hub_endpoint": {"type": "str", "default": "https://huggingface.co"},
    "hub_token_file": {"type": "path", "no_log": False},
    "profile_id": {"type": "str"},
    "profile_model": {"type": "str"},
    "engine": {"type": "str", "choices": ["sglang", "vllm"]},
    "nodes": {"type": "int"},
    "cluster": {"type": "dict", "default": {}},
    "path": {"type": "path"},
    "overwrite": {"type": "bool", "default": False},
    "knowledge_dirs": {"type": "list", "elements": "path", "default": []},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
