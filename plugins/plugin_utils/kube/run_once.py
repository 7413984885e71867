# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Create a pod that runs once (see once.py), wait for its end, read its log, and delete it whatever the outcome."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
import types
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import printable
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask, beside, once, pulls
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import Plain

INTERVAL_S = 2.0


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def _nothing(_told: t.Any) -> None:
    pass


class _Told(BaseException):
    """A signal requested termination."""


@contextlib.contextmanager
def cleaning_up() -> t.Iterator[None]:
    """Let the body delete what it created before a signal ends the process: Ansible's worker would just exit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    told: list[int] = []

    def stop(number: int, _frame: types.FrameType | None) -> None:
        told.append(number)
        for each in _SIGNALS:  # one signal is enough
            signal.signal(each, signal.SIG_IGN)
        raise _Told

    before = {each: signal.signal(each, stop) for each in _SIGNALS}
    try:
        with contextlib.suppress(_Told):
            yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        if told:
            signal.raise_signal(told[0])


@dataclass(frozen=True)
class Job:
    """A pod, what it needs, and how long it may take. host: where it runs. selector: the labels of its kind of pods.

    bound: the name of the time limit's setting. look: called with the pods of its kind at each poll; may raise. hear:
    called with its log while it runs.
    """

    needs: list[Plain]
    pod: Plain
    host: str
    timeout_s: int
    selector: list[str]
    bound: str = "k8s_dgx_image_timeout"
    look: t.Callable[[list[Plain]], None] = _nothing
    hear: t.Callable[[str], None] | None = None


class Runner:
    """Runs jobs for an action in the cluster that its options name."""

    def __init__(self, action: ask.Action, asked: Plain, namespace: str, task_vars: t.Any) -> None:
        self._action, self._task_vars = action, task_vars
        self._cluster = ask.where({**asked, "namespace": None})
        self._place = {**self._cluster, "namespace": namespace}

    def listed(self, kind: str, selector: t.Sequence[str] = ()) -> list[Plain]:
        """Return the objects of a kind that have the labels."""
        return ask.objects(self._action, ("v1", kind), self._place, selector, self._task_vars)

    def run(self, job: Job) -> tuple[str, str]:
        """Return the digest of what the pod ran, and its log. Raises CollectionError if it failed."""
        name = job.pod["metadata"]["name"]
        self.remove([name])  # left by a run that was killed
        with cleaning_up():
            try:
                there = ask.others(self._action, job.needs, self._cluster, self._task_vars)
                self._do({"resource_definition": [*beside.kept(job.needs, there)[0], job.pod]})
                return self._wait(job), self._log(job.pod)
            finally:
                self.remove([name])
        raise CollectionError(f"{name}: the run was stopped, and the pod was deleted.")

    def remove(self, names: t.Sequence[str]) -> None:
        """Delete the pods and ConfigMaps of these names."""
        for kind in ("Pod", "ConfigMap") if names else ():
            metadata = [{"name": name, "namespace": self._place["namespace"]} for name in names]
            gone = [{"apiVersion": "v1", "kind": kind, "metadata": each} for each in metadata]
            self._do({"state": "absent", "resource_definition": gone, "wait": True, "wait_timeout": 60})

    def _wait(self, job: Job) -> str:
        host, name = job.host, job.pod["metadata"]["name"]
        reference = job.pod["spec"]["containers"][0]["image"]
        wanted = pulls.PullRequest(reference, {}, {host: job.pod}, [], job.timeout_s, bound=job.bound)
        watch = pulls.Watch(wanted, time.monotonic())
        while True:
            pods = self.listed("Pod", job.selector)
            job.look(pods)
            own = [pod for pod in pods if pod["metadata"]["name"] == name]
            ended = once.outcome(watch, host, own, self.listed("Event"), time.monotonic())
            if ended and ended[1]:  # the program's own output comes first
                raise CollectionError(f"{host}: {ended[1]} {printable(self._said(job.pod))}".strip())
            if ended:
                return ended[0]
            if job.hear and host in watch.digests:
                job.hear(self._said(job.pod))
            time.sleep(INTERVAL_S)

    def _log(self, pod: Plain) -> str:
        where = {**self._place, "container": pod["spec"]["containers"][0]["name"]}
        return ask.log(self._action, pod["metadata"]["name"], where, self._task_vars)

    def _said(self, pod: Plain) -> str:
        return ask.log_if_any(self._action, pod, self._cluster, self._task_vars)

    def _do(self, arguments: Plain) -> Plain:
        return ask.done(self._action, {**self._cluster, **arguments}, self._task_vars)
