"""Updates: what each node gets, in which order, what is refused, what counts as worse, and the way back."""

from __future__ import annotations

import shutil
import subprocess
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, to_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge, update, update_back
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.update import Begun, Machine, Proof
from ansible_collections.dgxspark.cluster.tests.support.properties import examples

RULES = knowledge.get("updates", "spark")["rules"]
BAD = list(knowledge.load("versions").values())
META = "linux-image-nvidia"
OLD, NEW, KHO = "6.17.0-1021.21", "6.17.0-1032.32", "7.0.0-1019.19"


def machine(kernel: str = OLD, *, offered: t.Sequence[str] = (OLD, NEW), **more: t.Any) -> Machine:
    return Machine(
        {META: kernel}, offered={META: tuple(offered)}, kernel="6.17.0-1021-nvidia", **{"booted_s": 1000.0, **more}
    )


def plan(machines: dict[str, Machine], stated: dict[str, str] | None = None, **more: t.Any) -> update.Update:
    return update.plan(machines, stated or {}, RULES, BAD, more.pop("begun", {}), **more)


def three(**more: t.Any) -> dict[str, Machine]:
    return {f"spark{number}": machine(**more) for number in (1, 2, 3)}


def test_one_goes_first_and_the_others_follow_one_by_one() -> None:
    made = plan(three(), {META: NEW}, canary="spark2")
    assert [turn.host for turn in made.turns] == ["spark2", "spark1", "spark3"]
    assert {turn.install for turn in made.turns} == {(f"{META}={NEW}",)}
    assert all(turn.restart for turn in made.turns)
    assert update.plan_lines(made)[0] == f"first, alone: spark2 gets {META}={NEW} and is restarted"
    assert "if spark2 is no worse: spark1" in update.plan_lines(made)[1]


def test_a_known_bad_version_is_refused_before_anything_is_touched() -> None:
    made = plan(three(offered=(OLD, KHO)), {META: KHO})
    assert made.turns == () and "Kexec HandOver" in made.refusals[0] and "kho=off" in made.refusals[0]
    allowed = plan(three(offered=(OLD, KHO), cmdline="ro kho=off"), {META: KHO})
    assert not allowed.refusals and len(allowed.turns) == 3
    named = {name: Machine({}, offered={"linux-image-7.0.0-1019-nvidia": (KHO,)}) for name in ("spark1", "spark2")}
    assert plan(named, {"linux-image-7.0.0-1019-nvidia": KHO}).refusals


def test_the_newest_good_version_passes_over_a_bad_one_and_says_so() -> None:
    made = plan(three(offered=(KHO, NEW, OLD)))
    assert made.wanted == {META: NEW} and not made.refusals
    assert f"{META} {KHO} is passed over" in made.notes[0]


def test_a_version_that_one_node_is_not_offered_is_refused_or_not_newest() -> None:
    machines = {**three(), "spark4": machine(offered=(OLD,))}
    assert plan(machines).wanted == {META: OLD}
    assert "spark4" in plan(machines, {META: NEW}).refusals[0]


def test_a_node_that_is_ahead_is_not_taken_back_unless_that_is_stated() -> None:
    machines = {**three(offered=(OLD,)), "spark4": machine(NEW, offered=(OLD,))}
    made = plan(machines)
    assert made.turns == () and "spark4" in made.notes[0]
    assert [turn.host for turn in plan(machines, {META: OLD}).turns] == ["spark4"]


def test_what_only_some_nodes_have_is_brought_to_the_others_only_if_it_is_stated() -> None:
    flavour = "linux-image-nvidia-64k"
    machines = {
        **three(),
        "spark4": Machine({META: OLD, flavour: OLD}, offered={META: (OLD, NEW), flavour: (OLD, NEW)}),
    }
    made = plan(machines)
    assert made.wanted == {META: NEW} and flavour in made.notes[0]


