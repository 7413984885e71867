# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read an installed engine: its real parser, what a planner must know besides the flags, its packages and start-up patches.

    python3 reader.py ASKED.json

Runs in an engine's image (plugin_utils/kube/inspect.py), with the files of this folder and `patches.py` beside it; needs Python 3.10
or newer, its standard library, and a writable folder (TMPDIR). No GPU, no weights, no network: the parser runs in a bare
interpreter (`run.py`) with the engine's own sources, the packages that parsers depend on, and stubs for the rest, exactly as
for the shipped tables (tools/engine_parsers), which also use this file. Standard output has one JSON document in lines
that begin with MARK, the last with the count of the others and a checksum. What cannot be read goes into `unread`; the rest continues.

Exit status: 0 document written; 1 there is no engine here; 2 a bad call.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import typing as t
from importlib import metadata

HERE = pathlib.Path(__file__).resolve().parent
MARK, CHUNK = "dgxspark-image", 8000
ENGINES = ("sglang", "vllm")
TIMEOUT_S = 600
TOTAL_GIB, FREE_GIB = 121.0, 118.0
# The caller's environment is hidden from the engine, which would otherwise answer for this machine or user.
ENVIRONMENT = {
    "PATH": "/nonexistent", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1", "VLLM_PLUGINS": "", "VLLM_HOST_IP": "127.0.0.1", "NO_COLOR": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}  # fmt: skip
# Kernel sources too: SGLang's resolution looks for the folder of its just-in-time kernels.
MEMBERS = (".py", ".cuh", ".cu", ".h")
# What parsers depend on, or resolution computes with: these cannot be stubbed.
REAL = ("numpy", "pydantic", "msgspec", "packaging", "typing_extensions", "psutil", "orjson", "regex", "pyyaml",
        "cachetools", "cloudpickle", "jinja2", "pillow")  # fmt: skip
# Stubbed packages, by the name under which an engine requires them: they report the version required.
STOOD_IN = {"torch": "torch", "flashinfer-python": "flashinfer", "sglang-kernel": "sgl_kernel"}
# The packages that an image's owner wants to know about.
PACKAGES = (
    "torch", "triton", "transformers", "flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache", "sglang-kernel", "sgl-kernel",
    "nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-cudnn-frontend", "nvidia-cutlass-dsl",
    "nvidia-cutlass-dsl-libs-base", "xgrammar", "ray", "compressed-tensors",
)  # fmt: skip

FOUR = {
    "sglang": ["--tp-size", "4", "--nnodes", "4", "--node-rank", "0", "--dist-init-addr", "10.0.0.1:5000"],
    "vllm": ["--tensor-parallel-size", "4", "--nnodes", "4", "--node-rank", "0", "--master-addr", "10.0.0.1"],
}
DEFAULTS = (
    "attention_backend", "block_size", "chunked_prefill_size", "enable_prefix_caching", "gpu_memory_utilization",
    "kv_cache_dtype", "max_num_batched_tokens", "max_num_seqs", "max_prefill_tokens", "max_running_requests",
    "mem_fraction_static", "page_size", "sampling_backend",
)  # fmt: skip

Plain = dict[str, t.Any]


class Unread(RuntimeError):
    """Something that cannot be read: the text says what and why."""


# --- the parser, in a bare interpreter ------------------------------------------------------------------------------


def stood_in(requires: t.Mapping[str, str]) -> dict[str, str]:
    """Return the versions that stubbed packages report: those that the engine pins."""
    pins = {module: requires.get(name, "") for name, module in STOOD_IN.items()}
    return {"triton": "3.6.0", **{m: pin[2:] for m, pin in pins.items() if pin.startswith("==")}}


def child(
    engine: str,
    source: pathlib.Path,
    packages: pathlib.Path,
    requires: t.Mapping[str, str],
    cases: t.Sequence[t.Sequence[str]],
    *,
    flags: bool = False,
    environment: t.Mapping[str, str] | None = None,
) -> Plain:
    """Return the answer of `run.py`: `answers` to the cases, and with flags the parser's `flags` and the engine's `facts`.

    source: holds only the engine's sources. packages: the parser's dependencies. Raises Unread if the engine cannot be loaded.
    """
    request = {
        "engine": engine, "source": str(source), "packages": str(packages), "versions": stood_in(requires),
        "total_gib": TOTAL_GIB, "free_gib": FREE_GIB, "flags": flags, "cases": list(cases),
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="engine-parser-") as place:
        asked, answered = pathlib.Path(place, "request.json"), pathlib.Path(place, "answer.json")
        asked.write_text(json.dumps(request), encoding="utf-8")
        ran = subprocess.run(  # pylint: disable=ansible-bad-function
            [sys.executable, "-S", "-E", str(HERE / "run.py"), str(asked), str(answered)],
            check=False,
            cwd=place,
            env={**ENVIRONMENT, "HOME": place, "TMPDIR": place, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
        )
        if ran.returncode or not answered.is_file():
            last = "\n".join(ran.stderr.splitlines()[-12:])
            raise Unread(f"the harness could not load {engine}:\n{last}")
        said: Plain = json.loads(answered.read_text(encoding="utf-8"))
        return said


def read(
    engine: str,
    source: pathlib.Path,
    packages: pathlib.Path,
    requires: t.Mapping[str, str],
    probe: t.Mapping[str, t.Any],
) -> Plain:
    """Return an engine's `flags` (every action of its parser), `facts` and declared `environment`. Unread says what is missing.

    probe: the config.json of the model whose defaults are read.
    """
    with tempfile.TemporaryDirectory(prefix="engine-probe-") as place:
        pathlib.Path(place, "config.json").write_text(json.dumps(probe), encoding="utf-8")
        model = ["--model-path", place] if engine == "sglang" else [place]
        said = child(engine, source, packages, requires, [model, [*model, *FOUR[engine]]], flags=True)
    found = _sglang(source) if engine == "sglang" else _vllm(source)
    one, four = map(_defaults, said["answers"])
    facts = {**found, **said["facts"], "defaults_on_gb10": {"tp1": one, "tp4": four}}
    return {
        "flags": said["flags"],
        "facts": dict(sorted(facts.items())),
        "environment": sorted(set(_environment(engine, source))),
    }


def _defaults(answer: Plain) -> Plain:
    if not answer["accepted"]:
        raise Unread(f"it refuses the probe: {answer['reason']}")
    resolved = answer["resolved"]
    values: Plain = {}
    for part in (resolved, *(v for v in resolved.values() if isinstance(v, dict))):
        values.update({name: part[name] for name in DEFAULTS if part.get(name) is not None and name not in values})
    return dict(sorted({**values, **graphs(resolved)}.items()))


def graphs(resolved: t.Mapping[str, t.Any]) -> Plain:
    """Return SGLang's graph settings in one vocabulary: they moved from fields to an object in 0.5.14."""
    config = resolved.get("cuda_graph_config")
    if config:
        return {
            "cuda_graph_max_bs_decode": config["decode"]["max_bs"],
            "cuda_graph_backend_decode": str(config["decode"]["backend"]).lower(),
            "cuda_graph_backend_prefill": str(config["prefill"]["backend"]).lower(),
        }
    if "cuda_graph_max_bs" not in resolved:
        return {}
    return {
        "cuda_graph_max_bs_decode": resolved["cuda_graph_max_bs"],
        "cuda_graph_backend_decode": "disabled" if resolved["disable_cuda_graph"] else "full",
        "cuda_graph_backend_prefill": "disabled" if resolved["disable_piecewise_cuda_graph"] else "tc_piecewise",
    }


# --- what its sources say -------------------------------------------------------------------------------------------


def _cite(source: pathlib.Path, pattern: str, *places: str) -> str | None:
    """Return `file:line` of the first match in the first of the places that has one."""
    for place in places:
        for path in sorted(source.glob(place)):
            match = re.search(pattern, path.read_text(encoding="utf-8"))
            if match:
                line = match.string.count("\n", 0, match.start()) + 1
                return f"{path.relative_to(source)}:{line}"
    return None


def _fact(value: t.Any, cited: str | None) -> Plain:
    if cited is None:
        raise Unread(f"nothing in its sources says {value!r} any more: look at them again")
    return {"value": value, "source": cited}


def _sglang(source: pathlib.Path) -> Plain:
    server, hooks = "sglang/srt/server_args.py", "sglang/srt/arg_groups/*.py"
    own_stage = _cite(source, r"def resolve_once\(", server)
    on_host = _cite(source, r"props\.is_integrated:[\s\S]{0,400}?psutil\.virtual_memory\(\)\.available",
                    "sglang/srt/utils/common.py")  # fmt: skip
    on_device = _cite(source, r"def get_available_gpu_memory", "sglang/srt/utils/common.py")
    adjusted = r"speculative_num_draft_tokens is adjusted to speculative_num_steps \+ 1"
    frozen = _cite(source, r"to FROZEN_KV_MTP", server, hooks)
    return {
        "program": _fact(["python3", "-m", "sglang.launch_server"],
                         _cite(source, r"prepare_server_args\(sys\.argv", "sglang/launch_server.py")),
        "free_memory": _fact("host_available", on_host) if on_host else _fact("cuda_free", on_device),
        "resolution": _fact("own stage", own_stage) if own_stage
        else _fact("constructor", _cite(source, r"def __post_init__\(self\)", server)),
        "eagle_topk1_draft_tokens": _fact("steps + 1, whatever is asked", _cite(source, adjusted, server, hooks)),
        "frozen_kv_mtp": _fact("promoted from NEXTN for a frozen-KV drafter; draft tokens are taken as given", frozen)
        if frozen else {"value": "unknown to this version"},
    }  # fmt: skip


def _vllm(source: pathlib.Path) -> Plain:
    unified = r"(\(12, 1\)\)|is_integrated_gpu)[\s\S]{0,1200}?psutil\.virtual_memory\(\)\.available"
    return {
        "program": _fact(["vllm", "serve"], _cite(source, r"class ServeSubcommand", "vllm/entrypoints/cli/serve.py")),
        "free_memory": _fact("host_available", _cite(source, unified, "vllm/utils/mem_utils.py")),
        "utilization_of": _fact("total_memory", _cite(source, r"init_snapshot\.total_memory \* cache_config",
                                                      "vllm/v1/worker/utils.py")),
        "headless_worker": _fact("a rank above 0 of a node group runs --headless",
                                 _cite(source, r"def run_headless", "vllm/entrypoints/cli/serve.py")),
    }  # fmt: skip


def _environment(engine: str, source: pathlib.Path) -> t.Iterator[str]:
    """Read the variables that the engine declares: a class of fields (SGLang), a dictionary (vLLM)."""
    path = source / ("sglang/srt/environ.py" if engine == "sglang" else "vllm/envs.py")
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef) and node.name == "Envs":
            for field in node.body:
                targets = field.targets if isinstance(field, ast.Assign) else [getattr(field, "target", None)]
                yield from (x.id for x in targets if isinstance(x, ast.Name) and re.fullmatch(r"[A-Z][A-Z0-9_]+", x.id))
        is_table = isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "environment_variables"
        if is_table and isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict):
            yield from (str(k.value) for k in node.value.keys if isinstance(k, ast.Constant))


