"""A model's facts come by themselves: which place wins, what is said of the others, and what a hostile hub may not do."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.authoring import model_auto
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.authoring.model_source import Hub
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.profile import profile
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import plan
from ansible_collections.dgxspark.cluster.tests.support.http_answers import Answering, served

NAME = "glm-4.7-nvfp4"
FIXTURE = pathlib.Path(__file__).resolve().parents[4] / "oracle" / "models" / "glm4_moe.json"
CONFIG = json.loads(FIXTURE.read_text(encoding="utf-8"))["config.json"]
QUANT = {"quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head", "*self_attn*"]}}
COMMIT = "c" * 40
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 130\n"


def own(model: str = "org/strange", **changes: t.Any) -> dict[str, t.Any]:
    """A shipped profile as written by an owner who knows nothing about the model."""
    entry = {key: value for key, value in profile.find(NAME).items() if key not in ("origin", "facts", "precision")}
    return entry | {"id": "mine", "model": model, "precision": {}} | changes


class Answers(Answering):
    """Answers as huggingface.co does (November 2026): relative redirects, a CDN for large files, 401, 403, 404, LFS pointers."""

    asked: t.ClassVar[list[tuple[str, str | None]]] = []
    headers_sent: t.ClassVar[dict[str, str]] = {"X-Repo-Commit": COMMIT}

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("Authorization")))
        parts = self.path.strip("/").split("/")
        owner, name, file = parts[0], parts[1], parts[-1]
        files = {"config.json": json.dumps(CONFIG).encode(), "hf_quant_config.json": json.dumps(QUANT).encode()}
        index = {"weight_map": {"model.layers.0.mlp.gate.weight": "a.safetensors"}, "metadata": {"total_size": 1}}
        if owner == "gated":
            self.answer(401, b"Access to model gated/model is restricted.")
        elif owner == "forbidden":
            self.answer(403, b"Please enable access to public gated repositories")
        elif owner == "limited":
            self.answer(429, b"")
        elif name == "renamed" and parts[2] == "resolve":
            self.turned(f"/org/new/resolve/{parts[3]}/{file}", 307)
        elif name == "cached" and parts[2] == "resolve":
            self.turned(f"/api/resolve-cache/models/org/cached/{COMMIT}/{file}", 307)
        elif name == "plain":
            files = {"config.json": files["config.json"], "model.safetensors.index.json": json.dumps(index).encode()}
            self.answer(200 if file in files else 404, files.get(file, b"Entry not found"))
        elif name == "pointer":
            self.answer(200, POINTER)
        elif name == "deep":
            self.answer(200, b'{"a":' * 5000 + b"1" + b"}" * 5000)
        elif name == "large":
            self.answer(200, b" " * (5 * 2**20))
        elif name == "list":
            self.answer(200, b"[]")
        elif name == "circle":
            self.turned(self.path, 302)
        elif name == "page":
            self.answer(200, b"<html>sign in</html>")
        else:
            self.answer(200 if file in files else 404, files.get(file, b"Entry not found"))

    def turned(self, to: str, status: int) -> None:
        self.answer(status, Location=to)


@pytest.fixture(scope="module")
def url() -> t.Iterator[str]:
    with served(Answers) as address:
        yield address


@pytest.fixture
def places(url: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Callable[..., model_auto.Places]:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    Answers.asked.clear()

    def made(offline: bool = False, **given: t.Any) -> model_auto.Places:
        return model_auto.Places(hub=Hub(url, environment={"HF_HUB_OFFLINE": str(int(offline))}), **given)

    return made


def cached(tmp_path: pathlib.Path, model: str, **files: t.Any) -> None:
    base = tmp_path / "hub" / f"models--{model.replace('/', '--')}"
    (base / "refs").mkdir(parents=True)
    (base / "refs" / "main").write_text(COMMIT, encoding="utf-8")
    (base / "snapshots" / COMMIT).mkdir(parents=True)
    for name, content in files.items():
        (base / "snapshots" / COMMIT / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")


def planned(entry: dict[str, t.Any], where: model_auto.Places) -> tuple[dict[str, t.Any], dict[str, dict[str, t.Any]]]:
    made = plan.launch_plan(entry, {}, files=model_auto.look(entry, where))
    return made, {finding["rule"]: finding for finding in made["findings"]}


def test_a_profile_with_facts_asks_nobody(places: t.Callable[..., model_auto.Places]) -> None:
    assert model_auto.look(profile.find(NAME), places()) is None
    assert model_auto.wanted(NAME) == "" and model_auto.wanted(own()) == "org/strange"
    assert not Answers.asked


def test_each_place_comes_before_the_next_and_is_named(
    places: t.Callable[..., model_auto.Places], tmp_path: pathlib.Path, url: str
) -> None:
    of_hub, said = planned(own(), places())
    assert f"the hub: config.json of {url}/org/strange at {COMMIT}" in said["facts.from"]["message"]
    assert "facts.unjudged" not in said
    cached(tmp_path, "org/strange", config=CONFIG, hf_quant_config=QUANT)
    Answers.asked.clear()
    of_cache, said = planned(own(), places())
    assert "the controller's Hugging Face cache" in said["facts.from"]["message"] and not Answers.asked
    nodes = {"config.json": CONFIG, "hf_quant_config.json": QUANT}
    of_nodes, said = planned(own(), places(nodes=nodes))
    assert "the weights on the nodes" in said["facts.from"]["message"]
    assert of_hub["memory"] == of_cache["memory"] == of_nodes["memory"]
    shipped = plan.launch_plan(NAME, {})
    assert of_hub["memory"]["weights_gib"] == pytest.approx(shipped["memory"]["weights_gib"], rel=0.05)


@pytest.mark.parametrize("model", ["org/renamed", "org/cached"])
def test_redirects_are_followed(places: t.Callable[..., model_auto.Places], model: str) -> None:
    _made, said = planned(own(model), places())
    assert COMMIT in said["facts.from"]["message"]


def test_kilobytes_are_asked_for(places: t.Callable[..., model_auto.Places]) -> None:
    planned(own(), places())
    assert [path.rpartition("/")[2] for path, _token in Answers.asked] == ["config.json", "hf_quant_config.json"]
    Answers.asked.clear()
    planned(own("org/plain"), places())  # only its tensors' names say how it is stored
    assert [path.rpartition("/")[2] for path, _token in Answers.asked][-1] == "model.safetensors.index.json"


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("gated/model", "access must be requested"),
        ("forbidden/model", "the hub says 403"),
        ("limited/model", "the hub says 429"),
        ("org/pointer", "pointer of Git LFS"),
        ("org/deep", "nested more than"),
        ("org/large", "larger than 4 MiB"),
        ("org/list", "an object is needed"),
        ("org/circle", "could not be downloaded"),
        ("org/page", "it is not JSON"),
        ("../x", "is none of the hub"),
    ],
)
def test_a_refusal_is_no_failure_and_says_how_to_get_facts(
    places: t.Callable[..., model_auto.Places], model: str, why: str
) -> None:
    made, said = planned(own(model), places(unread="weights_info: not readable"))
    assert made["memory"] == {} and "facts.unjudged" in said
    text = said["facts.not-found"]["message"]
    assert why in text and "weights_info: not readable" in text and len(text) < 1500
    assert "k8s_dgx_model_config" in said["facts.not-found"]["remedy"]


def test_offline_nobody_is_asked(places: t.Callable[..., model_auto.Places], monkeypatch: pytest.MonkeyPatch) -> None:
    _made, said = planned(own(), places(offline=True))
    assert "HF_HUB_OFFLINE" in said["facts.not-found"]["message"] and not Answers.asked
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert model_auto.Places().offline


def test_a_hub_that_nobody_reaches(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    _made, said = planned(own(), model_auto.Places(hub=Hub("http://127.0.0.1:9")))
    assert "could not be downloaded" in said["facts.not-found"]["message"]


def test_a_proxy_is_that_of_the_weights(url: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    asked = Hub(url, environment={"HTTP_PROXY": "http://127.0.0.1:9"})
    assert "facts.not-found" in planned(own(), model_auto.Places(hub=asked))[1]
    around = Hub(url, environment={"http_proxy": "http://127.0.0.1:9", "NO_PROXY": "example.org, 127.0.0.1"})
    assert "facts.from" in planned(own(), model_auto.Places(hub=around))[1]


def test_a_token_never_leaves_over_http(places: t.Callable[..., model_auto.Places], url: str) -> None:
    places()
    found = model_auto.look(own(), model_auto.Places(hub=Hub(url, token="hf_secretsecret")))
    assert found and "https:// only" in " ".join(found["tried"]) and "hf_secret" not in str(found)
    assert not Answers.asked


@pytest.mark.parametrize(
    ("model", "form"),
    [("other/GLM-4.7-AWQ-4bit", "int4"), ("other/GLM-4.7-FP8", "fp8"), ("other/GLM-4.7-Int4-AutoRound", "int4")],
)
def test_a_sibling_has_the_facts_and_the_name_says_the_format(
    places: t.Callable[..., model_auto.Places], model: str, form: str
) -> None:
    made, said = planned(own(model), places(offline=True))
    text = said["facts.sibling"]["message"]
    assert "glm-4.7" in text and form.upper() in text
    shipped = plan.launch_plan(NAME, {})["memory"]
    assert made["memory"]["kv_bytes_token"] == shipped["kv_bytes_token"]
    assert (made["memory"]["weights_gib"] > 1.4 * shipped["weights_gib"]) == (form == "fp8")


@pytest.mark.parametrize("model", ["other/GLM-4.7-Air-NVFP4", "other/GLM-4.8-NVFP4", "other/NVFP4"])
def test_another_model_is_no_sibling(places: t.Callable[..., model_auto.Places], model: str) -> None:
    assert "facts.sibling" not in planned(own(model), places(offline=True))[1]


def test_a_wrong_file_is_an_error_that_names_it(places: t.Callable[..., model_auto.Places]) -> None:
    with pytest.raises(CollectionError, match=r"config\.json"):
        planned(own(), places(nodes={"config.json": {**CONFIG, "hidden_size": "x"}}))
