"""A machine apart: network and mount namespaces with a throw-away file system, for real programs without a VM.

It has this machine's programs, Debian's CNI plugins, and PCI functions that are files in a made-up /sys, each backed by a veth
pair. A container of one of our DaemonSets is its image, unpacked, with the volumes, arguments and environment of the DaemonSet,
started by chroot: there is no containerd and no kubelet. Nothing in it reaches this machine's own network: its namespace has
only loopback.
"""

from __future__ import annotations

import json
import pathlib
import shlex
import subprocess
import tarfile
import time
import typing as t

from ansible_collections.dgxspark.cluster.tests.nodes.lane import Lane

Plain = dict[str, t.Any]
NODE = "vm1"
CNI_BIN, CNI_PROGRAMS, CNI_CONF = "/usr/lib/cni", "/usr/lib/cni-programs", "/etc/cni/net.d"
CALLS = "/var/log/cni-calls"
ACCOUNT = "var/run/secrets/kubernetes.io/serviceaccount"
API = 26443
SETUP = """
mount --make-rprivate /
mount -t tmpfs -o mode=755 apart {place}
mkdir {place}/up {place}/work {place}/root {place}/sys
mount -t overlay overlay -o lowerdir=/,upperdir={place}/up,workdir={place}/work {place}/root
cd {place}/root
mount --rbind /proc proc
mount --rbind /dev dev
mount -t tmpfs run run
mount -t tmpfs tmp tmp
mkdir -p tmp/real-sys run/netns
mount -t sysfs sys tmp/real-sys
mount -t tmpfs sys sys
mkdir -p sys/devices sys/class/net sys/class/infiniband sys/class/infiniband_verbs sys/bus/pci/devices sys/bus/pci/drivers/igbvf
mount --bind tmp/real-sys/devices sys/devices
mount --bind tmp/real-sys/class/net sys/class/net
ip link set lo up
exec chroot {place}/root sh -c 'mount --make-rshared /; echo ready; exec sleep infinity'
"""
# It records what a plugin is told, and passes it on.
RECORDER = f"""#!/bin/sh
told=$(tr -d '\\n')
printf '%s\\t%s\\t%s\\t%s\\n' "$CNI_COMMAND" "$CNI_IFNAME" "${{0##*/}}" "$told" >>{CALLS}
printf '%s' "$told" | {CNI_PROGRAMS}/${{0##*/}}
"""


