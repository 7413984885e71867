# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Network namespaces of a node: which exist, whether anything runs in them, and how to read inside one.

A pod's namespace is read from a forked child with a mount namespace of its own: nothing of the pod is touched, and nothing
remains when the child ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import time
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import Run
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

# Called inside a namespace with its sysfs, a runner and the root of /proc; returns JSON-compatible data.
Reader = t.Callable[[Sysfs, Run, str], t.Any]
Enter = t.Callable[[str, Reader], t.Any]

_CLONE_NEWNS = 0x00020000
_CLONE_NEWNET = 0x40000000
_MS_PRIVATE_ALL = 0x00044000  # MS_REC | MS_PRIVATE
_MS_READ_ONLY = 0x0000000F  # MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC


@dataclass(frozen=True, slots=True)
class Namespace:
    """A network namespace: a path to enter it by, its inode, and the number of its processes."""

    path: str
    inode: int
    pids: int


def other_namespaces(proc_root: str = "/proc", netns_root: str = "/run/netns") -> list[Namespace]:
    """Return all network namespaces except our own, those with processes first.

    Sources: every process, the named ones in `netns_root`, and all other mounts. A namespace's mount keeps it alive after its
    last process has ended: that is how a dead pod's VF is stranded.
    Raises CollectionError if another user's processes cannot be read.
    """
    own = os.stat(f"{proc_root}/self/ns/net")  # noqa: PTH116
    pids: dict[int, int] = {}
    paths: dict[int, str] = {}
    for entry in os.listdir(proc_root):  # noqa: PTH208
        if entry.isdigit():
            inode = _inode(f"{proc_root}/{entry}/ns/net", own.st_dev)
            if inode is not None:
                pids[inode] = pids.get(inode, 0) + 1
                paths.setdefault(inode, f"{proc_root}/{entry}/ns/net")
    # A mounted path outlives a process: prefer it for entering.
    for path in [*_mounted(proc_root), *_named(netns_root)]:
        inode = _inode(path, own.st_dev)
        if inode is not None:
            paths[inode] = path
    found = [Namespace(path, inode, pids.get(inode, 0)) for inode, path in paths.items() if inode != own.st_ino]
    return sorted(found, key=lambda namespace: (namespace.pids == 0, namespace.path))


def _inode(path: str, device: int) -> int | None:
    try:
        status = os.stat(path)  # noqa: PTH116
    except PermissionError as exc:
        raise CollectionError(
            f"{path}: not allowed to see which network namespace it is, so a VF that is not on the host cannot be "
            "found. Run this as root (become: true)."
        ) from exc
    except OSError:  # the process has ended
        return None
    # A file below /run/netns that is not a mount is left over from a removed namespace or a reboot.
    return status.st_ino if status.st_dev == device else None


def _named(netns_root: str) -> list[str]:
    try:
        return [f"{netns_root}/{name}" for name in sorted(os.listdir(netns_root))]  # noqa: PTH208
    except OSError:
        return []


def _mounted(proc_root: str) -> list[str]:
    try:
        with open(f"{proc_root}/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
            lines = [line.split() for line in file]
    except OSError:
        return []
    return [
        re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
        for fields in lines
        if len(fields) > 4 and fields[3].startswith("net:[")
    ]


def entering(run: Run, seconds: float = 30.0) -> Enter:
    """Make an Enter for this machine: it calls a reader in a child inside a namespace, with that namespace's sysfs.

    run: how the reader runs commands. seconds: the child's time limit. The Enter raises CollectionError if the namespace
    cannot be entered or read.
    """

    def enter(path: str, reader: Reader) -> t.Any:
        receive, send = os.pipe()
        child = os.fork()
        if child == 0:
            answer: dict[str, t.Any] = {"error": "the reader ended unexpectedly"}
            try:
                os.close(receive)
                _go_into(path)
                answer = {"value": reader(Sysfs("/sys"), run, "/proc")}
            except (CollectionError, OSError, ImportError, AttributeError) as exc:
                answer = {"error": str(exc)}
            finally:
                # Never return into the caller's code: this process is a copy.
                with contextlib.suppress(BaseException), os.fdopen(send, "w") as pipe:
                    json.dump(answer, pipe)
                os._exit(0)
        os.close(send)
        try:
            text = _read_all(receive, seconds)
        finally:
            os.close(receive)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        try:
            reply = json.loads(text)
        except ValueError:
            reply = {"error": f"no complete answer within {seconds:g} s"}
        if "error" in reply:
            raise CollectionError(f"network namespace {path} cannot be read: {reply['error']}.")
        return reply["value"]

    return enter


def _read_all(descriptor: int, seconds: float) -> bytes:
    data, deadline = b"", time.monotonic() + seconds
    while select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
        chunk = os.read(descriptor, 65536)
        if not chunk:
            break
        data += chunk
    return data


def _go_into(path: str) -> None:
    import ctypes  # os.setns and os.unshare came with Python 3.12, mount never did

    libc = ctypes.CDLL(None, use_errno=True)

    def call(what: str, *arguments: t.Any) -> None:
        if getattr(libc, what)(*arguments) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{what}: {os.strerror(number)}")

    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    call("setns", descriptor, _CLONE_NEWNET)
    os.close(descriptor)
    # /sys/class shows the devices of the namespace in which it was mounted: this needs a mount of its own.
    call("unshare", _CLONE_NEWNS)
    call("mount", b"none", b"/", None, ctypes.c_ulong(_MS_PRIVATE_ALL), None)
    call("mount", b"sysfs", b"/sys", b"sysfs", ctypes.c_ulong(_MS_READ_ONLY), None)
