"""One evening, typed: from `discover` to a model's first token on two virtual Sparks, and back to bare nodes, each command timed.

The commands are read from docs/docsite/rst/guide_first_evening.rst (README's "With your Sparks" has the same) and guide_k3s.rst, and
run unchanged in an empty folder; what the guides have the owner write into files is read from them, too. MORE has what is added to
a command, and `Sparks.told` the variables that only emulated nodes need: the result lists both. The Sparks are two nodes of a lab of
its own (DGXSPARK_LAB_NAME, _PORT) with kubelets, containerd and a control plane as in tests/site, whose stand-ins are these, too; an
ssh configuration puts them at the guides' addresses. As root, from the repository's root, in the environment of ansible-core, after
`python tests/site/make_guest.py`:

    DGXSPARK_LAB_NAME=readme DGXSPARK_LAB_PORT=22600 python benchmarks/from_the_readme.py FOLDER

Writes benchmarks/results/from_the_readme.md; the commands' output and the pages stay in FOLDER, whose path must be short (ssh's
sockets are in it). With KEEP=1 the lab stays up if something went wrong: the same call then goes on with that command.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import pathlib
import re
import runpy
import subprocess
import sys
import time
import typing as t

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
runpy.run_path(str(ROOT / "tools" / "own_collection.py"))
from ansible_collections.dgxspark.cluster.tests.support import evening  # noqa: E402
from ansible_collections.dgxspark.cluster.tests.unit import guide  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "from_the_readme.md"
GUEST = {"DGXSPARK_LAB_GUEST": str(ROOT / "build" / "guest"), "DGXSPARK_LAB_MEMORY": "2048"}
ADDRESSES = {"spark1": "192.0.2.11", "spark2": "192.0.2.12"}
# What is added to a playbook's commands, and why.
TOLD = "-e @{place}/emulated.yml"
MORE = {
    "discover": ("-u root -e dgxspark_discover_window=30", "the lab's nodes have no other user, and send slowly"),
    "the curl": ("-sS -m 60 --retry 9 --retry-connrefused", "the stand-in of kube-proxy opens the port only now"),
    **dict.fromkeys(("site", "serve", "bench", "teardown"), (TOLD, "the variables below")),
}
# By a part of a command: what it must print. Where a command is typed again, nothing may be left to do.
PRINTED = "what `serve` printed"
AGAIN = r"Done in .*: 0 changes"
SAYS = {
    "discover": "2 Sparks: direct",
    ".plan ": r"10\.\d+\.\d+\.1",
    "verify": r"\bpassed\b",
    "absent": r"Done in .*: [1-9]\d* changes",
    "serve ": "answers at http",
    "bench": r"One user gets [\d.]+ tokens/s",
    "teardown": r"Done in .*: [1-9]\d* changes",
}


@dataclasses.dataclass(frozen=True)
class Step:
    """One command of a guide. says: what it must print; before: what the guide has the owner do first, as the result tells it."""

    source: str
    command: str
    says: str = ""
    before: str = ""


class Row(t.NamedTuple):
    """How one command went, and at which commit."""

    seconds: float
    commit: str


def typed() -> list[str]:
    """Return all commands of the README."""
    text = re.sub(r"(?ms)^```.*?^```$", "", (ROOT / "README.md").read_text(encoding="utf-8"))
    return re.findall(r"(?m)^(?: {4}| {7})([a-z].*)$", text)


def with_more(command: str, place: pathlib.Path) -> str:
    """Add what a lab needs to a command."""
    found = re.match(r"ansible-playbook dgxspark\.cluster\.(\w+)", command)
    more = MORE.get(found[1]) if found else None
    return f"{command} {more[0].format(place=place)}" if more else command


def steps() -> list[Step]:
    """Return what is typed, in order: the first evening from `discover` to `bench`, again, and back; K3s's commands where they fit."""
    first, k3s = "guide_first_evening", "guide_k3s"
    walked = guide.commands(first)
    begins = next(n for n, command in enumerate(walked) if "discover" in command)
    undone = next(n for n, command in enumerate(walked) if "absent" in command)
    site = next(command for command in walked if re.search(r"\.site -i inventory$", command))
    of_k3s = [command for command in guide.commands(k3s, prompt=False) if "--tags k3s" in command]
    made = []
    for command in walked[begins:undone]:
        made.append(Step(first, command, _says(command), _before(command)))
        if made[-1].says == SAYS["serve "]:
            made.append(Step(PRINTED, "the curl", r'"content": ?"\w'))
    made += [Step(first, site, AGAIN), *(Step(k3s, command, AGAIN) for command in of_k3s if "absent" not in command)]
    made.append(Step(first, walked[undone], _says(walked[undone])))
    made += [Step(k3s, command, _says(command)) for command in of_k3s if "absent" in command]
    return made + [Step(first, command, _says(command)) for command in walked[undone + 1 :]]


