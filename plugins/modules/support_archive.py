#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: support_archive
short_description: Write a redacted archive for a bug report
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Writes a C(.tar.gz) on the controller, mode 0600, with what was read from the nodes, plans, and the newest reports.
  - Secrets become C(***). Names of hosts and users, domains, addresses (IPv4, IPv6, MAC, GID, GUID), serial numbers and other
    identifiers become pseudonyms such as C(addr-3), the same one for the same thing in all of its forms.
  - What is private is taken from the inventory (names, addresses, users, and every variable whose name ends in C(token),
    C(password), C(secret), C(key) or similar, and the files that such variables name), from the nodes, and from the texts
    themselves.
  - Unredacted texts stay in memory. If something that is known to be private would still be in the archive, the module fails and
    writes nothing.
extends_documentation_fragment:
  - dgxspark.cluster.attributes
  - dgxspark.cluster.attributes.actiongroup
attributes:
  check_mode:
    details:
      - Writes nothing.
  diff_mode:
    support: none
    details:
      - No diff is shown for an archive.
  idempotent:
    support: partial
    details:
      - The same texts make the same archive; what nodes report differs each time.
options:
  path:
    description: The path of the archive. An existing file is replaced.
    type: path
    required: true
  hosts:
    description:
      - What each host returned. C(read) has the results of its commands, each with C(item.name) and C(stdout); C(identity) has
        lines such as C(host:), C(user:), C(serial:), C(domain:) and C(addr:) with words that are private; C(error) says why nothing
        was returned.
    type: dict
    required: true
  names:
    description: All hosts of the inventory, also those outside the limit. Their names and addresses are private.
    type: list
    elements: str
    default: []
  plans:
    description: Plain values that go into the archive as JSON, by the file's name. Empty ones are left out.
    type: dict
    default: {}
  reports:
    description: The folder whose newest reports of C(verify) and C(doctor) go into the archive.
    type: path
  about:
    description: Versions and similar information, for C(about.json).
    type: dict
    default: {}
  most_kib:
    description: How much of each file is included, its newest part, in KiB. A report larger than eight times that is left out.
    type: int
    default: 512
requirements:
  - netaddr (Python library, on the controller)
seealso:
  - module: dgxspark.cluster.node_health
"""

EXAMPLES = r"""
- name: Write the archive
  dgxspark.cluster.support_archive:
    path: "{{ lookup('dgxspark.cluster.owner_path', 'reports/support.tar.gz') }}"
    hosts: "{{ dict(ansible_play_hosts_all | zip(ansible_play_hosts_all | map('extract', hostvars) | map(attribute='seen'))) }}"
    names: "{{ groups['all'] }}"
  run_once: true
  delegate_to: localhost
"""

RETURN = r"""
path:
  description: The path of the archive.
  returned: success
  type: str
files:
  description: The files in the archive.
  returned: success
  type: list
  elements: str
replaced:
  description: How many items were replaced, by kind - C(secret), C(spark), C(host), C(user), C(addr), C(mac) and so on.
  returned: success
  type: dict
lines:
  description: The same as lines for a terminal, with the nodes that returned nothing, and what to check before sending the archive.
  returned: success
  type: list
  elements: str
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "path": {"type": "path", "required": True},
    "hosts": {"type": "dict", "required": True},
    "names": {"type": "list", "elements": "str", "default": []},
    "plans": {"type": "dict", "default": {}},
    "reports": {"type": "path"},
    "about": {"type": "dict", "default": {}},
    "most_kib": {"type": "int", "default": 512},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
