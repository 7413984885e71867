"""The shipped start-up patches on the real files of the versions that they are for.

Each: the fault is there before; applied, the file compiles and the fault is gone, shown by running the patched code on
stand-ins for its tensors; a second run changes nothing; a copy that has drifted is refused and left. No GPU code is run.
"""

from __future__ import annotations

import ast
import dataclasses
import pathlib
import shutil
import sys
import types
import typing as t

import pytest
import stand_ins as fake
from engine_parsers import tables
from engine_parsers.sources import NotAvailable, source

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.rank import patches as applier
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import load_patches
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.versions import matches

SHIPPED = {patch.id: patch for patch in load_patches()}
# The nvidia-cutlass-dsl that each SGLang version requires; its files are in a wheel of another name.
CUTLASS = {
    "0.5.10": "4.4.1",
    "0.5.11": "4.4.2",
    "0.5.12": "4.5.0",
    "0.5.13": "4.5.2",
    "0.5.14": "4.5.2",
    "0.5.15": "4.5.2",
}
CUTLASS_WHEEL = "nvidia-cutlass-dsl-libs-base"
IN_EVERY_RUN = {("sglang", "0.5.10"), ("vllm", "0.17.1"), (CUTLASS_WHEEL, "4.4.1")}
Space = dict[str, t.Any]


def cases() -> list[t.Any]:
    """Every patch on every version of its package that its engines use."""
    found = []
    for patch in SHIPPED.values():
        (engine, versions), *_more = patch.engines.items()
        own = [version for version in tables.VERSIONS[engine] if matches(version, versions)]
        assert own, patch.id
        wheel = engine
        if patch.plain["package"]["name"] == "nvidia-cutlass-dsl":
            wheel, own = CUTLASS_WHEEL, sorted({CUTLASS[version] for version in own})
        for version in own:
            assert matches(version, patch.plain["package"]["versions"]), f"{patch.id}: {version}"
            often = (wheel, version) in IN_EVERY_RUN
            marks = () if often else pytest.mark.long
            found.append(pytest.param(patch.id, wheel, version, id=f"{patch.id}-{version}", marks=marks))
    return found


def folder(wheel: str, version: str) -> pathlib.Path:
    """Return an unpacked wheel, read only; *not run* if it cannot be downloaded."""
    try:
        return source(wheel, version, "nvidia_cutlass_dsl" if wheel.startswith("nvidia") else "").folder
    except NotAvailable as exc:
        pytest.skip(f"not run: {exc}")


def copied(name: str, wheel: str, version: str, site: pathlib.Path) -> tuple[applier.Patch, pathlib.Path]:
    """Copy the patch's file into a site-packages of its own; return the patch and the copy."""
    (patch,) = applier.from_plain([SHIPPED[name].plain])
    path = site / patch.file
    path.parent.mkdir(parents=True)
    shutil.copyfile(folder(wheel, version) / patch.file, path)
    return patch, path


# --- pieces of real code, run on stand-ins ----------------------------------------------------------------------------


def piece(path: pathlib.Path, wanted: t.Callable[[ast.AST], bool], space: Space) -> None:
    """Run the one statement of a file that `wanted` selects, without its decorators."""
    (node,) = (n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if wanted(n))
    assert isinstance(node, ast.stmt)
    if isinstance(node, ast.FunctionDef):
        node.decorator_list = []
    future = ast.parse("from __future__ import annotations").body
    exec(
        compile(ast.fix_missing_locations(ast.Module([*future, node], [])), str(path), "exec", dont_inherit=True), space
    )


def function(name: str) -> t.Callable[[ast.AST], bool]:
    return lambda node: isinstance(node, ast.FunctionDef) and node.name == name


