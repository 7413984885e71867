# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask each rank group one question, from the controller: there the guards and their limits lie."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, to_plain
from ansible_collections.dgxspark.cluster.plugins.modules.serving_canary import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.client import ChatRequest, Outcome, ask
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.guards import Answer, compare, limits_of


class ActionModule(ActionBase):
    """Check the arguments, ask, report."""

    _supports_check_mode = True
    _supports_diff = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Return the outcome of each request; failed where one of them brought no good text."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        checked, _arguments = self.validate_argument_spec(ARGUMENTS)
        given = checked.validated_parameters
        result |= {"changed": False, "groups": [], "signs": []}
        try:
            if given["max_tokens"] < 1 or given["timeout"] <= 0:
                raise CollectionError("max_tokens and timeout must be more than 0.")
            limits = limits_of(knowledge.load("guards", given["knowledge_dirs"]))
            outcomes = [ask(_asked(given, group), limits) for group in given["groups"]]
        except CollectionError as exc:
            return {**result, "failed": True, "msg": f"dgxspark.cluster.serving_canary: {exc}"}
        signs = compare([_answer(outcome) for outcome in outcomes if outcome.finish_reason], limits.requests)
        result |= {"groups": to_plain(outcomes), "signs": to_plain(signs)}
        bad = [f"{o.message} {o.remedy}" for o in outcomes if o.status == "failed"]
        # Of one request alone its own cause says it all.
        bad += [f"{s.message} {s.remedy}" for s in signs if s.severity == "error" and not bad]
        if bad:
            return {**result, "failed": True, "msg": " ".join(bad)}
        return result


def _asked(given: dict[str, t.Any], group: dict[str, t.Any]) -> ChatRequest:
    shared = ("prompt", "max_tokens", "timeout", "expect", "api_key", "validate_certs", "ca_path")
    return ChatRequest(
        name=group["name"],
        url=group["url"],
        model=group["model"],
        hosts=tuple(group["hosts"]),
        **{name: given[name] for name in shared},
    )


def _answer(outcome: Outcome) -> Answer:
    return Answer(outcome.name, outcome.tokens_per_s, outcome.has_content, outcome.finish_reason)
