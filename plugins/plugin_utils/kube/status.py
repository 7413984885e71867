# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Summarise a group of ranks in one verdict: waiting, ready, or stuck, with the cause and what to do.

Read from pods and events as the API returns them. `ready` is the pod's *condition*: a lost node's pod keeps its
containers' `ready: true`. A cause is final if waiting cannot help; the others may pass, and are shown meanwhile.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Finding
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import image
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.pod import CONTAINER
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.programs import CAUSES
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import RANK, Plain, plan_of

Pod = t.Mapping[str, t.Any]
Found = tuple[Finding, str]  # the record is the evidence; empty if the fault is current


@dataclass(frozen=True, slots=True)
class Before:
    """The state at the first look: its faults may have been fixed since. restarts: by pod; records: of ends and events."""

    restarts: t.Mapping[str, int]
    records: frozenset[str]


_IMAGE = {"ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName", "ErrImagePullBackOff"}
_FINAL = {"verbs", "address", "mtu", "arp", "gid", "path-mtu", "config", "patches", "program", "plan", "port"}
# A pod created without its VFs deletes itself at its second start (preflight.replace_pod); one that starts again could not.
_MADE_ANEW = {"address", "verbs"}
_STAYS = 2  # restarts
TRIES = 1  # how often a first try may be repeated
_REMEDY = {
    "verbs": "Run dgxspark.cluster.verify; with k8s_dgx_rdma device_plugin look at the plugin's log on that node.",
    "gid": "Run the fabric part again on that node (sriov_roce, netplan_vf), then dgxspark.cluster.verify.",
    "mtu": "Run the fabric part again on that node, then dgxspark.cluster.verify.",
    "link": "Plug the cable in, or find out why the VF has no link; after kubectl delete pod, the next pod has its VFs.",
    "path-mtu": "Run dgxspark.cluster.verify: its step mtu names the link.",
    "address": "Use this collection's network attachment and Multus, or configure yours in the same way.",
    "arp": "Use this collection's network attachment: it sets the sysctls.",
    "peer": "Find out why the rank that does not answer is not running.",
    "patches": "See the patch's own message in the rank's log.",
    "load": "Look at the head's log; raise k8s_dgx_serving.load_timeout_s if it was still loading.",
    "port": "Give the instance ports that nothing else on the nodes uses.",
}


def _events(pod: Pod, events: t.Sequence[t.Mapping[str, t.Any]]) -> list[t.Mapping[str, t.Any]]:
    uid, name = pod["metadata"].get("uid"), pod["metadata"]["name"]
    own = [
        event
        for event in events
        if (event.get("involvedObject") or {}).get("uid", uid) == uid
        and (event.get("involvedObject") or {}).get("name") == name
    ]
    return sorted(own, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))


def _wrong(kind: str, pod: Pod, message: str, remedy: str, *, final: bool = False) -> Finding:
    node = (pod.get("spec") or {}).get("nodeName") or ((pod.get("spec") or {}).get("nodeSelector") or {}).get(
        "kubernetes.io/hostname"
    )
    subject = f"{pod['metadata']['name']}{f' on {node}' if node else ''}"
    return Finding(f"kube.{kind}", "error" if final else "warning", subject, message, remedy)


def _unscheduled(pod: Pod) -> Found | None:
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") != "PodScheduled" or condition.get("status") != "False":
            continue
        text = str(condition.get("message") or condition.get("reason") or "no node fits")
        lacking = re.findall(r"Insufficient (\S+?)[,.;]?(?=\s|$)", text)
        if any(name.startswith("dgxspark.cluster/") for name in lacking):
            remedy = "The SR-IOV device plugin does not offer that VF: is it running on the node, and is the VF present and free?"
        elif any(name.startswith("nvidia.com/") for name in lacking):
            remedy = "Another pod holds the GPU (stop it, or raise k8s_platform_gpu_shares), or NVIDIA's device plugin does not run."
        elif lacking:
            remedy = "Lower k8s_dgx_serving.requests, or free the node."
        else:
            remedy = (
                "Check that the node is in the cluster under this name (k8s_dgx_node_names), ready and not cordoned."
            )
        return _wrong("unschedulable", pod, f"it cannot be scheduled: {text}", remedy), ""
    return None


def _message(event: t.Mapping[str, t.Any]) -> str:
    return " ".join(str(event.get("message", "")).split())


def _record(event: t.Mapping[str, t.Any]) -> str:
    about = event.get("metadata") or {}
    return repr((about.get("uid"), about.get("resourceVersion"), event.get("lastTimestamp")))


