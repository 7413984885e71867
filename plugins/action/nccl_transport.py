# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gather NCCL's logs from text, files of the host and pods; judge them with the controller's knowledge."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible.plugins.action import ActionBase

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.evidence import merge, pack, unpack
from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.files import text_lines
from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.log import Evidence, Reader
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, to_plain
from ansible_collections.dgxspark.cluster.plugins.modules.nccl_transport import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import signatures
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl import transport
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl.verdict import Expected

MODULE = "dgxspark.cluster.nccl_transport"


class ActionModule(ActionBase):
    """Drive the module nccl_transport."""

    _supports_check_mode = True
    _supports_diff = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Return the report; failed where the verdict is not the expected one."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        checked, _arguments = self.validate_argument_spec(ARGUMENTS)
        asked = checked.validated_parameters
        result["changed"] = False
        try:
            evidence = self._gather(asked, result, task_vars)
            expected = Expected(asked["world_size"], asked["nodes"], asked["ranks_per_node"])
            made = transport.report(evidence, expected, asked["knowledge_dirs"])
        except CollectionError as exc:
            return {**result, "failed": True, "msg": f"{MODULE}: {exc}"}
        if asked["return_log"]:
            made["log"] = pack(evidence)
        refused = transport.refusal(made, asked["expect"])
        return {**result, **made, **({"failed": True, "msg": f"{MODULE}: {refused}"} if refused else {})}

    def _texts(self, asked: dict[str, t.Any], task_vars: t.Any) -> t.Iterator[tuple[str, str]]:
        """Return the logs that are read here, with their names, one at a time."""
        if asked["text"] is None and not (asked["paths"] or asked["pods"] or asked["parts"]):
            raise CollectionError("there is no log to read. Give text, paths, pods or parts.")
        if asked["text"] is not None:
            yield "text", asked["text"]
        if asked["pods"]:
            yield from self._pods(asked["pods"], task_vars)

    def _gather(self, asked: dict[str, t.Any], result: dict[str, t.Any], task_vars: t.Any) -> Evidence:
        """Read what is here, have the host read its files, and put all together; `readings` go into the result."""
        found = transport.signatures(asked["knowledge_dirs"])
        table = signatures.load_table(asked["knowledge_dirs"]) if asked["return_readings"] else None
        if table is not None:
            result["readings"] = []
        reader = Reader(found)
        for name, text in self._texts(asked, task_vars):
            if table is not None:
                result["readings"] += to_plain(signatures.read_all([(name, text)], table))
            reader.read(name, text_lines(text))
        parts = [unpack(part, f"parts[{place}]") for place, part in enumerate(asked["parts"])]
        if asked["paths"]:
            own = {"paths": asked["paths"], "signatures": [dataclasses.asdict(each) for each in found]}
            answer = ask.answer(self._execute_module, MODULE, own, task_vars)
            host = (task_vars or {}).get("inventory_hostname")
            parts.append(_of_host(unpack(answer["log"]), host))
        return merge([reader.finish(), *parts])

    def _pods(self, pods: dict[str, t.Any], task_vars: t.Any) -> t.Iterator[tuple[str, str]]:
        """Return name and log of every pod with the labels."""
        where = {**pods["connection"], "namespace": pods["namespace"]}
        listed = ask.objects(self, ("v1", "Pod"), where, pods["label_selectors"], task_vars)
        if not listed:
            raise CollectionError(
                f"pods: none with {', '.join(pods['label_selectors'])} in namespace {pods['namespace']}. Correct the labels."
            )
        for pod in listed:
            name = pod["metadata"]["name"]
            options = {**where, "name": name, "previous": pods["previous"]}
            if pods["container"]:
                options["container"] = pods["container"]
            said = ask.answer(self._execute_module, "kubernetes.core.k8s_log", options, task_vars)
            yield f"pod {name}", said["log"]


def _of_host(evidence: Evidence, host: str | None) -> Evidence:
    """Say of which host the files are: the same path may be on all."""
    if host:
        evidence.sources = {f"{host}:{name}": count for name, count in evidence.sources.items()}
        for process in evidence.processes:
            process.source = f"{host}:{process.source}"
    return evidence
