"""The real argument parsers of SGLang and vLLM, run without torch and without a GPU (see README.md beside this file)."""

from __future__ import annotations

import own_collection  # noqa: F401
