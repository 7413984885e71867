"""README on systems that have nothing yet: its lines of "Install", then its questions that need no Spark, as pasted, each timed.

The systems are root file systems of Debian's own packages (mmdebstrap), and, since Ubuntu's are not reached from here, a new user of
this machine with the Python of Ubuntu 24.04 (pyenv); he types guide_airgapped's pip commands, too. The collection is the archive of this
very commit (tools/release.py), in place of README's address; kubernetes.core comes from PyPI's package `ansible`, since Galaxy is not
asked. As root, from the repository's root:

    python benchmarks/clean_install.py FOLDER [WORD]

Writes benchmarks/results/clean_install.md. WORD: only systems or ways that have it, no table. FOLDER keeps the systems and the output.
"""

from __future__ import annotations

import os
import pathlib
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import typing as t

ROOT = pathlib.Path(__file__).resolve().parent.parent
runpy.run_path(str(ROOT / "tools" / "own_collection.py"))
from ansible_collections.dgxspark.cluster.tests.api import harness  # noqa: E402
from ansible_collections.dgxspark.cluster.tests.unit import guide  # noqa: E402
from ansible_collections.dgxspark.cluster.tools import release  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "clean_install.md"
MIRROR = "http://deb.debian.org/debian"
DEBIAN = {"Debian 12": "bookworm", "Debian 13": "trixie"}
UBUNTU = "Ubuntu 24.04's Python"
PYTHON = pathlib.Path("/root/.pyenv/versions/3.12.1")
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
WAYS = ("venv", "pipx", "uv")
SAYS = {"models": "configurations fit 2 Sparks", ".plan": "verdict +", "explain": "No device found"}


class Step(t.NamedTuple):
    """A line as it was typed, its seconds, and what was wrong with it."""

    typed: str
    seconds: float
    wrong: str


def section(title: str) -> str:
    """Return a section of README."""
    (found,) = re.findall(rf"(?ms)^## {re.escape(title)}\n(.*?)^## ", (ROOT / "README.md").read_text(encoding="utf-8"))
    return str(found)


def install(way: str) -> list[str]:
    """Return what README says to type, for one way of installing."""
    text = section("Install")
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    if way == "venv":
        return lines
    (tool,) = re.findall(rf"`({way} [^`]+)`", text)
    # "in place of the first two lines; the line with `export` then ends in >> ~/.bashrc"
    rest = [re.sub(r">> \S+$", ">> ~/.bashrc", line) for line in lines[2:] if not line.startswith(". ")]
    return [tool, *rest, 'eval "$(grep ^export ~/.bashrc)"']


def questions() -> list[str]:
    """Return README's lines that need no Spark."""
    titles = ("What can my Sparks run?", "Will my command run?", "What does this log say?")
    return [line.strip() for title in titles for line in section(title).splitlines() if line.startswith("    ")]


def packages_without_internet() -> list[str]:
    """Return the lines of guide_airgapped that carry the Python packages over, the second for a controller that has none."""
    download, install_them = (line for line in guide.commands("guide_airgapped", prompt=False) if " -m pip " in line)
    return [download, "python3 -m venv ~/offline && . ~/offline/bin/activate", install_them]


def before(way: str) -> str:
    """Return the line that README has on Debian and Ubuntu before all others; and what brings the other two ways."""
    (apt,) = re.findall(r"`(sudo apt install [^`]+)`", section("Install"))
    more = {"venv": apt, "pipx": f"{apt} pipx", "uv": f"{apt} && python3 -m venv ~/uv && ~/uv/bin/pip install -q uv"}
    return more[way].replace("apt install", "apt-get install -qq -y")


def script(lines: t.Sequence[str], archive: str) -> str:
    """Return a program that types the lines in one shell, and notes when each began and ended."""
    made = ["cd ~; rm -f times", f"export PIP_CERT={CERTIFICATES} SSL_CERT_FILE={CERTIFICATES} ANSIBLE_NOCOLOR=1"]
    made.append('export PATH="$PATH:$HOME/.local/bin:$HOME/uv/bin"')
    for number, line in enumerate(lines):
        typed = re.sub(r"git\+https://\S+", archive, line).replace("/srv/bundle", "~/bundle")
        made.append(
            f"began=$EPOCHREALTIME; eval {shlex.quote(typed)} > out.{number} 2>&1; echo $? $began $EPOCHREALTIME >> times"
        )
    return "\n".join(made) + "\n"


def steps(lines: t.Sequence[str], home: pathlib.Path) -> list[Step]:
    """Return how the lines went."""
    made = []
    for number, (line, noted) in enumerate(zip(lines, (home / "times").read_text().splitlines(), strict=True)):
        status, began, ended = noted.split()
        said = (home / f"out.{number}").read_text(encoding="utf-8", errors="replace")
        wanted = next((each for word, each in SAYS.items() if "ansible-playbook" in line and word in line), "")
        wrong = f"exit status {status}" if status != "0" else "" if re.search(wanted, said) else f"{wanted} is not said"
        if not wrong and "ansible-playbook" in line and re.search("WARNING|Traceback|PLAY RECAP", said):
            wrong = "Ansible's frame or a warning"
        made.append(Step(line, float(ended) - float(began), wrong))
    return made


