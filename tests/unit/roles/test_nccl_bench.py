"""What the NCCL benchmark decides without a GPU: sizes, arguments, and when it refuses. torch is a stand-in here."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import sys
import types
import typing as t

import pytest

PROGRAM = pathlib.Path(__file__).resolve().parents[3] / "roles" / "nccl" / "files" / "nccl_bench.py"
GIB = 1024**3


class Number:
    """A tensor of one number, the same on all ranks."""

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
    torch.__version__ = "2.9"  # type: ignore[attr-defined]
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
    """256 MiB each for input and result, 1 GiB for CUDA and NCCL: a floor of 6 GiB needs 7.5 GiB."""
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


@pytest.mark.parametrize(
    ("gpus", "nccl", "says"),
    [(0, True, "PyTorch sees no GPU (PyTorch 2.9)"), (1, True, "there is no GPU 1, but 1"), (2, False, "without NCCL")],
)
def test_where_it_cannot_run_it_says_so_before_it_meets_anybody(
    bench: t.Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    gpus: int,
    nccl: bool,
    says: str,
) -> None:
    cuda = types.SimpleNamespace(is_available=lambda: gpus > 0, device_count=lambda: gpus)
    monkeypatch.setattr(bench.torch, "cuda", cuda, raising=False)
    monkeypatch.setattr(bench.dist, "is_nccl_available", lambda: nccl, raising=False)
    monkeypatch.setattr(sys, "argv", ["nccl_bench.py", "--check"])
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(SystemExit) as refused:
        bench.main()
    assert refused.value.code == bench.CANNOT
    assert says in capsys.readouterr().err


def test_a_look_beforehand_meets_nobody(bench: t.Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = types.SimpleNamespace(is_available=lambda: True, device_count=lambda: 1)
    monkeypatch.setattr(bench.torch, "cuda", cuda, raising=False)
    monkeypatch.setattr(bench.dist, "is_nccl_available", lambda: True, raising=False)
    monkeypatch.setattr(sys, "argv", ["nccl_bench.py", "--check"])
    bench.main()


def test_without_pytorch_it_says_which_python_lacks_it(tmp_path: pathlib.Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.13: cannot open shared object file')")
    done = subprocess.run(
        [sys.executable, "-", "--check"],
        input=PROGRAM.read_text(encoding="utf-8"),
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 4
    assert done.stderr.strip() == f"{sys.executable} has no PyTorch that can be loaded: " + (
        "libcudart.so.13: cannot open shared object file"
    )