def _sandbox(pod: Pod, events: t.Sequence[t.Mapping[str, t.Any]]) -> Found | None:
    """What keeps a pod in ContainerCreating: its network and its volumes."""
    for event in reversed(_events(pod, events)):
        found = _event(pod, event.get("reason"), _message(event))
        if found:
            return found, _record(event)
    return None


def _held(pod: Pod, events: t.Sequence[t.Mapping[str, t.Any]]) -> Found:
    """What keeps a pod from terminating: not how its container ended. A kubelet does not always report a cause (such as 1.20)."""
    said = "it is terminating."
    remedy = (
        "If it still is after a minute: where one of its VFs was removed (roce_info on its node), run the fabric part again there, and it "
        "terminates; where its node is gone for good: kubectl delete pod --force, then free its VFs (sriov_roce_reset_stranded)."
    )
    told = _sandbox(pod, [event for event in events if event.get("reason") == "FailedKillPod"])
    return told or (_wrong("leaving", pod, said, remedy), "")


def _event(pod: Pod, reason: str | None, text: str) -> Finding | None:
    gone = re.search(r"failed to find host device|error with host device: lstat \S+ no such file", text)
    if reason == "FailedKillPod":
        if gone:  # the plugin retries the release of a missing device; the pod stays until that succeeds
            return _wrong(
                "vf", pod, text, "The VF is not on the node: run the fabric part again there, and the pod terminates."
            )
        return _wrong("leaving", pod, text, "See the kubelet's and Multus' logs on the node.")
    if reason == "FailedCreatePodSandBox" and re.search(
        r"network-attachment-definition.*not found|cannot find a network-attachment", text
    ):
        remedy = "Set k8s_platform_parts.networks to present, and run the platform part with the same -l."
        return _wrong("attachment", pod, text, remedy, final=True)
    if reason == "FailedCreatePodSandBox" and gone:
        remedy = "The VF is not on the node, or in another pod's namespace: see roce_info there, and sriov_roce_reset_stranded."
        return _wrong("vf", pod, text, remedy)
    if reason == "FailedCreatePodSandBox":
        return _wrong("sandbox", pod, text, "See the kubelet's and Multus' logs on the node.")
    if reason == "FailedMount" and "failed to sync" in text:
        return _wrong("volume", pod, text, "The kubelet has not read it yet, and tries again by itself.")
    if reason in ("FailedMount", "FailedAttachVolume"):
        return _wrong(
            "volume", pod, text, "Create what it names, such as the Secret of k8s_dgx_serving.hf_token_secret."
        )
    return None


def _ended(pod: Pod, state: t.Mapping[str, t.Any], restarts: int) -> Finding:
    """Return why a container ended, from our programs' exit statuses and termination messages."""
    code = state.get("exitCode")
    said = str(state.get("message") or "").strip()
    cause = CAUSES.get(code) if isinstance(code, int) else None
    if state.get("reason") == "OOMKilled":
        remedy = "Something else took the node's memory during the load: see memory_guard and the plan's memory."
        return _wrong("oom", pod, "it was OOM-killed.", remedy, final=True)
    if cause:
        message = said or f"{cause} (exit status {code})"
        final = cause in _FINAL and (cause not in _MADE_ANEW or restarts >= _STAYS)
        return _wrong(cause, pod, message, _REMEDY.get(cause, ""), final=final)
    message = said or f"it ended with exit status {code} ({state.get('reason', 'no reason')})."
    return _wrong(
        "ended",
        pod,
        message,
        f"See the engine's own message in its log: kubectl logs --previous {pod['metadata']['name']}",
    )


def _is_a_failure(event: t.Mapping[str, t.Any]) -> bool:
    """Whether a kubelet tried and failed: a back-off event is not a failure."""
    return event.get("type") != "Normal" and "BackOff" not in f"{event.get('reason')} {event.get('message')}"


def _container(pod: Pod, events: t.Sequence[t.Mapping[str, t.Any]]) -> Found | None:
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        if status.get("name") != CONTAINER:
            continue
        waiting = (status.get("state") or {}).get("waiting") or {}
        ended = (status.get("state") or {}).get("terminated") or (status.get("lastState") or {}).get("terminated") or {}
        # The state stays until the kubelet has tried again: a further event then reports the failure.
        failed = [_record(each) for each in _events(pod, events) if _is_a_failure(each)]
        record = repr((pod["metadata"].get("uid"), failed))
        if waiting.get("reason") in _IMAGE:
            text = waiting.get("message") or waiting["reason"]
            return _wrong("image", pod, f"{status.get('image')}: {text}", image.cause(text).remedy, final=True), record
        if waiting.get("reason") in ("CreateContainerConfigError", "CreateContainerError", "RunContainerError"):
            text = waiting.get("message") or waiting["reason"]
            return _wrong("container", pod, text, "See the pod's events.", final=True), record
        if ended:
            record = repr((pod["metadata"].get("uid"), sorted(ended.items())))
            return _ended(pod, ended, status.get("restartCount", 0)), record
    return None


