# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rank checks before its engine starts: verbs device, address, MTU, ARP settings, GID, carrier, and that its peers answer.

This one file needs only Python's standard library. It is in a ConfigMap beside the supervisor, which runs it in the rank's
container before every start; by hand: `python3 preflight.py RANK.json`. Exit status 0 means that the rank may start; any
other names the cause (CAUSES), and one line on standard error says what, where and what to do.

RANK.json is `{rank, rails, verbs, port, replace, bounds: {peers_s}}` with `rails` = `[{name, interface, address, prefix, mtu,
hca, peers: [{rank, host, address}, …]}, …]`. The probes of peers are UDP packets (`?…`), which every supervisor returns on `port`
(`!…`) to peers that it knows: a small packet, and one of the full MTU that must not be fragmented. They also fill the ARP tables,
for which NCCL would wait minutes.

VFs are moved into a pod at its creation, and never later. If Multus was not running then, as after a reboot of the node
(k8snetworkplumbingwg/multus-cni#1387), the pod has only the cluster's network for its whole life, however often its container
restarts. With `replace` = `{namespace, pod}` such a pod deletes itself through its account, so that its set creates the next.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import os
import pathlib
import select
import shutil
import socket
import ssl
import sys
import time
import typing as t

Rail = t.Mapping[str, t.Any]

# Exit status -> cause. Those below 10 are Python's and the shell's; those from 30 on are the supervisor's.
CAUSES = {
    10: "config",
    11: "verbs",
    12: "address",
    13: "mtu",
    14: "arp",
    15: "gid",
    16: "peer",
    17: "path-mtu",
    18: "link",
}
STATUS = {cause: status for status, cause in CAUSES.items()}
ARP = {"arp_ignore": "1", "arp_announce": "2", "rp_filter": "2"}
HEADERS = 28  # bytes of an IPv4 and a UDP header
SMALL = 64  # bytes of a packet that passes any path
CARRIER_S = 30.0  # a VF's link comes up within this time after its move
PAUSE = 0.5  # seconds between probes of a peer that has not answered
IP_MTU_DISCOVER, IP_PMTUDISC_PROBE = 10, 3  # linux/in.h: set DF, and ignore a cached path MTU
ROCE_V2 = "RoCE v2"
ACCOUNT = "var/run/secrets/kubernetes.io/serviceaccount"  # where the kubelet puts the credentials of a pod's account
NOTED = "dev/shm/dgxspark-no-address"  # lives as long as the pod
API_S = 20


class Refusal(Exception):
    """Why the rank may not start."""

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause


class Container:
    """The container's files; tests give a root of their own."""

    def __init__(self, root: str = "/") -> None:
        self.root = pathlib.Path(root)

    def read(self, path: str) -> str | None:
        """Return a file's text, None if it cannot be read."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, none if it does not exist."""
        try:
            return sorted(entry.name for entry in (self.root / path).iterdir())
        except OSError:
            return []

    def opens(self, path: str) -> str | None:
        """Return None if a device can be opened for reading and writing, else the reason."""
        try:
            with (self.root / path).open("r+b", buffering=0):
                return None
        except OSError as exc:
            return exc.strerror or str(exc)


def check_verbs(container: Container, rail: Rail) -> None:
    """The rail's HCA has a verbs device that this container may open."""
    hca = rail["hca"]
    devices = {
        container.read(f"sys/class/infiniband_verbs/{name}/ibdev"): name
        for name in container.names("sys/class/infiniband_verbs")
        if name.startswith("uverbs")
    }
    if hca not in devices:
        seen = ", ".join(sorted(filter(None, devices))) or "none"
        raise Refusal(
            "verbs",
            f"{rail['name']}: HCA {hca} has no verbs device here (seen: {seen}). Is its driver bound on the node?",
        )
    why = container.opens(f"dev/infiniband/{devices[hca]}")
    if why:
        raise Refusal(
            "verbs",
            f"{rail['name']}: /dev/infiniband/{devices[hca]} of {hca}: {why}. The device plugin has not handed it to this "
            "pod, or the pod is not privileged.",
        )


def has_address(rail: Rail) -> bool:
    """Whether the planned address exists here."""
    try:
        check_address(rail)
    except Refusal:
        return False
    return True


def check_address(rail: Rail) -> None:
    """The planned address is on an interface of this container."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((rail["address"], 0))
        except OSError as exc:
            raise Refusal(
                "address",
                f"{rail['name']}: {rail['address']} is on no interface here ({exc.strerror}). Its network attachment did "
                "not give it; see the pod's annotations and the NetworkAttachmentDefinition.",
            ) from exc


def check_mtu(container: Container, rail: Rail) -> None:
    """The interface has the planned MTU."""
    seen = container.read(f"sys/class/net/{rail['interface']}/mtu")
    if seen is None:
        there = ", ".join(container.names("sys/class/net")) or "none"
        raise Refusal("mtu", f"{rail['name']}: there is no interface {rail['interface']} (there are: {there}).")
    if int(seen) != rail["mtu"]:
        raise Refusal("mtu", f"{rail['name']}: {rail['interface']} has MTU {seen}, planned is {rail['mtu']}.")


def check_arp(container: Container, rail: Rail) -> None:
    """The interface answers only for its own address; the kernel uses the greater of `all` and the interface's value."""
    for name, wanted in ARP.items():
        seen = [container.read(f"proc/sys/net/ipv4/conf/{which}/{name}") for which in (rail["interface"], "all")]
        numbers = [int(value) for value in seen if value]
        if not numbers or max(numbers) != int(wanted):
            got = max(numbers) if numbers else "unknown"
            raise Refusal(
                "arp",
                f"{rail['name']}: {name} of {rail['interface']} is {got}, not {wanted}: it would answer for its twin.",
            )


def check_gid(container: Container, rail: Rail) -> None:
    """The HCA's table has a RoCE v2 GID for the planned address."""
    base = f"sys/class/infiniband/{rail['hca']}/ports/1"
    wanted = "0000:0000:0000:0000:0000:ffff:" + socket.inet_aton(rail["address"]).hex(":", 2)
    seen = []
    for index in sorted(container.names(f"{base}/gids"), key=lambda name: int(name) if name.isdigit() else -1):
        gid = container.read(f"{base}/gids/{index}")
        if gid == wanted and container.read(f"{base}/gid_attrs/types/{index}") == ROCE_V2:
            return
        if gid and gid.strip("0:"):
            seen.append(gid)
    raise Refusal(
        "gid",
        f"{rail['name']}: {rail['hca']} has no RoCE v2 GID of {rail['address']} (it has: {', '.join(seen) or 'none'}). "
        "Without it ibv_modify_qp fails with ENETUNREACH.",
    )


def check_link(container: Container, rail: Rail) -> None:
    """The interface has a carrier. An unreadable one passes: the address shows that the interface is set up."""
    until = time.monotonic() + CARRIER_S
    while container.read(f"sys/class/net/{rail['interface']}/carrier") == "0":
        if time.monotonic() >= until:
            raise Refusal(
                "link",
                f"{rail['name']}: {rail['interface']} has no carrier: nothing gets in or out. Check the cable and the "
                "switch port of this function, and its link on the node (`ip link`).",
            )
        time.sleep(PAUSE)


def _probe_socket(rail: Rail) -> socket.socket:
    probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    probe.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE)
    probe.setblocking(False)
    probe.bind((rail["address"], 0))
    return probe