def _says(command: str) -> str:
    return next((says for part, says in SAYS.items() if part in command), "")


def _before(command: str) -> str:
    return {"plan": "K3s's groups", "openssl": "the model"}.get(next(iter(re.findall("plan|openssl", command)), ""), "")


class Sparks:
    """The two nodes, and what an owner who has them as Sparks has: a folder, a home, and ssh to their addresses."""

    def __init__(self, place: pathlib.Path) -> None:
        # Not where README's commands are merely listed.
        sys.path.insert(0, str(ROOT / "tests" / "lab"))
        import kube

        from ansible_collections.dgxspark.cluster.tests.nodes.lane import Lane
        from ansible_collections.dgxspark.cluster.tests.site import site, ways

        self.place, self.lane = place, Lane()
        self.folder = (
            pathlib.Path((place / "pwd").read_text(encoding="utf-8").strip()) if (place / "pwd").exists() else place
        )
        for node, address in ADDRESSES.items():
            site.sh(node, "ip link set enp1s0f0np0 up; ip link set enP2p1s0f0np0 up")  # DGX OS leaves its ports up
            kube.management(node, address)
        digest = kube.release(place / "releases", kube.VERSION, images=site.images(place))
        kube.overlay(place, kube.VERSION)
        site.knowledge(place, ADDRESSES)
        self.ways = ways.Ways(place, ADDRESSES, "spark1")
        self.stand_ins = site.STAND_IN
        (served,) = (
            yaml.safe_load(block) for block in guide.blocks("guide_first_evening", "yaml") if "k8s_dgx_model" in block
        )
        self.told: dict[str, tuple[t.Any, str]] = {
            "netplan_vf_rollback_timeout": (600, "netplan takes a minute"),
            "dgxspark_knowledge_dirs": (
                [str(place / "knowledge")],
                "the sizes and checksums of the stand-ins' releases",
            ),
            "k3s_source": (str(place / "releases"), "a stand-in for K3s"),
            "k3s_checksums": ({"amd64": digest}, "of that stand-in"),
            "k3s_airgap": (True, "the nodes have no internet"),
            "k3s_image_archives": (
                [{"path": str(self.lane.images / "engine.tar")}],
                "the scripted engine, for the same reason",
            ),
            "k8s_platform_components": (
                site.COMPONENTS_OF_IT,
                "images of the lab; soft-RoCE has no RDMA device below a VF; kubelets that do not call themselves K3s's",
            ),
            "k8s_dgx_free_gib": (dict.fromkeys(ADDRESSES, 100), "the nodes have 2 GiB; planned as Sparks"),
            "k8s_dgx_serving": (
                {**served["k8s_dgx_serving"], **site.SERVING},
                "the guide's, and patience and small pods",
            ),
            "k8s_dgx_overrides": (
                {**served["k8s_dgx_overrides"], "settings": {"nccl_transport": "socket"}},
                "the guide's, and TCP: soft-RoCE does not survive the move into a pod",
            ),
            **site.EMULATED,
        }
        told = {key: value for key, (value, _why) in self.told.items()}
        (place / "emulated.yml").write_text(yaml.safe_dump(told), encoding="utf-8")
        export = re.findall(r"echo 'export (.*)' >>", (ROOT / "README.md").read_text(encoding="utf-8"))[0]
        self.environment = {
            **os.environ,
            **dict(pair.split("=", 1) for pair in export.split()),
            "ANSIBLE_SSH_ARGS": f"-F {self._ssh_configuration()} {site.PATIENT}",
            "ANSIBLE_NOCOLOR": "1",
            "HOME": str(place / "home"),
        }
        self.environment.pop("ANSIBLE_CONFIG", None)
        (place / "home").mkdir(exist_ok=True)

    def _ssh_configuration(self) -> pathlib.Path:
        """Put the lab's nodes at their addresses, as an owner's network would."""
        base = int(os.environ.get("DGXSPARK_LAB_PORT") or 22200)
        cache = os.environ.get("DGXSPARK_LAB_CACHE") or str(pathlib.Path.home() / ".cache" / "dgxspark-lab")
        text = ""
        for number, address in enumerate(ADDRESSES.values(), 1):
            text += f"Host {address}\n  HostName 127.0.0.1\n  Port {base + number}\n  HostKeyAlias dgxspark-lab\n"
            text += f"  IdentityFile {cache}/id_lab\n  UserKnownHostsFile {cache}/known_hosts\n"
        path = self.place / "ssh_config"
        path.write_text(text, encoding="utf-8")
        return path

    def edit(self, what: str) -> None:
        """Write into the inventory what the guide says before this command."""
        if what == "K3s's groups":
            evening.with_k3s(self.folder / "inventory")
            groups = yaml.safe_load((self.folder / "inventory" / "hosts.yml").read_text(encoding="utf-8"))["all"][
                "children"
            ]
            (shown,) = (
                yaml.safe_load(block) for block in guide.blocks("guide_first_evening", "yaml") if "k3s_server" in block
            )
            assert {name: groups[name] for name in shown} == shown
        elif what:
            (block,) = (
                block for block in guide.blocks("guide_first_evening", "yaml") if "k8s_dgx_model_profile" in block
            )
            evening.with_model(self.folder / "inventory", block)

    def type(self, command: str, log: pathlib.Path) -> tuple[float, int, str]:
        """Type a command, with its output in the log; return its seconds, exit status and output. A `cd` holds for the next."""
        began = time.monotonic()
        with log.open("w", encoding="utf-8") as output:
            code = subprocess.run(
                ["bash", "-c", f"{command}\nended=$?; pwd >{self.place}/pwd; exit $ended"],
                cwd=self.folder,
                env=self.environment,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            ).returncode
        seconds = time.monotonic() - began
        self.folder = pathlib.Path((self.place / "pwd").read_text(encoding="utf-8").strip())
        return seconds, code, log.read_text(encoding="utf-8", errors="replace")

    def curl(self, printed: str) -> str:
        """Return the request that `serve` printed. kube-proxy's stand-in opens the port that is in it, on the head's node."""
        asked = evening.printed_curl(printed)
        address, port = re.findall(r"http://([\d.]+):(\d+)/", asked)[0]
        kubectl = [str(self.lane.bin / "kubectl"), "--kubeconfig", str(self.place / "home/.kube/dgxspark.yml")]
        command = [*kubectl, "-n", "dgx-serving", "get", "endpoints", "serve-default", "-o", "json"]
        found = subprocess.run(command, check=True, capture_output=True, text=True)
        (subset,) = json.loads(found.stdout)["subsets"]
        inside = f"{subset['addresses'][0]['ip']}:{subset['ports'][0]['port']}"
        self.ways.node_port(next(node for node, own in ADDRESSES.items() if own == address), int(port), inside)
        return f"{asked} {MORE['the curl'][0]}"


