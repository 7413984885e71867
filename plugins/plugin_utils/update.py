# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Updates of the Sparks' packages: what each node gets, in which order, whether it is worse afterwards, and the way back."""

from __future__ import annotations

import fnmatch
import functools
import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.health import Health
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, Finding
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.knowledge import Entry
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.known_bad import platform_findings

NEWEST = "newest"
# As Debian's policy has them: they go into commands.
_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]{1,127}")
_VERSION = re.compile(r"(?:\d+:)?[0-9][A-Za-z0-9.+~-]{0,127}")
_KERNEL_NAME = re.compile(r"linux-image-(?:unsigned-)?(\d[a-z0-9.+~-]*)")
_KERNEL = re.compile(r"(\d+\.\d+\.\d+)[.-](\d+)")
_BOOT_S = 60.0  # two readings of one boot's time differ by less

Versions = t.Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Begun:
    """What an earlier run noted of a node: the set it was to get, what it had, when it had booted, whether it proved to be good.

    parts: what it had of each part beside the packages. there: the class's packages that it had. remove, boot: as of the turn.
    """

    wanted: dict[str, str]
    before: dict[str, str | None]
    kernel: str | None = None
    booted_s: float | None = None
    proven: bool = False
    there: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    boot: str | None = None
    parts: dict[str, dict[str, str | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Share:
    """What one node gets of a part beside the packages.

    does: for the plan's lines; none if only the way back is known, of a run that was killed. steps: what the role installs.
    before, wanted: versions by the part's own names. back: the way back.
    """

    does: tuple[str, ...]
    steps: tuple[dict[str, t.Any], ...]
    before: dict[str, str | None]
    wanted: dict[str, str]
    back: tuple[str, ...]
    restart: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an update beside the packages. wanted: versions by the part's own names. shares: by host. first: who must precede the others."""

    name: str
    wanted: dict[str, str] = field(default_factory=dict)
    shares: dict[str, Share] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    first: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Machine:
    """What a node reports. offered: by package, what apt can install there. reboot: whether packages ask for a restart."""

    installed: dict[str, str]
    held: frozenset[str] = frozenset()
    offered: dict[str, tuple[str, ...]] = field(default_factory=dict)
    kernel: str | None = None
    cmdline: str = ""
    booted_s: float | None = None
    reboot: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """What one node gets. install: NAME=VERSION. before: None where the package was not installed. there: names of what it had.

    remove: what a newer version had pulled in, where this one leads back from it; boot: the kernel that then is to boot. back: of what is
    no package. aim: all that the update is for.
    """

    host: str
    install: tuple[str, ...]
    restart: bool
    before: dict[str, str | None]
    wanted: dict[str, str]
    kernel: str | None
    back: tuple[str, ...] = ()
    there: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    boot: str | None = None
    resumed: bool = False
    aim: dict[str, str] = field(default_factory=dict)
    parts: dict[str, Share] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Update:
    """All nodes' turns in order, the canary first. holds: packages to hold now, by node. aim: packages, and versions of the parts."""

    wanted: dict[str, str]
    turns: tuple[Turn, ...]
    holds: dict[str, tuple[str, ...]]
    notes: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    aim: dict[str, str] = field(default_factory=dict)


def packages(text: str) -> tuple[dict[str, str], frozenset[str]]:
    """Return the installed versions, and what is held, from lines of dpkg-query: name, version, what is wanted, status."""
    installed, held = {}, set()
    for line in text.splitlines():
        cells = line.strip().split("|")
        if len(cells) == 4 and _NAME.fullmatch(cells[0]) and _VERSION.fullmatch(cells[1]):
            if cells[3] == "installed":
                installed[cells[0]] = cells[1]
            if cells[2] == "hold":
                held.add(cells[0])
    return installed, frozenset(held)


def offers(text: str) -> dict[str, tuple[str, ...]]:
    """Return what apt can install, from the lines of `apt-cache madison`: name | version | where."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 3 and _NAME.fullmatch(cells[0]) and _VERSION.fullmatch(cells[1]):
            found.setdefault(cells[0], []).append(cells[1])
    return {name: tuple(dict.fromkeys(versions)) for name, versions in found.items()}


def machine(listed: str, offered: str, health: Health) -> Machine:
    """Return what a node reports: dpkg-query's and apt-cache's lines, and its health."""
    installed, held = packages(listed)
    booted = None if health.time_s is None or health.uptime_s is None else health.time_s - health.uptime_s
    return Machine(
        installed=installed,
        held=held,
        offered=offers(offered),
        kernel=health.versions.get("kernel"),
        cmdline=health.cmdline,
        booted_s=booted,
        reboot=health.reboot_for is not None,
    )


def _weight(char: str) -> int:
    return -1 if char == "~" else ord(char) if char.isalpha() else ord(char) + 256


def _part(first: str, second: str) -> int:
    """Compare one part of two versions as dpkg does: letters before digits, a tilde before the end, numbers by value."""
    while first or second:
        a, b = (re.match(r"\D*", text)[0] for text in (first, second))  # type: ignore[index]
        for place in range(max(len(a), len(b))):
            x, y = (_weight(text[place]) if place < len(text) else 0 for text in (a, b))
            if x != y:
                return x - y
        first, second = first[len(a) :], second[len(b) :]
        c, d = (re.match(r"\d*", text)[0] for text in (first, second))  # type: ignore[index]
        if int(c or 0) != int(d or 0):
            return int(c or 0) - int(d or 0)
        first, second = first[len(c) :], second[len(d) :]
    return 0


def compare(first: str, second: str) -> int:
    """Return which of two versions of a Debian package is newer: negative, 0, or positive if the first is."""
    parts = []
    for version in (first, second):
        epoch, _colon, rest = version.rpartition(":")
        upstream, dash, revision = rest.rpartition("-")
        parts.append((int(epoch or 0), upstream if dash else rest, revision if dash else "0"))
    (e, u, r), (f, v, s) = parts
    return (e - f) or _part(u, v) or _part(r, s)


def component_version(component: str, name: str, version: str) -> str:
    """Return the version that the list of known-bad ones means: of a kernel its release, of others upstream's."""
    if component == "kernel":
        named = _KERNEL_NAME.fullmatch(name)
        release = _KERNEL.match(version.rpartition(":")[2])
        return named[1] if named else f"{release[1]}-{release[2]}" if release else version
    return version.rpartition(":")[2]


def rule_of(name: str, rules: t.Sequence[Entry]) -> Entry | None:
    """Return the first rule of `knowledge/updates` whose pattern has this package."""
    return next((rule for rule in rules if fnmatch.fnmatchcase(name, rule["packages"])), None)


def faults(
    name: str, version: str, rules: t.Sequence[Entry], known_bad: t.Sequence[Entry], cmdlines: t.Iterable[str]
) -> list[Finding]:
    """Return what is known against a version of a package, on nodes with these kernel command lines."""
    component = (rule_of(name, rules) or {}).get("component")
    if component is None:
        return []
    what = component_version(component, name, version)
    if not re.match(r"v?\d", what):
        return []
    found: dict[str, Finding] = {}
    for cmdline in sorted(set(cmdlines)):
        for finding in platform_findings({component: what, "cmdline": cmdline}, known_bad)[0]:
            found.setdefault(finding.id, finding)
    return list(found.values())


def _newest_good(
    name: str, machines: t.Mapping[str, Machine], bad: t.Callable[[str, str], list[Finding]]
) -> tuple[str | None, list[str]]:
    """Return the newest version that every node has or is offered and nothing speaks against, and notes on newer ones."""
    common = [
        {*machine.offered.get(name, ()), *([machine.installed[name]] if name in machine.installed else [])}
        for machine in machines.values()
    ]
    notes: list[str] = []
    for version in sorted(set.intersection(*common), key=functools.cmp_to_key(compare), reverse=True):
        against = [finding for finding in bad(name, version) if finding.severity != "info"]
        if not against:
            return version, notes
        notes.append(f"{name} {version} is passed over: {against[0].message}")
    return None, notes


def plan(
    machines: t.Mapping[str, Machine],
    stated: Versions,
    rules: t.Sequence[Entry],
    known_bad: t.Sequence[Entry],
    begun: t.Mapping[str, Begun],
    *,
    canary: str | None = None,
    restarts: bool = True,
    parts: t.Sequence[Part] = (),
    only_stated: bool = False,
) -> Update:
    """Return what each node gets.

    machines: in the inventory's order. stated: versions by package (`newest`: the newest good one); empty: the newest good one
    of each package that is installed and that a rule takes by default, unless only_stated. begun: what earlier runs noted.
    restarts: whether nodes may be restarted. parts: what they get beside the packages. Raises CollectionError for a name or version
    that is none.
    """
    for name, version in stated.items():
        if not _NAME.fullmatch(name) or not (version == NEWEST or _VERSION.fullmatch(version)):
            raise CollectionError(
                f"spark_update_packages: {name}={version} is not a package with a version. Write, for example, linux-image-nvidia: "
                f"6.17.0-1032.32, or {NEWEST}."
            )
    if canary is not None and canary not in machines:
        raise CollectionError(f"spark_update_canary: {canary} is not in this run. It has {', '.join(machines)}.")
    cmdlines = [machine.cmdline for machine in machines.values()]

    def bad(name: str, version: str) -> list[Finding]:
        return faults(name, version, rules, known_bad, cmdlines)

    wanted: dict[str, str] = {}
    notes: list[str] = []
    refusals: list[str] = []
    asked = dict(stated)
    if not asked and not only_stated:
        some = {
            name for each in machines.values() for name in each.installed if (rule_of(name, rules) or {}).get("default")
        }
        asked = {name: NEWEST for name in some if all(name in each.installed for each in machines.values())}
        notes += [
            f"{name} stays: {', '.join(host for host, each in machines.items() if name not in each.installed)} does not have it. "
            "State its version to bring it to all."
            for name in sorted(some - asked.keys())
        ]
    for name, version in sorted(asked.items()):
        if version == NEWEST:
            good, passed_over = _newest_good(name, machines, bad)
            notes += passed_over
            if good is None:
                notes.append(
                    f"{name} is not updated: no version without a known fault is available to all of {', '.join(machines)}."
                )
                continue
            ahead = [host for host, each in machines.items() if _ahead(each.installed.get(name), good)]
            if ahead:
                notes.append(
                    f"{name} stays: {', '.join(ahead)} has a newer one than the newest good one for all ({good}). Name that version "
                    "to downgrade to it."
                )
                continue
            version = good
        else:
            lacking = [
                host
                for host, each in machines.items()
                if each.installed.get(name) != version and version not in each.offered.get(name, ())
            ]
            refusals += [
                f"{name} {version}: apt offers it on no repository of {host}. `apt-cache madison {name}` shows what it offers."
                for host in lacking
            ]
        for finding in bad(name, version):
            said = f"{name} {version}: {finding.message} {finding.remedy}"
            (refusals if finding.severity == "error" else notes).append(said)
        wanted[name] = version
    aim = wanted | {f"{part.name} {name}": version for part in parts for name, version in part.wanted.items()}
    notes += [note for part in parts for note in part.notes]
    refusals += [refusal for part in parts for refusal in part.refusals]
    turns = []
    for host, machine in machines.items():
        shares = {part.name: part.shares[host] for part in parts if host in part.shares}
        if turn := _turn(host, machine, wanted, rules, begun.get(host), restarts, aim, shares):
            turns.append(turn)
    notes += [
        f"{turn.host}: {name} leads back, but what a newer version had brought stays, as it was not noted, and the newest kernel boots. "
        "Remove that one (apt-get remove linux-image-…)."
        for turn in turns
        for name, version in turn.wanted.items()
        if not turn.remove
        and (rule_of(name, rules) or {}).get("component") == "kernel"
        and _ahead(turn.before.get(name), version)
    ]
    # What an earlier run began comes first, then who must, then the owner's choice.
    ahead_of_all = {host for part in parts for host in part.first}
    turns.sort(key=lambda turn: (not turn.resumed, turn.host not in ahead_of_all, turn.host != canary))
    holds = {
        host: tuple(name for name in wanted if name in machine.installed and name not in machine.held)
        for host, machine in machines.items()
    }
    return Update(wanted, () if refusals else tuple(turns), holds, tuple(dict.fromkeys(notes)), tuple(refusals), aim)


def _ahead(installed: str | None, good: str) -> bool:
    return installed is not None and compare(installed, good) > 0


def _turn(
    host: str,
    machine: Machine,
    wanted: Versions,
    rules: t.Sequence[Entry],
    begun: Begun | None,
    restarts: bool,
    aim: Versions,
    shares: t.Mapping[str, Share],
) -> Turn | None:
    """Return what a node gets; None if it has it, proven as far as an earlier run began it."""
    resumed = begun is not None and begun.wanted == aim and not begun.proven
    install = tuple(f"{name}={version}" for name, version in wanted.items() if machine.installed.get(name) != version)
    due = any(share.does for share in shares.values())
    if not (install or resumed or due or (machine.reboot and restarts and aim)):
        return None
    before: dict[str, str | None] = {name: machine.installed.get(name) for name in wanted}
    kernel, there = machine.kernel, tuple(machine.installed)
    remove, boot = _pulled_in(machine, wanted, begun)
    still = False
    if resumed and begun is not None:
        before, kernel, there = begun.before, begun.kernel, begun.there
        remove, boot = begun.remove, begun.boot
        # A run that was killed after it had installed them has not restarted the node.
        known = begun.booted_s is not None and machine.booted_s is not None
        still = not known or abs(t.cast(float, begun.booted_s) - t.cast(float, machine.booted_s)) < _BOOT_S
    changed = {pair.split("=")[0] for pair in install} | (
        {name for name, version in before.items() if wanted.get(name) != version} if still else set()
    )
    asks = machine.reboot or any((rule_of(name, rules) or {}).get("restart") for name in changed)
    asks = asks or any(share.restart for share in shares.values())
    return Turn(
        host,
        install,
        restarts and asks,
        before,
        dict(wanted),
        kernel,
        tuple(back for share in shares.values() for back in share.back),
        there,
        remove,
        boot,
        resumed,
        dict(aim),
        dict(shares),
    )


def _pulled_in(machine: Machine, wanted: Versions, begun: Begun | None) -> tuple[tuple[str, ...], str | None]:
    """Return what the versions that an earlier run installed had brought with them, if these lead back from them, and the kernel before.

    The newest kernel that is installed boots: an older version of the package that pulls it does not bring the older one back.
    """
    if begun is None or not any(
        name in begun.wanted and compare(version, begun.wanted[name]) < 0 for name, version in wanted.items()
    ):
        return (), None
    return tuple(came(machine.installed, begun.there, {*wanted, *begun.wanted})), begun.kernel


def came(installed: t.Iterable[str], there: t.Collection[str], named: t.Collection[str]) -> list[str]:
    """Return the packages that others have brought. there: empty if that was not noted."""
    return [name for name in installed if there and name not in there and name not in named]


def plan_lines(update: Update) -> list[str]:
    """Return the plan in lines for a terminal."""
    lines = [f"refused: {text}" for text in update.refusals] + [f"note: {text}" for text in update.notes]
    if not update.turns and not update.refusals:
        return [*lines, "Every Spark has what is wanted. Nothing is updated."]
    for place, turn in enumerate(update.turns):
        role = "first, alone" if place == 0 else f"then, if {update.turns[place - 1].host} is no worse"
        gets = [*turn.install, *(done for share in turn.parts.values() for done in share.does)]
        does = [f"gets {', '.join(gets)}" if gets else "", "is restarted" if turn.restart else ""]
        does.append(f"loses {', '.join(turn.remove)}" if turn.remove else "")
        more = " (an earlier run began it)" if turn.resumed else ""
        lines.append(f"{role}: {turn.host} {' and '.join(filter(None, [*does])) or 'is proven'}{more}")
    return lines


@dataclass(frozen=True, slots=True)
class Proof:
    """What was measured: verify's verdict, and tokens/s by workload and level. None: not run; `why` says so."""

    verdict: str | None = None
    tokens: dict[str, float] | None = None
    why: tuple[str, ...] = ()


def tokens_of(report: t.Mapping[str, t.Any]) -> dict[str, float]:
    """Return a bench report's tokens/s by the clock, by workload and level, 0 where answers were not good."""
    return {
        f"{workload['name']} n={level['n']}": float(level["figures"]["wall_tokens_per_s"] or 0)
        if level["verdict"] == "good"
        else 0.0
        for workload in report["workloads"]
        for level in workload["levels"]
    }


def unfit(proof: Proof) -> list[str]:
    """Return why a cluster must not be updated as it is: a fault would be blamed on the update."""
    reasons = [f"verify's verdict is {proof.verdict}"] if proof.verdict not in (None, "passed") else []
    reasons += [
        f"the model's answers at {where} are not good" for where, speed in (proof.tokens or {}).items() if not speed
    ]
    return reasons


def worse(before: Proof, after: Proof, tolerance_percent: float) -> list[str]:
    """Return in what the second measurement is worse than the first."""
    found = []
    if before.verdict == "passed" and after.verdict != "passed":
        found.append(f"verify's verdict is {after.verdict or 'missing'}; it was passed before")
    if before.tokens and after.tokens is None:
        found.append("the model that was measured before does not answer")
    tokens = after.tokens
    for where, speed in (before.tokens or {}).items() if tokens is not None else ():
        now = (tokens or {}).get(where, 0.0)
        if now < speed * (1 - tolerance_percent / 100):
            lost = f"{100 * (1 - now / speed):.0f} % less" if now else "no good answers"
            found.append(f"{where}: {now:.1f} tokens/s, {speed:.1f} before ({lost})")
    return found


def awry(
    turn: Turn,
    machine: Machine,
    rules: t.Sequence[Entry],
    known_bad: t.Sequence[Entry],
    gpu: tuple[str | None, str | None],
    tried: str | None = None,
) -> list[str]:
    """Return what is wrong on the node itself after its turn.

    gpu: why the GPU could not be read, before and now. tried: the kernel that was on trial.
    """
    found = [
        f"{name} is {machine.installed.get(name, 'not installed')}, not {version}"
        for name, version in turn.wanted.items()
        if machine.installed.get(name) != version
    ]
    named = {m[1] for name in turn.wanted if (m := _KERNEL_NAME.fullmatch(name)) and turn.before.get(name) is None}
    if turn.restart and named and machine.kernel not in named:
        found.append(f"it runs the kernel {machine.kernel}, not {', '.join(sorted(named))}")
    elif tried and machine.kernel != tried:
        found.append(f"it runs the kernel {machine.kernel}, not {tried}, which was to be tried and did not come up")
    if gpu[1] and not gpu[0]:
        found.append(f"the GPU cannot be read: {gpu[1]}")
    if machine.kernel and re.match(r"\d", machine.kernel) and machine.kernel != turn.kernel:
        running = {"kernel": machine.kernel, "cmdline": machine.cmdline}
        found += [f.message for f in platform_findings(running, known_bad)[0] if f.severity == "error"]
    return found
