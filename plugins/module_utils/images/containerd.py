# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's containerd, by its own command ctr: K3s's (`k3s ctr`, its own socket, namespace k8s.io), or the system's.

What this relies on was read in ctr's source (1.6 to 2.3) and tried with 1.6. Since 1.7 ctr can leave work to the daemon's
transfer service, which writes its progress into an export on stdout, and does not resolve names where ctr does: `--local`
keeps the older way, where ctr has it.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import platform as machine
import re
import shutil
import subprocess
import tempfile
import termios
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.images import layout
from ansible_collections.dgxspark.cluster.plugins.module_utils.images.layout import Listing
from ansible_collections.dgxspark.cluster.plugins.module_utils.parcels import parcel as parcels
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import FabricError

KUBERNETES, OWN = "k8s.io", "dgxspark"  # namespaces of containerd: the kubelet's, and one to look into registries
LABEL = "dgxspark.cluster/for"  # marks an image as put there by us, and says what it was asked for as
FORMER = "dgxspark.cluster/was-for"  # the same, of a tag that stands for another digest now
_K3S = ("/usr/local/bin/k3s", "/var/lib/rancher/k3s/agent")
_ROW = re.compile(r"^(\S+)\s+\S+\s+(sha256:[0-9a-f]{64})\s+(\w+)\b.*\s(true|false)\s*$")
_ACTIVE = re.compile(r"(sha256:[0-9a-f]{64})\s+([0-9.]+)\s*([kKMGT]?)i?B")
_UNITS = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_LINE = 4000  # what a terminal takes as one line
# Numbers stand alone: a digest, of which 4 in 100 have "401" or "403" in them, or a name is no status.
_CAUSES = (
    ("failed to dial", "containerd does not answer. See that K3s (or containerd) runs on this node."),
    (
        r"(?:^|[\s=])40[13]\b|authorization failed|access denied|insufficient_scope|no basic auth|unauthorized",
        "The registry wants somebody known, or shows this repository to nobody else. Set k8s_dgx_image_user and "
        "k8s_dgx_image_password to who may pull it.",
    ),
    (
        r"(?:^|[\s=])429\b|toomanyrequests",
        "The registry asks for patience (429). Run again later, or log in (k8s_dgx_image_user).",
    ),
    ("no space left", "The disk is full. Free room on it and run again."),
    ("no match for platform", "The image is not built for these nodes."),
    (
        "dial tcp|lookup|timeout|connection refused|connection reset|unreachable|EOF|tls:|x509",
        "The registry cannot be reached from this node. See to its network, proxy and mirrors (k3s_registries), or give the "
        "image as an archive (k8s_dgx_image_archive).",
    ),
    (r": not found|(?:^|[\s=])404\b", "There is no such image. See to its name, tag or digest (k8s_dgx_image)."),
)


# What modules take of all that: see plugins/doc_fragments/images.py.
ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "reference": {"type": "str", "required": True},
    "stage_dir": {"type": "path", "default": "/var/lib/dgxspark/cache/images"},
    "containerd": {
        "type": "dict",
        "default": {},
        "options": {
            **{name: {"type": "path"} for name in ("ctr", "address", "root", "hosts_dir")},
            "snapshotter": {"type": "str"},
        },
    },
}


@dataclass(frozen=True, slots=True)
class Row:
    """A name that containerd keeps. ready: all of it is there and unpacked."""

    name: str
    digest: str
    ready: bool


@dataclass(frozen=True, slots=True)
class Login:
    """Who pulls. Neither argv nor environment nor a file ever has the password."""

    user: str
    password: str