def test_a_killed_run_is_resumed_where_it_was() -> None:
    begun = Begun({META: NEW}, {META: OLD}, "6.17.0-1021-nvidia", 1000.0)
    machines = {**three(), "spark3": machine(NEW)}
    first = plan(machines, {META: NEW}, begun={"spark3": begun}).turns[0]
    assert (first.host, first.install, first.restart, first.resumed) == ("spark3", (), True, True)
    assert any(f"{META}={OLD}" in line for line in update_back.way_back(to_plain(first), {}, []))
    machines["spark3"] = machine(NEW, booted_s=9000.0)
    assert not plan(machines, {META: NEW}, begun={"spark3": begun}).turns[0].restart
    proven = Begun({META: NEW}, {META: OLD}, proven=True)
    assert "spark3" not in [turn.host for turn in plan(machines, {META: NEW}, begun={"spark3": proven}).turns]


def test_a_pending_restart_is_a_turn_unless_restarts_are_the_owner_s() -> None:
    machines = {"spark1": machine(NEW, reboot=True)}
    (turn,) = plan(machines, {META: NEW}).turns
    assert turn.restart and turn.install == ()
    assert plan(machines, {META: NEW}, restarts=False).turns == ()


@pytest.mark.parametrize("name", ["a b", "$(id)", "-o", "x;y", ""])
def test_what_is_no_package_is_refused(name: str) -> None:
    with pytest.raises(CollectionError, match="spark_update_packages"):
        plan(three(), {name: NEW})
    with pytest.raises(CollectionError, match="spark_update_packages"):
        plan(three(), {META: name})


def listed(*names: str) -> list[str]:
    return [f"{name}|{NEW}|hold|installed" for name in names]


def test_the_way_back_names_the_kernel_s_boot_entry_and_the_older_versions() -> None:
    (turn,) = plan({"spark1": machine()}, {META: NEW}).turns
    entry, older = update_back.way_back(to_plain(turn), {}, listed(META))
    assert "gnulinux-advanced-$u>gnulinux-6.17.0-1021-nvidia-advanced-$u" in entry
    assert "--allow-downgrades" in older and older.endswith(f" {META}={OLD}; sudo apt-mark hold {META}")
    assert update_back.way_back(to_plain(turn), {}, listed(META), hold=False)[1].endswith(f" {META}={OLD}")


def test_the_way_back_removes_the_kernel_that_the_package_has_brought_and_ends_its_trial() -> None:
    """The newest kernel that is installed boots: the older package alone leads back for one boot only."""
    old, new = "linux-image-6.17.0-1021-nvidia", "linux-image-6.17.0-1032-nvidia"
    there = machine()
    there.installed[old] = OLD
    (turn,) = plan({"spark1": there}, {META: NEW}).turns
    trial = {"kernel": "6.17.0-1032-nvidia", "before": "6.17.0-1021-nvidia", "entry": "a>b"}
    restart, older, removed, menu = update_back.way_back(to_plain(turn), trial, listed(META, old, new))
    assert "sudo reboot" in restart and "cut its power" in restart and "6.17.0-1021-nvidia" in restart
    assert f" {META}={OLD};" in older
    assert removed.endswith(f"sudo apt-get remove --allow-change-held-packages {new}")
    assert menu.endswith("sudo rm /etc/default/grub.d/zz-dgxspark-update.cfg; sudo update-grub")


