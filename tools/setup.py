"""Make the environments for tests, lint, the guides and the demo: `.venv/<name>` and `.cache/collections/<name>`.

Usage: setup.py NAME … with NAME `2.19` or `2.21` (that ansible-core; Python >= 3.11 or 3.12; lint in the latter), `newest` (what this
machine's Python allows) or `docs` (what builds the documentation). Idempotent: an environment is rebuilt only if its requirements
change. Prints the path of each; exit status 3 if this machine has no Python for one of them.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "constraints.txt"
# name -> lowest Python, release of the package `ansible` with the collections for it (if tests need them), requirements
ENVIRONMENTS: dict[str, tuple[tuple[int, int], str, tuple[str, ...]]] = {
    "2.19": ((3, 11), "12.3.0", ("core-2.19.txt", "test.txt")),
    "2.21": ((3, 12), "14.5.0", ("core-2.21.txt", "test.txt", "lint.txt")),
    "docs": ((3, 12), "", ("core-2.21.txt", "docs.txt")),
}


def pythons() -> dict[tuple[int, int], str]:
    """Find working interpreters with venv, by version: on PATH, and in pyenv, whose shims may point nowhere."""
    names = [f"python3.{minor}" for minor in range(11, 16)]
    candidates = [sys.executable, *filter(None, map(shutil.which, [*names, "python3"]))]
    versions = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions"
    candidates += [str(path) for path in sorted(versions.glob("3.*/bin/python3"))]
    found: dict[tuple[int, int], str] = {}
    # The base interpreter, because PATH may lead into the environment that is being replaced.
    code = "import sys, venv, ensurepip; print(*sys.version_info[:2], sys._base_executable)"
    for candidate in candidates:
        ran = subprocess.run([candidate, "-c", code], check=False, capture_output=True, text=True)
        if ran.returncode == 0:
            major, minor, path = ran.stdout.strip().split(" ", 2)
            found.setdefault((int(major), int(minor)), path)
    return found


def make(name: str) -> pathlib.Path | None:
    """Make or reuse an environment; None if no Python here is new enough."""
    lowest, package, wanted = ENVIRONMENTS[name]
    fit = {version: path for version, path in pythons().items() if version >= lowest}
    if not fit:
        return None
    version = min(fit)  # each core is tested with the oldest Python that fits
    requirements = [ROOT / "requirements" / file for file in wanted]
    made_of = [*requirements, ROOT / "requirements" / "plugins.txt", LOCK]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in made_of) + repr((version, package)).encode())
    venv = ROOT / ".venv" / name
    stamp = venv / ".made-of"
    if not stamp.is_file() or stamp.read_text() != digest.hexdigest():
        print(f"setup: making {venv} with Python {version[0]}.{version[1]}", file=sys.stderr)
        shutil.rmtree(venv, ignore_errors=True)
        subprocess.run([fit[version], "-m", "venv", venv], check=True)
        # Python compiles what is imported, a tenth of it, when it is imported.
        install = [venv / "bin" / "pip", "install", "-q", "--no-compile", "--disable-pip-version-check", "-c", LOCK]
        with ThreadPoolExecutor() as pool:  # one unpacks while the other downloads
            fetched = pool.submit(fetch_collections, venv, name, package)
            subprocess.run(
                [*install, *(arg for path in requirements for arg in ("-r", path))], check=True, stdout=sys.stderr
            )
            fetched.result()
        stamp.write_text(digest.hexdigest())
    collections = fetch_collections(venv, name, package)
    link(collections)
    return venv


def fetch_collections(venv: pathlib.Path, name: str, package: str) -> pathlib.Path:
    """Fetch the collections of a release of the package `ansible`, if it names one; return where they lie."""
    collections = ROOT / ".cache" / "collections" / name
    if package:
        fetch = [venv / "bin" / "python", ROOT / "tools" / "fetch_collections.py", package, collections]
        subprocess.run(fetch, check=True, stdout=sys.stderr)
    return collections


def link(collections: pathlib.Path) -> None:
    """Make the checkout importable as dgxspark.cluster below `collections`."""
    place = collections / "ansible_collections" / "dgxspark" / "cluster"
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_symlink():
        place.unlink()
    place.symlink_to(ROOT)


def main(wanted: list[str]) -> int:
    """Make the requested environments; report which could not be made."""
    if wanted == ["link"]:
        link(ROOT / "collections")
        return 0
    if wanted == ["newest"]:
        wanted = ["2.21" if any(version >= (3, 12) for version in pythons()) else "2.19"]
    missing = 0
    with ThreadPoolExecutor() as pool:  # each mostly waits for a program that uses one core
        made = dict(zip(wanted, pool.map(make, wanted), strict=True))
    for name, venv in made.items():
        if venv is None:
            lowest = ".".join(map(str, ENVIRONMENTS[name][0]))
            print(f"setup: environment {name} needs Python {lowest} with venv, not found here.", file=sys.stderr)
            print("setup: on Debian and Ubuntu: apt-get install python3-venv; or pyenv install 3.12", file=sys.stderr)
            missing = 3
        else:
            print(venv)
    return missing


if __name__ == "__main__":
    if len(sys.argv) < 2 or not set(sys.argv[1:]) <= {*ENVIRONMENTS, "newest", "link"}:
        raise SystemExit(__doc__)
    raise SystemExit(main(sys.argv[1:]))
