"""The faults of benchmarks/faults.yml fit the checkout: each one's text stands once in its file, and the tests near it are there."""

from __future__ import annotations

import importlib.util
import sys

from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT


def test_every_fault_fits_the_checkout() -> None:
    spec = importlib.util.spec_from_file_location("faults", ROOT / "benchmarks" / "faults.py")
    assert spec and spec.loader
    faults = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = faults  # its dataclass looks its own module up
    spec.loader.exec_module(faults)
    found = faults.load()
    assert found
    assert faults.misfits(found) == []
