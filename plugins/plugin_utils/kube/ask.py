# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have an action plugin run a module, and list the cluster's objects by kubernetes.core: one way, and one way to fail.

A module run costs a second of a process that imports the Kubernetes client. Where it would run on the controller anyway, by
the same user and in the same environment, the lookup of kubernetes.core asks from here, and the client is imported once.
"""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleError
from ansible.plugins.loader import lookup_loader

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import Plain

try:
    from kubernetes.dynamic.exceptions import ResourceNotFoundError
except ImportError:
    ResourceNotFoundError = None

WHERE = ("namespace", "kubeconfig", "context")  # options of the doc fragments `kube`


class Execute(t.Protocol):
    """What an action plugin runs a module with: its `_execute_module`."""

    def __call__(self, *, module_name: str, module_args: Plain, task_vars: t.Any) -> Plain:
        """Return the module's answer."""


class Action(t.Protocol):
    """What is needed of an action plugin."""

    _connection: t.Any
    _task: t.Any
    _execute_module: Execute


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
    action: Action, kind: tuple[str, str], place: Plain, labels: t.Sequence[str], task_vars: t.Any
) -> list[Plain]:
    """Return the objects of a kind (API version, kind) in a place (see `where`) that have the labels.

    Raises CollectionError where the API does not answer.
    """
    asked = {**place, "api_version": kind[0], "kind": kind[1]}
    try:
        if ResourceNotFoundError is not None and _is_here(action):
            return _objects(asked, labels)
        said = answer(
            action._execute_module, "kubernetes.core.k8s_info", {**asked, "label_selectors": list(labels)}, task_vars
        )
        return list(said["resources"])
    except CollectionError as exc:
        raise CollectionError(f"the Kubernetes API did not answer: {str(exc)[:300]}") from exc


def logs(action: Action, pods: Plain, task_vars: t.Any) -> t.Iterator[tuple[str, str]]:
    """Return name and log of every pod that has the labels, one at a time. Raises CollectionError where none has.

    pods: `namespace`, `label_selectors`, `container`, `previous` and `connection` (kubeconfig, context).
    """
    place = {**pods["connection"], "namespace": pods["namespace"]}
    listed = objects(action, ("v1", "Pod"), place, pods["label_selectors"], task_vars)
    if not listed:
        labels = ", ".join(pods["label_selectors"])
        raise CollectionError(f"pods: none with {labels} in namespace {pods['namespace']}. Correct the labels.")
    for pod in listed:
        name = pod["metadata"]["name"]
        asked = {**place, "name": name, "previous": pods["previous"]}
        asked |= {"container": pods["container"]} if pods["container"] else {}
        yield f"pod {name}", answer(action._execute_module, "kubernetes.core.k8s_log", asked, task_vars)["log"]


def _is_here(action: Action) -> bool:
    """Whether a module would run on this machine, as this user, and without variables of its own (KUBECONFIG)."""
    local = getattr(action._connection, "transport", "") == "local" and not action._connection.become
    return local and not any(action._task.environment or ())


def _objects(asked: Plain, labels: t.Sequence[str]) -> list[Plain]:
    try:
        lookup = lookup_loader.get("kubernetes.core.k8s")
        if lookup is None:
            raise CollectionError("the collection kubernetes.core is not there. Install it (requirements.yml).")
        return list(lookup.run([], {}, **asked, label_selector=",".join(labels) or None) or [])
    except ResourceNotFoundError:  # a kind that the cluster does not have has no objects
        return []
    except CollectionError:
        raise
    except Exception as exc:  # the client's, urllib3's and the collection's own have nothing in common
        raise CollectionError(" ".join(str(exc).split()) or type(exc).__name__) from exc
