# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The owner's inventory folder: what it has, what would change, and writing it."""

from __future__ import annotations

import difflib
import pathlib
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils import node_files
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, text_diff
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.discover.inventory import HOSTS

PAGE = "discovered.html"
CONFIG = "ansible.cfg"
CONFIG_TEXT = """# Written by dgxspark.cluster.discover. Yours to change.
[defaults]
inventory = inventory
# Prints the answer, what changed, and each error once; with -v, or without this line, what Ansible prints.
stdout_callback = dgxspark.cluster.answer
localhost_warning = False
# Some steps run on all Sparks at the same time.
forks = 64
# What you know (profiles, rules, measured rows) is beside the hosts, and is no inventory.
inventory_ignore_patterns = ^dgxspark$
"""
# Endings of the files that Ansible reads in an inventory folder.
_READ = ("", ".yml", ".yaml", ".json", ".ini", ".toml", ".py", ".sh")


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that differs from what would be written; before is None if it does not exist."""

    path: str
    before: str | None
    after: str

    def diff(self) -> dict[str, str]:
        """Return the change in Ansible's diff format."""
        return text_diff(self.path, self.before or "", self.after)

    def unified(self) -> list[str]:
        """Return a unified diff from the existing text to the new one."""
        there, new = (self.before or "").splitlines(), self.after.splitlines()
        return list(
            difflib.unified_diff(there, new, f"{self.path} (there)", f"{self.path} (discovered)", lineterm="", n=1)
        )


def changes(folder: pathlib.Path, files: t.Mapping[str, str]) -> list[FileChange]:
    """Return what writing the files would change. Raises CollectionError for unreadable or conflicting files."""
    if folder.exists() and not folder.is_dir():
        raise CollectionError(f"{folder}: it exists, but is not a folder. Name another one in dgxspark_discover_to.")
    inventory = (folder / HOSTS).parent
    for path in sorted(inventory.iterdir()) if inventory.is_dir() else ():
        if path.is_file() and path != folder / HOSTS and path.suffix in _READ and not path.name.endswith("~"):
            raise CollectionError(
                f"{path}: Ansible would read it in addition to the discovered hosts.yml, and hosts would be defined twice. Move it away, or "
                "name another folder in dgxspark_discover_to."
            )
    found = []
    for name, text in files.items():
        path = folder / name
        try:
            before = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            before = None
        except (OSError, UnicodeDecodeError) as exc:
            raise CollectionError(
                f"{path}: it cannot be read: {exc}. Name another folder in dgxspark_discover_to."
            ) from exc
        if before is None or knowledge.without_editors(before) != knowledge.without_editors(text):
            found.append(FileChange(str(path), before, text))
    return found


def write(files: t.Iterable[tuple[str, str]]) -> None:
    """Write files atomically, creating their folders. Raises CollectionError if that fails."""
    for path, text in files:
        node_files.write(path, text.encode(), 0o644)
