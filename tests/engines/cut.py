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

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import read_model_files
from ansible_collections.dgxspark.cluster.tests.engines import compare
from ansible_collections.dgxspark.cluster.tests.engines.cases import CASES
from ansible_collections.dgxspark.cluster.tests.engines.groups import Plain, planned

RAISED = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception)\b.*$", re.MULTILINE)


def main(models: pathlib.Path, fixture: pathlib.Path, *folders: pathlib.Path) -> None:
    """Write the fixture."""
    known = {each.case.id: each.case for each in CASES}
    made: Plain = {"engine": "sglang 0.5.12", "models": {}, "cases": {}}
    if fixture.is_file():
        made = json.loads(fixture.read_text(encoding="utf-8"))
    for folder in folders:
        with zipfile.ZipFile(folder / "logs.zip") as logs:
            for line in (folder / "results.jsonl").read_text(encoding="utf-8").splitlines():
                found = json.loads(line)
                name, case = found["id"], known[found["id"]]
                if name == "two-ib" or name.startswith(("death", "hang")):
                    continue  # no engine came up, or not for its settings
                log = logs.read(f"{name}.rank0.log").decode() if f"{name}.rank0.log" in logs.namelist() else ""
                if found["state"] == "ready":
                    files = read_model_files(str(models / case.model))
                    shown = found["told"]["server_info"]
                    names = {compare.NAMES.get(key, key) for key in planned(case, files)["resolved"]} - {"model_path"}
                    told: Plain = {"info": {key: shown[key] for key in sorted(names & shown.keys())}}
                    if name.startswith("mem-"):
                        told["figures"] = compare.read(log)
                elif raised := RAISED.findall(log):
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
