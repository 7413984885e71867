# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Send each rank group one request from the controller, which has the guards and their limits."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, to_plain
from ansible_collections.dgxspark.cluster.plugins.modules.serving_canary import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench import known
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.client import ChatRequest, Outcome, ask
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.guards import Answer, compare, limits_of
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain


class ActionModule(ControllerAction):
    """Ask, report."""

    arguments = ARGUMENTS
    initial = {"groups": [], "signs": []}  # noqa: RUF012 - never changed

    def act(self, args: Plain) -> Plain:
        """Return the outcome of each request; failed if one of them returned no good text."""
        if args["max_tokens"] < 1 or args["timeout"] <= 0:
            raise CollectionError("max_tokens and timeout must be more than 0.")
        limits = limits_of(known.guards(args["knowledge_dirs"]))
        outcomes = [ask(_request(args, group), limits) for group in args["groups"]]
        signs = compare([_answer(outcome) for outcome in outcomes if outcome.finish_reason], limits.requests)
        bad = [f"{o.message} {o.remedy}" for o in outcomes if o.status == "failed"]
        # A failed request's own cause is enough.
        bad += [f"{s.message} {s.remedy}" for s in signs if s.severity == "error" and not bad]
        result = {"groups": to_plain(outcomes), "signs": to_plain(signs)}
        return {**result, "failed": True, "msg": " ".join(bad)} if bad else result


def _request(args: Plain, group: Plain) -> ChatRequest:
    shared = ("prompt", "max_tokens", "timeout", "expect", "api_key", "validate_certs", "ca_path")
    return ChatRequest(
        name=group["name"],
        url=group["url"],
        model=group["model"],
        hosts=tuple(group["hosts"]),
        **{name: args[name] for name in shared},
    )


def _answer(outcome: Outcome) -> Answer:
    return Answer(outcome.name, outcome.tokens_per_s, outcome.has_content, outcome.finish_reason)
