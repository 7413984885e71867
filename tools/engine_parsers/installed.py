"""Installs an engine in order to run it, in an environment of its own, cached with the oracle under a hash of its contents.

Uses uv, itself installed with pip, for what pip cannot do: override the engine's own requirements.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys

from engine_parsers.sources import NotAvailable, cache, distribution, pip

# torch: any build of that release, such as +cpu from a folder in PIP_FIND_LINKS, which PyPI lacks (PyPI's build of 5 GB is for
# CUDA, but also works on a CPU). The others are not needed on a CPU; torchvision does not even load there.
OVERRIDES = {
    ("vllm", "0.32.0+cpu"): (
        "torch==2.13.0",
        *(f'{name} ; sys_platform == "never"' for name in ("torchvision", "torchaudio", "torchcodec", "triton")),
    )
}
TIMEOUT_S = 1800
# pip's variable -> uv's
SAME = {"PIP_INDEX_URL": "UV_DEFAULT_INDEX", "PIP_FIND_LINKS": "UV_FIND_LINKS", "PIP_CERT": "SSL_CERT_FILE"}


def environment(engine: str, version: str) -> pathlib.Path:
    """Return a virtual environment with the engine. NotAvailable says why there is none."""
    if platform.machine() != "x86_64":
        raise NotAvailable(f"{distribution(engine, version)} cannot be installed: its wheel is for x86_64 alone")
    overrides = OVERRIDES[engine, version]
    made_of = [distribution(engine, version), *overrides, sys.version]
    folder = cache() / "venvs" / hashlib.sha256(repr(made_of).encode()).hexdigest()[:16]
    stamp = folder / "made-of.json"
    if not stamp.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        tools = folder / "uv"
        pip("install", "--target", str(tools), "uv", what="uv")
        uv = str(tools / "bin" / "uv")
        _run(uv, "venv", "-q", "--python", sys.executable, "--clear", str(folder / "venv"))
        (folder / "overrides.txt").write_text("\n".join(overrides) + "\n", encoding="utf-8")
        _run(
            *(uv, "pip", "install", "-q", "--python", str(folder / "venv" / "bin" / "python")),
            *("--cache-dir", str(folder / "wheels"), "--overrides", str(folder / "overrides.txt")),
            distribution(engine, version),
        )
        _say_its_name(engine, version, next((folder / "venv" / "lib").glob("python*/site-packages")))
        shutil.rmtree(folder / "wheels", ignore_errors=True)
        stamp.write_text(json.dumps(made_of), encoding="utf-8")
    return folder / "venv"


def _run(*command: str) -> None:
    given = {theirs: os.environ[ours] for ours, theirs in SAME.items() if os.environ.get(ours)}
    ran = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=TIMEOUT_S, env={**os.environ, **given}
    )
    if ran.returncode:
        why = f"{command[-1]} cannot be installed: {' '.join(ran.stderr.split())[-600:]}"
        # NotAvailable is for network failures only; conflicting requirements are a fault here.
        raise NotAvailable(why) if "Failed to fetch" in ran.stderr else RuntimeError(why)


def _say_its_name(engine: str, version: str, packages: pathlib.Path) -> None:
    """Make a build of another name available under the engine's own, which its command line requires."""
    folder = packages / f"{engine}-{version}.dist-info"
    if not folder.is_dir():
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {engine}\nVersion: {version}\n", encoding="utf-8"
        )
