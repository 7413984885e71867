"""An owner's folder whose bundle comes from stand-ins of GitHub, PyPI and registries on loopback: THE REAL OUTSIDE IS NOT ASKED HERE."""

from __future__ import annotations

import hashlib
import pathlib
import re
import threading
import typing as t

import yaml

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.tests.stand_ins import registry as registries
from ansible_collections.dgxspark.cluster.tests.stand_ins.outside import Outside
from ansible_collections.dgxspark.cluster.tests.support.playbooks import play

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

    def __init__(self, folder: pathlib.Path, engines: t.Sequence[str] = ()) -> None:
        """engines: further images that the registry has."""
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
        engines = [knowledge.get("profile", MODEL)["engine"]["image"], *engines]
        registries.lay(
            folder / "registry",
            {
                **tags,
                **{engine: registries.several([{"engine": b"e" * 9000}]) for engine in engines},
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
