#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: serving_canary
short_description: Send one chat request to each rank group and judge the answer
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Sends one streamed chat request to each OpenAI-compatible server, from the controller, and fails if one is refused, hangs,
    breaks off, or returns nothing, only reasoning, or garbage. A server may do any of these although its C(/health) answers.
  - Guards read the text as it arrives (a phrase over and over, an exact loop, very few words, one single token), and
    compare the requests after the end (equal speeds, no content, all cut at the token limit).
  - It sends requests in check mode, too; they change nothing on any node.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  groups:
    description: The rank groups, each one model server.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Its name in messages, such as the instance's.
        type: str
        required: true
      url:
        description: Its address with the version, such as V(http://10.0.0.1:30000/v1).
        type: str
        required: true
      model:
        description: The served model's name. By default the first that the server lists.
        type: str
      hosts:
        description: The hosts of its ranks, for the report.
        type: list
        elements: str
        default: []
  prompt:
    description: The prompt.
    type: str
    default: >-
      Write the numbers from one to twenty in English words, separated by commas. Then say in two sentences what a
      lighthouse is for.
  expect:
    description:
      - A regular expression that the answer must contain, regardless of case. No guard detects fluent nonsense; this
        does.
      - By default the answer may be any text that is not garbage.
    type: str
  max_tokens:
    description: Maximum tokens of the answer, reasoning included.
    type: int
    default: 512
  timeout:
    description: How long one request may take in all, in seconds.
    type: float
    default: 120
  api_key:
    description: The servers' API key. It is sent only to them and never shown.
    type: str
  validate_certs:
    description: Whether a server's certificate is checked.
    type: bool
    default: true
  ca_path:
    description: A file with the CA certificates for the servers' certificates.
    type: path
  knowledge_dirs:
    description: Your knowledge folders, on top of the shipped one. The guards' limits are of kind C(guards).
    type: list
    elements: path
    default: []
requirements:
  - jsonschema (Python library, on the controller)
seealso:
  - module: dgxspark.cluster.fabric_report
"""

EXAMPLES = r"""
- name: See whether the model answers, and sensibly
  dgxspark.cluster.serving_canary:
    groups:
      - name: default
        url: http://10.0.0.1:30000/v1
    expect: nineteen
  run_once: true
  delegate_to: localhost
"""

RETURN = r"""
groups:
  description: The outcome of each request.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: The rank group.
      returned: always
      type: str
    status:
      description: V(ok) or V(failed).
      returned: always
      type: str
    cause:
      description: >-
        Why it failed, such as V(tokens.refused), V(tokens.unavailable), V(tokens.hang), V(tokens.truncated),
        V(tokens.garbage), V(tokens.empty) or V(tokens.reasoning-only).
      returned: always
      type: str
    message:
      description: What failed, in words.
      returned: always
      type: str
    remedy:
      description: What to do about it.
      returned: always
      type: str
    ttft_s:
      description: Time to the first text in seconds, or null.
      returned: always
      type: float
    tokens:
      description: Tokens received; pieces of text if C(tokens_are_counted) is false.
      returned: always
      type: int
    tokens_per_s:
      description: Speed after the first token, or null where it is unknown.
      returned: always
      type: float
    finish_reason:
      description: Why the answer ended, as the server says.
      returned: always
      type: str
    guard:
      description: The guard that found garbage, or null.
      returned: always
      type: str
    text:
      description: How the answer begins.
      returned: always
      type: str
signs:
  description: What all requests have in common, each with C(id), C(severity), C(message) and C(remedy).
  returned: always
  type: list
  elements: dict
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

GROUP: dict[str, dict[str, object]] = {
    "name": {"type": "str", "required": True},
    "url": {"type": "str", "required": True},
    "model": {"type": "str"},
    "hosts": {"type": "list", "elements": "str", "default": []},
}
ARGUMENTS: dict[str, dict[str, object]] = {
    "groups": {"type": "list", "elements": "dict", "required": True, "options": GROUP},
    "prompt": {
        "type": "str",
        "default": "Write the numbers from one to twenty in English words, separated by commas. "
        "Then say in two sentences what a lighthouse is for.",
    },
    "expect": {"type": "str"},
    "max_tokens": {"type": "int", "default": 512, "no_log": False},
    "timeout": {"type": "float", "default": 120},
    "api_key": {"type": "str", "no_log": True},
    "validate_certs": {"type": "bool", "default": True},
    "ca_path": {"type": "path"},
    "knowledge_dirs": {"type": "list", "elements": "path", "default": []},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
