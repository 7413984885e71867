#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_transport
short_description: Prove from NCCL's logs what carries the traffic between nodes
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Reads the logs of all ranks (NCCL 2.20 to 2.30, C(NCCL_DEBUG=INFO)) and says whether every channel of every
    communicator between nodes uses RDMA, which HCA and GID it uses, and if not, why.
  - V(ib) requires complete evidence, which is every rank of the job, every channel, both ends of each, and no sign of failure. A
    missing rank or channel makes it V(unknown).
  - The task fails if the verdict is not the one in O(expect), with the cause and its remedy.
  - A log to which a later run was appended is no proof. A process without a communicator, where others have one, and a chosen
    network that no channel uses make it V(unknown), too; several runs in the logs are reported.
  - Logs of any size are read in constant memory, long lines in time that grows with their length. Launcher prefixes, timestamps,
    colours, Windows line ends, interleaved ranks and gzip are accepted, and so is what runtimes and collectors wrap around a line
    (CRI with its partial lines, Docker's json-file, JSON records).
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  text:
    description: Text of a log.
    type: str
  paths:
    description: Log files on this host; globs are expanded. An empty or binary file is an error.
    type: list
    elements: path
    default: []
  pods:
    description:
      - Pods whose logs are read through the API, with M(kubernetes.core.k8s_info) and M(kubernetes.core.k8s_log) on the task's
        host. Delegate the task to a host that can reach the API.
    type: dict
    suboptions:
      label_selectors:
        description: Labels, each as C(key=value).
        type: list
        elements: str
        required: true
      namespace:
        description: Their namespace.
        type: str
        required: true
      container:
        description: The container, where a pod has several.
        type: str
      previous:
        description: Read the logs of the previous containers.
        type: bool
        default: false
      connection:
        description: Options of C(kubernetes.core) for the API, such as C(kubeconfig) and C(context).
        type: dict
        default: {}
  parts:
    description: What other hosts returned as RV(log), to be judged together.
    type: list
    elements: dict
    default: []
  world_size:
    description: How many ranks the job has. Without it, the largest communicator in the logs has to contain every rank seen.
    type: int
  nodes:
    description: How many machines they run on.
    type: int
  ranks_per_node:
    description: How many ranks are on each machine.
    type: int
  expect:
    description: The expected verdict. The task fails if it is another one. V(any) accepts every verdict.
    type: str
    choices: [ib, socket, p2p, any]
    default: ib
  return_log:
    description: Return what O(parts) takes.
    type: bool
    default: false
  return_readings:
    description: >-
      Look for the lines that the knowledge base's kind C(signatures) knows of any component in O(text) and in the logs of
      O(pods), and return them.
    type: bool
    default: false
  knowledge_dirs:
    description: Your knowledge folders, on top of the shipped one.
    type: list
    elements: path
    default: []
  signatures:
    description: Lines and their meaning. The action plugin sets it; leave it out.
    type: list
    elements: dict
    default: []
requirements:
  - jsonschema (Python library, on the controller)
seealso:
  - plugin: dgxspark.cluster.nccl_env
    plugin_type: filter
  - module: dgxspark.cluster.roce_gid
"""

EXAMPLES = r"""
- name: Verify that every rank of the model uses RoCE
  dgxspark.cluster.nccl_transport:
    pods:
      namespace: models
      label_selectors: [app=sglang]
    world_size: 4
    nodes: 4
  delegate_to: localhost
  run_once: true

- name: Read each node's own log
  dgxspark.cluster.nccl_transport:
    paths: [/var/log/nccl/*.log]
    expect: any
    return_log: true
  register: read

- name: Judge them together
  dgxspark.cluster.nccl_transport:
    parts: "{{ ansible_play_hosts | map('extract', hostvars, ['read', 'log']) }}"
    world_size: "{{ ansible_play_hosts | length }}"
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
verdict:
  description:
    - V(ib), V(socket), V(p2p) (nothing leaves a node), V(mixed), V(failed), or V(unknown) where the logs do not prove
      what carries the traffic.
  type: str
  returned: when logs could be read
  sample: ib
complete:
  description: Whether all ranks and channels are in the logs.
  type: bool
  returned: when logs could be read
summary:
  description: The verdict in a sentence.
  type: str
  returned: when logs could be read
findings:
  description:
    - Causes, the likeliest first, each with a stable C(id), C(severity), C(subject), C(message), C(remedy) and the
      C(line) that shows it.
  type: list
  elements: dict
  returned: when logs could be read
gaps:
  description: What is missing to prove the verdict.
  type: list
  elements: str
  returned: when logs could be read
world:
  description: Ranks C(expected), C(nranks) of the largest communicator, and how many were C(seen).
  type: dict
  returned: when logs could be read
versions:
  description: Versions of NCCL.
  type: list
  elements: str
  returned: when logs could be read
communicators:
  description:
    - Each communicator with C(id), C(nranks), C(nodes), C(channels), C(scope), C(state), C(networks), C(inside),
      C(missing_ranks), C(gaps), C(gpudirect), C(pxn) and C(rings).
  type: list
  elements: dict
  returned: when logs could be read
ranks:
  description: Each process with its C(rank) in its largest communicator, C(host), C(version), C(network), C(plugin), C(devices) and C(settings).
  type: list
  elements: dict
  returned: when logs could be read
links:
  description:
    - What connects two ranks, as each side reports it. C(rank), C(peer), C(direction), C(channels), C(transport), C(ports) (HCA,
      port, link layer, GID, RoCE version, active MTU), C(gpudirect), C(pxn_rank).
  type: list
  elements: dict
  returned: when logs could be read
log:
  description: The evidence, to be judged with that of other hosts.
  type: dict
  returned: with O(return_log)
readings:
  description: >-
    The known lines found in each log, as M(dgxspark.cluster.fabric_report) takes it. Each has C(name), C(lines) and C(hits).
  type: list
  elements: dict
  returned: with O(return_readings), also if the logs contain nothing from NCCL
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.evidence import pack
from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.files import expand, read_lines
from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.log import Reader
from ansible_collections.dgxspark.cluster.plugins.module_utils.signatures import Signature
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, from_plain

PODS: dict[str, dict[str, object]] = {
    "label_selectors": {"type": "list", "elements": "str", "required": True},
    "namespace": {"type": "str", "required": True},
    "container": {"type": "str"},
    "previous": {"type": "bool", "default": False},
    "connection": {"type": "dict", "default": {}},
}
ARGUMENTS: dict[str, dict[str, object]] = {
    "text": {"type": "str"},
    "paths": {"type": "list", "elements": "path", "default": []},
    "pods": {"type": "dict", "options": PODS},
    "parts": {"type": "list", "elements": "dict", "default": []},
    "world_size": {"type": "int"},
    "nodes": {"type": "int"},
    "ranks_per_node": {"type": "int"},
    "expect": {"type": "str", "choices": ["ib", "socket", "p2p", "any"], "default": "ib"},
    "return_log": {"type": "bool", "default": False},
    "return_readings": {"type": "bool", "default": False},
    "knowledge_dirs": {"type": "list", "elements": "path", "default": []},
    "signatures": {"type": "list", "elements": "dict", "default": []},
}


def main() -> None:
    """Read the files on this host; the action plugin of this name, which has the knowledge, judges."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    try:
        reader = Reader([from_plain(Signature, entry) for entry in module.params["signatures"]])
        for name in expand(module.params["paths"]):
            reader.read(name, read_lines(name))
        log = pack(reader.finish())
    except CollectionError as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(changed=False, log=log)


if __name__ == "__main__":
    main()
