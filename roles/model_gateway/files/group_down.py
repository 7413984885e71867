# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""LiteLLM's answer for a model none of whose groups can be reached: 503, rather than 500 or 429. Read by the gateway at its start."""

from __future__ import annotations

import typing as t

import httpx
from fastapi import HTTPException
from litellm.integrations.custom_logger import CustomLogger

MOST = 20  # causes that are followed
AGAIN_S = "30"


class GroupDown(CustomLogger):
    """Translate failures to connect. What an engine itself answers passes as it is."""

    async def async_post_call_failure_hook(
        self, request_data: t.Any, original_exception: t.Any, user_api_key_dict: t.Any, traceback_str: t.Any = None
    ) -> HTTPException | None:
        """Return what the client gets instead; None leaves the answer as it is."""
        if not unreachable(original_exception):
            return None
        name = str(request_data.get("model", ""))[:200]
        said = f"The model {name!r} is not available: none of its groups can be reached. Try again in {AGAIN_S} s."
        # The Anthropic endpoint takes the status of the exception itself, not of what is returned here.
        original_exception.status_code = 503
        original_exception.message = said
        return HTTPException(status_code=503, detail=said, headers={"Retry-After": AGAIN_S})


def unreachable(error: BaseException | None) -> bool:
    """Whether one of the causes is a failed connection, or that every group of the name has just failed."""
    for _cause in range(MOST):
        if error is None:
            return False
        if isinstance(error, (OSError, httpx.TransportError)) or type(error).__name__.startswith(
            "RouterRateLimitError"
        ):
            return True
        error = error.__cause__ or error.__context__
    return False


handler = GroupDown()
