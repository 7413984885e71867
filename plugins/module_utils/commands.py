# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the core runs commands: a callable that takes an argv and returns (exit status, stdout, stderr), never a shell.

A missing tool is exit status 127, as in a shell, so that the core can do without it; a command that is killed because it takes too
long is 124, as with timeout(1). (programs/fabric/rollback.py, which is also a program of its own, has its own names for both.)
"""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import from_json

Run = t.Callable[[t.Sequence[str]], tuple[int, str, str]]

NOT_FOUND, TOO_LONG = 127, 124


def module_runner(module: t.Any) -> Run:
    """Make a Run from an AnsibleModule: the C locale, and 127 for a missing command."""
    environment = {"LC_ALL": "C", "LANGUAGE": ""}

    def run(argv: t.Sequence[str]) -> tuple[int, str, str]:
        try:
            rc, out, err = module.run_command(list(argv), environ_update=environment, handle_exceptions=False)
        except OSError as exc:
            return NOT_FOUND, "", f"{argv[0]}: {exc.strerror}"
        return int(rc), str(out), str(err)

    return run


def run_json(run: Run, argv: t.Sequence[str]) -> t.Any:
    """Run a command that prints JSON; None if it is missing, fails or prints something else."""
    rc, out, _err = run(argv)
    if rc != 0:
        return None
    try:
        return from_json(out or "null")
    except ValueError:
        return None
