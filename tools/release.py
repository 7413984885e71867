"""Build a release: refuse a tag that is none, build the collection, write its checksum beside it.

Usage: release.py TAG DESTINATION

The version is in galaxy.yml, and nowhere else. Before the tag: `antsibull-changelog release`, which makes the changelog of its fragments.
"""

from __future__ import annotations

import hashlib
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
VERSION = r"[0-9]+\.[0-9]+\.[0-9]+(?:-[0-9A-Za-z.]+)?"


def problems(tag: str, root: pathlib.Path = ROOT) -> list[str]:
    """Return why the checkout is not the release that the tag names."""
    version = str(yaml.safe_load((root / "galaxy.yml").read_text(encoding="utf-8"))["version"])
    found = [] if re.fullmatch(VERSION, version) else [f"galaxy.yml: {version} is no semantic version."]
    if tag != version:
        found.append(f"The tag is {tag}, the version in galaxy.yml {version}. They must be the same.")
    log = root / "changelogs" / "changelog.yaml"
    releases = yaml.safe_load(log.read_text(encoding="utf-8"))["releases"] if log.is_file() else {}
    if version not in releases:
        found.append(
            f"changelogs/changelog.yaml has no release {version}. Run antsibull-changelog release, and commit it."
        )
    if f"v{version}\n" not in (root / "CHANGELOG.rst").read_text(encoding="utf-8"):
        found.append(f"CHANGELOG.rst has no section v{version}. Run antsibull-changelog release, and commit it.")
    if left := sorted(path.name for path in (root / "changelogs" / "fragments").glob("*.yml")):
        found.append(f"changelogs/fragments: {len(left)} not yet in the changelog, such as {left[0]}.")
    return found


def build(destination: pathlib.Path) -> pathlib.Path:
    """Build the archive from what git has, and write SHA256SUMS beside it. Returns the archive."""
    with tempfile.TemporaryDirectory() as staged:
        stage = [sys.executable, str(ROOT / "tools" / "stage.py"), staged]
        collection = subprocess.run(stage, check=True, capture_output=True, text=True).stdout.strip()
        made = pathlib.Path(staged, "made")
        galaxy = shutil.which("ansible-galaxy", path=str(pathlib.Path(sys.executable).parent)) or "ansible-galaxy"
        # Its messages go to stderr: stdout is the archive's path.
        command = [galaxy, "collection", "build", collection, "--output-path", str(made)]
        subprocess.run(command, check=True, stdout=sys.stderr)
        (archive,) = made.glob("*.tar.gz")
        destination.mkdir(parents=True, exist_ok=True)
        built = pathlib.Path(shutil.copy2(archive, destination))
    digest = hashlib.sha256(built.read_bytes()).hexdigest()
    (destination / "SHA256SUMS").write_text(f"{digest}  {built.name}\n", encoding="utf-8")
    return built


def main(tag: str, destination: str) -> int:
    """Check, build, print the archive's path."""
    if found := problems(tag):
        print("\n".join(found), file=sys.stderr)
        return 1
    print(build(pathlib.Path(destination)))
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    sys.exit(main(*sys.argv[1:]))
