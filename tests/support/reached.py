"""What a playbook can reach: each task of it, of what it imports and includes, and of its roles, read from the files."""

from __future__ import annotations

import pathlib
import re
import typing as t

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
_PLAYBOOKS, _ROLES = ROOT / "playbooks", ROOT / "roles"
_INCLUDES = ("ansible.builtin.include_tasks", "ansible.builtin.import_tasks")
_ROLE = ("ansible.builtin.include_role", "ansible.builtin.import_role")
_BLOCKS = ("block", "rescue", "always")
# They change nothing outside the run. Our own modules that only read say so in their documentation.
_HARMLESS = {
    "assert",
    "debug",
    "fail",
    "include_vars",
    "meta",
    "pause",
    "set_fact",
    "setup",
    "slurp",
    "stat",
    "wait_for",
}
_ON_THIS_MACHINE = {"bundle_fetch", "discover", "support_archive"}
_OWN = "dgxspark.cluster."


class _Loader(yaml.SafeLoader):
    """Takes Ansible's own tags for texts."""


_Loader.add_multi_constructor("!", lambda loader, _tag, node: loader.construct_scalar(node))


def _read(path: pathlib.Path) -> list[dict[str, t.Any]]:
    return yaml.load(path.read_text(encoding="utf-8"), _Loader) or []


def _only_reads() -> set[str]:
    modules = (ROOT / "plugins" / "modules").glob("*.py")
    return {path.stem for path in modules if "dgxspark.cluster.attributes.info\n" in path.read_text(encoding="utf-8")}


class _Walk:
    """One playbook. A file of tasks is entered once on the nodes, and once on this machine."""

    def __init__(self) -> None:
        self.been: set[tuple[pathlib.Path, bool]] = set()

    def file(self, path: pathlib.Path, here: bool) -> t.Iterator[tuple[dict[str, t.Any], bool]]:
        if (path, here) not in self.been:
            self.been.add((path, here))
            yield from self.tasks(_read(path), path.parent, here)

    def tasks(self, listed: t.Any, base: pathlib.Path, here: bool) -> t.Iterator[tuple[dict[str, t.Any], bool]]:
        for task in listed or ():
            local = task.get("delegate_to", "localhost" if here else "") == "localhost"
            for part in _BLOCKS:
                yield from self.tasks(task.get(part), base, local)
            for name in _INCLUDES:
                if name in task:
                    named = task[name] if isinstance(task[name], str) else task[name]["file"]
                    for path in _matching(base, named) or _matching(_PLAYBOOKS / "tasks", named):
                        yield from self.file(path, local)
            for name in _ROLE:
                if name in task and "{{" not in task[name]["name"]:  # else it is loaded for its variables
                    yield from self.role(task[name]["name"], task[name].get("tasks_from", "main.yml"), local)
            if "block" not in task:
                yield task, local

    def role(self, name: str, tasks: str, here: bool) -> t.Iterator[tuple[dict[str, t.Any], bool]]:
        folder = _ROLES / name.removeprefix(_OWN)
        for path in [*_matching(folder / "tasks", tasks), *_matching(folder / "handlers", "main.yml")]:
            yield from self.file(path, here)

    def playbook(self, path: pathlib.Path) -> t.Iterator[tuple[dict[str, t.Any], bool]]:
        for play in _read(path):
            if other := play.get("ansible.builtin.import_playbook"):
                yield from self.playbook(path.parent / other)
            else:
                for part in ("pre_tasks", "tasks", "post_tasks", "handlers"):
                    yield from self.tasks(play.get(part), path.parent, play["hosts"] == "localhost")
                for role in play.get("roles", ()):
                    yield from self.role(role if isinstance(role, str) else role["role"], "main.yml", False)


def _matching(base: pathlib.Path, named: str) -> list[pathlib.Path]:
    """Return the files that a name may mean: an expression in it stands for anything."""
    return sorted(base.glob(re.sub(r"\{\{.*?\}\}", "*", named)))


def changes(playbook: pathlib.Path) -> set[str]:
    """Return the modules by which a playbook can change a node or the cluster."""
    reads, found = _only_reads(), set()
    for task, here in _Walk().playbook(playbook):
        for name in task:
            module = name.rpartition(".")[2]
            if "." not in name or name in (*_INCLUDES, *_ROLE) or module in _HARMLESS:
                continue
            if name.startswith(_OWN) and (module in reads or module in _ON_THIS_MACHINE):
                continue
            if here and name.startswith("ansible.builtin."):  # a report, a page, a folder of the owner's
                continue
            if module == "command" and task.get("changed_when") is False:
                continue
            found.add(module)
    return found
