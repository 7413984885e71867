"""What tests ask a serving cluster through kubectl: its ranks, what is inside them, and their API."""

from __future__ import annotations

import json
import re
import sys
import time
import typing as t

Plain = dict[str, t.Any]
NAMESPACE = "dgx-serving"
PORT = 30000
MINUTE = 60
ASK_S = 2  # between two polls: each is a process on the cores that emulate the nodes
RAILS = ("net1", "net2")
# A power cut leaves zeros in files that were not flushed: when a node lost its pods' CNI results, none of its pods came back.
UNFLUSHED = "for file in /var/lib/cni/results/*; do head -c 512 /dev/zero >$file; done; sync"
SYSCTLS = {"arp_ignore": "1", "arp_announce": "2", "rp_filter": "2"}


class Asked:
    """A cluster with an instance `default`; subclasses define kubectl(). size: how many ranks it has when complete."""

    size: int

    def kubectl(self, *arguments: str, check: bool = True) -> str:
        raise NotImplementedError

    def listed(self, kind: str, *options: str) -> list[Plain]:
        return list(json.loads(self.kubectl("get", kind, "-o", "json", *options))["items"])

    def ranks(self) -> dict[int, Plain]:
        """Return the pods of the instance by rank."""
        pods = self.listed("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=dgxspark-serving")
        return {int(pod["metadata"]["labels"]["dgxspark.cluster/rank"]): pod for pod in pods}

    def inside(self, rank: int, *command: str) -> str:
        """Run a command in a rank's container."""
        return self.kubectl("exec", "-n", NAMESPACE, f"serve-default-rank{rank}-0", "--", *command).strip()

    def ask(self, path: str, body: Plain | None = None) -> Plain:
        """Ask the API, from within the worker's pod, as its clients in the cluster do."""
        head = self.ranks()[0]["status"]["podIP"]
        data = f", data={json.dumps(json.dumps(body))}.encode()" if body is not None else ""
        program = f"import urllib.request as u; print(u.urlopen(u.Request('http://{head}:{PORT}{path}'{data}), timeout=20).read().decode())"
        return dict(json.loads(self.inside(1, "python3", "-c", program)))

    def ready(self) -> bool:
        """Whether all ranks are there and ready."""
        ranks = self.ranks()
        return len(ranks) == self.size and all(map(condition, ranks.values()))

    def ended(self, rank: int) -> str:
        """Return the termination message of a rank's container, or of the previous one if it runs again."""
        statuses = self.ranks()[rank]["status"].get("containerStatuses", ())
        states = [each.get(key, {}) for each in statuses for key in ("state", "lastState")]
        return str(next((state["terminated"].get("message", "") for state in states if "terminated" in state), ""))

    def node_ready(self, name: str) -> bool:
        """Whether a node is Ready, by its condition."""
        (found,) = [each for each in self.listed("nodes") if each["metadata"]["name"] == name]
        return next(each["status"] for each in found["status"]["conditions"] if each["type"] == "Ready") == "True"

    def service(self) -> str:
        """Return the uid of the service that clients ask."""
        made = json.loads(self.kubectl("get", "service", "-n", NAMESPACE, "serve-default", "-o", "json"))
        return str(made["metadata"]["uid"])

    def dismiss(self, rank: int, bound_s: float) -> str:
        """Delete a rank's pod, as an eviction does, and wait until its engine has ended; return the pod's uid."""
        uid = str(self.ranks()[rank]["metadata"]["uid"])
        self.kubectl("delete", "pod", "-n", NAMESPACE, f"serve-default-rank{rank}-0", "--wait=false")

        def ended() -> bool:
            pod = self.ranks().get(rank)
            states = [each.get("state", {}) for each in pod["status"].get("containerStatuses", ())] if pod else []
            return pod is None or pod["metadata"]["uid"] != uid or not any("running" in state for state in states)

        until(f"rank {rank}: its pod's engine has ended", bound_s, ended)
        return uid

    def renew(self, rank: int, bound_s: float) -> None:
        """Have a rank's pod replaced."""
        uid = self.dismiss(rank, bound_s)
        until(
            f"rank {rank}: its next pod is there",
            bound_s,
            lambda: rank in self.ranks() and self.ranks()[rank]["metadata"]["uid"] != uid,
        )

    def wait_play(self, kubeconfig: str, bound_s: int) -> list[Plain]:
        """Return a play that runs kube_wait on the current ranks with this timeout."""
        (first, *_others) = self.listed("statefulsets", "-n", NAMESPACE)
        asked = {
            "namespace": NAMESPACE,
            "instance": "default",
            "plan": first["metadata"]["annotations"]["dgxspark.cluster/plan"],
            "ranks": self.size,
            "timeout": bound_s,
            "interval": 2,
            "kubeconfig": kubeconfig,
        }
        local = {"delegate_to": "localhost", "run_once": True, "vars": {"ansible_python_interpreter": sys.executable}}
        task = {"name": "Wait", "dgxspark.cluster.kube_wait": asked, **local}
        return [{"name": "Wait", "hosts": "dgx", "gather_facts": False, "tasks": [task]}]

    def planned(self) -> dict[int, dict[str, str]]:
        """Return each rank's planned addresses by interface, from its supervisor's configuration."""
        maps = self.listed("configmaps", "-n", NAMESPACE)
        launch = next(each for each in maps if "launch" in each["metadata"]["name"])
        ranks = {rank: json.loads(launch["data"][f"rank{rank}.json"]) for rank in range(self.size)}
        return {
            rank: {rail["interface"]: f"{rail['address']}/{rail['prefix']}" for rail in config["rails"]}
            for rank, config in ranks.items()
        }

    def named_within(self, bound_s: int) -> str:
        raise NotImplementedError

    # --- what must hold on both sites -----------------------------------------------------------------------------------

    def works(self) -> None:
        assert self.ask("/v1/completions", {"prompt": "5", "max_tokens": 4})["usage"]["completion_tokens"] == 4

    def gives_tokens(self) -> None:
        """The API returns tokens, and the logs say so."""
        assert self.ask("/v1/models")["data"][0]["id"] == "dgxspark/scripted-one"
        said = self.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "five"}]})
        assert said["choices"][0]["message"]["content"] == "five six seven eight nine"
        assert said["usage"]["completion_tokens"]
        logs = self.kubectl("logs", "-n", NAMESPACE, "serve-default-rank0-0")
        assert f"all {self.size} ranks are here" in logs
        assert "serving; the first tokens: ' six seven eight nine'" in logs

    def switches(self, run: t.Callable[[], int]) -> None:
        """A run that changes something serves the second model with new pods behind the same service."""
        before = {pod["metadata"]["uid"] for pod in self.ranks().values()}
        service = self.service()
        assert run() > 0
        ranks = self.ranks()
        assert not before & {pod["metadata"]["uid"] for pod in ranks.values()}
        assert all(condition(pod) for pod in ranks.values())
        assert self.ask("/v1/models")["data"][0]["id"] == "dgxspark/scripted-two"
        assert self.service() == service

    def names(self, what: str, *words: str | tuple[str, ...]) -> None:
        """What is missing is named within a minute, in all of these words (of a tuple, any one)."""
        began = time.monotonic()
        said = self.named_within(MINUTE)
        print(f"missing {what}: named after {time.monotonic() - began:.0f} s")
        for each in words:
            assert any(one in said for one in (each if isinstance(each, tuple) else (each,))), (each, said)

    def misses_an_attachment(self, node: str, run: t.Callable[[], object], bound_s: float) -> None:
        """When an attachment definition is gone, rank 1's next pod says so; the run creates it, and the ranks need nothing else."""
        self.kubectl("delete", "net-attach-def", "-n", NAMESPACE, "p0f1v0")
        self.renew(1, bound_s)
        lacking = "cannot find a network-attachment-definition (p0f1v0) in namespace (dgx-serving)"
        self.names("attachment", lacking, f"serve-default-rank1-0 on {node}")
        self._is_mended_by(run)

    def misses_a_vf(self, node: str, take: t.Callable[[], object], run: t.Callable[[], object], bound_s: float) -> None:
        """When a VF is removed before rank 1's next pod has it, that pod says so; the run creates the VF again."""
        self.kubectl("cordon", node)
        try:
            self.renew(1, bound_s)
            take()
        finally:
            self.kubectl("uncordon", node)
        # By the CNI plugin, or before that by the scheduler if the device plugin was quicker.
        self.names("VF", "serve-default-rank1-0", ("The VF is not on the node", "is the VF present and free?"))
        self._is_mended_by(run)

    def loses_a_vf(self, node: str, take: t.Callable[[], object], run: t.Callable[[], object], bound_s: float) -> None:
        """When a VF is removed under rank 1's pod, the pod can be deleted (Multus' DEL never fails), and the next one says so."""
        take()
        self.dismiss(1, bound_s)
        # In the plugin's words if the kubelet has reported them.
        self.names(
            "VF of a pod",
            f"serve-default-rank1-0 on {node}",
            ("The VF is not on the node", "If one of its VFs was removed"),
        )
        self._is_mended_by(run)

    def _is_mended_by(self, run: t.Callable[[], object]) -> None:
        run()
        assert all(condition(pod) for pod in self.ranks().values())

    def recovers(self, rank: int, host: str, kill: t.Callable[[], object], down_s: float, back_s: float) -> None:
        """A rank whose engine is killed takes its group down, which comes back by itself; each says why."""
        before = {number: restarts(pod) for number, pod in self.ranks().items()}
        began = time.monotonic()
        kill()
        until(f"engine of rank {rank} killed: the group is down", down_s, lambda: not self.ready(), began)

        def again() -> bool:
            ranks = self.ranks()
            return self.ready() and all(restarts(ranks[number]) > before[number] for number in before)

        until(f"engine of rank {rank} killed: the group is back", back_s, again, began)
        assert "was killed by SIGKILL" in self.ended(rank)
        assert f"rank {rank} ({host}) is lost: rank {rank}: the engine was killed by SIGKILL" in self.ended(0)
        self.works()

    def has_its_vfs(self) -> None:
        """Each rank has its VFs, with address, MTU and ARP settings."""
        addresses = self.planned()
        for rank in self.ranks():
            # In one command: starting one in an emulated node's container takes seconds.
            wanted = [f"readlink /sys/class/net/{rail}/device/driver; cat {_sysctls(rail)}" for rail in RAILS]
            first, *told = self.inside(rank, "sh", "-c", "; ".join(["ip -json address", *wanted])).splitlines()
            seen = {link["ifname"]: link for link in json.loads(first)}
            for rail in RAILS:
                (own,) = [each for each in seen[rail]["addr_info"] if each["family"] == "inet"]
                assert f"{own['local']}/{own['prefixlen']}" == addresses[rank][rail]
                assert seen[rail]["mtu"] == 9000
                # A VF itself, not something on top of one.
                driver, *values = (told.pop(0) for _line in range(1 + len(SYSCTLS)))
                assert driver.endswith("/igbvf")
                assert values == list(SYSCTLS.values())

    def is_unprivileged(self) -> None:
        """Ranks are unprivileged, and hold what the plugins gave them."""
        for rank, pod in self.ranks().items():
            said = self.inside(rank, "sh", "-c", "cat /proc/self/status; env")
            status = dict(re.findall(r"^(\w+):\t(\w+)$", said, re.M))
            assert status["CapBnd"].lstrip("0") == f"{1 << 14:x}"  # IPC_LOCK alone (linux/capability.h)
            assert status["NoNewPrivs"] == "1"
            assert len(re.findall(r"^PCIDEVICE_DGXSPARK_CLUSTER_P0F\dV0=0000:", said, re.M)) == len(RAILS)
            assert not re.search("^SERVE_DEFAULT.*=tcp", said, re.M)
            told = json.loads(pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"])
            assert [each["interface"] for each in told] == ["eth0", *RAILS]


def _sysctls(rail: str) -> str:
    return " ".join(f"/proc/sys/net/ipv4/conf/{rail}/{name}" for name in SYSCTLS)


def plain(said: str) -> str:
    """Return the text on one line."""
    return re.sub(r"\s+", " ", said)


def condition(pod: Plain, kind: str = "Ready") -> bool:
    found = {each["type"]: each["status"] for each in pod["status"].get("conditions", ())}
    return found.get(kind) == "True" and not pod["metadata"].get("deletionTimestamp")


def restarts(pod: Plain) -> int:
    return sum(each["restartCount"] for each in pod["status"].get("containerStatuses", ()))


def until(what: str, bound_s: float, true: t.Callable[[], bool], began: float | None = None) -> float:
    """Wait until a condition holds; print and return the seconds since `began` (default: now). Fails after the bound."""
    began = time.monotonic() if began is None else began
    while not true():
        assert time.monotonic() - began < bound_s, f"{what}: not within {bound_s:g} s"
        time.sleep(ASK_S)
    seconds = time.monotonic() - began
    print(f"{what}: {seconds:.1f} s")
    return seconds
