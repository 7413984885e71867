# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have an action plugin run a module, and list the cluster's objects by kubernetes.core: one way, and one way to fail."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleError

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import Plain

WHERE = ("namespace", "kubeconfig", "context")  # options of the doc fragments `kube`


class Execute(t.Protocol):
    """What an action plugin runs a module with: its `_execute_module`."""

    def __call__(self, *, module_name: str, module_args: Plain, task_vars: t.Any) -> Plain:
        """Return the module's answer."""


def answer(execute: Execute, module: str, arguments: Plain, task_vars: t.Any) -> Plain:
    """Return what a module answered. Raises CollectionError with its words where it failed or its collection is absent."""
    try:
        said = execute(module_name=module, module_args=arguments, task_vars=task_vars)
    except AnsibleError as exc:
        raise CollectionError(f"{module} cannot be run: {exc}") from exc
    if said.get("failed"):
        raise CollectionError(" ".join(str(said.get("msg", said)).split()))
    return said


def where(asked: Plain) -> Plain:
    """Return what kubernetes.core is told of the options that a module of ours shares with it."""
    return {key: asked[key] for key in WHERE if asked.get(key)}


def objects(
    execute: Execute, kind: tuple[str, str], place: Plain, labels: t.Sequence[str], task_vars: t.Any
) -> list[Plain]:
    """Return the objects of a kind (API version, kind) in a place (see `where`) that have the labels.

    Raises CollectionError where the API does not answer.
    """
    arguments: Plain = {**place, "api_version": kind[0], "kind": kind[1], "label_selectors": list(labels)}
    try:
        return list(answer(execute, "kubernetes.core.k8s_info", arguments, task_vars)["resources"])
    except CollectionError as exc:
        raise CollectionError(f"the Kubernetes API did not answer: {str(exc)[:300]}") from exc
