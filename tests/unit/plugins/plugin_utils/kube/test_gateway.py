"""The gateway's objects: what it offers, what it may reach, where its keys are, and when it would roll."""

from __future__ import annotations

import base64
import json
import pathlib
import time
import typing as t

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import gateway as core
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.serving import serving
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import SERVED
from ansible_collections.dgxspark.cluster.tests.support.properties import examples
from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs as inputs
from ansible_collections.dgxspark.cluster.tests.unit import leaks
from ansible_collections.dgxspark.cluster.tests.unit.tls import certified

Plain = dict[str, t.Any]
ASKED = {"version": "1.108.7", "digest": "sha256:" + "1" * 64}
OWN, OTHER = "sk-" + "9fBz3" * 8, "K" + "7qWx" * 8


def service(name: str = "serve-default", port: int = 30000, **told: t.Any) -> Plain:
    said = {"names": ["org/model"], "port": port, "key": None, **told}
    about = {"name": name, "namespace": "dgx-serving", "annotations": {SERVED: json.dumps(said)}}
    return {"metadata": about, "spec": {"ports": [{"name": "http", "port": port}]}}


def made(*services: Plain, keys: t.Mapping[str, str] | None = None, **asked: t.Any) -> Plain:
    own = {"certificate": asked.pop("certificate", ""), "private": asked.pop("private", "")}
    versions = list(knowledge.shared("versions").values())
    held = core.Keys(asked.pop("key", OWN), keys or {}, **own)
    now_s = asked.pop("now_s", 0.0)
    return core.gateway({**ASKED, **asked}, core.backends(services), held, "handler = None\n", versions, now_s)


def kind(built: Plain, name: str) -> Plain:
    return next(each for each in built["objects"] if each["kind"] == name)


def config(built: Plain) -> Plain:
    return dict(yaml.safe_load(kind(built, "ConfigMap")["data"]["config.yaml"]))


def stamps(built: Plain) -> Plain:
    return dict(kind(built, "Deployment")["spec"]["template"]["metadata"]["annotations"])


def test_what_is_served_is_what_it_offers() -> None:
    """From the launch plan to LiteLLM's configuration, by way of the instance's Service."""
    served = serving(inputs.plan(), inputs.fabric(4), {"image": inputs.PINNED, "aliases": ["gpt-4o"]})
    services = [each for each in served["common"] if each["kind"] == "Service"]
    [backend] = core.backends(services)
    assert (backend.service, backend.names[1:], backend.key) == ("serve-default", ("gpt-4o",), None)
    listed = config(made(*services))["model_list"]
    assert [each["model_name"] for each in listed] == list(backend.names)
    assert {each["litellm_params"]["model"] for each in listed} == {f"hosted_vllm/{backend.names[0]}"}
    base = f"http://serve-default.dgx-serving.svc:{backend.service_port}/v1"
    assert {each["litellm_params"]["api_base"] for each in listed} == {base}


def test_an_alias_changes_no_rank() -> None:
    plain = serving(inputs.plan(), inputs.fabric(4), {"image": inputs.PINNED})
    named = serving(inputs.plan(), inputs.fabric(4), {"image": inputs.PINNED, "aliases": ["gpt-4o"]})
    assert [plain[key] for key in ("plan", "head", "workers")] == [named[key] for key in ("plan", "head", "workers")]


def test_groups_of_one_name_stand_in_for_each_other_and_a_single_one_is_not_retried() -> None:
    built = made(service(), service("serve-b"), service("serve-c", names=["org/c"]))
    assert built["models"] == {
        "org/c": ["dgx-serving/serve-c"],
        "org/model": ["dgx-serving/serve-b", "dgx-serving/serve-default"],
    }
    retries = {each["model_info"]["id"]: each["litellm_params"]["num_retries"] for each in config(built)["model_list"]}
    assert retries == {
        "dgx-serving/serve-b/org/model": 1,
        "dgx-serving/serve-c/org/c": 0,
        "dgx-serving/serve-default/org/model": 1,
    }


def test_keys_are_in_the_secret_alone_and_a_new_one_rolls_the_gateway() -> None:
    place = {"dgx-serving/serve-default": OTHER}
    built = made(service(key="serve-default-api-1"), keys=place)
    assert leaks.lines(json.dumps(built["objects"]), OWN, OTHER) == []
    held = json.loads(base64.b64decode(built["secret"]["data"]["keys.yaml"]))
    assert held["general_settings"] == {"master_key": OWN, "disable_env_credential_login": True}
    assert held["credential_list"][0]["credential_values"] == {"api_key": OTHER}
    again = made(service(key="serve-default-api-1"), keys=place)
    assert again == built
    new = made(service(key="serve-default-api-1"), keys={**place, "dgx-serving/serve-default": OTHER + "x"})
    assert {key for key in stamps(new) if stamps(new)[key] != stamps(built)[key]} == {"dgxspark.cluster/keys"}
    switched = made(service(key="serve-default-api-1", names=["org/new"]), keys=place)
    assert stamps(switched)["dgxspark.cluster/configuration"] != stamps(built)["dgxspark.cluster/configuration"]


def test_it_reaches_dns_and_what_is_served_and_rolls_without_a_gap() -> None:
    built = made(service(port=30000), service("serve-b", port=31000), node="spark1")
    _dns, engines = kind(built, "NetworkPolicy")["spec"]["egress"]
    assert engines == {"ports": [{"port": port, "protocol": "TCP"} for port in (30000, 31000)]}
    assert len(kind(made(), "NetworkPolicy")["spec"]["egress"]) == 1
    spec = kind(built, "Deployment")["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    pod = spec["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] >= 3600
    assert pod["nodeSelector"] == {"kubernetes.io/hostname": "spark1"}
    assert pod["containers"][0]["image"] == "ghcr.io/berriai/litellm:v1.108.7@sha256:" + "1" * 64


