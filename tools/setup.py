"""Make the environments for tests, lint and the demo: `.venv/<core>` and `.cache/collections/<core>`.

Usage: setup.py CORE … with CORE `2.19` (Python >= 3.11), `2.21` (Python >= 3.12; lint too) or `newest` (what this
machine's Python allows). Idempotent: an environment is rebuilt only if its requirements change. Prints the path of each;
exit status 3 if this machine has no Python for one of them.
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
# The lab's nodes have it too.
QUICK_PYTHON = sorted((ROOT / "lab/guest/files/usr/lib/python3/dist-packages").glob("dgxspark_quick_python.*"))
# core -> lowest Python, matching release of the package `ansible`, requirements beside the core's own
CORES = {
    "2.19": ((3, 11), "12.3.0", ("test.txt",)),
    "2.21": ((3, 12), "14.5.0", ("test.txt", "lint.txt")),
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


def make(core: str) -> pathlib.Path | None:
    """Make or reuse the environment of one core; None if no Python here is new enough."""
    lowest, package, extra = CORES[core]
    fit = {version: path for version, path in pythons().items() if version >= lowest}
    if not fit:
        return None
    version = min(fit)  # each core is tested with the oldest Python that fits
    lock = ROOT / "requirements" / "constraints.txt"
    files = [ROOT / "requirements" / name for name in (f"core-{core}.txt", "plugins.txt", *extra)] + [lock]
    made_of = b"".join(path.read_bytes() for path in [*files, *QUICK_PYTHON])
    digest = hashlib.sha256(made_of + repr((version, package)).encode())
    venv = ROOT / ".venv" / core
    stamp = venv / ".made-of"
    if not stamp.is_file() or stamp.read_text() != digest.hexdigest():
        print(f"setup: making {venv} with Python {version[0]}.{version[1]}", file=sys.stderr)
        shutil.rmtree(venv, ignore_errors=True)
        subprocess.run([fit[version], "-m", "venv", venv], check=True)
        requirements = [
            arg for path in files if path.name not in ("plugins.txt", lock.name) for arg in ("-r", str(path))
        ]
        install = [venv / "bin" / "pip", "install", "-q", "--disable-pip-version-check", "-c", lock, *requirements]
        subprocess.run(install, check=True, stdout=sys.stderr)
        packages = venv / "lib" / f"python{version[0]}.{version[1]}" / "site-packages"
        for path in QUICK_PYTHON:
            shutil.copy(path, packages)
        stamp.write_text(digest.hexdigest())
    collections = ROOT / ".cache" / "collections" / core
    fetch = [venv / "bin" / "python", ROOT / "tools" / "fetch_collections.py", package, collections]
    subprocess.run(fetch, check=True, stdout=sys.stderr)
    link(collections)
    return venv


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
    for core, venv in made.items():
        if venv is None:
            lowest = ".".join(map(str, CORES[core][0]))
            print(f"setup: ansible-core {core} needs Python {lowest} with venv, not found here.", file=sys.stderr)
            print("setup: on Debian and Ubuntu: apt-get install python3-venv; or pyenv install 3.12", file=sys.stderr)
            missing = 3
        else:
            print(venv)
    return missing


if __name__ == "__main__":
    if len(sys.argv) < 2 or not set(sys.argv[1:]) <= {*CORES, "newest", "link"}:
        raise SystemExit(__doc__)
    raise SystemExit(main(sys.argv[1:]))
