# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory as files: the hosts in order after the controller, and the group's variables, each with its evidence."""

from __future__ import annotations

import json
import textwrap
import typing as t

import yaml

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import netplan
from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import line, templated
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.discover.compose import Composed
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.discover.seen import Seen
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.hosts import FUNCTIONS

HOSTS = "inventory/hosts.yml"
GROUP = "inventory/group_vars/dgx.yml"
_WIDTH = 120
_SERVING = """
# For `serve`. Other machines than the Sparks may ask the model; with the second line, only those that have the key in that file:
#   umask 077; openssl rand -hex 32 > api-key
# k8s_dgx_serving: {service_type: NodePort}
# k8s_dgx_api_key_file: api-key
"""
_CONTROLLER = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}


class _Unsafe(str):
    """A text that Ansible must not evaluate."""


class _Dumper(yaml.SafeDumper):
    """Indents lists below their key, as yamllint requires."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


_Dumper.add_representer(_Unsafe, lambda dumper, text: dumper.represent_scalar("!unsafe", str(text), style="'"))


def files(seen: t.Sequence[Seen], made: Composed) -> dict[str, str]:
    """Return the files by path in the folder. made: must have settings."""
    shared, own = _reach(seen)
    return {HOSTS: _hosts(seen, made, own), GROUP: knowledge.for_editors(_group(seen, made, shared), "group-vars")}


def _reach(seen: t.Sequence[Seen]) -> tuple[dict[str, t.Any], dict[str, dict[str, t.Any]]]:
    """Return the connection variables that all hosts share, and the rest by host."""
    keys = dict.fromkeys(key for host in seen for key in host.reach)
    shared = {
        key: seen[0].reach[key]
        for key in keys
        if key not in ("ansible_host", "ansible_port")
        and all(key in host.reach and host.reach[key] == seen[0].reach.get(key) for host in seen)
    }
    return shared, {host.name: {k: v for k, v in host.reach.items() if k not in shared} for host in seen}


def _hosts(seen: t.Sequence[Seen], made: Composed, own: t.Mapping[str, dict[str, t.Any]]) -> str:
    lines = [
        "---",
        "# Written by dgxspark.cluster.discover from what the nodes showed. Yours to change.",
        "# `-l 'spark[1:4]'` counts the group's members from 0: the controller is member 0, so each Spark's position is its number.",
        "all:",
        "  children:",
        "    spark:",
        "      children:",
        "        # The machine that runs Ansible. It stays first, whether or not it is one of the Sparks.",
        "        spark_controller:",
        *_indented({"hosts": {"controller": _CONTROLLER}}, 10, templates=True),
        "        dgx:",
        "          hosts:",
    ]
    for host in seen:
        named = made.named.get(host.name)
        if named:
            lines.append(
                f"            # Taken for {', '.join(named)} by port and order of the PCI addresses: check that this is right."
            )
        variables = own[host.name] | ({FUNCTIONS: named} if named else {})
        lines += _indented({host.name: variables}, 12)
    return "\n".join([*lines, *_k3s(seen)]) + "\n"


def _k3s(seen: t.Sequence[Seen]) -> t.Iterator[str]:
    """Yield K3s's groups: active if this collection installed it, else as comments."""
    installed = {host.name: host.machine.k3s for host in seen if host.machine and host.machine.k3s.version}
    servers = [name for name, k3s in installed.items() if k3s.role == "server"]
    agents = [name for name, k3s in installed.items() if k3s.role != "server"]
    ours = bool(servers) and all(k3s.ours for k3s in installed.values())
    if not installed:
        yield "    # K3s: no node has it. Uncomment these lines to install it; the server may be another machine, without a GPU."
        servers, agents = [seen[0].name], [host.name for host in seen[1:]]
    elif ours:
        yield "    # K3s, as this collection installed it."
    else:
        told = ", ".join(f"{name} {k3s.role or 'of an unknown role'} {k3s.version}" for name, k3s in installed.items())
        by = "but not by this collection" if not all(k3s.ours for k3s in installed.values()) else "by this collection"
        yield f"    # K3s is installed, {by}: {line(told)}."
        if not servers:
            yield "    # Its server is another machine: add it to the inventory, and to a group k3s_server."
        yield "    # Uncomment these lines if it is to be taken over."
    for group, names in (("k3s_server", servers), ("k3s_agent", agents)):
        block = _indented({group: {"hosts": {name: {} for name in names}}}, 4) if names else []
        yield from block if ours else [f"    # {line[4:]}" for line in block]


