# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations


class ModuleDocFragment:
    # What a launch is planned from, beside the profile.
    DOCUMENTATION = r"""
options:
  cluster:
    description:
      - What the model is to run on. C(hosts), names in the order of ranks; C(nodes), what M(dgxspark.cluster.roce_info)
        read of them, by host; C(free_gib), free memory before the load in GiB, a number or by host; C(taken_gib), what
        other instances on the nodes hold; C(platform), versions of C(nccl), C(kernel), C(driver), C(firmware) and the
        kernel's C(cmdline); C(fabric), the fabric plan's hosts; C(nccl), options of
        P(dgxspark.cluster.nccl_env#filter).
      - The rank with the least memory counts. C(free_gib) and the kernel in C(platform) win over what C(nodes) show. A node that
        serves a model now shows what that model leaves; its figure is not used, and the plan says so. For a rank without a figure,
        the range seen on idle Sparks is used.
    type: dict
    default: {}
  overrides:
    description: >-
      The owner's overrides. C(variant); C(engine), C(parallel), C(settings), C(environment), laid over the profile key by key;
      C(instance) with C(name), C(vf_index), C(port), C(dist_port); C(accept), the ids of findings of severity error that are
      overruled and stay visible as warnings. A setting may have any name that the engine or C(knowledge/settings) knows for it; two
      names for one are refused, and so is what the plan sets for each rank itself, such as C(tp_size) or C(port).
    type: dict
    default: {}
"""

    # The input of a filter.
    PROFILE = r"""
options:
  _input:
    description: The id of a profile, the name of a model that has one profile, or a profile as a dictionary.
    type: raw
    required: true
"""

    KNOWLEDGE = r"""
options:
  knowledge_dirs:
    description: Your knowledge folders, on top of the shipped one.
    type: list
    elements: path
    default: []
requirements:
  - jsonschema (Python library, on the controller)
  - jmespath (Python library, on the controller)
"""
