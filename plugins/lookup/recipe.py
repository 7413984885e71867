# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: recipe
short_description: Convert another tool's recipe to a profile
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Reads a recipe of sparkrun or spark-vllm-docker, a C(vllm serve) or SGLang command line with or without C(docker run) around it,
    or a Compose file, and returns it as a profile, which M(dgxspark.cluster.launch_plan) takes like a shipped one.
  - The profile's key C(recipe) says how each line was used. Nothing in the file is run, and no file that it names is read.
options:
  _terms:
    description: The recipes' files, on the controller. A relative path is relative to where C(ansible-playbook) was started.
    type: list
    elements: str
    required: true
  knowledge_dirs:
    description: Folders of the owner's own profiles, images and engines.
    type: list
    elements: str
    default: []
  values:
    description:
      - What the recipe leaves open. The value of a variable (C($NAME), C(${NAME}), C({name})) by its name, which
        overrides the recipe; the model's name on the hub by the folder that the recipe reads it from (C(/models/x)).
      - A name that the recipe does not have is refused, and so is a secret.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: See whether a recipe would run
  ansible.builtin.debug:
    msg: "{{ (lookup('dgxspark.cluster.recipe', 'recipe.yaml') | dgxspark.cluster.launch_plan).verdict }}"

- name: Supply what a script leaves open
  ansible.builtin.debug:
    msg: "{{ lookup('dgxspark.cluster.recipe', 'serve.sh', values={'PORT': 8100, '/models/mine': 'acme/Model-8B'}).model }}"
"""

RETURN = r"""
_raw:
  description: One profile for each file.
  type: list
  elements: dict
"""

import os
import typing as t

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import read_recipe


class LookupModule(LookupBase):  # type: ignore[misc,unused-ignore]
    """`lookup('dgxspark.cluster.recipe', path)`."""

    def run(self, terms: list[t.Any], variables: t.Any = None, **kwargs: t.Any) -> list[dict[str, t.Any]]:
        """Return the profile made from each recipe."""
        self.set_options(var_options=variables, direct=kwargs)
        if not all(isinstance(term, str) and term.strip() for term in terms):
            raise AnsibleLookupError(f"dgxspark.cluster.recipe: paths are needed, not {terms!r}.")
        try:
            # Relative to where ansible-playbook was started, as in owner_path.
            paths = [os.path.abspath(os.path.expanduser(str(term))) for term in terms]  # noqa: PTH100, PTH111 - as text
            return [read_recipe(path, self.get_option("knowledge_dirs"), self.get_option("values")) for path in paths]
        except CollectionError as exc:
            raise AnsibleLookupError(f"dgxspark.cluster.recipe: {exc}") from None  # Ansible would print the causes, too
