# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `-l` really selects: Ansible reads `spark[1-4]` as positions in the group `spark`, where owners mean host names."""

from __future__ import annotations

import pathlib
import re
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, Finding

_SUBSCRIPT = re.compile(r"^[&!]?(?P<stem>[A-Za-z_][\w.-]*)\[(?P<first>\d+)(?P<range>[:-](?P<last>\d*))?\]$")
# A colon separates patterns too, but not inside brackets.
_SEPARATOR = re.compile(r",|:(?![^\[]*\])")


def _spelled(stem: str, first: str, last: str) -> list[str]:
    width = len(first) if first.startswith("0") else 0
    return [f"{stem}{number:0{width}d}" for number in range(int(first), int(last) + 1)]


def _highest(stem: str, hosts: t.Collection[str]) -> int:
    tails = (name.removeprefix(stem) for name in hosts if name.startswith(stem))
    return max((int(tail) for tail in tails if tail.isdecimal()), default=0)


def _command(names: t.Sequence[str]) -> str:
    stem = re.sub(r"\d+$", "", names[0])
    tails = [name[len(stem) :] for name in names]
    if all(len(tail) == 1 for tail in tails) and len(tails) > 1:
        numbers = f"[{tails[0]}-{tails[-1]}]"
    else:
        numbers = tails[0] if len(tails) == 1 else f"({'|'.join(tails)})"
    return f"-l '~^{stem}{numbers}$'"


_EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "inventories"
# What a playbook takes in place of an inventory, by its variable.
_INSTEAD = {
    "sparks": "the number of your Sparks, such as -e sparks=2",
    "dgxspark_bench_url": "a server, -e dgxspark_bench_url=http://ADDRESS:PORT/v1",
}
_DEFAULT = "/etc/ansible/hosts"  # what Ansible takes where no inventory is given


def all_hosts(
    groups: t.Mapping[str, t.Sequence[str]],
    *,
    needed: bool = True,
    sources: t.Sequence[str] = (),
    addresses: bool = False,
    unless: str = "",
) -> str:
    """Return the pattern for all hosts. CollectionError if a host is needed and the inventory has none.

    sources: the values of `-i`. addresses: the playbook works on plain addresses, and needs no groups. unless: the condition on which
    the playbook needs no host, as it is written there.
    """
    if not needed or groups.get("all"):
        return "all"
    given = [pathlib.Path(each) for each in map(str, sources) if each != _DEFAULT and "," not in each]
    for source in given:
        if not source.exists():
            raise CollectionError(f"-i {source.name}: there is no such file or folder{_elsewhere(source)}")
    if addresses and not given:
        raise CollectionError("There is no host to look at. Name your Sparks' addresses: -i '192.0.2.11,192.0.2.12,'")
    instead = next((option for name, option in _INSTEAD.items() if f"{name} is defined" in unless), "")
    if instead and not given:
        raise CollectionError(f"There is nothing to work on: give {instead}, or an inventory with -i.")
    read = (
        f"-i {given[0].name}: if Ansible warns of it, above, the warning says what it could not read. " if given else ""
    )
    raise CollectionError(
        f"{read}The inventory has no hosts, so there is nothing to work on. Give one with -i, such as the folder `inventory` that "
        f"dgxspark.cluster.discover writes, or a copy of one of {_EXAMPLES}."
    )


def _elsewhere(source: pathlib.Path) -> str:
    """Return how the message of an inventory that is not there goes on."""
    name = source.name
    if below := [each.parent.name for each in sorted(source.parent.glob(f"*/{name}"))][:3]:
        return f" here. There is one in {' and in '.join(below)}: type `cd {below[0]}` first."
    if name == "inventory":
        return " here. dgxspark.cluster.discover writes one into the folder that dgxspark_discover_to names: cd into that first."
    return f". If {name} is a host, end the list with a comma: -i '{name},'"


def check_limit(
    limit: str,
    groups: t.Mapping[str, t.Sequence[str]],
    reached: t.Sequence[str],
    targets: t.Sequence[str],
    also: t.Sequence[str] = (),
) -> list[Finding]:
    """Return what is wrong with a limit, before any host is touched.

    limit: the value of `-l`, or "". groups: Ansible's `groups`. reached: the hosts that the limit selects. targets: the
    groups that the playbook works on; the limit must select at least one host of these or of the groups `also`, which may
    be missing from the inventory.
    """
    findings = []
    hosts = set(groups.get("all", ()))
    for term in filter(None, (part.strip() for part in _SEPARATOR.split(limit))):
        match = _SUBSCRIPT.match(term)
        if not match:
            continue
        stem, first = match["stem"], match["first"]
        # "spark[2:]" is open-ended: a reader takes it as every name from spark2 on.
        last = match["last"] or (str(_highest(stem, hosts)) if match["range"] else first)
        spelled = _spelled(stem, first, last)
        meant = [name for name in spelled if name in hosts]
        end = None if match["range"] and not match["last"] else int(last) + 1
        got = list(groups.get(stem, ()))[int(first) : end]
        if meant and set(meant) != set(got):
            means = f"the group's members at these positions, counted from 0: {', '.join(got) or 'none'}"
            if stem not in groups:
                means = f"positions in a group {stem!r}, which this inventory does not have: no hosts"
            findings.append(
                Finding(
                    "limit.subscript",
                    "error",
                    f"--limit {term}",
                    f"Ansible reads it as {means}; it looks like {', '.join(meant)}.",
                    f"Use names: {_command(meant)}. Or give the inventory a group {stem!r} whose first member is "
                    "the controller, followed by the Sparks in order, as inventories/example has it.",
                )
            )
        elif meant and (beyond := [name for name in spelled if name not in hosts]):
            findings.append(
                Finding(
                    "limit.beyond",
                    "error",
                    f"--limit {term}",
                    f"the inventory has no {', '.join(beyond)}: it would reach only {', '.join(meant)}.",
                    f"Use {_command(meant)}, or leave out the limit for all hosts.",
                )
            )
    known = [name for target in targets for name in groups.get(target, ())]
    if not known:
        findings.append(
            Finding(
                "limit.no-group",
                "error",
                "inventory",
                f"no host is in the group {' or '.join(targets)}, on which this playbook works.",
                "Put the Sparks there, as inventories/example/hosts.yml does, or let dgxspark.cluster.discover write an inventory.",
            )
        )
    elif not {*known, *(name for group in also for name in groups.get(group, ()))} & set(reached) and not findings:
        findings.append(
            Finding(
                "limit.nobody",
                "error",
                f"--limit {limit}",
                f"it leaves no host of the group {' or '.join([*targets, *also])}, so there would be nothing to do.",
                f"Include at least one of {', '.join(known)}, such as {_command(known[:1])}.",
            )
        )
    return findings
