"""The real fwupd, with its test device, and the stand-in for fwupdmgr: asked the same by our own reader, both say the same.

As root, with mmdebstrap and Debian's mirror: fwupd and fwupd-tests are installed into a folder, and run in namespaces with an empty /sys and
no device of this machine. `FWUPD_ROOT=FOLDER` keeps that folder, and reuses it.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import typing as t

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CAN = os.getuid() == 0 and shutil.which("mmdebstrap") and shutil.which("unshare")
pytestmark = [pytest.mark.long, pytest.mark.skipif(not CAN, reason="needs root, mmdebstrap and unshare")]

DEVICE = "08d460be0f1f9f128413f816022a6439e0078018"
STATE = {"devices": [{"id": DEVICE, "name": "Integrated Webcam?", "guids": ["b585990a-003e-5270-89d5-3705a17f9a43"],
                      "version": "1.2.2", "offers": ["1.2.3", "1.2.4"]}]}  # fmt: skip
ASK = """
import json, subprocess, sys, time
from ansible_collections.dgxspark.cluster.plugins.module_utils import firmware
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, to_plain

booted = time.time() - 5

def run(argv):
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr

said = []
for step in json.loads(sys.argv[1]):
    try:
        firmware.install(run, step[0], step[1], older=len(step) > 2)
        said.append("installed")
    except CollectionError as exc:
        said.append(str(exc))
    (device,) = firmware.read_firmware(run, booted).devices
    said.append([device.id, device.guids, device.name, device.version, device.awaits, to_plain(device.releases)])
print(json.dumps(said))
"""
INSIDE = """\
set -e
mount --make-rprivate /; r=$1
mount -t overlay overlay -o lowerdir=$r,upperdir=$2/upper,workdir=$2/work $2/merged; r=$2/merged
mount -t proc proc $r/proc; mount -t tmpfs tmpfs $r/sys; mount -t tmpfs tmpfs $r/run -o mode=755; mount -t tmpfs tmpfs $r/tmp
mount -t tmpfs tmpfs $r/dev -o mode=755
for d in null zero full random urandom; do touch $r/dev/$d; mount --bind /dev/$d $r/dev/$d; done
mkdir -p $r/run/dbus $r/tmp/c/ansible_collections/dgxspark/cluster
mount -o bind,ro $3 $r/tmp/c/ansible_collections/dgxspark/cluster
printf '[fwupd]\\nTestDevices=true\\nOnlyTrusted=false\\n[test]\\nNeedsReboot=%s\\n' "$4" >$r/etc/fwupd/fwupd.conf
cp $2/ask.py $r/tmp/ask.py
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C PYTHONPATH=/tmp/c PYTHONDONTWRITEBYTECODE=1 chroot $r sh -c '
dbus-uuidgen --ensure; dbus-daemon --system --fork; /usr/libexec/fwupd/fwupd >/dev/null 2>&1 &
for i in $(seq 100); do fwupdmgr --version >/dev/null 2>&1 && break; sleep 0.2; done
python3 /tmp/ask.py "$1"' sh "$5"
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Debian with fwupd in a folder."""
    root = pathlib.Path(os.environ.get("FWUPD_ROOT") or tmp_path_factory.mktemp("fwupd") / "root")
    if not (root / "usr/bin/fwupdmgr").exists():
        words = [
            "mmdebstrap",
            "--mode=root",
            "--variant=minbase",
            "--include=fwupd,fwupd-tests,dbus,python3",
            "bookworm",
        ]
        subprocess.run(
            [*words, str(root), "http://deb.debian.org/debian"], check=True, capture_output=True, timeout=1200
        )
    return root


def real(root: pathlib.Path, folder: pathlib.Path, steps: t.Any, *, restart: bool) -> t.Any:
    for name in ("upper", "work", "merged"):
        (folder / name).mkdir()
    (folder / "ask.py").write_text(ASK, "utf-8")
    words = [
        "unshare",
        "-m",
        "-p",
        "-n",
        "-f",
        "--kill-child",
        "sh",
        "-c",
        INSIDE,
        "sh",
        str(root),
        str(folder),
        str(ROOT),
    ]
    done = subprocess.run(
        [*words, str(restart).lower(), json.dumps(steps)], check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def stand_in(folder: pathlib.Path, steps: t.Any, *, restart: bool) -> t.Any:
    for name, target in (
        ("bin/fwupdmgr", ROOT / "tests/stand_ins/fwupdmgr"),
        ("c/ansible_collections/dgxspark/cluster", ROOT),
    ):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).symlink_to(target)
    (folder / "state").write_text(json.dumps(STATE | {"at_once": not restart}), "utf-8")
    env = {
        **os.environ,
        "PATH": f"{folder}/bin:{os.environ['PATH']}",
        "PYTHONPATH": str(folder / "c"),
        "FWUPD_STATE": str(folder / "state"),
    }
    done = subprocess.run(
        [sys.executable, "-c", ASK, json.dumps(steps)], check=True, capture_output=True, text=True, timeout=120, env=env
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("restart", "steps"),
    [
        (True, [[DEVICE, "9.9.9"], ["f" * 40, "1.2.3"], [DEVICE, "1.2.3"], [DEVICE, "1.2.4"]]),
        (False, [[DEVICE, "1.2.3"], [DEVICE, "1.2.3"], [DEVICE, "1.2.2", "older"]]),
    ],
    ids=["what awaits a restart", "what runs at once"],
)
def test_the_stand_in_answers_as_the_real_fwupd(
    installed: pathlib.Path, tmp_path: pathlib.Path, restart: bool, steps: t.Any
) -> None:
    for name in ("real", "stand-in"):
        (tmp_path / name).mkdir()
    truth = real(installed, tmp_path / "real", steps, restart=restart)
    assert stand_in(tmp_path / "stand-in", steps, restart=restart) == truth
    assert truth[-1][3:5] == (["1.2.2", "1.2.4"] if restart else ["1.2.3", None])
