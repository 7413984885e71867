"""What the NCCL benchmark decides without a GPU: sizes, arguments, and when it refuses. torch is a stand-in here."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
import types
import typing as t

import pytest

PROGRAM = pathlib.Path(__file__).resolve().parents[3] / "roles" / "nccl" / "files" / "nccl_bench.py"
GIB = 1024**3


class Number:
    """A tensor of one number, of which all ranks have the same."""

    def __init__(self, values: list[int], **_more: t.Any) -> None:
        self.value = values[0]

    def item(self) -> int:
        return self.value


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> t.Any:
    distributed = types.ModuleType("torch.distributed")
    for name in ("all_reduce", "destroy_process_group"):
        setattr(distributed, name, lambda *_args, **_more: None)
    distributed.get_rank = lambda: 1  # type: ignore[attr-defined]
    torch = types.ModuleType("torch")
    torch.distributed, torch.tensor, torch.device = distributed, Number, object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    spec = importlib.util.spec_from_file_location("nccl_bench_under_test", PROGRAM)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def asked(bench: t.Any, monkeypatch: pytest.MonkeyPatch, *words: str) -> t.Any:
    monkeypatch.setattr(sys, "argv", ["nccl_bench.py", *words])
    return bench.arguments()


def test_sizes_are_powers_of_two_up_to_the_largest(bench: t.Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given = asked(bench, monkeypatch)
    made = bench.sizes(given.min_bytes, given.max_bytes)
    assert (made[0], made[-1], len(made)) == (8192, 2 * GIB, 19)
    assert bench.sizes(8192, 20000) == [8192, 16384]


@pytest.mark.parametrize(
    "words",
    [
        ["--beside-serving"],
        ["--beside-serving", "--max-bytes", "1048576"],
        ["--beside-serving", "--floor-bytes", "1000", "--max-bytes", "268435457"],
        ["--min-bytes", "2"],
        ["--min-bytes", "16384", "--max-bytes", "8192"],
    ],
)
def test_what_would_risk_a_model_or_makes_no_sense_is_refused(
    bench: t.Any, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        asked(bench, monkeypatch, *words)
    assert refused.value.code == 2


@pytest.mark.parametrize(("available", "runs"), [(10 * GIB, True), (7 * GIB + 512 * 1024**2, True), (7 * GIB, False)])
def test_it_runs_only_where_the_floor_stays_free(
    bench: t.Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], available: int, runs: bool
) -> None:
    """256 MiB of input and of result, 1 GiB for CUDA and NCCL: a floor of 6 GiB takes 7.5 GiB."""
    words = ["--beside-serving", "--floor-bytes", str(6 * GIB), "--max-bytes", str(256 * 1024**2)]
    given = asked(bench, monkeypatch, *words)
    monkeypatch.setattr(bench, "mem_available", lambda: available)
    if runs:
        bench.refuse_without_memory(given, None)
        return
    with pytest.raises(SystemExit) as refused:
        bench.refuse_without_memory(given, None)
    assert refused.value.code == bench.REFUSED
    said = capsys.readouterr().err
    assert "rank 1" in said and str(available) in said and "smaller --max-bytes" in said


def test_the_kernel_is_asked_how_much_is_free(bench: t.Any) -> None:
    assert 0 < bench.mem_available() < 2**60
