# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge the disk space for an image, from the state of the cluster and the hosts' disks."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.modules.kube_image_room import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.image import room


class ActionModule(ControllerAction):
    """Gather, judge."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Return which nodes lack the image, the space it takes, and the problems."""
        hosts = [rank["host"] for rank in self.variable("k8s_dgx_plan")["ranks"]]
        names = {host: host for host in hosts} | self.variable("k8s_dgx_node_names")
        read = self.of_hosts(args["mounts"], {}) if args["mounts"] else {}
        mounts = {
            host: seen["ansible_facts"]["ansible_mounts"] for host, seen in read.items() if "ansible_facts" in seen
        }
        choices = {
            "path": f"{self.variable('k3s_data_dir', '/var/lib/rancher/k3s')}/agent/containerd",
            "reserve_gib": float(self.variable("k8s_dgx_disk_reserve_gib")),
            "assumed_gib": float(self.variable("k8s_dgx_image_room_gib")),
            "gc_percent": (self.variable("k3s_kubelet_args") or {}).get("image-gc-high-threshold"),
        }
        return room(args["image"], args["nodes"], names, mounts, choices)