def required(lines: t.Iterable[str]) -> dict[str, str]:
    """Return requirements by normalised name, such as {"transformers": "==5.3.0"}, without those of extras."""
    found: dict[str, str] = {}
    for line in lines:
        text, _semicolon, marker = line.partition(";")
        match = re.match(r"\s*([A-Za-z0-9._-]+)\s*(\[[^]]*\])?\s*\(?([^)]*)\)?\s*$", text)
        if match and "extra" not in marker:
            found.setdefault(re.sub(r"[-_.]+", "-", match[1]).lower(), match[3].replace(" ", ""))
    return found


# --- an image -------------------------------------------------------------------------------------------------------


def installed() -> tuple[str, metadata.Distribution]:
    """Return this Python's engine and its distribution. Raises Unread if it has none, or both."""
    found = {}
    for name in ENGINES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.distribution(name)
    if len(found) != 1:
        raise Unread(f"python3 has {' and '.join(found) or 'neither sglang nor vllm'} installed: one engine is needed")
    return next(iter(found.items()))


def mirror(engine: str, distribution: metadata.Distribution, place: pathlib.Path) -> None:
    """Copy only the engine's sources below a folder: its compiled parts would need what is missing without a GPU."""
    spec = importlib.util.find_spec(engine)
    roots = list(spec.submodule_search_locations or ()) if spec else []
    if not roots:
        raise Unread(f"{engine} is installed, and python3 does not find it")
    root = pathlib.Path(roots[0])
    for path in sorted(root.rglob("*")):
        if path.suffix in MEMBERS and path.is_file():
            to = place / engine / path.relative_to(root)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, to)
    about = place / f"{engine}-{distribution.version}.dist-info" / "METADATA"
    about.parent.mkdir(parents=True)
    about.write_text(distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or "", encoding="utf-8")


