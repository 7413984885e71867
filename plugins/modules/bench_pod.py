#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: bench_pod
short_description: Measure a served model from a pod inside its cluster
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Measures like M(dgxspark.cluster.bench), with the same program, from a pod - for a controller with a slow connection
    to the model.
  - The pod runs the engine's image once, without a GPU, weights, VFs or an API token, and is always deleted afterwards.
    Its log has the progress and the report, but not the answers' full text.
  - If another run is measuring the same instance, the task fails and leaves it alone. Leftovers of killed runs are
    removed.
  - The task fails if a level is not good. Its result still has the whole report.
  - Skipped in check mode; no pod is created.
  - Runs on the controller through its action plugin.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.bench
  - dgxspark.cluster.kube
options:
  url:
    description: The server's address with the version, as a pod reaches it.
    type: str
    required: true
  instance:
    description: The instance that is measured.
    type: str
    required: true
  image:
    description: The image that its ranks run. It needs Python 3.10 or newer, and no package.
    type: str
    required: true
  secret:
    description: The name of the Secret in the same namespace whose C(key) the server requires. Without it, no key is sent.
    type: str
  host:
    description: The host on which the pod runs.
    type: str
    required: true
  kubernetes:
    description: Namespace, pull policy, secrets and node names, as M(dgxspark.cluster.kube_serving) takes them.
    type: dict
    default: {}
  timeout:
    description: Seconds for the pod, including the image pull.
    type: int
    default: 14400
requirements:
  - jsonschema (Python library, on the controller)
seealso:
  - module: dgxspark.cluster.bench
  - module: dgxspark.cluster.kube_running
"""

EXAMPLES = r"""
- name: See what runs
  dgxspark.cluster.kube_running:
    namespace: dgx-serving
    instance: default
  register: running
  run_once: true
  delegate_to: localhost

- name: Measure it from its head's node
  dgxspark.cluster.bench_pod:
    url: "{{ running.inside }}"
    instance: default
    image: "{{ running.image.name }}"
    secret: "{{ running.secret | default(omit, true) }}"
    host: "{{ running.hosts | first }}"
    levels: [1, 8]
  run_once: true
  delegate_to: localhost
  register: measured
"""

RETURN = r"""
bench:
  description: The report, as M(dgxspark.cluster.bench) returns it, with C(from) V(pod).
  returned: when the server could be asked
  type: dict
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
    "instance": {"type": "str", "required": True},
    "image": {"type": "str", "required": True},
    "secret": {"type": "str", "no_log": False},
    "host": {"type": "str", "required": True},
    "kubernetes": {"type": "dict", "default": {}},
    "timeout": {"type": "int", "default": 14400},
    "knowledge_dirs": {"type": "list", "elements": "path", "default": []},
    "kubeconfig": {"type": "path"},
    "context": {"type": "str"},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
