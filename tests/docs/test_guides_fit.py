"""The model that a guide plans or serves fits the Sparks that the guide describes."""

from __future__ import annotations

import re

import pytest
import yaml

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan
from ansible_collections.dgxspark.cluster.tests.unit import guide, kube_inputs

PROFILES = knowledge.shared("profile")
EXAMPLE = guide.GUIDES.parents[2] / "inventories" / "example" / "hosts.yml"
_SPARK = re.compile(r"\bspark(\d+)\b")


def described(name: str) -> set[str]:
    """Return the Sparks of the inventory that a guide shows; of the example inventory if it shows none."""
    blocks = [*guide.blocks(name, "yaml"), *guide.blocks(name, "ini")]
    shown = {f"spark{number}" for block in blocks if "hosts" in block for number in _SPARK.findall(block)}
    return shown or set(
        yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))["all"]["children"]["spark"]["children"]["dgx"]["hosts"]
    )


def limited(command: str, name: str) -> set[str]:
    """Return the Sparks that a command plans for."""
    given = re.search(r"\s-l '?([^\s']+)", command)
    if not given:
        return described(name)
    found = {f"spark{number}" for number in _SPARK.findall(given[1])}
    for first, last in re.findall(r"spark\[(\d+):(\d+)\]", given[1]):
        found |= {f"spark{number}" for number in range(int(first), int(last) + 1)}
    return found


def profile_of(command: str) -> str:
    found = re.search(r"k8s_dgx_model_profile=([\w.-]+)", command)
    return found[1] if found and found[1] in PROFILES else ""


SERVED = [
    (path.stem, command)
    for path in sorted(guide.GUIDES.glob("*.rst"))
    for command in guide.commands(path.stem, prompt=False)
    if profile_of(command) and "=absent" not in command
]


WRITTEN = [
    (path.stem, block)
    for path in sorted(guide.GUIDES.glob("*.rst"))
    for block in guide.blocks(path.stem, "yaml")
    if "k8s_dgx_model_profile:" in block
]


@pytest.mark.parametrize(("name", "block"), WRITTEN, ids=[name for name, _block in WRITTEN])
def test_the_model_that_a_guide_writes_down_fits_its_sparks(name: str, block: str) -> None:
    written = yaml.safe_load(block)
    written = next((each["vars"] for each in written if "vars" in each), {}) if isinstance(written, list) else written
    if str(written.get("k8s_dgx_model_profile")) not in PROFILES:
        pytest.skip("the block has no profile of ours")
    hosts = described(name)
    overrides = {key: value for key, value in written.get("k8s_dgx_overrides", {}).items() if key != "instance"}
    made = kube_inputs.plan(written["k8s_dgx_model_profile"], len(hosts), **overrides)
    assert made["verdict"] != "blocked", [each["message"] for each in made["findings"] if each["severity"] == "error"]
    if name == "guide_first_evening":  # both Sparks, and memory to spare, so that the evening ends with tokens
        assert len(made["ranks"]) == len(hosts) == 2
        assert made["memory"]["free_gib"] - made["memory"]["used_gib"] > 8


def test_guides_serve_models() -> None:
    assert len(SERVED) > 10


@pytest.mark.parametrize(("name", "command"), SERVED, ids=[f"{name}: {profile_of(each)}" for name, each in SERVED])
def test_the_model_of_a_guide_fits_its_sparks(name: str, command: str) -> None:
    hosts, profile = limited(command, name), profile_of(command)
    if name == "guide_topologies":  # two that are no neighbours in the ring, refused in the words that the guide quotes
        (said,) = [block for block in guide.blocks(name, "text") if "no cable leads" in block]
        ring = kube_inputs.fabric(4, topology="ring")
        with pytest.raises(CollectionError, match=re.escape(said.strip())):
            launch_plan(profile, {"hosts": sorted(hosts), "fabric": ring, "nccl": {"attachment": "vf"}})
        return
    made = kube_inputs.plan(profile, len(hosts))
    assert made["verdict"] != "blocked", [each["message"] for each in made["findings"] if each["severity"] == "error"]
    assert len(made["ranks"]) <= len(hosts)
