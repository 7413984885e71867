"""The places in which a guide's commands are typed, each with its inventory, as the guide describes them.

`nothing`: a folder and the collection. `example`: a copy of inventories/example (`ring`: of inventories/ring) whose Sparks do not answer.
`sparks`: two stand-ins (two_sparks.py) that ssh reaches, for discover and what it writes. `cluster`: Sparks whose cluster is the stand-in
of an API server, and whose model is a script. `evening`: the folder of `sparks` in which `discover` wrote the inventory, its comments
about K3s and serving taken away as README says, and with a cluster and a scripted model that wants the key. `measured`: what a matrix
leaves of two drivers. `connected`: an inventory whose bundle comes from stand-ins of GitHub, PyPI and registries. `release`: what a
release has, and collections from a stand-in of nothing: the owner has those that it needs. Nothing is added to a command: ssh, sudo and
netplan are programs of a folder that comes first in PATH; /srv and /media are the guide's own, and so is the network where `sparks` is.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time
import typing as t

import yaml

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import to_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.support import (
    bundle_site,
    evening,
    kube_owner,
    pod_programs,
    two_sparks,
)
from ansible_collections.dgxspark.cluster.tests.unit import matrix_driven
from ansible_collections.dgxspark.cluster.tests.unit.chat_server import Answer, ManyServer, Request, head
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import names, node
from ansible_collections.dgxspark.cluster.tests.unit.owner import BIN, ROOT
from ansible_collections.dgxspark.cluster.tests.unit.sound_server import sound
from ansible_collections.dgxspark.cluster.tools import release

INVENTORIES = ROOT / "inventories"
COLLECTIONS = ("ANSIBLE_COLLECTIONS_PATH", "PYTHONPATH")  # where this checkout's is found
KEY = "a-key-of-this-evening"
HELLO = "InfiniBand is a network in which one machine reads another one's memory."
# Takes ssh's options from Ansible, and enters the stand-in that has the address; any other host is one that is off.
SSH = """#!/bin/sh
while :; do case "$1" in -[oCpilSFE]) case "$1" in -C) shift;; *) shift 2;; esac;; -*) shift;; *) break;; esac; done
host=$1; shift
[ -x {lan}/$host/enter ] || {{ echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255; }}
exec env -i HOME=/root PATH={tools}:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin {lan}/$host/enter sh -c "$*"
"""
SUDO = """#!/bin/sh
while :; do case "$1" in -u|-p|-g) shift 2;; -*) shift;; *) break;; esac; done
exec "$@"
"""
# STAND-IN of the driver's program: an idle GB10 that takes every clock limit.
NVIDIA_SMI = """#!/bin/sh
case "$1" in
--query-gpu=*) for field in $(echo "${1#--query-gpu=}" | tr , ' '); do
  case $field in name) value="NVIDIA GB10";; pstate) value=P8;; clocks.sm) value=208;; clocks.max.sm) value=2418;; power.draw) value=4.20;;
    temperature.gpu) value=41;; utilization.gpu) value=0;; *) value="[N/A]";; esac
  line="$line, $value"; done; echo "${line#, }";;
-lgc) echo "GPU clocks set to $2";;
-rgc) echo "All done.";;
*) echo "stand-in: $*" >&2; exit 1;;
esac
"""
# STAND-IN of llama-benchy 0.4.0: it asks nobody, and writes the file that it was told to, with one figure for all.
LLAMA_BENCHY = """#!/usr/bin/python3
import json, sys
words, given = sys.argv[1:], {}
for word in words:
    if word.startswith("--"):
        own = given[word] = []
    else:
        own.append(word)
figure = {"mean": 40.0, "std": 0.0, "values": [40.0, 40.0, 40.0]}
names = ("tg_throughput", "tg_req_throughput", "peak_throughput", "pp_throughput", "e2e_ttft")
rows = [
    {"concurrency": int(n), "context_size": int(depth), "prompt_size": 2048, **dict.fromkeys(names, figure)}
    for depth in given["--depth"]
    for n in given["--concurrency"]
]
with open(given["--save-result"][0], "w") as file:
    json.dump({"version": "0.4.0", "benchmarks": rows}, file)
