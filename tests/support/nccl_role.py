"""The role nccl on hosts that are folders of this machine."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import typing as t

import yaml

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Netdev, to_plain
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import function, node
from ansible_collections.dgxspark.cluster.tests.unit.owner import PROGRAM, ROOT

SLOTS = [
    ("enp1s0f0np0", "0000:01:00.0"),
    ("enP2p1s0f0np0", "0002:01:00.0"),
    ("enp1s0f1np1", "0000:01:00.1"),
    ("enP2p1s0f1np1", "0002:01:00.1"),
]


class Cluster:
    """Hosts that were seen with their VFs, and a folder for the files of each."""

    def __init__(self, folder: pathlib.Path, topology: str = "switch", count: int = 2, vfs: int = 2) -> None:
        self.folder = folder
        for number in range(1, count + 1):
            (folder / f"spark{number}" / "etc").mkdir(parents=True)
        collection = folder / "collections" / "ansible_collections" / "dgxspark"
        collection.mkdir(parents=True)
        (collection / "cluster").symlink_to(ROOT)
        (folder / "ansible.cfg").write_text("[defaults]\n", encoding="utf-8")
        ports = 4 if topology in ("triangle", "ring") else 2
        hosts = {}
        for number in range(1, count + 1):
            seen = [
                function(slot, host=number, vfs=vfs, netdev=netdev, pci=pci)
                for slot, (netdev, pci) in enumerate(SLOTS[:ports])
            ]
            other = (Netdev("docker0", ipv4=("172.17.0.1/16",)), Netdev("enP7s7", ipv4=(f"192.0.2.{number}/24",)))
            hosts[f"spark{number}"] = {
                "ansible_connection": "local",
                "ansible_host": f"192.0.2.{number}",
                "ansible_python_interpreter": sys.executable,
                "dgxspark_roce": to_plain(node(*seen, other=other)),
                "nccl_system_root": str(folder / f"spark{number}"),
            }
        fabric = {"topology": topology, "vf_count": 2}
        tree = {"all": {"children": {"dgx": {"hosts": hosts, "vars": {"dgxspark_fabric": fabric}}}}}
        (folder / "inventory.yml").write_text(yaml.safe_dump(tree), encoding="utf-8")
        play = {"name": "NCCL", "hosts": "dgx", "gather_facts": False, "tags": "nccl"}
        plays = [play | {"roles": [{"role": "dgxspark.cluster.nccl"}]}]
        (folder / "play.yml").write_text(yaml.safe_dump(plays), encoding="utf-8")

    def run(self, *arguments: str, **variables: t.Any) -> tuple[int, dict[str, int], str]:
        """Return exit status, the number of changes by host, and the output."""
        done = subprocess.run(
            [str(PROGRAM), "-i", "inventory.yml", "play.yml", "-e", json.dumps(variables), *arguments],
            cwd=self.folder,
            check=False,
            capture_output=True,
            text=True,
            timeout=300,
            env={
                **os.environ,
                "ANSIBLE_COLLECTIONS_PATH": str(self.folder / "collections"),
                "ANSIBLE_CONFIG": str(self.folder / "ansible.cfg"),
                "ANSIBLE_NOCOLOR": "1",
            },
        )
        output = done.stdout + done.stderr
        assert "Traceback" not in output
        changed = re.findall(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)", output, re.MULTILINE)
        return done.returncode, {name: int(count) for name, count in changed}, output

    def read(self, host: str, path: str) -> dict[str, str]:
        text = (self.folder / host / path.lstrip("/")).read_text(encoding="utf-8")
        return dict(line.split("=", 1) for line in text.splitlines()[1:])

    def tree(self) -> list[str]:
        return sorted(str(p) for n in self.folder.glob("spark*") for p in n.rglob("*"))
