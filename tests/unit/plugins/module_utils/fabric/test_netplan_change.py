"""Changes of netplan's files on a fake node: made, refused, rolled back, killed at every step, removed again."""

from __future__ import annotations

import base64
import dataclasses
import errno
import json
import os
import pathlib
import shutil
import stat
import types
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils import oserrors
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import netplan, netplan_change
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.netplan_change import Outcome, Request
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.turn import Turn
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.fabric import rollback
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.files import temporary
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.tests.unit.fakes import Device, FakeNode
from ansible_collections.dgxspark.cluster.tests.unit.netplan_fakes import (
    CX7,
    MANAGEMENT,
    FakeHost,
    journal,
    planned_host,
    put,
    text_of,
)

OURS = "90-dgxspark-fabric.yaml"
VENDOR = "/etc/netplan/40-cx7.yaml"
CX7_FABRIC = CX7.replace("    enp1s0f1np1:\n      link-local: [ ipv4 ]\n", "")  # port 1 is not in the plan
needs_netplan = pytest.mark.skipif(not shutil.which("netplan"), reason="not run: netplan is not installed here")


@pytest.fixture
def host(tmp_path: pathlib.Path) -> FakeHost:
    """A node with its functions and VFs as planned, and the netplan file of the management interface."""
    node = FakeNode(tmp_path / "node")
    node.add_device(Device("enP7s7", "0007:01:00.0", "52:54:00:00:00:01", ipv4=["10.0.2.15/24"]))
    for number, function in enumerate(planned_host().functions):
        pci = f"000{number}:01:00.0"
        node.add_pf(pci, function.netdev)
        node.make_vfs(pci, 1)
        device = next(
            d for d in node.devices.values() if d.pci != pci and (d.pci or "").startswith(pci[:4]) and "v" in d.name
        )
        device.mac = function.vfs[0].mac
    node.sync()
    put(node.root, "/etc/netplan/01-mgmt.yaml", MANAGEMENT)
    host = FakeHost(node)
    as_planned(host)
    return host


def as_planned(host: FakeHost) -> None:
    """Give every fabric device what the plan says, as networkd does."""
    wanted = {d.mac: d for d in netplan.planned_devices(planned_host()) if d.mac}
    names = {d.name: d for d in netplan.planned_devices(planned_host()) if d.name}
    for device in host.node.devices.values():
        plan = wanted.get(device.mac) or names.get(device.name)
        if plan:
            device.mtu, device.ipv4, device.up = plan.mtu or 1500, list(plan.addresses), True
    host.node.sync()


def request(**changes: object) -> Request:
    planned = planned_host()
    fields: dict[str, object] = {
        "path": netplan.PATH,
        "content": text_of(planned),
        "transaction": "t1",
        "devices": tuple(netplan.planned_devices(planned)),
    }
    return Request(**{**fields, **changes})  # type: ignore[arg-type]


def begin(host: FakeHost, asked: Request, *, check_mode: bool = False, turn: Turn | None = None) -> Outcome:
    scratch = host.node.root / "tmp" / asked.transaction
    scratch.mkdir(parents=True, exist_ok=True)
    try:
        while True:  # as the action does
            outcome = netplan_change.begin(
                host, host.command, Sysfs(host.node.sysfs), asked, str(scratch), check_mode=check_mode, turn=turn
            )
            if outcome.state != "queued":
                return outcome
            asked = dataclasses.replace(asked, waited=outcome.waiting)
    finally:
        shutil.rmtree(scratch)


def make(host: FakeHost, **changes: object) -> Outcome:
    """Begin and confirm."""
    asked = request(**changes)
    outcome = begin(host, asked)
    if outcome.state == "pending":
        assert netplan_change.confirm(host, asked).state == "confirmed"
    return outcome


# --- the usual case ---------------------------------------------------------------------------------------------------


def test_a_confirmed_change_leaves_the_file_and_nothing_else(host: FakeHost) -> None:
    outcome = begin(host, request())
    assert outcome.state == "pending"
    assert host.timer, "no timer while unconfirmed"
    assert f"etc/systemd/system/{rollback.UNIT}" in host.left()
    assert netplan_change.confirm(host, request()).state == "confirmed"
    assert host.files() == {"01-mgmt.yaml": MANAGEMENT, OURS: text_of(planned_host())}
    assert host.path(netplan.PATH).stat().st_mode & 0o777 == 0o600
    assert host.left() == []
    host.pass_time(60)
    assert OURS in host.files(), "the guard did not see that the change was confirmed"


def test_netplan_applies_what_was_written(host: FakeHost) -> None:
    make(host)
    assert [OURS in files for files in host.applied] == [True]


def test_a_second_run_changes_nothing(host: FakeHost) -> None:
    make(host)
    again = begin(host, request())
    assert (again.state, again.changes) == ("unchanged", [])
    assert len(host.applied) == 1


def test_a_wrong_mode_is_a_change(host: FakeHost) -> None:
    make(host)
    host.path(netplan.PATH).chmod(0o644)
    assert [change.what for change in make(host).changes] == ["mode or owner"]
    assert host.path(netplan.PATH).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("what", ["IPv4", "MTU"])
def test_an_interface_that_lost_something_is_applied_again(host: FakeHost, what: str) -> None:
    make(host)
    device = host.node.find("enp1s0f0v0")[1]
    if what == "IPv4":
        device.ipv4 = []
    else:
        device.mtu = 1500
    host.node.sync()
    assert [(c.subject, c.what) for c in make(host).changes] == [("enp1s0f0v0", what)]
    assert len(host.applied) == 2


