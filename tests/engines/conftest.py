"""A real engine on a CPU: its environment, a tiny model trained here, and the plan of one rank for them.

The environment and the model are kept in the oracle's cache. Where PyPI cannot be reached the tests are *not run*.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parent
if str(HERE.parents[1] / "tools") not in sys.path:
    sys.path.insert(0, str(HERE.parents[1] / "tools"))

from engine_parsers import installed, tables  # noqa: E402
from engine_parsers.sources import NotAvailable  # noqa: E402

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.inspection import engine_table  # noqa: E402
from ansible_collections.dgxspark.cluster.tests.engines import served  # noqa: E402
from ansible_collections.dgxspark.cluster.tests.engines.planned import OWN, PROFILE, total_gib  # noqa: E402


@pytest.fixture(scope="session")
def engine() -> pathlib.Path:
    """Return the bin folder of an environment that has the profile's engine."""
    wanted = knowledge.load("profile", [str(OWN)])[PROFILE]["engine"]
    began = time.monotonic()
    try:
        made = installed.environment(wanted["name"], wanted["version"])
    except NotAvailable as exc:
        pytest.skip(f"not run: {exc}")
    print(f"\nenvironment {made}: {time.monotonic() - began:.0f} s")
    return made / "bin"


@pytest.fixture(scope="session")
def model(engine: pathlib.Path) -> pathlib.Path:
    """Return the folder of the tiny model."""
    folder = served.model(engine)
    print(f"\nmodel: {(folder / 'made.txt').read_text(encoding='utf-8').splitlines()[-1]}")
    return folder


@pytest.fixture(scope="session")
def overlays(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the owner's knowledge folders: the tests' own, and one generated from this machine and the engine's wheel."""
    wanted = knowledge.load("profile", [str(OWN)])[PROFILE]["engine"]
    read = tmp_path_factory.mktemp("knowledge")
    try:
        table = engine_table.text(tables.entry(wanted["name"], wanted["version"]), "---")
    except NotAvailable as exc:
        pytest.skip(f"not run: {exc}")
    path = read / "engines" / wanted["name"] / f"{wanted['version']}.yml"
    path.parent.mkdir(parents=True)
    path.write_text(table, encoding="utf-8")
    total = {
        "id": "memory.total", "replaces": "memory.total", "value": round(total_gib(), 2), "unit": "GiB",
        "meaning": "What the engine takes for the total memory of this machine.", "source": ["tests/engines/planned.py"], "verified": "measured",
    }  # fmt: skip
    (read / "constants").mkdir()
    (read / "constants" / "machine.yml").write_text(json.dumps({"entries": [total]}), encoding="utf-8")
    return [str(OWN), str(read)]
