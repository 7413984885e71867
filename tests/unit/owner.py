"""An owner's folder with an inventory, from which a playbook is run as its owner runs it.

owner = Owner(tmp_path)
code, output, report = owner.verify({"spark1": HERE}, topology="single")
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t

import jsonschema
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(sys.executable).parent
PROGRAM = BIN / "ansible-playbook"
HERE = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
DOWN = {"ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_ssh_common_args": "-o ConnectTimeout=2"}
NO_ANSIBLE = "ansible-playbook is not beside Python"
SCHEMAS = {"verify": "fabric-report.json", "doctor": "doctor-report.json"}
REPORTS = {"verify": "fabric", "doctor": "doctor"}

Hosts = t.Mapping[str, t.Mapping[str, t.Any]]


def can_run() -> bool:
    """Whether there is an ansible-playbook to run."""
    return PROGRAM.exists()


class Owner:
    """The folder. `tools` comes first in PATH: what a test puts there stands in for a node's commands."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.tools = folder / "tools"
        self.tools.mkdir()
        collection = folder / "collections" / "ansible_collections" / "dgxspark"
        collection.mkdir(parents=True)
        (collection / "cluster").symlink_to(ROOT)
        (folder / "ansible.cfg").write_text("[defaults]\n", encoding="utf-8")

    def tool(self, name: str, output: str) -> None:
        """Put a command there that prints this and exits with 0."""
        program = self.tools / name
        (self.tools / f"{name}.out").write_text(output, encoding="utf-8")
        program.write_text(f"#!/bin/sh\ncat {self.tools}/{name}.out\n", encoding="utf-8")
        program.chmod(0o755)

    def verify(self, hosts: Hosts, *arguments: str, **fabric: t.Any) -> tuple[int, str, t.Any]:
        """Run verify.yml; return exit status, output and report (None where there is none)."""
        return self._report("verify", hosts, arguments, fabric)

    def doctor(self, hosts: Hosts, *arguments: str, **fabric: t.Any) -> tuple[int, str, t.Any]:
        """Run doctor.yml; return exit status, output in one line, and report (None where there is none)."""
        code, output, report = self._report("doctor", hosts, arguments, fabric)
        return code, " ".join(output.split()), report

    def _report(
        self, name: str, hosts: Hosts, arguments: t.Sequence[str], fabric: t.Mapping[str, t.Any]
    ) -> tuple[int, str, t.Any]:
        variables = {"dgxspark_fabric": {"hardware": "lab", "vf_count": 2} | dict(fabric)}
        inventory = {"all": {"children": {"dgx": {"hosts": dict(hosts), "vars": variables}}}}
        (self.folder / "inventory.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
        done = self.play(ROOT / "playbooks" / f"{name}.yml", *arguments)
        assert "Traceback" not in done.stdout + done.stderr
        reports = sorted((self.folder / "reports").glob(f"{REPORTS[name]}-*.json"))
        report = json.loads(reports[-1].read_text(encoding="utf-8")) if reports else None
        if report is not None:
            jsonschema.validate(report, json.loads((ROOT / "docs" / "schema" / SCHEMAS[name]).read_text("utf-8")))
        return done.returncode, done.stdout + done.stderr, report

    def play(self, playbook: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a playbook on the owner's inventory."""
        return self.typed("-i", "inventory.yml", str(playbook), *arguments)

    def typed(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run ansible-playbook with the arguments that an owner types in this folder."""
        return subprocess.run(
            [str(PROGRAM), *arguments],
            cwd=self.folder,
            check=False,
            capture_output=True,
            text=True,
            timeout=900,
            env={
                **os.environ,
                "PATH": f"{self.tools}{os.pathsep}{os.environ['PATH']}",
                "PWD": str(self.folder),
                "ANSIBLE_COLLECTIONS_PATH": str(self.folder / "collections"),
                "ANSIBLE_CONFIG": str(self.folder / "ansible.cfg"),
                "ANSIBLE_NOCOLOR": "1",
                # The developer who runs these tests may have a cluster.
                "KUBECONFIG": str(self.folder / "no-kubeconfig"),
                "K8S_AUTH_KUBECONFIG": str(self.folder / "no-kubeconfig"),
            },
        )