def test_check_mode_says_the_same_and_touches_nothing(host: FakeHost) -> None:
    put(host.node.root, VENDOR, CX7)
    before = host.files()
    said = begin(host, request(foreign_stanzas="absorb"), check_mode=True)
    assert host.files() == before
    assert host.left() == []
    assert not host.applied
    done = begin(host, request(foreign_stanzas="absorb"))
    assert [(c.subject, c.what) for c in said.changes] == [(c.subject, c.what) for c in done.changes]
    assert said.text == done.text


# --- what goes wrong ----------------------------------------------------------------------------------------------------


def test_an_unconfirmed_change_goes_back_when_its_time_is_up(host: FakeHost) -> None:
    put(host.node.root, VENDOR, CX7, 0o640)
    before = host.files()
    begin(host, request(foreign_stanzas="absorb"))
    assert host.files() != before
    host.pass_time(60)
    assert host.files() == before
    assert host.path(VENDOR).stat().st_mode & 0o777 == 0o640
    assert host.applied[-1] == before
    ended = netplan_change.confirm(host, request())
    assert ended.state == "rolled_back"
    assert netplan.PATH in ended.message
    assert host.left() == []


def test_a_reboot_in_the_middle_goes_back_before_the_network(host: FakeHost) -> None:
    before = host.files()
    begin(host, request())
    host.timer = None  # timers do not survive a reboot
    unit = host.path(rollback.UNIT_PATH).read_text()
    assert host.path(rollback.WANTED_PATH).resolve() == pathlib.Path(rollback.UNIT_PATH)
    program = unit.split("ExecStart=")[1].splitlines()[0].split()
    assert program[-2:] == [rollback.PROGRAM, "boot"]
    assert "Before=network-pre.target" in unit
    applied = len(host.applied)
    assert rollback.main(["boot"], host) == 0
    assert host.files() == before
    assert len(host.applied) == applied, "before the network only `netplan generate` is of use"
    assert host.calls[-1][:2] == ["netplan", "generate"]
    assert not host.path(rollback.UNIT_PATH).exists()
    assert rollback.main(["boot"], host) == 0, "the unit may be started again"


