"""The stand-in of an API server refuses what it does not know, with the real server's status, and writes nothing."""

from __future__ import annotations

import json
import pathlib
import typing as t
import urllib.error
import urllib.request

import pytest

from ansible_collections.dgxspark.cluster.tests.stand_ins import kube_api

Plain = dict[str, t.Any]
SPACE = "/api/v1/namespaces/kube-system"
MAPS = f"{SPACE}/configmaps"
MAP: Plain = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "own", "namespace": "kube-system"}}
APPLY, JSON, JSON_PATCH = "application/apply-patch+yaml", "application/json", "application/json-patch+json"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[str]:
    kubeconfig: pathlib.Path = tmp_path_factory.mktemp("api") / "kubeconfig"
    server = kube_api.serve(kube_api.Cluster(["spark1"]), kubeconfig)
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def ask(url: str, verb: str, path: str, body: t.Any = None, kind: str = JSON) -> tuple[int, Plain]:
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url + path, method=verb, data=data, headers={"Content-Type": kind})
    try:
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as exc:
        return exc.code, json.load(exc)


@pytest.mark.parametrize(
    ("verb", "path", "body", "kind", "code", "said"),
    [
        ("GET", f"{SPACE}/pods?watch=true", None, JSON, 405, "no watches"),
        ("GET", "/api/v1/events?fieldSelector=spec.node=a", None, JSON, 400, "field label not supported: spec.node"),
        ("GET", "/api/v1/pods?fieldSelector=spec.nodeName", None, JSON, 400, "invalid selector"),
        ("GET", "/api/v1/pods?labelSelector=a%3Db,c%3D%3D%3D", None, JSON, 400, "unable to parse requirement"),
        ("DELETE", MAPS, None, JSON, 405, "does not allow this method"),
        ("PUT", MAPS, MAP, JSON, 405, "does not allow this method"),
        ("POST", f"{MAPS}/own", MAP, JSON, 405, "does not allow this method"),
        ("PUT", f"{MAPS}/none", {**MAP, "metadata": {"name": "none"}}, JSON, 404, '"none" not found'),
        ("PATCH", f"{MAPS}/none", {"data": {}}, MERGE, 404, '"none" not found'),
        ("PATCH", f"{MAPS}/none", [{"op": "remove", "path": "/data"}], JSON_PATCH, 415, JSON_PATCH),
        ("PATCH", "/api/v1/nodes/spark1", {"spec": {"taints": []}}, STRATEGIC, 415, "lists"),
        ("PATCH", f"{MAPS}/own", MAP, APPLY, 422, "fieldManager"),
        ("PATCH", f"{MAPS}/other?fieldManager=a", MAP, APPLY, 400, "does not match the name on the URL"),
        ("POST", MAPS, {**MAP, "kind": "Secret"}, JSON, 400, "cannot be handled as a ConfigMap"),
        ("POST", MAPS, {**MAP, "apiVersion": "v2"}, JSON, 400, "cannot be handled as a ConfigMap"),
    ],
)
def test_what_it_does_not_know_is_refused(
    url: str, verb: str, path: str, body: t.Any, kind: str, code: int, said: str
) -> None:
    written = ask(url, "GET", "/_writes")
    answer, told = ask(url, verb, path, body, kind)
    assert (answer, said in told["message"]) == (code, True), told
    assert ask(url, "GET", "/_writes") == written
