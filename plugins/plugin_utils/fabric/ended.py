# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run of the fabric's part of site.yml ends with: what is there now, and what comes next."""

from __future__ import annotations

import typing as t
from collections.abc import Sequence

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Node
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.table import head
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.topologies import TOPOLOGIES

_BOOK = "ansible-playbook dgxspark.cluster."

Plain = t.Mapping[str, t.Any]


def ended(
    plan: Plain, nodes: t.Mapping[str, Node], lost: Sequence[str], would: Sequence[str], proven: bool
) -> list[str]:
    """Return the lines.

    nodes: what was read, by host. lost: hosts on which the run failed, or that it did not reach. would: hosts that check mode
    left as they were, and a run would change. proven: whether `verify` follows in the same run.
    """
    lines = head(plan)
    if TOPOLOGIES[plan["topology"]].by == "nothing":
        lines += [line for host, node in nodes.items() for line in _single(host, node)]
        following = {
            "models -e sparks=1": "which models one Spark serves",
            "site -i inventory": "K3s, if the inventory has its groups, and the model of k8s_dgx_model_profile",
        }
    else:
        made = [host for host in plan["hosts"] if host in nodes and host not in {*lost, *would}]
        if made:
            count = sum(len(function["vfs"]) for function in plan["hosts"][made[0]]["functions"])
            lines.append(f"As planned: {', '.join(made)}, {count} VFs on each with its MAC, MTU and address.")
        if would:
            lines.append(f"Check mode: nothing was changed. {', '.join(would)} would be.")
        if lost:
            lines.append(f"Not set up: {', '.join(lost)}. The reason is above.")
        following = {"verify -i inventory": "proves link, MTU, ARP, GID and RDMA over each VF"}
        if would or lost:
            following = {"site -i inventory --tags fabric": "sets them up" if would else "again, once that is mended"}
    if proven:
        return lines
    width = max(map(len, following))
    return [*lines, "Next:", *(f"  {_BOOK}{words.ljust(width)}  # {what}" for words, what in following.items())]


def _single(host: str, node: Node) -> list[str]:
    ports = [function.netdev for function in node.functions if function.netdev]
    if not ports:
        return [f"{host}: no fabric port was found, and none is needed."]
    linked = [port.name for port in ports if port.carrier]
    lines = [f"{host} has {', '.join(port.name for port in ports)}: none has a cable, and none is needed."]
    if linked:
        lines = [
            f"{host}: {', '.join(linked)} has a link. With another Spark at its other end there is a fabric to build: give "
            f"`{_BOOK}discover` the addresses of both."
        ]
    if left := sum(function.numvfs or 0 for function in node.functions):
        lines.append(
            f"{host} has {left} VFs of a fabric that was there before; `{_BOOK}teardown -i inventory` removes them."
        )
    return lines
