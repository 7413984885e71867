"""What a new owner's first evening looks like on the terminal: some forty commands, with this collection's output and with Ansible's own.

The commands stand in benchmarks/first_evening.yml. The two Sparks are network namespaces of this machine with a made-up /sys, the
cluster is the stand-in of an API server, and the model that is asked is scripted; as root. Usage, from the repository's root:

    python benchmarks/first_evening.py FOLDER [WORD]

Writes benchmarks/results/first_evening.md; what each printed stays in FOLDER/printed. WORD: only commands that have it, no table.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import time
import typing as t

import yaml

runpy.run_path(str(pathlib.Path(__file__).resolve().parent.parent / "tools" / "own_collection.py"))
from ansible_collections.dgxspark.cluster.tests.api import harness  # noqa: E402
from ansible_collections.dgxspark.cluster.tests.support import kube_owner, two_sparks  # noqa: E402
from ansible_collections.dgxspark.cluster.tests.unit.chat_server import ManyServer  # noqa: E402
from ansible_collections.dgxspark.cluster.tests.unit.owner import BIN, ROOT  # noqa: E402
from ansible_collections.dgxspark.cluster.tests.unit.sound_server import sound  # noqa: E402

HERE = pathlib.Path(__file__).parent
RESULT = HERE / "results" / "first_evening.md"
PROFILE = "qwen3.6-35b-a3b-nvfp4-vllm"
# Lines that are no answer: banners, hosts without a result, the sum, and where Ansible found an error.
FRAME = re.compile(
    r"^(?:PLAY|TASK|RUNNING HANDLER|ok: \[|skipping: |included: |\.\.\.(?:ignoring)?$|\w[\w.-]* +: ok=\d|\[WARNING\]|Origin: |Task failed"
    r"|<<< caused by|\d+ |\s*\^ |\[ERROR\]|changed  |would    |done     |…  |Done in |Failed in )"
)
UGLY = re.compile(r"Traceback|Finalization of task args|<<< caused by|object at 0x|\{\{ ")


class Row(t.NamedTuple):
    """One command, as it went."""

    typed: str
    group: str
    seconds: float
    before: int
    lines: int
    share: float
    verdict: str


def told(printed: str) -> list[str]:
    """Return the lines that are not empty."""
    return [line for line in printed.splitlines() if line.strip()]


def answer(printed: str) -> list[str]:
    """Return the lines that are the answer: those that are not the frame of a run."""
    return [line for line in told(printed) if not FRAME.match(line)]


def judged(case: t.Mapping[str, t.Any], printed: str, status: int) -> str:
    """Return what is wrong with what was printed; `answered`, or `refused with the reason`, if nothing."""
    ends = case.get("ends", 0)
    if status not in (ends if isinstance(ends, list) else [ends]):
        return f"WRONG: exit status {status}"
    if not re.search(case["says"], printed, re.IGNORECASE):
        return f"WRONG: {case['says']} is not said"
    if ugly := UGLY.search(printed):
        return f"READS BADLY: {ugly[0]}"
    return "refused with the reason" if status else "answered"


class Evening:
    """The folders in which the commands are typed."""

    def __init__(self, place: pathlib.Path) -> None:
        self.printed = place / "printed"
        self.printed.mkdir(parents=True)
        (place / "discover").mkdir()
        self.sparks = two_sparks.Site(place / "discover")
        (place / "kube").mkdir()
        self.kube = kube_owner.Owner(
            place / "kube",
            count=2,
            topology="direct",
        )
        self.empty = self.sparks.owner.folder
        self.chat = ManyServer(answering=sound)
        self._files()
        self._cluster()
        example = place / "example"
        example.mkdir()
        shutil.copytree(ROOT / "inventories" / "example", example / "inventory")
        shutil.copy(ROOT / "inventories" / "ansible.cfg", example)
        self.at = {
            "": self.empty,
            "my-cluster": self.empty / "my-cluster",
            "kube": self.kube.folder,
            "example": example,
        }
        reach = {
            "ansible_connection": "local",
            "ansible_become": False,
            "ansible_python_interpreter": f"{self.sparks.lan.folder}/{{{{ ansible_host | default(inventory_hostname) }}}}/python",
        }
        self.reach = json.dumps(reach)
        self.more = {"discover": ["-e", "dgxspark_discover_window=6"]}

    def _files(self) -> None:
        files = {
            "recipe.sh": "vllm serve openai/gpt-oss-120b --max-model-len 131072\n",
            "typo.sh": "vllm serve openai/gpt-oss-120b --max-modell-len 131072\n",
            "compose.yml": "services:\n  llm:\n    image: vllm/vllm-openai:v0.19.0\n    command: >-\n"
            "      --model Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8 --max-model-len 65536 --port 8000\n",
            "rank0.log": "node1:812:812 [0] NCCL INFO NCCL version 2.28.3+cuda13.0\n"
            "node1:812:812 [0] NCCL INFO NET/IB : No device found.\n"
            "node1:812:812 [0] NCCL INFO NET/Socket : Using [0]enP7s7:192.0.2.11<0>\n"
            "node1:812:812 [0] NCCL INFO Using network Socket\n",
            "logs/rank1.log": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n",
            "logs/journal.txt": "systemd[1]: Started ssh.service\n",
        }
        for name, text in files.items():
            (self.empty / name).parent.mkdir(exist_ok=True)
            (self.empty / name).write_text(text, encoding="utf-8")
        (self.empty / "model").mkdir()

    def _cluster(self) -> None:
        hosts = self.kube.folder / "hosts.yml"
        inventory = yaml.safe_load(hosts.read_text(encoding="utf-8"))
        inventory["dgx"]["vars"] |= {
            "k8s_dgx_model_profile": PROFILE,
            "k8s_dgx_overrides": {"variant": "two"},
            "k8s_dgx_serving": {**inventory["dgx"]["vars"]["k8s_dgx_serving"], "service_type": "NodePort"},
        }
        for host in inventory["dgx"]["hosts"].values():
            host["ansible_become"] = False
        hosts.write_text(yaml.safe_dump(inventory), encoding="utf-8")
        (self.kube.folder / "inventory").symlink_to("hosts.yml")
        shutil.copy(ROOT / "inventories" / "ansible.cfg", self.kube.folder)

    def type(self, number: int, case: t.Mapping[str, t.Any], callback: str) -> tuple[float, str, int]:
        """Run one command with an output plugin; return seconds, what was printed and the exit status."""
        words = shlex.split(case["type"].format(url=self.chat.url) if "{url}" in case["type"] else case["type"])
        if case.get("more"):
            words += ["-e", self.reach]
        words += self.more.get(case.get("more", ""), [])
        collections = [str(self.sparks.owner.folder / "collections"), str(harness.collections() or "")]
        env = {
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": os.pathsep.join(collections),
            "ANSIBLE_STDOUT_CALLBACK": callback,
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_LOCALHOST_WARNING": "no",
            "ANSIBLE_INVENTORY_UNPARSED_WARNING": "no",
            "ANSIBLE_SSH_ARGS": "-o ConnectTimeout=2",
            "KUBECONFIG": "/nonexistent",
            **(self.kube.environment if case.get("at") == "kube" else {}),
        }
        env.pop("ANSIBLE_CONFIG", None)
        words[0] = str(BIN / words[0])
        began = time.monotonic()
        done = subprocess.run(
            words,
            cwd=self.at[case.get("at", "")],
            env=env,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )
        if case.get("more"):
            self._reached()
        name = f"{number:02}-{callback.rpartition('.')[2]}.txt"
        (self.printed / name).write_text(f"$ {case['type']}\n{done.stdout}[{done.returncode}]\n", encoding="utf-8")
        return time.monotonic() - began, done.stdout, done.returncode

    @staticmethod
    def ask(printed: str) -> str:
        """Type the curl that was printed, as it is; return what is wrong with the answer."""
        found = re.search(r"(?m)^  (curl http.*)$", printed)
        if not found:
            return "WRONG: no curl of the model's URL is printed"
        done = subprocess.run(["bash", "-c", f"{found[1]} -sS -m 20"], check=False, capture_output=True, text=True)
        return (
            ""
            if "chat.completion" in done.stdout
            else f"WRONG: the curl that it prints got {done.stdout[:80]!r} {done.stderr[:80]!r}"
        )

    def _reached(self) -> None:
        """Have the inventory that `discover` wrote reach the stand-ins."""
        if not (inventory := self.empty / "my-cluster" / "inventory").is_dir():
            return
        (inventory / "host_vars").mkdir(exist_ok=True)
        for name, address in zip(("spark1", "spark2"), two_sparks.HOSTS, strict=True):
            reach = json.loads(self.reach) | {
                "ansible_python_interpreter": f"{self.sparks.lan.folder}/{address}/python"
            }
            (inventory / "host_vars" / f"{name}.yml").write_text(yaml.safe_dump(reach), encoding="utf-8")

    def close(self) -> None:
        """Take the stand-ins away."""
        self.kube.server.shutdown()
        self.sparks.lan.close()


def table(rows: t.Sequence[Row]) -> list[str]:
    """Return the table of all commands."""
    lines = [
        "| typed | seconds | lines, before | lines | share that is the answer | verdict |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row.group:
            lines.append(f"| **{row.group}** | | | | | |")
        typed = row.typed.replace("ansible-playbook dgxspark.cluster.", "").replace("|", "\\|")
        lines.append(
            f"| `{typed}` | {row.seconds:.1f} | {row.before} | {row.lines} | {row.share:.0%} | {row.verdict} |"
        )
    return lines


def main(place: pathlib.Path, only: str = "") -> int:
    """Type all commands, and write the table."""
    cases = yaml.safe_load((HERE / "first_evening.yml").read_text(encoding="utf-8"))
    rows: list[Row] = []
    evening = Evening(place)
    try:
        with evening.chat:
            # The port that serve prints is the scripted model's: what it says to type is really answered.
            evening.kube.cluster.addresses = dict.fromkeys(("spark1", "spark2"), "127.0.0.1")
            evening.kube.cluster.node_port = int(evening.chat.url.rpartition(":")[2].partition("/")[0])
            for number, case in enumerate(cases, 1):
                if only not in case["type"]:
                    continue
                seconds, printed, status = evening.type(number, case, "dgxspark.cluster.answer")
                verdict = judged(case, printed, status)
                if case.get("asks") and not status:
                    verdict = evening.ask(printed) or verdict
                before = len(told(evening.type(number, case, "ansible.builtin.default")[1]))
                lines = len(told(printed))
                share = len(answer(printed)) / lines if lines else 0.0
                rows.append(Row(case["type"], case.get("group", ""), seconds, before, lines, share, verdict))
                print(f"{seconds:5.1f} s {before:4} {lines:4} {share:4.0%} {verdict}: {case['type']}", flush=True)
    finally:
        evening.close()
    if only:
        return 0
    good = [row for row in rows if row.verdict in ("answered", "refused with the reason")]
    total, shown, was = sum(r.lines for r in rows), sum(r.share * r.lines for r in rows), sum(r.before for r in rows)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    text = [
        "# benchmarks/first_evening.py",
        f"{len(rows)} commands of a first evening, typed on one machine of two cores, shared with other work (load {os.getloadavg()[2]:.0f}).",
        f"Commit {commit}. *Before*: lines that Ansible's own output plugin prints for the same command. Empty lines do not count.",
        "The Sparks are namespaces with a made-up /sys, the cluster a stand-in of an API server, the model a script.",
        "",
        *table(rows),
        "",
        f"{len(good)} of {len(rows)} as they should be; {total} lines instead of {was}; {shown / total:.0%} of them are the answer.",
    ]
    RESULT.write_text("\n".join(text) + "\n", encoding="utf-8")
    print(text[-1])
    return 0 if len(good) == len(rows) else 1


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    raise SystemExit(main(pathlib.Path(sys.argv[1]).resolve(), *sys.argv[2:]))
