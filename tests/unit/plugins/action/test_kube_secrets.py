"""The action kube_secrets against a scripted API: what ranks read is applied, the rest is deleted, nothing is shown."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.api_key import secret_name
from ansible_collections.dgxspark.cluster.tests.unit import leaks
from ansible_collections.dgxspark.cluster.tests.unit.actions import run

Plain = dict[str, t.Any]
TOKEN, KEY = "hf_" + "Xy7Qp" * 7, "sk-" + "9fBz3" * 8
NAME = secret_name(KEY, "dgx-serving", "default")
OWN = {"namespace": "dgx-serving", "instance": "default", "kubeconfig": "/k"}
LABELS = {"app.kubernetes.io/managed-by": "dgxspark.cluster", "app.kubernetes.io/instance": "default"}
SELECTORS = ["app.kubernetes.io/managed-by=dgxspark.cluster", "app.kubernetes.io/instance=default"]


class Api:
    """Answers as kubernetes.core.k8s does, echoing the objects it was given. refuses: the error with which it refuses all."""

    def __init__(self, refuses: str = "") -> None:
        self.refuses = refuses
        self.asked: list[Plain] = []

    def __call__(self, action: t.Any, arguments: Plain, _vars: t.Any) -> Plain:
        assert action._task.no_log and not action._task.diff
        self.asked.append(arguments)
        if self.refuses:
            error = {"msg": self.refuses, "error": {"msg": self.refuses}}
            return {"result": {"results": [error, error]}} if action._task.check_mode else {"failed": True, **error}
        results = [{"changed": True, "result": each} for each in arguments.get("resource_definition", [{}])]
        return results[0] if len(results) == 1 else {"changed": True, "result": {"results": results}}


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    made = Api()
    monkeypatch.setattr(ask, "k8s", made)
    return made


def test_what_ranks_read_is_applied_and_only_its_name_is_in_the_result(api: Api) -> None:
    made = run("kube_secrets", hf_token=TOKEN, api_key=KEY, **OWN)
    assert (made["changed"], "diff" in made, leaks.lines(str(made), TOKEN, KEY)) == (True, False, [])
    names = ["serve-default-hf-token", NAME]
    assert made["objects"] == [f"Secret/dgx-serving/{name}: changed" for name in names]
    token, key = api.asked[0]["resource_definition"]
    assert [each["metadata"]["name"] for each in (token, key)] == names
    assert token["metadata"]["labels"] == LABELS
    more = {"app.kubernetes.io/component": "api-key", "dgxspark.cluster/api-key": NAME[-16:]}
    assert key["metadata"]["labels"] == {**LABELS, **more}
    # Another key is another Secret; the hub's token may change in place.
    assert ("immutable" in token, key["immutable"]) == (False, True)
    assert (api.asked[0]["apply"], api.asked[0]["kubeconfig"]) == (True, "/k")


@pytest.mark.parametrize(
    ("read", "more"),
    [
        ({}, []),
        ({"hf_token": TOKEN}, ["app.kubernetes.io/component=api-key"]),
        ({"api_key": KEY}, [f"dgxspark.cluster/api-key!={NAME[-16:]}"]),
        (
            {"hf_token": TOKEN, "api_key": KEY},
            ["app.kubernetes.io/component=api-key", f"dgxspark.cluster/api-key!={NAME[-16:]}"],
        ),
    ],
)
def test_what_no_rank_reads_goes_by_its_labels(api: Api, read: Plain, more: list[str]) -> None:
    assert run("kube_secrets", state="pruned", **read, **OWN)["changed"]
    gone = {"state": "absent", "delete_all": True, "api_version": "v1", "kind": "Secret"}
    assert api.asked == [{**gone, "namespace": "dgx-serving", "kubeconfig": "/k", "label_selectors": SELECTORS + more}]


def test_without_token_and_key_there_is_nothing_to_do(api: Api) -> None:
    made = run("kube_secrets", **OWN)
    assert (made["changed"], made["objects"], api.asked) == (False, [], [])


def test_in_check_mode_secrets_of_a_namespace_that_would_be_made_would_be_made_too(api: Api) -> None:
    api.refuses = 'namespaces "dgx-serving" not found'
    after = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dgx-serving"}}]
    made = run("kube_secrets", check=True, hf_token=TOKEN, api_key=KEY, after=after, **OWN)
    assert made["objects"][0] == "Secret/dgx-serving/serve-default-hf-token: would be created"
    assert not leaks.lines(str(made), TOKEN, KEY)
    assert run("kube_secrets", check=True, hf_token=TOKEN, api_key=KEY, **OWN)["failed"]


@pytest.mark.parametrize("state", ["present", "pruned"])
def test_what_fails_says_why(api: Api, state: str) -> None:
    api.refuses = "forbidden"
    assert run("kube_secrets", state=state, hf_token=TOKEN, **OWN)["msg"] == "dgxspark.cluster.kube_secrets: forbidden"
    # An empty key is refused: a file that is empty by mistake must not open the API.
    assert "this is not a valid key" in run("kube_secrets", state=state, api_key="", **OWN)["msg"]
    assert len(api.asked) == 1