def link(place: pathlib.Path) -> None:
    """Link the packages that parsers depend on below a folder, with their requirements, and nothing else."""
    place.mkdir(parents=True, exist_ok=True)
    wanted, seen = ["transformers", *REAL], set[str]()
    while wanted:
        name = wanted.pop()
        if name in seen or name in STOOD_IN:
            continue
        seen.add(name)
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        wanted += required(distribution.requires or ())
        for path in _parts(name, distribution):
            to = place / path.name
            if path.exists() and not to.exists():
                to.symlink_to(path.resolve())


def _parts(name: str, distribution: metadata.Distribution) -> t.Iterator[pathlib.Path]:
    """Yield a distribution's top-level entries in site-packages; without a file record, what is found by its name."""
    tops = {
        part.parts[0]
        for part in distribution.files or ()
        if part.parts and part.parts[0] not in ("..", "__pycache__", "bin")
    }
    yield from (pathlib.Path(str(distribution.locate_file(top))) for top in sorted(tops) if not top.endswith(".pth"))
    if not tops:
        spec = importlib.util.find_spec({"pyyaml": "yaml", "pillow": "PIL"}.get(name, name.replace("-", "_")))
        places = list(spec.submodule_search_locations or ()) or [spec.origin or ""] if spec else []
        yield from map(pathlib.Path, places)
        about = getattr(
            distribution, "_path", None
        )  # a Linux distribution's packages list no files, but their metadata is needed
        yield from [pathlib.Path(about)] if about else []


