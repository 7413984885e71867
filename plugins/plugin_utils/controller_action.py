# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Base class of the action plugins: validates arguments, and turns expected errors into failed results that name the action."""

from __future__ import annotations

import abc
import dataclasses
import re
import typing as t

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.release import __version__

from ansible_collections.dgxspark.cluster.plugins.module_utils import foreign
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, lines
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge, node_disk, node_python

Plain = dict[str, t.Any]
# What ansible-core's connections raise when a command wants a password that nobody has given them, or another one.
_PASSWORD = re.compile(r"\b(?:Missing|Incorrect) \w{1,20} password\b")
# What moves a terminal's cursor, ends a line or reverses its direction.
_MOVING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class ControllerAction(ActionBase):  # type: ignore[misc,unused-ignore]
    """An action plugin: `arguments` as its module documents them, and `act`, which returns the result or raises CollectionError.

    Set `_requires_connection` in an action that runs modules on the host.
    """

    arguments: t.ClassVar[t.Mapping[str, t.Any]] = {}
    required_if: t.ClassVar[t.Sequence[t.Any]] = ()
    initial: t.ClassVar[Plain] = {}  # defaults for keys of the result that `act` does not set
    reported: t.ClassVar[t.Sequence[str]] = ()  # arguments that hold what nodes report: `act` gets them as plain facts

    _supports_check_mode = True
    _supports_diff = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: Plain | None = None) -> Plain:
        """Return the result of `act`, or a failure with the reason if it raises CollectionError."""
        # `act` may add keys here; a failed result keeps them.
        self.result: Plain = {**super().run(tmp, task_vars), "changed": False, **self.initial}
        self.task_vars = task_vars or {}
        checked, _arguments = self.validate_argument_spec(dict(self.arguments), required_if=list(self.required_if))
        try:
            args = checked.validated_parameters
            made = self.act({**args, **{name: foreign.facts(args[name], name) for name in self.reported}})
        except CollectionError as exc:
            made = self.failure(str(exc))
        except AnsibleError as exc:
            wanted, told = _PASSWORD.search(str(exc)), node_disk.fault(str(exc))
            if told and isinstance(exc, AnsibleConnectionFailure):
                raise AnsibleConnectionFailure(told) from None  # Ansible would print both
            if wanted:
                told = f"{wanted[0]}: give it with -K (or --become-password-file FILE), or let this user use sudo on the node without one."
            if not told:
                raise
            made = self.failure(told)
        except Exception as exc:
            # Ansible says of an exception its text alone, which may be a key, or nothing.
            raise AnsibleError(
                f"it ended with {type(exc).__name__}, a fault of this collection. Run it with -vvv, and report what that shows."
            ) from exc
        return t.cast(Plain, _plain({**self.result, **made}))

    def _execute_module(self, *arguments: t.Any, **named: t.Any) -> Plain:
        """Return what a module returned on the host, or one sentence where the host's Python does not start."""
        made: Plain = super()._execute_module(*arguments, **named)
        told = node_python.fault(made, str(self._used_interpreter or "").lstrip("#!"))
        return {**made, "msg": told, "module_stderr": "", "rc": None} if told else made

    @abc.abstractmethod
    def act(self, args: Plain) -> Plain:
        """Return the result for the validated arguments."""

    def failure(self, text: str) -> Plain:
        """Return a failed result that names the action."""
        plugin = next(each for each in type(self).__mro__ if each.__name__ == "ActionModule")
        return {
            "failed": True,
            "msg": f"dgxspark.cluster.{plugin.__module__.rpartition('.')[2]}: {lines(text)}",
        }

    def variable(self, name: str, default: t.Any = None) -> t.Any:
        """Return a variable of the task's host, templated, or the default if it is not set."""
        return self._templar.template(self.task_vars[name]) if name in self.task_vars else default

    def of_hosts(self, name: str, default: t.Any = None, only: t.Container[str] | None = None) -> Plain:
        """Return a variable, fact or registered result of each host of the play, by host."""
        hosts = self.variable("ansible_play_hosts_all", [])
        return {host: self.of_host(host, name, default) for host in hosts if only is None or host in only}

    def of_host(self, host: str, name: str, default: t.Any = None) -> t.Any:
        """Return a variable, fact or registered result of one host, made plain, or the default if it has none."""
        hostvars = self.task_vars["hostvars"]
        raw = hostvars.raw_get(host).get(name, default) if host in hostvars else default
        # Registered results are data: templating them triggers warnings about keys that Ansible adds and deprecates (skipped_reason).
        if raw is not default and not (isinstance(raw, t.Mapping) and "changed" in raw):
            raw = hostvars[host][name]
        return raw if raw is default else foreign.facts(raw, f"{host}: {name}", lines)

    def versions(self) -> dict[str, str | None]:
        """Return the versions for a report: this collection and ansible-core."""
        return {"collection": knowledge.collection_version(), "ansible_core": __version__}

    def owner_dirs(self) -> list[str]:
        """Return the owner's knowledge folders, as the lookup knowledge_dirs does."""
        chosen = self.variable("dgxspark_knowledge_dirs")
        chosen = [part.strip() for part in chosen.split(",")] if isinstance(chosen, str) else chosen
        return knowledge.owner_dirs(chosen, self.variable("inventory_dir"))


def _plain(value: t.Any) -> t.Any:
    """Return a result whose texts move no cursor: a node, a server or a file may have written any of them.

    Other characters stay, for a setting may have them. What has none but plain texts is returned itself.
    """
    if isinstance(value, str):
        return _MOVING.sub("?", value.replace("\r\n", "\n")) if _MOVING.search(value) else value
    if isinstance(value, dict):
        made = {_plain(key): _plain(item) for key, item in value.items()}
        same = all(a is b and c is d for (a, c), (b, d) in zip(made.items(), value.items(), strict=False))
        return value if same and len(made) == len(value) else made
    if isinstance(value, (list, tuple)):
        items = [_plain(item) for item in value]
        return value if all(a is b for a, b in zip(items, value, strict=True)) else items
    if dataclasses.is_dataclass(value) and not isinstance(value, type):  # ansible-core's warnings and errors
        fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        changed = {name: made for name, item in fields.items() if (made := _plain(item)) is not item}
        return dataclasses.replace(value, **changed) if changed else value
    return value
