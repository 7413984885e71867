"""Make a plain checkout importable as ansible_collections.dgxspark.cluster, like an installed copy: import or run this file first."""

from __future__ import annotations

import atexit
import pathlib
import shutil
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
NAME = pathlib.Path("ansible_collections", "dgxspark", "cluster")

if not any((pathlib.Path(path) / NAME).is_dir() for path in sys.path):
    _links = pathlib.Path(tempfile.mkdtemp(prefix="dgxspark-checkout-"))
    atexit.register(shutil.rmtree, _links, ignore_errors=True)
    (_links / NAME).parent.mkdir(parents=True)
    (_links / NAME).symlink_to(ROOT)
    sys.path.insert(0, str(_links))
