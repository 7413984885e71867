"""Updates with a canary on two virtual Sparks: a good version, a known-bad one, and one after which the node has no VFs.

`tools/with_lab.py 2 pytest tests/lab/test_9_update.py -m long`. apt, dpkg, holds, restarts and verify are real. The package is the one that
pulls Debian's kernel, in versions of the test's own: QEMU starts the lab's kernel itself, so no other one boots here, and the boot entry
of an older kernel is not tried. What a kernel without a driver would do, the bad version does by refusing to load igbvf.
"""

from __future__ import annotations

import pathlib
import re

import pytest
import yaml
from harness import Run, make_so, play, prove, sh, wait_for

pytestmark = pytest.mark.long

NODES, LIMIT = ("spark1", "spark2"), "spark[1:2]"
META, FIRST, GOOD, KNOWN, BAD = "linux-image-amd64", "6.1.9990-1", "6.1.9991-1", "6.1.9992-1", "6.1.9993-1"
REPOSITORY = f"""\
set -e; rm -rf /root/repo; mkdir -p /root/repo; cd /root/repo
for version in {FIRST} {GOOD} {KNOWN} {BAD}; do
  mkdir -p $version/DEBIAN
  printf 'Package: {META}\\nVersion: %s\\nArchitecture: amd64\\nMaintainer: lab <lab@example.com>\\nDescription: a kernel\\n' $version >$version/DEBIAN/control
  if [ $version = {BAD} ]; then does='echo install igbvf /bin/false >/etc/modprobe.d/lab-kernel.conf'; else does='rm -f /etc/modprobe.d/lab-kernel.conf'; fi
  printf '#!/bin/sh\\n%s\\n: >/run/reboot-required\\n' "$does" >$version/DEBIAN/postinst
  chmod 755 $version/DEBIAN/postinst
  dpkg-deb -b $version {META}_$version.deb >/dev/null
  size=$(stat -c %s {META}_$version.deb) sum=$(sha256sum {META}_$version.deb | cut -d' ' -f1)
  {{ cat $version/DEBIAN/control; printf 'Filename: ./{META}_%s.deb\\nSize: %s\\nSHA256: %s\\n\\n' $version "$size" "$sum"; }} >>Packages
done
echo 'deb [trusted=yes] file:/root/repo ./' >/etc/apt/sources.list.d/lab.list
apt-get update -qq -o Dir::Etc::sourcelist=sources.list.d/lab.list -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=root
apt-get install -qq -y --allow-downgrades {META}={FIRST} >/dev/null
rm -f /run/reboot-required
"""


def version(node: str) -> str:
    return sh(node, f"dpkg-query -W -f '${{Version}} ${{db:Status-Want}}' {META}")


def boot(node: str) -> str:
    return sh(node, "cat /proc/sys/kernel/random/boot_id", check=False)


def update(folder: pathlib.Path, wanted: str, *arguments: str) -> Run:
    """Run the playbook; one note of each node is in the folder."""
    given = {
        "spark_update_packages": {META: wanted},
        "spark_update_proof": ["verify"],
        "spark_update_refresh": False,
        "spark_update_kubernetes": False,
        "spark_update_folder": str(folder / "update"),
        "dgxspark_knowledge_dirs": str(folder / "dgxspark"),
    }
    return play("playbooks/update.yml", "-e", yaml.safe_dump(given, default_flow_style=True, width=9999).strip(), *arguments,
                limit=LIMIT, timeout=7200)  # fmt: skip


def test_good_known_bad_and_worse(tmp_path: pathlib.Path, report: pathlib.Path) -> None:
    """One walk: each step starts where the one before it ended."""
    make_so("-e", "netplan_vf_rollback_timeout=900", limit=LIMIT)
    for node in NODES:
        sh(node, REPOSITORY)
    entry = {
        "id": "lab-kernel", "component": "kernel", "versions": "==6.1.9992", "severity": "error",
        "only": "Whether another build is.", "message": "This kernel is known to be bad.", "remedy": "Use another one.",
        "source": ["the test"], "verified": "measured",
    }  # fmt: skip
    (tmp_path / "dgxspark" / "versions").mkdir(parents=True)
    (tmp_path / "dgxspark" / "versions" / "lab.yml").write_text(yaml.safe_dump({"entries": [entry]}), encoding="utf-8")
    booted = {node: boot(node) for node in NODES}

    # Known to be bad: refused, and nothing is touched, not even a hold set.
    run = update(tmp_path, KNOWN)
    assert run.code != 0 and "This kernel is known to be bad." in run.output, run.output
    assert {node: version(node) for node in NODES} == dict.fromkeys(NODES, f"{FIRST} install")
    assert {node: boot(node) for node in NODES} == booted

    # Good: the first alone, then the other; both restarted, proven and held.
    run = update(tmp_path, GOOD)
    assert run.code == 0, run.output
    assert {node: version(node) for node in NODES} == dict.fromkeys(NODES, f"{GOOD} hold")
    after = {node: boot(node) for node in NODES}
    assert all(after[node] != booted[node] for node in NODES)
    again = update(tmp_path, GOOD)
    assert again.code == 0 and "Nothing is updated" in again.output, again.output
    assert set(again.changed.values()) == {0}

    # Worse: the canary has no VFs, so verify fails; the other is as it was.
    run = update(tmp_path, BAD)
    assert run.code != 0 and "spark1 is worse" in run.output, run.output
    assert (version("spark1"), version("spark2")) == (f"{BAD} hold", f"{GOOD} hold")
    assert boot("spark1") != after["spark1"] and boot("spark2") == after["spark2"]

    # The way back, as it is printed.
    said = " ".join(run.output.split())
    (back,) = set(re.findall(r"the older versions: (sudo apt-get install [a-z0-9 =.-]+?)(?:\.| --|$)", said))
    assert f"{META}={GOOD}" in f"{back} ", back
    was = boot("spark1")
    sh("spark1", f"{back} -y -q")
    sh("spark1", "systemd-run --on-active=1 systemctl reboot", check=False)
    wait_for(lambda: boot("spark1") not in ("", was), 1200, "spark1 is back")
    proof = prove(report, LIMIT)
    assert proof.verdict == "passed", proof.causes
    assert (version("spark1"), version("spark2")) == (f"{GOOD} hold", f"{GOOD} hold")
