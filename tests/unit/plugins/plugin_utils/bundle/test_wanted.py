"""The list of what comes from outside."""

from __future__ import annotations

import re
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bundle.reference import parse
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bundle.wanted import Artefact, artefacts
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.k3s import archives as k3s_archives
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import gateway, webui
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.platform import platform
from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs as inputs

MODEL = "qwen3-235b-a22b-instruct-2507-nvfp4"
SITE: dict[str, t.Any] = {
    "k3s": "v1.36.4+k3s1",
    "architectures": ["arm64", "amd64"],
    "kubernetes": {},
    "profile": MODEL,
    "hub": "2.4.0",
}


def by_kind(kind: str, **changed: t.Any) -> list[Artefact]:
    return [each for each in artefacts(SITE | changed) if each.kind == kind]


def test_every_file_and_wheel_has_a_checksum_or_a_list_that_has_it() -> None:
    for each in (*by_kind("file"), *by_kind("python")):
        assert each.sha256 or each.listed or each.name.startswith("sha256sum-"), each.path
    paths = [each.path for each in artefacts(SITE)]
    assert len(set(paths)) == len(paths)
    assert all(re.fullmatch(r"[A-Za-z0-9._+/-]+", path) for path in paths)


def test_a_list_of_checksums_comes_before_what_it_vouches_for() -> None:
    paths = [each.path for each in artefacts(SITE)]
    for each in artefacts(SITE):
        assert each.listed is None or paths.index(each.listed) < paths.index(each.path)


def test_what_the_platform_s_objects_ask_for_is_on_the_list() -> None:
    made = platform(inputs.fabric(4), {})
    asked = set(re.findall(r"'image': '([^']+)'", str(made)))
    assert asked == {each.source for each in by_kind("image", profile=None)}
    install = made["cni_plugins"]["install"]["files"]["arm64"]
    assert [(each.source, each.sha256) for each in by_kind("file", k3s=None)] == [(install["url"], install["sha256"])]


def test_the_gateway_s_images_are_those_that_its_pods_name() -> None:
    pin = "sha256:" + "1" * 64
    there = gateway.gateway({"version": "1.108.7", "digest": pin}, (), gateway.Keys("k" * 32, {}), "")
    page = webui.webui({"version": "0.12.4", "digest": pin, "admin": "a@b"}, webui.Keys("k" * 32, "p" * 12, "s"))
    asked = [made["objects"][-1]["spec"]["template"]["spec"]["containers"][0]["image"] for made in (there, page)]
    listed = artefacts({"gateway": asked[0], "webui": asked[1]})
    assert [(each.source, each.digest, each.needed_by) for each in listed] == [
        (each, pin, "model_gateway") for each in asked
    ]


def test_only_what_is_needed_is_on_the_list() -> None:
    assert artefacts({}) == []
    assert {each.name for each in artefacts({"kubernetes": {}, "vfs": False})} == {"nvidia_device_plugin"}
    parts = {"nvidia_device_plugin": "unmanaged"}
    assert "nvidia_device_plugin" not in {each.name for each in artefacts({"kubernetes": {"parts": parts}})}
    own = "mirror.example:5000/multus:1"
    assert own in {each.source for each in artefacts({"kubernetes": {"images": {"multus": own}}})}


def test_the_engine_s_image_is_the_model_s_or_the_owner_s() -> None:
    profile = knowledge.get("profile", MODEL)
    assert [each.source for each in artefacts({"profile": MODEL})] == [profile["engine"]["image"]]
    assert [each.source for each in artefacts({"profile": MODEL, "image": "own:1"})] == ["own:1"]
    over = {"engine": {"image": "other:2"}}
    assert [each.source for each in artefacts({"profile": MODEL, "overrides": over})] == ["other:2"]


def test_the_image_of_the_nccl_benchmark_is_what_an_owner_names() -> None:
    (made,) = artefacts({"bench": "ghcr.io/acme/pytorch:1", "spark": "amd64"})
    assert (made.kind, made.name, made.source, made.arch) == ("image", "nccl_bench", "ghcr.io/acme/pytorch:1", "amd64")
    assert made.needed_by == "nccl: benchmark"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a/engine:0.5.10", "b/engine:0.5.10"),
        ("ghcr.io/a/engine:1", "docker.io/a/engine:1"),
        ("a/b-c:1", "a-b/c:1"),
        ("a/engine:v1_2", "a/engine:v1-2"),
        (f"a/{'long' * 40}:1", f"a/{'long' * 40}:2"),
        ("a/engine:1@sha256:" + "a" * 64, "a/engine:1"),
    ],
)
def test_two_images_do_not_share_an_archive(one: str, other: str) -> None:
    made = [artefacts({"image": name})[0].path for name in (one, other)]
    assert len(set(made)) == 2
    archives = [k3s_archives.Archive(path) for path in made]
    seen = [k3s_archives.Seen(f"/bundle/{path}", 1, "a" * 64) for path in made]
    planned, findings = k3s_archives.plan(archives, seen, "spark1")
    assert not findings
    # and neither is taken for an older version of the other one
    assert not any(re.match(each["older"], other["name"]) for each in planned for other in planned if each is not other)


def test_one_image_under_two_names_is_one_archive() -> None:
    assert len({artefacts({"image": name})[0].path for name in ("busybox", "docker.io/library/busybox:latest")}) == 1


def test_an_owner_s_release_without_a_known_checksum_is_judged_by_its_list() -> None:
    made = {each.name: each for each in artefacts({"k3s": "v1.37.9+k3s1"})}
    assert made["k3s-arm64"].sha256 is None
    assert made["k3s-arm64"].listed == "k3s/v1.37.9+k3s1/sha256sum-arm64.txt"
    assert "v1.37.9%2Bk3s1" in made["k3s-arm64"].source
    known = artefacts({"k3s": "v1.37.9+k3s1", "checksums": {"arm64": "a" * 64}})
    assert {each.sha256 for each in known if each.name == "k3s-arm64"} == {"a" * 64}


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"k3s": "v1.36.4+k3s1", "architectures": ["riscv"]}, "'riscv' is not one of arm64, amd64"),
        ({"hub": "1.0.0"}, r"model_weights_hub_version: the wheels of huggingface_hub 1\.0\.0 for arm64 are not known"),
        ({"image": "no image"}, "is not an image that can be pulled"),
        ({"more": 1}, "unknown key 'more'"),
    ],
)
def test_what_is_not_known_is_refused(choices: dict[str, t.Any], said: str) -> None:
    with pytest.raises(CollectionError, match=said):
        artefacts(choices)


@pytest.mark.parametrize(
    ("text", "name", "asked"),
    [
        ("busybox", "docker.io/library/busybox:latest", "latest"),
        ("acme/engine:1", "docker.io/acme/engine:1", "1"),
        ("ghcr.io/a/b:v1@sha256:" + "a" * 64, "ghcr.io/a/b:v1", "sha256:" + "a" * 64),
        ("localhost:5000/b@sha256:" + "a" * 64, "localhost:5000/b:sha256-" + "a" * 12, "sha256:" + "a" * 64),
    ],
)
def test_an_image_s_name_is_by_tag_and_it_is_asked_for_by_digest(text: str, name: str, asked: str) -> None:
    made = parse(text)
    assert (made.name, made.tag_or_digest) == (name, asked)
