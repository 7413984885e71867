"""The role k8s_dgx as an owner runs it: an inventory of four Sparks, all of them this machine, and a cluster.

The cluster is the stand-in (tests/stand_ins/kube_api.py) or a real one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import typing as t

import yaml

from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs as inputs
from ansible_collections.dgxspark.cluster.tests.unit.owner import PROGRAM, ROOT

Plain = dict[str, t.Any]
MODEL, OTHER = "qwen3.5-397b-a17b-nvfp4", "glm-4.7-nvfp4"
NOT_RUN = "not run: the library kubernetes or the collection kubernetes.core is not there"


def collections() -> pathlib.Path | None:
    """Return the collections path that has kubernetes.core, for an ansible-playbook process."""
    for place in os.environ.get("ANSIBLE_COLLECTIONS_PATH", "").split(os.pathsep):
        if (pathlib.Path(place) / "ansible_collections/kubernetes/core/MANIFEST.json").is_file():
            return pathlib.Path(place)
    return None


def can_run() -> bool:
    """Whether this Python and its collections can speak to an API server."""
    return importlib.util.find_spec("kubernetes") is not None and collections() is not None


def playbook(**role: str) -> list[Plain]:
    """Return a play that runs the role (or one of its entry points, or another role: its name) on all Sparks."""
    task = {"name": "Run the role", "ansible.builtin.include_role": {"name": "dgxspark.cluster.k8s_dgx", **role}}
    return [{"name": "Run the role", "hosts": "dgx", "gather_facts": False, "tasks": [task]}]


class Site:
    """One inventory and one playbook. hosts: with their variables (default: `count` local Sparks); variables: of the group."""

    def __init__(
        self,
        folder: pathlib.Path,
        kubeconfig: pathlib.Path,
        hosts: t.Mapping[str, Plain] | None = None,
        count: int = 4,
        **variables: t.Any,
    ) -> None:
        self.folder = folder
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        hosts = dict(hosts) if hosts else {name: dict(local) for name in inputs.names(count)}
        variables = {
            "dgxspark_plan": {"hosts": inputs.fabric(count)},
            "k8s_dgx_kubeconfig": str(kubeconfig),
            "k8s_dgx_memory_check": False,
            "k8s_dgx_image": inputs.PINNED,
            # All four Sparks are this machine: nothing is installed on it.
            "k8s_platform_parts": {"cni_plugins": "unmanaged"},
            "k8s_dgx_weights": "unmanaged",
            # This machine's free disk space must not matter, except in the tests about it.
            "k8s_dgx_image_room_gib": 0,
            "k8s_dgx_disk_reserve_gib": 0,
            "k3s_kubelet_args": {"image-gc-high-threshold": 100},
            **variables,
        }
        inventory = {"dgx": {"hosts": hosts, "vars": variables}}
        (folder / "hosts.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
        (folder / "ansible.cfg").write_text("[defaults]\nlocalhost_warning = False\n", encoding="utf-8")
        self.playbook = "play.yml"
        self.environment: dict[str, str] = {}
        self.temporary = folder / "tmp"
        self.temporary.mkdir(exist_ok=True)
        link = folder / "collections/ansible_collections/dgxspark"
        link.mkdir(parents=True)
        (link / "cluster").symlink_to(ROOT)
        self.play()

    def play(self, **role: str) -> None:
        """Choose the role's entry point for the next runs."""
        (self.folder / "play.yml").write_text(yaml.safe_dump(playbook(**role), sort_keys=False), encoding="utf-8")

    def include(self, name: str) -> None:
        """Choose a task file of the playbooks (`remove`: playbooks/tasks/remove.yml) for the next runs."""
        task = {
            "name": "Include it",
            "ansible.builtin.include_tasks": str(ROOT / "playbooks" / "tasks" / f"{name}.yml"),
        }
        play = [{**playbook()[0], "tasks": [task]}]
        (self.folder / "play.yml").write_text(yaml.safe_dump(play, sort_keys=False), encoding="utf-8")

    def parts(self, *names: str, then: t.Sequence[Plain] = ()) -> None:
        """Choose several entry points (`plan`, or `model_weights:present` of another role) in one play for the next runs.

        then: tasks after them.
        """
        places = [name.rpartition(":") for name in names]
        tasks = [
            task
            for role, _colon, entry in places
            for task in playbook(name=f"dgxspark.cluster.{role or 'k8s_dgx'}", tasks_from=f"{entry}.yml")[0]["tasks"]
        ]
        play = {**playbook()[0], "any_errors_fatal": True, "tasks": [*tasks, *then]}
        (self.folder / "play.yml").write_text(yaml.safe_dump([play], sort_keys=False), encoding="utf-8")

    def run(self, *options: str, **variables: t.Any) -> tuple[int, str, int]:
        """Run the role; return exit status, output and how many tasks changed something."""
        given = {**({} if "k8s_dgx_recipe" in variables else {"k8s_dgx_model_profile": MODEL}), **variables}
        env = {
            **os.environ,
            "ANSIBLE_CONFIG": str(self.folder / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": f"{self.folder / 'collections'}{os.pathsep}{collections()}",
            "ANSIBLE_HOME": str(self.folder / "home"),
            "TMPDIR": str(self.temporary),  # the Kubernetes client puts its discovery cache there
            "ANSIBLE_NOCOLOR": "1",
            **self.environment,
        }
        program = str(PROGRAM)
        place = self.folder / "variables.json"  # not in argv: a test looks for a token there
        place.write_text(json.dumps(given), encoding="utf-8")
        command = [program, "-i", "hosts.yml", self.playbook, "-e", f"@{place}", *options]
        ran = subprocess.run(command, check=False, cwd=self.folder, env=env, capture_output=True, text=True)
        said = ran.stdout + ran.stderr
        assert "Traceback" not in said, said
        return ran.returncode, said, sum(map(int, re.findall(r"changed=(\d+)", said)))

    def good(self, *options: str, **variables: t.Any) -> int:
        """Run the role, which must succeed; return how many tasks changed something."""
        code, said, changed = self.run(*options, **variables)
        assert code == 0, said
        return changed
