"""Clusters for tests of verify: a plan, nodes that match it, and probes that found them so.

cluster = Cluster(4)                                 # four hosts on a switch, two functions, two VFs each
cluster.node("spark2").functions[0]…                 # plain facts, for the test to break
cluster.outcome()                                    # the report
"""

from __future__ import annotations

import copy
import itertools
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    PlannedFunction,
    PlannedHost,
    PlannedVf,
    to_plain,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.report import build_report
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.schedule import probes, rdma_rounds
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.values import Evidence, evidence_of

Plain = dict[str, t.Any]
SLOTS = {
    "p0f0": (0, 0, "enp1s0f0np0", "0000:01:00.0"),
    "p0f1": (0, 1, "enP2p1s0f0np0", "0002:01:00.0"),
    "p1f0": (1, 0, "enp1s0f1np1", "0000:01:00.1"),
    "p1f1": (1, 1, "enP2p1s0f1np1", "0002:01:00.1"),
}
PROGRAMS = {"ib_write_bw": "/usr/bin/ib_write_bw", "ib_send_lat": "/usr/bin/ib_send_lat", "ibv_rc_pingpong": None}
THRESHOLDS: Plain = {
    "id": "test",
    "link": {"min_speed_mbps": 200000},
    "arp": {"window_s": 1},
    "ping": {"timeout_s": 1, "tries": 2},
    "rdma": {
        "tcp_port": 18600,
        "meet_s": 60,
        "test_s": 20,
        "write": {
            "size": 65536,
            "duration": 2,
            "both_ways": True,
            "min_gbps": [{"mtu": 9000, "gbps": 100}, {"mtu": 1500, "gbps": 90}],
        },
        "pingpong": {"size": 2, "iterations": 1000},
    },
    "wire": {"min_bytes": 1048576, "min_packets": 64},
}


def switch(names: t.Sequence[str], slots: t.Sequence[str] = ("p0f0", "p0f1"), vfs: int = 2) -> Plain:
    """A plan in which all hosts are on one switch."""
    hosts = {}
    for number, name in enumerate(names, 1):
        functions = []
        for place, slot in enumerate(slots):
            port, function, netdev, pci = SLOTS[slot]
            base = netdev[:-3]
            planned = [
                PlannedVf(
                    vf,
                    "serving",
                    f"02:d6:00:{number:02x}:{place:02x}:{vf:02x}",
                    f"10.100.{place * 8 + vf}.{number}",
                    24,
                    f"10.100.{place * 8 + vf}.0/24",
                    9000,
                    netdev=f"{base}v{vf}",
                )
                for vf in range(vfs)
            ]
            functions.append(PlannedFunction(slot, port, function, "switch", netdev, pci, 9000, tuple(planned)))
        hosts[name] = PlannedHost(name, number, True, tuple(functions))
    pairs = [
        {
            "a": a,
            "b": b,
            "segment": "switch",
            "paths": [{"slot_a": s, "slot_b": s, "vf": vf} for s in slots for vf in range(vfs)],
        }
        for a, b in itertools.combinations(names, 2)
    ]
    return {"topology": "switch", "hosts": {name: to_plain(host) for name, host in hosts.items()}, "pairs": pairs}


def facts(host: Plain) -> Plain:
    """A node that matches its plan."""
    functions = []
    for planned in host["functions"]:
        hca = f"roce{planned['netdev'][2:-3]}"

        def netdev(name: str, mac: str, mtu: int, *addresses: str) -> Plain:
            return {
                "name": name,
                "mac": mac,
                "mtu": mtu,
                "operstate": "up",
                "carrier": True,
                "speed_mbps": 200000,
                "ipv4": list(addresses),
                "arp": {"arp_ignore": 1, "arp_announce": 2, "rp_filter": 2},
            }

        vfs = []
        for vf in planned["vfs"]:
            gids = [
                {"index": 0, "gid": "fe80::1", "type": "RoCE v2", "netdev": vf["netdev"]},
                {"index": 3, "gid": f"::ffff:{vf['address']}", "type": "RoCE v2", "netdev": vf["netdev"]},
            ]
            port = {"number": 1, "state": "ACTIVE", "active_mtu": 4096, "gids": gids}
            vfs.append(
                {
                    "index": vf["index"],
                    "pci": f"{planned['pci']}-{vf['index']}",
                    "driver": "mlx5_core",
                    "netdev": netdev(vf["netdev"], vf["mac"], vf["mtu"], f"{vf['address']}/{vf['prefix']}"),
                    "hca": {"name": f"{hca}v{vf['index']}", "ports": [port]},
                    "place": {"state": "host"},
                }
            )
        functions.append(
            {
                "pci": planned["pci"],
                "driver": "mlx5_core",
                "netdev": netdev(planned["netdev"], f"94:6d:ae:00:{host['index']:02x}:{planned['function']:02x}", 9000),
                "numvfs": len(vfs),
                "totalvfs": 8,
                "vfs": vfs,
            }
        )
    return {"kernel": "6.14.0", "functions": functions}


