# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Create a plan's VFs, and remove them again. The changes are decided beforehand (vfs.py).

The order lets the next run complete an interrupted one: first the previous state is recorded, then the files that a reboot
restores from are written, then the functions are changed. Removal goes in reverse, the record last.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils import foreign, node_files
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import persist, record, sysctl_files, vfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.turn import LOCKS, WAIT, Turn, Waiting
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.fabric import restore
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.files import temporary
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.locks import Held, lock
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    Change,
    CollectionError,
    Node,
    PlannedFunction,
    Vf,
)

_OWN_FOLDERS = ("/etc/dgxspark", "/usr/local/lib/dgxspark", "/var/lib/dgxspark")


class Sriov:
    """A node's functions, and the files that preserve them. `root` is prepended to the paths of these files."""

    def __init__(self, host: restore.KernelHost, root: str = "", netns_root: str = "/run/netns") -> None:
        self.host = host
        self.root = root
        self.netns_root = netns_root
        self.notes: list[str] = []  # what the owner should know, beside the changes

    # --- one run at a time ------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def alone(self, turn: Turn, other: str | None = None) -> t.Iterator[None]:
        """Keep other runs off this node's VFs, from the survey to the end. Raises Waiting if another run goes on.

        A decision based on a survey from before another run's change would undo that run, or half of it.
        other: the run that was waited for so far.
        """
        turn.enter()
        path = pathlib.Path(self.root + LOCKS[0])
        with contextlib.ExitStack() as held:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                before = held.enter_context(lock(str(path), turn.by, WAIT, self.host.clock, self.host.sleep))
            except Held as exc:
                raise Waiting(exc.who) from None
            except OSError as exc:
                raise node_files.cannot_write(str(path), exc) from exc
            held.callback(path.unlink, missing_ok=True)
            if other := before or other:
                self.notes.append(
                    f"Another run was changing this node's VFs: {other}. This run waited for it to finish, and read the node again. "
                    "Run one at a time: the last run's inventory now applies."
                )
            yield

    # --- the previous state -----------------------------------------------------------------------------------------

    def journal(self, node: Node) -> vfs.Document | None:
        """Return the document of the state before the first change; None if there was none.

        If only the record is lost, the installed document says which functions are ours.
        """
        noted = self._read(persist.JOURNAL)
        if noted is not None or not (ours := self._read(persist.CONFIG)):
            return noted
        self.notes += [str(finding) for finding in record.finding(record.MISSING)]
        return {"version": 1, "functions": [vfs.assumed(node, entry, self._arp()) for entry in ours["functions"]]}

    def _read(self, path: str) -> vfs.Document | None:
        try:
            found = record.read(path, self.root)
        except (OSError, ValueError) as exc:
            if path == persist.JOURNAL:
                vfs.refuse(record.finding(str(exc)))
            raise CollectionError(f"{path} cannot be read: {exc}. Move it away, and run again.") from exc
        return None if found is None else dict(found)

    def _arp(self) -> dict[str, int]:
        """Return the sysctls' defaults on this node."""
        found = {key: self.host.read(self.host.sysctl("default", key)) for key in vfs.ARP}
        return {key: int(value) for key, value in found.items() if value and value.isdecimal()}

    def _note(self, node: Node, document: vfs.Document) -> None:
        noted = self._noted()
        known = {entry["pci"] for entry in noted}
        ours = {entry["pci"] for entry in document["functions"] if vfs.has_ours(node, entry)}
        with contextlib.suppress(CollectionError):  # a damaged one is written again
            ours |= {entry["pci"] for entry in (self._read(persist.CONFIG) or {"functions": []})["functions"]}
        new = [
            vfs.assumed(node, entry, self._arp()) if entry["pci"] in ours else entry
            for entry in vfs.before(node, document)["functions"]
            if entry["pci"] not in known
        ]
        if new:
            self._write_notes(noted + new)

    def _forget(self, gone: vfs.Document) -> None:
        """Remove functions from the record that are back in their previous state."""
        noted = self._noted()
        names = {entry["pci"] for entry in gone["functions"]}
        kept = [entry for entry in noted if entry["pci"] not in names]
        if len(kept) < len(noted):
            self._write_notes(kept)

    def _noted(self) -> list[t.Any]:
        return list((self._read(persist.JOURNAL) or {"functions": []})["functions"])

    def _write_notes(self, functions: list[t.Any]) -> None:
        text = json.dumps({"version": 1, "functions": functions}, indent=1, sort_keys=True)
        self._write(persist.JOURNAL, f"{text}\n".encode(), "0600")

    # --- files and units ----------------------------------------------------------------------------------------------

    def _write(self, path: str, content: bytes, mode: str) -> None:
        node_files.write(self.root + path, content, int(mode, 8))

    def _command(self, *argv: str) -> None:
        code, _out, err = self.host.command(argv)
        if code:
            raise CollectionError(f"`{' '.join(argv)}` failed: {' '.join(err.split()) or f'exit status {code}'}.")

    def _install(self, files: persist.Files, changes: t.Sequence[Change]) -> None:
        changed = {change.subject for change in changes if change.what in ("file", "mode", "unit")}
        for path in changed & set(files):
            self._write(path, *files[path])
        if persist.UNIT in changed:
            self._command("systemctl", "enable", persist.UNIT)  # this also makes systemd reload its files
        elif changed & {persist.UNIT_PATH, persist.RETURN_UNIT_PATH}:
            self._command("systemctl", "daemon-reload")
        if persist.RULE in changed:
            self._command("udevadm", "control", "--reload")

    def _uninstall(self) -> None:
        if pathlib.Path(self.root + persist.UNIT_PATH).exists():
            self._command("systemctl", "disable", "--now", persist.UNIT)
        for path in persist.PATHS:
            node_files.remove(self.root + path)
        self._command("systemctl", "daemon-reload")
        self._command("udevadm", "control", "--reload")

    def _forgive(self, changes: t.Sequence[Change]) -> None:
        """Let systemd forget failures of our units, now that their work is done."""
        for change in changes:
            if change.what == "state":
                self._command("systemctl", "reset-failed", change.subject)

    # --- VFs in dead namespaces ----------------------------------------------------------------------------------------

    def _free(self, name: str, vf: Vf) -> None:
        path = vf.place.netns
        if path is None or vf.netdev is None:
            raise CollectionError(f"{name} ({vf.pci}): the namespace that it is in cannot be entered. Reboot the node.")
        alive = self._processes(path)
        if alive:
            raise CollectionError(
                f"{name} ({vf.pci}): its namespace {path} is in use again (process {alive[0]}). Nothing was touched; "
                "stop the pod that has the VF, or leave it running."
            )
        # A name that cannot clash on the host: two pods' VFs may both be called net1. Its own name is restored later.
        own = "vf" + vf.pci.replace(":", "").replace(".", "")
        batch = f"link set dev {vf.netdev.name} down\nlink set dev {vf.netdev.name} netns 1 name {own}\n"
        code, _out, err = self.host.command(["nsenter", f"--net={path}", "ip", "-batch", "-"], batch)
        if code:
            raise CollectionError(f"{name} ({vf.pci}) cannot be brought back from {path}: {' '.join(err.split())}.")

    def emptied(self, freed: t.Sequence[tuple[str, Vf]]) -> list[Change]:
        """Return the dead namespaces that hold nothing but these VFs: they go with them."""
        vfs_in: dict[str, set[str]] = {}
        for _name, vf in freed:
            if vf.netdev and vf.place.netns and str(pathlib.Path(vf.place.netns).parent) == self.netns_root:
                vfs_in.setdefault(vf.place.netns, set()).add(vf.netdev.name)
        gone = [netns for netns, names in sorted(vfs_in.items()) if not self._beside(netns, names)]
        return [Change(netns, "network namespace", "without processes", None) for netns in gone]

    def _beside(self, netns: str, vfs_in: t.Container[str] = ()) -> list[str]:
        """Return what a namespace holds beside its own loopback interface and these VFs."""
        _code, out, _err = self.host.command(["nsenter", f"--net={netns}", "ip", "-j", "addr", "show"])
        try:
            links = {str(link["ifname"]): link.get("addr_info", []) for link in foreign.from_json(out)}
        except (ValueError, TypeError, KeyError, AttributeError):
            return ["what `ip` cannot list"]
        own = [str(each.get("local")) for each in links.pop("lo", [])]
        return [
            *(name for name in links if name not in vfs_in),
            *(f"the address {address} on lo" for address in own if address != "::1" and not address.startswith("127.")),
        ]

    def _clean(self, netns: str) -> None:
        """Delete a dead namespace that VFs were freed from, if it is a named one, still dead, and empty."""
        path = pathlib.Path(netns)
        if str(path.parent) != self.netns_root or self._processes(netns):
            return
        if beside := self._beside(netns):
            self.notes.append(
                f"{netns} is kept, because it also holds {', '.join(beside)}. If it is not needed: `ip netns delete {path.name}`."
            )
        else:
            self._command("ip", "netns", "delete", path.name)

    def _processes(self, netns: str) -> list[str]:
        """Return the processes that are now in a network namespace."""
        try:
            inode = pathlib.Path(netns).stat().st_ino
        except OSError:
            return []
        alive = []
        for pid in filter(str.isdigit, self.host.entries(self.host.proc)):
            with contextlib.suppress(OSError):
                if pathlib.Path(f"{self.host.proc}/{pid}/ns/net").stat().st_ino == inode:
                    alive.append(pid)
        return alive

    # --- apply and undo -------------------------------------------------------------------------------------------------

    def present(
        self,
        node: Node,
        planned: t.Sequence[PlannedFunction],
        options: vfs.Options,
        changes: t.Sequence[Change],
        gone: vfs.Document,
    ) -> None:
        """Apply the plan. gone: the previous state of functions that are no longer planned.

        CollectionError names what failed; the next run continues from there.
        """
        document = vfs.desired(node, planned, options)
        # This comes first: newly planned VFs may have the addresses of those being removed.
        self._give_back(node, gone)
        self._note(node, document)
        self._install(persist.managed_files(document, persist.program()), changes)
        self._forget(gone)
        if options.reset_stranded:
            freed = vfs.stranded(node, planned)
            for name, vf in freed:
                self._free(name, vf)
            for netns in sorted({vf.place.netns for _name, vf in freed if vf.place.netns}):
                self._clean(netns)
        self._restore(document)
        self._forgive(changes)
        for key in sorted({change.what for change in changes} & set(vfs.ARP)):
            if places := sysctl_files.setting(key, vfs.ARP[key], self.root):
                self.notes.append(
                    f"{key} was set for the fabric's interfaces, but {' and '.join(places)} sets another value, which "
                    "applies again with every `sysctl --system`. Exclude the fabric's interfaces there."
                )

    def absent(self, node: Node, before: vfs.Document) -> None:
        """Restore the previous state, and leave nothing of ours."""
        self._uninstall()
        self._give_back(node, before)
        self._forgive(persist.removal_changes(node))
        for name in ("busy", "lock", "booted", "names.json"):
            pathlib.Path(self.host.run_dir, name).unlink(missing_ok=True)
        node_files.remove(self.root + persist.JOURNAL)
        self.sweep()

    def _give_back(self, node: Node, before: vfs.Document) -> None:
        """Restore the functions' previous state."""
        if not before["functions"]:
            return
        for entry in before["functions"]:
            function = node.function(entry["pci"])
            macs = {vf["index"]: vf["mac"] for vf in entry["vfs"]}
            if function and function.numvfs and any(vf.admin_mac != macs.get(vf.index) for vf in function.vfs):
                # Recreated VFs get the kernel's own MACs.
                try:
                    self.host.write(self.host.pci(function.pci, "sriov_numvfs"), "0")
                except restore.RestoreError as exc:
                    raise CollectionError(
                        f"{entry['slot']}: {exc}. The previous state is still recorded: run again."
                    ) from exc
        self._restore(before)

    def leftovers(self) -> list[Change]:
        """Return the temporary files that a run killed during a write left beside ours."""
        beside = (temporary(path) for path in (*persist.PATHS, persist.JOURNAL))
        there = [path for path in beside if pathlib.Path(self.root + path).exists()]
        return [Change(path, "left by an interrupted run", "there", None) for path in there]

    def sweep(self) -> None:
        """Remove such leftovers, and our empty folders."""
        for change in self.leftovers():
            node_files.remove(self.root + change.subject)
        for folder in (*(self.root + own for own in _OWN_FOLDERS), self.host.run_dir):
            with contextlib.suppress(OSError):
                pathlib.Path(folder).rmdir()

    def _restore(self, document: vfs.Document) -> None:
        try:
            _done, problems = restore.restore(document, self.host)
        except restore.RestoreError as exc:
            problems = [str(exc)]
        if problems:
            raise CollectionError(f"Not everything could be set: {'; '.join(problems)}. Fix that and run again.")
