"""The shipped lists of model classes are what the engines' own source says."""

from __future__ import annotations

import pathlib

import pytest
import yaml
from engine_parsers import model_classes, vllm_classes, vllm_drafts
from engine_parsers.sources import ROOT, NotAvailable, source
from engine_parsers.tables import VERSIONS
from engine_parsers.tables import ranges as ranges_of

SHIPPED = ROOT / "knowledge" / "model_classes"
IN_EVERY_RUN = [("sglang", "0.5.13"), ("vllm", "0.17.1")]
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
    with pytest.raises(RuntimeError, match="not a list of names any more"):
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
    assert ranges_of(held, ["1.0", "1.1", "1.2"]) == ranges


REGISTRY = """
_TEXT = {"OneForCausalLM": ("one", "OneForCausalLM"), "Two": ("vllm.models.two", "TwoForCausalLM")}
_MORE: dict[str, tuple[str, str]] = {
    **{name: held for name, held in _TEXT.items() if name == "Two"},
    "OneModel": ("one", "Plain"),
    "Deaf": ("one", "Deaf"),
}
_VLLM_MODELS = {**_TEXT, **_MORE}
"""
ONE = """
from .interfaces import SupportsPP, SupportsStates
class Plain(nn.Module):
    def forward(self, input_ids): ...
class Mixed(Plain): ...
class OneForCausalLM(Mixed, adapted(Plain), SupportsPP, SupportsStates):
    def forward(self, input_ids, **kwargs): ...
class Deaf(nn.Module, SupportsPP):
    def forward(self, input_ids): ...
"""
TWO = """
if current_platform.is_rocm():
    from .amd import TwoForCausalLM
elif TYPE_CHECKING or not current_platform.is_xpu():
    from .nvidia import Inner as TwoForCausalLM
else:
    from .xpu import TwoForCausalLM
"""
INNER = """
from vllm.model_executor.models.one import Plain
from vllm.model_executor.models.interfaces import SupportsPP as Staged
class Inner(Plain, Staged):
    def forward(self, input_ids, *, intermediate_tensors=None): ...
"""
ENDINGS = '_SUFFIX_TO_DEFAULTS: list[str] = [("ForCausalLM", 1), ("ForConditionalGeneration", 1), ("Model", 2)]'


@pytest.fixture
def vllm_wheel(tmp_path: pathlib.Path) -> pathlib.Path:
    models = "vllm/model_executor/models"
    files = {
        vllm_classes.REGISTRY: REGISTRY, vllm_classes.CONFIG: ENDINGS, f"{models}/one.py": ONE,
        f"{models}/interfaces.py": "class SupportsPP(Protocol):\n    def forward(self, *, intermediate_tensors): ...\n"
        "class SupportsStates(Protocol):\n    supports_mamba_prefix_caching: ClassVar[Literal[True]] = True\n",
        "vllm/models/two/__init__.py": TWO, "vllm/models/two/nvidia.py": INNER,
    }  # fmt: skip
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    return tmp_path


def test_a_class_of_vllm_has_stages_where_its_nearest_forward_takes_them(vllm_wheel: pathlib.Path) -> None:
    stages: set[str] = {"pipeline"}
    assert vllm_classes.classes(vllm_wheel) == {
        "OneForCausalLM": {*stages, "states_all"},
        "Two": stages,
        "OneModel": set(),
        "Deaf": set(),
    }


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        (vllm_classes.REGISTRY, "_VLLM_MODELS = made()", "is no dictionary any more"),
        (vllm_classes.REGISTRY, "", "is not where it was"),
        (vllm_classes.REGISTRY, '_VLLM_MODELS = {"A": ("none", "A")}', r"no model class is found of A \(.*none\.A\)"),
    ],
)
def test_a_registry_that_has_moved_stops_the_tool(vllm_wheel: pathlib.Path, file: str, content: str, said: str) -> None:
    (vllm_wheel / file).write_text(content, encoding="utf-8")
    with pytest.raises(RuntimeError, match=said):
        vllm_classes.classes(vllm_wheel)


