"""Debian's own kernels for the lab: downloaded by apt, and one that is made not to come up; an apt repository of them on a node."""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass

from harness import ROOT, sh

SUITE = "trixie"  # the lab's (lab/labkit/image.py)
META = "linux-image-amd64"
DEAD = "6.12.999+lab-amd64"
SOURCES = f"""\
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian {SUITE} main
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian {SUITE}-backports main
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian-security {SUITE}-security main
"""
# Keeps lists, state and what is downloaded in a folder; reads no sources of this machine.
APT = """\
Dir::State "{folder}/state";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "-";
Acquire::Languages "none";
APT::Sandbox::User "root";
APT::Architecture "amd64";
"""


@dataclass(frozen=True)
class Kernels:
    """Versions of META, and the releases that they pull in."""

    first: str
    good: str
    known_bad: str
    worse: str
    first_release: str
    good_release: str
    worse_release: str
    dead_version: str = "6.12.999-1"


def run(*command: str | pathlib.Path, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in command], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def fetch(folder: pathlib.Path, first: str) -> Kernels:
    """Put into folder/debs what the walk needs: the releases of META that the suite's archives have beside the node's first one."""
    debs, conf = folder / "debs", folder / "apt.conf"
    debs.mkdir(parents=True)
    (folder / "state").mkdir()
    (folder / "cache").mkdir()
    (folder / "status").touch()
    (folder / "sources.list").write_text(SOURCES, encoding="utf-8")
    conf.write_text(APT.format(folder=folder), encoding="utf-8")

    def apt(*words: str) -> str:
        return subprocess.run(
            words, cwd=debs, env={**os.environ, "APT_CONFIG": str(conf)}, check=True, capture_output=True, text=True
        ).stdout

    apt("apt-get", "update", "-q")
    versions = [line.split("|")[1].strip() for line in apt("apt-cache", "madison", META).splitlines()]
    known_bad = next(version for version in versions if "~bpo" in version)
    others = [version for version in versions if version != known_bad]
    # Just after a point release the suite has the newest kernel itself: then no newer one of Debian's is there to try.
    good = others[0]
    assert good != first, f"the image has the newest kernel of {SUITE} ({first}): no other one can be tried today"
    shown = apt("apt-cache", "show", f"{META}={good}")
    pulled = re.search(r"^Depends: linux-image-(\S+)-amd64 ", shown, re.MULTILINE)
    assert pulled, shown
    wanted = [f"{META}={version}" for version in (first, good, known_bad)]
    wanted += [f"linux-image-{pulled[1]}-amd64", f"linux-image-{pulled[1]}-cloud-amd64"]
    for each in wanted:
        apt("apt-get", "download", "-q", each)
    old = re.search(r"^Depends: linux-image-(\S+) ", apt("apt-cache", "show", f"{META}={first}"), re.MULTILINE)
    assert old
    kernels = Kernels(first, good, known_bad, f"{good}+lab", old[1], f"{pulled[1]}-amd64", f"{pulled[1]}-cloud-amd64")
    _cloud_by_meta(folder, debs, kernels)
    _dead(folder, debs, kernels)
    _index(debs)
    return kernels


def _deb(debs: pathlib.Path, name: str) -> pathlib.Path:
    return next(debs.glob(f"{name}_*.deb"))


def _cloud_by_meta(folder: pathlib.Path, debs: pathlib.Path, kernels: Kernels) -> None:
    """A META that pulls Debian's kernel for clouds, which has no igb, no igbvf and no rdma_rxe: it boots, without the fabric."""
    tree = folder / "meta"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(
        f"Package: {META}\nVersion: {kernels.worse}\nArchitecture: amd64\nMaintainer: lab <lab@example.com>\n"
        f"Depends: linux-image-{kernels.worse_release}\nDescription: pulls the kernel for clouds\n",
        encoding="utf-8",
    )
    run("dpkg-deb", "-b", tree, debs / f"{META}_{kernels.worse}_amd64.deb")


def _dead(folder: pathlib.Path, debs: pathlib.Path, kernels: Kernels) -> None:
    """The same kernel under another release, whose modules it does not find: its initrd never sees the disk."""
    tree, was = folder / "dead", kernels.worse_release
    run("dpkg-deb", "-R", _deb(debs, f"linux-image-{was}"), tree)
    for path in sorted(tree.rglob(f"*{was}*"), key=lambda path: -len(path.parts)):
        path.rename(path.with_name(path.name.replace(was, DEAD)))
    modules = tree / "usr/lib/modules" / DEAD
    if (modules / "kernel/drivers").is_dir():
        for name in ("sound", "drivers/media", "drivers/gpu", "drivers/net", "net"):
            shutil.rmtree(modules / "kernel" / name, ignore_errors=True)
    for script in (tree / "DEBIAN").iterdir():
        text = script.read_text(encoding="utf-8").replace(was, DEAD)
        if script.name == "control":
            text = re.sub(r"^Version: .*$", f"Version: {kernels.dead_version}", text, flags=re.MULTILINE)
            text = re.sub(r"^(Source|Built-Using|Static-Built-Using): .*\n", "", text, flags=re.MULTILINE)
        if script.name == "md5sums":
            script.unlink()
        else:
            script.write_text(text, encoding="utf-8")
    run("dpkg-deb", "-Znone", "-b", tree, debs / f"linux-image-{DEAD}_{kernels.dead_version}_amd64.deb")


def _index(debs: pathlib.Path) -> None:
    text = ""
    for deb in sorted(debs.glob("*.deb")):
        data = deb.read_bytes()
        text += run("dpkg-deb", "-f", deb) + f"Filename: ./{deb.name}\nSize: {len(data)}\n"
        text += f"SHA256: {hashlib.sha256(data).hexdigest()}\n\n"
    (debs / "Packages").write_text(text, encoding="utf-8")


def offer(node: str, debs: pathlib.Path) -> None:
    """Make the node's apt know the packages, and nothing else."""
    sh(node, "rm -rf /root/repo; mkdir -p /root/repo")
    with subprocess.Popen(["tar", "cf", "-", "-C", debs, "."], stdout=subprocess.PIPE) as packed:
        subprocess.run(
            [sys.executable, ROOT / "lab" / "lab", "ssh", node, "tar xf - -C /root/repo"],
            stdin=packed.stdout,
            check=True,
        )
    sh(
        node,
        "echo 'deb [trusted=yes] file:/root/repo ./' >/etc/apt/sources.list.d/lab.list; apt-get update -qq"
        " -o Dir::Etc::sourcelist=sources.list.d/lab.list -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=root",
    )
