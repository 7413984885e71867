# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes' image: built once by mmdebstrap, kept under a name made of everything that determines it."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from labkit import host, processes, qemu
from labkit.config import HOST_KEY_ALIAS, Config
from labkit.errors import LabError
from labkit.rootfs import entries

SUITE = "trixie"
KEPT = 3
"""Images, and saved states, that stay in the cache beside those in use."""
HERE = Path(__file__).resolve().parent
GUEST = HERE.parent / "guest"
EXCLUDED = ("man", "doc", "locale", "info", "lintian", "bug")


def digest(parts: Iterable[tuple[str, bytes]]) -> str:
    """A short name for what the parts contain: any change of a name or of a content changes it."""
    total = hashlib.sha256()
    for name, content in sorted(parts):
        total.update(f"{len(name)}:{name}:{len(content)}:".encode() + content)
    return total.hexdigest()[:16]


def sources(added: Path | None = None) -> Iterator[tuple[str, bytes]]:
    """What determines the image, but for the keys. added: a folder like GUEST, whose lists and files come on top."""
    yield "suite", SUITE.encode()
    for name in ("image.py", "rootfs.py"):
        yield name, (HERE / name).read_bytes()
    for name, folder in (("guest", GUEST), ("added", added)):
        for path in folder.rglob("*") if folder else ():
            if path.is_file():
                yield f"{name}/{path.relative_to(folder)}", path.read_bytes()


def key(config: Config) -> str:
    """The image's name in the cache."""
    public = [(name, (config.cache / name).read_bytes()) for name in ("id_lab.pub", "host_key.pub")]
    boot = [("command line", qemu.KERNEL_COMMAND_LINE.encode())] if config.grub else []
    return digest([*sources(config.guest), *public, *boot])


def disk(folder: Path) -> Path:
    """Return the disk of an image: the root file system alone, or, where GRUB boots, a whole one."""
    return next(path for name in ("disk.raw", "root.ext4") if (path := folder / name).exists())


@contextlib.contextmanager
def locked(config: Config, say: Callable[[str], None]) -> Iterator[None]:
    """The cache for one builder at a time; others wait, and say so."""
    config.cache.mkdir(parents=True, exist_ok=True)
    with (config.cache / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"Waiting for another lab that is building in {config.cache} ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def ensure_keys(config: Config) -> None:
    """The client's key and the host's key: made once, they outlive every image."""
    for name in ("id_lab", "host_key"):
        if not (config.cache / name).exists() or not (config.cache / f"{name}.pub").exists():
            with tempfile.TemporaryDirectory(dir=config.cache, prefix="build-") as folder:
                new = Path(folder) / name
                subprocess.run(
                    ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "dgxspark-lab", "-f", str(new)],
                    check=True,
                    capture_output=True,
                )
                (Path(folder) / f"{name}.pub").rename(config.cache / f"{name}.pub")
                new.rename(config.cache / name)
    public = (config.cache / "host_key.pub").read_text(encoding="utf-8").split()
    line = f"{HOST_KEY_ALIAS} {public[0]} {public[1]}\n"
    if not config.known_hosts.exists() or config.known_hosts.read_text(encoding="utf-8") != line:
        new = config.known_hosts.with_suffix(".new")
        new.write_text(line, encoding="utf-8")
        new.rename(config.known_hosts)


@contextlib.contextmanager
def building(config: Config, kind: str, name: str) -> Iterator[Path]:
    """A folder that becomes `<cache>/<kind>/<name>` when the block ends well, and is removed when it does not."""
    kept = config.cache / kind
    kept.mkdir(parents=True, exist_ok=True)
    for stale in config.cache.glob("build-*"):
        shutil.rmtree(stale, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(dir=config.cache, prefix="build-"))
    try:
        yield folder
        folder.chmod(0o755)
        folder.rename(kept / name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    by_age = sorted(kept.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in by_age[KEPT:]:
        if not processes.mentions(str(old)):
            shutil.rmtree(old, ignore_errors=True)


def die_with_parent() -> None:
    """Run in a child before it starts its program: when the lab is killed, so is what it had started."""
    ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGTERM, 0, 0, 0)


def bootstrap_command(config: Config, folder: Path) -> list[str]:
    """mmdebstrap with our last hook; the tree itself is thrown away."""
    hook = f'exec python3 "{HERE}/rootfs.py" "$1" "{folder}" "{config.cache}"'
    hook += f' "{config.guest}"' if config.guest else ""
    hook += f' "{qemu.KERNEL_COMMAND_LINE}"' if config.grub else ""
    excluded = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in EXCLUDED]
    proxy = host.apt_proxy()
    return [
        *(
            "mmdebstrap",
            "--quiet",
            "--variant=minbase",
            "--format=null",
            f"--include={','.join(entries('packages.txt', config.guest))}",
        ),
        *excluded,
        *(
            "--dpkgopt=force-unsafe-io",
            '--aptopt=Acquire::Languages "none"',
            '--aptopt=Apt::Install-Recommends "false"',
        ),
        *([f'--aptopt=Acquire::http::Proxy "{proxy}"'] if proxy else []),
        *(f"--customize-hook={hook}", SUITE, "-", *host.debian_mirror()),
    ]


def ensure(config: Config, say: Callable[[str], None]) -> Path:
    """The image's folder with its disk, `vmlinuz` and `initrd`; builds it if need be. Call it under the lock."""
    ensure_keys(config)
    name = key(config)
    folder = config.cache / "images" / name
    if folder.is_dir():
        os.utime(folder)
        return folder
    if os.geteuid():
        raise LabError("Only root can build the nodes' image.", "Run lab/lab up as root.")
    say(f"Building the nodes' image (Debian {SUITE}), once: about a minute ...")
    begun = time.monotonic()
    with building(config, "images", name) as new:
        new.chmod(0o755)
        log = new / "build.log"
        with log.open("wb") as output:
            result = subprocess.run(
                bootstrap_command(config, new),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "INITRD": "No", "TMPDIR": str(new), "PYTHONDONTWRITEBYTECODE": "1"},
                preexec_fn=die_with_parent,
                check=False,
            )
        if result.returncode:
            last = " | ".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-6:])
            raise LabError(
                f"mmdebstrap could not build the image: {last}",
                "Check that this machine reaches a Debian mirror; DGXSPARK_LAB_MIRROR names another one.",
            )
    say(f"Image built in {time.monotonic() - begun:.0f} s.")
    return folder
