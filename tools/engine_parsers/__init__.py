"""The real argument parsers of SGLang and vLLM, run without torch and without a GPU (see README.md beside this file)."""

from __future__ import annotations

import atexit
import importlib.util
import pathlib
import shutil
import sys
import tempfile


def _own() -> bool:
    try:
        return importlib.util.find_spec("ansible_collections.dgxspark.cluster.plugins") is not None
    except ImportError:
        return False


if not _own():  # a plain checkout, outside the tests
    _place = pathlib.Path(tempfile.mkdtemp(prefix="dgxspark-tools-"))
    atexit.register(shutil.rmtree, _place, ignore_errors=True)
    (_place / "ansible_collections" / "dgxspark").mkdir(parents=True)
    (_place / "ansible_collections" / "dgxspark" / "cluster").symlink_to(pathlib.Path(__file__).resolve().parents[2])
    sys.path.insert(0, str(_place))
