"""Groups side by side as the playbook serves them: one run of serve for each, in order, and none after one that failed."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.action import serving_groups
from ansible_collections.dgxspark.cluster.tests.unit import actions

Plain = dict[str, t.Any]
HOSTS = [f"spark{n}" for n in range(1, 9)]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Plain]]:
    """Return what was run: the limit, and the variables. spark5 is in a group that does not come up."""
    seen: list[tuple[str, Plain]] = []

    def run(command: list[str], log: pathlib.Path, _limit: float) -> tuple[int, bool]:
        assert command[-1] == "dgxspark.cluster.serve" and log.suffix == ".log"
        seen.append((command[command.index("-l") + 1], json.loads(command[command.index("-e") + 1])))
        return int("spark5" in seen[-1][0]), False

    monkeypatch.setattr(serving_groups.children, "run", run)
    monkeypatch.setattr(serving_groups.children, "options", list)
    return seen


def serve(folder: pathlib.Path, check: bool = False, **more: t.Any) -> Plain:
    given = {"profile": "qwen3.8-flash-next-nvfp4-vllm", "hosts": HOSTS, "folder": str(folder / "groups"), **more}
    return actions.run("serving_groups", check=check, **given)


def test_one_after_the_other_until_one_fails(tmp_path: pathlib.Path, ran: list[tuple[str, Plain]]) -> None:
    said = serve(tmp_path, groups=4, overrides={"instance": {"name": "coder"}})
    assert said["failed"] and "coder-3 on spark5, spark6" in said["msg"]
    assert [limit for limit, _variables in ran] == ["spark1,spark2", "spark3,spark4", "spark5,spark6"]
    assert [variables["k8s_dgx_overrides"]["instance"]["name"] for _limit, variables in ran] == [
        "coder-1",
        "coder-2",
        "coder-3",
    ]


def test_check_mode_only_says_which_division_suits(tmp_path: pathlib.Path, ran: list[tuple[str, Plain]]) -> None:
    many, one = (serve(tmp_path, check=True, traffic_shape=shape) for shape in ("throughput", "single"))
    assert (len(many["groups"]), len(one["groups"])) == (4, 1)
    assert one["groups"][0] == {"name": "default", "hosts": HOSTS}
    assert any(line.endswith("<- chosen") for line in many["table"])
    assert not ran and not list(tmp_path.iterdir())


def test_a_division_that_would_not_run_is_refused_before_anything_stops(
    tmp_path: pathlib.Path, ran: list[tuple[str, Plain]]
) -> None:
    said = serve(tmp_path, groups=8)
    assert said["failed"] and "8 groups of 1 Sparks: Weights" in said["msg"]
    assert "3 equal groups of 8 Sparks" in serve(tmp_path, groups=3)["msg"]
    assert not ran
