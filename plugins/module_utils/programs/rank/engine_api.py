# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the supervisor asks the engine on its host: whether it answers, makes tokens, and works. Lies beside it in the container."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pathlib
import typing as t

# What an engine that does not answer as it should raises.
WRONG = (OSError, ValueError, LookupError, TypeError, AttributeError, http.client.HTTPException)
MOST = 16 << 20  # bytes of an answer; the largest are pages of metrics


class Api:
    """The engine's API. port: on this host; metrics: what changes with every step of its work; hang_s: how long a token may take."""

    def __init__(self, port: int, metrics: t.Sequence[str], hang_s: float) -> None:
        self.port, self.metrics, self.hang_s = port, tuple(metrics), hang_s

    def ask(self, method: str, path: str, body: t.Any = None, timeout: float = 10) -> t.Any:
        """Return an answer, of JSON or as text. Raises one of WRONG if there is none, or another status than 200."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            headers = {"Content-Type": "application/json"}
            if place := os.environ.get("DGXSPARK_API_KEY_FILE"):  # through the proxy (auth_proxy.py), like every client
                headers["Authorization"] = f"Bearer {pathlib.Path(place).read_text(encoding='ascii').strip()}"
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            text = answer.read(MOST)
            if answer.status != 200:
                raise OSError(f"{method} {path}: {answer.status} {text[:200].decode(errors='replace')}")
            is_json = text.strip() and "json" in answer.headers.get("Content-Type", "")
            return json.loads(text) if is_json else text.decode(errors="replace")
        finally:
            connection.close()

    def canary(self) -> str:
        """Request a few tokens and return them. Raises one of WRONG if none come."""
        model = self.ask("GET", "/v1/models")["data"][0]["id"]
        body = {"model": model, "prompt": "1 2 3 4 5", "max_tokens": 4, "temperature": 0}
        said = self.ask("POST", "/v1/completions", body, timeout=self.hang_s)
        if not said.get("usage", {}).get("completion_tokens") and not said["choices"][0]["text"]:
            raise ValueError("the answer has no token")
        return str(said["choices"][0]["text"])

    def work(self) -> list[str]:
        """Return what the engine's metrics say of its work; empty if they say nothing."""
        if self.metrics:
            with contextlib.suppress(*WRONG):
                return [line for line in self.ask("GET", "/metrics").splitlines() if line.startswith(self.metrics)]
        return []
