"""Stand-ins for the tensors and kernels that patched code works with: just enough to see which numbers go where."""

from __future__ import annotations

import types
import typing as t
from dataclasses import dataclass

Space = dict[str, t.Any]
Run = t.Callable[[Space], None]


class Scales:
    """Two scales of each expert; `max(dim=-1).values.to(…)` is a plain list, which slices as a tensor does."""

    def __init__(self, rows: list[list[float]]) -> None:
        self.rows = rows

    def max(self, dim: int) -> types.SimpleNamespace:
        assert dim == -1
        return types.SimpleNamespace(values=types.SimpleNamespace(to=lambda _dtype: [max(row) for row in self.rows]))


class Tensor:
    """A shape, a type, and numbers where they matter."""

    def __init__(self, shape: tuple[int, ...], dtype: str = "half", data: list[float] | None = None) -> None:
        self.shape, self.dtype, self.ndim, self.device, self.data = shape, dtype, len(shape), "cuda", data

    def numel(self) -> int:
        return len(self.data or ())

    def view(self, *_shape: int) -> Tensor:
        return self

    def to(self, _dtype: str) -> Tensor:
        return self

    def sum(self, dim: int) -> Tensor:
        return self

    def __lt__(self, limit: float) -> list[bool]:
        return [value < limit for value in self.data or ()]

    def masked_fill(self, mask: list[bool], value: float) -> Tensor:
        return Tensor(self.shape, self.dtype, [value if m else d for m, d in zip(mask, self.data or (), strict=True)])


@dataclass
class Combined:
    """The maps by which the rows were gathered, and their weights."""

    maps: dict[str, list[float]]
    weights: list[float]


UNWRITTEN = 1 << 30


def cutlass_moe(define: Run) -> Combined:
    """Run `cutlass_moe_fp4` for two tokens with two experts each, of which the first and the last are on other ranks (-1)."""
    found = Combined({}, [])

    class Product(Tensor):
        def __mul__(self, weights: Tensor) -> Tensor:
            found.weights = weights.data or []
            return self

    def prepare(*arguments: t.Any) -> None:
        ids, a_map, c_map = arguments[0], arguments[4], arguments[5]
        for place, expert in enumerate(ids.data):
            if expert >= 0:  # the kernel: one block for each expert of this rank
                a_map.data[place] = c_map.data[place] = 7
        found.maps = {"a_map": a_map.data, "c_map": c_map.data}

    def combine(_rows: Tensor, _output: Tensor, _map: Tensor, weights: Tensor) -> None:
        found.weights = weights.data or []

    def filled(value: int) -> t.Callable[..., Tensor]:
        def make(size: t.Any, dtype: str, device: str) -> Tensor:
            count = size if isinstance(size, int) else 0
            return Tensor((count,), dtype, [value] * count)

        return make

    space: Space = {
        "torch": types.SimpleNamespace(
            uint8="uint8", half="half", bfloat16="bf16", int32="int32", empty=filled(UNWRITTEN), zeros=filled(0)
        ),
        "prepare_moe_input": prepare,
        "scaled_fp4_experts_quant": lambda *_a, **_k: (Tensor((4, 8)), Tensor((4, 1))),
        "cutlass_fp4_group_mm": lambda *_a, **_k: Product((4, 16)),
        "silu_and_mul": lambda *_a: None,
        "silu_and_mul_scaled_fp4_experts_quant_packed": lambda *_a: (Tensor((4, 8)), Tensor((4, 1))),
        "shuffle_rows": lambda rows, _map, _shape: rows,
        "apply_shuffle_mul_sum": combine,
    }
    define(space)
    params = types.SimpleNamespace(
        num_experts=2, hidden_size=16, intermediate_size_per_partition=16, expert_offsets=0, problem_sizes1=0,
        problem_sizes2=0, blockscale_offsets=0, to_gemm1_args=dict, to_gemm2_args=dict,
    )  # fmt: skip
    space["cutlass_moe_fp4"](
        a=Tensor((2, 16)), a1_gscale=None, w1_fp4=Tensor((2, 32, 8), "uint8"), w1_blockscale=Tensor((2, 32, 1)),
        w1_alphas=None, a2_gscale=None, w2_fp4=Tensor((2, 16, 8), "uint8"), w2_blockscale=Tensor((2, 16, 1)),
        w2_alphas=None, topk_weights=Tensor((2, 2), data=[0.75, 0.25, 0.75, 0.25]),
        topk_ids=Tensor((2, 2), "int32", [-1, 0, 1, -1]), params=params,
    )  # fmt: skip
    return found


class _Cut:
    """Zero points cut for the ranks: shows which cut was taken, and refuses one that does not exist."""

    def __init__(self, cuts: int = 0) -> None:
        self.cuts = cuts

    def to(self, _device: str) -> _Cut:
        return self

    def size(self, _dimension: int) -> int:
        return 4

    def view(self, *shape: int) -> _Cut:
        return _Cut(shape[0] if shape[1] == -1 else shape[1])

    def __getitem__(self, key: t.Any) -> int:
        rank = int(key[1] if isinstance(key, tuple) else key)
        if rank >= self.cuts:
            raise IndexError(f"index {rank} is out of bounds for dimension 0 with size {self.cuts}")
        return rank


class _Own:
    """The zero points of this rank's experts, by the cut that was stored for each."""

    def __init__(self, experts: int) -> None:
        self.experts, self.stored = experts, dict[int, int]()

    def __setitem__(self, key: t.Any, cut: int) -> None:
        expert = key[0] if isinstance(key, tuple) else key
        if not -self.experts <= expert < self.experts:
            raise IndexError(f"index {expert} is out of bounds for dimension 0 with size {self.experts}")
        self.stored[expert % self.experts] = cut


def load_zero_points(define: Run, name: str, tp: int, ep: int) -> dict[int, int]:
    """Load eight experts' zero points on rank 2 of `tp`; return the cut stored for each of the rank's experts."""
    rank, share = 2, tp // ep
    parallel = types.SimpleNamespace(tp_rank=rank, tp_group=types.SimpleNamespace(device="cuda"))
    space: Space = {
        "torch": types.SimpleNamespace(),
        "get_tp_group": lambda: parallel.tp_group,
        "get_tensor_model_parallel_rank": lambda: rank,
        "get_parallel": lambda: parallel,
    }
    define(space)
    experts = 8 // ep
    first = rank // share * experts if ep > 1 else 0
    layer = types.SimpleNamespace(
        quant_config=types.SimpleNamespace(has_zp=True, linear_quant_method="other", weight_bits=4),
        intermediate_size_per_partition=4, group_size_div_factor=1, moe_tp_size=share, moe_tp_rank=rank % share,
        tp_size=share, tp_rank=rank % share,
        _map_global_expert_id_to_local_expert_id=lambda e: e - first if first <= e < first + experts else -1,
    )  # fmt: skip
    own = _Own(experts)
    load = space["get_weight_loader"](layer, None)
    for expert in range(8):
        load(types.SimpleNamespace(data=own), _Cut(), name, "w1", expert)
    return own.stored
