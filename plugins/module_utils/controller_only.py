# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The `main` of a module whose action plugin does the work on the controller: it documents the arguments.

ansible-test compares them with the documentation, and ansible-lint (rule `args`) checks owners' tasks against them: both need
a `main`.
"""

from __future__ import annotations

import typing as t

from ansible.module_utils import basic


def controller_only(arguments: t.Mapping[str, t.Any], **rules: t.Any) -> t.Callable[[], None]:
    """Return a `main` that checks the arguments, then fails: no host can do the work.

    arguments: as for AnsibleModule. rules: required_if and the like.
    """

    def main() -> None:
        # Through `basic`: ansible-lint replaces AnsibleModule there, and this file is imported once for all modules.
        module = basic.AnsibleModule(argument_spec=dict(arguments), supports_check_mode=True, **rules)
        name = module._name.rpartition(".")[2]
        module.fail_json(
            msg=f"{name} runs on the controller, by its action plugin. Call it as dgxspark.cluster.{name}."
        )

    return main
