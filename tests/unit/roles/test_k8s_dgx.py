"""The role k8s_dgx against an API server: a stand-in (tests/stand_ins/kube_api.py), or with KUBECONFIG a real one.

Each test is one or more real runs of ansible-playbook; what the cluster then has is read from the API.
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
import urllib.request

import pytest
import yaml

from ansible_collections.dgxspark.cluster.tests.stand_ins import kube_api
from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs as inputs

ROOT = pathlib.Path(__file__).resolve().parents[3]
Plain = dict[str, t.Any]
PLAYBOOK = [
    {
        "name": "Serve",
        "hosts": "dgx",
        "gather_facts": False,
        "tasks": [{"name": "Serve", "ansible.builtin.include_role": {"name": "dgxspark.cluster.k8s_dgx"}}],
    }
]
MODEL, OTHER = "qwen3.5-397b-a17b-nvfp4", "glm-4.7-nvfp4"


def collections() -> pathlib.Path | None:
    """Return where kubernetes.core is, for a playbook of its own process."""
    for place in os.environ.get("ANSIBLE_COLLECTIONS_PATH", "").split(os.pathsep):
        if (pathlib.Path(place) / "ansible_collections/kubernetes/core/MANIFEST.json").is_file():
            return pathlib.Path(place)
    return None


pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("kubernetes") is None or collections() is None,
    reason="not run: the library kubernetes or the collection kubernetes.core is not there",
)


class Site:
    """An inventory of four Sparks, all of them this machine, and the cluster that they are in."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.cluster = kube_api.Cluster([f"spark{number}" for number in range(1, 5)])
        self.kubeconfig = folder / "kubeconfig"
        self.server = kube_api.serve(self.cluster, self.kubeconfig)
        hosts = {
            f"spark{n}": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
            for n in range(1, 5)
        }
        variables = {
            "dgxspark_plan": {"hosts": inputs.fabric(4)},
            "k8s_dgx_kubeconfig": str(self.kubeconfig),
            "k8s_dgx_memory_check": False,
            "k8s_dgx_image": inputs.PINNED,
        }
        (folder / "hosts.yml").write_text(
            yaml.safe_dump({"dgx": {"hosts": hosts, "vars": variables}}), encoding="utf-8"
        )
        (folder / "play.yml").write_text(yaml.safe_dump(PLAYBOOK, sort_keys=False), encoding="utf-8")
        (folder / "ansible.cfg").write_text("[defaults]\nlocalhost_warning = False\n", encoding="utf-8")
        link = folder / "collections/ansible_collections/dgxspark"
        link.mkdir(parents=True)
        (link / "cluster").symlink_to(ROOT)

    def run(self, *options: str, **variables: t.Any) -> tuple[int, str, int]:
        """Run the role; return exit status, output and how many tasks changed something."""
        given = {"k8s_dgx_model_profile": MODEL, **variables}
        env = {
            **os.environ,
            "ANSIBLE_CONFIG": str(self.folder / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": f"{self.folder / 'collections'}{os.pathsep}{collections()}",
            "ANSIBLE_HOME": str(self.folder / "home"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
        }
        command = [sys.executable, "-m", "ansible", "playbook"]
        command = [
            str(pathlib.Path(sys.executable).parent / "ansible-playbook"),
            "-i",
            "hosts.yml",
            "play.yml",
            *options,
        ]
        ran = subprocess.run(
            [*command, "-e", json.dumps(given)], check=False, cwd=self.folder, env=env, capture_output=True, text=True
        )
        said = ran.stdout + ran.stderr
        changed = sum(map(int, re.findall(r"changed=(\d+)", said)))
        assert "Traceback" not in said, said
        return ran.returncode, said, changed

    def good(self, *options: str, **variables: t.Any) -> int:
        """Run the role, which must end well; return how many tasks changed something."""
        code, said, changed = self.run(*options, **variables)
        assert code == 0, said
        return changed

    def names(self, kind: str) -> set[str]:
        """Return the names of all objects of a kind."""
        return {key[3] for key, made in self.cluster.objects.items() if made["kind"] == kind}

    def pods(self) -> dict[str, Plain]:
        return {key[3]: made for key, made in self.cluster.objects.items() if made["kind"] == "Pod"}

    def say(self, said: Plain) -> None:
        """Tell the stand-in what state pods come up in, by the start of their names or by their image."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.server.server_port}/_say", json.dumps(said).encode(), method="POST"
        )
        urllib.request.urlopen(request).close()


@pytest.fixture
def site(tmp_path: pathlib.Path) -> t.Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.server.shutdown()


def test_apply_again_check_switch_and_absent(site: Site) -> None:
    """One way through, as an owner goes it; each step begins where the one before it ended."""
    # Check mode on an empty cluster says what would come, and makes nothing.
    assert site.good("--check", "--diff") > 0
    assert site.cluster.writes == []
    # Applied: one rank on each node, everything in place.
    assert site.good() > 0
    assert {name: pod["spec"]["nodeName"] for name, pod in site.pods().items()} == {
        f"serve-default-rank{rank}-0": f"spark{rank + 1}" for rank in range(4)
    }
    assert site.names("NetworkAttachmentDefinition") == {"p0f0v0", "p0f1v0", "p0f0v1", "p0f1v1"}
    assert site.names("DaemonSet") == {
        "dgxspark-multus",
        "dgxspark-sriov-device-plugin",
        "dgxspark-nvidia-device-plugin",
    }
    # Workers were there before the head.
    order = [name for name in site.cluster.writes if name.startswith("StatefulSet/")]
    assert order == [f"StatefulSet/serve-default-rank{rank}" for rank in (1, 2, 3, 0)]
    # Again, and in check mode: nothing changes, nothing is written.
    site.cluster.writes.clear()
    assert site.good() == 0
    assert site.good("--check") == 0
    assert site.cluster.writes == []
    # What a switch would do is told without doing it.
    assert site.good("--check", "--diff", k8s_dgx_model_profile=OTHER) > 0
    assert site.cluster.writes == []
    # The switch: the old group is gone before the new one begins; the service stays.
    before = site.names("ConfigMap")
    service = site.cluster.objects["v1", "services", "dgx-serving", "serve-default"]["metadata"]["uid"]
    assert site.good(k8s_dgx_model_profile=OTHER) > 0
    order = [name for name in site.cluster.writes if "StatefulSet/" in name]
    assert [name[0] for name in order] == ["-"] * 4 + ["S"] * 4
    assert site.cluster.objects["v1", "services", "dgx-serving", "serve-default"]["metadata"]["uid"] == service
    assert {pod["metadata"]["annotations"]["dgxspark.cluster/profile"] for pod in site.pods().values()} == {OTHER}
    assert len([name for name in site.names("ConfigMap") - before if name.startswith("serve-default-launch")]) == 1
    assert len([name for name in site.names("ConfigMap") if name.startswith("serve-default-launch")]) == 1
    # Stopped: the instance is gone, the platform stays; again: nothing to do.
    assert site.good(k8s_dgx_state="absent") > 0
    assert not site.pods()
    assert not [
        name for kind in ("StatefulSet", "Service", "ConfigMap") for name in site.names(kind) if "serve-" in name
    ]
    assert site.names("DaemonSet")
    assert site.good(k8s_dgx_state="absent") == 0


def waiting(reason: str, message: str) -> Plain:
    state = {"name": "rank", "image": "x", "ready": False, "restartCount": 0, "state": {"waiting": {"reason": reason}}}
    state["state"]["waiting"]["message"] = message
    return {"phase": "Pending", "containerStatuses": [state], "conditions": [{"type": "Ready", "status": "False"}]}


def test_a_new_model_that_does_not_come_up_gives_way_to_the_old_one(site: Site) -> None:
    site.good()
    new = "registry.example/new:2"
    site.say({new: waiting("ImagePullBackOff", "no such manifest")})
    code, said, _changed = site.run(k8s_dgx_model_profile=OTHER, k8s_dgx_image=new)
    assert code != 0
    assert "no such manifest" in said
    assert "The model before it serves again." in said
    assert {pod["metadata"]["annotations"]["dgxspark.cluster/profile"] for pod in site.pods().values()} == {MODEL}
    assert {pod["status"]["phase"] for pod in site.pods().values()} == {"Running"}
    # And what was put back is what the plan says: the next run has nothing to roll.
    site.cluster.writes.clear()
    site.good()
    assert not [name for name in site.cluster.writes if "StatefulSet" in name]


def test_memory_that_is_not_there_stops_the_start_with_its_figure(site: Site) -> None:
    code, said, _changed = site.run(k8s_dgx_memory_check=True, k8s_dgx_memory_timeout=5)
    assert code != 0
    assert re.search(r"spark1: [\d.]+ GiB are free, the plan counts on 101\.0 GiB", said)
    assert "Nothing is served as serve-default now." in said
    assert not site.pods()


def test_what_cannot_start_is_refused_before_the_old_model_is_stopped(site: Site) -> None:
    site.good()
    site.cluster.writes.clear()
    code, said, _changed = site.run(k8s_dgx_model_profile=OTHER, k8s_dgx_node_names={"spark4": "elsewhere"})
    assert code != 0
    assert "there is no node 'elsewhere' in the cluster (nodes: spark1, spark2, spark3, spark4)" in said
    assert not [name for name in site.cluster.writes if "StatefulSet" in name]
    assert len(site.pods()) == 4


def test_parts_are_taken_away_without_what_is_not_ours(site: Site) -> None:
    site.good()
    theirs = {"metadata": {"name": "theirs", "namespace": "kube-system", "labels": {"dgxspark.cluster/part": "multus"}}}
    site.cluster.put(("v1", "configmaps", "kube-system", "theirs"), theirs)
    site.good(k8s_dgx_state="absent")
    gone = dict.fromkeys(
        ("runtime_class", "nvidia_device_plugin", "multus", "sriov_device_plugin", "networks"), "absent"
    )
    play = [{**PLAYBOOK[0], "tasks": [{"name": "Platform", "ansible.builtin.include_role": {
        "name": "dgxspark.cluster.k8s_dgx", "tasks_from": "platform.yml"}}]}]  # fmt: skip
    (site.folder / "play.yml").write_text(yaml.safe_dump(play, sort_keys=False), encoding="utf-8")
    assert site.good(k8s_dgx_parts=gone) > 0
    assert not site.names("DaemonSet") | site.names("CustomResourceDefinition") | site.names("RuntimeClass")
    assert site.names("ConfigMap") == {"theirs"}
    assert site.good(k8s_dgx_parts=gone) == 0


def test_the_token_is_in_the_secret_and_nowhere_else(site: Site) -> None:
    token = "hf_" + "Xy7" * 10
    code, said, _changed = site.run("--diff", "-vvv", k8s_dgx_hf_token=token)
    assert code == 0, said
    import base64

    coded = base64.b64encode(token.encode()).decode()
    # -vvv prints the extra variables, which are the test's own way in.
    lines = [line for line in said.splitlines() if (token in line or coded in line) and "-e" not in line]
    assert not lines
    holding = {
        made["kind"] for made in site.cluster.objects.values() if token in json.dumps(made) or coded in json.dumps(made)
    }
    assert holding == {"Secret"}
