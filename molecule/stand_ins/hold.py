"""Make the stand-ins of a scenario, and keep them until they are taken down: hosts that are namespaces, releases, an API server.

Usage: hold.py up FOLDER WHAT HOST … | down FOLDER. WHAT: `hosts` (tests/unit/namespaces.py), `k3s` (these, and releases of
tests/stand_ins/k3s in FOLDER/releases), `cluster` (tests/stand_ins/kube_api.py by
FOLDER/kubeconfig, and the fabric's plan of these hosts in FOLDER/plan.json). `hosts` and `k3s` need
root. `up` returns when all is there, and leaves a process that `down` ends; FOLDER is gone after that.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import runpy
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE_S = 60


def alive(folder: pathlib.Path) -> int | None:
    """Return the process that keeps the stand-ins, where it runs."""
    try:
        pid = int((folder / "pid").read_text())
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_text()
    except (OSError, ValueError):
        return None
    return pid if "hold.py" in words and str(folder) in words else None


def make(folder: pathlib.Path, what: str, names: list[str], stack: contextlib.ExitStack) -> None:
    """Make what is asked for; the stack takes it down."""
    runpy.run_path(str(ROOT / "tools" / "own_collection.py"))
    if what == "cluster":
        from ansible_collections.dgxspark.cluster.tests.stand_ins import kube_api
        from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs

        (folder / "plan.json").write_text(json.dumps({"hosts": kube_inputs.fabric(len(names))}))
        stack.callback(kube_api.serve(kube_api.Cluster(names), folder / "kubeconfig").shutdown)
        return
    from ansible_collections.dgxspark.cluster.tests.unit import k3s_releases, namespaces

    if (why := namespaces.possible()) is not None:
        raise SystemExit(f"There can be no hosts that are namespaces here: {why}")
    lan = namespaces.Lan(folder)
    stack.callback(lan.close)
    for number, name in enumerate(names, 1):
        lan.host(name, f"192.0.2.{10 + number}")
    if what == "k3s":
        k3s_releases.release(folder / "releases", k3s_releases.NEWER)


def hold(folder: pathlib.Path, what: str, names: list[str]) -> None:
    """Make it, say so, and wait for the end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with contextlib.ExitStack() as stack:
        make(folder, what, names, stack)
        (folder / "ready").write_text(json.dumps({"what": what, "hosts": names}))
        while True:
            signal.pause()


def up(folder: pathlib.Path, words: list[str]) -> None:
    """Start the process that holds it, and wait until all is there."""
    if alive(folder):
        print("It is there already.")
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with (folder / "log").open("w") as log:
        holder = subprocess.Popen(
            [sys.executable, __file__, "hold", str(folder), *words],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/",
        )  # fmt: skip
    (folder / "pid").write_text(str(holder.pid))
    end = time.monotonic() + PATIENCE_S
    while not (folder / "ready").exists():
        if holder.poll() is not None or time.monotonic() > end:
            holder.terminate()
            raise SystemExit(f"The stand-ins did not come up: {(folder / 'log').read_text().strip()[-2000:]}")
        time.sleep(0.1)


def down(folder: pathlib.Path) -> None:
    """End that process, and remove the folder."""
    end = time.monotonic() + PATIENCE_S
    if pid := alive(folder):
        os.kill(pid, signal.SIGTERM)  # once: a second one would break off what ends the hosts
    while pid := alive(folder):
        if time.monotonic() > end:
            raise SystemExit(f"Process {pid}, which keeps the stand-ins in {folder}, does not end.")
        time.sleep(0.2)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("up", "hold", "down"):
        raise SystemExit(__doc__)
    place = pathlib.Path(sys.argv[2]).absolute()
    if sys.argv[1] == "up":
        up(place, sys.argv[3:])
    elif sys.argv[1] == "down":
        down(place)
    else:
        hold(place, sys.argv[3], sys.argv[4:])
