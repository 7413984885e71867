"""The roles k8s_dgx and model_weights, as an owner runs them: four Sparks at four loopback addresses, each with its own cache.

The hub and the cluster are stand-ins (tests/stand_ins); the hub's library is the real one.
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
import socket
import sys
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.weights import cache
from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.api.harness import MODEL, OTHER
from ansible_collections.dgxspark.cluster.tests.stand_ins import kube_api
from ansible_collections.dgxspark.cluster.tests.stand_ins.hub import Hub, Repo
from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs as inputs
from ansible_collections.dgxspark.cluster.tests.unit import leaks
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import names

PYTHON = sys.executable if importlib.util.find_spec("huggingface_hub") else ""
pytestmark = [
    pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN),
    pytest.mark.skipif(not PYTHON, reason="not run: no huggingface_hub here (requirements/test.txt)"),
]
FILES = {"config.json": b"{}", "model-1.safetensors": os.urandom(3 * 2**20), "model-2.safetensors": os.urandom(2**20)}
TOKEN = "hf_" + "Zq9" * 10


class Owner(harness.Site):
    """Four Sparks on loopback, a cluster and a hub."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.cluster = kube_api.Cluster(names(4))
        self.server = kube_api.serve(self.cluster, folder / "kubeconfig")
        self.hub = Hub()
        self.repos = {profile: inputs.plan(profile)["model"] for profile in (MODEL, OTHER)}
        self.hub.repos = {
            self.repos[MODEL]: Repo(dict(FILES)),
            self.repos[OTHER]: Repo({"model-1.safetensors": os.urandom(2**20)}, gated=True, allowed=(TOKEN,)),
        }
        super().__init__(
            folder,
            folder / "kubeconfig",
            k8s_dgx_weights="present",
            model_weights_hub_python=PYTHON,
            model_weights_hub_environment={"HF_ENDPOINT": self.hub.url, "HF_HUB_DISABLE_XET": "1"},
            k8s_dgx_serving={"cache_dir": str(folder / "cache") + "/{{ inventory_hostname }}"},
            model_weights_files_dir=str(folder / "files"),
            k8s_dgx_disk_reserve_gib=0,
            model_weights_copy_addresses={name: f"127.0.0.{number}" for number, name in enumerate(names(4), 1)},
        )

    def weights(self, profile: str = MODEL) -> dict[str, dict[str, bytes]]:
        """Return what an engine on each Spark finds."""
        found = {}
        for name in names(4):
            base = self.folder / "cache" / name / "huggingface/hub" / cache.folder(self.repos[profile])
            head = base / "refs/main"
            snapshot = base / "snapshots" / head.read_text() if head.exists() else base / "none"
            found[name] = {path.name: path.read_bytes() for path in snapshot.glob("*")}
        return found

    def profiles(self) -> set[str]:
        return {pod["metadata"]["annotations"]["dgxspark.cluster/profile"] for pod in self.cluster.pods().values()}


@pytest.fixture
def owner(tmp_path: pathlib.Path) -> t.Iterator[Owner]:
    made = Owner(tmp_path)
    yield made
    made.server.shutdown()
    made.hub.stop()


@pytest.fixture
def alone(owner: Owner) -> Owner:
    """The plan and the weights, without a cluster."""
    owner.parts("plan", "model_weights:main")
    return owner


@pytest.mark.more
def test_weights_come_once_and_go_round(alone: Owner) -> None:
    code, said, changed = alone.run("--check")
    assert (code, changed > 0) == (0, True), said
    assert f"GiB of {alone.repos[MODEL]} to be fetched" in said and "to be copied from spark3" in said
    assert not alone.hub.sent and not any(alone.weights().values())
    # One download, four Sparks; an engine finds all of it without a network.
    assert alone.good() > 0
    assert alone.weights() == dict.fromkeys(names(4), FILES)
    assert alone.hub.sent == {path: len(data) for path, data in FILES.items()}
    # Again: nothing changes, and the hub is not asked.
    alone.hub.requests.clear()
    assert alone.good() == 0
    # A Spark that lost a file gets it from another.
    base = alone.folder / "cache/spark3/huggingface/hub" / cache.folder(alone.repos[MODEL]) / "blobs"
    max(base.iterdir(), key=lambda path: path.stat().st_size).unlink()
    assert alone.good() > 0
    assert alone.weights() == dict.fromkeys(names(4), FILES)
    assert alone.hub.requests == []


