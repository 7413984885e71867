#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: bench
short_description: Benchmark a served model at several concurrency levels
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Sends 1, 4, 8 … concurrent streamed requests to an OpenAI-compatible server, from the controller, and returns the
    figures of each request and each level. Speed counts only for answers that pass the quality guards at that
    concurrency.
  - Some guards read each stream as it arrives; others compare the requests of a level after they end. A level with garbage is
    V(garbage), whatever its speed; one with a failed request is V(failed).
  - The task fails if a level is not good. Its result still has the whole report, so it can be written before the play
    ends (C(failed_when) V(false), then an assertion).
  - Skipped in check mode; nothing is sent.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.bench
options:
  url:
    description: The server's URL with the version, such as V(http://10.0.0.1:30000/v1).
    type: str
    required: true
  key_file:
    description: A file on the controller with the server's API key. It is sent only to the server and never shown.
    type: path
  api_key:
    description: The server's API key, instead of O(key_file).
    type: str
  keep_to:
    description: A folder on the controller for every answer's whole text, one compressed file for each workload and level.
    type: path
  log_file:
    description: A file on the controller with the engine's log, read for the acceptance figures if the server's metrics lack them.
    type: path
  crosscheck:
    description:
      - Another tool to run against the same server afterwards, as installed on the controller. Its figures are shown next to these
        and not judged. If it returns none, the task fails with the reason, and the measurements are still returned.
      - V(llama-benchy) is a PyPI package. It is refused if the server requires an API key, since the tool takes the key on its
        command line.
    type: str
    choices: [llama-benchy]
  crosscheck_arguments:
    description: More arguments for that tool, such as V(--tokenizer) and its folder.
    type: list
    elements: str
    default: []
  depths:
    description: >-
      Tokens of context before each prompt of that tool. With O(mode=arena), by default those of Spark Arena (0, 4096, 8192, 16384, 32768,
      65535 and 100000) that fit into the context that the server states.
    type: list
    elements: int
    default: []
  validate_certs:
    description: Whether the server's certificate is checked.
    type: bool
    default: true
  ca_path:
    description: A file with the CA certificates for the server's certificate.
    type: path
requirements:
  - jsonschema (Python library, on the controller)
seealso:
  - module: dgxspark.cluster.bench_pod
  - module: dgxspark.cluster.serving_canary
"""

EXAMPLES = r"""
- name: Measure with one and with eight concurrent requests
  dgxspark.cluster.bench:
    url: http://10.0.0.1:30000/v1
    workloads: [chat, generation]
    levels: [1, 8]
    keep_to: reports/answers
  run_once: true
  delegate_to: localhost
  register: measured
"""

RETURN = r"""
bench:
  description: The report; its format is defined by C(docs/schema/bench-report.json).
  returned: when the server could be asked
  type: dict
  contains:
    format:
      description: The version of this format.
      returned: always
      type: int
    from:
      description: Where the requests came from, V(controller) or V(pod).
      returned: always
      type: str
    url:
      description: The URL that was queried.
      returned: always
      type: str
    model:
      description: The served model's name.
      returned: always
      type: str
    started:
      description: When the run began, in UTC.
      returned: always
      type: str
    finished:
      description: When the run ended, in UTC.
      returned: always
      type: str
    mode:
      description: V(full) or V(quick).
      returned: always
      type: str
    client_share:
      description:
        - The largest share of a level's time in which the client's one thread was busy. Near 1, the figures are the client's, not
          the server's.
        - On Linux without TLS, the kernel timestamps arriving bytes, so a busy client does not make tokens look late.
      returned: always
      type: float
    workloads:
      description: Each workload's C(name) and C(levels).
      returned: always
      type: list
      elements: dict
    acceptance:
      description: The acceptance of speculation over the whole run, C(length), C(rate) and C(source), or null.
      returned: always
      type: dict
    engine:
      description: C(name) and C(version), if the server reports them.
      returned: always
      type: dict
    power:
      description: Whose power the levels' C(energy) is, C(hosts) and C(problem), once M(dgxspark.cluster.bench_energy) has added it; else null.
      returned: always
      type: dict
    crosscheck:
      description: The other tool's C(tool), C(version), C(command), C(problem) and figures by level, or null.
      returned: always
      type: dict
    answer:
      description: The conclusion, in sentences. Empty in mode V(full).
      returned: always
      type: list
      elements: str
problem:
  description: Why a level is not good; else empty.
  returned: when the server could be asked
  type: str
table:
  description: The report as lines for a terminal.
  returned: when the server could be asked
  type: list
  elements: str
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils import bench
from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    **bench.ARGUMENTS,
    "url": {"type": "str", "required": True},
    "key_file": {"type": "path", "no_log": False},
    "api_key": {"type": "str", "no_log": True},
    "keep_to": {"type": "path"},
    "log_file": {"type": "path"},
    "crosscheck": {"type": "str", "choices": ["llama-benchy"]},
    "crosscheck_arguments": {"type": "list", "elements": "str", "default": []},
    "depths": {"type": "list", "elements": "int", "default": []},
    "validate_certs": {"type": "bool", "default": True},
    "ca_path": {"type": "path"},
    "knowledge_dirs": {"type": "list", "elements": "path", "default": []},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
