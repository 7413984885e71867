"""The role model_gateway against the stand-in of an API server: real runs of ansible-playbook."""

from __future__ import annotations

import base64
import json
import pathlib
import typing as t

import pytest
import yaml

from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.support.kube_site import StandIn
from ansible_collections.dgxspark.cluster.tests.unit import leaks
from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT

Plain = dict[str, t.Any]
pytestmark = pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN)
KEY, ENGINE, DIGEST = "sk-" + "9fBz3" * 8, "K" + "7qWx" * 8, "sha256:" + "1" * 64
OURS = {"Deployment", "Service", "ConfigMap", "NetworkPolicy", "Secret"}


@pytest.fixture
def site(tmp_path: pathlib.Path) -> t.Iterator[StandIn]:
    made = StandIn(tmp_path)
    yield made
    made.server.shutdown()


def serves(site: StandIn, name: str, *names: str, key: str | None = None) -> None:
    """Have the cluster serve a model, as the role k8s_dgx does."""
    labels = {
        "app.kubernetes.io/managed-by": "dgxspark.cluster",
        "app.kubernetes.io/name": "dgxspark-serving",
        "app.kubernetes.io/instance": name,
    }
    told = {"names": list(names), "port": 30000, "key": key}
    about = {"name": f"serve-{name}", "namespace": "dgx-serving", "labels": labels}
    service = {**about, "annotations": {"dgxspark.cluster/served": json.dumps(told)}}
    spec = {"ports": [{"name": "http", "port": 30000}]}
    place = ("v1", "services", "dgx-serving", f"serve-{name}")
    site.cluster.put(place, {"apiVersion": "v1", "kind": "Service", "metadata": service, "spec": spec})
    if key:
        data = {"key": base64.b64encode(ENGINE.encode()).decode()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {**about, "name": key}, "data": data}
        site.cluster.put(("v1", "secrets", "dgx-serving", key), secret)


def ours(site: StandIn) -> set[str]:
    return {made["kind"] for key, made in site.cluster.objects.items() if key[3] == "model-gateway"}


def offered(site: StandIn) -> set[str]:
    text = site.cluster.objects["v1", "configmaps", "dgx-serving", "model-gateway"]["data"]["config.yaml"]
    return {each["model_name"] for each in yaml.safe_load(text)["model_list"]}


def test_apply_again_check_switch_and_absent(site: StandIn) -> None:
    """One run through, as an owner would do it; each step starts where the last one ended."""
    site.play(name="dgxspark.cluster.model_gateway")
    serves(site, "default", "org/model", "gpt-4o", key="serve-default-api-1")
    good: Plain = {"model_gateway_digest": DIGEST, "model_gateway_api_key": KEY}
    site.cluster.writes.clear()
    # No digest, no gateway; check mode shows what would come, and no key.
    code, said, _changed = site.run(model_gateway_api_key=KEY)
    assert code != 0 and "model_gateway_digest: state the digest" in said, said
    code, said, changed = site.run("--check", "--diff", "-vvv", **good)
    assert (code, changed > 0, site.cluster.writes) == (0, True, []), said
    assert "hosted_vllm/org/model" in said
    assert leaks.lines(said, KEY, ENGINE) == []
    code, said, changed = site.run("--diff", "-vvv", **good)
    assert (code, changed > 0) == (0, True), said
    assert leaks.lines(said, KEY, ENGINE) == []
    assert (ours(site), offered(site)) == (OURS, {"org/model", "gpt-4o"})
    assert "offers gpt-4o, org/model by HTTP at port 30400 of each node, below /v1" in said
    # Again: nothing.
    site.cluster.writes.clear()
    assert (site.good(**good), site.cluster.writes) == (0, [])
    # Another model beside it: the gateway follows.
    serves(site, "second", "org/second")
    assert site.good(**good) > 0
    assert offered(site) == {"org/model", "gpt-4o", "org/second"}
    # Removed, and again.
    assert site.good(model_gateway_state="absent") > 0
    assert ours(site) == set()
    assert site.good(model_gateway_state="absent") == 0


WORD = "correct horse battery"
PAGE = {"Deployment", "Service", "NetworkPolicy", "PersistentVolumeClaim", "Secret"}


def page(site: StandIn) -> dict[str, Plain]:
    return {made["kind"]: made for key, made in site.cluster.objects.items() if key[3] == "model-gateway-webui"}


