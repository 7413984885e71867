"""Real nodes: the virtual machines, kubelets and control plane of the lane that DGXSPARK_LANES names.

The lane builds Kubernetes 1.20.2 (kubelet, API server, scheduler, controllers) of Debian's own source package and boots VMs
with containerd and the CNI plugins. Stand-ins, named so wherever they are used: NVIDIA's device plugin, the engine; Multus, the
SR-IOV device plugin and flannel's CNI plugin (a plain bridge), too, where folders with the real ones are not given (real.py).
What was built is kept in DGXSPARK_NODES_CACHE (default ~/.cache/dgxspark-nodes).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator

from ansible_collections.dgxspark.cluster.plugins.module_utils.k3s import layout
from ansible_collections.dgxspark.cluster.tests.nodes import image, real
from ansible_collections.dgxspark.cluster.tests.stand_ins import scripted_engine

ROOT = pathlib.Path(__file__).resolve().parents[2]
STAND_INS = ROOT / "tests" / "stand_ins"
ENGINE, PLUGIN, SRIOV, MULTUS, PAUSE = (
    f"localhost/{name}:lab"
    for name in ("scripted-engine", "device-plugin-stand-in", "sriov-device-plugin", "multus", "pause")
)
PLATFORM_IMAGES = {"multus": MULTUS, "nvidia_device_plugin": PLUGIN, "sriov_device_plugin": SRIOV}
# The commands that the lane calls, each with Debian's package.
COMMANDS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "mmdebstrap": "mmdebstrap",
    "dpkg-source": "dpkg-dev",
    "openssl": "openssl",
    "busybox": "busybox-static",
    "unshare": "util-linux",
    "cpio": "cpio",
    "zstd": "zstd",
}
ENGINE_PACKAGES = "python3,iproute2,procps"
# Of Debian's minimal system, an image has these and what they need: emulated nodes copy, hash and unpack every byte of it.
ENGINE_PROGRAMS = "cat chmod cp dash env id ip ln ls mkdir mv ps python3 readlink rm sh sleep uname"
ENGINE_FILES = "bin lib lib64 etc/group etc/ld.so.cache etc/ld.so.conf etc/ld.so.conf.d etc/nsswitch.conf etc/passwd usr/lib/locale"
ENGINE_LACKS = (
    "_pyrepl curses dbm ensurepip idlelib lib2to3 multiprocessing pydoc_data sqlite3 test tkinter turtledemo unittest"
    " venv wsgiref xml xmlrpc _codecs_* _test* _sqlite3* _curses* _dbm* readline*"
    " big5* cp* euc* gb* hz* iso* johab* koi* mac_* ptcp* shift* tis* turtle* pickletools* pydoc* doctest* _pydecimal*"
)
# The scripted engine under its other name.
VLLM = b"#!/usr/bin/python3\nimport runpy\nrunpy.run_module('sglang.launch_server', run_name='__main__')\n"
NODE_PACKAGES = "netplan.io"  # beside those that make-image.sh has
FUNCTIONS = ("enp1s0", "enp2s0")  # a card's two functions in a VM
# As in lab/: a VF that appears, or comes back from a pod, gets its soft-RoCE device, enp1s0v0 rocep1s0v0. Soft-RoCE opens its sockets
# when it is loaded, and udev may open none.
HCA = ROOT / "lab" / "guest" / "files" / "usr" / "lib" / "dgxspark-lab" / "hca"
HCA_RULE = 'ACTION=="add", SUBSYSTEM=="net", NAME=="enp?s0v*", RUN+="/bin/busybox sh /etc/dgxspark-lab/hca $name"\n'
# A real handler's name, and a runtime that has no GPU to inject.
HANDLER = """
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
      SystemdCgroup = true
