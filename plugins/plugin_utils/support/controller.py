# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's part of a support archive: its newest reports, and what is private in its inventory."""

from __future__ import annotations

import getpass
import json
import pathlib
import re
import socket
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils import secret_names
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.support.archive import Piece
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.support.redact import Private, private_names

REPORTS = ("fabric-*.json", "doctor-*.json")
_NAME = re.compile(r"ansible_(?:ssh_|become_)?user$|ansible_user_id$")
_WORDS = frozenset(
    ["true", "false", "none", "null", "default", "present", "absent", "token", "secret", "enabled", "disabled"]
)
_NAMES = ("ansible_host", "ansible_ssh_host", "k8s_dgx_node_names", "k8s_platform_node_names", "k3s_node_name")
# Not the owner's: variables of Ansible and this run (facts, registered results, the inventory again).
_NOT_THE_OWNER_S = re.compile(r"__|(?:groups|hostvars|vars|environment|ansible_facts|dgxspark_roce|dgxspark_plan)$")
_SHORTEST, _LARGEST, _DEEPEST = 4, 65536, 12


def reports(folder: pathlib.Path, most: int) -> list[Piece]:
    """Return the newest report of each kind. One larger than `most` bytes is left out, with a note."""
    found = []
    for pattern in REPORTS:
        newest = max(folder.glob(pattern), key=lambda path: (path.stat().st_mtime, path.name), default=None)
        if newest is None:
            continue
        size = newest.stat().st_size
        try:
            text = newest.read_text("utf-8", "replace") if size <= most else f"[left out: {size} bytes]\n"
        except OSError as exc:
            text = f"[cannot be read: {exc.strerror}]\n"
        found.append(Piece(f"reports/{newest.name}", text))
    return found


def as_json(name: str, value: t.Any) -> Piece:
    """Return a plain value as a file."""
    return Piece(name, json.dumps(value, indent=1, sort_keys=True, default=str) + "\n")


def tells(key: str, raw: t.Any) -> bool:
    """Whether a host's untemplated variable may hold something private: by its name, or by a key in it."""
    if _NOT_THE_OWNER_S.match(key):
        return False
    return key in _NAMES or bool(_NAME.search(key)) or _has_secret({key: raw}, 0)


def of_this_machine() -> list[Private]:
    """Return the names of the controller and of the user who runs this."""
    own, full = socket.gethostname(), socket.getfqdn()
    found = [*private_names(own, "host", own), *private_names(full, "host", own)]
    try:
        return [*found, Private("user", getpass.getuser())]
    except (KeyError, OSError):  # a user without a name
        return found


def of_host(host: str, variables: t.Mapping[str, t.Any], spark: bool, base: pathlib.Path) -> list[Private]:
    """Return what is private in a host's variables: its names and addresses, users, and the value or file of every secret.

    base: the base of relative file paths.
    """
    kind = "spark" if spark else "host"
    found = private_names(host, kind, host)
    for key in ("ansible_host", "ansible_ssh_host"):
        found += private_names(str(variables.get(key) or ""), kind, host)
    nodes = [variables.get(f"{role}_node_names") for role in ("k8s_dgx", "k8s_platform")]
    for names in (*nodes, {host: variables.get("k3s_node_name")}):
        if isinstance(names, t.Mapping) and names.get(host):
            found += private_names(str(names[host]), kind, host)
    for key, value in variables.items():
        if isinstance(value, str) and _NAME.search(str(key)):
            found.append(Private("user", value))
    return [*found, *(Private("secret", text) for text in _secrets(variables, base, 0))]


def _secrets(value: t.Any, base: pathlib.Path, depth: int) -> t.Iterator[str]:
    if depth > _DEEPEST:
        return
    if isinstance(value, t.Mapping):
        for key, each in value.items():
            if isinstance(each, bool) or not isinstance(each, (str, int)):
                yield from _secrets(each, base, depth + 1)
            elif secret_names.secret(str(key)):
                text = str(each).strip()
                if len(text) >= _SHORTEST and text.lower() not in _WORDS:
                    yield text
            elif not isinstance(each, str):
                continue
            elif secret_names.of_file(str(key)) and each.strip():
                yield from _of_file(base / pathlib.Path(each.strip()).expanduser())
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _secrets(each, base, depth + 1)


def _has_secret(value: t.Any, depth: int) -> bool:
    if isinstance(value, t.Mapping):
        return depth < _DEEPEST and any(
            secret_names.secret(str(key)) or secret_names.of_file(str(key)) or _has_secret(each, depth + 1)
            for key, each in value.items()
        )
    return isinstance(value, (list, tuple)) and depth < _DEEPEST and any(_has_secret(v, depth + 1) for v in value)


def _of_file(path: pathlib.Path) -> t.Iterator[str]:
    """Yield a file's secret. An existing file that cannot be read is an error: its secret might be in a log."""
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST:
            return
        text = path.read_text("utf-8", "replace").strip()
    except OSError as exc:
        raise CollectionError(
            f"{path} cannot be read ({exc.strerror}): its contents could not be kept out of the archive. Run this as a user who "
            "may read it."
        ) from exc
    if text:
        yield text
