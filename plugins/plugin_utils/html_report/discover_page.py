# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The discovery as one self-contained HTML page: a picture of hosts and cables, and the evidence behind the inventory.

It has no date, so the same nodes give the same page.
"""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report import frame
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report.picture import picture
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.signatures import count

Plain = t.Mapping[str, t.Any]

_WORDS = {"dgx_os": "DGX OS", "kernel": "Kernel", "driver": "Driver", "firmware": "NIC firmware", "bios": "BIOS"}
_HEADINGS = {"passed": "Ready to run", "incomplete": "Ready, with a word of warning", "failed": "No inventory"}


def page(view: Plain) -> str:
    """Return the page of `discover.report.view`. Raises CollectionError for anything else."""
    with frame.reading("this is not a result of discover, or it is damaged: {!r}."):
        drawn = {**view, "topology": view["topology"] or "not known", "steps": []}
        content = {
            "view": view,
            "heading": _HEADINGS[view["verdict"]],
            "sentence": view["headline"] if view["settings"] else _why_not(view),
            "date": None,
            "facts": _facts(view),
            "serious": [finding for finding in view["findings"] if finding["severity"] != "info"],
            "notes": [finding for finding in view["findings"] if finding["severity"] == "info"],
            "words": _WORDS,
            "joined": any(function["segment"] for host in view["hosts"] for function in host["functions"]),
            "networks": _networks(view["settings"]) if view["settings"] else [],
            "fabric": frame.markup(picture(drawn)) if any(host["functions"] for host in view["hosts"]) else None,
        }
        return frame.render("discover.html.j2", content, {})


def _why_not(view: Plain) -> str:
    """Return the first reason why there is no inventory, and how many more there are."""
    more = sum(finding["severity"] == "error" for finding in view["findings"]) - 1
    also = f" And {count(more, 'more reason')}, below." if more > 0 else ""
    return f"{view['headline'].partition(': ')[2]}{also}"


def _facts(view: Plain) -> list[tuple[str, str]]:
    hosts = view["hosts"]
    seen = sum(host["status"] == "seen" for host in hosts)
    facts = [("Topology", view["topology"] or "\u2013"), ("Hosts", f"{seen} of {len(hosts)} seen")]
    facts.append(("Hardware", view["hardware"]))
    if view["settings"] and "vf_count" in view["settings"]:
        facts.append(("VFs on each function", str(view["settings"]["vf_count"])))
    return facts


def _networks(settings: Plain) -> list[tuple[str, str]]:
    rows = [(settings["address_pool"], "the fabric")]
    rows += [(network, "management") for network in settings["management_networks"]]
    return rows + [(network, f"kept clear: {name}") for name, network in settings["reserved_networks"].items()]