def packages_of(distribution: metadata.Distribution) -> dict[str, str]:
    """Return the versions of the packages that owners want to know about."""
    found = {}
    for name in (distribution.metadata["Name"], *PACKAGES):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[re.sub(r"[-_.]+", "-", name).lower()] = metadata.version(name)
    return found


# Without a device torch.cuda.get_arch_list() is empty, so read its source directly.
TORCH = """\
import json, torch
def told(read):
    try:
        return read()
    except Exception:
        return None
nccl, cudnn = told(lambda: torch.cuda.nccl.version()), told(lambda: torch.backends.cudnn.version())
libraries = {"cuda": torch.version.cuda, "nccl": ".".join(map(str, nccl)) if isinstance(nccl, tuple) else nccl, "cudnn": cudnn}
flags = told(lambda: torch._C._cuda_getArchFlags())
print("\\n" + json.dumps([(flags or "").split(), {key: str(value) for key, value in libraries.items() if value}]))
"""


def torch_of() -> tuple[list[str], dict[str, str]]:
    """Return the architectures that torch was built for, and the versions of libraries that it loads. Raises Unread if it cannot."""
    if importlib.util.find_spec("torch") is None:
        raise Unread("torch is not installed")
    ran = subprocess.run(  # pylint: disable=ansible-bad-function
        [sys.executable, "-c", TORCH],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=TIMEOUT_S,
    )
    if ran.returncode:
        raise Unread(f"torch cannot be imported: {' '.join(ran.stderr.split())[-300:]}")
    architectures, libraries = json.loads(ran.stdout.splitlines()[-1])
    return architectures, libraries


