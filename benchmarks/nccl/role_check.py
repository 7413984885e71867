# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On two GPUs of one host: runs playbooks/nccl_bench.yml as an owner would, with real ranks, and checks verify's input.

Each GPU stands for a Spark (NCCL_HOSTID makes NCCL see two machines, and traffic uses TCP over loopback); the nodes'
facts are made up, since the machine has no ConnectX. Two runs: with TCP requested, which must return figures, and with
RDMA requested, which must fail closed with its cause. Usage, with ansible-core on the path and the
collection below ANSIBLE_COLLECTIONS_PATH: python3 role_check.py FOLDER
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import to_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl.bandwidth import parse
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import function, node

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLOTS = [("enp1s0f0np0", "0000:01:00.0"), ("enP2p1s0f0np0", "0002:01:00.0")]


def inventory(folder: pathlib.Path) -> pathlib.Path:
    """Write an inventory of two hosts that are this machine, each with a GPU of its own."""
    hosts: dict[str, t.Any] = {}
    for number in (1, 2):
        seen = [function(slot, host=number, vfs=2, netdev=n, pci=p) for slot, (n, p) in enumerate(SLOTS)]
        hosts[f"spark{number}"] = {
            "ansible_host": "127.0.0.1",
            "dgxspark_roce": to_plain(node(*seen)),
            "nccl_extra_environment": {
                "CUDA_VISIBLE_DEVICES": str(number - 1),
                "NCCL_HOSTID": f"node{number}",
                "NCCL_SOCKET_IFNAME": "=lo",
                "GLOO_SOCKET_IFNAME": "lo",
            },
        }
    every = {"ansible_connection": "local", "dgxspark_fabric": {"topology": "switch", "vf_count": 2}}
    tree = {"all": {"children": {"dgx": {"hosts": hosts, "vars": every}}}}
    path = folder / "inventory.json"
    path.write_text(json.dumps(tree), encoding="utf-8")
    return path


def run(folder: pathlib.Path, name: str, **variables: t.Any) -> tuple[int, str, dict[str, t.Any]]:
    """Run the playbook; return exit status, output and what it recorded for verify."""
    report = folder / f"{name}.json"
    given = {
        "nccl_bench_python": sys.executable,
        "nccl_bench_max_bytes": 64 << 20,
        "nccl_bench_floor_gib": 1,
        "dgxspark_report_file": str(report),
        **variables,
    }
    command = ["ansible-playbook", str(ROOT / "playbooks" / "nccl_bench.yml"), "-i", str(inventory(folder))]
    done = subprocess.run([*command, "-e", json.dumps(given)], check=False, capture_output=True, text=True)
    (folder / f"{name}.log").write_text(done.stdout + done.stderr, encoding="utf-8")
    written = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {}
    return done.returncode, done.stdout + done.stderr, written.get("dgxspark_verify_results", {}).get("nccl", {})


def main(folder: pathlib.Path) -> int:
    """Do both runs; exit status 1 if one of them is not as expected."""
    folder.mkdir(parents=True, exist_ok=True)
    code, said, found = run(folder, "tcp", nccl_transport="socket")
    rows = parse(found["output"])[0] if code == 0 else []
    verdict = (found.get("transport") or {}).get("verdict")
    print(f"tcp: exit {code}, transport {verdict}, {len(rows)} sizes, versions {found.get('versions')}")
    good = code == 0 and verdict == "socket" and len(rows) > 10
    code, said, found = run(folder, "rdma")
    words = " ".join(said.split())
    print(f"rdma without a device: exit {code}: {words[words.find('The transport is') :][:400]}")
    return 0 if good and code != 0 and "'failed', not" in words and not found else 1


if __name__ == "__main__":
    raise SystemExit(main(pathlib.Path(sys.argv[1])))
