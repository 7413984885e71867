"""bundle.yml as an owner runs it, against stand-ins of the outside on loopback: THE REAL OUTSIDE IS NOT ASKED HERE."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.tests.support.bundle_site import BENCH, K3S, PARTS, Site, sha256
from ansible_collections.dgxspark.cluster.tests.unit.owner import NO_ANSIBLE, can_run

pytestmark = pytest.mark.skipif(not can_run(), reason=NO_ANSIBLE)


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


@pytest.mark.more
def test_what_cannot_be_listed_is_said_in_its_own_words(site: Site) -> None:
    code, said, _changed = site.run("-e", "model_weights_hub_version=0.0.1")
    assert code != 0 and "CapturedExceptionMarker" not in said
    assert "0.0.1" in said and "huggingface_hub" in said
