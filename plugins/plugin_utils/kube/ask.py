# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run modules from an action plugin, and list and apply the cluster's objects with kubernetes.core, with uniform errors.

A module run costs about a second: it starts a process that imports the Kubernetes client. Where the module would run on the
controller anyway, as the same user and in the same environment, kubernetes.core is called in this process. The client and the
collection are imported with this file, once, before Ansible forks a process for each task.

kubernetes.core has no public call that applies objects: `runner.run_module` is what its own module calls, with a stand-in for
AnsibleModule here. Applying by the client alone would be a second server-side apply, with waits and diffs of its own. What bounds it:
the range of versions in galaxy.yml, and the module itself is run wherever these names cannot be imported.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import pathlib
import typing as t

from ansible.errors import AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.loader import lookup_loader

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.running import selectors
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import MANAGED_BY_LABEL, MANAGER, Plain

try:
    from kubernetes.dynamic.exceptions import ResourceNotFoundError
except ImportError:
    ResourceNotFoundError = None

CORE = "ansible_collections.kubernetes.core.plugins"
try:
    CLIENT = importlib.import_module(f"{CORE}.module_utils.k8s.core")
    RUNNER = importlib.import_module(f"{CORE}.module_utils.k8s.runner")
    MODULE = importlib.import_module(f"{CORE}.modules.k8s")
except ImportError:
    RUNNER = None  # type: ignore[assignment,unused-ignore]

WHERE = ("namespace", "kubeconfig", "context")  # options of the doc fragments `kube`


class Execute(t.Protocol):
    """How an action plugin runs a module: its `_execute_module`."""

    def __call__(self, *, module_name: str, module_args: Plain, task_vars: t.Any) -> Plain:
        """Return the module's answer."""


class Action(t.Protocol):
    """The part of an action plugin that this file uses."""

    _connection: t.Any
    _task: t.Any
    _execute_module: Execute


def answer(execute: Execute, module: str, arguments: Plain, task_vars: t.Any) -> Plain:
    """Return a module's answer. Raises CollectionError with its message if it failed or its collection is missing."""
    try:
        said = execute(module_name=module, module_args=arguments, task_vars=task_vars)
    except AnsibleError as exc:
        raise CollectionError(f"{module} cannot be run: {exc}") from exc
    return good(said)


def good(said: Plain) -> Plain:
    """Return a module's answer. Raises CollectionError with its message if it failed."""
    if said.get("failed"):
        raise CollectionError(" ".join(str(said.get("msg", said)).split()))
    return said


class _Ended(Exception):
    """A module ended with this answer."""

    def __init__(self, said: Plain) -> None:
        super().__init__()
        self.said = said


class _Module:
    """The part of AnsibleModule that kubernetes.core uses: its options, its modes, and the calls that end it."""

    def __init__(self, params: Plain, check_mode: bool, diff: bool) -> None:
        self.params, self.check_mode, self._diff, self._name = params, check_mode, diff, "kubernetes.core.k8s"
        self.warnings: list[str] = []  # includes the API server's, for example about an unknown field

    def exit_json(self, **said: t.Any) -> t.NoReturn:
        raise _Ended({**said, "warnings": [*said.get("warnings", ()), *self.warnings]} if self.warnings else said)

    def fail_json(self, **said: t.Any) -> t.NoReturn:
        self.exit_json(**said, failed=True)

    def warn(self, said: str, *_more: t.Any, **_further: t.Any) -> None:
        self.warnings.append(said)

    def debug(self, *_said: t.Any, **_more: t.Any) -> None:
        """Drop what a module would log on its node."""

    deprecate = debug


def k8s(action: Action, arguments: Plain, task_vars: t.Any) -> Plain:
    """Return the answer of the module kubernetes.core.k8s, with `failed` and `msg` if it failed."""
    if RUNNER is None or not _is_here(action):
        try:
            return action._execute_module(module_name="kubernetes.core.k8s", module_args=arguments, task_vars=task_vars)
        except AnsibleError as exc:
            return {"failed": True, "msg": f"kubernetes.core.k8s cannot be run: {exc}"}
    # Plain values, as a module gets them: templated values are tagged with their origin.
    checked = ArgumentSpecValidator(MODULE.argspec()).validate(json.loads(json.dumps(arguments)))
    if checked.error_messages:
        return {"failed": True, "msg": "; ".join(checked.error_messages)}
    made = _Module(checked.validated_parameters, action._task.check_mode, action._task.diff)
    try:
        RUNNER.run_module(CLIENT.AnsibleK8SModule(module_class=lambda: made))
    except _Ended as ended:
        return ended.said
    except Exception as exc:  # the exceptions of the client, urllib3 and the collection share no base class
        return {"failed": True, "msg": " ".join(str(exc).split()) or type(exc).__name__}
    raise AssertionError("a module ends with an answer")


def done(action: Action, arguments: Plain, task_vars: t.Any) -> Plain:
    """Return the answer of the module kubernetes.core.k8s. Raises CollectionError with its message if it failed."""
    return good(k8s(action, arguments, task_vars))


def of_instance(action: Action, args: Plain, kinds: t.Iterable[tuple[str, str]], task_vars: t.Any) -> list[Plain]:
    """List the objects of these kinds (apiVersion, kind) that belong to the instance in the options."""
    place, labels = where(args), selectors(args["instance"])
    return [each for kind in kinds for each in objects(action, kind, place, labels, task_vars)]


