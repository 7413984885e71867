# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node's own processes need for NCCL: its environment, limits on locked memory and stack, sysctls.

Our files are known by their first line; a file without it is someone else's and never touched. A journal records the previous
sysctls and folders, so that everything can be restored.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.oserrors import reason
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.fabric.rollback import FileImage, Host
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Change, CollectionError

CONF = "/etc/nccl.conf"
ENVIRONMENT = "/etc/dgxspark/nccl.env"
LIMITS = "/etc/security/limits.d/90-dgxspark-nccl.conf"
SYSTEMD = "/etc/systemd/system.conf.d/90-dgxspark-nccl.conf"
SYSCTL = "/etc/sysctl.d/90-dgxspark-nccl.conf"
PATHS = (CONF, ENVIRONMENT, LIMITS, SYSTEMD, SYSCTL)
JOURNAL = "/var/lib/dgxspark/nccl-before.json"
RELOAD = ("systemctl", "daemon-reload")

# No `=` in a comment of nccl.conf: NCCL before 2.26 has no comments and would set a variable of that name.
MARK = "# Written by the Ansible role dgxspark.cluster.nccl; its next run undoes changes by hand.\n"
LEAST_STACK = 8192  # KiB: known to be sufficient (NCCL user guide, "Stack size")
_VALUE_LIMIT = 1023  # bytes that NCCL reads of a value in nccl.conf (src/misc/param.cc)
_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
# What a shell, systemd and Docker read alike without quotes; NCCL would treat quotes as part of the value.
_VALUE = re.compile(r"[A-Za-z0-9_.,:=^/+@%-]+")
_SYSCTL = re.compile(r"[a-z0-9][A-Za-z0-9_-]*([./][A-Za-z0-9_-]+)+")
_DOMAIN = re.compile(r"[*%@A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class HostSettings:
    """The wanted settings of a node.

    environment: of processes. memlock: KiB of memory that may be locked, or `unlimited`; stack: KiB of a thread's stack;
    None leaves either alone. domains: whose logins the limits apply to, as in limits.conf(5). sysctls: by name.
    """

    environment: t.Mapping[str, str] = field(default_factory=dict)
    memlock: str | None = None
    stack: int | None = None
    domains: tuple[str, ...] = ("*", "root")
    sysctls: t.Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What was or would be done; restart: whether running services must be restarted to get their limits."""

    changes: tuple[Change, ...]
    texts: tuple[tuple[str, str, str], ...]
    restart: bool


def check(wish: HostSettings) -> None:
    """Refuse what cannot be written, or would be misread; CollectionError names the key."""
    for name, value in wish.environment.items():
        if not _NAME.fullmatch(name):
            raise CollectionError(f"environment: {name!r} is not a valid variable name.")
        if not value:
            raise CollectionError(
                f"environment: {name} is empty, and NCCL takes that as a value. Leave it out instead."
            )
        if not _VALUE.fullmatch(value) or len(value) > _VALUE_LIMIT:
            raise CollectionError(
                f"environment: {name}: {value[:60]!r} would be read differently by NCCL, a shell, systemd and Docker. "
                f"Use at most {_VALUE_LIMIT} letters, digits and _ . , : = ^ / + @ % -."
            )
    if wish.memlock not in (None, "unlimited") and not str(wish.memlock).isdecimal():
        raise CollectionError(f"memlock: {wish.memlock!r} is neither a number of KiB nor unlimited.")
    if wish.stack is not None and wish.stack < LEAST_STACK:
        raise CollectionError(
            f"stack: {wish.stack} KiB is too small: NCCL's search is recursive and crashes. Use {LEAST_STACK} or more."
        )
    for domain in wish.domains:
        if not _DOMAIN.fullmatch(domain):
            raise CollectionError(f"domains: {domain!r} is not a user, @group or * of limits.conf.")
    for name, value in wish.sysctls.items():
        if not _SYSCTL.fullmatch(name) or not value.strip() or "\n" in value:
            raise CollectionError(
                f"sysctls: {name!r}: {value!r} cannot be set. A name with dots and a value are needed."
            )


def texts(wish: HostSettings) -> dict[str, str]:
    """Return path -> text of the required files.

    memlock: NCCL registers its buffers with the HCA, which locks them (NCCL user guide, "Networking troubleshooting");
    limits.conf applies to logins, where `*` does not include root; services and what they start, containers included, have
    systemd's default, 8 MiB (systemd-system.conf(5)). stack: only the soft limit, and of logins: a service's is the
    kernel's 8 MiB.
    """
    limits, made = [], {}
    for domain in wish.domains:
        limits += [f"{domain} {kind} memlock {wish.memlock}" for kind in ("soft", "hard") if wish.memlock]
        limits += [f"{domain} soft stack {wish.stack}"] if wish.stack else []
    memlock = "infinity" if wish.memlock == "unlimited" else f"{wish.memlock}K"
    variables = [f"{name}={value}" for name, value in sorted(wish.environment.items())]
    for path, lines in (
        (CONF, [line for line in variables if line.startswith("NCCL_")]),
        (ENVIRONMENT, variables),
        (LIMITS, limits),
        (SYSTEMD, ["[Manager]", f"DefaultLimitMEMLOCK={memlock}"] if wish.memlock else []),
        (SYSCTL, [f"{name} = {value}" for name, value in sorted(wish.sysctls.items())]),
    ):
        if lines:
            made[path] = MARK + "\n".join([*lines, ""])
    return made


class NcclHost:
    """The node: `host` for its files, `proc` for its sysctls; reload: whether there is a systemd to reload."""

    def __init__(self, host: Host, proc: str = "/proc", *, reload: bool = True) -> None:
        self.host, self.proc, self.reload = host, proc, reload

    def run(self, wish: HostSettings | None, *, check_mode: bool = False) -> Outcome:
        """Apply the settings, or restore the previous state (None). CollectionError either before anything is touched, or after
        everything has been restored."""
        if wish is not None:
            check(wish)
        wanted = texts(wish) if wish else {}
        images = {path: self.host.image(path) for path in PATHS}
        self._refuse(images, wanted)
        journal = self._journal()
        values = {**journal["sysctls"], **({k: " ".join(v.split()) for k, v in wish.sysctls.items()} if wish else {})}
        now = {name: self._read(name, gone=wish is None or name not in wish.sysctls) for name in values}
        ours = {path: image for path, image in images.items() if path in wanted or _is_ours(image)}
        changes: list[Change] = []
        shown: list[tuple[str, str, str]] = []
        for path, image in ours.items():
            before, after = _text(image), wanted.get(path)
            if before != after or (after is not None and image.mode != 0o644):
                what = "mode" if before == after else "file"
                changes.append(Change(path, what, *((oct(image.mode), "0o644") if what == "mode" else (before, after))))
                shown.append((path, before or "", after or ""))
        for name, value in values.items():
            if now[name] is not None and now[name] != value:
                changes.append(Change(name, "sysctl", now[name], value))
                shown.append((name, f"{now[name]}\n", f"{value}\n"))
        restart = any(change.subject in (LIMITS, SYSTEMD) and change.what == "file" for change in changes)
        left = wish is None and self.host.image(JOURNAL).data is not None
        if (changes or left) and not check_mode:
            self._apply(changes, images, journal, wish)
        return Outcome(tuple(changes), tuple(shown), restart)

    def _refuse(self, images: t.Mapping[str, FileImage], wanted: t.Mapping[str, str]) -> None:
        foreign = [
            path
            for path in wanted
            if self.host.path(path).is_symlink() or (images[path].data is not None and not _is_ours(images[path]))
        ]
        if foreign:
            raise CollectionError(
                f"{', '.join(foreign)}: already present, and not written by this role, so nothing was changed. "
                "Move it away (and keep what you need from it), or leave this part out in the role's variables."
            )

    def _journal(self) -> dict[str, t.Any]:
        data = self.host.image(JOURNAL).data
        try:
            found = {"sysctls": {}, "folders": []} if data is None else json.loads(data)
            return {"sysctls": dict(found["sysctls"]), "folders": list(found["folders"])}
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as exc:
            raise CollectionError(
                f"{JOURNAL}: not what this role wrote ({exc}). Move it away, and run this again."
            ) from exc

    def _sysctl(self, name: str) -> pathlib.Path:
        # In a name with slashes a dot is part of the name, as in sysctl(8).
        return pathlib.Path(self.proc, "sys", name if "/" in name else name.replace(".", "/"))

    def _read(self, name: str, *, gone: bool) -> str | None:
        try:
            return " ".join(self._sysctl(name).read_text(encoding="utf-8").split())
        except OSError as exc:
            if gone:
                return None  # a sysctl to restore is gone, for example with its kernel module
            raise CollectionError(
                f"sysctls: {name}: this node's kernel has no such setting: {exc.strerror}. Leave it out."
            ) from exc

    def _apply(
        self,
        changes: t.Sequence[Change],
        images: t.Mapping[str, FileImage],
        journal: dict[str, t.Any],
        wish: HostSettings | None,
    ) -> None:
        kept = dict(journal["sysctls"])
        for change in changes:
            if change.what == "sysctl" and wish and change.subject in wish.sysctls:
                kept.setdefault(change.subject, change.before)
        folders = {*journal["folders"], *self._missing([c.subject for c in changes if c.what == "file" and c.after])}
        self._keep({"sysctls": kept, "folders": sorted(folders)})
        done: list[Change] = []
        try:
            for change in changes:
                done.append(change)
                self._make(change, images, change.after)
        except OSError as exc:
            for change in reversed(done):
                with contextlib.suppress(OSError):
                    self._make(change, images, change.before)
            raise CollectionError(
                f"{done[-1].subject}: {exc.strerror}, so the changes were rolled back. "
                f"{reason(exc)[:1].upper()}{reason(exc)[1:]}"
            ) from exc
        if self.reload and any(change.subject == SYSTEMD for change in changes):
            code, _out, error = self.host.command(RELOAD)
            if code:
                raise CollectionError(
                    f"`{' '.join(RELOAD)}` failed: {error.strip()}. Run it by hand: the file is in place."
                )
        if wish is None:
            self.host.put(JOURNAL, FileImage(None))
            self._sweep(sorted(folders, reverse=True))
        else:
            self._keep({"sysctls": {k: v for k, v in kept.items() if k in wish.sysctls}, "folders": sorted(folders)})

    def _make(self, change: Change, images: t.Mapping[str, FileImage], value: t.Any) -> None:
        if change.what == "sysctl":
            self._sysctl(change.subject).write_text(f"{value}\n", encoding="utf-8")
        elif change.what == "mode" or value == change.before:
            image = images[change.subject]
            mode = 0o644 if value == change.after else image.mode
            self.host.put(change.subject, FileImage(image.data, mode, image.uid, image.gid))
        else:
            data = None if value is None else str(value).encode()
            self.host.put(change.subject, FileImage(data, 0o644, os.geteuid(), os.getegid()))

    def _missing(self, paths: t.Sequence[str]) -> list[str]:
        """Return the folders that must be created to write these files."""
        above = {str(folder) for path in (*paths, JOURNAL) for folder in pathlib.PurePosixPath(path).parents}
        return [folder for folder in above if not self.host.path(folder).is_dir()]

    def _sweep(self, folders: t.Sequence[str]) -> None:
        """Remove folders that this role created and nothing else uses."""
        for folder in folders:
            with contextlib.suppress(OSError):
                self.host.path(folder).rmdir()

    def _keep(self, journal: t.Mapping[str, t.Any]) -> None:
        text = json.dumps(journal, indent=1, sort_keys=True) + "\n"
        self.host.put(JOURNAL, FileImage(text.encode(), 0o600, os.geteuid(), os.getegid()))


def _is_ours(image: FileImage) -> bool:
    return image.data is not None and image.data.startswith(MARK.encode())


def _text(image: FileImage) -> str | None:
    return None if image.data is None else image.data.decode("utf-8", "replace")
