# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: kube_api_key
short_description: Name the Secret of an API's key
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns the name of the Secret for a key, and refuses an invalid key. Each key has its own name, so that ranks are
    replaced when the key is. The name does not reveal the key.
  - The key itself appears in no error or result.
positional: namespace, instance
options:
  _input:
    description: The key, of 16 to 1024 letters, digits and C(._~+/=-).
    type: str
    required: true
  namespace:
    description: The namespace of the instance.
    type: str
    required: true
  instance:
    description: The instance's name.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Show which Secret the key will be in
  ansible.builtin.debug:
    msg: "{{ k8s_dgx_api_key | dgxspark.cluster.kube_api_key('dgx-serving', 'default') }}"
"""

RETURN = r"""
_value:
  description: The name of the Secret.
  type: str
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"kube_api_key": as_filter("kube_api_key", "kube.api_key:secret_name")}
