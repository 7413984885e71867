# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the core runs commands: a callable that takes an argv and returns (exit status, stdout, stderr), never a shell.

An absent tool is exit status 127, as a shell has it, so that the core can go on without it; one that is ended since it takes too
long is 124, as timeout(1) has it. (fabric/rollback.py, one file that is a program of its own, has its own names for both.)
"""

from __future__ import annotations

import json
import typing as t

Run = t.Callable[[t.Sequence[str]], tuple[int, str, str]]

NOT_FOUND, TOO_LONG = 127, 124


def module_runner(module: t.Any) -> Run:
    """Make a Run of an AnsibleModule: the C locale, and 127 for a command that is not there."""
    environment = {"LC_ALL": "C", "LANGUAGE": ""}

    def run(argv: t.Sequence[str]) -> tuple[int, str, str]:
        try:
            rc, out, err = module.run_command(list(argv), environ_update=environment, handle_exceptions=False)
        except OSError as exc:
            return NOT_FOUND, "", f"{argv[0]}: {exc.strerror}"
        return int(rc), str(out), str(err)

    return run


def run_json(run: Run, argv: t.Sequence[str]) -> t.Any:
    """Run a command that prints JSON; None where it is absent, fails or prints something else."""
    rc, out, _err = run(argv)
    if rc != 0:
        return None
    try:
        return json.loads(out or "null")
    except ValueError:
        return None
