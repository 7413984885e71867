"""STAND-IN for the programs in Multus' image, as our DaemonSet starts them: real Multus is not run where this is used.

`install_multus -d FOLDER -t thick` copies the plugin (tests/stand_ins/multus) to where the node has its CNI plugins.
`multus-daemon` reads /etc/cni/net.d/multus.d/daemon-config.json, takes the first configuration of the cluster's network that
is not its own, and lays its own before it (00-multus.conf, as the real one calls it). What it asks the API server it asks as
its service account, so our ClusterRole must allow it. When it is stopped it takes its configuration away.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import sys
import time
import typing as t

HERE = pathlib.Path(__file__).resolve().parent
CONFIG = pathlib.Path("/etc/cni/net.d/multus.d/daemon-config.json")
ACCOUNT = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
KEPT = pathlib.Path("/var/lib/cni/multus")  # the same path on the node
OWN = "00-multus.conf"


def install(folder: str) -> None:
    """Put the plugin there in one step: a pod may be starting."""
    made = pathlib.Path(folder, ".multus-shim.new")
    shutil.copy(HERE / "multus-shim", made)
    made.chmod(0o755)
    made.rename(pathlib.Path(folder, "multus-shim"))


def configuration(folder: pathlib.Path) -> dict[str, t.Any]:
    """Return what the plugin is told."""
    found = [each for each in sorted(folder.glob("*.conf*")) if each.name != OWN]
    if not found:
        sys.exit(f"there is no network's configuration in {folder}")
    network = json.loads(found[0].read_text(encoding="utf-8"))
    return {
        "cniVersion": "0.4.0",
        "name": "multus-cni-network",
        "type": "multus-shim",
        "server": f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}",
        "ca": str(KEPT / "ca.crt"),
        "token": str(KEPT / "token"),
        "clusterNetwork": network,
    }


def daemon() -> None:
    """Be there until stopped."""
    asked = json.loads(CONFIG.read_text(encoding="utf-8"))
    place = pathlib.Path(asked["cniConfigDir"]) / OWN
    text = json.dumps(configuration(pathlib.Path(asked["multusAutoconfigDir"])), indent=1)

    def stop(_number: int, _frame: object) -> None:
        place.unlink(missing_ok=True)
        sys.exit(0)

    signal.signal(signal.SIGTERM, stop)
    while True:
        for name in ("ca.crt", "token"):
            (KEPT / name).touch(0o600)
            (KEPT / name).write_bytes((ACCOUNT / name).read_bytes())
        if not place.is_file() or place.read_text(encoding="utf-8") != text:
            place.write_text(text, encoding="utf-8")
            print(f"wrote {place}", flush=True)
        time.sleep(10)


if __name__ == "__main__":
    if pathlib.Path(sys.argv[0]).name == "install_multus":
        install(sys.argv[sys.argv.index("-d") + 1])
    else:
        daemon()
