"""STAND-IN for the programs in Multus' image, as our DaemonSet starts them: real Multus is not run where this is used.

Imitated: k8snetworkplumbingwg/multus-cni v4.3.0, with the options and the configuration that our DaemonSet gives; others are refused.
`install_multus -d FOLDER -t thick` copies the plugin (tests/stand_ins/multus) to where the node has its CNI plugins.
`multus-daemon` reads /etc/cni/net.d/multus.d/daemon-config.json, waits two minutes for a configuration of the cluster's network (the first
.conf or .conflist that does not begin with 00-multus), and lays its own before it (00-multus.conf). What it asks the API server it
asks as its service account, so our ClusterRole must allow it. When it is stopped it takes its configuration away. Not imitated: its
socket (what it does is done in the plugin), metrics, certificates per node.
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
KNOWN = {"binDir", "chrootDir", "cniConfigDir", "cniVersion", "connectionLimit", "logLevel", "logToStderr"}
KNOWN |= {"multusAutoconfigDir", "multusConfigFile", "socketDir"}


def install(folder: str) -> None:
    """Put the plugin there in one step: a pod may be starting."""
    made = pathlib.Path(folder, ".multus-shim.new")
    shutil.copy(HERE / "multus-shim", made)
    made.chmod(0o755)
    made.rename(pathlib.Path(folder, "multus-shim"))


def configuration(asked: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return what the plugin is told."""
    folder = pathlib.Path(asked["multusAutoconfigDir"])
    found: list[pathlib.Path] = []
    for _try in range(120):
        files = sorted(each for each in folder.iterdir() if each.suffix in (".conf", ".conflist"))
        found = [each for each in files if not each.name.startswith("00-multus")]
        if found:
            break
        time.sleep(1)
    else:
        sys.exit(f"could not find a plugin configuration in {folder}")
    network = json.loads(found[0].read_text(encoding="utf-8"))
    return {
        "cniVersion": asked["cniVersion"],
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
    unknown = set(asked) - KNOWN
    if unknown or asked["multusConfigFile"] != "auto":
        sys.exit(f"the stand-in does not know {sorted(unknown)}, nor a configuration that is not made automatically")
    place = pathlib.Path(asked["cniConfigDir"]) / OWN
    text = json.dumps(configuration(asked), indent=1)

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
        if len(sys.argv) != 5 or sys.argv[1] != "-d" or sys.argv[3:] != ["-t", "thick"]:
            sys.exit(f"--type is missing or --type has invalid value: {sys.argv[1:]}")
        install(sys.argv[2])
    else:
        daemon()
