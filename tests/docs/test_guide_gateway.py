"""What the guide on the gateway shows of dividing Sparks is what `groups` prints today."""

from __future__ import annotations

import re

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import launch_plan
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import groups
from ansible_collections.dgxspark.cluster.tests.unit import guide


def test_the_divisions_are_those_of_the_command_above_them() -> None:
    (command,) = (each for each in guide.commands("guide_gateway") if "--check" in each and ".groups" in each)
    profile, shape = (re.findall(rf"{name}=(\S+)", command)[0] for name in ("model_profile", "traffic_shape"))
    (shown,) = (block for block in guide.blocks("guide_gateway", "text") if block.startswith("GROUPS"))
    found = groups.divisions(8, lambda sparks: launch_plan(profile, groups.overrides_of({}, sparks)))
    printed = groups.table(found, groups.choose(found, shape))
    for line, told in zip(printed, shown.strip().splitlines(), strict=True):
        # The guide cuts a reason short.
        assert " ".join(line.split()).startswith(" ".join(told.split()).removesuffix(" …")), f"{line}\n{told}"
