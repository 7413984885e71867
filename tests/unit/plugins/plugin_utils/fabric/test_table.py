"""What a fabric's plan says of nodes that it cannot change."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.table import refusals

BUSY = {"severity": "error", "subject": "p0f0v0", "message": "it is in use.", "remedy": "Stop the pod."}


def test_a_refusal_of_several_hosts_is_one_sentence_that_names_them() -> None:
    warned = {**BUSY, "severity": "warning"}
    other = {**BUSY, "subject": "p0f1v0", "remedy": ""}
    assert refusals({"spark1": [BUSY, BUSY], "spark2": [BUSY, other], "spark3": [warned]}) == [
        "spark1, spark2: p0f0v0: it is in use. Stop the pod.",
        "spark2: p0f1v0: it is in use.",
    ]
    assert refusals({}) == []
