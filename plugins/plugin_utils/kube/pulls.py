# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine's image on the nodes of a plan, before anything is stopped: who lacks it, pods that pull it, and its digests.

Such a pod requests the image as a rank does (name, pull policy, secrets, node), but its command is a program that no image has: the
kubelet pulls the image, creates the container, and cannot start it ("StartError"), which ends the pod, since it is never restarted.
Nothing in the image runs. The container's `imageID` says which image it was created from.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import image as images
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import (
    COMPONENT_LABEL,
    HOSTNAME,
    MANAGED_BY_LABEL,
    MANAGER,
    Plain,
    labels,
    thing,
)

Object = t.Mapping[str, t.Any]

PULL = f"{MANAGER}/pull"  # label: the instance whose image is pulled
NOTHING = "/dgxspark-pulls-this-image-alone"
PATIENCE_S = 120  # for a fault that may pass, counted from the kubelet's last try
OTHERS_S = 10  # after the first failure, so that all failing nodes are named
_TRIES = ("Pulling", "Pulled", "Failed", "BackOff", "InspectFailed", "ErrImageNeverPull")
_WAITING = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError")
_REFUSED = ("CreateContainerConfigError", "CreateContainerError")


@dataclass(frozen=True, slots=True)
class PullRequest:
    """The image each node needs. pods: by host, those that pull it there, or learn its digest.

    lacking: hosts whose node does not list it. timeout_s: for all pulls together, from the setting `bound`. same: digests of
    one image (image.alike).
    """

    image: str
    digests: dict[str, str]
    pods: dict[str, Plain]
    lacking: list[str]
    timeout_s: float
    same: dict[str, str] = field(default_factory=dict)
    bound: str = "k8s_dgx_image_timeout"


def wanted(served: Object, nodes: t.Sequence[Object], timeout_s: int) -> PullRequest:
    """Return which hosts of a served plan (see serving.py) have its image already, and the pods for the others.

    A node that lists the image with its digest needs no pod, except with pull policy Always, which asks the registry each time.
    """
    ranks = [*served["head"], *served["workers"]]
    by_node = {rank["spec"]["template"]["spec"]["nodeSelector"][HOSTNAME]: rank for rank in ranks}
    theirs = [found for name in served["nodes"].values() if (found := images.find(nodes, name))]
    image, made = "", PullRequest("", {}, {}, [], timeout_s, images.alike(theirs))
    for host, name in served["nodes"].items():
        rank, node = by_node[name]["spec"]["template"]["spec"], images.find(nodes, name)
        image, always = _container(rank)["image"], _container(rank)["imagePullPolicy"] == "Always"
        there = images.listed(node, image) if node is not None else None
        made.lacking.extend([] if there else [host])
        if there and there.digest and not always:
            made.digests[host] = there.digest
        else:
            made.pods[host] = pod(served, host, rank, timeout_s)
    return replace(made, image=image)


def _container(spec: Object) -> Object:
    return t.cast(Object, spec["containers"][0])


def selector(instance: str) -> list[str]:
    """Return the label selectors of an instance's pull pods."""
    return [f"{MANAGED_BY_LABEL}={MANAGER}", f"{PULL}={instance}"]


def pod(served: Object, host: str, rank: Object, timeout_s: int) -> Plain:
    """Return the pod that pulls a rank's image on its node."""
    container = _container(rank)
    spec: Plain = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": timeout_s,
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # No pod address: Multus (4.3.0) does not release the address of a pod that was created before Multus was installed.
        "hostNetwork": True,
        **{key: rank[key] for key in ("nodeSelector", "tolerations", "imagePullSecrets") if key in rank},
        "containers": [
            {
                "name": "pull",
                "image": container["image"],
                "imagePullPolicy": container["imagePullPolicy"],
                "command": [NOTHING],
                "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
            }
        ],
    }
    own = labels() | {COMPONENT_LABEL: "image-pull", PULL: served["instance"]}
    return thing(
        "v1", "Pod", f"{served['name']}-pull-{host.replace('_', '-').lower()}", served["namespace"], own, spec=spec
    )