def walk(sparks: Sparks) -> tuple[list[Row], str]:
    """Type what was not typed yet, until something does not end as it must; return the rows, and what went wrong."""
    journal = sparks.place / "rows.json"
    rows = [Row(*each) for each in json.loads(journal.read_text(encoding="utf-8"))] if journal.exists() else []
    for number, step in list(enumerate(steps()))[len(rows) :]:
        sparks.edit(step.before)
        line = with_more(step.command, sparks.place)
        if step.source == PRINTED:
            line = sparks.curl((sparks.place / f"logs/{number - 1}.log").read_text(encoding="utf-8"))
        seconds, code, printed = sparks.type(line, sparks.place / f"logs/{number}.log")
        print(f"{time.strftime('%H:%M:%S')} {seconds:6.0f} s, exit {code}: {line}", flush=True)
        if code or not re.search(step.says, printed):
            return rows, f"{line}: exit status {code}; {step.says!r} must be printed: see logs/{number}.log"
        rows.append(Row(seconds, commit()))
        journal.write_text(json.dumps(rows), encoding="utf-8")
    return rows, ""


def commit() -> str:
    """Return this checkout's commit."""
    git = ["git", "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def told(rows: t.Sequence[Row], sparks: Sparks) -> list[str]:
    """Return the result's lines."""
    walked = steps()
    token = next(n for n, step in enumerate(walked) if step.source == PRINTED) + 1
    minutes = sum(row.seconds for row in rows[:token]) / 60
    edits = len({step.before for step in walked} - {""})
    commits = " and ".join(dict.fromkeys(row.commit for row in rows))
    reports = sorted((sparks.folder / "reports").glob("fabric-*.json"))
    verdict = json.loads(reports[-1].read_text(encoding="utf-8"))["verdict"] if reports else "none"
    return [
        "# benchmarks/from_the_readme.py",
        "The first evening's guide (README's \"With your Sparks\") and guide_k3s, typed into two virtual Sparks on one machine of two cores,",
        f"emulated without KVM and shared with other work (load {os.getloadavg()[2]:.0f}). Commit {commits}. Installing is not in it.",
        "",
        f"**From `discover` to the first token: {token} commands, {edits} edits, {minutes:.0f} minutes.**",
        f"Verdict of the last report: **{verdict}**. Every command that was run ended with exit status 0.",
        "",
        "| typed | of | seconds |",
        "|---|---|---|",
        *(
            f"| `{step.command.replace('|', chr(92) + '|')}` | {step.source} | {f'{row.seconds:.0f}' if row else '*not run*'} |"
            for step, row in itertools.zip_longest(walked, rows)
        ),
        f"| all | | {sum(row.seconds for row in rows):.0f} |",
        "",
        f"Real: kernels, SR-IOV, netplan, kubelets, containerd, API server and etcd. {sparks.stand_ins}.",
        "",
        "| added to | what | why |",
        "|---|---|---|",
        *(f"| `{name}` | `{more}` | {why} |" for name, (more, why) in MORE.items()),
        *(f"| `emulated.yml` | `{key}` | {why} |" for key, (_value, why) in sorted(sparks.told.items())),
    ]


def main(place: pathlib.Path) -> int:
    """Run lab up, all commands and lab down, and write the table."""
    (place / "logs").mkdir(parents=True, exist_ok=True)
    os.environ |= GUEST
    lab, wrong = [sys.executable, str(ROOT / "lab" / "lab")], "interrupted"
    try:
        subprocess.run([*lab, "up", "--nodes", str(len(ADDRESSES))], check=True)
        sparks = Sparks(place)
        sparks.ways.reach()
        try:
            rows, wrong = walk(sparks)
        finally:
            sparks.ways.leave()
    finally:
        if not (wrong and os.environ.get("KEEP")):
            subprocess.run([*lab, "down"], check=False)
    if wrong:
        print(wrong)
        return 1
    lines = told(rows, sparks)
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    raise SystemExit(main(pathlib.Path(sys.argv[1]).resolve()))
