"""The guide on profiles of one's own, followed: its commands run, its profile is what they print, its list of facts is whole."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import typing as t

import pytest
import yaml

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan
from ansible_collections.dgxspark.cluster.tests.support.http_answers import Answering, served
from ansible_collections.dgxspark.cluster.tests.support.inventories import Inventory, shown
from ansible_collections.dgxspark.cluster.tests.support.playbooks import collections_path
from ansible_collections.dgxspark.cluster.tests.unit import guide
from ansible_collections.dgxspark.cluster.tests.unit.model_configs import PUBLIC
from ansible_collections.dgxspark.cluster.tests.unit.owner import NO_ANSIBLE, PROGRAM, ROOT, can_run

GUIDE = (ROOT / "docs" / "docsite" / "rst" / "guide_profiles.rst").read_text(encoding="utf-8")
MODEL = "Qwen/Qwen3-32B"
# Parts of facts that the schema describes once.
PARTS = ("attention", "mla", "compressed", "indexer", "moe", "dense")


WHOLE, ANOTHER = (yaml.safe_load(text) for text in guide.blocks("guide_profiles", "yaml"))


class Hub(Answering):
    """Stands in for huggingface.co: one model's config.json, of the commit that the guide shows."""

    headers_sent: t.ClassVar[dict[str, str]] = {"X-Repo-Commit": WHOLE["revision"]}

    def do_GET(self) -> None:
        there = self.path.startswith(f"/{MODEL}/resolve/") and self.path.endswith("/config.json")
        self.answer(200 if there else 404, json.dumps(PUBLIC[MODEL][0]).encode() if there else b"Entry not found")


@pytest.fixture(scope="module")
def endpoint() -> t.Iterator[str]:
    with served(Hub) as address:
        yield address


@pytest.mark.more
@pytest.mark.skipif(not can_run(), reason=NO_ANSIBLE)
def test_the_commands_make_keep_and_plan_the_profile(endpoint: str, tmp_path: pathlib.Path) -> None:
    inventory = Inventory()
    for facts in inventory.hosts.values():
        facts["dgxspark_roce"] = shown(110)
    inventory.write(tmp_path / "inventory")
    (tmp_path / "ansible.cfg").write_text(guide.blocks("guide_profiles", "ini")[0], encoding="utf-8")
    commands = [command.split() for command in guide.commands("guide_profiles")]
    assert [command[1] for command in commands] == [
        f"dgxspark.cluster.{name}" for name in ("profile", "profile", "plan")
    ]
    for command in commands:
        done = subprocess.run(
            [PROGRAM, *command[1:], "-e", f"dgxspark_hub_endpoint={endpoint}"],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": collections_path(), "ANSIBLE_NOCOLOR": "1"},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "verdict   UNPROVEN" in done.stdout
        # The first needs no inventory, and Ansible says that there is none.
        assert "-i" not in command or "[WARNING]" not in done.stderr
    assert ["-i" in command for command in commands] == [False, True, True]
    written = (tmp_path / commands[1][-1].partition("=")[2]).read_text(encoding="utf-8")
    # Line by line: the owner's file is what the guide shows, marks included.
    assert (
        written.split("\n", 4)[4].replace(endpoint, "https://huggingface.co")
        == guide.blocks("guide_profiles", "yaml")[0].strip("\n") + "\n"
    )


def test_another_engine_is_planned_and_said() -> None:
    plan = launch_plan(ANOTHER)
    assert plan["engine"]["name"] == "vllm"
    assert [f["rule"] for f in plan["findings"] if f["rule"] == "engine.changed"] == ["engine.changed"]
    assert plan["ranks"][0]["argv"][0] == "vllm"


def test_the_list_of_facts_is_the_schema_s() -> None:
    properties = knowledge.schema("profile")["properties"]
    table = GUIDE.partition("The list of facts\n")[2].partition("``precision`` names")[0]
    keys = set(re.findall(r"``(\w+)``", table))
    defs = knowledge.schema("profile")["$defs"]
    facts = defs["facts"]["properties"]
    inner = {name for part in PARTS for name in defs[part]["properties"]}
    inner |= {
        name for part in ("linear", "vision", "lookup", "hyper", "diffusion") for name in facts[part]["properties"]
    }
    assert set(facts) | inner <= keys
    assert set(properties["precision"]["properties"]) <= set(
        re.findall(r"``(\w+)``", GUIDE.partition("``precision`` names")[2])
    )
