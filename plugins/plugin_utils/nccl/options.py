# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turns the role nccl's variables and a host's facts into options of its environment (`environment.Options`, plain)."""

from __future__ import annotations

import typing as t

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.topologies import TOPOLOGIES

Plain = dict[str, t.Any]
Number = t.TypeVar("Number", int, float)
Variable = t.Callable[[str], t.Any]  # returns a variable of the host, templated; None if unset


def number(variable: Variable, name: str, kind: type[Number]) -> Number | None:
    """Return a variable as a number, or None if it is null. CollectionError if it is not a number."""
    value = variable(name)
    try:
        return None if value is None else kind(value)
    except (TypeError, ValueError):
        raise CollectionError(f"{name}: {value!r} is not a number.") from None


def truth(variable: Variable, name: str) -> bool | None:
    """Return a variable as a boolean, or None if it is null."""
    value = variable(name)
    return None if value is None else bool(boolean(value, strict=False))


def seen(planned: t.Mapping[str, t.Any]) -> bool:
    """Whether the names of all VFs of a planned host are known. In check mode the VFs may not exist yet."""
    return all(vf.get("hca") is not None for function in planned["functions"] for vf in function["vfs"])


def management(other: t.Sequence[t.Mapping[str, t.Any]], ansible_host: t.Any) -> str | None:
    """Return the interface that Ansible connects to, else the only one outside the fabric."""
    own = [each["name"] for each in other if any(ip.startswith(f"{ansible_host}/") for ip in each["ipv4"])]
    return str(own[0]) if own else str(other[0]["name"]) if len(other) == 1 else None


def options_of(variable: Variable, attachment: str, gids: t.Sequence[t.Any] | None) -> Plain:
    """Return the options of one host; gids: `roce_gid`'s result for it, which proves a pinned index.

    If cables lead to different neighbours, no VF reaches all ranks: start-up uses the management network, in a pod the pod network.
    """
    index, start_up = number(variable, "nccl_gid_index", int), variable("nccl_bootstrap")
    topology = TOPOLOGIES.get(str(variable("dgxspark_plan")["topology"]))
    if start_up is None and topology is not None and topology.neighbours:
        other = variable("dgxspark_roce")["other"]
        start_up = "eth0" if attachment == "vf" else management(other, variable("ansible_host") or "")
    return {
        "attachment": attachment,
        "transport": variable("nccl_transport"),
        "bootstrap": start_up,
        "debug": variable("nccl_debug"),
        "vf_index": number(variable, "nccl_vf_index", int),
        "merge_nics": truth(variable, "nccl_merge_nics"),
        "gid_index": index,
        "gids": None if index is None or gids is None else {variable("inventory_hostname"): gids},
    }
