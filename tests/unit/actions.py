"""An action plugin of the controller as a playbook calls it, with the variables of a host and of its play."""

from __future__ import annotations

import importlib
import types
import typing as t

from ansible.playbook.task import Task

Plain = dict[str, t.Any]


def run(name: str, /, variables: Plain | None = None, *, check: bool = False, **arguments: t.Any) -> Plain:
    """Run the action of that name; variables: those of the task, already evaluated."""
    plugin = importlib.import_module(f"ansible_collections.dgxspark.cluster.plugins.action.{name}")
    task = Task()
    task.args, task.check_mode = arguments, check
    connection = types.SimpleNamespace(_shell=types.SimpleNamespace(tmpdir=None))
    templar = types.SimpleNamespace(template=lambda value: value)
    return dict(plugin.ActionModule(task, connection, None, None, templar, None).run(task_vars=variables or {}))


class HostVars(dict[str, Plain]):
    """Ansible's HostVars, of variables that are already evaluated."""

    def raw_get(self, host: str) -> Plain:
        return self[host]


def play(hostvars: dict[str, Plain], **more: t.Any) -> Plain:
    """Return the variables of a play on these hosts, for its first one."""
    first = next(iter(hostvars), "")
    return {
        "hostvars": HostVars(hostvars),
        "ansible_play_hosts_all": list(hostvars),
        "inventory_hostname": first,
        **more,
    }
