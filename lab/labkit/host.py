# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's requirements on this machine, and how to install them."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from labkit.errors import LabError

MIN_QEMU = (8, 0)
TOOLS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "unshare": "util-linux",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
}
"""Programs and the Debian packages that bring them."""
ARCHIVE_KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SOURCES = Path("/etc/apt/sources.list.d/dgxspark-lab-backports.sources")
SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"


def extend_path() -> None:
    """Add the system folders to PATH: a user's PATH often lacks /usr/sbin."""
    os.environ["PATH"] = os.pathsep.join([*os.environ.get("PATH", "").split(os.pathsep), *SYSTEM_PATH.split(":")])


def parse_version(text: str) -> tuple[int, int]:
    """Return the version in `QEMU emulator version 10.0.2 (...)`, or in a package's version; (0, 0) if there is none."""
    found = re.search(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


@functools.cache
def qemu_version() -> tuple[int, int]:
    """Return the version of the installed QEMU, (0, 0) if it is not installed."""
    if not shutil.which("qemu-system-x86_64"):
        return (0, 0)
    return parse_version(_output("qemu-system-x86_64", "--version"))


def reconnect() -> dict[str, int]:
    """Return this QEMU's option to reconnect after the switch restarts."""
    return {"reconnect-ms": 500} if qemu_version() >= (9, 2) else {"reconnect": 1}


def missing() -> list[str]:
    """Return the packages that this machine lacks."""
    packages = {package for tool, package in TOOLS.items() if not shutil.which(tool)}
    if qemu_version() < MIN_QEMU:
        packages |= {"qemu-system-x86", "qemu-utils"}
    if not ARCHIVE_KEYS.exists():
        packages.add("debian-archive-keyring")
    if os.geteuid() and not shutil.which("newuidmap"):
        packages.add("uidmap")
    return sorted(packages)


def check() -> None:
    """Check that nothing is missing.

    Raises LabError otherwise, with the one command that installs it.
    """
    if os.uname().machine != "x86_64":
        raise LabError(f"The lab runs on x86-64 machines; this one is {os.uname().machine}.", "Run it on a PC.")
    if packages := missing():
        old = qemu_version()
        why = (
            f" (QEMU {old[0]}.{old[1]} is installed, 8.0 is needed for its igb card)" if (0, 0) < old < MIN_QEMU else ""
        )
        raise LabError(
            f"The lab needs Debian packages that are not installed: {', '.join(packages)}{why}.",
            f"Install them as root on Debian or Ubuntu: {Path(__file__).resolve().parent.parent / 'lab'} install-deps",
        )


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, check=False, capture_output=True, text=True).stdout
    except OSError:
        return ""


def apt_proxy() -> str:
    """Return the proxy of this machine's apt, or ""."""
    found = re.search(r'^Acquire::http::Proxy "(.+)";$', _output("apt-config", "dump", "Acquire::http::Proxy"), re.M)
    return found[1] if found else ""


def apt_source(package: str) -> tuple[str, str, str]:
    """Return URI, suite and components of the archive from which apt takes a package of this machine's release.

    The answer is apt's own, not a guess. Empty strings if it has none.
    """
    for line in _output("apt-cache", "policy", package).splitlines():
        # "        500 URI SUITE/COMPONENT ARCHITECTURE Packages"
        found = re.match(r"\s+\d+ (\S+://\S+) (\S+)/(\S+) \S+ Packages$", line)
        if found and not re.search(r"-(security|updates|backports)$", found[2]):
            return found[1], found[2], found[3]
    return "", "", ""


def debian_mirror() -> list[str]:
    """Return the mirror for the image: the owner's choice, else this machine's if it is a Debian, else the tool's default."""
    if chosen := os.environ.get("DGXSPARK_LAB_MIRROR"):
        return [chosen]
    uri = apt_source("base-files")[0] if _release().get("ID") == "debian" else ""
    return [uri] if uri else []


def _release() -> dict[str, str]:
    try:
        lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    return {name: value.strip('"') for name, _sep, value in (line.partition("=") for line in lines)}


def _candidate(package: str) -> tuple[int, int]:
    found = re.search(r"Candidate: (?:\d+:)?(\S+)", _output("apt-cache", "policy", package))
    return parse_version(found[1]) if found else (0, 0)


def install() -> str:
    """Install what is missing, and nothing else; return what was done.

    Raises LabError if this machine cannot do that itself.
    """
    packages = missing()
    if not packages:
        return "Nothing to install: the lab has all it needs."
    if not shutil.which("apt-get"):
        raise LabError(
            f"The lab needs {', '.join(packages)} (names as in Debian), and there is no apt-get here.",
            "Install them with this system's own package manager.",
        )
    if os.geteuid():
        raise LabError(f"Only root can install {', '.join(packages)}.", "Run it with sudo.")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}

    def apt(*arguments: str) -> None:
        result = subprocess.run(
            ["apt-get", "-q", *arguments], env=environment, capture_output=True, text=True, check=False
        )
        if result.returncode:
            last = " | ".join(result.stderr.strip().splitlines()[-3:])
            raise LabError(
                f"apt-get {arguments[0]} failed: {last}", "See that apt-get update works here, then try again."
            )

    apt("update")
    qemu = [package for package in packages if package.startswith("qemu-")]
    from_release: list[str] = []
    if qemu and _candidate("qemu-system-x86") < MIN_QEMU:
        uri, suite, components = apt_source("base-files")
        if _release().get("ID") != "debian" or not uri:
            raise LabError(
                "The QEMU of this system's archives is older than 8.0.", "Install qemu-system-x86 8.0 or newer by hand."
            )
        backports = f"{suite}-backports"
        from_release = ["-t", backports]
        if backports not in _output("apt-cache", "policy"):
            SOURCES.write_text(
                f"Types: deb\nURIs: {uri}\nSuites: {backports}\nComponents: {components}\nSigned-By: {ARCHIVE_KEYS}\n",
                encoding="utf-8",
            )
            apt("update")
    if qemu:
        apt("install", "-y", "--no-install-recommends", *from_release, *qemu)
    if others := [package for package in packages if package not in qemu]:
        apt("install", "-y", "--no-install-recommends", *others)
    qemu_version.cache_clear()
    check()
    return f"Installed {', '.join(packages)}."
