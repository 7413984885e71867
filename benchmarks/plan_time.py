"""Time the plan for 4, 16, 64 and 256 hosts on one core, from the filter's entry point to its result.

Usage, from the repository's root: python benchmarks/plan_time.py [--out FILE.json] [--profile HOSTS]
Each figure is CPU time, the best of five, so that other load does not count. "facts": every host has been seen, with all its VFs.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import pathlib
import platform
import pstats
import runpy
import time
import typing as t

ROOT = pathlib.Path(__file__).resolve().parent.parent
runpy.run_path(str(ROOT / "tools" / "own_collection.py"))

from ansible_collections.dgxspark.cluster.plugins.filter.fabric_plan import FilterModule  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (  # noqa: E402
    Function,
    Hca,
    Netdev,
    Node,
    Place,
    Vf,
    to_plain,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge  # noqa: E402

HOSTS = (4, 16, 64, 256)
# 256 hosts do not fit in a /24; a ring of 256 has 4096 subnets.
SWITCH = {"topology": "switch", "subnet_prefix": 22}
RING = {"topology": "ring", "subnet_prefix": 22, "address_pool": "10.128.0.0/9"}
CASES = {"switch": (SWITCH, False), "switch, facts": (SWITCH, True), "ring": (RING, False), "ring, facts": (RING, True)}
VFS = 4


def facts(host: int) -> dict[str, t.Any]:
    """Return roce_info's facts for a node with all its VFs created."""
    functions = []
    for number, slot in enumerate(knowledge.get("hardware", "spark")["slots"]):
        vfs = tuple(
            Vf(
                index=index,
                pci=f"000{number}:02:00.{index}",
                netdev=Netdev(
                    f"v{number}{index}", mac=f"0a:00:{host >> 8:02x}:{host & 255:02x}:{number:02x}:{index:02x}"
                ),
                hca=Hca(f"rocev{number}{index}"),
                place=Place("host"),
            )
            for index in range(VFS)
        )
        functions.append(Function(slot["pci"], totalvfs=8, numvfs=VFS, netdev=Netdev(slot["netdev"]), vfs=vfs))
    plain: dict[str, t.Any] = to_plain(Node(functions=tuple(functions), other=(Netdev("wl0", ipv4=("192.0.2.7/24",)),)))
    return plain


def job(hosts: int, settings: dict[str, t.Any], seen: bool) -> t.Callable[[], t.Any]:
    """Return a call that plans this many hosts."""
    plan = FilterModule().filters()["fabric_plan"]
    names = [f"spark{number}" for number in range(1, hosts + 1)]
    hostvars = {
        name: {"ansible_host": f"198.18.{number >> 8}.{number & 255}"}
        | ({"dgxspark_roce": facts(number)} if seen else {})
        for number, name in enumerate(names, 1)
    }
    return lambda: plan(names, settings, hostvars)


def best_of(call: t.Callable[[], t.Any], times: int = 5) -> float:
    """Return the shortest of several runs, in seconds."""
    shortest = float("inf")
    for _run in range(times):
        gc.collect()
        start = time.process_time()
        call()
        shortest = min(shortest, time.process_time() - start)
    return shortest


def main() -> None:
    """Measure, print a table, and write it as JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--profile", type=int, metavar="HOSTS")
    arguments = parser.parse_args()
    if arguments.profile:
        profile = cProfile.Profile()
        profile.runcall(job(arguments.profile, SWITCH, True))
        pstats.Stats(profile).sort_stats("cumulative").print_stats(25)
        return
    figures = {name: {hosts: best_of(job(hosts, *case)) for hosts in HOSTS} for name, case in CASES.items()}
    print(f"{'seconds':16}" + "".join(f"{hosts:>10}" for hosts in HOSTS))
    for name, row in figures.items():
        print(f"{name:16}" + "".join(f"{seconds:10.4f}" for seconds in row.values()))
    if arguments.out:
        document = {"python": platform.python_version(), "machine": platform.machine(), "seconds": figures}
        arguments.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
