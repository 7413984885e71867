# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes a run has cordoned. The node itself says so, for the run may be cut off; an owner's own cordon has no such mark, and stays."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

MARK = "dgxspark.cluster/drained"  # an annotation of the node


def cordon() -> str:
    """Return the merge patch that cordons a node and marks it as ours, in one step."""
    return json.dumps({"metadata": {"annotations": {MARK: "by the role k3s"}}, "spec": {"unschedulable": True}})


def uncordon() -> str:
    """Return the merge patch that undoes `cordon`."""
    return json.dumps({"metadata": {"annotations": {MARK: None}}, "spec": {"unschedulable": None}})


def ours(listed: t.Any) -> list[str]:
    """Return the nodes of a NodeList that a run has cordoned, and that have not been given back."""
    return [name for name, marked, _cordoned in _nodes(listed) if marked]


def theirs(listed: t.Any) -> list[str]:
    """Return the nodes of a NodeList that somebody else has cordoned."""
    return [name for name, marked, cordoned in _nodes(listed) if cordoned and not marked]


def stays(names: t.Sequence[str], why: str) -> str:
    """Return in words that nodes may be left cordoned, and the way out."""
    each = " ".join(f"`k3s kubectl uncordon {name}`" for name in names)
    return (
        f"{', '.join(names)}: a run has drained it, and could not let pods in again: {why} It stays cordoned until the role k3s has run "
        f"again and ended well, or until you let pods in, on a server: {each}."
    )


def _nodes(listed: t.Any) -> list[tuple[str, bool, bool]]:
    try:
        return [
            (
                str(node["metadata"]["name"]),
                MARK in (node["metadata"].get("annotations") or {}),
                bool((node.get("spec") or {}).get("unschedulable")),
            )
            for node in listed["items"]
        ]
    except (AttributeError, LookupError, TypeError):
        text = "the cluster's answer is not a list of nodes. See k3s kubectl get nodes on the server."
        raise CollectionError(text) from None
