"""The real Multus, SR-IOV network device plugin and flannel's CNI plugin, where folders with their binaries are given.

DGXSPARK_REAL_MULTUS: multus-daemon, multus-shim, install_multus and passthru, as upstream's image has them in
/usr/src/multus-cni/bin. DGXSPARK_REAL_SRIOVDP: sriovdp and upstream's entrypoint.sh. DGXSPARK_REAL_FLANNEL: flannel, which K3s has
in its bundle. Each folder has a file VERSION, whose text is in every report. An owner's CI takes them out of upstream's releases.
What is not given is reported as not run.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import tempfile

from ansible_collections.dgxspark.cluster.tests.nodes import image

MULTUS_PROGRAMS = ("multus-daemon", "multus-shim", "install_multus", "passthru")
PLUGIN_PROGRAMS = ("sriovdp", "entrypoint.sh")
FOLDERS = {
    "DGXSPARK_REAL_MULTUS": MULTUS_PROGRAMS,
    "DGXSPARK_REAL_SRIOVDP": PLUGIN_PROGRAMS,
    "DGXSPARK_REAL_FLANNEL": ("flannel",),
}
PCI_IDS = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids")
SHELL = ("sh", "awk", "mkdir", "cat", "echo", "date", "grep", "ls", "sleep")  # of what upstream's alpine has


def why_not(*variables: str) -> str:
    """Return why the real programs of these variables are not run; empty where they can be."""
    for variable in variables:
        place = os.environ.get(variable, "")
        if not place:
            return f"not run: {variable} names no folder with the real programs"
        for name in (*FOLDERS[variable], "VERSION"):
            if not (pathlib.Path(place) / name).is_file():
                return f"not run: {variable}: {place} has no {name}"
    if "DGXSPARK_REAL_SRIOVDP" in variables and not _pci_ids():
        return "not run: there is no pci.ids here (Debian's package pci.ids), without which the device plugin ends"
    return ""


def version(variable: str) -> str:
    """Return what ran, or that a stand-in did."""
    if why_not(variable):
        return "a stand-in"
    return (pathlib.Path(os.environ[variable]) / "VERSION").read_text(encoding="utf-8").strip()


def folder(variable: str) -> pathlib.Path | None:
    """Return the folder of the real programs, where it is given."""
    return None if why_not(variable) else pathlib.Path(os.environ[variable])


def _pci_ids() -> list[pathlib.Path]:
    return [path for path in map(pathlib.Path, PCI_IDS) if path.is_file()]


def _programs(variable: str) -> dict[str, bytes]:
    return {name: (pathlib.Path(os.environ[variable]) / name).read_bytes() for name in FOLDERS[variable]}


def multus(place: pathlib.Path, name: str) -> None:
    """Write an image of Multus as upstream's thick one has it.

    Its manifest mounts /run/netns alone, and containerd names namespaces by /var/run/netns: so it counts on the link.
    """
    files = {f"usr/src/multus-cni/bin/{program}": data for program, data in _programs("DGXSPARK_REAL_MULTUS").items()}
    files["etc/passwd"] = b"root:x:0:0:root:/root:/bin/sh\n"  # its daemon asks who it is
    with tempfile.TemporaryDirectory() as root:
        pathlib.Path(root, "var").mkdir()
        pathlib.Path(root, "var/run").symlink_to("/run")
        pathlib.Path(root, "run").mkdir()
        image.archive(place, name, files, root=pathlib.Path(root))


def plugin(place: pathlib.Path, name: str) -> None:
    """Write an image of the device plugin: upstream's entrypoint and program, a shell of busybox, and pci.ids."""
    found = _programs("DGXSPARK_REAL_SRIOVDP")
    files = {"usr/bin/sriovdp": found["sriovdp"], "entrypoint.sh": found["entrypoint.sh"]}
    busybox = pathlib.Path(str(shutil.which("busybox"))).read_bytes()
    files |= {
        f"bin/{applet}": b"#!/bin/busybox sh\nexec /bin/busybox " + applet.encode() + b' "$@"\n' for applet in SHELL
    }
    files |= {"bin/busybox": busybox, "bin/sh": busybox}
    files["usr/share/hwdata/pci.ids"] = _pci_ids()[0].read_bytes()
    image.archive(place, name, files, entrypoint=["/entrypoint.sh"])