def check_peers(rails: t.Sequence[Rail], port: int, bound_s: float, say: t.Callable[[str], None]) -> None:
    """Every peer answers on every rail, to a small packet and to one of the full MTU."""
    waiting: dict[tuple[str, int, int], tuple[Rail, t.Mapping[str, t.Any]]] = {}
    for rail in rails:
        for peer in rail["peers"]:
            for size in (SMALL, rail["mtu"] - HEADERS):
                waiting[rail["name"], peer["rank"], size] = (rail, peer)
    with contextlib.ExitStack() as stack:
        sockets = {rail["name"]: stack.enter_context(_probe_socket(rail)) for rail in rails}
        until, spoken = time.monotonic() + bound_s, 0.0
        while waiting and time.monotonic() < until:
            for (name, rank, size), (_rail, peer) in waiting.items():
                # Nobody listens on the port yet, or there is no route: try again.
                with contextlib.suppress(OSError):
                    sockets[name].sendto(f"?{name} {rank} ".encode().ljust(size, b"."), (peer["address"], port))
            pause = time.monotonic() + PAUSE
            while waiting and (left := pause - time.monotonic()) > 0:
                _collect(sockets, waiting, left)
            if waiting and time.monotonic() - spoken > 30:
                spoken = time.monotonic()
                say(f"waiting for {_missing(waiting)}")
    if not waiting:
        return
    deaf = [key for key in waiting if key[2] == SMALL]
    if deaf:
        raise Refusal("peer", f"No answer within {bound_s:g} s from {_missing({key: waiting[key] for key in deaf})}.")
    raise Refusal(
        "path-mtu",
        f"Small packets pass, but none of the full MTU, to {_missing(waiting)}. Check the MTU of the switch and of both ends.",
    )