def test_an_older_version_takes_the_kernel_away_that_the_newer_one_had_brought() -> None:
    old, new = "linux-image-6.17.0-1021-nvidia", "linux-image-6.17.0-1032-nvidia"
    after = machine(NEW)
    after.installed.update({old: OLD, new: NEW})
    begun = Begun({META: NEW}, {META: OLD}, "6.17.0-1021-nvidia", 1000.0, there=(META, old))
    (turn,) = plan({"spark1": after}, {META: OLD}, begun={"spark1": begun}).turns
    assert (turn.remove, turn.boot) == ((new,), "6.17.0-1021-nvidia")
    assert f"loses {new}" in update.plan_lines(plan({"spark1": after}, {META: OLD}, begun={"spark1": begun}))[0]
    # A run that was killed on the way knows it, too.
    noted = Begun({META: OLD}, turn.before, turn.kernel, 1000.0, there=turn.there, remove=turn.remove, boot=turn.boot)
    (again,) = plan({"spark1": after}, {META: OLD}, begun={"spark1": noted}).turns
    assert (again.remove, again.boot, again.resumed) == (turn.remove, turn.boot, True)
    assert "leads back" in plan({"spark1": after}, {META: OLD}).notes[0]
    # Of a newer version, or of what was not noted, nothing is removed.
    for wanted, noted in (({META: NEW}, begun), ({META: OLD}, Begun({META: NEW}, {META: OLD}))):
        assert not [t.remove for t in plan({"spark1": after}, wanted, begun={"spark1": noted}).turns if t.remove]


VERSIONS = st.from_regex(r"(?:[0-2]:)?[0-9]{1,3}(?:[.+~a-c][0-9a-c]{1,3}){0,3}(?:-[0-9a-c~+.]{1,4})?", fullmatch=True)
NAMES = st.sampled_from([META, "libnccl2", "nvidia-driver-580-open", "linux-image-6.17.0-1032-nvidia", "curl"])
MACHINES = st.dictionaries(
    st.sampled_from(["spark1", "spark2", "spark3", "spark4"]),
    st.builds(
        Machine,
        st.dictionaries(NAMES, st.sampled_from([OLD, NEW, KHO, "580.142-1", "590.1-1"])),
        st.frozensets(NAMES),
        st.dictionaries(
            NAMES, st.lists(st.sampled_from([OLD, NEW, KHO, "580.142-1", "590.1-1"]), max_size=4).map(tuple)
        ),
        st.just("6.17.0-1021-nvidia"),
        st.sampled_from(["", "kho=off"]),
        st.floats(0, 1e6),
        st.booleans(),
    ),
    min_size=1,
)
STATED = st.dictionaries(NAMES, st.sampled_from(["newest", OLD, NEW, KHO, "580.142-1"]), max_size=3)


@settings(max_examples=examples(200), deadline=None)
@given(MACHINES, STATED)
def test_what_a_plan_keeps_to(machines: dict[str, Machine], stated: dict[str, str]) -> None:
    made = plan(machines, stated)
    assert not (made.refusals and made.turns)
    assert len({turn.host for turn in made.turns}) == len(made.turns)
    for turn in made.turns:
        have = machines[turn.host]
        for pair in turn.install:
            name, version = pair.split("=")
            assert version in have.offered.get(name, ()) and have.installed.get(name) != version
            assert not [f for f in update.faults(name, version, RULES, BAD, [have.cmdline]) if f.severity == "error"]
            if stated.get(name, "newest") == "newest" and name in have.installed:
                assert update.compare(version, have.installed[name]) > 0
        # What it gives, run again on the result, is nothing.
        assert {name for name, version in turn.before.items() if version != turn.wanted[name]} == {
            pair.split("=")[0] for pair in turn.install
        }
    after = {
        host: Machine(
            {**have.installed, **made.wanted}, have.held, have.offered, have.kernel, have.cmdline, have.booted_s
        )
        for host, have in machines.items()
    }
    if not made.refusals:
        assert plan(after, stated).turns == ()


@settings(max_examples=examples(200), deadline=None)
@given(VERSIONS, VERSIONS, VERSIONS)
def test_versions_have_one_order(a: str, b: str, c: str) -> None:
    assert update.compare(a, a) == 0
    assert (update.compare(a, b) > 0) == (update.compare(b, a) < 0)
    if update.compare(a, b) <= 0 and update.compare(b, c) <= 0:
        assert update.compare(a, c) <= 0


