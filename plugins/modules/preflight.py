#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: preflight
short_description: Check the controller's Python packages and your variables
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Names all Python packages that the interpreter which runs Ansible lacks, with the command that installs them there.
  - Refuses a variable, of the inventory or of C(-e), that begins with a prefix of this collection (C(dgxspark_), or a role's name)
    and that nothing in it reads, such as a misspelled one, and says which was probably meant. For C(k3s_) and C(nccl_), which
    others use too, it warns.
  - Refuses what Ansible would ignore on a command line - tags that no task of the playbook has and words of C(-e) without a
    name, and a text of C(-e) where a role wants a mapping. A name of C(-e) without our prefix that nothing reads is refused if it is
    like one of ours or there is no inventory; otherwise it warns.
  - Refuses a value that a playbook itself cannot take, of C(sparks), C(dgxspark_verify_mode), C(dgxspark_bench_mode),
    C(dgxspark_bench_from) and C(dgxspark_top_show), and names those that it can.
  - Every playbook of this collection begins with it.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options: {}
seealso:
  - module: dgxspark.cluster.limit_guard
"""

EXAMPLES = r"""
- name: Check this machine and the variables
  dgxspark.cluster.preflight:
  run_once: true
"""

RETURN = r"""
warnings:
  description: One sentence for each name that may be misspelled.
  type: list
  elements: str
  returned: if there are any
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