def jit(path: pathlib.Path) -> None:
    def target(capability: tuple[int, int]) -> tuple[str, str]:
        cuda = types.SimpleNamespace(current_device=lambda: 0, get_device_capability=lambda _device: capability)
        torch = types.SimpleNamespace(cuda=cuda)
        space: Space = {"torch": torch, "dataclass": dataclasses.dataclass, "__name__": __name__}
        piece(path, lambda node: isinstance(node, ast.ClassDef) and node.name == "ArchInfo", space)
        piece(path, function("_init_jit_cuda_arch_once"), space)
        space["_init_jit_cuda_arch_once"]()
        return space["_CUDA_ARCH"].target_name, space["_CUDA_ARCH"].jit_flag

    # The header compares the flag with the target (static_assert on __CUDA_ARCH__): the two go together.
    assert target((12, 1)) == ("12.0f", "-DSGL_CUDA_ARCH=1200")
    assert target((12, 0)) == ("12.0f", "-DSGL_CUDA_ARCH=1200")
    assert target((9, 0)) == ("9.0", "-DSGL_CUDA_ARCH=900")


def cutlass(path: pathlib.Path) -> None:
    """The class's architectures are all in the real enumeration."""
    arch = path.parents[3] / "base_dsl" / "arch.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (owner,) = (n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == "BlockScaledMmaOp")
    (listed,) = (n for n in owner.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "admissible_archs")
    names = {node.attr for node in ast.walk(listed.value) if isinstance(node, ast.Attribute)}
    assert names == {"sm_100a", "sm_103a", "sm_120a", "sm_121a"}
    known = {n.targets[0].id for n in ast.walk(ast.parse(arch.read_text(encoding="utf-8")))
             if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)}  # fmt: skip
    assert names <= known


def cutlass_moe(path: pathlib.Path) -> None:
    """Two tokens with two experts each; of the four, two are on other ranks."""
    ran = fake.cutlass_moe(lambda space: piece(path, function("cutlass_moe_fp4"), space))
    assert ran.maps == {"a_map": [0, 7, 7, 0], "c_map": [0, 7, 7, 0]}
    assert ran.weights == [0, 0.25, 0.75, 0]


def modelopt(path: pathlib.Path) -> None:
    """Rank 2 of four, two experts on each; and one rank alone, where nothing is cut."""
    for size, rank, local, own in ((4, 2, 2, [4, 5]), (1, 0, 8, list(range(8)))):
        scales = fake.Scales([[n, n - 0.5] for n in range(8)])
        layer = types.SimpleNamespace(
            w13_input_scale=scales, w2_input_scale=list(range(8)), moe_ep_size=size, moe_ep_rank=rank,
            num_local_experts=local, num_experts=8,
        )  # fmt: skip
        off = types.SimpleNamespace(
            enable_flashinfer_cutlass_moe=False, enable_flashinfer_trtllm_moe=False, enable_flashinfer_cutedsl_moe=False
        )
        space: Space = {"self": off, "layer": layer, "torch": types.SimpleNamespace(float32=None)}
        piece(
            path,
            lambda n: isinstance(n, ast.If) and ast.unparse(n.test).startswith("self.enable_flashinfer_cutlass_moe or")
            and "w13_input_scale.max(dim=-1)" in ast.unparse(n),
            space,
        )  # fmt: skip
        assert (space["w13_input_scale"], space["w2_input_scale"]) == (own, own)
        made: list[int] = []

        def params(
            *_a: t.Any, num_experts: int, seen: t.Callable[[int], None] = made.append, **_k: t.Any
        ) -> types.SimpleNamespace:
            seen(num_experts)
            return types.SimpleNamespace(
                cutlass_moe_type="fp4",
                num_experts=num_experts,
                intermediate_size_per_partition=1,
                hidden_size=1,
                device=0,
            )

        for _twice in range(2):  # the second time, what was made is reused
            space |= {"existing_params": getattr(layer, "cutlass_moe_params", None), "inter_size": 1, "hidden_size": 1,
                      "device": 0, "CutlassMoEParams": params,
                      "CutlassMoEType": types.SimpleNamespace(BlockscaledFP4="fp4")}  # fmt: skip
            piece(
                path,
                lambda n: isinstance(n, ast.If) and ast.unparse(n.test).startswith("existing_params is None"),
                space,
            )
        assert made == [local]


