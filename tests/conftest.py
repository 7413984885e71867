"""Let a plain checkout be imported as ansible_collections.dgxspark.cluster, as an installed copy is; tell skipped from passed."""

from __future__ import annotations

import os
import pathlib
import runpy

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
if ROOT.parent.name != "dgxspark":  # in ansible-test's own tree the names resolve already
    runpy.run_path(str(ROOT / "tools" / "own_collection.py"))

# As in ansible.cfg, for plays that write their own: without it each module costs five processes. Stage unit-2.19 goes without.
os.environ.setdefault("ANSIBLE_PIPELINING", "1")

# A busy machine is no failure: how long an example takes is the benchmarks' business.
try:
    import hypothesis
except ImportError:  # the lab and package stages have no properties
    pass
else:
    hypothesis.settings.register_profile("dgxspark", deadline=None)
    hypothesis.settings.load_profile("dgxspark")


NOT_RUN = 77  # tools/run_tests.py reports a stage that ends with it as not run


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Where every test was skipped, nothing was tested: the run has not passed."""
    told = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus == pytest.ExitCode.OK and told and not told.stats.get("passed") and told.stats.get("skipped"):
        session.exitstatus = NOT_RUN
