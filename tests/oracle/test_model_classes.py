"""The shipped list of model classes is what the engines' own source says."""

from __future__ import annotations

import pathlib

import pytest
import yaml
from engine_parsers import model_classes
from engine_parsers.sources import ROOT, NotAvailable, source

SHIPPED = ROOT / "knowledge" / "model_classes" / "sglang.yml"
IN_EVERY_RUN = "0.5.13"
BASE = """
class Base(nn.Module):
    def forward(self, input_ids, pp_proxy_tensors=None): ...
    @property
    def start_layer(self): return self.model.start_layer
"""
OWN = """
from sglang.srt.models.base import Base as Parent
class Whole(nn.Module):
    def forward(self, input_ids, *, pp_proxy_tensors=None): ...
class Cut(Parent, Other[int]):
    def load(self):
        self.routed_experts_weights_of_layer = {}
class Plain(Parent):
    def forward(self, input_ids): ...
class Proxy:
    def __getattr__(self, name): ...
EntryClass = [Whole, Cut, Plain, Proxy]
"""


@pytest.fixture
def wheel(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / model_classes.MODELS
    folder.mkdir(parents=True)
    (folder / "base.py").write_text("\ufeff" + BASE, encoding="utf-8")
    (folder / "own.py").write_text(OWN, encoding="utf-8")
    return tmp_path


def test_a_class_can_do_what_it_or_its_bases_define(wheel: pathlib.Path) -> None:
    assert model_classes.classes(wheel) == {
        "Whole": {"pipeline"},
        "Cut": {"pipeline", "start_layer", "balanced"},
        "Plain": {"start_layer"},
    }


def test_code_that_has_moved_stops_the_tool(wheel: pathlib.Path) -> None:
    (wheel / model_classes.MODELS / "own.py").write_text("EntryClass = made()", encoding="utf-8")
    with pytest.raises(RuntimeError, match="no list of names any more"):
        model_classes.classes(wheel)


@pytest.mark.parametrize(
    ("held", "ranges"),
    [
        (["1.0", "1.1", "1.2"], [">=1.0"]),
        (["1.0"], [">=1.0,<1.1"]),
        (["1.0", "1.2"], [">=1.0,<1.1", ">=1.2"]),
        ([], []),
    ],
)
def test_ranges_cover_the_versions_that_hold(held: list[str], ranges: list[str]) -> None:
    assert model_classes.ranges(held, ["1.0", "1.1", "1.2"]) == ranges


def test_one_version_is_what_its_wheel_says() -> None:
    try:
        made = model_classes.classes(source("sglang", IN_EVERY_RUN).folder)
    except NotAvailable as exc:
        pytest.skip(f"not run: {exc}")
    entries = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))["entries"]
    known = [f"0.5.{patch}" for patch in range(10, 24)]

    def holds(ranges: list[str]) -> bool:
        return any(IN_EVERY_RUN in known[slice(*_bounds(one, known))] for one in ranges)

    shipped = {
        e["architecture"]: {fact for fact in ("pipeline", *model_classes.ATTRIBUTES) if holds(e.get(fact, []))}
        for e in entries
        if holds(e["versions"])
    }
    assert made == shipped


def _bounds(text: str, known: list[str]) -> tuple[int, int | None]:
    low, _comma, high = text.partition(",")
    return known.index(low.removeprefix(">=")), known.index(high.removeprefix("<")) if high else None


@pytest.mark.long
def test_the_list_is_what_the_wheels_say() -> None:
    try:
        made = model_classes.made()
    except NotAvailable as exc:
        pytest.skip(f"not run: {exc}")
    assert made == SHIPPED.read_text(encoding="utf-8"), "run: tools/engine_model_classes.py"