def ready(pod: Pod) -> bool:
    """Whether the pod is ready, by its condition, and not being deleted."""
    if pod["metadata"].get("deletionTimestamp"):
        return False
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _cause(pod: Pod, events: t.Sequence[t.Mapping[str, t.Any]]) -> Found | None:
    """What is wrong with a pod that is not ready."""
    if pod["metadata"].get("deletionTimestamp"):
        return _held(pod, events)
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    running = any("running" in (status.get("state") or {}) for status in statuses)
    return _unscheduled(pod) or _container(pod, events) or (None if running else _sandbox(pod, events))


def _causes(pods: t.Iterable[Pod], events: t.Sequence[t.Mapping[str, t.Any]]) -> list[Found]:
    return [cause for pod in pods if not ready(pod) and (cause := _cause(pod, events))]


def findings(
    pods: t.Iterable[Pod],
    events: t.Sequence[t.Mapping[str, t.Any]] = (),
    before: Before | None = None,
) -> list[Finding]:
    """Return what is wrong with pods that are not ready: one finding per pod, final causes first.

    A fault known only from an earlier record may have been fixed: it is reported, but is not final until it happens again.
    """
    found = _since(_causes(pods, events), before)
    # "Another rank is lost" is true of all the others and explains nothing: the first cause is in another pod.
    telling = [finding for finding in found if finding.id not in ("kube.lost", "kube.peer")] or found
    return sorted(telling, key=lambda finding: finding.severity != "error")


def _since(causes: t.Iterable[Found], before: Before | None) -> list[Finding]:
    old = before.records if before else frozenset()
    return [replace(cause, severity="warning") if record in old else cause for cause, record in causes]


def _unmade(
    pods: t.Sequence[Pod], events: t.Sequence[t.Mapping[str, t.Any]], sets: t.Sequence[t.Mapping[str, t.Any]]
) -> list[Found]:
    """What keeps StatefulSets from creating their pods: admission refuses them, and the controller retries less and less often."""
    there = {pod["metadata"]["name"] for pod in pods}
    found: list[Found] = []
    for made in sets:
        name = made["metadata"]["name"]
        told = [] if f"{name}-0" in there else _events(made, events)
        for event in [each for each in told if each.get("reason") == "FailedCreate"][-1:]:
            text = _message(event)
            severity: t.Literal["error", "warning"] = "error" if "forbidden" in text else "warning"
            found.append(
                (Finding("kube.refused", severity, f"StatefulSet {name}", text, _admission(text)), _record(event))
            )
    return found


def _admission(text: str) -> str:
    if "PodSecurity" in text:
        return "Set the namespace's label pod-security.kubernetes.io/enforce to privileged: ranks mount folders of the node."
    if "exceeded quota" in text:
        return "Raise the namespace's ResourceQuota, or lower k8s_dgx_serving.requests."
    return "See which admission policy or webhook of the cluster refuses it."


def _removed(sets: t.Sequence[t.Mapping[str, t.Any]], ranks: int) -> list[Found]:
    if len(sets) >= ranks:
        return []
    said = f"{len(sets)} of {ranks} exist: the others were removed after they were applied."
    return [(Finding("kube.removed", "error", "StatefulSets", said, "Run the playbook again."), "")]


def _restarts(pods: t.Iterable[Pod]) -> dict[str, int]:
    """Return by pod (uid) how often its container has been restarted."""
    return {
        str(pod["metadata"].get("uid")): max(
            (each.get("restartCount", 0) for each in (pod.get("status") or {}).get("containerStatuses") or ()),
            default=0,
        )
        for pod in pods
    }


def first_look(
    pods: t.Sequence[Pod],
    events: t.Sequence[t.Mapping[str, t.Any]],
    sets: t.Sequence[t.Mapping[str, t.Any]] = (),
) -> Before:
    """Return the state at the first look."""
    causes = [*_causes(pods, events), *_unmade(pods, events, sets)]
    records = frozenset(record for _cause, record in causes if record)
    return Before(_restarts(pods), records)