class Apart:
    """The machine. folder: on this machine, for its files."""

    def __init__(self, folder: pathlib.Path, lane: Lane) -> None:
        self.lane, self.folder = lane, folder
        self.daemons: list[subprocess.Popen[bytes]] = []
        self.authority = folder / "ca.pem"  # the CA certificate of the API server
        place = folder / "apart"
        place.mkdir()
        script = "set -e; exec 2>&1" + SETUP.format(place=place)
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--net", "sh", "-c", script], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        assert self.process.stdout
        said = []
        for line in self.process.stdout:
            said.append(line.decode())
            if line.strip() == b"ready":
                break
        else:
            raise AssertionError("".join(said))
        self.root = pathlib.Path("/proc", str(self.process.pid), "root")
        self.inside = ["nsenter", "-t", str(self.process.pid), "-m", "-n", "-r", "-w", "--"]

    def run(self, command: str, check: bool = True, data: str = "") -> str:
        """Run a command there in a shell; return its output."""
        ran = subprocess.run(
            [*self.inside, "sh", "-c", command],
            check=False,
            input=data,
            capture_output=True,
            text=True,
        )
        assert not check or ran.returncode == 0, f"{command}: {ran.returncode}\n{ran.stdout}{ran.stderr}"
        return ran.stdout.strip()

    def close(self) -> None:
        for daemon in self.daemons:
            daemon.terminate()
        time.sleep(1)
        self.process.kill()
        self.process.wait()

    def until(self, true: t.Callable[[], bool], what: str, bound_s: float = 120) -> None:
        end = time.monotonic() + bound_s
        while not true():
            assert time.monotonic() < end, f"{what}: not within {bound_s:g} s"
            time.sleep(0.3)

    # --- a node's parts -------------------------------------------------------------------------------------------------

    def cni_plugins(self) -> None:
        """Install Debian's CNI plugins there."""
        for program in self.lane.cni_plugins().iterdir():
            self.cni_plugin(program)
        self.run(f"mkdir -p {CNI_CONF}; : >{CALLS}")

    def cni_plugin(self, program: pathlib.Path) -> None:
        """Install a plugin there, behind a recorder of what it is told."""
        place, recorder = (self.root / folder[1:] / program.name for folder in (CNI_PROGRAMS, CNI_BIN))
        for made, data in ((place, program.read_bytes()), (recorder, RECORDER.encode())):
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_bytes(data)
            made.chmod(0o755)

    def calls(self) -> list[tuple[str, str, str, Plain]]:
        """Return what plugins were told since the last time: command, interface, plugin, configuration."""
        place = self.root / CALLS[1:]
        lines = place.read_text(encoding="utf-8").splitlines()
        place.write_text("", encoding="utf-8")
        told = [line.split("\t", 3) for line in lines]
        return [(command, ifname, plugin, json.loads(conf)) for command, ifname, plugin, conf in told]

    def function(self, pci: str, netdev: str, rdma: str = "") -> None:
        """Make a PCI function: a VF whose interface is one end of a veth. rdma: the name of its RDMA device."""
        files = {"vendor": "0x8086", "device": "0x10ca", "class": "0x020000", "revision": "0x01", "numa_node": "-1"}
        files |= {"subsystem_vendor": "0x0000", "subsystem_device": "0x0000"}
        files |= {"modalias": "pci:v00008086d000010CAsv00000000sd00000000bc02sc00i00"}
        place = self.root / "sys/bus/pci/devices" / pci
        (place / "net" / netdev).mkdir(parents=True)
        for name, text in files.items():
            (place / name).write_text(text + "\n", encoding="ascii")
        (place / "driver").symlink_to("/sys/bus/pci/drivers/igbvf")
        (place / "subsystem").symlink_to("/sys/bus/pci")
        if rdma:
            (place / "infiniband" / rdma).mkdir(parents=True)
            verbs = self.root / "sys/class/infiniband_verbs" / f"uverbs{rdma[-1]}"
            verbs.mkdir()
            (verbs / "ibdev").write_text(rdma + "\n", encoding="ascii")
        self.run(f"ip link add {netdev} type veth peer name {netdev}-wire && ip link set {netdev}-wire up mtu 9000")

    def container(
        self,
        workload: Plain,
        number: int,
        image: pathlib.Path | t.Mapping[str, bytes],
        maps: t.Mapping[str, t.Mapping[str, str]],
        init: bool = False,
    ) -> list[str]:
        """Unpack a container of a DaemonSet, with its volumes (maps: ConfigMaps by name); return the command that runs it.

        image: an archive, or the files that come on top of this machine's own.
        """
        spec = workload["spec"]["template"]["spec"]
        made = spec["initContainers" if init else "containers"][number]
        place = f"/containers/{workload['metadata']['name']}-{made['name']}"
        entrypoint: list[str] = []
        if isinstance(image, pathlib.Path):
            entrypoint = self._unpack(image, self.root / place[1:])
        else:
            self.run(f"mkdir -p {place} && mount --bind / {place}")
            for path, data in image.items():
                (self.root / path).parent.mkdir(parents=True, exist_ok=True)
                (self.root / path).write_bytes(data)
                (self.root / path).chmod(0o755)
        script = [f"mkdir -p {place}/proc {place}/dev {place}/sys"]
        script += [f"mount --rbind /{one} {place}/{one}" for one in ("proc", "dev", "sys")]
        volumes = {each["name"]: each for each in spec["volumes"]}
        for mount in sorted(made.get("volumeMounts", ()), key=lambda one: str(one["mountPath"])):
            volume, where = volumes[mount["name"]], f"{place}{mount['mountPath']}"
            if "hostPath" in volume:
                path = volume["hostPath"]["path"]
                script.append(f"mkdir -p {path} {where} && mount --rbind {path} {where} && mount --make-rslave {where}")
            else:
                for name, text in maps[volume["configMap"]["name"]].items():
                    (self.root / where[1:]).mkdir(parents=True, exist_ok=True)
                    (self.root / where[1:] / name).write_text(text, encoding="utf-8")
        account = spec.get("serviceAccountName")
        if account:
            top = self.root / place[1:]
            # If /var/run is a link, this machine would follow it to a path of its own.
            own = top / (ACCOUNT.removeprefix("var/") if (top / "var/run").is_symlink() else ACCOUNT)
            own.mkdir(parents=True, exist_ok=True)
            (own / "token").write_text("token", encoding="ascii")
            (own / "ca.crt").write_bytes(self.authority.read_bytes())
        self.run("; ".join(["set -e", *script]))
        env = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(API),
        }
        for each in made.get("env", ()):
            env[each["name"]] = each.get("value", NODE)  # our only fieldRef is the node's name
        words = made.get("command") or entrypoint
        args = [arg.replace("$(NODE_NAME)", NODE) for arg in made.get("args", ())]
        told = [f"{key}={value}" for key, value in env.items()]
        return ["env", "-i", *told, "chroot", place, *words, *args]

    def _unpack(self, archive: pathlib.Path, place: pathlib.Path) -> list[str]:
        place.mkdir(parents=True)
        with tarfile.open(archive) as packed:

            def blob(digest: str) -> t.IO[bytes]:
                found = packed.extractfile(f"blobs/{digest.replace(':', '/')}")
                assert found
                return found

            index = packed.extractfile("index.json")
            assert index
            manifest = json.load(blob(json.load(index)["manifests"][0]["digest"]))
            for layer in manifest["layers"]:
                with tarfile.open(fileobj=blob(layer["digest"])) as files:
                    files.extractall(place, filter="tar")
            return list(json.load(blob(manifest["config"]["digest"]))["config"].get("Entrypoint") or ())

    def daemon(self, command: t.Sequence[str], log: str) -> subprocess.Popen[bytes]:
        """Start a program that keeps running."""
        with (self.folder / log).open("wb") as output:
            made = subprocess.Popen([*self.inside, *command], stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        self.daemons.append(made)
        return made

    @staticmethod
    def stop(running: subprocess.Popen[bytes]) -> None:
        """Stop one, as a kubelet does."""
        running.terminate()
        running.wait(30)

    def cni(self, command: str, pod: Plain, ifname: str = "eth0") -> tuple[int, Plain]:
        """Call CNI as a container runtime does, with the first configuration that there is; return exit status and answer."""
        conf = self.run(f"cat $(ls {CNI_CONF}/*.conf* | head -1)")
        meta = pod["metadata"]
        args = {"IgnoreUnknown": "1", "K8S_POD_NAMESPACE": meta["namespace"], "K8S_POD_NAME": meta["name"]}
        args |= {"K8S_POD_INFRA_CONTAINER_ID": meta["uid"], "K8S_POD_UID": meta["uid"]}
        env = {"CNI_COMMAND": command, "CNI_CONTAINERID": meta["uid"], "CNI_NETNS": f"/run/netns/{meta['name']}"}
        env |= {"CNI_IFNAME": ifname, "CNI_PATH": CNI_BIN, "CNI_ARGS": ";".join(f"{k}={v}" for k, v in args.items())}
        told = " ".join(shlex.quote(f"{key}={value}") for key, value in env.items())
        ran = subprocess.run(
            [*self.inside, "sh", "-c", f"env {told} {CNI_BIN}/{json.loads(conf)['type']}"],
            check=False, input=conf, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        return ran.returncode, json.loads(ran.stdout) if ran.stdout.strip() else {}