@pytest.mark.more
def test_a_page_is_put_before_it_and_removed_without_its_accounts(site: StandIn) -> None:
    site.play(name="dgxspark.cluster.model_gateway")
    serves(site, "default", "org/model")
    good: Plain = {"model_gateway_digest": DIGEST, "model_gateway_api_key": KEY}
    wanted = good | {"model_gateway_webui": True, "model_gateway_webui_digest": DIGEST}
    # Without an owner the first visitor would be the administrator.
    code, said, _changed = site.run(**wanted, model_gateway_webui_password=WORD)
    assert code != 0 and "model_gateway_webui_admin: name the account" in said and page(site) == {}, said
    wanted |= {"model_gateway_webui_admin": "owner@lan.example"}
    code, said, _changed = site.run(**wanted, model_gateway_webui_password_file="none.txt")
    assert code != 0 and "a file that is there" in said, said
    (site.folder / "word.txt").write_text(f"{WORD}\n", encoding="utf-8")
    wanted |= {"model_gateway_webui_password_file": "word.txt"}
    code, said, changed = site.run("--check", "--diff", "-vvv", **wanted)
    assert (code, changed > 0, page(site)) == (0, True, {}), said
    assert leaks.lines(said, KEY, WORD) == []
    code, said, changed = site.run("--diff", "-vvv", **wanted)
    assert (code, changed > 0, set(page(site))) == (0, True, PAGE), said
    assert "at http://NODE:30401" in said
    secret = {name: base64.b64decode(text).decode() for name, text in page(site)["Secret"]["data"].items()}
    assert (secret["gateway-key"], secret["password"]) == (KEY, WORD)
    assert leaks.lines(said, KEY, WORD, secret["session-key"]) == []
    # Again: nothing, since what signs the sessions is kept. A new key of the gateway: another pod, the same sessions.
    site.cluster.writes.clear()
    assert (site.good(**wanted), site.cluster.writes) == (0, [])
    before = page(site)["Deployment"]["spec"]["template"]
    assert site.good(**(wanted | {"model_gateway_api_key": KEY[::-1]})) > 0
    assert page(site)["Deployment"]["spec"]["template"] != before
    after = {name: base64.b64decode(text).decode() for name, text in page(site)["Secret"]["data"].items()}
    assert after == secret | {"gateway-key": KEY[::-1]}
    # Taken out of the inventory, it goes, and the gateway stays; accounts go only if that is asked for.
    assert site.good(**good) > 0
    assert (set(page(site)), ours(site)) == ({"PersistentVolumeClaim"}, OURS)
    assert site.good(**good) == 0
    assert site.good(model_gateway_state="absent", model_gateway_webui_forget=True) > 0
    assert (page(site), ours(site)) == ({}, set())


@pytest.mark.more
def test_serving_and_stopping_a_model_keep_it_up_to_date(site: StandIn) -> None:
    gateway: Plain = {"model_gateway_digest": DIGEST, "model_gateway_api_key": KEY, "model_gateway_state": "present"}
    first = {"name": "Serve", "ansible.builtin.include_role": {"name": "dgxspark.cluster.k8s_dgx"}}
    then = next(
        each
        for each in yaml.safe_load((ROOT / "playbooks" / "serve.yml").read_text(encoding="utf-8"))[1]["tasks"]
        if (each.get("ansible.builtin.include_role") or {}).get("name") == "dgxspark.cluster.model_gateway"
    )
    play = {**harness.playbook()[0], "tasks": [first, then]}
    (site.folder / "play.yml").write_text(yaml.safe_dump([play], sort_keys=False), encoding="utf-8")
    # Without a gateway in the inventory there is none.
    assert site.good(k8s_dgx_aliases=["gpt-4o"]) > 0
    assert ours(site) == set()
    sets = {key: made["metadata"]["uid"] for key, made in site.cluster.objects.items() if made["kind"] == "Pod"}
    assert site.good(k8s_dgx_aliases=["gpt-4o"], **gateway) > 0
    assert "gpt-4o" in offered(site)
    # A new alias restarts no rank; a stopped model is offered no more.
    assert site.good(k8s_dgx_aliases=["gpt-5"], **gateway) > 0
    assert "gpt-5" in offered(site) and "gpt-4o" not in offered(site)
    assert sets == {key: made["metadata"]["uid"] for key, made in site.cluster.objects.items() if made["kind"] == "Pod"}
    assert site.good(k8s_dgx_aliases=["gpt-5"], **gateway) == 0
    assert site.good(k8s_dgx_state="absent", **gateway) > 0
    assert offered(site) == set()
    # Teardown removes it with the rest.
    site.include("remove")
    assert site.good() > 0
    assert ours(site) == set()


@pytest.mark.more
def test_a_group_that_restarts_gets_no_requests_if_its_name_has_another(site: StandIn) -> None:
    """The gateway's configuration while the group's ranks are stopped, and afterwards. A name of one group is never without it."""
    gateway: Plain = {"model_gateway_digest": DIGEST, "model_gateway_api_key": KEY, "model_gateway_state": "present"}
    gateway |= {"model_gateway_drain_timeout": 5}
    role = {"name": "Serve", "ansible.builtin.include_role": {"name": "dgxspark.cluster.k8s_dgx"}}
    then = {"name": "Gateway", "ansible.builtin.include_role": {"name": "dgxspark.cluster.model_gateway"}}
    play = {**harness.playbook()[0], "tasks": [role, then]}
    (site.folder / "play.yml").write_text(yaml.safe_dump([play], sort_keys=False), encoding="utf-8")
    assert site.good(**gateway) > 0
    [name] = offered(site)
    seen = watched(site)
    assert site.good(k8s_dgx_restart=True, **gateway) > 0
    assert all(groups == {"serve-default"} for groups in seen)
    serves(site, "second", name)
    assert site.good(**gateway) > 0
    seen.clear()
    assert site.good(k8s_dgx_restart=True, **gateway) > 0
    assert seen == [{"serve-second"}, {"serve-default", "serve-second"}]
    # Stopped: the other answers.
    assert site.good(k8s_dgx_state="absent", **gateway) > 0
    assert seen[-1] == {"serve-second"}


def watched(site: StandIn) -> list[set[str]]:
    """Return a list that gets the groups of each configuration from now on, when they change."""
    seen: list[set[str]] = []
    put = site.cluster.put

    def noted(place: tuple[str, str, str, str], made: Plain, *more: t.Any, **also: t.Any) -> t.Any:
        if place[1:] == ("configmaps", "dgx-serving", "model-gateway"):
            listed = yaml.safe_load(made["data"]["config.yaml"])["model_list"]
            groups = {each["model_info"]["id"].split("/")[1] for each in listed}
            if seen[-1:] != [groups]:
                seen.append(groups)
        return put(place, made, *more, **also)

    site.cluster.put = noted  # type: ignore[method-assign]
    return seen
