"""An owner's folder with an inventory of hosts that are namespaces, and releases of K3s's stand-in."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import typing as t

import yaml

from ansible_collections.dgxspark.cluster.tests.unit.k3s_releases import ARCHITECTURE, NEW, OLD, release
from ansible_collections.dgxspark.cluster.tests.unit.namespaces import Lan
from ansible_collections.dgxspark.cluster.tests.unit.owner import PROGRAM, ROOT

RECAP = re.compile(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)
PLACES = ("/etc", "/usr/local/bin", "/var/lib")


def pod(name: str, owner: str | None, **labels: str) -> dict[str, t.Any]:
    """Return a pod as the API has it."""
    owners = [{"kind": owner, "name": name, "controller": 1}] if owner else []
    own = {"app.kubernetes.io/managed-by": "dgxspark.cluster", **labels}
    return {"metadata": {"name": name, "namespace": "n", "labels": own, "ownerReferences": owners}, "spec": {}}


class Run(t.NamedTuple):
    code: int
    output: str

    @property
    def changed(self) -> dict[str, int]:
        return {host: int(count) for host, count, _u, _f in RECAP.findall(self.output)}

    @property
    def plain(self) -> str:
        return " ".join(self.output.split())


class Owner:
    """An owner's folder with an inventory of hosts, and the releases that the owner has."""

    def __init__(self, folder: pathlib.Path, lan: Lan) -> None:
        self.folder, self.lan = folder, lan
        place = folder / "collections" / "ansible_collections" / "dgxspark"
        place.mkdir(parents=True)
        (place / "cluster").symlink_to(ROOT)
        self.releases = folder / "releases"
        for version in (OLD, NEW):
            release(self.releases, version)
        self.kubeconfig = folder / "kube" / "config"
        self.servers, self.agents = ["spark1"], ["spark2", "spark3"]
        self.variables: dict[str, dict[str, t.Any]] = {}
        self.runs = 0
        play = [
            {"name": "K3s", "hosts": "k3s_server:k3s_agent", "gather_facts": False, "roles": ["dgxspark.cluster.k3s"]}
        ]
        (folder / "play.yml").write_text(yaml.safe_dump(play), encoding="utf-8")
        (folder / "ansible.cfg").write_text("[defaults]\n", encoding="utf-8")

    def run(
        self,
        *arguments: str,
        limit: str = "spark1:spark2",
        dropped: t.Collection[str] = (),
        environment: t.Mapping[str, str] | None = None,
        **variables: t.Any,
    ) -> Run:
        """Run the play. dropped: variables to leave out of the inventory. environment: of ansible-playbook."""

        def group(names: list[str]) -> dict[str, t.Any]:
            return {"hosts": {n: {**self.lan.hosts[n].variables, **self.variables.get(n, {})} for n in names}}

        common = {
            "k3s_source": str(self.releases),
            "k3s_airgap": True,
            "k3s_checksums": {ARCHITECTURE: self.digest(variables.get("k3s_version", OLD))},
            "k3s_start_timeout": 12,
            "k3s_kubeconfig": str(self.kubeconfig),
            "k3s_registries": {"configs": {"registry.example": {"auth": {"password": "registry-Passw0rd"}}}},
            **variables,
        }
        common = {name: value for name, value in common.items() if name not in dropped}
        inventory = {
            "all": {"vars": common, "children": {"k3s_server": group(self.servers), "k3s_agent": group(self.agents)}}
        }
        (self.folder / "inventory.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
        done = subprocess.run(
            [str(PROGRAM), "-i", "inventory.yml", "play.yml", "-l", limit, *arguments],
            cwd=self.folder,
            check=False,
            capture_output=True,
            text=True,
            timeout=1800,
            env={
                **os.environ,
                "ANSIBLE_COLLECTIONS_PATH": str(self.folder / "collections"),
                "ANSIBLE_CONFIG": str(self.folder / "ansible.cfg"),
                "ANSIBLE_NOCOLOR": "1",
                **(environment or {}),
            },
        )
        self.runs += 1
        (self.folder / f"run-{self.runs}.log").write_text(done.stdout + done.stderr, encoding="utf-8")
        assert "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
        return Run(done.returncode, done.stdout + done.stderr)

    def digest(self, version: str) -> str:
        return (self.releases / version / f"sha256sum-{ARCHITECTURE}.txt").read_text(encoding="utf-8").split()[0]

    def nodes(self) -> dict[str, dict[str, t.Any]]:
        listed = json.loads(self.lan.hosts["spark1"].sh("k3s kubectl get nodes -o json"))
        return {node["metadata"]["name"]: node for node in listed["items"]}
