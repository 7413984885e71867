"""What k3s_node reads of a Spark without K3s."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.k3s import layout
from ansible_collections.dgxspark.cluster.plugins.module_utils.k3s.machine import Machine
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import to_plain


def machine(address: str, architecture: str = "aarch64", **more: t.Any) -> dict[str, t.Any]:
    made = Machine(
        architecture=architecture,
        platform={"kernel": "6.17.0-1014-nvidia", "cmdline": "quiet"},
        memory_mib=124000,
        memory_controller=True,
        addresses={"enP7s7": (address,), "enp1s0f0v0": ("10.100.0.1",)},
        listening=(22,),
        free_mib={"/usr/local/bin": 90000, layout.OURS: 90000, layout.DATA: 90000},
    )
    return {**t.cast(dict[str, t.Any], to_plain(made)), **more}
