# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From Ansible's variables to the plan's inputs: takes from each host only what the plan may depend on."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import read_in
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, Node
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import hardware as classes
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.hosts import FUNCTIONS, INDEX, HostInput
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.plan import Plan, fabric_plan
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.settings import (
    VARIABLE,
    hardware_name,
    type_name,
)

FACTS = "dgxspark_roce"
# Hosts that share an address but differ in one of these are different machines, behind another jump host; so are ports.
REACH = ("ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_executable")


def plan_of_inventory(hosts: t.Any, settings: t.Any, hostvars: t.Any, knowledge_dirs: t.Any = ()) -> Plan:
    """Plan the fabric of an inventory's hosts.

    hosts: names in the group's order. settings: `dgxspark_fabric`. hostvars: Ansible's, or a dictionary of the same
    shape; a host without variables is planned from the settings alone. knowledge_dirs: the owner's overlays.
    Raises CollectionError that says what is wrong.
    """
    return _plan(hosts, settings, hostvars, knowledge_dirs, seen=True)


def plan_as_seen(hosts: t.Any, settings: t.Any, hostvars: t.Any, knowledge_dirs: t.Any = ()) -> tuple[Plan, str | None]:
    """Plan as `plan_of_inventory` does, but where nodes contradict the inventory, plan without them; return why, too."""
    try:
        return _plan(hosts, settings, hostvars, knowledge_dirs, seen=True), None
    except CollectionError as exc:
        return _plan(hosts, settings, hostvars, knowledge_dirs, seen=False), str(exc)


def _plan(hosts: t.Any, settings: t.Any, hostvars: t.Any, knowledge_dirs: t.Any, *, seen: bool) -> Plan:
    names = _names(hosts, "the hosts")
    if not isinstance(hostvars, t.Mapping):
        raise CollectionError(f"hostvars: a dictionary is needed, not {type_name(hostvars)}.")
    # Not get(): for an unknown host, Ansible's hostvars returns an undefined value instead of the default.
    variables = {name: hostvars[name] if name in hostvars else {} for name in names}  # noqa: SIM401
    _check_one_fabric(variables)
    dirs, hardware = _names(knowledge_dirs, "knowledge_dirs"), hardware_name(settings)
    try:
        entry = classes.device(hardware, dirs)
    except CollectionError as exc:
        raise CollectionError(f"{VARIABLE}.hardware: {exc}") from exc
    made = fabric_plan([_input(name, variables[name], seen) for name in names], settings, entry)
    if not classes.has_thresholds(hardware, dirs):
        made["notes"].append(
            f"Hardware class {hardware} has no thresholds, so verify refuses to judge this fabric: add an entry of the kind thresholds "
            f"with the id {hardware} to your knowledge folder."
        )
    return made


def _names(value: t.Any, what: str) -> list[str]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
        raise CollectionError(f"{what}: a list of names is needed, not {type_name(value)}.")
    return [str(name) for name in value]


def _check_one_fabric(variables: t.Mapping[str, t.Mapping[str, t.Any]]) -> None:
    """Refuse hosts with different settings: the plan would depend on which host computes it."""
    first: tuple[str, t.Any] | None = None
    for name, of_host in variables.items():
        own = of_host.get(VARIABLE)
        first = first or (name, own)
        if own != first[1]:
            both = own if isinstance(own, t.Mapping) else {}, first[1] if isinstance(first[1], t.Mapping) else {}
            differing = sorted(str(key) for key in {*both[0], *both[1]} if both[0].get(key) != both[1].get(key))
            where = f"{VARIABLE}.{differing[0]}" if differing else VARIABLE
            raise CollectionError(
                f"{where}: {name} and {first[0]} have different values for it, but there is only one fabric. Set {VARIABLE} for "
                "the group of all its hosts, not for one host."
            )


def _input(name: str, variables: t.Mapping[str, t.Any], seen: bool) -> HostInput:
    facts = variables.get(FACTS) if seen else None
    management = variables.get("ansible_host")
    return HostInput(
        name=name,
        index=variables.get(INDEX),
        management=str(management) if isinstance(management, str) else None,
        node=None if facts is None else read_in(Node, facts, f"{name}: {FACTS}"),
        functions=variables.get(FUNCTIONS),
        by=(
            str(variables.get("ansible_port") or variables.get("ansible_ssh_port") or 22),
            *(str(variables.get(key) or "") for key in REACH),
        ),
    )
