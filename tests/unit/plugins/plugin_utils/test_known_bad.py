"""Known-bad versions: which builds and boot parameters they mean, and that what is disputed is said."""

from __future__ import annotations

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.known_bad import platform_findings

BAD = list(knowledge.load("versions").values())


def found(**platform: str) -> dict[str, str]:
    return {each.id.removeprefix("platform."): each.severity for each in platform_findings(platform, BAD)[0]}


@pytest.mark.parametrize(
    ("kernel", "cmdline", "said"),
    [
        ("7.0.0-1019-nvidia", "quiet", {"kernel-7.0.0-1019": "error"}),
        ("7.0.0-1019-nvidia-64k", "quiet", {"kernel-7.0.0-1019": "error", "kernel-64k-pages": "info"}),
        ("7.0.0-31-generic", "", {"kernel-7.0.0-1019": "error"}),
        ("7.0.0-1019-nvidia", "ro kho=off", {}),
        ("7.0.0-11019-nvidia", "", {"kernel-7.0-kho": "warning"}),
        ("7.0.0-38-generic", "", {"kernel-7.0-kho": "warning"}),
        ("7.0.0-38-generic", "kho=off", {}),
        ("6.17.0-1032-nvidia", "quiet", {}),
        ("6.17.0-1032-nvidia", "kho=off", {"kernel-6.17-kho-off": "info"}),
        ("7.1.0-1-nvidia", "", {}),
    ],
)
def test_a_kernel_is_judged_by_build_and_command_line(kernel: str, cmdline: str, said: dict[str, str]) -> None:
    assert found(kernel=kernel, cmdline=cmdline) == said


@pytest.mark.parametrize(
    ("driver", "said"),
    [("580.178.04", {}), ("590.48.01", {"driver-590": "warning"}), ("610.43.02", {"driver-newer-branch": "info"})],
)
def test_a_driver_is_judged_by_its_branch(driver: str, said: dict[str, str]) -> None:
    assert found(driver=driver) == said


def test_a_node_s_own_nccl_may_be_another_build_than_the_wheel() -> None:
    assert not found(nccl="2.28.9-1")


def test_what_is_disputed_is_said() -> None:
    (finding,) = platform_findings({"kernel": "6.17.0-1032-nvidia", "cmdline": "kho=off"}, BAD)[0]
    assert "Disputed: Others have kho=off" in finding.message


def test_an_entry_that_names_single_builds_says_why() -> None:
    assert not [each["id"] for each in BAD if ("==" in each["versions"]) and not each.get("only")]