def bare(pod: Object) -> Plain:
    """Return only what identifies a pod, to delete it."""
    metadata = {key: pod["metadata"][key] for key in ("name", "namespace")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


@dataclass
class Watch:
    """The progress of the pods, over repeated looks.

    began: when the first pod was created. waiting: what is pending, a line for each host. since: by host, when its kubelet was
    first seen waiting after a failed try.
    """

    wanted: PullRequest
    began: float = 0.0
    digests: dict[str, str] = field(default_factory=dict)
    pulled: list[str] = field(default_factory=list)  # hosts whose kubelet had something to pull
    since: dict[str, float] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)
    failed_at: float | None = None

    def ended(
        self, pods: t.Sequence[Object], events: t.Sequence[Object], now: float, others: t.Sequence[str] = ()
    ) -> list[str] | None:
        """Return what failed, a line for each host, once nothing is pending; None while something is.

        others: what else the caller waits for, a line each, within the time limit of the pulls.
        """
        failed, self.waiting = self.look(pods, events, now)
        self.waiting += others
        if failed and self.failed_at is None:
            self.failed_at = now
        if not self.waiting or (self.failed_at is not None and now - self.failed_at >= OTHERS_S):
            return failed
        if (took := now - self.began) >= self.wanted.timeout_s:
            return [*failed, *(f"{line} after {took:.0f} s ({self.wanted.bound})." for line in self.waiting)]
        return None

    def look(self, pods: t.Sequence[Object], events: t.Sequence[Object], now: float) -> tuple[list[str], list[str]]:
        """Return what failed for good and what is pending, a line for each host."""
        there = {pod["metadata"]["name"]: pod for pod in pods}
        failed, waiting = [], []
        for host, made in self.wanted.pods.items():
            if host in self.digests:
                continue
            pod = there.get(made["metadata"]["name"])
            own = _told(pod, events) if pod else []
            digest = images.digest_of(pod) if pod else None
            if digest:
                self.digests[host] = digest
                self.pulled += [host] if any("Successfully pulled" in _message(each) for each in own) else []
            elif words := self._fault(host, pod, own, now):
                failed.append(words)
            else:
                waiting.append(f"{host}: {_state(pod)}")
        return failed, waiting

    def _fault(self, host: str, pod: Object | None, own: t.Sequence[Object], now: float) -> str:
        """Return why a host's pod will not get the image; empty if it still may."""
        if pod is None:
            return f"{host}: its pod was deleted by someone else. Run again."
        status = pod.get("status") or {}
        state = _waiting(status)
        if state.get("reason") in _REFUSED or status.get("phase") == "Failed":
            text = state.get("message") or status.get("message") or status.get("reason") or "the pod failed"
            return f"{host}: {' '.join(str(text).split())}"
        for each in status.get("containerStatuses") or ():  # waiting for its digest would last until the time limit
            if "running" in (each.get("state") or {}):
                return (
                    f"{host}: its pod runs, which no pod of {NOTHING} can, and its kubelet reports the image as "
                    f"{str(each.get('imageID') or '')!r}, which has no digest: this kubelet does not report what it runs."
                )
        tried = [each for each in own if each.get("reason") in _TRIES]
        trying = bool(tried) and tried[-1].get("reason") == "Pulling"
        if state.get("reason") not in _WAITING or trying:
            self.since.pop(host, None)
            return ""
        # An older kubelet's back-off message gives no cause, but its earlier event does.
        said = [f"{state['reason']} {state.get('message', '')}"]
        said += [_message(each) for each in reversed(own) if "Failed to pull image" in _message(each)]
        known = [(images.cause(text), text) for text in said]
        meant, text = next(((each, text) for each, text in known if each is not images.UNKNOWN), known[-1])
        since = self.since.setdefault(host, now)
        if not meant.final and now - since < PATIENCE_S:
            return ""
        return f"{host}: {meant.says}. {meant.remedy} ({' '.join(text.split())[-400:]})"


def result(
    watch: Watch, failed: t.Sequence[str], recorded: t.Mapping[str, str], namespace: str, accept: bool, check: bool
) -> Plain:
    """Return kube_pull's answer: the digest of all hosts and the record to keep, or failed with a line for each problem.

    recorded, accept: as for image.judge. check: nothing was pulled.
    """
    wanted, digests = watch.wanted, {**watch.wanted.digests, **watch.digests}
    judged = images.judge(wanted.image, digests, recorded, accept, wanted.same)
    made = {
        "changed": bool(wanted.lacking if check else watch.pulled),
        "image": wanted.image,
        "digest": judged["digest"],
        "digests": digests,
        "lacking": wanted.lacking,
        "pulled": watch.pulled,
        "record": images.record_object(namespace, judged["record"]),
    }
    lines = failed or judged["problems"]
    return {**made, "failed": True, "msg": " ".join([*lines, "Nothing was stopped."])} if lines else made


def unscheduled(pod: Object) -> str:
    """Return the scheduler's reason why no node accepts a pod; empty if one does, or the scheduler has not looked."""
    for each in (pod.get("status") or {}).get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return str(each.get("message") or each.get("reason") or "no reason is given")
    return ""


def _told(pod: Object, events: t.Sequence[Object]) -> list[Object]:
    uid = pod["metadata"].get("uid")
    own = [each for each in events if (each.get("involvedObject") or {}).get("uid") == uid]
    return sorted(own, key=lambda each: str(each.get("lastTimestamp") or each.get("eventTime") or ""))


def _message(event: Object) -> str:
    return " ".join(str(event.get("message") or "").split())


def _waiting(status: Object) -> Object:
    for each in status.get("containerStatuses") or ():
        return t.cast(Object, (each.get("state") or {}).get("waiting") or {})
    return {}


def _state(pod: Object | None) -> str:
    status = (pod or {}).get("status") or {}
    reason = _waiting(status).get("reason")
    refused = unscheduled(pod or {})
    if refused:
        return f"its pod cannot be scheduled: {refused}"
    return "the kubelet is still pulling" if reason in (None, "ContainerCreating", "PodInitializing") else str(reason)
