"""The places in which a guide's commands are typed, each with its inventory, as the guide describes them.

`nothing`: a folder and the collection. `example`: a copy of inventories/example (`ring`: of inventories/ring) whose Sparks do not answer.
`sparks`: two stand-ins (two_sparks.py) that ssh reaches, for discover and what it writes. `cluster`: Sparks whose cluster is the stand-in
of an API server. Nothing is added to a command: ssh, sudo and
netplan are programs of a folder that comes first in PATH.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import time
import typing as t

import yaml

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import to_plain
from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.support import kube_owner, two_sparks
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import node
from ansible_collections.dgxspark.cluster.tests.unit.owner import BIN, ROOT

INVENTORIES = ROOT / "inventories"
# Takes ssh's options from Ansible, and enters the stand-in that has the address; any other host is one that is off.
SSH = """#!/bin/sh
while :; do case "$1" in -[oCpilSFE]) case "$1" in -C) shift;; *) shift 2;; esac;; -*) shift;; *) break;; esac; done
host=$1; shift
[ -x {lan}/$host/enter ] || {{ echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255; }}
exec env -i HOME=/root PATH={tools}:/usr/sbin:/usr/bin:/sbin:/bin {lan}/$host/enter sh -c "$*"
"""
SUDO = """#!/bin/sh
while :; do case "$1" in -u|-p|-g) shift 2;; -*) shift;; *) break;; esac; done
exec "$@"
"""


class Typed(t.NamedTuple):
    """How one command ended."""

    seconds: float
    printed: str
    status: int


class Guide:
    """One guide's folder. files: what its text says the owner has; sparks: how many there are in the cluster."""

    def __init__(self, place: pathlib.Path, files: t.Mapping[str, str], sparks: int = 2) -> None:
        self.place, self.files, self.count = place, files, sparks
        self.folders: dict[str, pathlib.Path] = {}
        self.sparks: two_sparks.Site | None = None
        self.cluster: kube_owner.Owner | None = None
        self.tools = place / "tools"
        self.tools.mkdir(parents=True)
        self._program("ssh", SSH.format(lan=place / "sparks" / "lan", tools=self.tools))
        self._program("sudo", SUDO)
        self._program(
            "netplan", "#!/bin/sh\nexit 0\n"
        )  # accepts every file: what it would refuse is the lab's business
        self.collections = place / "collections"
        (self.collections / "ansible_collections" / "dgxspark").mkdir(parents=True)
        (self.collections / "ansible_collections" / "dgxspark" / "cluster").symlink_to(ROOT)

    def _program(self, name: str, text: str) -> None:
        (self.tools / name).write_text(text, encoding="utf-8")
        (self.tools / name).chmod(0o755)

    def folder(self, at: str) -> pathlib.Path:
        """Return the folder in which the next command is typed there; make the place if it is the first."""
        if at not in self.folders:
            made = self.place / at
            made.mkdir()
            self.folders[at] = {"sparks": self._sparks, "cluster": self._cluster}.get(at, self._folder)(made)
            for name, text in self.files.items():
                (self.folders[at] / name).parent.mkdir(parents=True, exist_ok=True)
                (self.folders[at] / name).write_text(text, encoding="utf-8")
        return self.folders[at]

    def _folder(self, made: pathlib.Path) -> pathlib.Path:
        if (INVENTORIES / made.name).is_dir():
            shutil.copytree(INVENTORIES / made.name, made / "inventory")
            shutil.copy(INVENTORIES / "ansible.cfg", made)
        return made

    def _sparks(self, made: pathlib.Path) -> pathlib.Path:
        self.sparks = two_sparks.Site(made)
        (made / "typed").mkdir()
        return made / "typed"

    def _cluster(self, made: pathlib.Path) -> pathlib.Path:
        self.cluster = kube_owner.Owner(
            made, count=self.count, topology="direct" if self.count == 2 else "switch", vf_count=4
        )
        inventory = yaml.safe_load((made / "hosts.yml").read_text(encoding="utf-8"))
        for number, host in enumerate(inventory["dgx"]["hosts"].values(), 1):
            host |= {"ansible_become": False, "dgxspark_roce": to_plain(node(host=number, vfs=4))}
        (made / "hosts.yml").unlink()
        (made / "inventory").mkdir()
        (made / "inventory" / "hosts.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
        shutil.copy(INVENTORIES / "ansible.cfg", made)
        return made

    def type(self, command: str, at: str) -> Typed:
        """Type a command in a place, as it is printed; a `cd` holds for the next."""
        env = {
            **os.environ,
            "PATH": os.pathsep.join([str(self.tools), str(BIN), os.environ["PATH"]]),
            "ANSIBLE_COLLECTIONS_PATH": os.pathsep.join([str(self.collections), str(harness.collections() or "")]),
            # What README has an owner export.
            "ANSIBLE_STDOUT_CALLBACK": "dgxspark.cluster.answer",
            "ANSIBLE_LOCALHOST_WARNING": "no",
            "ANSIBLE_INVENTORY_UNPARSED_WARNING": "no",
            "ANSIBLE_NOCOLOR": "1",
            # The stand-in of ssh has no sftp.
            "ANSIBLE_SSH_TRANSFER_METHOD": "piped",
            "KUBECONFIG": "/nonexistent",
        }
        folder = self.folder(at)
        env |= self.cluster.environment if self.cluster and at == "cluster" else {}
        env.pop("ANSIBLE_CONFIG", None)
        began = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", f"{command}\nended=$?; pwd >{self.place}/pwd; exit $ended"],
            cwd=folder,
            env=env,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
        )
        self.folders[at] = pathlib.Path((self.place / "pwd").read_text(encoding="utf-8").strip())
        return Typed(time.monotonic() - began, done.stdout, done.returncode)

    def close(self) -> None:
        """Take the stand-ins away."""
        if self.cluster:
            self.cluster.server.shutdown()
        if self.sparks:
            self.sparks.lan.close()
