"""An owner's folder for nodes with two ports, and what is typed in it."""

from __future__ import annotations

import json
import pathlib
import shutil
import time
import typing as t
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import yaml
from harness import ROOT, Run, play

FIGURES = ROOT / ".cache" / "fleet.md"
"""What benchmarks/results/fleet.md is made from."""
NODE_OF = {"spark5": "spark3"}
"""The lab's node under another name of the inventory."""
SWITCH = {"hardware": "lab_ports", "topology": "switch", "vf_count": 1}
# A Spark's two ports, each with one function.
PORTS = {
    "id": "lab_ports",
    "title": "A virtual Spark whose two functions are two ports",
    "pf_device_ids": ["8086:10c9"],
    "slots": [
        {"slot": "p0f0", "port": 0, "function": 0, "netdev": "enp1s0f0np0", "pci": "0000:01:00.0"},
        {"slot": "p1f0", "port": 1, "function": 0, "netdev": "enP2p1s0f0np0", "pci": "0000:02:00.0"},
    ],
    "default_ports": {"switch": [0], "direct": [0], "triangle": [0, 1], "ring": [0, 1]},
    "vf_stride": 8,
    "source": ["lab/README.md"],
    "verified": "measured",
}


@dataclass
class Fleet:
    """The owner's inventory, and what was typed beside it. commands: as a guide prints them, without what a test adds."""

    folder: pathlib.Path
    report_file: pathlib.Path
    typed: list[str] = field(default_factory=list)
    commands: set[tuple[str, ...]] = field(default_factory=set)

    def write(self, hosts: dict[str, int], fabric: dict[str, t.Any]) -> None:
        """Write the inventory: these hosts with their pinned numbers."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(ROOT / "inventories/lab", self.folder)
        tree = yaml.safe_load((self.folder / "hosts.yml").read_text())
        tree["all"]["children"]["spark"]["children"]["dgx"]["hosts"] = {
            name: {"lab_node": int(NODE_OF.get(name, name)[-1]), "dgxspark_fabric_index": index}
            for name, index in hosts.items()
        }
        (self.folder / "hosts.yml").write_text(yaml.safe_dump(tree, sort_keys=False))
        variables = self.folder / "group_vars" / "dgx.yml"
        settings = yaml.safe_load(variables.read_text())
        settings["dgxspark_fabric"] = fabric | {
            "address_pool": "10.100.0.0/16",
            "management_networks": ["10.0.2.0/24"],
        }
        settings["netplan_vf_rollback_timeout"] = 600  # a stream takes its share of two emulated cores
        variables.write_text(yaml.safe_dump(settings, sort_keys=False))
        hardware = self.folder / "dgxspark" / "hardware"
        hardware.mkdir(parents=True)
        (hardware / "lab_ports.yml").write_text(yaml.safe_dump(PORTS))
        thresholds = yaml.safe_load((ROOT / "knowledge/thresholds/lab.yml").read_text()) | {"id": PORTS["id"]}
        (self.folder / "dgxspark" / "thresholds").mkdir()
        (self.folder / "dgxspark/thresholds/lab_ports.yml").write_text(yaml.safe_dump(thresholds))

    def play(self, name: str, limit: str = "", *arguments: str, more: tuple[str, ...] = ()) -> Run:
        """Type a playbook's command, and note it and how long it took. more: what no owner types."""
        begun = time.monotonic()
        of_guide = [f"dgxspark.cluster.{name}", "-i", self.folder.name, *(["-l", limit] if limit else []), *arguments]
        run = play(
            of_guide[0],
            *arguments,
            *more,
            limit=limit,
            inventory=self.folder.name,
            timeout=1800,
            place=self.folder.parent,
        )
        self.commands.add(("ansible-playbook", *of_guide))
        words = " ".join([name, *(["-l", limit] if limit else []), *arguments])
        changed = ", ".join(f"{host} {count}" for host, count in run.changed.items() if count) or "nothing"
        if name == "plan":  # its one change is the file on the controller
            changed = "nothing on a node"
        self.typed.append(f"| `{words}` | {time.monotonic() - begun:.0f} | exit {run.code}, changed: {changed} |")
        return run

    def proof(self, name: str, limit: str = "", *arguments: str) -> tuple[Run, dict[str, t.Any]]:
        """Run verify, or site, which ends with it; return the report as well."""
        self.report_file.unlink(missing_ok=True)
        run = self.play(name, limit, *arguments, more=("-e", f"dgxspark_report_file={self.report_file}"))
        assert self.report_file.is_file(), run.output
        return run, json.loads(self.report_file.read_text())

    def plan(self, refused: str = "") -> tuple[str, dict[str, list[t.Any]]]:
        """Run the plan; return its output, and the changes by host. refused: what keeps the site from making them."""
        file = self.report_file.with_name("plan.json")
        file.unlink(missing_ok=True)
        run = self.play("plan", more=("-e", f"dgxspark_plan_file={file}"))
        assert run.code == (2 if refused else 0) and refused in run.output, run.output
        return run.output, json.loads(file.read_text())["changes"]

    @contextmanager
    def figures(self, title: str) -> Iterator[None]:
        """Record what is typed meanwhile under a title."""
        self.typed.clear()
        yield
        FIGURES.parent.mkdir(exist_ok=True)
        with FIGURES.open("a", encoding="utf-8") as file:
            file.write(f"\n## {title}\n| typed | seconds | |\n|---|---|---|\n" + "\n".join(self.typed) + "\n")
