# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run of a matrix, from the owner's request to the final contents of the folder: journal, rows, page and log."""

from __future__ import annotations

import contextlib
import getpass
import os
import pathlib
import signal
import socket
import typing as t
from dataclasses import dataclass

import yaml

from ansible_collections.dgxspark.cluster.plugins.module_utils import foreign, node_files
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench import known
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import cases, driver, report, results, rows
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.journal import Journal
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.steps import Playbooks
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import find_profile
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan

Plain = dict[str, t.Any]
PAGE, LOG, SAID = "matrix.html", "matrix.md", "progress.log"


@dataclass(frozen=True, slots=True)
class MatrixRequest:
    """folder: the journal's; rows_to: the overlay for the rows; names: what a shared file must not contain."""

    matrix: str
    folder: str
    cluster: t.Mapping[str, t.Any]
    overrides: t.Mapping[str, t.Any]
    knowledge_dirs: tuple[str, ...]
    rows_to: str
    hours: float | None = None
    accept_changed: bool = False
    share: str | None = None
    names: tuple[str, ...] = ()
    versions: tuple[t.Mapping[str, t.Any], ...] = ()
    image: str = ""


class Stopping:
    """Whether a stop was requested: by Ctrl-C, or because ansible-playbook was ended or killed."""

    def __init__(self) -> None:
        """Catch the signals that Ansible passes on to the task, so that the current case is finished."""
        self.asked = False
        self._parent = os.getppid()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)

    def _stop(self, *_what: object) -> None:
        self.asked = True

    def __call__(self) -> bool:
        """Return whether to stop after the current case."""
        return self.asked or os.getppid() != self._parent


def planned(request: MatrixRequest) -> tuple[cases.Matrix, list[cases.Case]]:
    """Return the matrix and its cases. Raises CollectionError."""
    matrix = cases.load(request.matrix, request.knowledge_dirs)
    return matrix, _cases(request, matrix)


def _cases(request: MatrixRequest, matrix: cases.Matrix, done: t.Container[str] = ()) -> list[cases.Case]:
    def made(overrides: t.Mapping[str, t.Any]) -> Plain:
        return launch_plan(matrix.profile, request.cluster, overrides, request.knowledge_dirs)

    return cases.planned(matrix, made, request.overrides, done)


@contextlib.contextmanager
def restoring(
    journal: Journal, matrix: cases.Matrix, options: t.Sequence[str], platform: Plain, engines: t.Mapping[str, Plain]
) -> t.Iterator[Playbooks]:
    """Give the steps of a run. If it fails, what served before the matrix is served again, whoever stopped serving it.

    A journal that someone has edited lacks what any of a run's parts needs: that is one error with the journal's name.
    """
    steps = Playbooks(journal.folder, matrix, options, platform, journal.lock, engines)
    try:
        yield steps
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, CollectionError) as exc:
        back = steps.restore()
        more = "" if back.ok else f" What was served before could not be restored: {back.message}"
        if isinstance(exc, CollectionError):
            at = f"{journal.path}: " if isinstance(exc, knowledge.KnowledgeError) else ""  # a row made of its entries
            raise type(exc)(f"{at}{exc}{more}") from exc
        raise CollectionError(
            f"{journal.path}: an entry is not as it was written ({type(exc).__name__}: {foreign.line(str(exc), 200)}). Restore the file, "
            f"delete that line (its case is measured again), or choose another dgxspark_matrix_dir.{more}"
        ) from exc


def measure(
    request: MatrixRequest, options: t.Sequence[str], say: t.Callable[[str], None], page: t.Callable[[Plain], str]
) -> Plain:
    """Measure the remaining cases. Returns the driver's result with `page`, `log`, `rows`, and `table` for a terminal.

    page: makes the HTML page of the results.
    """
    matrix = cases.load(request.matrix, request.knowledge_dirs)
    folder = pathlib.Path(request.folder)
    overlay = pathlib.Path(request.rows_to)
    written = overlay / "evidence" / f"matrix-{matrix.id}.yml"
    base = find_profile(matrix.profile, request.knowledge_dirs)
    stopping = Stopping()
    journal = Journal(folder, later=True)
    engines = known.engines(request.knowledge_dirs)
    with contextlib.closing(journal), restoring(journal, matrix, options, _platform(request), engines) as steps:
        journal.read()
        # Its own rows may block all cases by now; still show its results and restore what served before.
        found = _cases(request, matrix, journal.done)
        journal.begin(driver.head(matrix, found), accept=request.accept_changed)

        def tell(text: str) -> None:
            with (folder / SAID).open("a", encoding="utf-8") as file:
                file.write(f"{text}\n")
            if not stopping():  # nobody reads Ansible's output any more
                say(text)

        def recorded() -> None:
            own = rows.rows_of(found, journal.done, matrix.id, request.image)
            made = results.of_journal(journal.entries)
            if own:
                rows.write(written, "evidence", {"entries": own})
            if won := rows.profile_of(matrix.id, base, found, made["winners"]):
                rows.write(overlay / "model_profiles" / f"{won['id']}.yml", "profile", won)
            _write(folder / PAGE, page(made))
            _write(folder / LOG, report.markdown(made))
            if request.share and own:
                clean = rows.shared(own, [*request.names, socket.gethostname(), socket.getfqdn(), getpass.getuser()])
                _write(pathlib.Path(request.share), yaml.safe_dump({"entries": clean}, sort_keys=False, width=120))

        recorded()
        bounds = driver.Bounds(hours=request.hours, stopping=stopping, say=tell)
        result = driver.run(matrix, found, journal, steps, bounds, request.knowledge_dirs, recorded)
        made = results.of_journal(journal.entries)
    paths = {"page": str(folder / PAGE), "log": str(folder / LOG), "rows": str(written)}
    # Lets the owner serve by shape: the winners are variants of an owner's profile.
    paths |= {"profile": f"{base['id']}-{matrix.id}"} if made["winners"] else {}
    return {**result, **paths, "table": report.table(made, result, paths)}


def _platform(request: MatrixRequest) -> dict[str, str]:
    """Return the nodes' versions, all values if they differ, overridden by what the owner states."""
    seen = {key: sorted({str(each[key]) for each in request.versions if each.get(key)}) for key in ("driver", "kernel")}
    told = {
        key: str(value)
        for key, value in (request.cluster.get("platform") or {}).items()
        if key in ("driver", "kernel", "nccl")
    }
    return {key: ", ".join(values) for key, values in seen.items() if values} | told


def _write(path: pathlib.Path, text: str) -> None:
    node_files.write(str(path.absolute()), text.encode(), 0o644)
