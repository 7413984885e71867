# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gather NCCL's logs from text, files of the host and pods; judge them with the controller's knowledge."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.evidence import merge, pack, unpack
from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.files import text_lines
from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.log import Evidence, Reader
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, to_plain
from ansible_collections.dgxspark.cluster.plugins.modules.nccl_transport import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import signatures
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl import transport
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl.verdict import Expected


class ActionModule(ControllerAction):
    """Drive the module nccl_transport."""

    arguments = ARGUMENTS
    _requires_connection = True

    def act(self, args: Plain) -> Plain:
        """Return the report; failed if the verdict is not the expected one."""
        evidence = self._gather(args)
        expected = Expected(args["world_size"], args["nodes"], args["ranks_per_node"])
        made = transport.report(evidence, expected, args["knowledge_dirs"])
        if args["return_log"]:
            made["log"] = pack(evidence)
        refused = transport.refusal(made, args["expect"])
        return {**made, **self.failure(refused)} if refused else made

    def _texts(self, args: Plain) -> t.Iterator[tuple[str, str]]:
        """Yield the logs read here with their names, one at a time."""
        if args["text"] is None and not (args["paths"] or args["pods"] or args["parts"]):
            raise CollectionError("there is no log to read. Give text, paths, pods or parts.")
        if args["text"] is not None:
            yield "text", args["text"]
        if args["pods"]:
            yield from ask.logs(self, args["pods"], self.task_vars)

    def _gather(self, args: Plain) -> Evidence:
        """Read the local logs, have the host read its files, and merge everything; `readings` go into the result."""
        found = transport.signatures(args["knowledge_dirs"])
        table = signatures.load_table(args["knowledge_dirs"]) if args["return_readings"] else None
        if table is not None:
            self.result["readings"] = []
        reader = Reader(found)
        for name, text in self._texts(args):
            if table is not None:
                self.result["readings"] += to_plain(signatures.read_all([(name, text)], table))
            reader.read(name, text_lines(text))
        parts = [unpack(part, f"parts[{place}]") for place, part in enumerate(args["parts"])]
        if args["paths"]:
            own = {"paths": args["paths"], "signatures": [dataclasses.asdict(each) for each in found]}
            answer = ask.answer(self._execute_module, "dgxspark.cluster.nccl_transport", own, self.task_vars)
            parts.append(transport.of_host(unpack(answer["log"]), self.task_vars.get("inventory_hostname")))
        return merge([reader.finish(), *parts])