def wna16(path: pathlib.Path) -> None:
    for name in ("w13_qzeros", "w2_qzeros"):
        # Four ranks that share no expert, two experts on each: rank 2 has 4 and 5, and all of their columns.
        loaded = fake.load_zero_points(
            lambda space: piece(path, function("get_weight_loader"), space), name, tp=4, ep=4
        )
        assert loaded == {0: 0, 1: 0}
        # Without expert parallelism: all experts, this rank's columns.
        loaded = fake.load_zero_points(
            lambda space: piece(path, function("get_weight_loader"), space), name, tp=4, ep=1
        )
        assert loaded == dict.fromkeys(range(8), 2)


CHECKS = {"sglang-jit-sm12x": jit, "cutlass-dsl-sm12x": cutlass, "sglang-cutlass-moe-ep": cutlass_moe,
          "sglang-modelopt-ep": modelopt, "sglang-wna16-ep": wna16, "vllm-wna16-ep": wna16}  # fmt: skip


def test_every_patch_is_checked() -> None:
    assert set(CHECKS) == set(SHIPPED)


@pytest.mark.parametrize(("name", "wheel", "version"), cases())
def test_a_patch_on_the_real_file(name: str, wheel: str, version: str, tmp_path: pathlib.Path) -> None:
    patch, path = copied(name, wheel, version, tmp_path)
    if name.startswith("cutlass"):
        shutil.copytree(folder(wheel, version) / "nvidia_cutlass_dsl/python_packages/cutlass/base_dsl",
                        path.parents[3] / "base_dsl")  # fmt: skip
    check = CHECKS[name]
    with pytest.raises((AssertionError, IndexError)):
        check(path)  # the fault is there: a check that passes on the unpatched file would show nothing
    before = path.read_text(encoding="utf-8")
    assert [outcome.state for outcome in applier.apply([patch], tmp_path)] == ["applied"]
    after = path.read_text(encoding="utf-8")
    check(path)
    added = len(after.splitlines()) - len(before.splitlines())
    assert 0 <= added <= 8, "a start-up patch is small"
    assert [outcome.state for outcome in applier.apply([patch], tmp_path)] == ["applied before"]
    assert path.read_text(encoding="utf-8") == after


# Edits that images have in their own words; the rest of each patch is still to be made.
IN_OTHER_WORDS = {
    "cutlass-dsl-sm12x": ("Arch.sm_103a,\n    ]", "Arch.sm_103a, Arch.sm_121a\n    ]"),
    "sglang-cutlass-moe-ep": (
        "    device = a.device\n    a_map =",
        "    device = a.device\n\n    # sentinels\n    topk_weights = topk_weights.masked_fill(topk_ids < 0, 0.0)\n    a_map =",
    ),
    "sglang-modelopt-ep": (
        ".values.to(torch.float32)\n            w2_input_scale = layer.w2_input_scale\n\n",
        ".values.to(torch.float32)\n            w2_input_scale = layer.w2_input_scale\n"
        "            if layer.moe_ep_size > 1:\n"
        "                w13_input_scale = w13_input_scale.chunk(layer.moe_ep_size)[layer.moe_ep_rank]\n"
        "                w2_input_scale = w2_input_scale.chunk(layer.moe_ep_size)[layer.moe_ep_rank]\n\n",
    ),
}


def without_comments(text: str, patch: applier.Patch) -> str:
    """Return the result of all edits as somebody else would write it: no comment of ours, empty lines between the lines."""
    for edit in patch.edits:
        lines = [line.split("  #")[0] for line in edit.replace.splitlines() if not line.strip().startswith("#")]
        text = text.replace(edit.replace, "\n\n".join(lines) + "  # by the image\n")
    return text