def test_the_installed_program_runs_without_the_collection(host: FakeHost) -> None:
    import subprocess
    import sys

    begin(host, request())
    program = host.path(rollback.PROGRAM)
    assert program.stat().st_mode & 0o777 == 0o700
    done = subprocess.run([sys.executable, "-I", "-S", program], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "usage" in done.stderr


def test_netplan_apply_that_fails_goes_back_with_its_own_words(host: FakeHost) -> None:
    before = host.files()
    host.apply_answer = (78, "", "Error in network definition: no such device")
    with pytest.raises(CollectionError, match=r"78.*no such device"):
        begin(host, request())
    assert host.files() == before
    assert netplan_change.confirm(host, request()).state == "rolled_back"


def test_a_connection_from_before_does_not_confirm(host: FakeHost) -> None:
    asked = request(connection="10.0.2.2 40000 10.0.2.15 22")
    begin(host, asked)
    assert netplan_change.confirm(host, asked).state == "stale"
    assert host.timer
    assert netplan_change.confirm(host, request(connection="10.0.2.2 40001 10.0.2.15 22")).state == "confirmed"


def test_nothing_is_confirmed_while_netplan_is_at_work(host: FakeHost) -> None:
    host.hold = True
    asked = request()
    begin(host, asked)
    # begin gives up waiting when the time is up, and so does the guard
    assert netplan_change.confirm(host, asked).state == "too_slow"
    assert OURS not in host.files()


def test_what_is_connected_before_netplan_is_done_waits(host: FakeHost) -> None:
    begin(host, request())
    host.path(f"{rollback.BASE}/apply.json").unlink()
    assert netplan_change.confirm(host, request()).state == "waiting"
    assert host.text("pending") == "t1"


def test_what_somebody_else_wrote_meanwhile_is_not_confirmed(host: FakeHost) -> None:
    before = host.files()
    begin(host, request())
    put(host.node.root, netplan.PATH, "network: {}\n")
    with pytest.raises(CollectionError, match="someone else"):
        netplan_change.confirm(host, request())
    assert host.files() == before


def test_without_a_guard_nothing_is_written(host: FakeHost) -> None:
    before = host.files()
    host.guard_works = False
    with pytest.raises(CollectionError, match="nothing was changed"):
        begin(host, request())
    assert host.files() == before
    assert host.left() == []


def test_a_change_that_never_began_is_said_so(host: FakeHost) -> None:
    assert netplan_change.confirm(host, request(transaction="other")).state == "unknown"


@pytest.mark.parametrize("boundary", range(24))
def test_killed_at_any_write_the_next_run_comes_out_the_same(
    host: FakeHost, boundary: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies before its nth write to disk; then the timer fires, if there was one yet."""
    put(host.node.root, VENDOR, CX7_FABRIC)
    before = host.files()
    writes = iter(range(1000))
    put_file = FakeHost.put

    class Killed(BaseException):
        pass

    confirmed = []

    def dying(self: FakeHost, path: str, image: rollback.FileImage) -> None:
        if next(writes) == boundary:
            raise Killed
        put_file(self, path, image)
        if path == f"{rollback.BASE}/pending" and image.data is None:
            confirmed.append(True)

    monkeypatch.setattr(FakeHost, "put", dying)
    with pytest.raises(Killed):
        asked = request(foreign_stanzas="absorb")
        begin(host, asked)
        netplan_change.confirm(host, asked)
    monkeypatch.setattr(FakeHost, "put", put_file)
    host.pass_time(60)
    assert (host.files() == before) is not bool(confirmed)
    make(host, foreign_stanzas="absorb", transaction="t2")
    assert sorted(host.files()) == ["01-mgmt.yaml", OURS]
    make(host, content=None, transaction="t3")
    assert host.files() == before
    assert host.left() == []


def test_a_change_waits_for_the_one_that_is_pending(host: FakeHost) -> None:
    begin(host, request())
    outcome = begin(host, request(transaction="t2"))
    assert outcome.state == "pending"
    assert host.text("pending") == "t2"
    assert host.now >= 1060, "the first one's timer was not waited for"


def test_a_pending_change_without_a_timer_is_taken_back_first(host: FakeHost) -> None:
    begin(host, request())
    host.timer = None
    outcome = begin(host, request(transaction="t2"))
    assert "rolled back" in outcome.warnings[0]
    assert host.text("pending") == "t2"
    assert journal(host)["files"][netplan.PATH]["before"]["data"] is None


# --- two runs at once ---------------------------------------------------------------------------------------------------

ALICE = "the run of alice on laptop (process 4711)"


def test_a_run_that_comes_first_after_the_wait_is_waited_for_too(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is pending when the second run looks; once it holds the lock, the first run's change is."""
    before = host.files()
    lock = FakeHost.lock
    raced: list[Outcome] = []

    def slow(self: FakeHost, *how: t.Any, **more: t.Any) -> t.ContextManager[None]:
        if not raced:
            raced.append(Outcome())
            raced[0] = begin(self, request(transaction="first", by=ALICE))
        return lock(self, *how, **more)

    monkeypatch.setattr(FakeHost, "lock", slow)
    outcome = begin(host, request(transaction="second"))
    assert (raced[0].state, outcome.state) == ("pending", "pending")
    assert host.now >= 1060, "the first one's change was not waited for"
    assert ALICE in outcome.warnings[0] and "rolled back" in outcome.warnings[0]
    host.pass_time(60)
    assert host.files() == before, "the way back is that of before both"


def test_the_second_run_sees_what_the_first_one_confirmed(host: FakeHost) -> None:
    first = request(transaction="first", by=ALICE)
    begin(host, first)
    host.during_sleep = lambda: netplan_change.confirm(host, first) and None
    other = text_of(planned_host()).replace("9000", "8000")
    outcome = begin(host, request(transaction="second", content=other))
    assert outcome.state == "pending"
    assert ALICE in outcome.warnings[0] and "confirmed" in outcome.warnings[0] and netplan.PATH in outcome.warnings[0]
    assert base64.b64decode(journal(host)["files"][netplan.PATH]["before"]["data"]).decode() == text_of(planned_host())


def test_a_run_whose_change_went_back_is_told_so_while_another_is_at_work(host: FakeHost) -> None:
    begin(host, request(transaction="first"))
    host.pass_time(60)
    begin(host, request(transaction="second"))
    assert netplan_change.confirm(host, request(transaction="first")).state == "rolled_back"
    assert netplan_change.confirm(host, request(transaction="second")).state == "confirmed"
    assert netplan_change.confirm(host, request(transaction="first")).state == "rolled_back"


def test_a_confirmation_whose_answer_was_lost_is_given_again(host: FakeHost) -> None:
    make(host)
    assert netplan_change.confirm(host, request()).state == "confirmed"


def test_what_was_never_begun_does_not_begin_later(host: FakeHost) -> None:
    """ "Nothing was changed" must hold: the node may still be waiting for another run when the connection breaks."""
    before = host.files()
    begin(host, request(transaction="other", by=ALICE))
    said = netplan_change.confirm(host, request(transaction="broken"))
    assert said.state == "unknown" and ALICE in said.message
    with pytest.raises(CollectionError, match="nothing was changed"):
        begin(host, request(transaction="broken"))
    assert host.files() == before


def test_a_change_whose_guard_is_only_being_started_is_not_taken_back(host: FakeHost) -> None:
    first = request(transaction="first")
    begin(host, first)
    timer, host.timer = host.timer, None
    slept: list[float] = []

    def started() -> None:
        slept.append(host.now)
        host.timer = timer
        if len(slept) == 3:
            netplan_change.confirm(host, first)

    host.during_sleep = started
    assert begin(host, request(transaction="second")).state == "unchanged"
    assert rollback.ended(host, "first")["state"] == "confirmed"


# --- confirmed, and yet no address ---------------------------------------------------------------------------------------

STATUS = """\
● 3: {name}
                   Link File: {link}
                Network File: {network}
                       State: routable (configured)
                        Type: ether
"""
NETPLANS = "/run/systemd/network/10-netplan-dgx-p0f0v0"


def networkctl(host: FakeHost, name: str, network: str, link: str = "/usr/lib/systemd/network/99-default.link") -> None:
    text = STATUS.format(name=name, network=network, link=link)
    if network.startswith("/"):
        put(host.node.root, network, "[Match]\n")
    host.node.run.on(["networkctl", "--no-pager", "--lines=0", "status", name], (0, text, ""))


def confirm(host: FakeHost, asked: Request) -> Outcome:
    return netplan_change.confirm(host, asked, host.command, Sysfs(host.node.sysfs))


def lose(host: FakeHost, name: str = "enp1s0f0v0") -> None:
    host.node.find(name)[1].ipv4 = []
    host.node.sync()


def test_the_file_that_won_over_netplan_is_named(host: FakeHost) -> None:
    asked = request()
    begin(host, asked)
    lose(host)
    networkctl(host, "enp1s0f0v0", "/etc/systemd/network/05-mine.network")
    with pytest.raises(
        CollectionError, match=r"enp1s0f0v0.*10\.100\.0\.1/24.*/etc/systemd/network/05-mine\.network"
    ) as told:
        confirm(host, asked)
    assert "written and confirmed" in str(told.value)
    assert [finding.id for finding in told.value.findings] == ["netplan.outranked"]
    assert host.text("pending") is None and OURS in host.files(), "nothing is wrong with the change itself"
    applied = len(host.applied)
    for check_mode in (True, False):
        with pytest.raises(CollectionError, match=r"05-mine\.network"):
            begin(host, request(transaction="t2"), check_mode=check_mode)
    assert len(host.applied) == applied, "the next run went round in circles"
    networkctl(host, "enp1s0f0v0", f"{NETPLANS}.network")
    assert begin(host, request(transaction="t3")).state == "pending", "without a winner netplan is applied again"


def test_an_owner_s_file_of_netplan_s_own_name_is_named(host: FakeHost) -> None:
    """A file in /etc overrides a file of the same name in /run, where netplan writes."""
    asked = request()
    begin(host, asked)
    lose(host)
    mine = "/etc/systemd/network/10-netplan-dgx-p0f0v0.network"
    networkctl(host, "enp1s0f0v0", mine)
    with pytest.raises(CollectionError, match=rf"enp1s0f0v0.*{mine} configures it"):
        confirm(host, asked)


def test_a_drop_in_beside_netplan_s_own_file_is_named(host: FakeHost) -> None:
    asked = request()
    begin(host, asked)
    lose(host)
    networkctl(host, "enp1s0f0v0", f"{NETPLANS}.network")
    drop = "/etc/systemd/network/10-netplan-dgx-p0f0v0.network.d/mine.conf"
    put(host.node.root, drop, "[Network]\nAddress=\n")
    with pytest.raises(CollectionError, match=rf"enp1s0f0v0.*{drop}"):
        confirm(host, asked)


def test_a_drop_in_with_another_mtu_is_refused_although_nothing_is_lacking_yet(host: FakeHost) -> None:
    """Role sriov_roce has just set the MTU; networkd would set the drop-in's at the next boot."""
    make(host)
    drop = "/etc/systemd/network/10-netplan-dgx-p0f0v0.network.d/mine.conf"
    put(host.node.root, drop, "# MTUBytes=1400\n[Link]\nMTUBytes = 1500\n")
    for check_mode in (True, False):
        with pytest.raises(CollectionError, match=rf"{drop}.*MTUBytes=1500.*`networkctl reload`"):
            begin(host, request(transaction="t2"), check_mode=check_mode)
    for well in ("[Link]\nMTUBytes=9000\n", "[Network]\nLLDP=yes\n", "[Link]\n#MTUBytes=1500\n"):
        put(host.node.root, drop, well)
        assert begin(host, request(transaction="t3")).state == "unchanged"


def test_a_name_that_netplan_does_not_mean_is_named_with_what_may_have_given_it(host: FakeHost) -> None:
    asked = request()
    begin(host, asked)
    lose(host)
    host.node.move("enp1s0f0v0", None, "rail0")
    networkctl(host, "rail0", "n/a")
    put(host.node.root, "/etc/udev/rules.d/70-rails.rules", '# NAME="x"\nSUBSYSTEM=="net", NAME="rail0"\n')
    put(host.node.root, "/etc/udev/rules.d/71-other.rules", 'ENV{NAME}=="x"\n# NAME="rail0"\n')
    with pytest.raises(CollectionError, match=r"rail0.*`en\*`.*/etc/udev/rules\.d/70-rails\.rules") as told:
        confirm(host, asked)
    assert "71-other" not in str(told.value)
    networkctl(host, "rail0", "n/a", link="/etc/systemd/network/10-rails.link")
    with pytest.raises(CollectionError, match=r"rail0.*/etc/systemd/network/10-rails\.link"):
        begin(host, request(transaction="t2"))


def test_a_masked_service_is_refused_before_anything_is_written(host: FakeHost) -> None:
    """netplan's own words about it are a screen long, and the rollback fails the same way."""
    before = host.files()
    for asked, service in ((request(), "systemd-networkd"), (by_manager(), "NetworkManager")):
        host.node.units[f"{service}.service"] = ("masked", "inactive")
        for check_mode in (True, False):
            with pytest.raises(CollectionError, match=f"systemctl unmask {service}.service"):
                begin(host, asked, check_mode=check_mode)
    assert host.files() == before and not host.applied


def test_the_remedy_for_a_masked_service_works(host: FakeHost) -> None:
    host.node.units["systemd-networkd.service"] = ("masked", "inactive")
    with pytest.raises(CollectionError):
        begin(host, request())
    host.node.units["systemd-networkd.service"] = ("enabled", "active")
    make(host)


def test_the_remedy_for_an_owners_network_file_works(host: FakeHost) -> None:
    """networkd goes on to report a file that was moved away, until netplan has it read its files again."""
    make(host)
    lose(host)
    networkctl(host, "enp1s0f0v0", "/etc/systemd/network/05-mine.network")
    with pytest.raises(CollectionError, match=r"Move /etc/systemd/network/05-mine\.network away"):
        begin(host, request(transaction="t2"))
    host.path("/etc/systemd/network/05-mine.network").unlink()
    assert begin(host, request(transaction="t3")).state == "pending", "netplan applies again"


@pytest.mark.parametrize(
    ("number", "user", "remedy"),
    [
        (errno.EPERM, 0, "lsattr"),
        (errno.EPERM, 1000, "become: true"),
        (errno.ENOSPC, 0, "disk is full"),
        (errno.EROFS, 0, "read-only"),
    ],
)
def test_a_file_that_cannot_be_written_is_not_netplan_s_fault(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, number: int, user: int, remedy: str
) -> None:
    """An immutable /etc/netplan, a full disk: netplan has not run."""
    write = rollback.write
    # For the remedy alone: what else asks gives files to that user.
    monkeypatch.setattr(oserrors, "os", types.SimpleNamespace(geteuid=lambda: user))

    def refused(_host: t.Any, _identity: str) -> None:
        raise OSError(number, os.strerror(number), netplan.PATH)

    monkeypatch.setattr(rollback, "write", refused)
    with pytest.raises(CollectionError) as told:
        begin(host, request())
    said = str(told.value)
    assert netplan.PATH in said and "netplan apply failed" not in said and "old configuration" in said
    assert remedy in said
    monkeypatch.setattr(rollback, "write", write)


def test_files_that_are_back_are_no_failed_rollback(host: FakeHost) -> None:
    before = host.files()
    host.apply_answer = (1, "", "Failed to reload network settings: Unit is masked")
    with pytest.raises(CollectionError) as told:
        begin(host, request())
    assert "The old files are back" in str(told.value) and "The rollback failed" not in str(told.value)
    assert host.files() == before


def test_a_power_cut_in_between_is_told_as_one(host: FakeHost) -> None:
    begin(host, request())
    host.timer = None
    assert rollback.main(["boot"], host) == 0
    assert netplan_change.confirm(host, request()).state == "restarted"


# --- NetworkManager -----------------------------------------------------------------------------------------------------


def by_manager(**changes: object) -> Request:
    return request(**{"transaction": "t9", "content": text_of(planned_host(), "NetworkManager"), **changes})


def nmcli(host: FakeHost, name: str, state: str, profile: str) -> None:
    """As NetworkManager 1.52 answers."""
    fields = "GENERAL.STATE,GENERAL.CONNECTION"
    asked = ["nmcli", "--escape", "no", "--get-values", fields, "device", "show", name]
    host.node.run.on(asked, (0, f"{state}\n{profile}\n", ""))


@pytest.mark.parametrize(
    ("state", "profile", "told"),
    [
        ("100 (connected)", "my dhcp: any", r"'my dhcp: any' is active on it .*nmcli connection modify"),
        ("100 (connected)", "bad\x1b[2J", r"'bad\?\[2J' is active on it"),
        (
            "10 (unmanaged)",
            "",
            r"\(unmanaged\).*unmanaged-devices.*`systemctl reload NetworkManager; nmcli device set \S+ managed yes`",
        ),
    ],
)
def test_what_networkmanager_does_instead_is_named(host: FakeHost, state: str, profile: str, told: str) -> None:
    asked = by_manager()
    begin(host, asked)
    lose(host)
    nmcli(host, "enp1s0f0v0", state, profile)
    with pytest.raises(CollectionError, match=rf"enp1s0f0v0.*10\.100\.0\.1/24.*{told}") as refused:
        confirm(host, asked)
    assert [finding.id for finding in refused.value.findings] == ["netplan.outranked"]
    nmcli(host, "enp1s0f0v0", "100 (connected)", "netplan-dgx-p0f0v0")  # the owner has followed the advice
    assert begin(host, by_manager(transaction="t10")).state == "pending"


@pytest.mark.parametrize(
    ("management", "server", "seconds"),
    [
        ("renderer: NetworkManager, ethernets: {NM-1: {match: {name: enP7s7}}}", "10.0.2.15", 120),
        ("renderer: networkd, ethernets: {enP7s7: {}}", "10.0.2.15", 60),
        ("renderer: NetworkManager, ethernets: {NM-1: {match: {name: enP7s7}}}", "10.100.0.1", 60),  # came another way
    ],
)
def test_a_change_has_more_time_where_netplan_takes_down_what_it_came_over(
    host: FakeHost, management: str, server: str, seconds: float
) -> None:
    put(host.node.root, "/etc/netplan/01-mgmt.yaml", f"network: {{{management}}}\n")
    outcome = begin(host, request(connection=f"10.0.2.2 40000 {server} 22"))
    assert outcome.timeout == seconds
    assert host.timer and host.timer[0] == pytest.approx(host.now + seconds)
    assert bool([told for told in outcome.warnings if "takes enP7s7" in told]) == (seconds > 60)


def test_what_was_taken_down_is_told_where_the_connection_broke_before_the_answer(host: FakeHost) -> None:
    """NetworkManager takes the interface down under the run's own connection, so its first answer may never arrive."""
    put(
        host.node.root,
        "/etc/netplan/01-mgmt.yaml",
        "network: {renderer: NetworkManager, ethernets: {NM-1: {match: {name: enP7s7}}}}\n",
    )
    asked = request(connection="10.0.2.2 40000 10.0.2.15 22")
    begin(host, asked)
    host.pass_time(1000)
    assert "takes enP7s7, over which this run reaches the node, down" in confirm(host, asked).message


def test_what_was_taken_down_is_told_where_all_ended_well_too(host: FakeHost) -> None:
    put(
        host.node.root,
        "/etc/netplan/01-mgmt.yaml",
        "network: {renderer: NetworkManager, ethernets: {NM-1: {match: {name: enP7s7}}}}\n",
    )
    begun = begin(host, request(connection="10.0.2.2 40000 10.0.2.15 22"))
    asked = request(connection="10.0.2.2 40001 10.0.2.15 22")
    confirmed = confirm(host, asked)
    assert (confirmed.state, confirmed.warnings) == ("confirmed", begun.warnings)
    assert len(begun.warnings) == 1
    again = confirm(host, asked)  # the answer was lost, too
    assert (again.state, again.warnings) == ("confirmed", begun.warnings)


def test_a_change_that_takes_nothing_down_is_confirmed_without_a_word(host: FakeHost) -> None:
    asked = request()
    begin(host, asked)
    assert confirm(host, asked).warnings == []


def test_addresses_that_come_a_little_later_are_waited_for(host: FakeHost) -> None:
    asked = request()
    begin(host, asked)
    lose(host)
    networkctl(host, "enp1s0f0v0", "/etc/systemd/network/05-mine.network")
    host.during_sleep = lambda: as_planned(host)
    assert confirm(host, asked).state == "confirmed"


def test_without_networkctl_nobody_is_blamed(host: FakeHost) -> None:
    asked = request()
    begin(host, asked)
    lose(host)
    assert confirm(host, asked).state == "confirmed"


# --- what a failed first change leaves behind ---------------------------------------------------------------------------


@pytest.mark.parametrize("boundary", range(12))
def test_a_disk_that_is_full_leaves_nothing(host: FakeHost, boundary: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing remains of a change that could not be recorded, whichever write fails."""
    before = host.files()
    opens = iter(range(1000))
    fsync = os.fsync

    def full(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode) and next(opens) == boundary:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    asked = request()
    try:
        if begin(host, asked).state == "pending":
            netplan_change.confirm(host, asked)
    except CollectionError as exc:
        assert "the disk is full" in str(exc) and (
            "nothing was changed" in str(exc) or "on its old configuration" in str(exc)
        )
        assert host.files() == before
        assert list(host.path(rollback.BASE).parent.rglob("*")) == []
    except OSError:
        pass  # the guard's own write; test_rollback.py tests what it does then
    monkeypatch.setattr(os, "fsync", fsync)
    host.pass_time(60)
    assert host.left() == []


@pytest.mark.parametrize("killed_at", range(6))
def test_teardown_removes_what_an_interrupted_first_change_left(
    host: FakeHost, killed_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = host.files()
    put_file, writes = FakeHost.put, iter(range(1000))

    class Killed(BaseException):
        pass

    def dying(self: FakeHost, path: str, image: rollback.FileImage) -> None:
        if image.data is not None and next(writes) == killed_at:
            put(self.node.root, temporary(path), "half")
            raise Killed
        put_file(self, path, image)

    monkeypatch.setattr(FakeHost, "put", dying)
    with pytest.raises(Killed):
        begin(host, request())
    monkeypatch.setattr(FakeHost, "put", put_file)
    host.pass_time(60)
    said = begin(host, request(content=None, transaction="t2"), check_mode=True)
    gone = begin(host, request(content=None, transaction="t2"))
    if gone.state == "pending":
        netplan_change.confirm(host, request(content=None, transaction="t2"))
    assert [c.subject for c in said.changes] == [c.subject for c in gone.changes]
    assert host.files() == before
    assert host.left() == []
    assert begin(host, request(content=None, transaction="t3")).changes == []


def test_files_that_cannot_be_put_back_stay_pending(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(host, request())
    put_file = FakeHost.put

    def full(self: FakeHost, path: str, image: rollback.FileImage) -> None:
        if path == netplan.PATH:
            raise OSError(28, "No space left on device", path)
        put_file(self, path, image)

    monkeypatch.setattr(FakeHost, "put", full)
    assert rollback.main(["boot"], host) == 1
    assert host.text("pending") == "t1"
    monkeypatch.setattr(FakeHost, "put", put_file)
    assert rollback.main(["boot"], host) == 0
    assert OURS not in host.files()


# --- what is refused ----------------------------------------------------------------------------------------------------


def test_the_vendor_s_file_is_refused_by_default(host: FakeHost) -> None:
    put(host.node.root, VENDOR, CX7)
    before = host.files()
    with pytest.raises(CollectionError, match=r"(?s)40-cx7\.yaml.*absorb"):
        begin(host, request())
    assert host.files() == before
    assert host.left() == []


@needs_netplan
def test_what_netplan_does_not_accept_is_refused_with_its_reason(host: FakeHost) -> None:
    with pytest.raises(CollectionError, match="mtuu") as caught:
        begin(host, request(content="network:\n  version: 2\n  ethernets:\n    x: {mtuu: 3}\n"), check_mode=True)
    assert str(host.node.root) not in str(caught.value)
    assert OURS not in host.files()


def test_a_file_that_is_not_yaml_is_refused_by_name_and_line(host: FakeHost) -> None:
    put(host.node.root, "/etc/netplan/60-bad.yaml", "network:\n  version: 2\n  - x\n")
    with pytest.raises(CollectionError, match=r"60-bad\.yaml.*line 3"):
        begin(host, request())
    assert OURS not in host.files()


def test_without_netplan_it_says_so(host: FakeHost) -> None:
    host.generate_answer = (127, "", "netplan: not found")
    with pytest.raises(CollectionError, match="not installed"):
        begin(host, request())


# --- other files --------------------------------------------------------------------------------------------------------


def test_an_absorbed_file_comes_back_byte_for_byte(host: FakeHost) -> None:
    text = "# NVIDIA's own\n" + CX7_FABRIC
    put(host.node.root, VENDOR, text, 0o644)
    os.chown(host.path(VENDOR), os.geteuid(), os.getegid())
    make(host, foreign_stanzas="absorb")
    assert sorted(host.files()) == ["01-mgmt.yaml", OURS]
    kept = host.path(f"{netplan_change.ABSORBED}/40-cx7.yaml")
    assert kept.read_text() == text
    assert kept.stat().st_mode & 0o777 == 0o600
    assert begin(host, request(transaction="t2")).state == "unchanged"
    make(host, content=None, transaction="t3")
    assert host.files() == {"01-mgmt.yaml": MANAGEMENT, "40-cx7.yaml": text}
    assert host.path(VENDOR).stat().st_mode & 0o777 == 0o644
    assert host.left() == []


def test_of_a_mixed_file_only_the_fabric_s_stanzas_are_taken(host: FakeHost) -> None:
    text = CX7 + "  renderer: networkd\n  wifis:\n    wlan0: {access-points: {x: {password: 0123456789}}}\n"
    put(host.node.root, VENDOR, text)
    outcome = make(host, foreign_stanzas="absorb")
    left = host.files()["40-cx7.yaml"]
    assert "enp1s0f0np0:\n" not in left
    for kept in ("enp1s0f1np1", "0123456789", "wlan0", "networkd"):
        assert kept in left
    assert "0123456789" not in json.dumps(outcome.text), "a password in the diff"
    make(host, content=None, transaction="t2")
    assert host.files()["40-cx7.yaml"] == text


@pytest.mark.parametrize(
    ("owner", "text"),
    [
        ("bonds.bond0", "  bonds:\n    bond0: {interfaces: [enp1s0f0np0]}\n"),
        ("bridges.br0", "  bridges:\n    br0: {interfaces: [enp1s0f0np0]}\n"),
        ("vlans.fab7", "  vlans:\n    fab7: {id: 7, link: enp1s0f0np0}\n"),
    ],
)
@pytest.mark.parametrize("foreign", ["refuse", "absorb"])
def test_a_stanza_that_another_one_needs_is_not_absorbed_nor_is_that_advised(
    host: FakeHost, owner: str, text: str, foreign: str
) -> None:
    put(host.node.root, VENDOR, CX7)
    put(host.node.root, "/etc/netplan/60-more.yaml", "network:\n  version: 2\n" + text)
    before = host.files()
    with pytest.raises(CollectionError, match=r"cannot be absorbed") as told:
        begin(host, request(foreign_stanzas=foreign))
    assert f"{owner} in /etc/netplan/60-more.yaml refers to ethernets.enp1s0f0np0" in str(told.value)
    assert "foreign_stanzas" not in str(told.value).partition("enP2p1s0f0np0")[0]
    assert host.files() == before


def test_a_file_that_was_changed_since_is_not_overwritten(host: FakeHost) -> None:
    put(host.node.root, VENDOR, CX7)
    make(host, foreign_stanzas="absorb")
    put(host.node.root, VENDOR, "network: {version: 2}\n")
    with pytest.raises(CollectionError, match=r"40-cx7\.yaml has been changed"):
        begin(host, request(content=None, transaction="t2"))
    assert OURS in host.files()


def test_a_file_that_comes_back_is_absorbed_again(host: FakeHost) -> None:
    put(host.node.root, VENDOR, CX7)
    make(host, foreign_stanzas="absorb")
    newer = "# newer\n" + CX7
    put(host.node.root, VENDOR, newer)
    assert make(host, foreign_stanzas="absorb", transaction="t2").warnings
    make(host, content=None, transaction="t3")
    assert host.files()["40-cx7.yaml"] == newer


def test_taking_away_what_is_not_there_changes_nothing(host: FakeHost) -> None:
    assert begin(host, request(content=None)).state == "unchanged"
    assert not host.applied


def test_a_vf_in_a_pod_keeps_its_name_for_clashes(host: FakeHost) -> None:
    """Its netdev is not here, but a stanza of another file for it is still one too many."""
    host.node.add_namespace("cni-1")
    host.node.move("enp1s0f0v0", "cni-1")
    put(host.node.root, VENDOR, "network:\n  version: 2\n  ethernets:\n    enp1s0f0v0: {dhcp4: true}\n")
    devices = tuple(
        netplan.Device("enp1s0f0v0", d.mac, None, d.addresses, d.mtu) if d.mac == "02:d6:01:00:00:00" else d
        for d in netplan.planned_devices(planned_host())
    )
    with pytest.raises(CollectionError, match="enp1s0f0v0"):
        begin(host, request(devices=devices))


def test_a_node_that_is_going_back_right_now_is_asked_again(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollback, "LOCK_WAIT", 0.2)
    begin(host, request())
    with host.lock():
        assert netplan_change.confirm(host, request()).state == "waiting"
    assert host.text("pending") == "t1"


def test_a_file_that_another_of_its_name_hides_claims_nothing(host: FakeHost) -> None:
    """netplan reads /run/netplan/40-cx7.yaml instead of /etc/netplan/40-cx7.yaml."""
    put(host.node.root, VENDOR, CX7)
    put(host.node.root, "/run/netplan/40-cx7.yaml", "network: {version: 2}\n")
    assert make(host).state == "pending"
    assert host.files()["40-cx7.yaml"] == CX7


# --- the owner's file where ours is to be ---------------------------------------------------------------------------------

OWNERS = "network:\n  version: 2\n  ethernets:\n    enP7s7:\n      dhcp4: true\n"


@pytest.mark.parametrize("link", [False, True])
def test_an_owners_file_at_our_path_is_refused_and_kept(host: FakeHost, link: bool) -> None:
    put(host.node.root, "/root/mine.yaml" if link else netplan.PATH, OWNERS, 0o640)
    if link:
        host.path(netplan.PATH).symlink_to(host.path("/root/mine.yaml"))
    before = host.files()
    with pytest.raises(CollectionError, match="not made by this collection") as refused:
        begin(host, request(), check_mode=True)
    with pytest.raises(CollectionError):
        begin(host, request())
    assert "netplan_vf_path" in str(refused.value) and refused.value.findings[0].id == "netplan.occupied"
    gone = begin(host, request(content=None))
    assert (gone.state, gone.changes) == ("unchanged", []) and "kept as it is" in gone.warnings[0]
    assert host.files() == before and not host.applied
    assert host.path(netplan.PATH).is_symlink() is link


def test_the_remedy_for_an_owners_file_at_our_path_works(host: FakeHost) -> None:
    put(host.node.root, netplan.PATH, OWNERS.replace("enP7s7", "enp9s9"))
    host.path(netplan.PATH).rename(host.path("/etc/netplan/80-mine.yaml"))
    make(host)
    make(host, content=None, transaction="t2")
    assert sorted(host.files()) == ["01-mgmt.yaml", "80-mine.yaml"]


def test_a_text_of_ones_own_is_marked_and_can_be_changed(host: FakeHost) -> None:
    mine = "network: {version: 2, ethernets: {x: {match: {name: enp9s0}, mtu: %d}}}\n"
    for number, mtu in enumerate((8000, 9000)):
        make(host, content=mine % mtu, devices=(), transaction=f"own{number}")
    assert host.files()[OURS].startswith(netplan.MARK) and "9000" in host.files()[OURS]
    assert begin(host, request(content=mine % 9000, devices=(), transaction="again")).state == "unchanged"


# --- a route that is gone -----------------------------------------------------------------------------------------------


def test_a_route_that_is_gone_is_set_again_without_netplan(host: FakeHost) -> None:
    """netplan's files are as planned, and so are the addresses: networkd would leave them alone."""
    make(host)
    vf = next(device for device in host.node.devices.values() if device.ipv4 == ["10.100.8.1/24"])
    vf.lost = ["10.100.8.0/24"]
    applied = len(host.applied)
    (change,) = begin(host, request(transaction="t2"), check_mode=True).changes
    assert (change.subject, change.what, change.before) == (vf.name, "route", None)
    assert vf.lost, "a run in check mode changed something"
    outcome = begin(host, request(transaction="t3"))
    assert (outcome.state, [each.subject for each in outcome.changes]) == ("confirmed", [vf.name])
    assert vf.lost == []
    assert len(host.applied) == applied
    assert begin(host, request(transaction="t4")).changes == []


def test_a_route_that_another_interface_has_is_named_and_kept(host: FakeHost) -> None:
    make(host)
    vf = next(device for device in host.node.devices.values() if device.ipv4 == ["10.100.8.1/24"])
    vf.lost = ["10.100.8.0/24"]
    host.node.add_device(Device("mine0", None, "52:54:00:00:00:09", ipv4=["10.100.8.77/24"]))
    with pytest.raises(CollectionError) as refused:
        begin(host, request(transaction="t2"))
    (found,) = refused.value.findings
    assert (found.id, found.subject) == ("netplan.no-route", vf.name)
    assert "mine0" in found.message
    assert "`ip -4 route del 10.100.8.0/24 dev mine0`" in found.remedy
    del host.node.devices["mine0"]
    assert begin(host, request(transaction="t3")).state == "confirmed"


def test_a_route_is_looked_for_after_netplan_too(host: FakeHost) -> None:
    """Something took it while netplan was at work."""
    vf = next(device for device in host.node.devices.values() if device.ipv4 == ["10.100.8.1/24"])
    begin(host, request())
    vf.lost = ["10.100.8.0/24"]
    assert netplan_change.confirm(host, request(), host.command, Sysfs(host.node.sysfs)).state == "confirmed"
    assert vf.lost == []