"""
NETWORK = """[Match]
Name={netdev}
[Link]
MTUBytes=9000
[Network]
LinkLocalAddressing=no
"""
# The API server as nodes and pods know it. On a real node this is the work of the K3s agent and its proxy.
SERVICE = "10.43.0.1"
NAT = "iptables --table nat --append"
TO_SERVICE = f"--destination {SERVICE} --protocol tcp --dport 443 --jump DNAT --to-destination 10.0.2.2:26443"
TO_API = f"""[Unit]
Before=kubelet.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={NAT} OUTPUT {TO_SERVICE}
ExecStart={NAT} PREROUTING {TO_SERVICE}
ExecStart={NAT} POSTROUTING --destination 10.0.2.2 --protocol tcp --dport 26443 --jump MASQUERADE
[Install]
WantedBy=multi-user.target
"""
ROUTE = f"[Route]\nDestination={SERVICE}/32\nGateway=10.0.2.2\n"
CLUSTER_NETWORK = {
    "cniVersion": "0.4.0",
    "name": "cbr0",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": ""}]], "routes": [{"dst": "0.0.0.0/0"}]},
        }
    ],
}
# K3s's own (k3s-io/k3s, pkg/agent/flannel/setup.go), whose agent writes the second file at each start.
K3S_NETWORK = {
    "name": "cbr0",
    "cniVersion": "1.0.0",
    "plugins": [
        {"type": "flannel", "delegate": {"hairpinMode": True, "forceAddress": True, "isDefaultGateway": True}},
        {"type": "portmap", "capabilities": {"portMappings": True}},
        {"type": "bandwidth", "capabilities": {"bandwidth": True}},
    ],
}
SUBNET = "FLANNEL_NETWORK=10.42.0.0/16\nFLANNEL_SUBNET=10.42.{node}.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
LEASES = "/var/lib/cni/networks/cbr0"
CONTROLLERS = (
    "*,-nodeipam,-attachdetach,-csrsigning,-csrapproving,-csrcleaner,-bootstrapsigner,-tokencleaner,-route,-service"
)


def why_not() -> str:
    """Return why there can be no real nodes here; empty where there can."""
    place = os.environ.get("DGXSPARK_LANES", "")
    if not place:
        return "not run: DGXSPARK_LANES names no folder with the lanes kubelet and kube-api"
    for script in ("kubelet/kubelet-node.sh", "kubelet/build-kubelet.sh", "kube-api/kube-api.sh"):
        if not (pathlib.Path(place) / script).is_file():
            return f"not run: {place} has no {script}"
    lacking = [command for command in COMMANDS if not shutil.which(command)]
    if lacking:
        packages = " ".join(COMMANDS[command] for command in lacking)
        return f"not run: this machine has no {', '.join(lacking)}; on Debian: apt-get install {packages}"
    if os.geteuid():
        return "not run: the lane makes file systems and namespaces, which needs root"
    return ""


def digest(*texts: bytes) -> str:
    made = hashlib.sha256()
    for text in texts:
        made.update(hashlib.sha256(text).digest())
    return made.hexdigest()[:16]


class Lane:
    """The lane with its caches. Numbers of nodes begin at 1; at most two, whose cards are wired to each other."""

    def __init__(self) -> None:
        self.scripts = pathlib.Path(os.environ["DGXSPARK_LANES"])
        home = os.environ.get("DGXSPARK_NODES_CACHE") or pathlib.Path.home() / ".cache" / "dgxspark-nodes"
        self.home = pathlib.Path(home)
        self.kube, self.lab = self.home / "kube", self.home / "lab"
        self.bin, self.images = self.kube / "bin", self.lab / "images"
        self.kubeconfig = self.kube / "run" / "admin.kubeconfig"
        self.env = {
            **os.environ,
            "KUBE_LANE_HOME": str(self.kube),
            "LAB": str(self.lab),
            "KUBECONFIG": str(self.kubeconfig),
        }
        self.images.mkdir(parents=True, exist_ok=True)

    # --- commands -------------------------------------------------------------------------------------------------------

    def run(self, *command: str, check: bool = True, **more: str) -> str:
        """Run a command of this machine; return what it said."""
        ran = subprocess.run(
            command, check=False, env={**self.env, **more}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True,
        )  # fmt: skip
        assert not check or ran.returncode == 0, f"{command}: {ran.returncode}\n{ran.stdout}{ran.stderr}"
        return ran.stdout

    def script(self, name: str, *arguments: str, **more: str) -> str:
        """Run one of the lane's scripts. Its output goes to a file: what it leaves running would hold a pipe open."""
        log = self.home / "logs" / f"{name}-{'-'.join(arguments)[:40]}.log".replace("/", "_")
        log.parent.mkdir(exist_ok=True)
        with log.open("w", encoding="utf-8") as output:
            code = subprocess.run(
                ["bash", str(self.scripts / name), *arguments], check=False,
                env={**self.env, **more}, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            ).returncode  # fmt: skip
        said = log.read_text(encoding="utf-8", errors="replace")
        assert code == 0, f"{name} {arguments}: {code}\n{said[-3000:]}"
        return said

    def ssh(self, node: int, command: str, data: bytes | None = None, check: bool = True) -> str:
        """Run a command on a node."""
        options = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "ConnectTimeout=30"]
        ran = subprocess.run(
            ["ssh", "-q", "-i", str(self.lab / "id_lab"), "-p", str(2200 + node), *options, "root@127.0.0.1", command],
            check=False, input=data if data is not None else b"", capture_output=True,
        )  # fmt: skip
        said = ran.stdout.decode(errors="replace")
        assert not check or ran.returncode == 0, f"vm{node}: {command}: {ran.returncode}\n{said}{ran.stderr.decode()}"
        return said.strip()

    # --- building -------------------------------------------------------------------------------------------------------

    def build(self, *, machines: bool = True) -> None:
        """Make what is not there yet: minutes the first time, nothing later. machines: the image of the VMs, too."""
        began = time.monotonic()
        self._programs()
        self._kubectl()
        self._images()
        if machines:
            self._machines()
        print(f"\nlane: programs and images after {time.monotonic() - began:.0f} s")

    def _programs(self) -> None:
        source = STAND_INS / "device_plugin.go"
        stamp = self.bin / f"device-plugin.{digest(source.read_bytes())}"
        if stamp.is_file() and (self.bin / "kube-controller-manager").is_file():
            return
        work = self.kube / "work"
        tree = work / "gopath" / "src" / "k8s.io" / "kubernetes"
        if (self.bin / "kubelet").is_file() and not tree.is_dir():
            (self.bin / "kubelet").unlink()  # or the lane would see no need for its tree
        self.script("kubelet/build-kubelet.sh", KEEP="1")
        place = tree / "cmd" / "device-plugin-stand-in"
        place.mkdir(exist_ok=True)
        shutil.copy(source, place / "main.go")
        go = work / "root" / "usr" / "lib" / "go-1.19"
        own = {"GOROOT": str(go), "GOPATH": str(work / "gopath"), "GOCACHE": str(work / "gocache"), "GOPROXY": "off"}
        own |= {"GOSUMDB": "off", "CGO_ENABLED": "0", "GO111MODULE": "off"}
        ran = subprocess.run(
            [str(go / "bin" / "go"), "build", "-trimpath", "-ldflags", "-s -w", "-o", str(stamp),
             "./cmd/device-plugin-stand-in"],
            check=False, cwd=tree, env={**self.env, **own}, capture_output=True, text=True,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        if not os.environ.get("DGXSPARK_NODES_KEEP"):
            self.run("chmod", "-R", "u+w", str(work))
            shutil.rmtree(work)  # 3 GB

    def _kubectl(self) -> None:
        """Debian's, of the same version."""
        place = self.bin / "kubectl"
        if place.is_file():
            return
        with self._package("kubernetes-client") as unpacked:
            shutil.copy(unpacked / "usr/bin/kubectl", place)

    def cni_plugins(self) -> pathlib.Path:
        """Return the folder of Debian's CNI plugins, of the release that the nodes have (1.1.1)."""
        place = self.bin / "cni"
        if not place.is_dir():
            with self._package("containernetworking-plugins") as unpacked:
                shutil.copytree(unpacked / "usr/lib/cni", place)
        return place

    @contextlib.contextmanager
    def _package(self, name: str) -> Iterator[pathlib.Path]:
        """Get a package of Debian; yield the folder with its files."""
        with tempfile.TemporaryDirectory() as folder:
            self.run("sh", "-c", f"cd {folder} && apt-get -qq -o APT::Sandbox::User=root download {name}")
            (package,) = pathlib.Path(folder).glob("*.deb")
            self.run("dpkg", "-x", str(package), f"{folder}/unpacked")
            yield pathlib.Path(folder, "unpacked")

    def _images(self) -> None:
        names = ("scripted_engine.py", "device_plugin.go", "multus", "multus_daemon.py")
        text = {name: (STAND_INS / name).read_bytes() for name in names}
        layout = b"".join(pathlib.Path(module.__file__).read_bytes() for module in (image, real))
        flags = json.dumps({name: scripted_engine.tabled_flags(name) for name in scripted_engine.RELEASES}).encode()
        content = " ".join((ENGINE_PACKAGES, ENGINE_PROGRAMS, ENGINE_FILES, ENGINE_LACKS))
        said = " ".join(map(real.version, ("DGXSPARK_REAL_MULTUS", "DGXSPARK_REAL_SRIOVDP")))
        stamp = self.lab / f"made.{digest(*text.values(), flags, VLLM, layout, content.encode(), said.encode())}"
        if stamp.is_file():
            return
        images = self.images
        for old in (*images.glob("*.tar"), *self.lab.glob("made.*")):
            old.unlink()
        (program,) = self.bin.glob(f"device-plugin.{digest(text['device_plugin.go'])}")
        image.archive(images / "pause.tar", PAUSE, {"pause": (self.bin / "pause").read_bytes()}, entrypoint=["/pause"])
        image.archive(images / "plugin.tar", PLUGIN, {"plugin": program.read_bytes()}, entrypoint=["/plugin"])
        if real.folder("DGXSPARK_REAL_SRIOVDP"):
            real.plugin(images / "sriov.tar", SRIOV)
        else:
            image.archive(images / "sriov.tar", SRIOV, {"plugin": program.read_bytes()}, entrypoint=["/plugin"])
        package, multus = "usr/lib/python3/dist-packages/sglang", "usr/src/multus-cni/bin"
        root = self._python_root()
        scripted = {f"{package}/launch_server.py": text["scripted_engine.py"], f"{package}/flags.json": flags}
        scripted[f"{package}/__init__.py"] = b""
        scripted["usr/bin/vllm"] = VLLM
        image.archive(images / "engine.tar", ENGINE, scripted, root=root)
        daemon = b"#!/usr/bin/python3\n" + text["multus_daemon.py"]
        programs = {"install_multus": daemon, "multus-daemon": daemon, "multus-shim": text["multus"]}
        if real.folder("DGXSPARK_REAL_MULTUS"):
            real.multus(images / "multus.tar", MULTUS)
        else:
            files = {f"{multus}/{name}": data for name, data in programs.items()}
            image.archive(images / "multus.tar", MULTUS, files, root=root)
        stamp.touch()

    def _machines(self) -> None:
        (made,) = self.lab.glob("made.*")
        stamp = self.lab / f"machines.{digest(made.suffix.encode(), NODE_PACKAGES.encode())}"
        if stamp.is_file():
            return
        self.script("kubelet/make-image.sh", EXTRA_PKGS=NODE_PACKAGES)
        self.script("kubelet/kubelet-node.sh", "warm")
        stamp.touch()

    def _python_root(self) -> pathlib.Path:
        root = self.lab / "engine-root"
        if not (root / "usr/bin/python3").exists():
            shutil.rmtree(root, ignore_errors=True)
            less = [f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("man", "doc", "locale")]
            self.run(
                "mmdebstrap", "--quiet", "--variant=minbase", "--mode=root", f"--include={ENGINE_PACKAGES}", *less,
                '--aptopt=Acquire::Languages "none"', '--aptopt=Apt::Install-Recommends "false"', "trixie", str(root),
            )  # fmt: skip
        lean = self.lab / "engine-lean"
        shutil.rmtree(lean, ignore_errors=True)
        image.lean(root, lean, ENGINE_PROGRAMS.split(), ENGINE_FILES.split(), ENGINE_LACKS.split())
        return lean

    # --- the cluster ----------------------------------------------------------------------------------------------------

    def start_control_plane(self) -> None:
        self.script("kube-api/kube-api.sh", "up", NODES="0", CONTROLLERS=CONTROLLERS)
        self.script("kubelet/kubelet-node.sh", "rbac")

    def start(self, node: int) -> None:
        """Boot a node from its image, with a card of two functions that are wired to the other node's."""
        run = self.lab / "run"
        wire = run / f"n{node}.fab2"
        wire.unlink(missing_ok=True)
        local, remote = (
            f"local.type=unix,local.path={wire}",
            f"remote.type=unix,remote.path={run / f'n{3 - node}.fab2'}",
        )
        second = f"-netdev dgram,id=fab2,{local},{remote} -device pcie-root-port,id=rp2,slot=2,chassis=2"
        second += f" -device igb,netdev=fab2,id=nic1,bus=rp2,mac=02:00:00:01:01:{node:02x},romfile="
        self.script("kubelet/kubelet-node.sh", "start", str(node), EXTRA_QEMU=second)

    def join(self, node: int) -> None:
        """Wait for a node that was started, lay down what the lane's image has not, and let it join."""
        until = time.monotonic() + 600
        while self.ssh(node, "echo here", check=False) != "here":
            assert time.monotonic() < until, f"vm{node} does not answer"
            time.sleep(2)
        networks = [NETWORK.format(netdev=netdev) for netdev in FUNCTIONS]
        other = 3 - node
        networks[0] += f"Address=10.77.0.{node}/24\n[Route]\nDestination=10.42.{other}.0/24\nGateway=10.77.0.{other}\n"
        # Netplan's file for a function is called 10-…: these come before it, as they have the node's own address.
        files = {f"systemd/network/05-{netdev}.network": text for netdev, text in zip(FUNCTIONS, networks, strict=True)}
        files |= {"udev/rules.d/85-dgxspark-lab.rules": HCA_RULE, "dgxspark-lab/hca": HCA.read_text(encoding="utf-8")}
        files["modules-load.d/dgxspark-lab.conf"] = "rdma_rxe\n"
        files |= {"systemd/network/10-mgmt.network.d/api.conf": ROUTE, "systemd/system/to-api.service": TO_API}
        flannel = real.folder("DGXSPARK_REAL_FLANNEL")
        if flannel:
            config = K3S_NETWORK
            files["dgxspark-subnet.env"] = SUBNET.format(node=node)
            files["tmpfiles.d/subnet.conf"] = "C /run/flannel/subnet.env - - - - /etc/dgxspark-subnet.env\n"
        else:
            config = json.loads(json.dumps(CLUSTER_NETWORK))
            config["plugins"][0]["ipam"]["ranges"] = [[{"subnet": f"10.42.{node}.0/24"}]]
        files["cni/net.d/10-lab.conflist"] = json.dumps(config)
        files[layout.AT_BOOT.removeprefix("/etc/")] = layout.at_boot()  # the role k3s has no part in this lane
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as made:
            for path, text in files.items():
                info = tarfile.TarInfo(path)
                info.size = len(text.encode())
                made.addfile(info, io.BytesIO(text.encode()))
        self.ssh(node, "tar -C /etc -xf - --no-same-owner", packed.getvalue())
        self.ssh(node, "cat >>/etc/containerd/config.toml", HANDLER.encode())
        if flannel:
            place = "/usr/lib/cni/flannel"
            self.ssh(node, f"cat >{place}; chmod 755 {place}", (flannel / "flannel").read_bytes())
            self.ssh(node, "systemd-tmpfiles --create /etc/tmpfiles.d/subnet.conf")
        self.ssh(node, "modprobe rdma_rxe && udevadm control --reload")
        self.ssh(node, "networkctl reload; systemctl enable -q --now to-api; systemctl restart containerd")
        self.script("kubelet/kubelet-node.sh", "join", str(node))
        # The lane's own stand-in for Multus has no part in this: ours comes by the role's DaemonSet.
        self.ssh(node, "rm /etc/cni/net.d/00-lab.conflist /usr/lib/cni/mini-multus")

    def up(self, node: int) -> bool:
        """Whether the node's VM runs; an emulator that died leaves its file behind."""
        file = self.lab / "run" / f"n{node}.pid"
        return file.is_file() and pathlib.Path("/proc", file.read_text(encoding="ascii").strip()).is_dir()

    def stop(self, node: int) -> list[str]:
        """Pull a node's plug; return the command that starts it again with the disk that it has."""
        pid = (self.lab / "run" / f"n{node}.pid").read_text(encoding="ascii").strip()
        command = pathlib.Path("/proc", pid, "cmdline").read_bytes().decode().split("\0")[:-1]
        self.script("kubelet/kubelet-node.sh", "stop", str(node))
        return command

    def start_again(self, node: int, command: list[str]) -> None:
        for wire in ("fab", "fab2"):
            (self.lab / "run" / f"n{node}.{wire}").unlink(missing_ok=True)
        with (self.home / "logs" / f"again-{node}.log").open("w", encoding="utf-8") as output:
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def stop_all(self) -> None:
        for node in (1, 2):
            if self.up(node):
                self.stop(node)
        self.script("kube-api/kube-api.sh", "down")
