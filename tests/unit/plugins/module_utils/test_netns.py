"""Network namespaces: which ones exist, and a look into a real one where that is allowed."""

from __future__ import annotations

import os
import pathlib
import subprocess
import time
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.netns import entering, other_namespaces
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.tests.unit.fakes import FakeNode


def run(argv: t.Sequence[str]) -> tuple[int, str, str]:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_live_ones_come_first_and_our_own_is_not_among_them(tmp_path: pathlib.Path) -> None:
    node = FakeNode(tmp_path)
    node.add_namespace("a-dead", pids=0)
    node.add_namespace("b-live", pids=2)
    node.add_namespace("c-nameless", pids=1, named=False)
    (pathlib.Path(node.netns) / "d-leftover").symlink_to("/proc/self/status")  # on another file system: none any more
    found = other_namespaces(node.proc, node.netns)
    assert [(pathlib.Path(n.path).name, n.pids) for n in found[-2:]] == [("b-live", 2), ("a-dead", 0)]
    assert len(found) == 3 and found[0].pids == 1 and found[0].path.startswith(node.proc)


def test_a_namespace_mounted_elsewhere_is_found(tmp_path: pathlib.Path) -> None:
    node = FakeNode(tmp_path)
    node.add_namespace("engine", pids=0, named=False)
    (tmp_path / "proc/self/mountinfo").write_text(
        "22 1 254:1 / / rw - ext4 /dev/vda rw\n"
        f"30 22 0:4 net:[4026532200] {tmp_path}/nsfs/engine rw shared:9 - nsfs nsfs rw\n"
        f"31 22 0:4 mnt:[4026532201] {tmp_path}/nsfs/host rw - nsfs nsfs rw\n"
    )
    assert [n.path for n in other_namespaces(node.proc, node.netns)] == [f"{tmp_path}/nsfs/engine"]


@pytest.fixture
def namespace() -> t.Iterator[str]:
    """A real, empty namespace."""
    name = f"dgxspark-test-{os.getpid()}"
    if os.geteuid() != 0 or run(["ip", "netns", "add", name])[0] != 0:
        pytest.skip("not run: no network namespace can be made here")
    try:
        yield f"/run/netns/{name}"
    finally:
        run(["ip", "netns", "del", name])


def test_a_look_into_a_real_namespace(namespace: str) -> None:
    mounts = pathlib.Path("/proc/self/mountinfo").read_text()
    here = sorted(pathlib.Path("/sys/class/net").iterdir())
    seen, output = entering(run)(
        namespace, lambda sysfs, do, proc: [sysfs.names("class/net"), do(["ip", "-j", "link"])[1]]
    )
    assert seen == ["lo"] and '"lo"' in output and "eth0" not in output
    # Nothing is left mounted, and we are back in our own namespace.
    assert pathlib.Path("/proc/self/mountinfo").read_text() == mounts
    assert sorted(pathlib.Path("/sys/class/net").iterdir()) == here


def test_what_goes_wrong_inside_is_one_clear_error(namespace: str) -> None:
    def wrong(*_arguments: t.Any) -> None:
        raise CollectionError("it is so")

    with pytest.raises(CollectionError, match="it is so"):
        entering(run)(namespace, wrong)
    with pytest.raises(CollectionError, match="/nonexistent"):
        entering(run)("/nonexistent", lambda *_arguments: 1)
    with pytest.raises(CollectionError, match="no complete answer"):
        entering(run, 0.2)(namespace, lambda *_arguments: time.sleep(20))
    with pytest.raises(CollectionError, match="unexpected"):
        entering(run)(namespace, lambda *_arguments: 1 / 0)