class Cluster:
    """A cluster whose facts a test may break before it asks for the outcome."""

    def __init__(self, hosts: int | t.Sequence[str], **plan: t.Any) -> None:
        names = [f"spark{n}" for n in range(1, hosts + 1)] if isinstance(hosts, int) else list(hosts)
        self.plan = switch(names, **plan)
        self.hosts: dict[str, Plain] = {n: {"facts": facts(h), "error": None} for n, h in self.plan["hosts"].items()}
        self.thresholds = copy.deepcopy(THRESHOLDS)
        self.programs = {name: dict(PROGRAMS) for name in names}
        self.arp: dict[tuple[str, str], Plain] = {}  # (asking host, address) -> what to answer instead
        self.ping: dict[tuple[str, str], Plain] = {}
        self.rdma: dict[str, Plain] = {}  # test id -> what to answer instead

    def function(self, host: str, number: int) -> Plain:
        return t.cast(Plain, self.hosts[host]["facts"]["functions"][number])

    def vf(self, host: str, number: int, vf: int) -> Plain:
        return t.cast(Plain, self.function(host, number)["vfs"][vf])

    def limit(self, *names: str) -> None:
        self.hosts = {name: seen for name, seen in self.hosts.items() if name in names}

    def lose(self, name: str, error: str = "Connection timed out") -> None:
        self.hosts[name] = {"facts": None, "error": error}

    def evidence(self) -> Evidence:
        return evidence_of(self.plan, self.hosts, self.thresholds)

    def probe(self) -> None:
        """Let every probe find what a healthy fabric gives, except for the test's changes."""
        macs = {
            vf["address"]: vf["mac"] for h in self.plan["hosts"].values() for f in h["functions"] for vf in f["vfs"]
        }
        for name, asked in probes(self.evidence()).items():
            arp = [
                {"netdev": a["netdev"], "address": a["address"], "macs": [macs[a["address"]]], "error": None}
                | self.arp.get((name, a["address"]), {})
                for a in asked["arp"]
            ]
            ping = [
                {"netdev": a["netdev"], "address": a["address"], "small": "ok", "large": "ok", "rtt_ms": 0.1}
                | self.ping.get((name, a["address"]), {})
                for a in asked["ping"]
            ]
            self.hosts[name]["probe"] = {"arp": arp, "ping": ping, "programs": self.programs[name]}

    def meet(self) -> list[dict[str, list[Plain]]]:
        """Run the rounds: every test passes, except for the test's changes."""
        rounds = rdma_rounds(self.evidence())
        for tests in rounds:
            for name, ends in tests.items():
                for end in ends:
                    figures = {"gbps": 106.5} if end["program"] == "ib_write_bw" else {"usec": 1.6}
                    answer = {"id": end["id"], "role": end["role"], "program": end["program"], "status": "ok"}
                    answer |= {"message": "", "figures": figures}
                    self.hosts[name].setdefault("rdma", []).append(answer | self.rdma.get(end["id"], {}))
        return rounds

    def outcome(self) -> Plain:
        """Probe, meet, judge; return the report, with its table under `table`."""
        self.probe()
        self.meet()
        return self.judge()

    def judge(self) -> Plain:
        """Return the report of what was seen so far."""
        meta = {
            "started": "2026-01-01T00:00:00Z",
            "finished": "2026-01-01T00:01:00Z",
            "versions": {"collection": "0.1.0"},
        }
        made = build_report(self.evidence(), meta)
        return made["report"] | {"table": made["table"]}


def step(report: Plain, name: str) -> Plain:
    """Return a step of a report by its id."""
    return t.cast(Plain, next(step for step in report["steps"] if step["id"] == name))


FABRIC = ("link", "mtu", "arp", "gid", "rdma")


def statuses(report: Plain, *, beyond: bool = False) -> dict[str, str]:
    """Return the status of each step of the fabric; with `beyond`, of those beyond it, too."""
    return {step["id"]: step["status"] for step in report["steps"] if beyond or step["id"] in FABRIC}