def test_tls_is_the_owner_s_certificate() -> None:
    pem = {"certificate": "-----BEGIN CERTIFICATE-----\n", "private": "-----BEGIN PRIVATE KEY-----\n"}
    built = made(service(), **pem)
    assert set(built["secret"]["data"]) == {"keys.yaml", "tls.crt", "tls.key"}
    container = kind(built, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert "/etc/dgxspark-gateway/tls.key" in container["args"]
    assert container["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    # A renewed one starts new pods: the doctor's remedy.
    renewed = made(service(), **{**pem, "certificate": pem["certificate"] + "renewed"})
    assert stamps(renewed) != stamps(built) == stamps(made(service(), **pem))
    for missing in ("certificate", "private"):
        with pytest.raises(CollectionError, match="give both"):
            made(service(), **{**pem, missing: ""})
    with pytest.raises(CollectionError, match="not PEM") as said:
        made(service(), certificate="x", private=OTHER)
    assert OTHER not in str(said.value)


def test_a_certificate_that_has_expired_is_refused(tmp_path: pathlib.Path) -> None:
    key = certified(tmp_path / "tls.crt", ends_s=60)
    pem = {"certificate": (tmp_path / "tls.crt").read_text("utf-8"), "private": key.read_text("utf-8")}
    made(service(), **pem, now_s=time.time())
    with pytest.raises(
        CollectionError, match=r"model_gateway_tls_certificate: it has expired on 20.* UTC, and clients"
    ) as said:
        made(service(), **pem, now_s=time.time() + 61)
    assert pem["private"] not in str(said.value)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"digest": ""}, "imagetools inspect ghcr.io/berriai/litellm:v1.108.7"),
        ({"digest": "sha256:latest"}, "state the digest"),
        ({"version": "1.82.8"}, "thief"),
        ({"version": "1.83.14"}, "CVE-2026-49468"),
        ({"version": ""}, "not a release"),
        ({"key": ""}, "at least 16"),
        ({"key": "short"}, "5 characters"),
        ({"node": "Spark 1"}, "model_gateway_node"),
        ({"timeout_s": 1}, "timeout_s: 1 is too small"),
        ({"engine": "nginx"}, "engine"),
    ],
)
def test_what_cannot_be_run_safely_is_refused(asked: Plain, says: str) -> None:
    with pytest.raises(CollectionError) as said:
        made(service(), **asked)
    assert says in str(said.value)


@pytest.mark.parametrize("name", ["", "a\x85b", "a\nb", "\u202eab", "n" * 257, 5, None])
def test_a_name_that_no_model_has_is_refused(name: object) -> None:
    with pytest.raises(CollectionError, match="Serve the instance again"):
        core.backends([service(names=[name])])


@given(st.one_of(st.text(max_size=40), st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps)))
@settings(max_examples=examples(100))
def test_a_foreign_annotation_is_refused_by_its_service_and_not_shown(text: str) -> None:
    each = service()
    each["metadata"]["annotations"][SERVED] = text
    with pytest.raises(CollectionError) as said:
        core.backends([each])
    assert "Service dgx-serving/serve-default" in str(said.value)


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcdef"),
            st.lists(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1), min_size=1, max_size=4),
        ),
        max_size=6,
    )
)
@settings(max_examples=examples(50))
def test_every_name_of_every_instance_is_offered(given_names: list[tuple[str, list[str]]]) -> None:
    services = [service(f"serve-{name}", names=names) for name, names in dict(given_names).items()]
    built = made(*services)
    wanted = {name for names in dict(given_names).values() for name in names}
    assert set(built["models"]) == {each["model_name"] for each in config(built)["model_list"]} == wanted
    assert made(*reversed(services)) == built


@given(
    st.lists(st.sets(st.sampled_from("abc"), min_size=1), min_size=1, max_size=6),
    st.sets(st.integers(0, 5)),
)
def test_a_group_that_stops_gets_requests_only_by_names_that_no_other_has(names: list[set[str]], out: set[int]) -> None:
    """So it is left by an alias that another model has, too, even where its own name has no other group."""
    served = core.backends([service(f"serve-{n}", names=sorted(each)) for n, each in enumerate(names)])
    left = core.spared(served, {f"dgx-serving/serve-{n}" for n in out})
    assert {name for each in left for name in each.offered} == {name for each in served for name in each.names}
    stays = {name for n, each in enumerate(names) if n not in out for name in each}
    for each in left:
        stops = int(each.service.removeprefix("serve-")) in out
        assert set(each.offered) == set(each.names) - (stays if stops else set())


def test_a_name_that_is_left_keeps_the_engines_own_for_the_others() -> None:
    services = [
        service("serve-a", names=["org/old", "one", "mine"]),
        service("serve-b", names=["org/new", "org/old", "one"]),
    ]
    made_of = core.spared(core.backends(services), {"dgx-serving/serve-a"})
    listed = yaml.safe_load(core.configuration(core.Gateway(**ASKED), made_of))["model_list"]
    to_a = {each["model_name"]: each["litellm_params"] for each in listed if "serve-a" in each["model_info"]["id"]}
    assert to_a.keys() == {"mine"} and to_a["mine"]["model"] == "hosted_vllm/org/old"
