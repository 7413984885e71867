"""The hub's token and the API's key through a whole run: `serve.yml` against the stand-in's API, then the rank that it creates."""

from __future__ import annotations

import base64
import os
import pathlib
import subprocess
import sys
import typing as t
import urllib.error
import urllib.request

import pytest
import yaml

from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.engines.kubelet import Pod
from ansible_collections.dgxspark.cluster.tests.stand_ins import kube_api
from ansible_collections.dgxspark.cluster.tests.unit import leaks
from ansible_collections.dgxspark.cluster.tests.unit.kube_ranks import ENGINE, PATIENCE

pytestmark = pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN)
TOKEN = "hf_" + "Xy7Qp" * 7
KEY, NEXT_KEY = "sk-" + "9fBz3" * 8, "sk-" + "Lw2mT" * 8
PROFILE = "qwen3-vl-8b-instruct-fp8"  # one rank
# All facts and variables of a host at the end, except for the owner's own.
FACTS = "{{ hostvars[inventory_hostname] | dict2items | rejectattr('key', 'in', ['k8s_dgx_hf_token', 'k8s_dgx_api_key', 'vars']) | items2dict | to_json }}"
# The engine looks for the token as the hub's library does, and tells whether it found it.
STAND_IN = """
import os, pathlib, sys
place = os.environ.get("HF_TOKEN_PATH")
if place:
    print("a token of", len(pathlib.Path(place).read_text()), "characters is here", flush=True)
sys.argv[1:] = [sys.argv[sys.argv.index("--port") + 1], os.getcwd(), "0"]
"""


class Owner(harness.Site):
    """One Spark, the stand-in for its cluster, and a token in a file that only the owner can read."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.cluster = kube_api.Cluster(["spark1"])
        self.server = kube_api.serve(self.cluster, folder / "kubeconfig")
        (folder / "facts").mkdir(mode=0o700)
        # This machine's free memory must not matter.
        free = {"k8s_dgx_free_gib": {"spark1": 110}}
        super().__init__(folder, folder / "kubeconfig", dgxspark_fabric={"topology": "single"}, **free)
        inventory = yaml.safe_load((folder / "hosts.yml").read_text(encoding="utf-8"))
        inventory["dgx"]["hosts"] = {"spark1": inventory["dgx"]["hosts"]["spark1"]}
        (folder / "hosts.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")

    def play(self, **_role: str) -> None:
        kept = {"name": "Keep what is known of a host", "changed_when": False, "ansible.builtin.copy": {
            "content": FACTS, "dest": f"{self.folder}/facts/{{{{ inventory_hostname }}}}.json", "mode": "0600"}}  # fmt: skip
        plays = [
            {"name": "Serve", "ansible.builtin.import_playbook": "dgxspark.cluster.serve"},
            {"name": "Look", "hosts": "dgx", "gather_facts": False, "tasks": [kept]},
        ]
        (self.folder / "play.yml").write_text(yaml.safe_dump(plays, sort_keys=False), encoding="utf-8")


@pytest.fixture
def owner(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Owner]:
    monkeypatch.setenv("ANSIBLE_LOG_PATH", str(tmp_path / "ansible.log"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    before = os.umask(0o077)  # for the file with the owner's token
    made = Owner(tmp_path)
    yield made
    os.umask(before)
    made.server.shutdown()


def pod(owner: Owner) -> Pod:
    """Return the rank that the run created in the cluster, with a stand-in for its engine."""
    objects = list(owner.cluster.objects.values())
    (rank,) = (made for made in objects if made["kind"] == "StatefulSet")
    made = Pod(
        rank["spec"]["template"], objects, owner.folder / "pod", f"{pathlib.Path(sys.executable).parent}:/usr/bin:/bin"
    )
    (made.root / "sglang").mkdir()
    (made.root / "sglang/launch_server.py").write_text(STAND_IN + ENGINE, encoding="utf-8")
    return made


def answered(rank: Pod, key: str) -> int:
    """Ask the rank's API, as a client with this key."""
    port = next(port["containerPort"] for port in rank.container["ports"] if port["name"] == "http")
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/v1/models", headers={"Authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as exc:
        return exc.code


def keys(owner: Owner) -> list[str]:
    """Return the API keys in the cluster."""
    found = (made for made in owner.cluster.objects.values() if made["kind"] == "Secret" and "key" in made["data"])
    return [base64.b64decode(made["data"]["key"]).decode() for made in found]


