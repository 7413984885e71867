"""The hosts of a Molecule scenario that are namespaces; testinfra reaches into each through its script `enter`."""

from __future__ import annotations

import os
import pathlib
import shlex
import typing as t

import testinfra.host
from testinfra.backend.local import LocalBackend

STAND_INS = pathlib.Path(os.environ.get("MOLECULE_EPHEMERAL_DIRECTORY", ""), "stand_ins")


class Namespace(LocalBackend):
    """A host of the stand-ins."""

    def run(self, command: str, *args: str, **_: t.Any) -> t.Any:
        inside = self.get_command(command, *args)
        return self.run_local(f"{shlex.quote(str(STAND_INS / self.name / 'enter'))} sh -c {shlex.quote(inside)}")

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


def reach(name: str) -> testinfra.host.Host:
    """Return a host by its name."""
    return testinfra.host.Host(Namespace(name))
