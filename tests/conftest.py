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

# What a test asks the hub is answered by a stand-in: plans of profiles without facts ask nobody else.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# A busy machine is no failure: how long an example takes is the benchmarks' business.
try:
    import hypothesis
except ImportError:  # the lab and package stages have no properties
    pass
else:
    from ansible_collections.dgxspark.cluster.tests.support.properties import examples

    hypothesis.settings.register_profile("dgxspark", deadline=None, max_examples=examples(100))
    hypothesis.settings.load_profile("dgxspark")


# Where tools/run_tests.py looks for what failed first.
FIRST_FAILURE = pathlib.Path(os.environ.get("DGXSPARK_FIRST_FAILURE", os.devnull))
LINES = 40  # of a failure that are shown at once


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Say what failed first while the other tests still run."""
    if report.failed and not FIRST_FAILURE.exists():
        said = [report.nodeid, *report.longreprtext.splitlines()[-LINES:]]
        whole = FIRST_FAILURE.with_suffix(".new")
        whole.write_text("".join(f"    {line}\n" for line in said), encoding="utf-8")
        whole.replace(FIRST_FAILURE)


NOT_RUN = 77  # tools/run_tests.py reports a stage that ends with it as not run


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Where every test was skipped, nothing was tested: the run has not passed."""
    told = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus == pytest.ExitCode.OK and told and not told.stats.get("passed") and told.stats.get("skipped"):
        session.exitstatus = NOT_RUN
