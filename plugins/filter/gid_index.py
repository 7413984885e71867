# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: gid_index
short_description: Check whether one GID index fits all ranks
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - C(NCCL_IB_GID_INDEX) is one number for every RDMA device of every rank. This filter says whether one fits all of them, from what
    M(dgxspark.cluster.roce_gid) found on each host.
  - By default it is better left unset, since NCCL 2.21 and newer pick the index for each device.
options:
  _input:
    description: By host, the C(gids) that M(dgxspark.cluster.roce_gid) returned there.
    type: dict
    required: true
seealso:
  - plugin: dgxspark.cluster.roce_gid
    plugin_type: module
"""

EXAMPLES = r"""
- name: Refuse to pin an index that does not fit all
  ansible.builtin.assert:
    that: common.fits
    fail_msg: "{{ common.message }}"
  vars:
    common: "{{ {'spark1': checked1.gids, 'spark2': checked2.gids} | dgxspark.cluster.gid_index }}"
"""

RETURN = r"""
_value:
  description: The answer.
  type: dict
  contains:
    fits:
      description: Whether one index fits all.
      type: bool
    index:
      description: The index, null where none fits.
      type: int
    message:
      description: A sentence that names the index, or which hosts and RDMA devices differ.
      type: str
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


def gid_index(per_host: t.Any) -> t.Any:
    """Return whether one GID index fits all hosts."""
    from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.gids import GidEntry, common_index
    from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import read_in
    from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

    if not isinstance(per_host, t.Mapping) or not all(isinstance(gids, list) for gids in per_host.values()):
        raise CollectionError("a dictionary with a list of GID entries for each host is needed.")
    return common_index(
        {
            host: [read_in(GidEntry, entry, f"{host}[{i}]") for i, entry in enumerate(gids)]
            for host, gids in per_host.items()
        }
    )


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"gid_index": as_filter("gid_index", gid_index)}
