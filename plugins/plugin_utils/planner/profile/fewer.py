# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to serve instead of a profile that needs more Sparks than there are: the most similar models that fit."""

from __future__ import annotations

import difflib
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

from .profile import Entry, Profile, entries, find

MOST = 3
TRIED = 12  # candidates that are planned at most: a plan takes some hundredths of a second


def _spreads(entry: Entry, hosts: int) -> t.Iterator[str]:
    """Yield the variants that run on so many hosts."""
    own = entry.get("parallel", {}).get("nodes", 1)
    variants = entry.get("variants") or {"": {}}
    for name, variant in variants.items():
        if (variant.get("parallel") or {}).get("nodes", own) <= hosts:
            yield name


def fitting(
    chosen: Profile, hosts: int, dirs: t.Sequence[str], runs: t.Callable[[str, str], bool]
) -> list[tuple[str, str]]:
    """Return the profiles and variants ("" without any) that fit so many hosts, the one with the most similar model first.

    runs: whether the planner accepts a profile's variant.
    """
    name = chosen.model.rpartition("/")[2].casefold()
    alike = []
    for profile in sorted(entries(dirs)):
        entry = find(profile, dirs)
        near = difflib.SequenceMatcher(None, name, str(entry["model"]).rpartition("/")[2].casefold()).ratio()
        alike += [(-near, profile, variant) for variant in list(_spreads(entry, hosts))[:1]]
    found = []
    for _near, profile, variant in sorted(alike)[:TRIED]:
        try:
            found += [(profile, variant)] if runs(profile, variant) else []
        except CollectionError:
            continue
        if len(found) == MOST:
            break
    return found


def too_few_nodes(
    chosen: Profile, hosts: int, dirs: t.Sequence[str], runs: t.Callable[[str, str], bool]
) -> CollectionError:
    """Return the refusal of a profile that needs more hosts than there are. runs: as in `fitting`."""
    found = fitting(chosen, hosts, dirs, runs)
    instead = ", ".join(f"{profile} ({variant})" if variant else profile for profile, variant in found)
    remedy = f"The nearest that fit: {instead}. " if found else ""
    return CollectionError(
        f"profile {chosen.id!r}: parallel.nodes: {chosen.nodes} nodes are needed, the cluster has {hosts}. {remedy}"
        f"`ansible-playbook dgxspark.cluster.models -e sparks={hosts}` lists all that fit. Or override parallel."
    )
