# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Interpret kubernetes.core's answer about many objects."""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, text_diff
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import Plain

Object = t.Mapping[str, t.Any]


def title(made: Object) -> str:
    """Return an object's name for messages."""
    namespace = made["metadata"].get("namespace")
    return f"{made['kind']}/{f'{namespace}/' if namespace else ''}{made['metadata']['name']}"


def leaving(objects: t.Sequence[Object], said: Object) -> list[str]:
    """Return the objects that accepted the change while they are being deleted: the change is deleted with them.

    A namespace that is being deleted accepts no new objects: the server refuses those.
    """
    if said.get("failed"):
        going = re.findall(r"new content in namespace (\S+) because it is being terminated", str(said.get("msg")))
        return sorted({f"Namespace/{name}" for name in going})
    results = [said] if len(objects) == 1 else list((said.get("result") or {}).get("results") or ())
    stored = [result.get("result") or {} for result in results]
    return [
        title(made)
        for made, result in zip(objects, stored, strict=False)
        if (result.get("metadata") or {}).get("deletionTimestamp")
    ]


def outcome(objects: t.Sequence[Object], said: Object, after: t.Sequence[Object] = ()) -> Plain:
    """Return `changed`, `objects` (a line for each) and `diff`; CollectionError for a fault that check mode does not explain.

    said: what kubernetes.core.k8s returned for these objects. after: what earlier steps would have created (check mode).
    """
    results = [said] if len(objects) == 1 else list(said["result"]["results"])
    would = [*after, *objects]
    namespaces = {each["metadata"]["name"] for each in would if each["kind"] == "Namespace"}
    kinds = {each["spec"]["names"]["kind"] for each in would if each["kind"] == "CustomResourceDefinition"}
    lines, diffs, changed, faults = [], [], False, []
    for made, result in zip(objects, results, strict=True):
        error = result.get("error")
        if error:
            text = str(error.get("msg", error))
            missing_namespace = "not found" in text and made["metadata"].get("namespace") in namespaces
            missing_kind = "exact match" in text and made["kind"] in kinds
            if not (missing_namespace or missing_kind):
                faults.append(f"{title(made)}: {text}")
                continue
            lines.append(f"{title(made)}: would be created")
            diffs.append(_diff(made, {"before": {}, "after": dict(made)}))
            changed = True
            continue
        lines.append(f"{title(made)}: {'changed' if result['changed'] else 'unchanged'}")
        changed = changed or bool(result["changed"])
        if result["changed"] and result.get("diff"):
            diffs.append(_diff(made, result["diff"]))
    if faults:
        raise CollectionError(" ".join(faults))
    return {"changed": changed, "objects": lines, "diff": diffs}


def _diff(made: Object, diff: Object) -> Plain:
    def text(value: t.Any) -> str:
        return json.dumps(value, indent=2, sort_keys=True) + "\n" if value else ""

    return text_diff(title(made), text(diff["before"]), text(diff["after"]))