@pytest.mark.long
def test_a_spark_that_cannot_pass_on_what_it_has_is_named(alone: Owner) -> None:
    with socket.create_server(("127.0.0.2", 47110)):  # accepts the next Spark's connection, and never answers
        code, said, _changed = alone.run(model_weights_copy_patience=3)
    assert code != 0
    assert "127.0.0.2 port 47110 is already in use" in said and "model_weights_copy_port" in said
    assert alone.weights()["spark1"] == FILES  # what arrived stays, and the next run continues from there
    assert not alone.weights()["spark3"]


@pytest.mark.more
def test_weights_of_a_model_that_is_to_be_served_are_not_taken_away(owner: Owner) -> None:
    before = dict(owner.cluster.objects)
    code, said, _changed = owner.run(k8s_dgx_weights="absent")
    assert code != 0
    assert "k8s_dgx_weights is absent, but k8s_dgx_state is present" in said
    assert owner.cluster.objects == before


@pytest.mark.long
def test_weights_that_another_instance_loads_are_not_taken_away(owner: Owner) -> None:
    other = inputs.plan(MODEL, instance={"name": "second", "vf_index": 1})
    for each in inputs.objects(other):
        if each["kind"] == "ConfigMap" and "second" in each["metadata"]["name"]:
            about = each["metadata"]
            owner.cluster.put(("v1", "configmaps", about["namespace"], about["name"]), each)
    for name in names(4):
        (owner.folder / "cache" / name / "huggingface/hub").mkdir(parents=True)
    code, said, _changed = owner.run(k8s_dgx_state="absent", k8s_dgx_weights="absent")
    assert code != 0
    assert f"/second in this cluster uses {owner.repos[MODEL]}" in said and "Stop it first" in said


@pytest.mark.long
def test_a_model_that_may_not_be_had_leaves_the_one_that_serves_alone(owner: Owner) -> None:
    assert owner.good() > 0
    assert owner.weights() == dict.fromkeys(names(4), FILES)
    first = next(iter(owner.cluster.pods().values()))
    env = {each["name"]: each["value"] for each in first["spec"]["containers"][0]["env"]}
    assert env["HF_HUB_OFFLINE"] == "1"
    code, said, _changed = owner.run(k8s_dgx_model_profile=OTHER)
    assert code != 0
    assert "The repository is gated" in said and "Accept its terms" in said
    assert owner.profiles() == {MODEL}
    # With a token that has access: switched, and the token is left nowhere.
    code, said, _changed = owner.run("-vvv", "--diff", k8s_dgx_model_profile=OTHER, k8s_dgx_hf_token=TOKEN)
    assert code == 0, said
    assert TOKEN not in said
    assert owner.profiles() == {OTHER}
    left = [path for path in owner.folder.rglob("*") if path.is_file() and path.name != "variables.json"]
    assert not [path for path in left if TOKEN.encode() in path.read_bytes()]
    # Nor in the cluster: ranks that find their weights on the node do not need it.
    assert not [
        key for key, made in owner.cluster.objects.items() if leaks.lines(str(made), TOKEN) or key[-1].endswith("token")
    ]
    # Removed only on request, and only those of the named profile.
    assert owner.good(k8s_dgx_state="absent", k8s_dgx_weights="absent") > 0
    assert not any(owner.weights().values())
    assert all(owner.weights(OTHER).values())
