# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints text for people on the controller's terminal, without mixing it into output that a program parses."""

from __future__ import annotations

from ansible import constants
from ansible.utils.display import Display

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import lines

# Programs parse these callbacks' standard output, so text for people goes to standard error.
FOR_PROGRAMS = frozenset({"json", "jsonl"})

_display = Display()


def for_program() -> bool:
    """Whether a program parses the standard output."""
    return str(constants.DEFAULT_STDOUT_CALLBACK).rpartition(".")[2] in FOR_PROGRAMS


def say(text: str) -> None:
    """Print the text as it is, but without control characters: part of it may come from a node, a file or a server.

    `debug` would quote and wrap it.
    """
    _display.display(lines(text), stderr=for_program())