def group(
    pods: t.Sequence[Pod],
    events: t.Sequence[t.Mapping[str, t.Any]],
    ranks: int,
    plan: str,
    before: Before | None = None,
    sets: t.Sequence[t.Mapping[str, t.Any]] | None = None,
) -> Plain:
    """Return `state` (ready, waiting or stuck), `findings` and `ready` (ranks) of one plan's group.

    before: first_look(); ranks that were lost earlier do not make a group stuck. A cause that might pass counts as final once a
    rank has tried again twice since. sets: the instance's StatefulSets, given if pods are missing.
    """
    own = [pod for pod in pods if plan_of(pod) == plan]
    good = sorted(int(pod["metadata"]["labels"][RANK]) for pod in own if ready(pod))
    found = findings(own, events, before)
    if sets is not None:
        owners = [made for made in sets if plan_of(made) == plan]
        found = [*_since([*_removed(owners, ranks), *_unmade(own, events, owners)], before), *found]
    known = before.restarts if before else {}
    tries = max((count - known.get(uid, 0) for uid, count in _restarts(own).items()), default=0)
    crashed = tries > TRIES and any(finding.id == "kube.ended" for finding in found)
    stuck = any(finding.severity == "error" for finding in found) or crashed
    state = "ready" if len(good) == ranks and len(own) == ranks else "stuck" if stuck else "waiting"
    return {"state": state, "ready": good, "findings": found}


def ended(pods: t.Sequence[Pod], events: t.Sequence[t.Mapping[str, t.Any]], ranks: int, plan: str) -> Plain:
    """Return the same for a group that runs once: ready means that all ranks have ended, or that one has failed.

    `ready` lists the ranks that succeeded, `codes` the exit statuses by rank: a rank whose partner failed waits in vain.
    """
    own = {int(pod["metadata"]["labels"][RANK]): pod for pod in pods if plan_of(pod) == plan}
    phases = {rank: (pod.get("status") or {}).get("phase") for rank, pod in own.items()}
    over = [rank for rank, phase in sorted(phases.items()) if phase in ("Succeeded", "Failed")]
    found = findings([pod for rank, pod in own.items() if rank not in over], events)
    stuck = any(finding.severity == "error" for finding in found)
    done = len(over) == ranks or "Failed" in phases.values()
    return {
        "state": "ready" if done else "stuck" if stuck else "waiting",
        "ready": [rank for rank in over if phases[rank] == "Succeeded"],
        "codes": {str(rank): _code(own[rank]) for rank in over},
        "findings": found,
    }


def _code(pod: Pod) -> int | None:
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        if status.get("name") == CONTAINER:
            code = ((status.get("state") or {}).get("terminated") or {}).get("exitCode")
            return code if isinstance(code, int) else None
    return None


def leaving(
    pods: t.Sequence[Pod],
    events: t.Sequence[t.Mapping[str, t.Any]] = (),
    sets: t.Sequence[t.Mapping[str, t.Any]] = (),
) -> Plain:
    """Return `state` (ready: all are gone; else waiting) of pods and StatefulSets that are being deleted, and which still exist.

    A StatefulSet outlives its pods until the cluster's garbage collector deletes it: an apply in between is lost with it.
    """
    found = [_held(pod, events)[0] for pod in pods] or [_owner(made) for made in sets]
    return {"state": "waiting" if found else "ready", "ready": [], "findings": found}


def _owner(made: t.Mapping[str, t.Any]) -> Finding:
    name = made["metadata"]["name"]
    return Finding(
        "kube.leaving",
        "warning",
        f"StatefulSet {name}",
        "its pods are gone, and it is still terminating.",
        f"The cluster's garbage collector deletes it: see the server's log, and kubectl get statefulset {name} -o yaml.",
    )


def judge(
    args: t.Mapping[str, t.Any],
    pods: t.Sequence[Pod],
    events: t.Sequence[t.Mapping[str, t.Any]],
    before: Before | None = None,
    sets: t.Sequence[t.Mapping[str, t.Any]] | None = None,
) -> Plain:
    """Return the result of `leaving`, `ended` or `group`, by the wanted state; args: `state`, `ranks`, `plan`."""
    if args["state"] == "gone":
        return leaving(pods, events, sets or ())
    if args["state"] == "ended":
        return ended(pods, events, args["ranks"], args["plan"])
    return group(pods, events, args["ranks"], args["plan"], before, sets)


def late(args: t.Mapping[str, t.Any], seen: Plain, seconds: float) -> str:
    """Return the message for a group that did not reach the wanted state in time."""
    counted = f" ({len(seen['ready'])} of {args['ranks']} are)" if args["state"] != "gone" else ""
    why = " ".join(map(str, seen["findings"])) or "No cause is known: see the pods' logs and events."
    return f"{args['instance']} is not {args['state']}{counted} after {seconds:.0f} s. {why}"
