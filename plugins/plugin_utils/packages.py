# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of the Python packages in requirements.txt this interpreter lacks, and the command that installs them there.

Standard library only: it runs before anything else, on a controller that may have none of them.
"""

from __future__ import annotations

import importlib.metadata
import pathlib
import re
import shlex
import sys
import sysconfig
import typing as t

REQUIREMENTS = pathlib.Path(__file__).resolve().parents[2] / "requirements.txt"


def wanted(text: str) -> list[str]:
    """Return the requirements in the text of a requirements.txt, such as "netaddr>=1.0"."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def missing(
    requirements: t.Iterable[str], installed: t.Callable[[str], str | None] = _installed
) -> list[tuple[str, str | None]]:
    """Return the requirements (name>=version) that are not met, each with the version that is installed, if any."""
    found = []
    for requirement in requirements:
        name, _sign, least = requirement.partition(">=")
        there = installed(name.strip())
        if there is None or _numbers(there) < _numbers(least):
            found.append((requirement, there))
    return found


def command(requirements: t.Sequence[str], executable: str, prefix: str, *, own: bool, managed: bool) -> str:
    """Return the command that installs these for an interpreter.

    prefix: of its environment. own: it is a virtual environment. managed: its packages are the operating system's, and pip refuses.
    """
    words = shlex.join(requirements)
    parts = pathlib.PurePath(prefix).parts
    if "uv" in parts and "tools" in parts:  # has no pip
        return f"uv pip install --python {shlex.quote(executable)} {words}"
    if "pipx" in parts and "venvs" in parts:
        return f"pipx inject {shlex.quote(parts[-1])} {words}"
    if managed and not own:
        return f"python3 -m venv ~/dgxspark && ~/dgxspark/bin/pip install 'ansible-core>=2.19' {words} && . ~/dgxspark/bin/activate"
    return f"{shlex.quote(executable)} -m pip install {words}"


def problem(installed: t.Callable[[str], str | None] = _installed, needs: t.Sequence[str] = ()) -> str:
    """Return what this interpreter lacks and how to install it, in one line; "" if it lacks nothing.

    needs: requirements of one playbook, instead of those that all have.
    """
    found = missing(needs or wanted(REQUIREMENTS.read_text(encoding="utf-8")), installed)
    if not found:
        return ""
    told = [requirement + (f" ({there} is installed)" if there else "") for requirement, there in found]
    managed = pathlib.Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED").is_file()
    line = command(
        [requirement for requirement, _there in found],
        sys.executable,
        sys.prefix,
        own=sys.prefix != sys.base_prefix,
        managed=managed,
    )
    return f"{sys.executable}, which runs Ansible, lacks Python packages: {', '.join(told)}. Install them: {line}"
