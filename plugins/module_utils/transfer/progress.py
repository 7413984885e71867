# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The progress of a download or a copy, for a caller that waits elsewhere."""

from __future__ import annotations

import json
import pathlib
import threading
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils import node_files


class Progress:
    """Writes the progress of a run to a file, once a second: `{phase, bytes, total}`."""

    def __init__(self, path: str | None) -> None:
        self.path = path
        self.phase = "begin"
        self.total = 0
        self.bytes: t.Callable[[], int] = lambda: 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Progress:
        if self.path:
            self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._over.set()
        if self.path:
            self._thread.join()
            pathlib.Path(self.path).unlink(missing_ok=True)

    def _run(self) -> None:
        while not self._over.wait(1.0):
            told = {"phase": self.phase, "bytes": self.bytes(), "total": self.total}
            node_files.write(str(self.path), json.dumps(told).encode(), 0o644)
