# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every action plugin of ours shares: arguments are checked, and an expected error is a failed result that names the action."""

from __future__ import annotations

import abc
import typing as t

from ansible.plugins.action import ActionBase
from ansible.release import __version__

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge

Plain = dict[str, t.Any]


class ControllerAction(ActionBase):  # type: ignore[misc,unused-ignore]
    """An action plugin: `arguments` as its module documents them, and `act`, which returns the result or raises CollectionError.

    An action that runs modules on the host sets `_requires_connection`.
    """

    arguments: t.ClassVar[t.Mapping[str, t.Any]] = {}
    required_if: t.ClassVar[t.Sequence[t.Any]] = ()
    initial: t.ClassVar[Plain] = {}  # what the result has in any case, where `act` says nothing else

    _supports_check_mode = True
    _supports_diff = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: Plain | None = None) -> Plain:
        """Return what `act` made; failed with its reason where it raised CollectionError."""
        # What `act` puts here is in the result of a failure, too.
        self.result: Plain = {**super().run(tmp, task_vars), "changed": False, **self.initial}
        self.task_vars = task_vars or {}
        checked, _arguments = self.validate_argument_spec(dict(self.arguments), required_if=list(self.required_if))
        try:
            made = self.act(checked.validated_parameters)
        except CollectionError as exc:
            made = self.failure(str(exc))
        return {**self.result, **made}

    @abc.abstractmethod
    def act(self, asked: Plain) -> Plain:
        """Return the result of the checked arguments."""

    def failure(self, text: str) -> Plain:
        """Return a failed result that names the action."""
        plugin = next(each for each in type(self).__mro__ if each.__name__ == "ActionModule")
        return {"failed": True, "msg": f"dgxspark.cluster.{plugin.__module__.rpartition('.')[2]}: {text}"}

    def variable(self, name: str, default: t.Any = None) -> t.Any:
        """Return a variable of the task's host, evaluated; the default where nobody has set it."""
        return self._templar.template(self.task_vars[name]) if name in self.task_vars else default

    def of_hosts(self, name: str, default: t.Any = None, only: t.Container[str] | None = None) -> Plain:
        """Return a variable, fact or registered result of each host of the play, by host."""
        hosts = self.variable("ansible_play_hosts_all", [])
        return {host: self.of_host(host, name, default) for host in hosts if only is None or host in only}

    def of_host(self, host: str, name: str, default: t.Any = None) -> t.Any:
        """Return a variable, fact or registered result of one host; the default where it has none."""
        hostvars = self.task_vars["hostvars"]
        raw = hostvars.raw_get(host).get(name, default) if host in hostvars else default
        # A registered result is data. To evaluate it would warn of what Ansible itself has put in and deprecates (skipped_reason).
        if raw is default or (isinstance(raw, t.Mapping) and "changed" in raw):
            return raw
        return hostvars[host][name]

    def versions(self) -> dict[str, str | None]:
        """Return what a report says of the versions that made it."""
        return {"collection": knowledge.collection_version(), "ansible_core": __version__}

    def owner_dirs(self) -> list[str]:
        """Return the owner's folders of knowledge, as the lookup knowledge_dirs does."""
        chosen = self.variable("dgxspark_knowledge_dirs")
        chosen = [part.strip() for part in chosen.split(",")] if isinstance(chosen, str) else chosen
        return knowledge.owner_dirs(chosen, self.variable("inventory_dir"))