def _group(seen: t.Sequence[Seen], made: Composed, shared: t.Mapping[str, t.Any]) -> str:
    lines = ["---", "# Written by dgxspark.cluster.discover from what the nodes showed. Yours to change."]
    if not any("ansible_user" in host.reach for host in seen):
        lines.append("# ansible_user: ssh chose it in this run (its configuration, or your own name).")
    for key, value in shared.items():
        lines += _indented({key: value}, 0)
    lines += ["", *_comment("All keys and their defaults: docs/docsite/rst/guide_fabric.rst", 0), "dgxspark_fabric:"]
    for key, value in (made.settings or {}).items():
        lines += [line for text in made.comments.get(key, ()) if text for line in _comment(text, 2)]
        lines += _indented({key: value}, 2)
    return "\n".join([*lines, *_foreign(seen, made), *_SERVING.rstrip().splitlines()]) + "\n"


def _foreign(seen: t.Sequence[Seen], made: Composed) -> list[str]:
    told = sorted({f"{path} on {host}" for host, path in foreign_files(seen, made)})
    if not told:
        return []
    text = (
        f"{', '.join(told)}: configures interfaces of the fabric, too. dgxspark.cluster.site refuses to continue until you let it take those "
        "stanzas over (they are kept, and dgxspark.cluster.teardown restores them):"
    )
    return ["", *_comment(text, 0), "# netplan_vf_foreign_stanzas: absorb"]


def foreign_files(seen: t.Sequence[Seen], made: Composed) -> list[tuple[str, str]]:
    """Return host and path of netplan files, other than ours, that configure functions or VFs of the fabric."""
    found = []
    for host in seen:
        functions = made.slots.get(host.name, {}).values()
        devices = [
            netplan.Device(netdev.name, netdev.mac, function.driver)
            for function in functions
            for netdev in (function.netdev, *(vf.netdev for vf in function.vfs if vf.place.state == "host"))
            if netdev
        ]
        for file in host.node.netplan.files if host.node else ():
            meant = (netplan.is_meant(stanza, device) for stanza in file.stanzas for device in devices)
            if file.path != netplan.PATH and any(meant):
                found.append((host.name, file.path))
    return found


def _marked(value: t.Any) -> t.Any:
    if isinstance(value, dict):
        return {key: _marked(own) for key, own in value.items()}
    if isinstance(value, list):
        return [_marked(own) for own in value]
    return _Unsafe(value) if templated(value) else value


def _comment(text: str, indent: int) -> list[str]:
    head = " " * indent + "# "
    return textwrap.wrap(
        line(text), _WIDTH, initial_indent=head, subsequent_indent=head, break_long_words=False, break_on_hyphens=False
    )


def _indented(value: t.Mapping[str, t.Any], indent: int, templates: bool = False) -> list[str]:
    """Dump a mapping: scalars, and lists or dictionaries of scalars, on one line; anything else below its key.

    templates: whether Ansible is to evaluate its texts. Those of nodes are marked unsafe: Ansible trusts the files that it reads.
    """
    lines = []
    # Through JSON, because YAML cannot represent Ansible's string types.
    plain = json.loads(json.dumps(value))
    for key, own in (plain if templates else _marked(plain)).items():
        style = None if isinstance(own, (dict, list)) else False
        text = yaml.dump(
            {key: own}, Dumper=_Dumper, sort_keys=False, default_flow_style=style, width=_WIDTH, allow_unicode=True
        )
        lines += [" " * indent + line for line in str(text).splitlines()]
    return lines