@pytest.mark.parametrize(("name", "wheel", "version"), cases())
def test_an_edit_that_the_image_has_is_left(name: str, wheel: str, version: str, tmp_path: pathlib.Path) -> None:
    """All of them, and each one alone: the others are made, and the result is free of the fault."""
    patch, path = copied(name, wheel, version, tmp_path)
    if name.startswith("cutlass"):
        shutil.copytree(folder(wheel, version) / "nvidia_cutlass_dsl/python_packages/cutlass/base_dsl",
                        path.parents[3] / "base_dsl")  # fmt: skip
    before = path.read_text(encoding="utf-8")
    text = without_comments(applier.edited(before, patch)[0], patch)
    assert not any(edit.replace in text for edit in patch.edits if "#" in edit.replace)
    path.write_text(text, encoding="utf-8")
    assert [outcome.state for outcome in applier.apply([patch], tmp_path)] == ["applied before"]
    assert path.read_text(encoding="utf-8") == text
    CHECKS[name](path)
    for edit in patch.edits:
        alone = dataclasses.replace(patch, edits=(edit,))
        path.write_text(without_comments(applier.edited(before, alone)[0], alone), encoding="utf-8")
        (outcome,) = applier.apply([patch], tmp_path)
        assert outcome.edits.count("applied before") == 1
        assert outcome.edits.count("applied") == len(patch.edits) - 1
        CHECKS[name](path)


@pytest.mark.parametrize(("name", "wheel", "version"), [c for c in cases() if c.values[0] in IN_OTHER_WORDS])
def test_an_edit_in_the_image_s_own_words_is_not_made_twice(
    name: str, wheel: str, version: str, tmp_path: pathlib.Path
) -> None:
    patch, path = copied(name, wheel, version, tmp_path)
    text = path.read_text(encoding="utf-8")
    old, new = IN_OTHER_WORDS[name]
    path.write_text(text.replace(old, new), encoding="utf-8")
    assert path.read_text(encoding="utf-8") != text
    (outcome,) = applier.apply([patch], tmp_path)
    assert outcome.edits == ("not needed", *["applied"] * (len(patch.edits) - 1))
    assert path.read_text(encoding="utf-8").count(new) == 1


@pytest.mark.parametrize(("name", "wheel", "version"), cases())
def test_a_drifted_copy_is_refused(name: str, wheel: str, version: str, tmp_path: pathlib.Path) -> None:
    patch, path = copied(name, wheel, version, tmp_path)
    text = path.read_text(encoding="utf-8")
    for edit in patch.edits:
        first, _newline, rest = edit.expect.partition("\n")
        drifted = text.replace(edit.expect, f"{first}  # changed upstream\n{rest}")
        assert drifted != text
        path.write_text(drifted, encoding="utf-8")
        with pytest.raises(applier.PatchError, match=f"{name}: .*drifted"):
            applier.apply([patch], tmp_path)
        assert path.read_text(encoding="utf-8") == drifted


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "wheel", "version"),
    [
        ("sglang-jit-sm12x", "sglang", "0.5.16"),
        ("sglang-jit-sm12x", "sglang", "0.5.23"),
        ("sglang-wna16-ep", "sglang", "0.5.22"),
        ("sglang-wna16-ep", "sglang", "0.5.23"),
        ("cutlass-dsl-sm12x", "nvidia-cutlass-dsl-libs-core", "4.6.0"),
    ],
)
def test_where_upstream_has_seen_to_it_nothing_is_done(
    name: str, wheel: str, version: str, tmp_path: pathlib.Path
) -> None:
    """A version beyond the range, as an image may have it: not a drift, and not touched."""
    (patch,) = applier.from_plain([SHIPPED[name].plain])
    for file in (patch.file, *patch.moved):
        came = folder(wheel, version) / file
        if came.is_file():
            (tmp_path / file).parent.mkdir(parents=True)
            shutil.copyfile(came, tmp_path / file)
    assert [outcome.state for outcome in applier.apply([patch], tmp_path)] == ["not needed"]


@pytest.mark.long
@pytest.mark.parametrize("version", CUTLASS)
def test_the_dsl_is_the_one_that_the_engine_requires(version: str) -> None:
    try:
        required = source("sglang", version).requires["nvidia-cutlass-dsl"]
    except NotAvailable as exc:
        pytest.skip(f"not run: {exc}")
    assert required.lstrip("=>") == CUTLASS[version]


def test_the_applier_runs_where_only_python_3_10_is() -> None:
    """It keeps to the grammar of 3.10, and imports only the standard library."""
    tree = ast.parse(pathlib.Path(applier.__file__).read_text(encoding="utf-8"), feature_version=(3, 10))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imported} <= sys.stdlib_module_names
