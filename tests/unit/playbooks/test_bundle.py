"""bundle.yml as an owner runs it, against stand-ins of the outside on loopback: THE REAL OUTSIDE IS NOT ASKED HERE."""

from __future__ import annotations

import hashlib
import json
import pathlib
import re
import threading
import typing as t

import pytest
import yaml

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.tests.stand_ins import registry as registries
from ansible_collections.dgxspark.cluster.tests.stand_ins.outside import Outside
from ansible_collections.dgxspark.cluster.tests.support.playbooks import play
from ansible_collections.dgxspark.cluster.tests.unit.owner import NO_ANSIBLE, can_run

pytestmark = pytest.mark.skipif(not can_run(), reason=NO_ANSIBLE)
K3S = "v1.36.4+k3s1"
RECAP = re.compile(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)\s+unreachable=\d+\s+failed=(\d+)", re.MULTILINE)
MODEL = "qwen3-235b-a22b-instruct-2507-nvfp4"
HUB = {
    "huggingface_hub-9.0.0-py3-none-any.whl": b"hub" * 500,
    "hf_xet-1.8.0-cp38-abi3-manylinux_2_28_aarch64.whl": b"xet" * 900,
}
BENCH = "ghcr.io/acme/pytorch:1"
PARTS = ("multus", "sriov_device_plugin", "nvidia_device_plugin")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Site:
    """An owner's folder whose knowledge names what the stand-ins have, and a bundle that is not there yet."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.bundle, self.outside = folder, folder / "bundle", Outside()
        self.images = {part: registries.several([{"program": part.encode() * 400}]) for part in PARTS}
        shipped = knowledge.load("platform")
        own = [self._replaced(shipped[part], digest=self.images[part].digest) for part in PARTS]
        cni = b"cni" * 1000
        self.outside.files["/releases/cni.tgz"] = cni
        file = {"url": "https://github.com/releases/cni.tgz", "sha256": sha256(cni)}
        own.append(self._replaced(shipped["cni_plugins"], files={"arm64": file}))
        wheels = [{"file": name, "sha256": sha256(data), "size": len(data)} for name, data in HUB.items()]
        for name, data in HUB.items():
            self.outside.wheel(name.partition("-")[0].replace("_", "-"), name, data)
        python = {"id": "hub-9", "package": "huggingface_hub", "version": "9.0.0", "python": "3.12"}
        self._own("platform", own)
        self._own(
            "python",
            [{**python, "architecture": "arm64", "wheels": wheels, "source": ["a test"], "verified": "measured"}],
        )
        files = {name: name.encode() * 999 for name in ("k3s-arm64", "k3s-airgap-images-arm64.tar.zst")}
        sums = "".join(f"{sha256(data)}  {name}\n" for name, data in files.items())
        for name, data in {**files, "sha256sum-arm64.txt": sums.encode()}.items():
            self.outside.files[f"/k3s-io/k3s/releases/download/{K3S.replace('+', '%2B')}/{name}"] = data
        release = knowledge.get("k3s", K3S)
        self._own("k3s", [self._replaced(release, sha256={"arm64": sha256(files["k3s-arm64"])}, images_sha256={})])
        tags = {re.sub(r"^[^/]+/", "", shipped[part]["image"]): image for part, image in self.images.items()}
        engine = knowledge.get("profile", MODEL)["engine"]["image"]
        registries.lay(
            folder / "registry",
            {
                **tags,
                engine: registries.several([{"engine": b"e" * 9000}]),
                BENCH.partition("/")[2]: registries.several([{"torch": b"t" * 800}]),
            },
        )
        self.server = registries.serve(folder / "registry")
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        here = f"http://127.0.0.1:{self.server.server_port}"
        inventory = {
            "dgx": {
                "hosts": {name: {"ansible_host": f"192.0.2.{n}"} for n, name in enumerate(("spark1", "spark2"), 1)},
                "vars": {
                    "dgxspark_fabric": {"topology": "switch"},
                    "dgxspark_bundle": str(self.bundle),
                    "dgxspark_bundle_mirrors": {
                        "https://github.com": self.outside.url,
                        "https://pypi.org": self.outside.url,
                        **dict.fromkeys(("ghcr.io", "nvcr.io", "docker.io"), here),
                    },
                    "k8s_dgx_model_profile": MODEL,
                    "model_weights_hub_version": "9.0.0",
                    "nccl_bench_image": BENCH,
                },
            },
            "k3s_server": {"hosts": {"spark1": None}},
            "k3s_agent": {"hosts": {"spark2": None}},
        }
        (folder / "hosts.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")

    def _replaced(self, entry: t.Mapping[str, t.Any], **changed: t.Any) -> dict[str, t.Any]:
        kept = {key: value for key, value in entry.items() if key != "origin"}
        return {**kept, **changed, "replaces": entry["id"]}

    def _own(self, kind: str, entries: list[dict[str, t.Any]]) -> None:
        place = self.folder / "dgxspark" / kind
        place.mkdir(parents=True)
        (place / "own.yml").write_text(yaml.safe_dump({"entries": entries}), encoding="utf-8")

    def run(self, *arguments: str) -> tuple[int, str, int]:
        code, output = play(self.folder, "bundle.yml", "-i", "hosts.yml", *arguments)
        changed = sum(int(found[1]) for found in RECAP.findall(output))
        return code, output, changed

    def stop(self) -> None:
        self.outside.stop()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def site(tmp_path: pathlib.Path) -> t.Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.stop()


@pytest.mark.more
@pytest.mark.older_core
def test_a_bundle_is_filled_once_and_no_node_is_asked(site: Site) -> None:
    code, said, changed = site.run("--check")
    assert (code, changed) == (0, 1), said
    assert "k3s-arm64: 0.0 MiB to be fetched from https://github.com/k3s-io/k3s" in said
    assert not site.bundle.exists()
    assert site.outside.asked() == []
    code, said, changed = site.run()
    assert (code, changed) == (0, 1), said
    there = json.loads((site.bundle / "bundle.json").read_text(encoding="utf-8"))["artefacts"]
    assert {each["kind"] for each in there} == {"file", "image", "python"}
    for each in there:
        data = (site.bundle / each["path"]).read_bytes()
        assert (len(data), sha256(data)) == (each["size"], each["sha256"])
    assert {each["digest"] for each in there if each["name"] in PARTS} == {i.digest for i in site.images.values()}
    (path,) = (each["path"] for each in there if each["source"] == BENCH)
    assert path.startswith("images/ghcr.io-acme-pytorch-1-") and path.endswith("-arm64.tar")
    site.outside.requests.clear()
    code, said, changed = site.run()
    assert (code, changed) == (0, 0), said
    assert site.outside.requests == []


@pytest.mark.more
def test_what_cannot_be_had_is_named_and_the_rest_is_there_for_the_next_run(site: Site) -> None:
    path = f"/k3s-io/k3s/releases/download/{K3S.replace('+', '%2B')}/k3s-arm64"
    kept = site.outside.files.pop(path)
    code, said, _changed = site.run()
    assert code != 0
    assert "k3s-arm64: the server says 404" in said
    assert (site.bundle / "files/cni.tgz").is_file()
    site.outside.files[path] = kept
    site.outside.requests.clear()
    code, said, _changed = site.run()
    assert code == 0, said
    assert {asked.rpartition("/")[2] for asked in site.outside.asked()} == {"k3s-arm64"}


@pytest.mark.more
def test_a_run_without_a_folder_is_refused(site: Site) -> None:
    code, said, _changed = site.run("-e", "dgxspark_bundle=")
    assert code != 0
    assert "-e dgxspark_bundle=/path" in said
