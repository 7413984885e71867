"""An owner's folder with Sparks whose facts are made up, and a cluster that is a stand-in."""

from __future__ import annotations

import pathlib
import typing as t

import yaml

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import to_plain
from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.stand_ins import kube_api
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import names, node

FUNCTIONS = {
    f"p{port}f{way}": {"netdev": f"eth{port}x{way}", "pci": f"000{way}:0a:00.{port}"}
    for port in (0, 1)
    for way in (0, 1)
}


Maker = t.Callable[[t.Sequence[str]], kube_api.Cluster]


class Owner(harness.Site):
    """Sparks (default: four) with the facts that roce_info would return, and a kubeconfig where the role k3s puts it."""

    def __init__(
        self, folder: pathlib.Path, groups: bool = True, count: int = 4, made: Maker = kube_api.Cluster, **fabric: t.Any
    ) -> None:
        self.cluster = made(names(count))
        (folder / "home/.kube").mkdir(parents=True)
        self.kubeconfig = folder / "home/.kube/dgxspark.yml"
        self.server = kube_api.serve(self.cluster, self.kubeconfig)
        self.places = {
            name: (folder / "nodes" / name / "cache", folder / "nodes" / name / "files")
            for name in names(max(count, 4))
        }
        nodes = f"{folder}/nodes/{{{{ inventory_hostname }}}}"
        super().__init__(
            folder,
            self.kubeconfig,
            count=count,
            dgxspark_fabric={"topology": "switch", "vf_count": 2} | fabric,
            k8s_dgx_serving={"cache_dir": f"{nodes}/cache"},
            k8s_platform_files_dir=f"{nodes}/files",
            model_weights_files_dir=f"{nodes}/files",
        )
        self.environment = {"HOME": str(folder / "home")}
        inventory = yaml.safe_load((folder / "hosts.yml").read_text(encoding="utf-8"))
        del inventory["dgx"]["vars"]["dgxspark_plan"], inventory["dgx"]["vars"]["k8s_dgx_kubeconfig"]
        for number, (_name, host) in enumerate(inventory["dgx"]["hosts"].items(), 1):
            host["dgxspark_roce"] = to_plain(node(host=number, vfs=2))
            host["dgxspark_fabric_functions"] = {
                slot: own for slot, own in FUNCTIONS.items() if slot.startswith("p0") or fabric
            }
        if groups:
            inventory |= {
                "k3s_server": {"hosts": {"spark1": None}},
                "k3s_agent": {"hosts": dict.fromkeys(names(count)[1:])},
            }
        (folder / "hosts.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")

    def change(self, host: str, *dropped: str, **variables: t.Any) -> None:
        """Change a host's variables in the inventory."""
        inventory = yaml.safe_load((self.folder / "hosts.yml").read_text(encoding="utf-8"))
        own = inventory["dgx"]["hosts"][host]
        inventory["dgx"]["hosts"][host] = {k: v for k, v in own.items() if k not in dropped} | variables
        (self.folder / "hosts.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")

    def daemons(self) -> set[str]:
        """Return the pods of the platform, by their names."""
        return {key[3] for key in self.cluster.of("Pod") if key[2] == "kube-system"}

    def choose(self, playbook: str) -> None:
        self.playbook = str(harness.ROOT / "playbooks" / playbook)

    def kinds(self) -> set[str]:
        return {made["kind"] for made in self.cluster.objects.values()}
