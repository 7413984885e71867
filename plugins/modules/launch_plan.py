#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: launch_plan
short_description: Plan how a model is launched on Sparks
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Says before any weights are loaded whether a model will run, why not, how much memory it takes, and each rank's
    command. It decides on the controller, where profiles and knowledge are, and touches no node.
  - It judges what will run - the requested settings, those that the plan adds, and the engine's choices for the rest.
  - The verdict is V(blocked) if there is a finding of severity error (a rule, an equal measured configuration that went
    wrong, an image of another version), V(proven) where an equal configuration was stable, else V(unproven).
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.serving
  - dgxspark.cluster.serving.knowledge
options:
  profile:
    description: The id of a profile, the name of a model that has one profile, or a profile as a dictionary.
    type: raw
    required: true
  traffic_shape:
    description:
      - Chooses the variant that was measured best for 1, 4 or 8 requests at once, or a compromise. A variant in
        O(overrides) wins.
    type: str
    choices: [single, agents, throughput, mixed]
  model_config:
    description:
      - The model's own C(config.json) on the controller, or the folder that has it and perhaps C(hf_quant_config.json). It gives
        the facts that O(profile) does not state; where both do, the profile wins, and a difference is reported.
      - V(auto) takes them, if O(profile) states none, from O(model_files), the controller's Hugging Face cache, the hub, or a
        profile of the same model stored in another format, whichever is first; the plan's findings say which. With
        C(HF_HUB_OFFLINE) in the environment the hub is not asked.
    type: path
  model_files:
    description: >-
      The same, as M(dgxspark.cluster.weights_info) read it from a node's weights - C(config.json), C(hf_quant_config.json).
    type: dict
  model_files_unread:
    description: Why O(model_files) could not be read, for the plan's finding.
    type: str
    default: ""
  hub_endpoint:
    description: The hub, or its mirror, for O(model_config=auto). By default C(https://huggingface.co).
    type: str
  hub_token_file:
    description: A file on the controller with the hub's token, with mode 0600. The token is sent only to O(hub_endpoint), over https.
    type: path
  hub_token:
    description: The token itself, as for the weights. It takes precedence.
    type: str
  hub_environment:
    description: Environment variables as for the weights - C(HTTPS_PROXY), C(HTTP_PROXY), C(NO_PROXY), C(HF_HUB_OFFLINE).
    type: dict
    default: {}
  fail_when_blocked:
    description: Fail if the verdict is V(blocked), with every error and its remedy.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Plan the model, and stop if it would not run
  dgxspark.cluster.launch_plan:
    profile: "{{ k8s_dgx_model_profile }}"
    cluster:
      hosts: "{{ groups['dgx'] }}"
      nodes: "{{ dict(groups['dgx'] | zip(groups['dgx'] | map('extract', hostvars, 'dgxspark_roce'))) }}"
  run_once: true
  delegate_to: localhost
"""

RETURN = r"""
plan:
  description: The plan.
  type: dict
  returned: success
  contains:
    verdict:
      description: V(blocked), V(unproven) or V(proven).
      type: str
      returned: always
    not_judged:
      description: >-
        For C(flags), C(rules), C(memory), C(speed) and C(platform) why it was not judged - no facts, no table, no evidence -, or an
        empty string.
      type: dict
      returned: always
      sample: {flags: "", rules: "", memory: "", speed: no row of this model, platform: no kernel read or given}
    conflict:
      description: Whether an equal row was stable although a finding blocks, or equal rows had different outcomes.
      type: bool
      returned: always
    profile:
      description: The profile's id; next to it C(variant), C(title), C(model), and C(proven), as the profile states it.
      type: str
      returned: always
    engine:
      description: C(name), C(version) and C(image), which is null where none is named.
      type: dict
      returned: always
    parallel:
      description: C(nodes), C(tp), C(pp) and C(ep).
      type: dict
      returned: always
    instance:
      description: C(name), C(vf_index), C(port) and C(dist_port).
      type: dict
      returned: always
    settings:
      description: The settings that were requested or added, by canonical name.
      type: dict
      returned: always
    environment:
      description: The requested variables that do not express a setting. Those that do are in C(settings).
      type: dict
      returned: always
    added:
      description: What the plan added to C(settings) by itself.
      type: dict
      returned: always
    resolved:
      description:
        - Every setting that the engine runs with, by canonical name, as C(value) and C(by), which says who decided it.
        - V(asked) is the profile or the owner, V(added) the plan, V(default) what the engine makes of it, also of a value
          that was asked for. V(unknown) is what only the running engine decides; its C(value) is null.
      type: dict
      returned: always
      sample: {page_size: {value: 1, by: default}, attention_backend: {value: null, by: unknown}}
    speculation:
      description: C(algorithm), C(steps), C(topk), C(tokens) and C(forced). Empty without speculation.
      type: dict
      returned: always
    chat:
      description: How the model is queried, as the profile states it.
      type: dict
      returned: always
    sampling:
      description: The sampling values that the profile recommends.
      type: dict
      returned: always
    recipe:
      description: >-
        For a profile made from another tool's recipe, C(file) and C(lines), each with C(text), C(became) and C(why). Otherwise empty.
      type: dict
      returned: always
    findings:
      description:
        - Findings, each with C(rule), C(severity), C(names), C(message), C(remedy) and C(source).
        - C(rule) is the id of a rule, or C(evidence.ROW) where an equal row went wrong, C(image.engine) where the image is known to
          contain another version, C(image.mods) for what the image must have, C(facts.unjudged) where the model is not known,
          C(facts.from), C(facts.sibling) and C(facts.not-found) for where its facts come from, C(facts.differ), C(facts.unread) and
          C(facts.inferred) for its own files, or C(arguments.…), C(platform.…),
          C(speculation.…), C(hosts.idle), C(recipe.refused) or C(nccl.unseen).
        - C(engine.changed) says what was dropped because a profile, a variant or O(overrides) names another engine than the one below.
        - If a rule depends on an unknown setting, its severity is one level lower, and the remedy names the setting to specify.
        - C(ways) are the changes that the remedy names, as O(overrides) with C(settings) and C(parallel). Each was planned, and
          passes; a null leaves the setting out. Changes that do not pass are not said.
      type: list
      elements: dict
      returned: always
    evidence:
      description:
        - Measured rows of the model, equal ones first, then the nearest.
      type: list
      elements: dict
      returned: always
      contains:
        id:
          description: The row.
          type: str
          returned: always
        verdict:
          description: The row's outcome, V(stable), V(crash) or V(garbage).
          type: str
          returned: always
        equal:
          description: Whether it is evidence for exactly this plan.
          type: bool
          returned: always
        differs:
          description: What differs, by name, as C(row) and C(plan). Empty for an equal row.
          type: dict
          returned: always
        assumed:
          description: What the row leaves open and the plan states, so that the version's default is assumed for the row.
          type: dict
          returned: always
        blemishes:
          description: What casts doubt on the row's figures - requests that failed, and a note that says so.
          type: list
          elements: str
          returned: always
        note:
          description: What the row's source says besides its figures.
          type: str
          returned: always
        source:
          description: Where it was published.
          type: list
          elements: str
          returned: always
        case:
          description: The row's name in its source.
          type: str
          returned: always
        n1:
          description: Tokens per second at one request; C(n4) and C(n8) at four and eight at once. Null where not measured.
          type: float
          returned: always
        accept_len:
          description: Tokens per verified step, null where it is not known.
          type: float
          returned: always
    estimate:
      description:
        - Tokens/s of all requests together at 1, 4 and 8 at once as C(n1), C(n4) and C(n8); C(low) and C(high) have the interval
          in the same form, C(basis) says what a step's time goes into and how far off such estimates were.
        - Empty where an equal row measured the configuration, or the model is not known.
      type: dict
      returned: always
    memory:
      description: >-
        The memory of one rank in GiB, with C(floor), C(ceiling) and C(chosen) of the engine's C(knob), as
        P(dgxspark.cluster.mem_fraction#filter) returns it. Empty where the model is not known. With vLLM, C(kv_tokens) are those of
        requests at full length, C(blocks) its blocks, C(block_tokens) the tokens of one, and C(kv_tokens_logged) what that version's
        log calls tokens.
      type: dict
      returned: always
    patches:
      description:
        - The start-up patches that this image needs at this version and these settings, with C(id), C(title), C(why),
          C(package), C(file) and C(edits); C(moved), where the code that they change went in later versions. As JSON, this
          is what C(plugins/module_utils/programs/rank/patches.py) takes in the container, before the engine starts.
      type: list
      elements: dict
      returned: always
    weights:
      description: The repositories that ranks load, each with C(repo) and the C(revision) that the profile pins (or null).
      type: list
      elements: dict
      returned: always
    ranks:
      description: For each C(rank) its C(host), C(settings), C(argv) and C(env).
      type: list
      elements: dict
      returned: always
table:
  description: >-
    The plan as lines for a terminal: the verdict and what qualifies it, memory as a bar, findings with their remedy, measured rows
    with what differs, the effective settings by who decided them, start-up patches, and what each rank is started with.
  type: list
  elements: str
  returned: always
recommendation:
  description: >-
    The choice for O(traffic_shape), as P(dgxspark.cluster.recommend#filter) returns it. Its variant is planned, unless
    O(overrides) names one.
  type: dict
  returned: with O(traffic_shape)
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "profile": {"type": "raw", "required": True},
    "cluster": {"type": "dict", "default": {}},
    "overrides": {"type": "dict", "default": {}},
    "traffic_shape": {"type": "str", "choices": ["single", "agents", "throughput", "mixed"]},
    "model_config": {"type": "path"},
    "model_files": {"type": "dict"},
    "model_files_unread": {"type": "str", "default": ""},
    "hub_endpoint": {"type": "str"},
    "hub_token_file": {"type": "path", "no_log": False},
    "hub_token": {"type": "str", "no_log": True},
    "hub_environment": {"type": "dict", "default": {}},
    "fail_when_blocked": {"type": "bool", "default": True},
    "knowledge_dirs": {"type": "list", "elements": "path", "default": []},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