@pytest.mark.parametrize(
    ("architecture", "standing"),
    [
        ("OneForCausalLM", "OneForCausalLM"),
        ("OneForConditionalGeneration", "OneForCausalLM"),
        ("ThreeForCausalLM", None),
        ("Three", None),
    ],
)
def test_an_architecture_is_looked_up_with_other_endings(
    vllm_wheel: pathlib.Path, architecture: str, standing: str | None
) -> None:
    endings = vllm_classes.endings(vllm_wheel)
    assert vllm_classes.serves(architecture, vllm_classes.registered(vllm_wheel), endings) == standing


@pytest.mark.parametrize(
    ("requirement", "bounded"),
    [("<5,>=4.56.0", True), ("==5.3.0", True), (">=5.5.3", False), ("!=5.0.*,>=4.56.0", False), ("", False)],
)
def test_a_requirement_is_bounded_by_a_newest_version(requirement: str, bounded: bool) -> None:
    assert vllm_classes.bounded(requirement) is bounded


@pytest.mark.parametrize(("asks", "backed"), [("", {"Said"}), ("_can_set_attn_implementation", {"Said", "Looks"})])
def test_the_transformers_backend_takes_a_class_whose_attention_can_be_taken_over(
    vllm_wheel: pathlib.Path, asks: str, backed: set[str]
) -> None:
    (vllm_wheel / vllm_classes.REGISTRY).write_text(asks, encoding="utf-8")
    said = "class Base(X):\n    _supports_attention_backend = True\nclass Said(Base): ...\nclass Inner(Base): ...\n"
    files = {
        "a/modeling_a.py": said + '__all__ = ["Said", "Other"]',
        "b/modeling_b.py": 'class BAttention(nn.Module): ...\nclass Deaf(X): ...\n__all__ = [\n    "Deaf",\n]',
        "c/modeling_c.py": "class Looks(X): ...\nALL_ATTENTION_FUNCTIONS.get_interface(x)\n__all__ = ['C', \"Looks\"]",
    }
    for name, content in files.items():
        path = vllm_wheel / "packages" / "transformers" / "models" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    wanted = {"Said", "Inner", "Deaf", "Looks", "Nobody"}
    assert vllm_classes.backed(vllm_wheel, vllm_wheel / "packages", wanted) == backed


def test_a_configuration_is_known_to_vllm_or_to_its_transformers(vllm_wheel: pathlib.Path) -> None:
    auto = vllm_wheel / "packages" / "transformers" / "models" / "auto"
    auto.mkdir(parents=True)
    kinds = "".join(f'        ("kind_{n}", "C{n}ForCausalLM"),\n' for n in range(100))
    (auto / "modeling_auto.py").write_text(kinds + '        ("kind-b", "C1ForCausalLM"),\n', encoding="utf-8")
    (auto / "configuration_auto.py").write_text('        ("kind_1", "OneConfig"),\n', encoding="utf-8")
    place = vllm_wheel / vllm_classes.CONFIGURATIONS
    place.parent.mkdir(parents=True)
    place.write_text('_CONFIG_REGISTRY: dict = Lazy(kind_2="TwoConfig")', encoding="utf-8")
    assert vllm_classes.model_types(auto.parents[2])["C1ForCausalLM"] == {"kind_1", "kind-b"}
    assert vllm_classes.configured(vllm_wheel, auto.parents[2]) == {"kind_1", "kind_2"}
    place.write_text("_CONFIG_REGISTRY = {}", encoding="utf-8")
    with pytest.raises(RuntimeError, match="is not a list of names any more"):
        vllm_classes.configured(vllm_wheel, auto.parents[2])


SPECULATIVE = """
MTPModelTypes = Literal["one_mtp", "two_mtp", "mtp"]
class SpeculativeConfig:
    @staticmethod
    def hf_config_override(hf_config, transformers_mtp_overrides=None):
        if transformers_mtp_overrides is not None:
            hf_config.update(transformers_mtp_overrides)
            return hf_config
        initial_architecture = hf_config.architectures[0]
        if hf_config.model_type in {"one", "one_text"}:
            hf_config.model_type = "one_mtp"
        if (arch := hf_config.architectures[0]) in ("TwoForCausalLM", "TwoVL"):
            hf_config.update({"n_predict": 1, "architectures": ["TwoMTP"]})
        if hf_config.architectures[0] == "TwoMTP" and initial_architecture != "TwoVL":
            hf_config.model_type = "two_mtp"
        if hf_config.model_type == "some" and hasattr(hf_config, "layers") and hf_config.layers > 0:
            hf_config.model_type = "mtp"
        if hf_config.model_type == "wrong":
            if len(hf_config.layers) != 1:
                raise ValueError()
            hf_config.model_type = "mtp"
        if {"Set"}.intersection(getattr(hf_config, "architectures", None) or []):
            hf_config = getattr(hf_config, "text_config", hf_config)
        if "many" in hf_config.model_type or not hf_config.architectures:
            hf_config.model_type = "many_mtp"
        return hf_config
"""