@pytest.mark.skipif(not shutil.which("dpkg"), reason="dpkg is not installed")
@settings(max_examples=examples(60), deadline=None)
@given(VERSIONS, VERSIONS)
def test_the_order_is_dpkg_s(a: str, b: str) -> None:
    newer = subprocess.run(["dpkg", "--compare-versions", a, "gt", b], check=False, capture_output=True).returncode == 0
    assert (update.compare(a, b) > 0) == newer


@pytest.mark.parametrize(
    ("name", "version", "found"),
    [
        ("linux-image-7.0.0-1019-nvidia", "7.0.0-1019.19", "7.0.0-1019-nvidia"),
        (META, "6.17.0-1032.32", "6.17.0-1032"),
        (META, "6.17.0.1032.32", "6.17.0-1032"),
    ],
)
def test_the_release_of_a_kernel_s_package(name: str, version: str, found: str) -> None:
    assert update.component_version("kernel", name, version) == found


def test_what_dpkg_and_apt_say_is_read_and_the_rest_left_out() -> None:
    text = "libnccl2|2.29.7-1|hold|installed\ncurl||unknown|not-installed\n\x1b[2J|1|hold|installed\nrdma-core|1|deinstall|config-files\n"
    assert update.packages(text) == ({"libnccl2": "2.29.7-1"}, frozenset({"libnccl2"}))
    madison = " curl | 8.5.0-2 | http://x y\n curl | 8.5.0-1 | http://x y\nN: nothing\n $(id) | 1 | x\n"
    assert update.offers(madison) == {"curl": ("8.5.0-2", "8.5.0-1")}


def test_what_is_worse() -> None:
    before = Proof("passed", {"chat n=1": 40.0, "chat n=8": 200.0})
    assert update.worse(before, Proof("passed", {"chat n=1": 37.0, "chat n=8": 199.0}), 10) == []
    (slow,) = update.worse(before, Proof("passed", {"chat n=1": 40.0, "chat n=8": 150.0}), 10)
    assert "chat n=8: 150.0 tokens/s, 200.0 before (25 % less)" in slow
    assert "no good answers" in update.worse(before, Proof("passed", {"chat n=1": 40.0}), 10)[0]
    assert update.worse(before, Proof("failed", None), 10) == [
        "verify's verdict is failed; it was passed before",
        "the model that was measured before does not answer",
    ]
    assert update.worse(Proof(None, None), Proof(None, None), 10) == []


def test_a_cluster_that_is_bad_already_is_not_updated() -> None:
    assert update.unfit(Proof("failed")) and update.unfit(Proof("passed", {"chat n=1": 0.0}))
    assert update.unfit(Proof("passed", {"chat n=1": 1.0})) == update.unfit(Proof()) == []


def test_what_is_awry_on_the_node_itself() -> None:
    name = "linux-image-6.17.0-1032-nvidia"
    there = Machine({}, offered={name: (NEW,)}, kernel="6.17.0-1021-nvidia")
    (turn,) = plan({"spark1": there}, {name: NEW}).turns
    good = Machine({name: NEW}, kernel="6.17.0-1032-nvidia")
    assert update.awry(turn, good, RULES, BAD, (None, None)) == []
    assert (
        "runs the kernel 6.17.0-1021"
        in update.awry(turn, Machine({name: NEW}, kernel=there.kernel), RULES, BAD, (None, None))[0]
    )
    meta = plan({"spark1": machine()}, {META: NEW}).turns[0]
    (fell,) = update.awry(meta, machine(NEW), RULES, BAD, (None, None), "6.17.0-1032-nvidia")
    assert "runs the kernel 6.17.0-1021-nvidia, not 6.17.0-1032-nvidia" in fell and "did not come up" in fell
    assert update.awry(turn, good, RULES, BAD, (None, "no answer")) == ["the GPU cannot be read: no answer"]
    other = Machine({name: NEW}, kernel="7.0.0-1019-nvidia")
    assert any("Kexec" in said for said in update.awry(turn, other, RULES, BAD, (None, None)))