def _collect(
    sockets: t.Mapping[str, socket.socket], waiting: dict[tuple[str, int, int], t.Any], seconds: float
) -> None:
    """Drop answered probes from the list; an answer must come from the peer's own address on that rail."""
    for ready in select.select(list(sockets.values()), [], [], seconds)[0]:
        name = next(key for key, value in sockets.items() if value is ready)
        try:
            data, (address, _port) = ready.recvfrom(65535)
        except OSError:
            continue
        for key, (_rail, peer) in list(waiting.items()):
            if key[0] == name and peer["address"] == address and len(data) == key[2] and data.startswith(b"!"):
                del waiting[key]


def _missing(waiting: t.Mapping[tuple[str, int, int], tuple[Rail, t.Mapping[str, t.Any]]]) -> str:
    said = {
        (peer["rank"], rail["name"]): f"rank {peer['rank']} ({peer['host']}, {peer['address']}, {rail['name']})"
        for rail, peer in waiting.values()
    }
    return ", ".join(said[key] for key in sorted(said))


def replace_pod(container: Container, config: t.Mapping[str, t.Any], say: t.Callable[[str], None]) -> None:
    """Delete a pod without its VFs, at the second start without them: after the first one its status shows the cause."""
    own = config.get("replace")
    if not own or all(map(has_address, config["rails"])):
        return
    noted = container.root / NOTED
    with contextlib.suppress(OSError):
        noted.touch(exist_ok=False)
        return
    token = container.read(f"{ACCOUNT}/token") or ""
    try:
        context = ssl.create_default_context(cafile=str(container.root / ACCOUNT / "ca.crt"))
        # Python 3.13 refuses CAs without a key usage, which clusters have and Kubernetes's own clients accept.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        where = (os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"]))
        connection = http.client.HTTPSConnection(*where, timeout=API_S, context=context)
        path = f"/api/v1/namespaces/{own['namespace']}/pods/{own['pod']}"
        connection.request("DELETE", path, headers={"Authorization": f"Bearer {token}"})
        status = connection.getresponse().status
    except (OSError, LookupError, ValueError, http.client.HTTPException) as exc:
        say(
            f"this pod cannot be replaced by itself: {type(exc).__name__}: {exc}. `kubectl delete pod {own['pod']}` does it."
        )
        return
    if status >= http.client.BAD_REQUEST:
        say(f"the API server did not let this pod be replaced ({status}). `kubectl delete pod {own['pod']}` does it.")
    else:
        say("this pod is replaced, because its VFs were not moved into it")


def check(config: t.Mapping[str, t.Any], root: str = "/", say: t.Callable[[str], None] = lambda _text: None) -> None:
    """Run all checks; Refusal for the first failure, the rank's own checks before its peers'."""
    container = Container(root)
    for rail in config["rails"]:
        if config["verbs"]:
            check_verbs(container, rail)
        check_address(rail)
        check_mtu(container, rail)
        check_arp(container, rail)
        if config["verbs"]:
            check_gid(container, rail)
        check_link(container, rail)
    check_peers(config["rails"], config["port"], config["bounds"]["peers_s"], say)


def clear(container: Container) -> None:
    """Remove what former containers of this pod left in its shared memory: an engine that is killed frees none of it."""
    if "supervisor.py" not in (container.read("proc/1/cmdline") or ""):
        return  # no container of ours: others use it, too
    with contextlib.suppress(OSError):
        for left in sorted((container.root / NOTED).parent.iterdir()):
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
            elif left.name != (container.root / NOTED).name:
                left.unlink(missing_ok=True)


def main(arguments: t.Sequence[str]) -> int:
    """Check the rank that the file describes; return the exit status of the cause."""

    def say(text: str) -> None:
        sys.stderr.write(f"preflight: {text}\n")

    root = arguments[1] if len(arguments) > 1 else "/"
    try:
        config = json.loads(pathlib.Path(arguments[0]).read_text(encoding="utf-8"))
        clear(Container(root))
        check(config, root, say)
    except Refusal as exc:
        replace_pod(Container(root), config, say)
        say(f"{exc.cause}: {exc}")
        return STATUS[exc.cause]
    except (OSError, ValueError, LookupError, TypeError) as exc:
        number = (
            f" (errno {errno.errorcode.get(exc.errno, exc.errno)})" if isinstance(exc, OSError) and exc.errno else ""
        )
        say(f"config: {arguments[0] if arguments else 'no file given'}: {type(exc).__name__}: {exc}{number}")
        return STATUS["config"]
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