@pytest.mark.more
def test_the_hub_s_token_and_the_api_s_key_are_read_by_the_rank_and_seen_by_nobody_else(owner: Owner) -> None:
    both = {"k8s_dgx_model_profile": PROFILE, "k8s_dgx_hf_token": TOKEN, "k8s_dgx_api_key": KEY}
    with leaks.Watch() as watch:
        code, said, _changed = owner.run("--diff", "-vvv", **both)
        assert code == 0, said
        assert "Its API requires a key." in said
        before = os.umask(0o022)  # from here on as in a container
        rank = pod(owner)
        rank.start()
        try:
            rank.wait("ready", PATIENCE)
            assert [answered(rank, key) for key in (KEY, KEY[:-1], "")] == [200, 401, 401]
        finally:
            rank.stop()
        os.umask(before)
    log = rank.log.read_text(encoding="utf-8")
    assert f"a token of {len(TOKEN)} characters is here" in log
    assert watch.texts
    assert not watch.holding(TOKEN, KEY)
    texts = {
        "output": said,
        "log": (owner.folder / "ansible.log").read_text(encoding="utf-8"),
        "facts": (owner.folder / "facts/spark1.json").read_text(encoding="utf-8"),
        "container": log + rank.last_word(),
    }
    assert all(texts.values())
    assert {name: found for name, text in texts.items() if (found := leaks.lines(text, TOKEN, KEY))} == {}
    # In the cluster each is only in its Secret; on disk only in the owner's file and the pod's, which others cannot read.
    assert not leaks.files([owner.folder], TOKEN, KEY)
    for secret, place in ((TOKEN, "dgxspark/token"), (KEY, "dgxspark-api/key")):
        assert [made["kind"] for made in owner.cluster.objects.values() if leaks.lines(str(made), secret)] == ["Secret"]
        found = leaks.files([owner.folder], secret, anyone=False)
        kept = {str(pathlib.Path(path).relative_to(owner.folder)) for path in found}
        assert kept == {"variables.json", f"pod/run/secrets/{place}"}
    # Again: nothing changes; then another key, from a file, replaces the first.
    code, said, changed = owner.run(**both)
    assert (code, changed) == (0, 0), said
    (owner.folder / "key").write_text(f"{NEXT_KEY}\n")
    given = {**both, "k8s_dgx_api_key": "", "k8s_dgx_api_key_file": str(owner.folder / "key")}
    code, said, _changed = owner.run("--diff", "-vvv", **given)
    assert code == 0, said
    assert "its ranks will be stopped" in said
    assert not leaks.lines(said, TOKEN, KEY, NEXT_KEY)
    assert keys(owner) == [NEXT_KEY]
    # So does a file that is not there, and it is told how to make one.
    code, said, _changed = owner.run(**{**given, "k8s_dgx_api_key_file": str(owner.folder / "no key")})
    assert code != 0
    assert "no key is not there." in said and "openssl rand -hex 32 > " in said
    # A file without a key stops the run: an API must not be open by mistake.
    (owner.folder / "key").write_text("\n")
    code, said, _changed = owner.run(**given)
    assert code != 0
    assert "this is not a valid key (0 characters)" in said
    assert keys(owner) == [NEXT_KEY]
    # Once nothing is served, there is no key.
    code, said, _changed = owner.run("--diff", "-vvv", **given, k8s_dgx_state="absent")
    assert code == 0, said
    assert not leaks.lines(said, TOKEN, KEY, NEXT_KEY)
    assert [made for made in owner.cluster.objects.values() if made["kind"] == "Secret"] == []


def test_what_looks_for_leaks_finds_them(tmp_path: pathlib.Path) -> None:
    """A watch that sees nothing would pass everything."""
    with leaks.Watch() as watch:
        subprocess.run(["/bin/sleep", "0.5"], env={"KEY": TOKEN}, check=True)
    assert watch.holding(TOKEN)
    (tmp_path / "open").write_bytes(leaks.forms(TOKEN)[1])
    (tmp_path / "open").chmod(0o644)
    (tmp_path / "shut").write_text(TOKEN)
    (tmp_path / "shut").chmod(0o600)
    assert [pathlib.Path(path).name for path in leaks.files([tmp_path], TOKEN)] == ["open"]
    assert leaks.lines(f"a\nb {TOKEN}\n", TOKEN) == [f"b {TOKEN}"]
