"""Where a secret may have leaked: arguments and environments of processes, texts, and files that others can read."""

from __future__ import annotations

import base64
import os
import pathlib
import stat
import threading
import typing as t


class Watch:
    """Keep the arguments and the environment of every process that appears meanwhile; they are sampled, not traced."""

    def __init__(self, every_s: float = 0.02) -> None:
        self.every_s = every_s
        self.texts: set[bytes] = set()
        self._before = {entry.name for entry in os.scandir("/proc")}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self.every_s):
            for entry in os.scandir("/proc"):
                if entry.name.isdigit() and entry.name not in self._before:
                    for file in ("cmdline", "environ"):
                        try:
                            self.texts.add(pathlib.Path(entry.path, file).read_bytes())
                        except OSError:
                            continue  # it has ended, or belongs to another user

    def holding(self, *secrets: str) -> list[str]:
        """Return the arguments and environments that hold a secret."""
        return [repr(text)[:300] for text in self.texts if any(form in text for form in forms(*secrets))]


def forms(*secrets: str) -> list[bytes]:
    """Return the forms of a secret: plain, and as Kubernetes and Ansible encode it."""
    plain = [secret.encode() for secret in secrets]
    return [*plain, *map(base64.b64encode, plain)]


def lines(text: str, *secrets: str) -> list[str]:
    """Return the lines of a text that hold a secret."""
    return [line[:300] for line in text.splitlines() if any(form in line.encode() for form in forms(*secrets))]


def files(folders: t.Iterable[pathlib.Path], *secrets: str, anyone: bool = True) -> list[str]:
    """Return the files that hold a secret. anyone: only those that others than the file's owner can read."""
    found = []
    for folder in folders:
        for place, _folders, names in os.walk(folder):
            for name in names:
                path = pathlib.Path(place, name)
                try:
                    mode = path.lstat().st_mode
                    if not stat.S_ISREG(mode) or (anyone and not mode & 0o044):
                        continue
                    held = path.read_bytes()
                except OSError:
                    continue
                found += [str(path)] if any(form in held for form in forms(*secrets)) else []
    return found