def where(args: Plain) -> Plain:
    """Return the options that kubernetes.core shares with our modules."""
    return {key: args[key] for key in WHERE if args.get(key)}


def objects(
    action: Action,
    kind: tuple[str, str],
    place: Plain,
    labels: t.Sequence[str],
    task_vars: t.Any,
    fields: t.Sequence[str] = (),
) -> list[Plain]:
    """Return the objects of a kind (API version, kind) in a place (see `where`) that have the labels and fields.

    Raises CollectionError if the API does not answer.
    """
    args = {**place, "api_version": kind[0], "kind": kind[1]}
    try:
        if ResourceNotFoundError is not None and _is_here(action):
            return _objects(args, labels, fields)
        chosen = {"label_selectors": list(labels), **({"field_selectors": list(fields)} if fields else {})}
        said = answer(action._execute_module, "kubernetes.core.k8s_info", {**args, **chosen}, task_vars)
        return list(said["resources"])
    except CollectionError as exc:
        raise CollectionError(f"the Kubernetes API did not answer: {_absent(action, place) or str(exc)[:300]}") from exc


def others(action: Action, made: t.Iterable[Plain], place: Plain, task_vars: t.Any) -> list[Plain]:
    """Return what the cluster has without our label under the names of these objects. Nodes are never ours, and left out."""
    names: dict[tuple[str, str, str], set[str]] = {}
    for each in made:
        metadata = each["metadata"]
        if each["kind"] != "Node" and (metadata.get("labels") or {}).get(MANAGED_BY_LABEL) == MANAGER:
            where_ = (each["apiVersion"], each["kind"], metadata.get("namespace") or "")
            names.setdefault(where_, set()).add(metadata["name"])
    found = []
    for (api, kind, namespace), wanted in names.items():
        there = {**place, "namespace": namespace} if namespace else {k: v for k, v in place.items() if k != "namespace"}
        fields = [f"metadata.name={next(iter(wanted))}"] if len(wanted) == 1 else []
        labels = [f"{MANAGED_BY_LABEL}!={MANAGER}"]
        listed = objects(action, (api, kind), there, labels, task_vars, fields)
        found += [each for each in listed if each["metadata"]["name"] in wanted]
    return found


def logs(action: Action, pods: Plain, task_vars: t.Any) -> t.Iterator[tuple[str, str]]:
    """Yield name and log of every pod that has the labels, one at a time. Raises CollectionError if there is no such pod.

    pods: `namespace`, `label_selectors`, `container`, `previous` and `connection` (kubeconfig, context).
    """
    place = {**pods["connection"], "namespace": pods["namespace"]}
    listed = objects(action, ("v1", "Pod"), place, pods["label_selectors"], task_vars)
    if not listed:
        labels = ", ".join(pods["label_selectors"])
        raise CollectionError(f"pods: none with {labels} in namespace {pods['namespace']}. Correct the labels.")
    more = {"previous": pods["previous"], **({"container": pods["container"]} if pods["container"] else {})}
    for pod in listed:
        name = pod["metadata"]["name"]
        yield f"pod {name}", log(action, name, {**place, **more}, task_vars)


def log(action: Action, pod: str, args: Plain, task_vars: t.Any) -> str:
    """Return a pod's log. Raises CollectionError if it has none.

    args: options of kubernetes.core.k8s_log: namespace, optionally container, and where the cluster is.
    """
    return str(answer(action._execute_module, "kubernetes.core.k8s_log", {**args, "name": pod}, task_vars)["log"])


def log_if_any(action: Action, pod: Plain, cluster: Plain, task_vars: t.Any) -> str:
    """Return the log of a pod's container, empty if it has none. pod: the object. cluster: where it is."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    args = {**cluster, "namespace": namespace, "container": pod["spec"]["containers"][0]["name"]}
    with contextlib.suppress(CollectionError):  # a container that was never started has no log
        return log(action, name, args, task_vars)
    return ""


def _is_here(action: Action) -> bool:
    """Whether a module would run on this machine, as this user, and without environment variables of its own (KUBECONFIG)."""
    local = getattr(action._connection, "transport", "") == "local" and not action._connection.become
    return local and not any(action._task.environment or ())


def _absent(action: Action, place: Plain) -> str:
    """Return what to do if the kubeconfig that was named is not on this machine, else ""."""
    path = place.get("kubeconfig")
    if not path or not _is_here(action) or pathlib.Path(path).exists():
        return ""
    return (
        f"there is no kubeconfig {path} on the controller. Install K3s first (dgxspark.cluster.site --tags k3s), which fetches it, or name yours in "
        "k8s_dgx_kubeconfig."
    )


def _objects(args: Plain, labels: t.Sequence[str], fields: t.Sequence[str]) -> list[Plain]:
    try:
        lookup = lookup_loader.get("kubernetes.core.k8s")
        if lookup is None:
            raise CollectionError("the collection kubernetes.core is missing. Install it (requirements.yml).")
        selectors_ = {"label_selector": ",".join(labels) or None, "field_selector": ",".join(fields) or None}
        return list(lookup.run([], {}, **args, **selectors_) or [])
    except ResourceNotFoundError:  # a kind that the cluster does not know has no objects
        return []
    except CollectionError:
        raise
    except Exception as exc:  # the exceptions of the client, urllib3 and the collection share no base class
        raise CollectionError(" ".join(str(exc).split()) or type(exc).__name__) from exc