@dataclass(frozen=True)
class Containerd:
    """How to speak to it. command: ctr's argv. root: where it keeps what it has. hosts_dir: of registries' mirrors."""

    command: tuple[str, ...]
    root: str
    hosts_dir: str | None = None
    snapshotter: str | None = None

    @property
    def platform(self) -> str:
        """Return what this node runs, as images name it."""
        name = machine.machine()
        return "linux/" + {"aarch64": "arm64", "x86_64": "amd64"}.get(name, name)

    def rows(self, *filters: str) -> list[Row]:
        """Return names that fit one of containerd's filters."""
        said = self.run(["images", "check", *self._snapshotter, *filters])
        return [
            Row(found[1], found[2], found[3] == "complete" and found[4] == "true")
            for found in map(_ROW.match, said.splitlines())
            if found
        ]

    def names(self, *filters: str) -> list[str]:
        """Return names alone, without a look at what they stand for."""
        return self.run(["images", "ls", "-q", *filters]).split()

    def running(self) -> set[str]:
        """Return the images of containers that run."""
        tasks = {
            line.split()[0] for line in self.run(["tasks", "ls"]).splitlines() if line.rstrip().endswith("RUNNING")
        }
        rows = [line.split() for line in self.run(["containers", "ls"]).splitlines()]
        return {row[1] for row in rows if len(row) > 1 and row[0] in tasks}

    def listing(self, digest: str, namespace: str = KUBERNETES) -> Listing:
        """Return what this node needs of an image whose manifests are there."""
        return layout.listing(lambda each: self._bytes(each, namespace), digest, self.platform)

    def _bytes(self, digest: str, namespace: str) -> bytes:
        return self._said(["content", "get", digest], namespace)

    def asked(self, name: str, login: Login | None) -> Listing:
        """Ask the registry what an image is. Its manifests alone come, into a namespace that no kubelet looks at, and go again."""
        try:
            self.run(["content", "fetch", "--metadata-only", *self._hosts, name], OWN, login)
            row = next(iter(self.run(["images", "ls", f"name=={name}"], OWN).splitlines()[1:]), "")
            digest = re.search(r"sha256:[0-9a-f]{64}(?=\s+[0-9.]+ )", row)
            if not digest:
                raise FabricError(f"{name}: ctr does not say which digest it is. Name one in k8s_dgx_image.")
            return self.listing(digest[0], OWN)
        finally:
            with contextlib.suppress(FabricError):
                self.run(["images", "rm", "--sync", name], OWN)
                self.run(["namespaces", "rm", OWN], OWN)

    def pull(self, name: str, label: str, login: Login | None) -> None:
        """Have an image from its registry, unpacked."""
        wanted = ["--platform", self.platform, "--label", f"{LABEL}={label}", *self._hosts, *self._snapshotter]
        self.run(["images", "pull", *self._local("pull"), *wanted, name], login=login)

    def arrived(self, made: Listing) -> int:
        """Return how many bytes of an image are there, those that are on their way included."""
        there = set(self.run(["content", "ls", "-q"]).split())
        coming = {
            found[0]: float(found[1]) * _UNITS[found[2]] for found in _ACTIVE.findall(self.run(["content", "active"]))
        }
        return sum(blob.size if blob.digest in there else int(coming.get(blob.digest, 0)) for blob in made.blobs)

    def tag(self, old: str, new: str, label: str) -> None:
        """Keep an image under one more name, which is ours."""
        self.run(["images", "tag", old, new])
        self.label(new, label)

    def label(self, name: str, label: str) -> None:
        """Mark a name as ours."""
        self.run(["images", "label", name, f"{LABEL}={label}"])

    def retire(self, name: str, label: str) -> None:
        """Mark a name as ours, but no more as what was asked for."""
        self.run(["images", "label", name, f"{LABEL}=", f"{FORMER}={label}"])

    def remove(self, names: t.Sequence[str]) -> None:
        """Let go of names; what no other name needs goes with them."""
        self.run(["images", "rm", "--sync", *names])

    def export(self, name: str, goal: parcels.Parcel, told: parcels.Told) -> None:
        """Lay an image out in a folder."""
        argv = ["images", "export", *self._local("export"), "--platform", self.platform, "-", name]
        with self._started(argv, stdout=subprocess.PIPE) as process:
            layout.unpack(goal, f"what ctr exports of {name}", t.cast(t.IO[bytes], process.stdout), told)
            while t.cast(t.IO[bytes], process.stdout).read(parcels.CHUNK):
                pass  # the tar's padding: a writer that cannot write would fail

    def load(self, goal: parcels.Parcel, told: parcels.Told) -> None:
        """Import a folder's image, and unpack it. containerd compares every blob with its digest."""
        argv = ["images", "import", *self._local("import"), "--platform", self.platform, *self._snapshotter, "-"]
        with self._started(argv, stdin=subprocess.PIPE) as process:
            out = t.cast(t.IO[bytes], process.stdin)
            with contextlib.suppress(BrokenPipeError):  # its own error says more
                layout.pack(goal, out, told)
            with contextlib.suppress(BrokenPipeError):
                out.close()

    @property
    def _hosts(self) -> list[str]:
        return ["--hosts-dir", self.hosts_dir] if self.hosts_dir else []

    @property
    def _snapshotter(self) -> list[str]:
        return ["--snapshotter", self.snapshotter] if self.snapshotter else []

    def _local(self, verb: str) -> tuple[str, ...]:
        return ("--local",) if "--local" in self.run(["images", verb, "--help"]) else ()

    def run(self, argv: t.Sequence[str], namespace: str = KUBERNETES, login: Login | None = None) -> str:
        """Run ctr; return what it printed. FabricError names the cause and what to do."""
        return self._said(argv, namespace, login).decode("utf-8", "replace")

    def _said(self, argv: t.Sequence[str], namespace: str, login: Login | None = None) -> bytes:
        with contextlib.ExitStack() as stack:
            user = [*argv[:2], "--user", login.user, *argv[2:]] if login else argv
            given = stack.enter_context(_prompted(login)) if login else subprocess.DEVNULL
            with tempfile.TemporaryFile() as out:
                with self._started(user, namespace, stdin=given, stdout=out):
                    pass
                out.seek(0)
                return out.read()

    @contextlib.contextmanager
    def _started(
        self, argv: t.Sequence[str], namespace: str = KUBERNETES, **streams: t.Any
    ) -> t.Iterator[subprocess.Popen[bytes]]:
        """Give a started ctr, and wait for its end."""
        command = [*self.command, "--namespace", namespace, *argv]
        with tempfile.TemporaryFile() as errors:
            streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, **streams}
            try:
                process = subprocess.Popen(command, stderr=errors, **streams)  # pylint: disable=ansible-bad-function
            except OSError as exc:
                raise FabricError(f"{command[0]}: {exc.strerror}. Name ctr, or k3s, in k8s_dgx_containerd.") from exc
            try:
                yield process
            except BaseException:
                process.kill()
                process.wait()
                raise
            status = process.wait()
            errors.seek(0)
            said = errors.read().decode("utf-8", "replace")
        if status:
            raise _failed(argv, status, said)


