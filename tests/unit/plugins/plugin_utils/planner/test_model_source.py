"""Where a new profile is read from: a folder, the hub's cache, a hub that answers as the real one does, refusals included."""

from __future__ import annotations

import json
import pathlib
import struct
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.authoring import model_source
from ansible_collections.dgxspark.cluster.tests.support.http_answers import Answering, served

CONFIG = {"architectures": ["LlamaForCausalLM"]}
COMMIT = "a" * 40


class Hub(Answering):
    """Stands in for huggingface.co: /org/name/resolve/REVISION/FILE as its documentation says it (November 2026)."""

    asked: t.ClassVar[list[tuple[str, str | None]]] = []
    headers_sent: t.ClassVar[dict[str, str]] = {"X-Repo-Commit": COMMIT}

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("Authorization")))
        _empty, owner, name, _resolve, revision, file = self.path.split("/")
        if owner == "gated":
            self.answer(401, b"Access to model is restricted")
        elif (name, revision) == ("model", "main") and file == "config.json":
            self.send_response(307)  # a renamed repository
            self.send_header("Location", f"/{owner}/renamed/resolve/{revision}/{file}")
            self.end_headers()
        elif name == "page":
            self.answer(200, b"<html>sign in</html>")
        elif file in ("config.json", "generation_config.json") and name in ("model", "renamed"):
            self.answer(200, json.dumps(CONFIG).encode())
        else:
            self.answer(404, b"Entry not found")


@pytest.fixture(scope="module")
def endpoint() -> t.Iterator[str]:
    with served(Hub) as address:
        yield address


def test_the_hub_s_files_are_all_of_one_commit(endpoint: str) -> None:
    Hub.asked.clear()
    found = model_source.read("own/model", endpoint=endpoint)
    assert set(found.files) == {"config.json", "generation_config.json"}
    assert (found.model, found.revision) == ("own/model", COMMIT)
    assert {path.split("/")[4] for path, _token in Hub.asked[2:]} == {COMMIT}
    assert not any(token for _path, token in Hub.asked)


@pytest.mark.parametrize(
    ("model", "said"),
    [("gated/model", "dgxspark_hub_token_file"), ("own/none", "404"), ("own/page", "not JSON"), ("none", "org/name")],
)
def test_what_the_hub_refuses_is_said_with_a_way_out(endpoint: str, model: str, said: str) -> None:
    with pytest.raises(CollectionError, match=said):
        model_source.read(model, endpoint=endpoint)


def test_a_hub_that_does_not_answer() -> None:
    with pytest.raises(CollectionError, match="could not be downloaded"):
        model_source.read("own/model", endpoint="http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        ("hf_secret", 0o644, "chmod 600"),
        ("", 0o600, "no token"),
        ("a\nb", 0o600, "no token"),
        ("hf_secret", 0o600, "https"),
    ],
    ids=["readable", "empty", "two lines", "not https"],
)
def test_a_token_is_kept(endpoint: str, tmp_path: pathlib.Path, content: str, mode: int, said: str) -> None:
    token = tmp_path / "token"
    token.write_text(content, encoding="utf-8")
    token.chmod(mode)
    Hub.asked.clear()
    with pytest.raises(CollectionError, match=said) as refused:
        model_source.read("own/model", endpoint=endpoint, token_file=str(token))
    assert "secret" not in str(refused.value)
    assert not Hub.asked


def test_a_cached_model_says_its_name_and_commit(tmp_path: pathlib.Path) -> None:
    cached = tmp_path / "models--own--model"
    for commit in (COMMIT, "b" * 40):
        (cached / "snapshots" / commit).mkdir(parents=True)
        (cached / "snapshots" / commit / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    with pytest.raises(CollectionError, match="2 snapshots"):
        model_source.read(str(cached))
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(COMMIT, encoding="utf-8")
    for path in (cached, cached / "snapshots" / COMMIT):
        found = model_source.read(str(path))
        assert (found.model, found.revision, found.files) == ("own/model", COMMIT, {"config.json": CONFIG})


def test_a_folder_s_safetensors_are_read_up_to_their_headers(tmp_path: pathlib.Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    header = json.dumps({"a.weight": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
    file = tmp_path / "model.safetensors"
    file.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 4)
    assert [list(each) for each in model_source.read(str(tmp_path)).headers] == [["a.weight"]]
    for broken in (b"", b"\xff" * 8, struct.pack("<Q", 4) + b"{]}{"):
        file.write_bytes(broken)
        with pytest.raises(CollectionError, match="header"):
            model_source.read(str(tmp_path))


@pytest.mark.parametrize(("path", "said"), [("/none/there", "no such folder"), ("", "no config.json")])
def test_a_folder_without_a_model(tmp_path: pathlib.Path, path: str, said: str) -> None:
    with pytest.raises(CollectionError, match=said):
        model_source.read(path or str(tmp_path))
    with pytest.raises(CollectionError, match=r"no config\.json"):
        model_source.read("own/model", {})
