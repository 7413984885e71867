"""A stand-in of a cluster whose pods that run once do what theirs do: the benchmark's program runs, an image says what is in it.

NO IMAGE RUNS HERE: the benchmark's own program runs for real, as a process with the files and the key that the pod mounts; what an image
says of its engine is scripted.
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.engine_parser.reader import framed
from ansible_collections.dgxspark.cluster.tests.stand_ins import kube_api
from ansible_collections.dgxspark.cluster.tests.unit import nccl_logs
from ansible_collections.dgxspark.cluster.tests.unit.image_trees import FLAG, PARSER, SAID
from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT

Plain = dict[str, t.Any]
ROW = {"operation": "all_reduce", "bytes": 1 << 30, "calls": 2, "rounds_us": [75000.0]}
SPACE = "dgx-serving"


OLD = "import runpy, sys; sys.version_info = (3, 9, 1); runpy.run_path(sys.argv[-1], run_name='__main__')"


class Cluster(kube_api.Cluster):
    """A cluster that runs the program of the benchmark's pod. old: its image has Python 3.9. slow: seconds until it starts."""

    def __init__(self, nodes: t.Sequence[str], root: pathlib.Path) -> None:
        super().__init__(nodes)
        self.root, self.old, self.slow = root, False, 0.0
        self.ran: list[Plain] = []

    def run_once(self, made: Plain) -> None:
        super().run_once(made)
        (container,) = made["spec"]["containers"]
        seen = made["status"]["containerStatuses"][0]
        if container["name"] == "bench" and seen["imageID"]:
            seen["state"], made["status"]["phase"] = {"running": {}}, "Running"
            self.ran.append(made)
            threading.Thread(target=self._run, args=(made, seen, len(self.ran)), daemon=True).start()

    def _run(self, made: Plain, seen: Plain, number: int) -> None:
        name, (container,) = made["metadata"]["name"], made["spec"]["containers"]
        root = self.root / str(number)
        with self.lock:
            self._lay(made, root)
        time.sleep(self.slow)
        command = [word.replace("/dgxspark", f"{root}/dgxspark", 1) for word in container["command"]]
        options = ["-I", "-S", *(["-c", OLD] if self.old else [])]  # no packages: an image may have none
        with subprocess.Popen(
            [sys.executable, *options, *command[1:]], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={"PATH": os.environ["PATH"]},
        ) as process:  # fmt: skip
            for line in t.cast(t.IO[str], process.stdout):
                with self.lock:
                    self.logs[name] = self.logs.get(name, "") + line
        with self.lock:
            ended = {"exitCode": process.returncode, "reason": "Error" if process.returncode else "Completed"}
            seen["state"] = {"terminated": ended}
            made["status"]["phase"] = "Failed" if process.returncode else "Succeeded"

    def _lay(self, made: Plain, root: pathlib.Path) -> None:
        """Lay out the pod's mounts below the root, and rewrite the paths in their files to match."""
        volumes = {volume["name"]: volume for volume in made["spec"]["volumes"]}
        for mount in made["spec"]["containers"][0]["volumeMounts"]:
            place, volume = root / mount["mountPath"].lstrip("/"), volumes[mount["name"]]
            place.mkdir(parents=True)
            for kind, plural, named in (("configMap", "configmaps", "name"), ("secret", "secrets", "secretName")):
                for item in volume.get(kind, {}).get("items", ()):
                    data = self.objects["v1", plural, SPACE, volume[kind][named]]["data"][item["key"]]
                    text = base64.b64decode(data).decode() if kind == "secret" else data
                    file = place / item["path"]
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_text(text.replace('"/run/secrets', f'"{root}/run/secrets'), encoding="utf-8")
                    file.chmod(item.get("mode", 0o644))


def _flags() -> t.Iterator[Plain]:
    """Yield what the vLLM of knowledge/engines has, beside the few flags of image_trees.py."""
    mine = {option for flag in PARSER["flags"] for option in flag["options"]}
    for name, kinds in json.loads((ROOT / "knowledge/engines/vllm.json").read_text(encoding="utf-8"))["flags"].items():
        switch = {"action": "_StoreTrueAction", "nargs": 0}
        if f"--{name}" not in mine:
            yield {
                **FLAG,
                "options": [f"--{name}"],
                **(switch if next(iter(kinds.values()))["type"] == "switch" else {}),
            }


class Speaking(Cluster):
    """One whose images also say which engine is in them, that of their tag; whose ranks of the NCCL benchmark log what such ranks log.

    Its Services have an address: this machine's.
    """

    def put(self, key: kube_api.Key, made: Plain) -> Plain:
        if made.get("spec", {}).get("ports") and key[1] == "services":
            made["spec"].setdefault("clusterIP", "127.0.0.1")
        return super().put(key, made)

    def run_once(self, made: Plain) -> None:
        super().run_once(made)
        (container, *_others) = made["spec"]["containers"]
        if container["name"] == "inspect":
            tag = re.search(r":v(\d+\.\d+\.\d+)$", container["image"])
            parser = {**PARSER, "flags": [*PARSER["flags"], *_flags()]}
            said = SAID | {"version": tag[1] if tag else SAID["version"], "parser": parser}
            self.logs[made["metadata"]["name"]] = framed(said)
        if rank := re.fullmatch(r"nccl-bench-rank(\d+)", made["metadata"]["name"]):
            lines = nccl_logs.build(nccl_logs.Job(nodes=len(self.nodes())))[int(rank[1])]
            rows = [{**ROW, "ranks": len(self.nodes())}] if rank[1] == "0" else []
            ends = ["NCCL_BENCH_END {}"] if rows else []
            told = [*lines, *(f"NCCL_BENCH {json.dumps(row)}" for row in rows), *ends]
            self.logs[made["metadata"]["name"]] = "\n".join(told)
