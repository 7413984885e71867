"""The page before the gateway: who may enter it, what it may reach, where its keys are, and when it starts anew."""

from __future__ import annotations

import base64
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import gateway
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import webui as core
from ansible_collections.dgxspark.cluster.tests.unit import leaks

Plain = dict[str, t.Any]
ASKED = {"version": "0.12.4", "digest": "sha256:" + "1" * 64, "admin": "owner@lan.example"}
KEY, WORD, SESSION = "sk-" + "9fBz3" * 8, "correct horse battery", "5e551" * 8
TLS = {"certificate": "-----BEGIN CERTIFICATE-----", "private": "-----BEGIN PRIVATE KEY-----"}


def made(key: str = KEY, word: str = WORD, session: str = SESSION, tls: bool = False, **asked: t.Any) -> Plain:
    return core.webui({**ASKED, **asked}, core.Keys(key, word, session, **(TLS if tls else {})))


def kind(built: Plain, name: str) -> Plain:
    return next(each for each in built["objects"] if each["kind"] == name)


def pod(built: Plain) -> Plain:
    return dict(kind(built, "Deployment")["spec"]["template"])


def environment(built: Plain) -> Plain:
    return {
        each["name"]: each.get("value", each.get("valueFrom")) for each in pod(built)["spec"]["containers"][0]["env"]
    }


def test_nobody_signs_up_and_the_first_account_is_the_owner_s() -> None:
    said = environment(made())
    assert {name: said[name] for name in ("WEBUI_AUTH", "ENABLE_SIGNUP", "DEFAULT_USER_ROLE", "WEBUI_ADMIN_EMAIL")} == {
        "WEBUI_AUTH": "True",
        "ENABLE_SIGNUP": "False",
        "DEFAULT_USER_ROLE": "pending",
        "WEBUI_ADMIN_EMAIL": "owner@lan.example",
    }
    # What the environment says counts at every start: else a replaced key would stay the old one.
    assert said["ENABLE_PERSISTENT_CONFIG"] == "False"


def test_it_asks_the_gateway_and_can_reach_nothing_else() -> None:
    built = made(gateway_port=4100, namespace="models")
    assert environment(built)["OPENAI_API_BASE_URL"] == "http://model-gateway.models.svc:4100/v1"
    policy = kind(built, "NetworkPolicy")["spec"]
    dns, behind = policy["egress"]
    assert policy["policyTypes"] == ["Ingress", "Egress"] and {each["port"] for each in dns["ports"]} == {53}
    # Of the gateway's pods: their labels, and the name of their port.
    there = gateway.gateway({"version": "1.108.7", "digest": ASKED["digest"]}, (), gateway.Keys(KEY, {}), "")
    of_gateway = kind(there, "Deployment")["spec"]["template"]
    labels = behind["to"][0]["podSelector"]["matchLabels"]
    assert labels.items() <= of_gateway["metadata"]["labels"].items()
    assert behind["ports"][0]["port"] == of_gateway["spec"]["containers"][0]["ports"][0]["name"]
    # Nor does the gateway's policy or Service take the page for the gateway.
    assert kind(there, "Service")["spec"]["selector"] != kind(built, "Service")["spec"]["selector"]
    assert not labels.items() <= pod(built)["metadata"]["labels"].items()


def test_keys_are_in_the_secret_alone_and_a_new_one_starts_it_anew() -> None:
    built = made()
    assert leaks.lines(str(built["objects"]), KEY, WORD, SESSION) == []
    data = {name: base64.b64decode(text).decode() for name, text in built["secret"]["data"].items()}
    assert data == {"gateway-key": KEY, "password": WORD, "session-key": SESSION}
    of_env = {name: each["secretKeyRef"] for name, each in environment(built).items() if isinstance(each, dict)}
    assert {each["name"] for each in of_env.values()} == {built["secret"]["metadata"]["name"]}
    assert {name: data[each["key"]] for name, each in of_env.items()} == {
        "OPENAI_API_KEY": KEY,
        "WEBUI_ADMIN_PASSWORD": WORD,
        "WEBUI_SECRET_KEY": SESSION,
    }
    assert pod(made()) == pod(built) != pod(made(key=KEY[::-1]))


def test_it_has_the_gateway_s_certificate_and_its_accounts_outlive_the_pod() -> None:
    built = made(tls=True)
    said, spec = environment(built), pod(built)["spec"]
    files = next(each["mountPath"] for each in spec["containers"][0]["volumeMounts"] if each["name"] == "files")
    assert (said["UVICORN_SSL_CERTFILE"], said["UVICORN_SSL_KEYFILE"]) == (f"{files}/tls.crt", f"{files}/tls.key")
    assert said["OPENAI_API_BASE_URL"].startswith("https://") and said["WEBUI_SESSION_COOKIE_SECURE"] == "True"
    assert spec["containers"][0]["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    claim = kind(built, "PersistentVolumeClaim")
    assert spec["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert kind(built, "Deployment")["spec"]["strategy"] == {"type": "Recreate"}
    plain = pod(made())["spec"]
    assert [each["name"] for each in plain["volumes"]] == ["data"] and "UVICORN_SSL_CERTFILE" not in environment(made())


def test_where_it_runs_and_how_it_is_reached() -> None:
    built = made(node="spark1", node_port=30401, storage="5Gi", storage_class="fast", image_pull_secrets=["mine"])
    spec = pod(built)["spec"]
    assert spec["nodeSelector"] == {"kubernetes.io/hostname": "spark1"}
    assert spec["imagePullSecrets"] == [{"name": "mine"}] and spec["automountServiceAccountToken"] is False
    assert spec["containers"][0]["image"] == f"ghcr.io/open-webui/open-webui:v0.12.4@{ASKED['digest']}"
    assert kind(built, "Service")["spec"]["ports"][0]["nodePort"] == 30401
    claim = kind(built, "PersistentVolumeClaim")["spec"]
    assert (claim["storageClassName"], claim["resources"]["requests"]["storage"]) == ("fast", "5Gi")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"admin": ""}, "the first visitor would become the administrator"),
        ({"admin": "owner"}, "model_gateway_webui_admin"),
        ({"admin": "a@b\nWEBUI_AUTH=False"}, "model_gateway_webui_admin"),
        ({"admin": "a@b\x1b"}, "model_gateway_webui_admin"),
        ({"word": "short"}, "12 characters or more"),
        ({"word": "ü" * 40}, "at most 72 bytes; this has 80"),
        ({"word": "a" * 20 + "\n"}, "model_gateway_webui_password"),
        ({"digest": "sha256:1"}, "model_gateway_webui_digest: state the digest"),
        ({"digest": ""}, "imagetools inspect ghcr.io/open-webui/open-webui:v0.12.4"),
        ({"version": "main"}, "model_gateway_webui_version: 'main' is not a release, such as 0.12.4"),
        ({"repository": "a b"}, "model_gateway_webui_repository"),
        ({"storage": "much"}, "model_gateway_webui_storage: 'much' is not a size"),
        ({"namespace": "../x"}, "model_gateway_namespace"),
        ({"node": "a b"}, "model_gateway_node"),
        ({"service_type": "Host"}, "model_gateway_webui"),
        ({"webui_auth": False}, "model_gateway_webui"),
    ],
)
def test_what_cannot_be_run_safely_is_refused(asked: Plain, said: str) -> None:
    with pytest.raises(CollectionError) as refused:
        made(**asked)
    assert said in str(refused.value)
    assert leaks.lines(str(refused.value), KEY, SESSION) == []