def system(place: pathlib.Path, suite: str) -> None:
    """Make a root file system that has nothing but what Debian calls minimal, and sudo."""
    packages = "ca-certificates,sudo"
    command = ["mmdebstrap", "--variant=minbase", f"--include={packages}", suite, str(place), MIRROR]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    for file in (CERTIFICATES, "/etc/resolv.conf", "/etc/hosts"):
        shutil.copyfile(file, place / file[1:])


INSIDE = """
mount -t proc proc "$0/proc"; mount --rbind /dev "$0/dev"
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb LANG=C.UTF-8 chroot "$0" su -l "$1" -s /bin/bash /type.sh
"""


def in_debian(place: pathlib.Path, user: str, lines: t.Sequence[str], archive: pathlib.Path) -> list[Step]:
    """Type the lines as a new user of a root file system."""
    subprocess.run(["chroot", place, "useradd", "-m", "-s", "/bin/bash", user], check=True)
    (place / "etc/sudoers.d" / user).write_text(f"{user} ALL=(ALL) NOPASSWD:ALL\n", encoding="utf-8")
    home = place / "home" / user
    prepared(home)
    shutil.copy(archive, place)
    subprocess.run(["chroot", place, "chown", "-R", f"{user}:", f"/home/{user}"], check=True)
    (place / "type.sh").write_text(script(lines, f"/{archive.name}"), encoding="utf-8")
    subprocess.run(["unshare", "-m", "bash", "-c", INSIDE, place, user], check=True)
    return steps(lines, home)


def in_ubuntu(home: pathlib.Path, lines: t.Sequence[str], archive: pathlib.Path) -> list[Step]:
    """Type the lines in a new home of this machine, with the Python that Ubuntu 24.04 has."""
    home.mkdir(parents=True)
    prepared(home)
    program = script(lines, str(archive))
    env = {"HOME": str(home), "PATH": f"{PYTHON}/bin:/usr/bin:/bin", "TERM": "dumb", "LANG": "C.UTF-8"}
    subprocess.run(["bash", "-c", program], check=True, env=env)
    return steps(lines, home)


def prepared(home: pathlib.Path) -> None:
    """Put the one collection there that Galaxy would bring."""
    there = home / ".ansible/collections/ansible_collections/kubernetes"
    shutil.copytree(pathlib.Path(str(harness.collections())) / "ansible_collections/kubernetes", there)


def table(name: str, way: str, made: t.Sequence[Step]) -> list[str]:
    """Return the lines of one system."""
    first = next(number for number, step in enumerate(made) if "cluster.models" in step.typed)
    installed = sum(step.seconds for step in made[:first])
    lines = [f"## {name}, {way}", "", "| typed | seconds | |", "|---|---|---|"]
    for step in made:
        typed = step.typed.replace("|", "\\|")
        lines.append(f"| `{typed}` | {step.seconds:.1f} | {step.wrong or 'as it should be'} |")
    return [*lines, "", f"Installed in {installed:.0f} s; the first answer {made[first].seconds:.1f} s later.", ""]


def main(place: pathlib.Path, only: str = "") -> int:
    """Type it all, and write the tables."""
    place.mkdir(parents=True, exist_ok=True)
    git = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    archive = release.build(place / "release")
    digest = (place / "release/SHA256SUMS").read_text(encoding="utf-8").split()[0]
    said, wrong = [], 0
    cases = [(name, way) for name in (*DEBIAN, UBUNTU) for way in WAYS if name == "Debian 12" or way == "venv"]
    for name, way in cases:
        if only not in f"{name} {way}":
            continue
        if name == UBUNTU:
            lines = [*install(way), *questions(), *packages_without_internet()]
            home = place / f"ubuntu-{os.getpid()}"
            made = in_ubuntu(home, lines, archive)
        else:
            root = place / f"{DEBIAN[name]}-{way}"
            shutil.rmtree(root, ignore_errors=True)
            system(root, DEBIAN[name])
            lines = ["sudo apt-get update -qq", before(way), *install(way), *questions()]
            made = in_debian(root, "owner", lines, archive)
        wrong += sum(bool(step.wrong) for step in made)
        said += table(name, way, made)
        print("\n".join(table(name, way, made)), flush=True)
    if only:
        return 1 if wrong else 0
    head = [
        "# benchmarks/clean_install.py",
        "README's lines, typed on systems that have nothing yet, on one machine of two cores that is shared with other work (load "
        f"{os.getloadavg()[2]:.0f}).",
        f"The archive is that of commit {commit} (SHA-256 {digest[:16]}…). Not run: Ubuntu's own packages and macOS, which are not reached",
        "from here, and Galaxy and GitHub: the archive stands for README's address, kubernetes.core is PyPI's copy.",
        "",
    ]
    RESULT.write_text("\n".join([*head, *said]).rstrip("\n") + "\n", encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    raise SystemExit(main(pathlib.Path(sys.argv[1]).resolve(), *sys.argv[2:]))