@pytest.mark.parametrize(
    ("architecture", "kinds", "refused"),
    [
        ("OneForCausalLM", {"one"}, False),
        ("OneForCausalLM", {"one_text"}, False),
        ("OneForCausalLM", {"other"}, True),
        ("OneForCausalLM", {"other", "one"}, False),
        ("TwoForCausalLM", {"two"}, False),
        ("TwoVL", {"two"}, True),  # the type that it is given is not a drafter's
        ("SomeForCausalLM", {"some"}, False),  # depends on its config.json
        ("WrongForCausalLM", {"wrong"}, False),
        ("Set", {"any"}, False),  # another configuration takes its place
        ("ManyForCausalLM", {"how_many_more"}, True),
    ],
)
def test_a_drafter_is_made_of_some_model_types(
    vllm_wheel: pathlib.Path, architecture: str, kinds: set[str], refused: bool
) -> None:
    place = vllm_wheel / vllm_drafts.SPECULATIVE
    place.write_text(SPECULATIVE, encoding="utf-8")
    found = vllm_drafts.drafts(vllm_wheel)
    assert found.refuses(architecture, kinds) is refused
    assert found.backend
    place.write_text(SPECULATIVE.replace(", transformers_mtp_overrides=None", ""), encoding="utf-8")
    assert not vllm_drafts.drafts(vllm_wheel).backend


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("MTPModelTypes", "Types", "is not where it was"),
        ("hf_config_override", "override", "is not where it was"),
        ("initial_architecture =", "for _one in (1,): hf_config.model_type = 1; x =", "is not what it was"),
    ],
)
def test_an_override_that_has_moved_stops_the_tool(
    vllm_wheel: pathlib.Path, before: str, after: str, said: str
) -> None:
    place = vllm_wheel / vllm_drafts.SPECULATIVE
    place.write_text(SPECULATIVE.replace(before, after), encoding="utf-8")
    with pytest.raises(RuntimeError, match=said):
        vllm_drafts.drafts(vllm_wheel).refuses("OneForCausalLM", {"one"})


@pytest.mark.parametrize(("engine", "version"), IN_EVERY_RUN)
def test_one_version_is_what_its_wheel_says(engine: str, version: str) -> None:
    reader = vllm_classes if engine == "vllm" else model_classes
    try:
        made = reader.classes(source(engine, version).folder)
    except NotAvailable as exc:
        pytest.skip(f"not run: {exc}")
    entries = yaml.safe_load((SHIPPED / f"{engine}.yml").read_text(encoding="utf-8"))["entries"]
    known = list(VERSIONS[engine])

    def holds(ranges: list[str]) -> bool:
        return any(version in known[slice(*_bounds(one, known))] for one in ranges)

    shipped = {
        e["architecture"]: {
            fact for fact in ("pipeline", "states_all", *model_classes.ATTRIBUTES) if holds(e.get(fact, []))
        }
        for e in entries
        if holds(e.get("versions", []))
    }
    assert {name: shipped.get(name) for name in made} == made
    if engine == "sglang":  # vLLM also takes an architecture for one with another ending
        assert shipped.keys() == made.keys()


def _bounds(text: str, known: list[str]) -> tuple[int, int | None]:
    low, _comma, high = text.partition(",")
    return known.index(low.removeprefix(">=")), known.index(high.removeprefix("<")) if high else None


@pytest.mark.long
@pytest.mark.parametrize("engine", model_classes.FACTS)
def test_the_list_is_what_the_wheels_say(engine: str) -> None:
    try:
        made = model_classes.made(engine)
    except NotAvailable as exc:
        pytest.skip(f"not run: {exc}")
    shipped = (SHIPPED / f"{engine}.yml").read_text(encoding="utf-8")
    assert made == shipped, f"run: tools/engine_model_classes.py {engine}"
