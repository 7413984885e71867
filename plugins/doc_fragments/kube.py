# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations


class ModuleDocFragment:
    # How the cluster is reached; handed on to kubernetes.core.
    DOCUMENTATION = r"""
options:
  kubeconfig:
    description: >-
      The kubeconfig file on the controller. Without it, what E(KUBECONFIG) names, else C(~/.kube/config).
      C(group/dgxspark.cluster.kube) in C(module_defaults) sets it and O(context) once for all modules that reach a cluster.
    type: path
  context:
    description: A context of the kubeconfig.
    type: str
requirements:
  - kubernetes.core (Ansible collection)
  - kubernetes (Python library, on the controller)
"""

    # Whose objects are asked for.
    INSTANCE = r"""
options:
  namespace:
    description: The namespace of the ranks.
    type: str
    required: true
  instance:
    description: The instance.
    type: str
    required: true
"""
