"""Nodes of a K3s cluster as its API server lists them, and the plans that they follow."""

from __future__ import annotations

import typing as t

PLANS = {
    "spark1": {"node_name": "spark1", "role": "server", "version": "v1.36.4+k3s1", "node_ip": "192.0.2.11"},
    "spark2": {"node_name": "spark2", "role": "agent", "version": "v1.36.4+k3s1", "node_ip": "192.0.2.12"},
    "unread": {"seen": False},
}


def node(
    name: str, ready: str = "True", version: str = "v1.36.4+k3s1", address: str = "192.0.2.12"
) -> dict[str, t.Any]:
    return {
        "metadata": {"name": name},
        "status": {
            "conditions": [{"type": "Ready", "status": ready, "message": "container runtime is down"}],
            "nodeInfo": {"kubeletVersion": version},
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
        },
    }


FIRST = node("spark1", address="192.0.2.11")
