# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the cluster's nodes with their plans."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, Finding


def problems(listed: t.Any, plans: t.Mapping[str, t.Mapping[str, t.Any]]) -> list[Finding]:
    """Find planned nodes that are missing, not Ready, of another release, or with another address.

    listed: a NodeList of the API. plans: by host; those without a node_name are skipped.
    """
    try:
        return _problems(listed, plans)
    except (AttributeError, LookupError, TypeError):
        text = "the cluster's answer is not a list of nodes. See k3s kubectl get nodes on the server."
        raise CollectionError(text) from None


def _problems(listed: t.Any, plans: t.Mapping[str, t.Mapping[str, t.Any]]) -> list[Finding]:
    nodes = {node["metadata"]["name"]: node for node in listed["items"]}
    findings = []
    for host, plan in plans.items():
        name = plan.get("node_name")
        if name is None:
            continue
        message = _wrong(nodes.get(name), plan)
        if message:
            unit = "k3s" if plan["role"] == "server" else "k3s-agent"
            findings.append(Finding("k3s.node", "error", host, message, f"See journalctl -u {unit} there."))
    return findings


def _wrong(node: t.Mapping[str, t.Any] | None, plan: t.Mapping[str, t.Any]) -> str | None:
    if node is None:
        return f"the cluster has no node {plan['node_name']}."
    status = node.get("status", {})
    ready: t.Mapping[str, t.Any] = next((c for c in status.get("conditions", []) if c.get("type") == "Ready"), {})
    if ready.get("status") != "True":
        return f"the node is not Ready: {ready.get('message') or ready.get('reason') or 'no reason is given'}."
    version = status.get("nodeInfo", {}).get("kubeletVersion")
    if version != plan["version"]:
        return f"its kubelet is {version}, not {plan['version']}."
    addresses = [a.get("address") for a in status.get("addresses", []) if a.get("type") == "InternalIP"]
    if plan["node_ip"] not in addresses:
        return f"its address in the cluster is {', '.join(map(str, addresses)) or 'none'}, not {plan['node_ip']}."
    return None
