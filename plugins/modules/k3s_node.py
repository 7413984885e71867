#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: k3s_node
short_description: Install, change or remove K3s on a node
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Verifies the binary in the staging folder, writes config, token, registries and unit, starts the unit, and waits
    until it reports ready.
  - If any of this fails, the node is restored - without K3s, or with the previous release, files and (on a server
    without etcd) data - and the failure names its cause.
  - Restarts the unit only when something differs.
extends_documentation_fragment:
  - dgxspark.cluster.attributes
  - dgxspark.cluster.attributes.actiongroup
options:
  state:
    description:
      - V(absent) removes K3s with its data, containers, interfaces and firewall rules, and nothing that K3s did not
        create.
      - A K3s that this module did not install is refused.
    type: str
    choices: [present, absent]
    default: present
  role:
    description: The node's role in the cluster. Required with O(state=present).
    type: str
    choices: [server, agent]
  version:
    description: The release, such as V(v1.36.4+k3s1). Required with O(state=present).
    type: str
  file:
    description: The binary's name in C(/var/lib/dgxspark-k3s-staging), such as V(k3s-arm64). Required with O(state=present).
    type: str
  sha256:
    description: The binary's SHA-256.
    type: str
  sums:
    description: The release's list of checksums in the staging folder. Needed without O(sha256), and for O(images).
    type: str
  images:
    description: The archive of images in the staging folder, for a node without a registry.
    type: str
  config:
    description: C(config.yaml) as text. It must hold no secret.
    type: str
    default: ""
  registries:
    description: C(registries.yaml) as text.
    type: str
  token:
    description: The cluster's token for a joining node, the servers' or the agents'.
    type: str
  agent_token:
    description: For a joining server, the token that agents join with.
    type: str
  first:
    description: Whether this is the cluster's first server, which creates the token.
    type: bool
    default: false
  cdi:
    description: Whether to have C(nvidia-ctk) generate the GPU's CDI specification.
    type: bool
    default: false
  data_dir:
    description: K3s's data folder.
    type: path
    default: /var/lib/rancher/k3s
  timeout:
    description: Seconds to wait until the unit is ready.
    type: int
    default: 600
  signs:
    description: >-
      What lines in K3s's log mean during a start, from C(knowledge/signatures). Each has C(id), C(pattern), C(cause), C(remedy) and
      C(final).
    type: list
    elements: dict
    default: []
notes:
  - Needs root (C(become)).
seealso:
  - module: dgxspark.cluster.k3s_info
"""

EXAMPLES = r"""
- name: Remove K3s
  dgxspark.cluster.k3s_node:
    state: absent
"""

RETURN = r"""
changes:
  description: What differed, each with C(subject), C(what), C(before) and C(after). Secrets are not shown.
  returned: always
  type: list
  elements: dict
"""

import signal
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import module_runner
from ansible_collections.dgxspark.cluster.plugins.module_utils.k3s import install, layout, machine, remove
from ansible_collections.dgxspark.cluster.plugins.module_utils.k3s.service import Sign
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    Change,
    CollectionError,
    change_result,
    from_plain,
)

WANTED: tuple[str, ...] = ("role", "version", "file", "sha256", "sums", "images", "config", "registries", "token")
WANTED += ("agent_token", "first", "cdi")


def present(module: t.Any) -> list[Change]:
    """Bring K3s to the wanted state; return what differed."""
    given, run = module.params, module_runner(module)
    wanted = install.InstallSpec(
        **{name: given[name] for name in WANTED}, data=given["data_dir"], timeout=given["timeout"]
    )
    installed = machine.read_installed(run, data=wanted.data, registries=wanted.registries)
    if installed.version and installed.ours is None:
        raise CollectionError(foreign("Nothing was changed."))
    if installed.role not in (None, wanted.role):
        raise CollectionError(
            f"The node is a K3s {installed.role}, but is planned as {wanted.role}. Nothing was changed. Run with "
            "k3s_state=absent for this node first."
        )
    found = install.changes(wanted, installed)
    if found and not module.check_mode:
        signs = [from_plain(Sign, sign, f"signs[{number}]") for number, sign in enumerate(given["signs"])]
        install.Installation(run, wanted, installed).apply(found, signs)
    return found


def absent(module: t.Any) -> list[Change]:
    """Remove K3s; return what is removed."""
    run, data = module_runner(module), module.params["data_dir"]
    installed = machine.read_installed(run, data=data)
    if installed.version and installed.ours is None:
        raise CollectionError(foreign("It is left alone."))
    if installed.ours is None:
        return []
    data = str(installed.ours.get("data", data))
    found = remove.leftovers(data)
    if not module.check_mode:
        remove.remove(run, data)
        remove.forget(cdi=bool(installed.ours.get("cdi")))
    return found


def foreign(what: str) -> str:
    """Return the message for a K3s that this collection did not install."""
    return f"K3s is on this node, but this collection did not install it. {what} Remove it with its k3s-uninstall.sh."


def main() -> None:
    """Run as an Ansible module."""
    text: dict[str, t.Any] = {"type": "str"}
    secret: dict[str, t.Any] = {"type": "str", "no_log": True}
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "role": {"type": "str", "choices": ["server", "agent"]},
            **dict.fromkeys(("version", "file", "sha256", "sums", "images"), text),
            "config": {"type": "str", "default": ""},
            "registries": secret,
            "token": secret,
            "agent_token": secret,
            "first": {"type": "bool", "default": False},
            "cdi": {"type": "bool", "default": False},
            "data_dir": {"type": "path", "default": layout.DATA},
            "timeout": {"type": "int", "default": 600},
            "signs": {"type": "list", "elements": "dict", "default": []},
        },
        required_if=[("state", "present", ["role", "version", "file"])],
        supports_check_mode=True,
    )
    # With become, a command has a terminal, and gets SIGHUP when the connection breaks: the node must not be left half changed.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        changes = present(module) if module.params["state"] == "present" else absent(module)
    except CollectionError as exc:
        module.fail_json(msg=str(exc), changes=[])
    module.exit_json(**change_result(changes))


if __name__ == "__main__":
    main()
