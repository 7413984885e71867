# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: explain
short_description: Read logs and say what is known to be wrong in them
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Looks for the lines that the knowledge base's kind C(signatures) knows, in logs of NCCL, SGLang, vLLM, K3s, the kernel and
    firmware, and says what each means, what to do about it, and the source of that knowledge.
  - Likely causes come first, with their consequences listed under them.
  - NCCL's lines are read together. If the ranks' traffic goes over TCP sockets, that is said first, with its cause; as an error
    if RDMA was switched off, or was planned (C(dgxspark_fabric) is set, or a variable of NCCL asks for it).
  - If nothing is known, it says so. Alarming but harmless lines are named as such.
  - Logs may be of any size. Secrets in the lines that are shown are masked.
options:
  _terms:
    description:
      - Paths on the controller of logs (also compressed with gzip) or of folders of logs.
      - With O(text), none is needed.
    type: list
    elements: path
    required: true
  text:
    description: A text to read, such as lines that were pasted into a variable file.
    type: str
  dirs:
    description:
      - Your knowledge folders, in the layout of the shipped one.
      - By default C(inventory_dir/dgxspark), if that folder exists.
    type: list
    elements: path
    vars:
      - name: dgxspark_knowledge_dirs
seealso:
  - plugin: dgxspark.cluster.knowledge
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Say what is wrong in the logs of a run
  ansible.builtin.debug:
    msg: "{{ lookup('dgxspark.cluster.explain', 'logs/rank0.log', 'logs/rank1.log').table }}"
"""

RETURN = r"""
_raw:
  description: One dictionary.
  type: list
  elements: dict
  contains:
    report:
      description: >-
        The C(headline), the C(logs) that were read, C(traffic) (what NCCL's lines prove, V(null) without them), and the C(findings),
        causes first. Its format is defined by a JSON Schema.
      type: dict
    table:
      description: The report as lines for a terminal.
      type: list
      elements: str
"""

import pathlib
import typing as t

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.log import Reader
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import signatures
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl import explained, transport


class LookupModule(LookupBase):  # type: ignore[misc,unused-ignore]
    """`lookup('dgxspark.cluster.explain', path, …)`."""

    def run(self, terms: list[t.Any], variables: t.Any = None, **kwargs: t.Any) -> list[t.Any]:
        """Return one report on all logs, with its table."""
        self.set_options(var_options=variables, direct=kwargs)
        text = self.get_option("text")
        if not all(isinstance(term, str) and term.strip() for term in terms) or not (terms or text):
            raise AnsibleLookupError("dgxspark.cluster.explain: paths of logs are needed, or a text.")
        dirs = self.get_option("dirs")
        if dirs is None:
            default = pathlib.Path((variables or {}).get("inventory_dir") or ".", "dgxspark")
            dirs = [str(default)] if (variables or {}).get("inventory_dir") and default.is_dir() else []
        try:
            table = signatures.load_table(dirs)
            nccl = Reader(transport.signatures(dirs))
            readings = [reading for term in terms for reading in signatures.read_path(term, table, nccl)]
            if text is not None:
                readings.append(signatures.read_text(text, table, nccl=nccl))
            traffic = explained.traffic(nccl.finish(), "dgxspark_fabric" in (variables or {}), dirs)
        except CollectionError as exc:
            raise AnsibleLookupError(
                f"dgxspark.cluster.explain: {exc}"
            ) from None  # Ansible would print the causes, too
        return [signatures.explain(readings, table, traffic)]