def _failed(argv: t.Sequence[str], status: int, said: str) -> FabricError:
    last = next((line for line in reversed(said.splitlines()) if line.strip()), "it said nothing").removeprefix("ctr: ")
    remedy = next((remedy for pattern, remedy in _CAUSES if re.search(pattern, last)), "")
    return FabricError(
        f"{argv[-1]}: {remedy} (ctr {' '.join(argv[:2])}, status {status}: {last[-400:]})".replace(":  (", ": (")
    )


@contextlib.contextmanager
def _prompted(login: Login) -> t.Iterator[int]:
    """Give a terminal at which the password waits: ctr asks there for what its argv does not have."""
    if not login.password.isprintable() or not 0 < len(login.password.encode()) < _LINE or ":" in login.user:
        raise FabricError(
            f"k8s_dgx_image_password: it is empty, longer than {_LINE} bytes or has control characters, or k8s_dgx_image_user has "
            "a colon: neither can be given to ctr."
        )
    outer, inner = os.openpty()
    try:
        modes = termios.tcgetattr(inner)
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(inner, termios.TCSANOW, modes)
        os.write(outer, login.password.encode() + b"\n")
        yield inner
    finally:
        os.close(inner)
        os.close(outer)


def find(
    ctr: str | None = None,
    address: str | None = None,
    root: str | None = None,
    hosts_dir: str | None = None,
    snapshotter: str | None = None,
) -> Containerd:
    """Return this node's containerd: what is named, else K3s's, else the system's. FabricError where there is none."""
    program, agent = _K3S
    ctr = ctr or (program if pathlib.Path(program).exists() else shutil.which("ctr"))
    if not ctr or not pathlib.Path(ctr).exists():
        raise FabricError(
            f"There is no {ctr or 'K3s and no ctr'} on this node, so its containerd cannot be asked for images. Name ctr (or k3s) and "
            "the socket in k8s_dgx_containerd, or say k8s_dgx_image_state=unmanaged: each node then pulls for itself."
        )
    k3s = pathlib.Path(ctr).name == "k3s"
    hosts_dir = hosts_dir or (f"{agent}/etc/containerd/certs.d" if k3s else "/etc/containerd/certs.d")
    return Containerd(
        command=(ctr, *(["ctr"] if k3s else []), *(["--address", address] if address else [])),
        root=root or (f"{agent}/containerd" if k3s else "/var/lib/containerd"),
        hosts_dir=hosts_dir if pathlib.Path(hosts_dir).is_dir() else None,
        snapshotter=snapshotter,
    )
