# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole discovery: from the nodes' facts to the folder's files, the page and the lines; and writing them."""

from __future__ import annotations

import pathlib
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import hardware, knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.discover import folder, inventory, report
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.discover.compose import compose
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.discover.seen import Plain, read_seen
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report.discover_page import page
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.known_bad import load_known_bad
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.signatures import count


@dataclass(frozen=True, slots=True)
class Discovered:
    """files: by path in the folder; {} if something prevents an inventory. view: see report.view."""

    files: dict[str, str]
    view: dict[str, t.Any]
    page: str


def discover(hosts: t.Mapping[str, Plain], keep_names: bool = False, overlays: t.Sequence[str] = ()) -> Discovered:
    """Make an inventory from the nodes' facts. hosts, keep_names: as for `read_seen`; overlays: the owner's folders.

    Raises CollectionError for malformed input, or if there is no host.
    """
    seen = read_seen(hosts, keep_names)
    made = compose(seen, hardware.classes(overlays))
    view = report.view(seen, made, knowledge.shared("stacks", overlays), load_known_bad(overlays))
    files = inventory.files(seen, made) if made.settings is not None else {}
    return Discovered(files, view, page(view))


def lay_down(made: Discovered, to: str, overwrite: bool, check: bool, config: bool = False) -> dict[str, t.Any]:
    """Write the folder, unless `check`; return `ok`, `changed`, `diff`, `msg` and `lines` for people.

    config: write an ansible.cfg, too, if the folder has none. Not for an owner who has one elsewhere: Ansible reads only one.
    Existing files with other content are kept unless `overwrite`. The page, a report, is written whenever anything is.
    Raises CollectionError if the folder cannot be read or written.
    """
    at = pathlib.Path(to)
    lines = report.lines(made.view)
    if not made.files:
        if not check:
            folder.write([(str(at / folder.PAGE), made.page)])
        lines += ["", "No inventory was written."] + ([] if check else [f"Picture: {at / folder.PAGE}"])
        wrong = sum(finding["severity"] == "error" for finding in made.view["findings"])
        msg = f"No inventory was written: what is wrong, and what to do, is above ({count(wrong, 'error')})."
        return {"ok": False, "changed": False, "diff": [], "msg": msg, "lines": lines}
    changed = folder.changes(at, made.files)
    edited = [change for change in changed if change.before is not None]
    if edited and not overwrite:
        lines += [line for change in edited for line in ("", *change.unified())]
        msg = (
            f"{', '.join(change.path for change in edited)}: it exists with other content (see the difference above), and was left "
            "as it is. Overwrite it with -e dgxspark_discover_overwrite=true, or name another folder."
        )
        return {"ok": False, "changed": False, "diff": [change.diff() for change in edited], "msg": msg, "lines": lines}
    if config and not (at / folder.CONFIG).exists():
        changed.append(folder.FileChange(str(at / folder.CONFIG), None, folder.CONFIG_TEXT))
    if not check:
        folder.write([*((change.path, change.after) for change in changed), (str(at / folder.PAGE), made.page)])
    would = "would be " if check else ""
    done = f"{would}written to" if changed else "unchanged in"
    lines += ["", f"Inventory {done} {at / 'inventory'}; picture: {at / folder.PAGE}", "", "Next:", f"  cd {at}"]
    lines += [f"  ansible-playbook dgxspark.cluster.{name} -i inventory" for name in ("plan", "site")]
    return {
        "ok": True,
        "changed": bool(changed),
        "diff": [change.diff() for change in changed],
        "msg": "",
        "lines": lines,
    }
