# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbooks that a running one starts, with the options of the owner who started that."""

from __future__ import annotations

import sys

from ansible import context

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.steps import options_of

# Prompts at the terminal cannot be repeated for each step.
_ASKED = {
    "become_ask_pass": "--become-password-file",
    "ask_pass": "--connection-password-file",
    "ask_vault_pass": "--vault-password-file",
}


def options() -> list[str]:
    """Return ansible-playbook's options. CollectionError for options that cannot be passed on to the steps."""
    for option, instead in _ASKED.items():
        if context.CLIARGS.get(option):
            raise CollectionError(
                f"a password is asked for at the terminal, but each step would need it: use {instead}."
            )
    if tuple(context.CLIARGS.get("tags") or ("all",)) != ("all",) or context.CLIARGS.get("skip_tags"):
        raise CollectionError("tags would leave out parts of the steps: run it without --tags and --skip-tags.")
    return options_of(sys.argv, context.CLIARGS.get("args") or ())