"""


class Typed(t.NamedTuple):
    """How one command ended."""

    seconds: float
    printed: str
    status: int


def keyed(request: Request, file: pathlib.Path) -> Answer:
    """Answer as a model server that wants the key of this file, which the owner made."""
    if request.headers.get("authorization") != f"Bearer {file.read_text(encoding='utf-8').strip()}":
        return [_whole({"error": {"message": "Unauthorized", "code": 401}}, "401 Unauthorized")]
    return answered(request)


def answered(request: Request) -> Answer:
    """Answer as a model server; whole where no stream is asked for."""
    if request.body.get("stream"):
        return sound(request)
    choice = {"index": 0, "message": {"role": "assistant", "content": HELLO}, "finish_reason": "stop"}
    return [_whole({"object": "chat.completion", "model": request.body["model"], "choices": [choice]}, "200 OK")]


def _whole(body: t.Any, status: str) -> bytes:
    text = json.dumps(body).encode()
    return head(status, "application/json", chunked=False, Content_Length=str(len(text))) + text


class Guide:
    """One guide's folder. files: what its text says the owner has; sparks: how many there are in the cluster.

    group: what it has the owner write into group_vars/dgx.yml before a model is served.
    """

    def __init__(
        self,
        place: pathlib.Path,
        files: t.Mapping[str, str],
        sparks: int = 2,
        group: str = "",
        engines: t.Sequence[str] = (),
    ) -> None:
        self.group, self.engines = group, engines
        self.running: list[subprocess.Popen[bytes]] = []
        self.place, self.files, self.count = place, files, sparks
        self.folders: dict[str, pathlib.Path] = {}
        self.sparks: two_sparks.Site | None = None
        self.cluster: kube_owner.Owner | None = None
        self.chat: ManyServer | None = None
        self.outside: bundle_site.Site | None = None
        self.tools = place / "tools"
        self.tools.mkdir(parents=True)
        self._program("ssh", SSH.format(lan=place / "sparks" / "lan", tools=self.tools))
        self._program("sudo", SUDO)
        self._program("llama-benchy", LLAMA_BENCHY)
        self._program("kubectl", "#!/bin/sh\necho 'node1:812:812 [0] NCCL INFO NET/IB : No device found.'\n")
        for name in ("home", "own/srv", "own/media/disk"):
            (place / name).mkdir(parents=True)
        self._program(
            "netplan", "#!/bin/sh\nexit 0\n"
        )  # accepts every file: what it would refuse is the lab's business
        self.collections = place / "collections"
        (self.collections / "ansible_collections" / "dgxspark").mkdir(parents=True)
        (self.collections / "ansible_collections" / "dgxspark" / "cluster").symlink_to(ROOT)

    def _program(self, name: str, text: str) -> None:
        (self.tools / name).write_text(text, encoding="utf-8")
        (self.tools / name).chmod(0o755)

    def folder(self, at: str) -> pathlib.Path:
        """Return the folder in which the next command is typed there; make the place if it is the first."""
        if at == "evening":
            if not self.chat:
                self._evening(self.folders["sparks"])
            return self.folders["sparks"]
        if at not in self.folders:
            made = self.place / at
            made.mkdir()
            self.folders[at] = self._makers.get(at, self._folder)(made)
            for name, text in self.files.items():
                (self.folders[at] / name).parent.mkdir(parents=True, exist_ok=True)
                (self.folders[at] / name).write_text(text, encoding="utf-8")
        return self.folders[at]

    @property
    def _makers(self) -> dict[str, t.Callable[[pathlib.Path], pathlib.Path]]:
        return {
            "sparks": self._sparks,
            "cluster": self._cluster,
            "measured": self._measured,
            "connected": self._connected,
            "release": self._release,
        }

    def _connected(self, made: pathlib.Path) -> pathlib.Path:
        """Make the folder of an owner who fills a bundle: inventory, and knowledge of what the stand-ins have."""
        engine = knowledge.get("profile", "qwen3.5-397b-a17b-nvfp4")["engine"]["image"]
        self.outside = bundle_site.Site(made, [engine, "vllm/vllm-openai:v0.25.1"])
        inventory = yaml.safe_load((made / "hosts.yml").read_text(encoding="utf-8"))
        for name in ("dgxspark_bundle", "k8s_dgx_model_profile", "nccl_bench_image"):
            del inventory["dgx"]["vars"][name]
        (made / "inventory").mkdir()
        (made / "inventory/hosts.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
        (made / "dgxspark").rename(made / "inventory/dgxspark")
        shutil.copy(INVENTORIES / "ansible.cfg", made)
        return made

    def _release(self, made: pathlib.Path) -> pathlib.Path:
        """Make what a release has; and what Galaxy would bring beside it, which is not asked."""
        release.build(made)
        there = self.place / "home/.ansible/collections/ansible_collections"
        shutil.copytree(
            pathlib.Path(str(harness.collections())) / "ansible_collections/kubernetes", there / "kubernetes"
        )
        return made

    def _measured(self, made: pathlib.Path) -> pathlib.Path:
        """Make what a matrix leaves of two drivers; the second is a tenth slower."""
        before, after = (made / "matrix" / f"driver-{number}" for number in (580, 595))
        before.mkdir(parents=True)
        matrix_driven.run(before)
        shutil.copytree(before, after)
        entries = [json.loads(line) for line in (after / "journal.jsonl").read_text(encoding="utf-8").splitlines()]
        for run in (run for entry in entries for run in entry.get("runs", ())):
            for level in (level for workload in run["workloads"] for level in workload["levels"]):
                if (level.get("figures") or {}).get("peak_tokens_per_s"):
                    level["figures"]["peak_tokens_per_s"] *= 0.9
        text = "".join(json.dumps(entry) + "\n" for entry in entries)
        (after / "journal.jsonl").write_text(text, encoding="utf-8")
        return made

    def _folder(self, made: pathlib.Path) -> pathlib.Path:
        if (INVENTORIES / made.name).is_dir():
            shutil.copytree(INVENTORIES / made.name, made / "inventory")
            shutil.copy(INVENTORIES / "ansible.cfg", made)
        return made

    def _sparks(self, made: pathlib.Path) -> pathlib.Path:
        self.sparks = two_sparks.Site(made)
        for host in self.sparks.lan.hosts.values():  # the package prometheus-node-exporter, and the driver's program
            host.sh("mkdir -p /var/lib/prometheus/node-exporter")
            host.sh(
                f"printf '%s' {shlex.quote(NVIDIA_SMI)} >/usr/local/bin/nvidia-smi; chmod 755 /usr/local/bin/nvidia-smi"
            )
        self._lan("ip link set lo up; ip address add 10.0.0.1/32 dev lo")
        for address in self.engines:
            host = self.sparks.lan.hosts.get(address)
            pid = host.process.pid if host else self.sparks.lan.bridge.pid
            engine = [sys.executable, str(ROOT / "tests/stand_ins/scripted_engine.py"), "--model-path", "acme/Model-8B"]
            command = ["nsenter", "-t", str(pid), "-n", "--", *engine, "--host", address, "--port", "30000"]
            env = {**os.environ, "SCRIPTED_LOAD_S": "0", "SCRIPTED": '{"token_s": 0.15}'}
            quiet = subprocess.DEVNULL
            self.running.append(subprocess.Popen(command, env=env, stdout=quiet, stderr=quiet))
        self._vocabulary(made / "outside")
        self._mirror(made / "mirror")
        (made / "typed").mkdir()
        return made / "typed"

    def _cluster(self, made: pathlib.Path) -> pathlib.Path:
        self.cluster = kube_owner.Owner(
            made,
            count=self.count,
            made=lambda nodes: pod_programs.Speaking(nodes, made / "pods"),
            topology="direct" if self.count == 2 else "switch",
            vf_count=4,
        )
        self._model(self.cluster, answered)
        # Of a cluster of others, which the guide reaches by this file.
        shutil.copy(self.cluster.kubeconfig, self.cluster.kubeconfig.with_name("theirs.yml"))
        inventory = yaml.safe_load((made / "hosts.yml").read_text(encoding="utf-8"))
        inventory["dgx"]["vars"]["k8s_dgx_serving"]["service_type"] = "NodePort"
        if self.count < 8:  # pods ask the script at the Service's own port
            inventory["dgx"]["vars"]["k8s_dgx_serving"]["service_port"] = self.cluster.cluster.node_port
        for number, host in enumerate(inventory["dgx"]["hosts"].values(), 1):
            host |= {"ansible_become": False, "dgxspark_roce": to_plain(node(host=number, vfs=4))}
        (made / "hosts.yml").unlink()
        (made / "inventory").mkdir()
        (made / "inventory" / "hosts.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
        shutil.copy(INVENTORIES / "ansible.cfg", made)
        return made

    def _model(self, cluster: kube_owner.Owner, answers: t.Callable[[Request], Answer]) -> None:
        """Have a script answer at the address and port that the cluster gives out."""
        self.chat = ManyServer(answering=answers)
        self.chat.__enter__()
        cluster.cluster.addresses = dict.fromkeys(names(self.count), "127.0.0.1")
        cluster.cluster.node_port = int(re.findall(r":(\d+)/", self.chat.url)[0])

    def _evening(self, folder: pathlib.Path) -> None:
        """Do in discover's inventory what README says, and give it a cluster whose served model is a script."""
        (self.place / "evening").mkdir()
        self.cluster = kube_owner.Owner(self.place / "evening", count=2, topology="direct", vf_count=4)
        self._model(self.cluster, lambda request: keyed(request, folder / "api-key"))
        inventory = folder / "inventory"
        evening.with_k3s(inventory)
        evening.with_model(inventory, self.group)
        (folder / "api-key").write_text(f"{KEY}\n", encoding="utf-8")
        # What these two lack: memory, a disk of their own, and VFs.
        theirs = yaml.safe_load((self.place / "evening" / "hosts.yml").read_text(encoding="utf-8"))["dgx"]["vars"]
        (inventory / "host_vars").mkdir()
        for number in (1, 2):
            own = {key: value for key, value in theirs.items() if key not in ("dgxspark_fabric", "k8s_dgx_serving")}
            own |= {
                "dgxspark_roce": to_plain(node(host=number, vfs=4)),
                "dgxspark_fabric_functions": kube_owner.FUNCTIONS,
            }
            (inventory / "host_vars" / f"spark{number}.yml").write_text(yaml.safe_dump(own), encoding="utf-8")

    def ask(self, printed: str, at: str) -> Typed:
        """Type the curl that was printed, as it is."""
        return self.type(f"{evening.printed_curl(printed)} -sS -m 20", at)

    def type(self, command: str, at: str) -> Typed:
        """Type a command in a place, as it is printed; a `cd` holds for the next."""
        env = {
            **os.environ,
            "PATH": os.pathsep.join([str(self.tools), str(BIN), os.environ["PATH"]]),
            "ANSIBLE_COLLECTIONS_PATH": os.pathsep.join([str(self.collections), str(harness.collections() or "")]),
            # What README has an owner export.
            "ANSIBLE_STDOUT_CALLBACK": "dgxspark.cluster.answer",
            "ANSIBLE_LOCALHOST_WARNING": "no",
            "ANSIBLE_INVENTORY_UNPARSED_WARNING": "no",
            "ANSIBLE_NOCOLOR": "1",
            # The stand-in of ssh has no sftp.
            "ANSIBLE_SSH_TRANSFER_METHOD": "piped",
            "KUBECONFIG": "/nonexistent",
            "HOME": str(self.place / "home"),
        }
        folder = self.folder(at)
        env |= self.cluster.environment if self.cluster and at in ("cluster", "evening") else {}
        for name in ("ANSIBLE_CONFIG", "ANSIBLE_HOME", *(COLLECTIONS if at == "release" else ())):
            env.pop(name, None)
        began = time.monotonic()
        done = subprocess.run(
            [*self._inside(at), "bash", "-c", f"{command}\nended=$?; pwd >{self.place}/pwd; exit $ended"],
            cwd=folder,
            env=env,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
        )
        self.folders["sparks" if at == "evening" else at] = pathlib.Path(
            (self.place / "pwd").read_text(encoding="utf-8").strip()
        )
        return Typed(time.monotonic() - began, done.stdout, done.returncode)

    def _mirror(self, folder: pathlib.Path) -> None:
        """Give the nodes' apt a distribution of their own, with a package that has no files: the rest is the real apt and dpkg."""
        about = "Package: perftest\nVersion: 24.10\nArchitecture: all\nMaintainer: nobody <nobody@example.com>\nDescription: a stand-in\n"
        (folder / "perftest/DEBIAN").mkdir(parents=True)
        (folder / "perftest/DEBIAN/control").write_text(about, encoding="utf-8")
        file = folder / "perftest.deb"
        subprocess.run(["dpkg-deb", "--build", "--root-owner-group", folder / "perftest", file], check=True, stdout=-3)
        data = file.read_bytes()
        entry = f"{about}Filename: ./{file.name}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"
        (folder / "Packages").write_text(entry, encoding="utf-8")
        own = f"deb [trusted=yes] file:{folder} ./"
        for host in self.sparks.lan.hosts.values() if self.sparks else ():
            host.sh(
                "mount -t tmpfs cache /var/cache; mount -t tmpfs log /var/log; mkdir -p /var/cache/apt/archives/partial /var/log/apt"
                " /var/lib/dpkg/info /var/lib/dpkg/updates /var/lib/dpkg/triggers /var/lib/apt/lists/partial; touch /var/lib/dpkg/status"
                f" /var/lib/dpkg/available; rm -rf /etc/apt/sources.list.d/*; "
                f"echo 'APT::Sandbox::User root;' >/etc/apt/apt.conf.d/99own; echo '{own}' >/etc/apt/sources.list; apt-get -qq update"
            )

    def _vocabulary(self, folder: pathlib.Path) -> None:
        """Serve the vocabulary of gpt-oss models at its name, over TLS; curl's own configuration says where that is, and whom to trust."""
        name, pem = "openaipublic.blob.core.windows.net", folder / "server.pem"
        (folder / "encodings").mkdir(parents=True)
        (folder / "encodings/o200k_base.tiktoken").write_text("IQ== 0\n", encoding="utf-8")
        made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-days", "2"]
        made += ["-addext", f"subjectAltName=DNS:{name}", "-keyout", str(pem), "-out", str(folder / "crt.pem")]
        subprocess.run(made, check=True, capture_output=True)
        serving = ["openssl", "s_server", "-quiet", "-WWW", "-accept", "8443", "-key", str(pem), "-cert", "crt.pem"]
        quiet = subprocess.DEVNULL
        self.running.append(
            subprocess.Popen([*self._inside("sparks"), *serving], cwd=folder, stdin=quiet, stdout=quiet, stderr=quiet)
        )
        text = f'connect-to = "{name}:443:127.0.0.1:8443"\ncacert = "{folder}/crt.pem"\n'
        (self.place / "home/.curlrc").write_text(text, encoding="utf-8")

    def _inside(self, at: str) -> list[str]:
        """Return what goes before a command: folders of its own, and where Sparks are, their network."""
        lan = ["nsenter", "-t", str(self.sparks.lan.bridge.pid), "-n", "--"] if at == "sparks" and self.sparks else []
        folders = 'for each in srv media; do mount --bind "$0/$each" "/$each" || exit 99; done; exec "$@"'
        return [*["unshare", "--mount", "--propagation", "private", "sh", "-c"], folders, str(self.place / "own"), *lan]

    def _lan(self, command: str) -> None:
        """Run something where the controller of `sparks` is."""
        subprocess.run([*self._inside("sparks"), "sh", "-c", command], check=True)

    def close(self) -> None:
        """Take the stand-ins away."""
        for process in self.running:
            process.kill()
            process.wait()
        if self.chat:
            self.chat.__exit__()
        if self.outside:
            self.outside.stop()
        if self.cluster:
            self.cluster.server.shutdown()
        if self.sparks:
            self.sparks.lan.close()
