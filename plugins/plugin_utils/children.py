# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbooks that a running one starts, with the options of the owner who started that."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
import typing as t

from ansible import context

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

PROGRAM = (sys.executable, "-m", "ansible", "playbook")
_END_S = 20.0
# Options of ansible-playbook that apply only to the owner's own run.
_OWN = frozenset({"-C", "--check", "-D", "--diff", "--step", "--list-tasks", "--list-hosts", "--syntax-check"})
_PLAIN = {
    "ANSIBLE_NOCOLOR": "1",
    "ANSIBLE_FORCE_COLOR": "0",
    "ANSIBLE_LOG_PATH": os.devnull,
}  # "" is taken for the current folder
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


def options_of(argv: t.Sequence[str], playbooks: t.Container[str]) -> list[str]:
    """Return the owner's ansible-playbook options for further playbooks, without those that apply only to his own run."""
    return [word for word in argv[1:] if word not in _OWN and word not in playbooks]


def run(
    command: t.Sequence[str],
    log: pathlib.Path,
    limit_s: float,
    environment: t.Mapping[str, str] | None = None,
    lock: int | None = None,
) -> tuple[int, bool]:
    """Run a playbook; return its exit status, and whether it was stopped after `limit_s` seconds. Its output goes to `log`.

    lock: a file's descriptor that it holds while it runs. With it, it is not reached by a Ctrl-C at the terminal.
    """
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **_PLAIN, **(environment or {})},
            start_new_session=lock is not None,
            pass_fds=() if lock is None else (lock,),
        )
        late = _ended(process, limit_s)
    return process.returncode, late


def _ended(process: subprocess.Popen[bytes], limit_s: float) -> bool:
    """Wait for a playbook; on timeout, stop it with the signal on which Ansible also stops its workers."""
    until = time.monotonic() + limit_s
    while process.poll() is None and time.monotonic() < until:
        time.sleep(0.2)
    if process.poll() is not None:
        return False
    for number in (signal.SIGINT, signal.SIGKILL):
        process.send_signal(number)
        try:
            process.wait(_END_S)
            break
        except subprocess.TimeoutExpired:
            continue
    return True
