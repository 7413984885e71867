# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install K3s on a node, all or nothing: a change that does not come up is rolled back.

All in one module execution: a node whose connection breaks meanwhile rolls back by itself, whereas Ansible runs no `rescue` for an
unreachable host. The next run uses what a killed one has saved.
"""

from __future__ import annotations

import json
import pathlib
import secrets
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils import node_files
from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import Run
from ansible_collections.dgxspark.cluster.plugins.module_utils.k3s import layout, machine, remove
from ansible_collections.dgxspark.cluster.plugins.module_utils.k3s.machine import Installed
from ansible_collections.dgxspark.cluster.plugins.module_utils.k3s.service import Service, Sign
from ansible_collections.dgxspark.cluster.plugins.module_utils.node_files import NodeFile, Undo
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Change, CollectionError

_SQLITE = "server/db/state.db"


@dataclass(frozen=True, slots=True)
class InstallSpec:
    """The wanted K3s installation of a node.

    file: the binary's name in the release, such as k3s-arm64; it and `images` (or None) are in the staging folder if they are
    new. sha256: of the binary; None takes it from `sums`, the release's checksum file in that folder, which always verifies
    images. token: of the cluster, for a node that joins: a server's or the agents'; None creates one on a first server, and
    keeps what a node has. agent_token: for a server that joins: the one that agents join with. timeout: seconds.
    """

    role: layout.Role
    version: str
    file: str
    config: str
    data: str = layout.DATA
    sha256: str | None = None
    sums: str | None = None
    images: str | None = None
    registries: str | None = None
    token: str | None = None
    agent_token: str | None = None
    first: bool = False
    cdi: bool = False
    timeout: float = 600.0

    @property
    def files(self) -> list[NodeFile]:
        """The files, except the tokens."""
        found = [NodeFile(layout.CONFIG, self.config, 0o600)]
        found += [NodeFile(path, text) for path, text in layout.fixed(self.role).items()]
        if self.registries is not None:
            found.append(NodeFile(layout.REGISTRIES, self.registries, 0o600, secret=True))
        return found

    @property
    def images_path(self) -> str | None:
        """Where K3s looks for images to import at its start."""
        return f"{self.data}/agent/images/{self.images}" if self.images else None


def changes(wanted: InstallSpec, installed: Installed) -> list[Change]:
    """Return how a node differs from its plan."""
    found = []
    if installed.version != wanted.version:
        found.append(Change("k3s", "version", installed.version, wanted.version))
    elif wanted.sha256 and installed.sha256 != wanted.sha256:
        found.append(Change(layout.BINARY, "sha256", installed.sha256, wanted.sha256))
    found += [change for file in wanted.files if (change := node_files.difference(file))]
    if wanted.registries is None and node_files.read(layout.REGISTRIES):
        found.append(Change(layout.REGISTRIES, "file", node_files.SECRET, None))
    for path, text in _tokens(wanted).items():
        there = machine.same_secret(path, None)
        if there:
            found.append(Change(path, "file", None, node_files.SECRET))
        elif text is not None and node_files.difference(_token_file(text, path)):
            found.append(Change(path, "file", node_files.SECRET, node_files.SECRET + " (the cluster's)"))
    if wanted.images_path and installed.images != wanted.version:
        found.append(Change(wanted.images_path, "images", installed.images, wanted.version))
    if wanted.cdi:
        found.append(Change(layout.CDI, "file", None, "made by nvidia-ctk for the running driver"))
    if installed.enabled != "enabled":
        found.append(Change(layout.UNITS[wanted.role], "unit", installed.enabled, "enabled"))
    if installed.active != "active":
        found.append(Change(layout.UNITS[wanted.role], "state", installed.active, "active"))
    return found


def _tokens(wanted: InstallSpec) -> dict[str, str | None]:
    """Return the token files of a node with their wanted contents; None leaves the content to the node."""
    own = {layout.TOKEN: wanted.token}
    return own | {layout.AGENT_TOKEN: wanted.agent_token} if wanted.role == "server" else own


def _record(record: t.Mapping[str, t.Any]) -> None:
    node_files.write(layout.RECORD, (json.dumps(record, indent=1, sort_keys=True) + "\n").encode(), 0o644)


class Installation:
    """Takes a node from the installed to the wanted state."""

    def __init__(self, run: Run, wanted: InstallSpec, installed: Installed, service: Service | None = None) -> None:
        self.run, self.wanted, self.installed = run, wanted, installed
        self.service = service or Service(run, layout.UNITS[wanted.role])
        self.undo = Undo(layout.BEFORE)
        self.new_binary = installed.version != wanted.version or bool(
            wanted.sha256 and installed.sha256 != wanted.sha256
        )

    def apply(self, found: t.Sequence[Change], signs: t.Sequence[Sign]) -> None:
        """Apply the changes. A CollectionError, with its cause, leaves the node in its previous state."""
        try:
            self._check_token()
            binary = self._check_binary() if self.new_binary else None
            images = self._check_images() if self._new_images(found) else None
        except CollectionError:
            self._clear_staging()
            raise
        kept = [f.path for f in self.wanted.files] + [
            layout.TOKEN,
            layout.AGENT_TOKEN,
            layout.REGISTRIES,
            layout.BINARY,
            layout.RECORD,
        ]
        kept += [self.wanted.images_path] if images and self.wanted.images_path else []
        # A running K3s is a state to go back to; a stopped one may be left by a killed run, whose saved state then counts.
        if self.installed.active == "active" or not self.undo.resume():
            self.undo.forget()
            before = self.installed
            self.undo.notes = {"version": before.version, "active": before.active, "data": before.data}
        try:
            for path in kept:
                self.undo.keep(path)
            if binary:
                self._keep_database()
            self._lay(binary, images)
            self.service.systemctl("daemon-reload")
            self.service.systemctl("enable", self.service.name)
            trouble = self.service.start(self.wanted.timeout, signs)
            if trouble:
                raise CollectionError(str(trouble))
        except CollectionError as exc:
            raise CollectionError(f"K3s {self.wanted.version}: {exc} {self._go_back()}") from exc
        self.undo.forget()
        node_files.remove(layout.STAGING)

    def _clear_staging(self) -> None:
        """Delete what was downloaded; on a node that has no installation of ours, also our folder."""
        node_files.remove(layout.STAGING)
        if self.installed.ours is None:
            remove.forget()

    def _new_images(self, found: t.Sequence[Change]) -> bool:
        return any(change.what == "images" for change in found)

    def _staged(self, name: str | None) -> pathlib.Path:
        path = pathlib.Path(layout.STAGING, name or "")
        if not name or not path.is_file():
            raise CollectionError(
                f"{name} of K3s {self.wanted.version} did not reach the node ({path} is not there). "
                "Run the role's fetch step too (tag k3s_apply)."
            )
        return path

    def _check_token(self) -> None:
        """Refuse the servers' token to an agent: whoever has it can become a server, and read every Secret."""
        if self.wanted.role == "agent" and "::server:" in (self.wanted.token or ""):
            raise CollectionError(
                "the join token is the servers' own token, which no agent may have. Nothing was changed. Run the role for the "
                "first server, too: it makes one for agents there."
            )

    def _check_binary(self) -> pathlib.Path:
        """Return the verified staged binary. Raises CollectionError if it is the wrong one."""
        path = self._staged(self.wanted.file)
        expected = self.wanted.sha256 or _listed(self._staged(self.wanted.sums), self.wanted.file)
        seen = node_files.digest(str(path))
        if seen != expected:
            raise CollectionError(
                f"{self.wanted.file} of K3s {self.wanted.version} is corrupted: its SHA-256 is {seen}, but it must be "
                f"{expected}. Nothing was changed. Download the file again from k3s_source (a mirror may have a broken copy)."
            )
        path.chmod(0o755)
        said = machine.binary_version(self.run, str(path))
        if said != self.wanted.version:
            raise CollectionError(
                f"{self.wanted.file} says that it is {said or 'nothing that runs here'}, not {self.wanted.version}. "
                "Nothing was changed. Check k3s_source and k3s_checksums: release and architecture must be the node's."
            )
        return path

    def _check_images(self) -> pathlib.Path:
        """Return the staged archive, verified against the release's list: K3s runs its contents without a check."""
        archive, sums = self._staged(self.wanted.images), self._staged(self.wanted.sums)
        named, known = _listed(sums, self.wanted.file), self.wanted.sha256
        if known and named != known:
            raise CollectionError(
                f"{sums.name} is not the list of K3s {self.wanted.version}: for {self.wanted.file} it has {named}, but it must "
                f"be {known}. Nothing was changed. Download the list again from k3s_source, or check k3s_checksums."
            )
        expected, seen = _listed(sums, archive.name), node_files.digest(str(archive))
        if seen != expected:
            raise CollectionError(
                f"{archive.name} of K3s {self.wanted.version} is corrupted: its SHA-256 is {seen}, but the release's list says "
                f"{expected}. Nothing was changed. Download the file again from k3s_source (a mirror may have a broken copy)."
            )
        return archive

    def _keep_database(self) -> None:
        """Save the data store of a single server: an older release may not be able to read what a newer one writes.

        A member of etcd must not be rolled back on its own: its data stays, and only the binary goes back.
        """
        data = pathlib.Path(self.wanted.data)
        if (data / _SQLITE).is_file() and not (data / "server/db/etcd").exists():
            self.service.systemctl("stop", self.service.name)
            self.undo.keep(str(data / "server/db"))

    def _lay(self, binary: pathlib.Path | None, images: pathlib.Path | None) -> None:
        if images and self.wanted.images_path:
            target = pathlib.Path(self.wanted.images_path)
            for old in target.parent.glob("k3s-airgap-images-*"):
                self.undo.keep(str(old))
                node_files.remove(str(old))
            _move(images, target, 0o644)
        for file in self.wanted.files:
            node_files.write(file.path, file.content.encode(), file.mode)
        if self.wanted.registries is None:
            node_files.remove(layout.REGISTRIES)
        pathlib.Path(layout.ETC).chmod(0o755)
        for path, text in _tokens(self.wanted).items():
            token = self._token(path, text)
            node_files.write(path, token.content.encode(), token.mode)
        if self.wanted.cdi:
            self._make_cdi()
        record = {
            "version": self.wanted.version,
            "role": self.wanted.role,
            "data": self.wanted.data,
            "sha256": node_files.digest(str(binary or layout.BINARY)),
            "images": self.wanted.version if self.wanted.images else None,
            "cdi": self.wanted.cdi or bool((self.installed.ours or {}).get("cdi")),
        }
        # Before the binary, too: one without a record counts as someone else's, and a run may be killed anywhere.
        if binary:
            _record(record)
            _move(binary, pathlib.Path(layout.BINARY), 0o755)
        _record(record | {"stamp": machine.binary_stamp()})

    def _token(self, path: str, text: str | None) -> NodeFile:
        """Return a token's file: the cluster's for a node that joins, else the existing one, else a new one."""
        if text is not None:
            return _token_file(text, path)
        there = node_files.read(path)
        if there is None and path == layout.TOKEN:
            there = node_files.read(f"{self.wanted.data}/server/token")
        if there:
            return _token_file(there[0].decode(), path)
        if not self.wanted.first:
            raise CollectionError(
                "the server's token is missing. Make the server reachable, so that it can be read there."
            )
        return _token_file(secrets.token_hex(32), path)

    def _make_cdi(self) -> None:
        self.undo.keep(layout.CDI)
        pathlib.Path(layout.CDI).parent.mkdir(parents=True, exist_ok=True)
        rc, _out, err = self.run([layout.TOOLKIT, "cdi", "generate", f"--output={layout.CDI}"])
        if rc:
            raise CollectionError(
                f"nvidia-ctk did not create a CDI specification: {err.strip()[:300]} Look at nvidia-smi first."
            )

    def _go_back(self) -> str:
        """Restore the previous state; return a message about it."""
        before = self.undo.notes
        if before["version"] is None:
            remove.remove(self.run, self.wanted.data, roles=[self.wanted.role], keep_data=before["data"])
            self.undo.restore()
            remove.forget()
            return "Everything that was installed has been removed: the node is in its previous state."
        self.run(["systemctl", "stop", self.service.name])
        self.undo.restore()
        node_files.remove(layout.STAGING)
        self.service.systemctl("daemon-reload")
        if before["active"] != "active":
            return "The previous installation has been restored."
        again = self.service.start(self.wanted.timeout, [])
        if again:
            return f"{before['version']} has been restored, but does not start either: {again}"
        return f"The node is back on {before['version']}, which is running."


def _token_file(text: str, path: str) -> NodeFile:
    return NodeFile(path, text.strip() + "\n", 0o600, secret=True)


def _move(source: pathlib.Path, target: pathlib.Path, mode: int) -> None:
    """Move a large file into place atomically, across file systems too."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.dgxspark")
        with source.open("rb") as old, beside.open("wb") as new:
            while block := old.read(1 << 20):
                new.write(block)
        beside.chmod(mode)
        beside.replace(target)
    except OSError as exc:
        node_files.remove(str(target.with_name(f".{target.name}.dgxspark")))
        raise node_files.cannot_write(str(target), exc) from exc
    source.unlink()


def _listed(sums: pathlib.Path, name: str) -> str:
    """Return a file's digest from a release's list (`digest  name` on each line)."""
    for line in sums.read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split()
        if len(words) == 2 and words[1].lstrip("*") == name and len(words[0]) == 64:
            return words[0].lower()
    raise CollectionError(
        f"{sums.name} does not list {name}: it is not the release's list. Check k3s_source, or give a binary's SHA-256 in "
        "k3s_checksums."
    )
