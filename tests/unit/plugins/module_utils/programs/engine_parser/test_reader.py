"""The program that reads an image, run on package trees as a pod runs it. The engines' own: tests/oracle/test_image.py."""

from __future__ import annotations

import argparse
import pathlib
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.engine_parser import reader
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.engine_parser import run as run_py
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.inspection import inspected
from ansible_collections.dgxspark.cluster.tests.unit.image_trees import SAID, about, lay, run

TORCH = """
class version: cuda = "13.0"
class _nccl: version = staticmethod(lambda: (2, 28, 9))
class cuda: nccl = _nccl
class _C: _cuda_getArchFlags = staticmethod(lambda: "sm_80 sm_121a")
print("a banner on standard output")
"""


@pytest.fixture
def site(tmp_path: pathlib.Path) -> pathlib.Path:
    """An image whose engine's parser cannot be loaded, and all else can."""
    made = tmp_path / "site"
    lay(made, {
        **about("vllm", "0.23.1rc1.dev38+gabc", "torch==2.10.0", "ray>=2; extra == 'ray'"), **about("torch", "2.10.0+cu130"),
        "vllm/__init__.py": "", "torch/__init__.py": TORCH, "cudnn/__init__.py": "",
    })  # fmt: skip
    return made


def test_what_can_be_read_is_said_and_the_rest_is_named(site: pathlib.Path, tmp_path: pathlib.Path) -> None:
    ran = run(site, tmp_path / "programs")
    assert ran.returncode == 0, ran.stderr
    said = inspected.document(ran.stdout)
    assert (said.engine, said.version) == ("vllm", "0.23.1rc1.dev38+gabc")
    assert said.packages == {"vllm": "0.23.1rc1.dev38+gabc", "torch": "2.10.0+cu130"}
    assert said.requires == {"torch": "==2.10.0"}
    assert said.architectures == ("sm_80", "sm_121a")
    assert said.libraries == {"cuda": "13.0", "nccl": "2.28.9"}
    assert said.cudnn_frontend and said.patches == {}
    assert said.parser is None
    (unread,) = said.unread
    assert unread.startswith("parser: the harness could not load vllm: … ModuleNotFoundError:")


class _Hides(argparse.BooleanOptionalAction):
    """As vLLM 0.33.0's EnableDisableAction: the parser's map has every name, and then only some of them are shown."""

    def __init__(self, option_strings: list[str], *args: t.Any, **kwargs: t.Any) -> None:
        super().__init__(option_strings, *args, **kwargs)
        self.shown = [*option_strings, *(name.replace("--enable-", "--disable-") for name in option_strings)]
        self.option_strings = [*self.option_strings, self.shown[-1]]


def test_names_that_a_parser_hides_after_their_registration_are_read_too() -> None:
    parser = argparse.ArgumentParser()
    hides = parser.add_argument("--enable-x", action=_Hides, default=False)
    hides.option_strings = hides.shown  # type: ignore[attr-defined]
    parser.add_argument("--size", "-s", type=int)
    toggle, number = run_py.flags(parser)
    assert toggle["options"] == ["--enable-x", "--disable-x", "--no-enable-x"]
    assert number["options"] == ["--size", "-s"]
    assert parser.parse_args(["--no-enable-x"])  # the parser itself takes the hidden name


def test_an_image_without_an_engine_or_with_both_is_one_line(tmp_path: pathlib.Path) -> None:
    lay(tmp_path / "both", {**about("vllm", "0.17.1"), **about("sglang", "0.5.13")})
    for site, words in ((tmp_path / "none", "neither sglang nor vllm"), (tmp_path / "both", "sglang and vllm")):
        ran = run(site, tmp_path / "programs")
        assert (ran.returncode, ran.stdout) == (1, "")
        assert words in ran.stderr and "Traceback" not in ran.stderr


def test_a_document_comes_through_a_log_whole_or_not_at_all() -> None:
    log = reader.framed(SAID | {"packages": {f"p{number}": "1.0" for number in range(2000)}})
    noise = f"=== a banner ===\n{log}"
    assert inspected.document(noise).engine == "vllm"
    lines = log.splitlines(keepends=True)
    assert len(lines) > 3
    for broken in ("".join(lines[1:]), "".join(lines[:-1]), "".join([lines[1], lines[0], *lines[2:]]), ""):
        with pytest.raises(inspected.CollectionError):
            inspected.document(broken)


def test_what_parsers_are_made_of_is_linked_with_what_it_requires_and_nothing_else(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pip installs a package, with a list of its files, and as a Linux distribution does, without one."""
    site = tmp_path / "site"
    lay(site, {
        **about("transformers", "5.0", "made-of>=1", "torch ; extra == 'torch'"), "transformers/__init__.py": "",
        "transformers-5.0.dist-info/RECORD": "transformers/__init__.py,,\ntransformers-5.0.dist-info/METADATA,,\n../../bin/x,,\n",
        **about("made-of", "1.0"), "made_of/__init__.py": "", **about("torch", "2.0"), "torch/__init__.py": "",
    })  # fmt: skip
    monkeypatch.setattr("sys.path", [str(site)])
    monkeypatch.setattr(reader, "REAL", ())
    reader.link(tmp_path / "packages")
    linked = sorted(path.name for path in (tmp_path / "packages").iterdir())
    assert linked == ["made_of", "made_of-1.0.dist-info", "transformers", "transformers-5.0.dist-info"]
