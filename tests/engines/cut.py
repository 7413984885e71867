"""Cut what engines said of themselves down to a fixture, which tests without a GPU compare with the plan.

Usage: cut.py MODELS FIXTURE FOLDER…: FOLDER has the results.jsonl and logs.zip of drive.py. FIXTURE gets, beside what it has, the models' config.json, and by
case either the settings that the engine's page showed and the figures of its log, or its last words.
"""

from __future__ import annotations

import json
import pathlib
import re
import sys
import zipfile

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import read_model_files
from ansible_collections.dgxspark.cluster.tests.engines import compare, vllm_cases
from ansible_collections.dgxspark.cluster.tests.engines.cases import CASES
from ansible_collections.dgxspark.cluster.tests.engines.groups import Plain, planned

RAISED = re.compile(
    r"^(?:\((?:EngineCore|APIServer|Worker\w*) pid=\d+\) )?((?:\w+\.)*\w*(?:Error|Exception)\b.*)$", re.MULTILINE
)
FOLLOWS = "Engine core initialization failed"  # what vLLM's server says of an engine that has said why


def drafted(taught: Plain, log: str, entry: Plain) -> Plain:
    """Return what was answered, and what the engine's metrics and log say of its drafts meanwhile."""
    names = {name for way in entry["acceptance"] for key, name in way.items() if key != "since"}
    counted = [
        "\n".join(line for line in text.splitlines() if re.split(r"[{ ]", line, maxsplit=1)[0] in names)
        for text in taught["metrics"]
    ]
    lines = [line for line in log.splitlines() if any(re.search(way["line"], line) for way in entry["log"])]
    return {
        **{key: taught[key] for key in ("asked", "wrong", "tokens", "seconds")},
        "metrics": counted,
        "log": "\n".join(lines),
    }


def main(models: pathlib.Path, fixture: pathlib.Path, *folders: pathlib.Path) -> None:
    """Write the fixture."""
    known = {each.case.id: each.case for each in (*CASES, *vllm_cases.CASES)}
    known_metrics = knowledge.load("metrics")
    made: Plain = {"engine": "", "models": {}, "cases": {}}
    if fixture.is_file():
        made = json.loads(fixture.read_text(encoding="utf-8"))
    for folder in folders:
        with zipfile.ZipFile(folder / "logs.zip") as logs:
            for line in (folder / "results.jsonl").read_text(encoding="utf-8").splitlines():
                found = json.loads(line)
                name, case = found["id"], known[found["id"]]
                made["engine"] = " ".join(case.engine)
                if re.search(r"two-ib|death|hang", name):
                    continue  # no engine came up, or not for its settings
                log = logs.read(f"{name}.rank0.log").decode() if f"{name}.rank0.log" in logs.namelist() else ""
                if found["state"] == "ready":
                    files = read_model_files(str(models / case.model))
                    shown = found["told"]["server_info"]
                    names = {compare.NAMES.get(key, key) for key in planned(case, files)["resolved"]} - {"model_path"}
                    if not isinstance(shown, dict) or set(shown) == {"status", "text"}:  # an answer that is no page
                        continue
                    told: Plain = {"info": compare.cut(shown, names)}
                    if "mem-" in name:
                        told["figures"] = compare.read(log)
                    if "taught" in found:
                        told["drafted"] = drafted(found["taught"], log, known_metrics[case.engine[0]])
                elif raised := [line for line in RAISED.findall(log) if FOLLOWS not in line]:
                    told = {"refused": raised[-1][:300]}
                else:
                    continue
                made["models"][case.model] = json.loads(
                    (models / case.model / "config.json").read_text(encoding="utf-8")
                )
                made["cases"][name] = told
    # A line for each entry: a change of one shows as one.
    parts = [
        f'"{key}": {{\n'
        + ",\n".join(f'"{name}": {json.dumps(made[key][name], sort_keys=True)}' for name in sorted(made[key]))
        + "\n}"
        for key in ("models", "cases")
    ]
    fixture.write_text("{\n" + f'"engine": "{made["engine"]}",\n' + ",\n".join(parts) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:]))
