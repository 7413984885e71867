"""The module from outside: a fake node before and after, in check mode and for real."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import json
import os
import pathlib
import stat
import typing as t

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.dgxspark.cluster.plugins.module_utils import facts
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import persist, turn, vfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.fabric import restore
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    Node,
    PlannedFunction,
    PlannedVf,
    from_plain,
    to_plain,
)
from ansible_collections.dgxspark.cluster.plugins.modules import sriov_vf
from ansible_collections.dgxspark.cluster.tests.unit.fake_host import FakeHost
from ansible_collections.dgxspark.cluster.tests.unit.fakes import Device, FakeNode, lab, spark

Run = t.Callable[..., dict[str, t.Any]]


def plan(node: FakeNode, count: int = 2) -> list[dict[str, t.Any]]:
    functions = []
    for number, pci in enumerate(node.vf_pattern):
        planned = [
            PlannedVf(
                i, "spare", f"02:d6:01:00:0{number}:0{i}", f"10.100.{number}{i}.1", 24, f"10.100.{number}{i}.0/24", 9000
            )
            for i in range(count)
        ]
        functions.append(
            PlannedFunction(f"p0f{number}", 0, number, "switch", node.pf(pci).name, pci, 9000, tuple(planned))
        )
    return t.cast(list[dict[str, t.Any]], to_plain(functions))


@pytest.fixture(params=[spark, lab], ids=["spark", "lab"])
def node(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> FakeNode:
    made = request.param(tmp_path, vfs=0, **({"ports": [0]} if request.param is spark else {}))
    made.units[persist.UNIT] = ("disabled", "inactive")
    return t.cast(FakeNode, made)


@pytest.fixture
def host(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    fake = FakeHost(node)
    monkeypatch.setattr(restore, "KernelHost", lambda *_roots: fake)
    monkeypatch.setattr(sriov_vf, "module_runner", lambda _module: node.run)
    monkeypatch.setattr(facts, "entering", lambda _run: node.enter)
    monkeypatch.setattr(facts, "SETTLE_S", 0.0)
    return fake


@pytest.fixture
def run(node: FakeNode, host: FakeHost, capfd: pytest.CaptureFixture[str]) -> Run:
    def call(
        functions: list[dict[str, t.Any]] | None = None, check: bool = False, **arguments: t.Any
    ) -> dict[str, t.Any]:
        given = {
            "functions": plan(node) if functions is None else functions,
            "device_ids": node.device_ids,
            "sysfs_root": node.sysfs,
            **node.roots,
            **arguments,
            "_ansible_check_mode": check,
        }
        with patch_module_args(given), pytest.raises(SystemExit):
            sriov_vf.main()
        return t.cast(dict[str, t.Any], json.loads(capfd.readouterr().out))

    return call


def tree(node: FakeNode) -> dict[str, str]:
    """Every file that a node has on disk (without the fake kernel's state), with mode and content."""
    return {
        str(
            path.relative_to(node.root)
        ): f"{stat.S_IMODE(path.stat().st_mode):o} {path.read_text(errors='replace').strip()}"
        for folder in ("etc", "usr", "var", "run", "sys/class/net", "proc/sys")
        for path in sorted((node.root / folder).rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def test_check_mode_tells_exactly_what_a_run_changes(node: FakeNode, host: FakeHost, run: Run) -> None:
    before = tree(node)
    foretold = run(check=True)
    assert foretold["changed"] and host.changes() == [] and tree(node) == before
    done = run()
    assert done["changed"] and done["changes"] == foretold["changes"] and done["diff"] == foretold["diff"]
    assert [f["numvfs"] for f in done["roce"]["functions"]] == [2, 2]
    again = run()
    assert not again["changed"] and again["changes"] == []


def test_a_second_run_does_nothing(node: FakeNode, host: FakeHost, run: Run) -> None:
    run()
    host.changes()
    files = tree(node)
    second = run()
    assert (second["changed"], second["changes"], host.changes()) == (False, [], [])
    assert tree(node) == files


def test_what_it_installs_is_what_the_controller_expects(node: FakeNode, run: Run) -> None:
    run()
    for path in persist.PATHS:
        assert (node.root / path.lstrip("/")).is_file()
    assert stat.S_IMODE((node.root / persist.JOURNAL.lstrip("/")).stat().st_mode) == 0o600
    assert node.units[persist.UNIT][0] == "enabled"


@pytest.mark.parametrize("state", ["present", "absent"])
def test_a_program_that_an_earlier_version_installed_is_replaced_or_removed(
    node: FakeNode, run: Run, state: str
) -> None:
    """It was one file of Python, at the same path and started by the same units."""
    run()
    files = tree(node)
    program = node.root / persist.SCRIPT.lstrip("/")
    program.write_text("#!/usr/bin/python3 -IS\n# the restorer of an earlier version\n")
    foretold = run(state=state, check=True)
    done = run(state=state)
    assert done["changes"] == foretold["changes"] and persist.SCRIPT in {c["subject"] for c in done["changes"]}
    if state == "present":
        assert [c["subject"] for c in done["changes"]] == [persist.SCRIPT], "its units are the same"
        assert tree(node) == files
    else:
        assert not program.exists()


def test_absent_brings_everything_back(node: FakeNode, run: Run) -> None:
    before, devices = tree(node), {d.name: dataclasses.replace(d) for d in node.devices.values()}
    run()
    foretold = run(state="absent", check=True)
    done = run(state="absent")
    assert done["changed"] and done["changes"] == foretold["changes"]
    assert tree(node) == before
    assert {name: (d.mtu, d.up, d.mac) for name, d in node.devices.items()} == {
        name: (d.mtu, d.up, d.mac) for name, d in devices.items()
    }
    assert not (node.root / "etc/dgxspark").exists() and not (node.root / "var/lib/dgxspark").exists()
    again = run(state="absent")
    assert not again["changed"]


def test_absent_keeps_vfs_that_were_there_before(node: FakeNode, run: Run) -> None:
    pci = next(iter(node.vf_pattern))
    node.make_vfs(pci, 2)
    macs = [d.mac for d in node.devices.values() if d.pci in dict(node._vfs(pci)).values()]
    run()
    assert [d.mac for d in node.devices.values() if d.pci in dict(node._vfs(pci)).values()] != macs
    run(state="absent")
    assert [d.mac for d in node.devices.values() if d.pci in dict(node._vfs(pci)).values()] == macs
    assert [len(table) for table in node.vf_tables.values()] == [2, 0]


def test_a_host_that_moves_in_the_group_and_back_takes_its_old_identity_and_leaves_none(
    node: FakeNode, host: FakeHost, run: Run
) -> None:
    """Reordered, removed, added again: the MACs follow the host's position, and the state before the first run comes back."""
    before, first = tree(node), plan(node)
    moved = json.loads(json.dumps(first).replace("02:d6:01:00", "02:d6:00:02"))
    for functions in (first, moved, first):
        assert run(functions)["changed"]
        macs = {vf["mac"] for function in functions for vf in function["vfs"]}
        assert macs <= {device.mac for device in node.devices.values()}
        assert not run(functions)["changed"]
    run(state="absent")
    assert tree(node) == before


def test_a_function_that_is_planned_no_longer_gives_its_vfs_back(node: FakeNode, host: FakeHost, run: Run) -> None:
    """A ring's second port, when a switch replaces the ring: its old VFs must not stay beside the planned ones."""
    run()
    kept, gone = list(node.vf_pattern)
    foretold = run(plan(node)[:1], check=True)
    done = run(plan(node)[:1])
    assert done["changed"] and done["changes"] == foretold["changes"]
    assert {"what": "VFs", "before": 2, "after": 0}.items() <= next(
        c for c in done["changes"] if c["what"] == "VFs"
    ).items()
    assert {pci: len(list(node._vfs(pci))) for pci in (kept, gone)} == {kept: 2, gone: 0}
    assert node.pf(gone).mtu == 1500
    journal = json.loads((node.root / persist.JOURNAL.lstrip("/")).read_text())
    assert [entry["pci"] for entry in journal["functions"]] == [kept]
    again = run(plan(node)[:1])
    assert not again["changed"]


def test_a_function_that_is_planned_no_longer_keeps_what_a_pod_has(node: FakeNode, host: FakeHost, run: Run) -> None:
    run()
    _kept, gone = list(node.vf_pattern)
    node.add_namespace("cni-1", pids=2)
    node.move(node.pf(dict(node._vfs(gone))[0]).name, "cni-1", "net1")
    host.changes()
    files = tree(node)
    for check in (True, False):
        refused = run(plan(node)[:1], check=check)
        assert refused["failed"] and "cni-1" in refused["msg"] and "p0f1v0" in refused["msg"]
    assert host.changes() == [] and tree(node) == files


def damage(node: FakeNode, how: str) -> None:
    """Do to the record of the state before what a disk or an owner may do."""
    record = node.root / persist.JOURNAL.lstrip("/")
    text = record.read_text()
    if how == "gone":
        record.unlink()
    else:
        record.write_bytes({"empty": b"", "half": text[: len(text) // 2].encode(), "zeros": bytes(len(text))}[how])


@pytest.mark.parametrize(
    "how", ["half", *(pytest.param(how, marks=pytest.mark.more) for how in ("empty", "zeros", "gone"))]
)
def test_a_damaged_record_is_noticed_before_anything_hangs_on_it(
    node: FakeNode, host: FakeHost, run: Run, how: str
) -> None:
    """`plan` and `site` see it in the facts, though nothing else differs."""
    run()
    damage(node, how)
    seen = from_plain(Node, run(check=True)["roce"]) if how == "gone" else sriov_node(node)
    planned = [from_plain(PlannedFunction, function) for function in plan(node)]
    found = vfs.refusals(seen, planned)
    assert [(f.id, f.severity) for f in found] == [
        ("sriov.record-missing", "warning") if how == "gone" else ("sriov.record-damaged", "error")
    ]
    assert "MTU 1500" in found[0].remedy
    host.changes()
    if how != "gone":
        for state in ("present", "absent"):
            refused = run(state=state)
            assert refused["failed"] and persist.JOURNAL in refused["msg"] and "mv " in refused["msg"]
    assert host.changes() == []


def sriov_node(node: FakeNode) -> Node:
    """What roce_info reads."""
    return facts.read_node(Sysfs(node.sysfs), node.run, device_ids=node.device_ids, enter=node.enter, **node.roots)


@pytest.mark.parametrize(
    "anew", ["again", *(pytest.param(anew, marks=pytest.mark.more) for anew in ("absent", "without our files"))]
)
def test_without_its_record_a_node_gets_the_kernels_defaults_and_never_our_state(
    node: FakeNode, host: FakeHost, run: Run, anew: str
) -> None:
    for key in vfs.ARP:
        node._text(f"proc/sys/net/ipv4/conf/default/{key}", "0\n")
    before = tree(node)
    run()
    damage(node, "gone")
    if anew == "without our files":
        (node.root / persist.CONFIG.lstrip("/")).unlink()
    if anew != "absent":
        assert run(plan(node, 1))["changed"]
    done = run(state="absent")
    assert done["changed"] and [f["numvfs"] for f in done["roce"]["functions"]] == [0, 0]
    assert {(f["netdev"]["mtu"], *f["netdev"]["arp"].values()) for f in done["roce"]["functions"]} == {(1500, 0, 0, 0)}
    assert not any(node.pf(pci).up for pci in node.vf_pattern)
    left = {path: text for path, text in tree(node).items() if not path.endswith(("operstate", "carrier", "speed"))}
    assert left == {path: before[path] for path in left}
    run()
    noted = json.loads((node.root / persist.JOURNAL.lstrip("/")).read_text())["functions"]
    assert {(entry["mtu"], entry["up"], entry["vf_count"]) for entry in noted} == {(1500, False, 0)}


@pytest.mark.more
def test_a_function_that_someone_else_configures_stays_up_without_its_record(
    node: FakeNode, host: FakeHost, run: Run
) -> None:
    run()
    damage(node, "gone")
    used, unused = (node.pf(pci) for pci in node.vf_pattern)
    used.ipv4 = ["169.254.3.4/16"]
    node.sync()
    run(state="absent")
    assert (used.up, unused.up) == (True, False)


def test_absent_on_a_bare_node_is_nothing(node: FakeNode, host: FakeHost, run: Run) -> None:
    done = run(state="absent")
    assert not done["changed"] and host.changes() == []


def test_a_run_over_a_serving_node_changes_nothing(node: FakeNode, host: FakeHost, run: Run) -> None:
    run()
    name = node.pf(dict(node._vfs(next(iter(node.vf_pattern))))[0]).name
    node.add_namespace("cni-1", pids=2)
    node.move(name, "cni-1", "net1")
    host.changes()
    second = run()
    assert not second["changed"] and host.changes() == []
    assert second["roce"]["functions"][0]["vfs"][0]["place"]["state"] == "pod"


@pytest.mark.parametrize("arguments", [{"count": 1}, {"count": 3}, {"state": "absent"}], ids=str)
def test_a_vf_in_a_live_pod_is_never_taken_away(
    node: FakeNode, host: FakeHost, run: Run, arguments: dict[str, t.Any]
) -> None:
    run()
    name = node.pf(dict(node._vfs(next(iter(node.vf_pattern))))[0]).name
    node.add_namespace("cni-1", pids=2)
    node.move(name, "cni-1", "net1")
    host.changes()
    files = tree(node)
    functions = plan(node, arguments.get("count", 2))
    state = {key: value for key, value in arguments.items() if key == "state"}
    for check in (True, False):
        refused = run(functions, check=check, **state)
        assert refused["failed"] and "cni-1" in refused["msg"] and "p0f0v0" in refused["msg"]
        assert refused["findings"][0]["id"] == "sriov.in-use"
    assert host.changes() == [] and tree(node) == files
    assert "net1" in node.namespaces["cni-1"].devices


@pytest.mark.parametrize("arguments", [{"count": 1}, {"state": "absent"}], ids=str)
def test_a_vf_whose_device_is_open_is_never_taken_away(
    node: FakeNode, host: FakeHost, run: Run, arguments: dict[str, t.Any]
) -> None:
    """The kernel would wait for that process without end; `rdma resource` does not show it without a queue pair."""
    run()
    vf = dict(node._vfs(next(iter(node.vf_pattern))))[1]
    node.open_device(node.pf(vf).hca or "", "4711", "python3")
    host.changes()
    state = {key: value for key, value in arguments.items() if key == "state"}
    for check in (True, False):
        refused = run(plan(node, arguments.get("count", 2)), check=check, **state)
        assert refused["failed"] and "python3 (4711)" in refused["msg"] and "open" in refused["msg"]
        assert refused["findings"][0]["id"] == "sriov.in-use"
    assert host.changes() == []
    assert not run()["changed"], "a run that changes nothing passes"


def test_two_runs_at_once_take_turns_and_the_second_looks_again(
    node: FakeNode, host: FakeHost, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other run makes three VFs while this one waits: this one starts from there."""
    lock = node.root / "run/dgxspark-sriov.lock"
    file = lock.open("w")
    fcntl.flock(file, fcntl.LOCK_EX)
    file.write("a run from 192.0.2.9 (process 4711)")
    warned: list[str] = []
    monkeypatch.setattr(sriov_vf.AnsibleModule, "warn", lambda _module, text: warned.append(text))
    file.flush()
    sleep = host.sleep

    def ended(seconds: float) -> None:
        sleep(seconds)
        for pci in node.vf_pattern:
            node.make_vfs(pci, 3)
        lock.unlink(missing_ok=True)
        file.close()

    host.sleep = ended  # type: ignore[method-assign]
    done = run()
    assert "a run from 192.0.2.9 (process 4711)" in warned[0]
    assert ("p0f0", "VFs", 3, 2) in [(c["subject"], c["what"], c["before"], c["after"]) for c in done["changes"]]
    assert not lock.exists()


def test_a_run_that_is_cut_off_or_overtaken_changes_nothing(
    node: FakeNode, host: FakeHost, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = (
        {"id": by, "controller": by, "started": 1.0, "age": age, "by": by}
        for by, age in (("Alice", 60.0), ("Bob", 5.0))
    )
    assert run(plan(node, 1), run=newer)["changed"]
    host.changes()
    refused = run(run=older)
    assert refused["failed"] and "Bob" in refused["msg"] and host.changes() == []
    assert not run(plan(node, 1), run=older)["changed"], "nothing to do: it passes"
    monkeypatch.setattr(turn.Turn.__init__, "__defaults__", ("", lambda: False))
    assert "controller is gone" in run(run=newer)["msg"] and host.changes() == []


@pytest.mark.more
def test_an_owners_sysctl_that_is_repaired_is_named_with_its_file(
    node: FakeNode, host: FakeHost, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[str] = []
    monkeypatch.setattr(sriov_vf.AnsibleModule, "warn", lambda _module, text: warned.append(text))
    node._text(
        "etc/sysctl.d/99-mine.conf",
        "# arp_ignore\nnet.ipv4.conf.all.forwarding = 1\nnet.ipv4.conf.all.arp_ignore = 0\n",
    )
    node._text("etc/sysctl.d/50-same.conf", "net/ipv4/conf/all/arp_announce=2\n")
    run()
    assert "/etc/sysctl.d/99-mine.conf (line 3: net.ipv4.conf.all.arp_ignore=0)" in warned[-1]
    assert len(warned) == 1, "a file that says the same is no matter"
    run()
    assert len(warned) == 1, "nothing was repaired"


@pytest.mark.more
def test_a_failure_of_our_unit_is_forgotten_once_its_work_is_done(node: FakeNode, host: FakeHost, run: Run) -> None:
    """It failed at boot: the run that repairs what it could not do lets systemd forget that, and so does the removal."""
    run()
    failed = ["dgxspark-fabric.service", "dgxspark-fabric-vf@enp1s0f0v0.service"]
    command = host.command

    def systemctl(argv: t.Sequence[str], text: str = "", timeout: float = 60) -> tuple[int, str, str]:
        if list(argv[:2]) == ["systemctl", "reset-failed"]:
            failed.remove(argv[2])
        return command(argv, text, timeout)

    host.command = systemctl  # type: ignore[method-assign]
    node.run.on(
        ("systemctl", "list-units"),
        lambda _argv: (0, "".join(f"{unit} loaded failed failed x\n" for unit in failed), ""),
    )
    done = run()
    assert [c["subject"] for c in done["changes"]] == [
        "dgxspark-fabric.service",
        "dgxspark-fabric-vf@enp1s0f0v0.service",
    ]
    assert failed == [] and not run()["changed"]
    failed.append("dgxspark-fabric.service")
    assert run(state="absent")["changed"] and failed == []


def test_a_run_that_never_ends_is_named(node: FakeNode, host: FakeHost, run: Run) -> None:
    with (node.root / "run/dgxspark-sriov.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("a run from 192.0.2.9 (process 4711)")
        file.flush()
        assert run(check=True)["changed"], "check mode disturbs nobody and waits for nobody"
        waiting = run()
    assert waiting["waiting"] == {"who": "a run from 192.0.2.9 (process 4711)"} and not waiting["changed"]
    assert host.now < 20 and host.changes() == [], "a module whose controller is gone must not wait for long"


def test_absent_removes_what_a_killed_first_run_left(node: FakeNode, host: FakeHost, run: Run) -> None:
    before = tree(node)
    for path in ("var/lib/dgxspark/.fabric-before.json.dgxspark", "etc/dgxspark/.fabric.json.dgxspark"):
        (node.root / path).parent.mkdir(parents=True)
        (node.root / path).write_text("half")
    foretold = run(state="absent", check=True)
    done = run(state="absent")
    assert done["changed"] and done["changes"] == foretold["changes"]
    assert tree(node) == before
    assert not (node.root / "var/lib/dgxspark").exists() and not (node.root / "etc/dgxspark").exists()
    assert not run(state="absent")["changed"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_disk_that_refuses_is_told_and_leaves_nothing(
    node: FakeNode, host: FakeHost, run: Run, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    before = tree(node)
    fsync = os.fsync

    def refused(_descriptor: int) -> t.NoReturn:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refused)
    said = run()
    monkeypatch.setattr(os, "fsync", fsync)
    assert said["failed"] and {errno.ENOSPC: "full", errno.EROFS: "read-only"}[number] in said["msg"]
    assert "root" not in said["msg"].replace(str(node.root), "")
    assert tree(node) == before and not (node.root / "var/lib/dgxspark").exists()
    assert host.changes() == []


def test_vfs_that_the_kernel_does_not_take_back_are_one_sentence(node: FakeNode, host: FakeHost, run: Run) -> None:
    run()
    host.fail["sriov_numvfs"] = OSError(errno.EBUSY, os.strerror(errno.EBUSY))
    said = run(state="absent")
    assert said["failed"] and "busy" in said["msg"] and "run again" in said["msg"]
    host.fail.clear()
    assert run(state="absent")["changed"]


def test_rdma_s_exclusive_mode_is_named_before_anything_is_made(node: FakeNode, host: FakeHost, run: Run) -> None:
    node._text("sys/module/ib_core/parameters/netns_mode", "N\n")
    refused = run()
    assert refused["failed"] and refused["findings"][0]["id"] == "rdma.exclusive"
    assert "exclusive" in refused["msg"] and "rdma system set netns shared" in refused["msg"]
    assert host.changes() == []


def test_a_stranded_vf_is_named_then_freed(node: FakeNode, host: FakeHost, run: Run) -> None:
    run()
    name = node.pf(dict(node._vfs(next(iter(node.vf_pattern))))[0]).name
    node.add_namespace("cni-1", pids=0)
    node.move(name, "cni-1", "net1")
    refused = run()
    assert refused["failed"] and "sriov_roce_reset_stranded" in refused["msg"] and "cni-1" in refused["msg"]
    freed = run(reset_stranded=True)
    assert freed["changed"] and name in node.devices
    assert "ip netns delete cni-1" in host.changes()
    assert [c["after"] for c in freed["changes"] if c["what"] == "network namespace"] == [None], "told"
    assert not run(reset_stranded=True)["changed"]


@pytest.mark.parametrize(
    "beside",
    [
        Device("veth0", None, "52:00:00:00:00:01"),
        pytest.param(Device("lo", None, "00:00:00:00:00:00", ipv4=["10.9.9.9/32"]), marks=pytest.mark.more),
    ],
)
def test_a_namespace_with_something_of_the_owners_is_kept(
    node: FakeNode, host: FakeHost, run: Run, beside: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[str] = []
    monkeypatch.setattr(sriov_vf.AnsibleModule, "warn", lambda _module, text: warned.append(text))
    run()
    name = node.pf(dict(node._vfs(next(iter(node.vf_pattern))))[0]).name
    net = node.add_namespace("blue", pids=0)
    node.add_device(dataclasses.replace(beside), net)
    node.move(name, "blue", "net1")
    foretold = run(reset_stranded=True, check=True)
    freed = run(reset_stranded=True)
    assert freed["changed"] and name in node.devices and freed["changes"] == foretold["changes"]
    assert not any("netns delete" in line for line in host.changes()) and beside.name in net.devices
    assert "blue is kept" in warned[-1] and beside.name in warned[-1]


def test_a_namespace_that_comes_to_life_meanwhile_is_left_alone(node: FakeNode, host: FakeHost, run: Run) -> None:
    run()
    name = node.pf(dict(node._vfs(next(iter(node.vf_pattern))))[0]).name
    node.add_namespace("cni-1", pids=0)
    node.move(name, "cni-1", "net1")
    entries = host.entries

    def later(path: str) -> list[str]:
        if path == host.proc and not (node.root / "proc/4711").exists():
            node._process("4711", "cni-1")
        return entries(path)

    host.entries = later  # type: ignore[method-assign]
    refused = run(reset_stranded=True)
    assert refused["failed"] and "4711" in refused["msg"]
    assert "net1" in node.namespaces["cni-1"].devices


@pytest.mark.parametrize("after", [0, 1, 2, 5, 8, 13, 20, 27])
def test_a_run_that_dies_midway_is_completed_or_taken_back(
    node: FakeNode, host: FakeHost, run: Run, after: int
) -> None:
    """Every call that changes the node is counted; after `after` of them the run dies."""
    before = tree(node)
    budget = [after]

    class Died(Exception):
        pass

    def counted(function: t.Callable[..., t.Any]) -> t.Callable[..., t.Any]:
        def call(*arguments: t.Any, **named: t.Any) -> t.Any:
            budget[0] -= 1
            if budget[0] < 0:
                raise Died
            return function(*arguments, **named)

        return call

    write, command = host.write, host.command
    host.write, host.command = counted(write), counted(command)  # type: ignore[method-assign]
    try:
        run()
    except Died:
        pass
    except BaseException as exc:
        assert isinstance(exc.__context__, Died) or isinstance(exc, Died)
    host.write, host.command = write, command  # type: ignore[method-assign]
    if after % 2:
        completed = run()
        assert not completed.get("failed"), completed
        assert not run()["changed"]
    run(state="absent")
    assert tree(node) == before


def test_firmware_without_sriov_is_explained(tmp_path: pathlib.Path, node: FakeNode, run: Run) -> None:
    for pci in node.vf_pattern:
        for name in ("sriov_totalvfs", "sriov_numvfs"):
            (node.root / f"sys/bus/pci/devices/{pci}/{name}").unlink()
    refused = run()
    assert refused["failed"]
    assert all(word in refused["msg"] for word in ("mlxconfig", "SRIOV_EN=1", "NUM_OF_VFS=2", "power the node off"))


def test_a_bad_function_is_one_sentence(node: FakeNode, host: FakeHost, run: Run) -> None:
    bad = plan(node)
    bad[1]["mtu"] = "jumbo"
    refused = run(bad)
    assert refused["failed"] and "functions[1].mtu" in refused["msg"] and host.changes() == []


def test_what_does_not_take_is_a_failure(node: FakeNode, host: FakeHost, run: Run) -> None:
    pci = next(iter(node.vf_pattern))
    real = host.write
    host.write = lambda path, value: None if path.endswith("arp_ignore") else real(path, value)  # type: ignore
    refused = run()
    assert refused["failed"] and "arp_ignore" in refused["msg"] and pci
