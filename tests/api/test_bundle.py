"""The platform and the hub's library from a bundle, behind a wall: a proxy that refuses and records every request."""

from __future__ import annotations

import hashlib
import io
import json
import pathlib
import tarfile
import typing as t
import zipfile

import pytest

from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.stand_ins.outside import Wall
from ansible_collections.dgxspark.cluster.tests.support.kube_site import StandIn
from ansible_collections.dgxspark.cluster.tests.unit import bundles

pytestmark = pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN)
HUB = "huggingface_hub-9.0.0-py3-none-any.whl"


def cni() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name in ("bridge", "host-device", "static", "tuning"):
            info = tarfile.TarInfo(f"./{name}")
            info.size, info.mode = len(name), 0o755
            tar.addfile(info, io.BytesIO(name.encode()))
    return made.getvalue()


def wheel() -> bytes:
    """Return a wheel that pip can install, with a single module in it."""
    made, info = io.BytesIO(), "huggingface_hub-9.0.0.dist-info"
    with zipfile.ZipFile(made, "w") as packed:
        packed.writestr("huggingface_hub.py", "VERSION = 9\n")
        packed.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: huggingface-hub\nVersion: 9.0.0\n")
        packed.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        packed.writestr(f"{info}/RECORD", "")
    return made.getvalue()


class Walled:
    """A site with a bundle, and with the owner's knowledge that the bundle was made from."""

    def __init__(self, site: StandIn) -> None:
        self.site, self.wall, self.bundle = site, Wall(), site.folder / "bundle"
        site.environment = {
            **site.environment,
            **self.wall.environment,
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_FIND_LINKS": "",
        }
        own, contents = site.folder / "own", {"cni_plugins": cni(), "huggingface_hub": wheel()}
        # Must not be fetched: the wall would record the request.
        url = "https://github.com/releases/cni.tgz"
        file = {"url": url, "sha256": hashlib.sha256(contents["cni_plugins"]).hexdigest()}
        common = {"source": ["made by a test"], "verified": "measured"}
        self._own(
            "platform",
            {"id": "cni_plugins", "replaces": "cni_plugins", "component": "cni_plugins", "version": "0", **common}
            | {"files": {"amd64": file, "arm64": file}, "members": ["host-device", "static", "tuning"]},
        )
        digest = hashlib.sha256(contents["huggingface_hub"]).hexdigest()
        wheels = [{"file": HUB, "sha256": digest, "size": len(contents["huggingface_hub"])}]
        self._own(
            "python",
            {"id": "hub-9", "package": "huggingface_hub", "version": "9.0.0", "python": "3.12", "architecture": "arm64"}
            | {"wheels": wheels, **common},
        )
        choices = {"kubernetes": {}, "hub": "9.0.0"}
        self.files = bundles.lay(self.bundle, choices, contents, [str(own)])

    def _own(self, kind: str, entry: dict[str, t.Any]) -> None:
        place = self.site.folder / "own" / kind
        place.mkdir(parents=True)
        (place / "own.yml").write_text(json.dumps(entry), encoding="utf-8")

    def run(self, **variables: t.Any) -> tuple[int, str, int]:
        return self.site.run(
            "-l",
            "spark1",
            k8s_platform_parts={},
            k8s_platform_components={"cni_bin_dir": str(self.site.folder / "bin")},
            k8s_platform_files_dir=str(self.site.folder / "files"),
            model_weights_files_dir=str(self.site.folder / "files"),
            model_weights_hub_version="9.0.0",
            dgxspark_knowledge_dirs=[str(self.site.folder / "own")],
            dgxspark_bundle="bundle",
            **variables,
        )


@pytest.fixture
def walled(tmp_path: pathlib.Path) -> t.Iterator[Walled]:
    site = StandIn(tmp_path)
    made = Walled(site)
    yield made
    made.wall.stop()
    site.server.shutdown()


@pytest.mark.more
def test_the_platform_comes_from_the_bundle_and_nobody_is_asked(walled: Walled) -> None:
    walled.site.play(name="dgxspark.cluster.k8s_platform", tasks_from="parts.yml")
    code, said, changed = walled.run()
    assert (code, changed > 0) == (0, True), said
    assert sorted(path.name for path in (walled.site.folder / "bin").iterdir()) == ["host-device", "static", "tuning"]
    assert walled.run()[::2] == (0, 0)
    assert walled.wall.asked == []


@pytest.mark.more
def test_a_bundle_that_lacks_something_is_refused_before_anything_is_done(walled: Walled) -> None:
    walled.site.play(name="dgxspark.cluster.k8s_platform", tasks_from="parts.yml")
    walled.files["multus"].unlink()
    walled.files["cni_plugins"].write_bytes(cni()[:-1] + b"!")
    code, said, _changed = walled.run()
    assert code != 0
    assert f"{walled.files['multus']} is missing" in said
    assert "SHA-256" in said and "was found, but" in said
    assert walled.site.cluster.writes == []
    assert not (walled.site.folder / "bin").exists()


@pytest.mark.long
def test_the_hub_s_library_comes_from_the_bundle_and_nobody_is_asked(walled: Walled) -> None:
    walled.site.play(name="dgxspark.cluster.model_weights", tasks_from="hub_python.yml")
    code, said, changed = walled.run()
    assert (code, changed > 0) == (0, True), said
    assert list((walled.site.folder / "files/hub-python").glob("lib/*/site-packages/huggingface_hub.py"))
    assert walled.run()[::2] == (0, 0)
    assert walled.wall.asked == []


@pytest.mark.long
def test_without_a_bundle_the_wall_is_asked(walled: Walled) -> None:
    """A control for the tests above: a request does reach the wall."""
    walled.site.play(name="dgxspark.cluster.k8s_platform", tasks_from="cni_plugins.yml")
    files = {arch: {"url": "http://github.invalid/x", "sha256": "0" * 64} for arch in ("arm64", "amd64")}
    install = {"folder": str(walled.site.folder / "bin"), "members": ["static"], "files": files}
    code, _said, _changed = walled.site.run(
        "-l",
        "spark1",
        __k8s_platform_cni={"state": "present", "install": install},
        k8s_platform_files_dir=str(walled.site.folder / "files"),
    )
    assert code != 0
    assert walled.wall.asked == ["GET http://github.invalid/x"]