def patches_of(entries: t.Iterable[Plain], place: pathlib.Path) -> dict[str, str]:
    """Return each start-up patch's state here: `needed`, `there`, `not needed`, or `drifted`; patches without a file are left out."""
    found = {}
    for entry in entries:
        top, _slash, rest = entry["file"].partition("/")
        spec = importlib.util.find_spec(top)
        roots = [pathlib.Path(root) for root in (spec.submodule_search_locations or ())] if spec else []
        names = [rest, *(moved.partition("/")[2] for moved in entry.get("moved", ()))]
        if not any((root / name).exists() for root in roots for name in names):
            continue
        path = place / "patch.json"
        path.write_text(json.dumps([entry]), encoding="utf-8")
        command = [sys.executable, str(HERE / "patches.py"), "--check", str(path)]
        ran = subprocess.run(  # pylint: disable=ansible-bad-function
            command, check=False, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S
        )
        state = "drifted" if ran.returncode else ran.stdout
        words = {
            "would be applied": "needed",
            "applied before": "there",
            "not needed": "not needed",
            "drifted": "drifted",
        }
        found[str(entry["id"])] = next((said for word, said in words.items() if word in state), "drifted")
    return found


def look(asked: t.Mapping[str, t.Any]) -> Plain:
    """Return the document about this image. Raises Unread if it has no engine.

    asked: `patches`, which may be there or be needed, and `probe`, see `read`.
    """
    engine, distribution = installed()
    requires = required(distribution.requires or ())
    document: Plain = {
        "engine": engine,
        "version": distribution.version,
        "requires": {name: requires[name] for name in PACKAGES if requires.get(name)},
        "packages": packages_of(distribution),
        "cudnn_frontend": importlib.util.find_spec("cudnn") is not None,
        "architectures": [],
        "libraries": {},
        "patches": {},
        "parser": None,
        "unread": [],
    }
    with tempfile.TemporaryDirectory(prefix="dgxspark-image-") as folder:
        place = pathlib.Path(folder)
        for part in (_parser, _torch, _patches):
            try:
                document.update(part(engine, requires, asked, place))
            except Exception as exc:  # an image may hold anything; report what it breaks, and read the rest
                why = str(exc) if isinstance(exc, Unread) else f"{type(exc).__name__}: {exc}"
                lines = [" ".join(line.split())[:300] for line in why.splitlines() if line.strip()] or [
                    "it says nothing"
                ]
                document["unread"].append(f"{part.__name__[1:]}: {' … '.join(dict.fromkeys((lines[0], lines[-1])))}")
    return document


def _parser(engine: str, requires: t.Mapping[str, str], asked: t.Mapping[str, t.Any], place: pathlib.Path) -> Plain:
    mirror(engine, metadata.distribution(engine), place / "source")
    link(place / "packages")
    return {"parser": read(engine, place / "source", place / "packages", requires, asked["probe"])}


def _torch(_engine: str, _requires: t.Mapping[str, str], _asked: t.Mapping[str, t.Any], _place: pathlib.Path) -> Plain:
    architectures, libraries = torch_of()
    return {"architectures": architectures, "libraries": libraries}


def _patches(_engine: str, _requires: t.Mapping[str, str], asked: t.Mapping[str, t.Any], place: pathlib.Path) -> Plain:
    return {"patches": patches_of(asked["patches"], place)}


def framed(document: Plain) -> str:
    """Return a document as log lines that cannot be confused with anything else in the log."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    chunks = [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)]
    lines = [f"{MARK} {number} {chunk}" for number, chunk in enumerate(chunks)]
    return "\n".join([*lines, f"{MARK} end {len(chunks)} {hashlib.sha256(text.encode()).hexdigest()}", ""])


def main(arguments: t.Sequence[str]) -> int:
    """Run as a command; return the exit status."""
    if len(arguments) != 1:
        sys.stderr.write("usage: reader.py ASKED.json\n")
        return 2
    try:
        document = look(json.loads(pathlib.Path(arguments[0]).read_text(encoding="utf-8")))
    except (Unread, OSError, ValueError) as exc:
        sys.stderr.write(f"this image cannot be read: {exc}\n")
        return 1
    sys.stdout.write(framed(document))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
