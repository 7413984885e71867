# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring a node's fabric functions to the state that a document describes, changing only what differs.

Used in three places: the module `sriov_vf` imports it; installed as the archive /usr/local/lib/dgxspark/fabric-restore, with what
it imports, it is run by dgxspark-fabric.service at boot (`boot`) and by dgxspark-fabric-vf@.service when an interface comes back,
such as a VF from a pod (`dev NAME`).

The document (/etc/dgxspark/fabric.json) is `{"version": 1, "functions": [FUNCTION, …]}` with
FUNCTION = `{slot, pci, vf_count, mtu, up, eswitch, arp, vfs}` and its `vfs` = `[{index, mac, mtu, up, trust,
spoof_check, arp}, …]`; `arp` maps sysctls of net.ipv4.conf.IFACE to numbers, MTUs are bytes. A null or missing value
means: leave it unchanged.
"""

# Loading pathlib would take longer than setting up a VF.
# ruff: noqa: PTH103, PTH108, PTH110, PTH115, PTH118, PTH119, PTH123, PTH208
from __future__ import annotations

import contextlib
import json
import os
import sys
import time

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.fabric.document import MOST, document_of
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.files import atomic_write
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.locks import Held, lock

# A returning VF waits for this program to load, so typing is not imported at run time.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import typing as t

    Document = t.Mapping[str, t.Any]
    Entry = t.Mapping[str, t.Any]

CONFIG = "/etc/dgxspark/fabric.json"
RUN_DIR = "/run/dgxspark-fabric"
PCI_WAIT = 15.0  # seconds that a boot waits for functions that have not appeared yet
NETDEV_WAIT = 60.0  # seconds for the interfaces of newly bound VFs to appear, and for udev to name them
LOCK_WAIT = 120.0  # seconds for another run to finish
WRITE_WAIT = 110.0  # seconds for the kernel to create, remove or bind VFs; less than a unit's start timeout
SLOW = ("/sriov_numvfs", "/driver/unbind", "/drivers_probe")
IFF_UP = 0x1


class RestoreError(Exception):
    """What could not be done, in plain words."""


class KernelHost:
    """The node as files and commands. Paths are relative to `sysfs` and `proc`; tests replace those."""

    def __init__(
        self, sysfs: str = "/sys", proc: str = "/proc", run_dir: str = RUN_DIR, udev: str = "/run/udev"
    ) -> None:
        self.sysfs, self.proc, self.run_dir, self.udev = sysfs, proc, run_dir, udev

    def read(self, path: str) -> str | None:
        """Return a file's text, stripped; None if it is missing or unreadable."""
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read().strip()
        except OSError:
            return None

    def write(self, path: str, value: str) -> None:
        """Write to a kernel file; RestoreError names the file, the value and the kernel's error.

        Creating or removing VFs, and their drivers, may block forever while a process has a VF's device open.
        """
        try:
            if path.endswith(SLOW):
                self._write_aside(path, value)
                return
            with open(path, "w", encoding="utf-8") as file:
                file.write(value)
        except OSError as exc:
            raise RestoreError(f"writing {value!r} to {path}: {exc.strerror}") from exc

    def _write_aside(self, path: str, value: str) -> None:
        """Write in a child process, which is abandoned if the kernel does not return: no signal reaches it."""
        child = os.fork()
        if child == 0:
            code = 255
            try:
                # Readers of this run's output must not wait for the child, nor the next run for its lock.
                os.closerange(0, 1024)
                os.write(os.open(path, os.O_WRONLY | os.O_TRUNC), value.encode())
                code = 0
            except OSError as exc:
                code = exc.errno or 255
            finally:
                os._exit(code)
        until, pause = time.monotonic() + WRITE_WAIT, 0.001
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() > until:
                import signal

                os.kill(child, signal.SIGKILL)
                raise RestoreError(
                    f"writing {value!r} to {path}: the write has not returned within {WRITE_WAIT:g} s (process {child} "
                    "is blocked in it). Something has a VF or its RDMA device open: see `fuser -v /dev/infiniband/uverbs*`, stop "
                    "that, and run again; if nothing can be stopped, reboot the node"
                )
            time.sleep(pause)
            pause = min(2 * pause, 0.1)
        code = os.waitstatus_to_exitcode(ended[1])
        if code:
            raise OSError(code, os.strerror(code) if 0 < code < 255 else "the writing process was killed", path)

    def entries(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; none if it is missing."""
        try:
            return sorted(os.listdir(path))
        except OSError:
            return []

    def target(self, path: str) -> str | None:
        """Return the last part of a link's target; None if there is no link."""
        try:
            return os.path.basename(os.readlink(path))
        except OSError:
            return None

    def exists(self, path: str) -> bool:
        """Return whether this path exists."""
        return os.path.exists(path)

    def command(self, argv: t.Sequence[str], text: str = "", timeout: float = 60) -> tuple[int, str, str]:
        """Run a command with `text` as its input; (127, "", why) if it cannot be run."""
        import subprocess

        try:
            done = subprocess.run(  # pylint: disable=ansible-bad-function
                argv, input=text, capture_output=True, text=True, timeout=timeout, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as exc:
            return 127, "", str(exc)
        return done.returncode, done.stdout, done.stderr

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def clock(self) -> float:
        """Return seconds on a monotonic clock."""
        return time.monotonic()

    # Where things are.

    def pci(self, address: str, leaf: str = "") -> str:
        """Return the path of a PCI device, or of one of its files."""
        return f"{self.sysfs}/bus/pci/devices/{address}" + (f"/{leaf}" if leaf else "")

    def net(self, name: str, leaf: str) -> str:
        """Return the path of a network interface's file."""
        return f"{self.sysfs}/class/net/{name}/{leaf}"

    def sysctl(self, name: str, key: str) -> str:
        """Return the path of an IPv4 sysctl of an interface."""
        return f"{self.proc}/sys/net/ipv4/conf/{name}/{key}"

    def netdev(self, address: str) -> str | None:
        """Return the interface of a PCI device in the host's network namespace; prefers one that is not a VF's representor."""
        names = self.entries(self.pci(address, "net"))
        own = [n for n in names if "f" not in (self.read(self.net(n, "phys_port_name")) or "")]
        return next(iter(own or names), None)

    def named(self, name: str) -> bool:
        """Return whether udev has finished with an interface: once it is up, it may no longer get its name."""
        return not self.exists(self.udev) or self.exists(f"{self.udev}/data/n{self.read(self.net(name, 'ifindex'))}")

    def driver(self, address: str) -> str | None:
        """Return the name of a PCI device's driver."""
        return self.target(self.pci(address, "driver"))

    def vf(self, function: str, index: int) -> str | None:
        """Return the PCI address of a function's VF."""
        return self.target(self.pci(function, f"virtfn{index}"))


def _number(text: str | None) -> int | None:
    try:
        return int(text or "", 0)
    except ValueError:
        return None


@contextlib.contextmanager
def busy(host: KernelHost) -> t.Iterator[None]:
    """Keep other runs out, and the udev rule inactive: it checks whether the process named in the mark is alive."""
    os.makedirs(host.run_dir, mode=0o755, exist_ok=True)
    mark = os.path.join(host.run_dir, "busy")
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(
                lock(os.path.join(host.run_dir, "lock"), f"process {os.getpid()}", LOCK_WAIT, host.clock, host.sleep)
            )
        except Held as exc:
            raise RestoreError(f"another run has been active for {LOCK_WAIT:.0f} s ({mark} names it)") from exc
        with open(mark, "w", encoding="utf-8") as file:
            file.write(f"DGXSPARK_BUSY={os.getpid()}\n")
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                os.unlink(mark)


class Restorer:
    """One run over functions of a document. `done` and `problems` list what it did and what failed."""

    def __init__(self, host: KernelHost) -> None:
        self.host = host
        self.done: list[str] = []
        self.problems: list[str] = []
        self.made: set[str] = set()  # VFs that this run created
        self._links: dict[str, dict[str, t.Any]] | None = None

    @contextlib.contextmanager
    def _noting(self, what: str) -> t.Iterator[None]:
        """Continue after a failure: one faulty VF must not keep the others from being set."""
        try:
            yield
        except RestoreError as exc:
            self.problems.append(f"{what}: {exc}")

    def _set(self, what: str, path: str, wanted: t.Any) -> None:
        """Write a number if the current one differs."""
        if wanted is None or _number(self.host.read(path)) == wanted:
            return
        with self._noting(what):
            self.host.write(path, str(wanted))
            self.done.append(f"{what} = {wanted}")

    def _ip(self, lines: t.Sequence[str]) -> None:
        """Run an `ip` batch, which continues after a failed line and names it."""
        if not lines:
            return
        code, _out, err = self.host.command(["ip", "-force", "-batch", "-"], "".join(f"{line}\n" for line in lines))
        if code:
            self.problems.append(f"ip {'; '.join(lines)}: {' '.join(err.split()) or f'exit status {code}'}")
        else:
            self.done += [f"ip {line}" for line in lines]

    def _links_now(self) -> dict[str, dict[str, t.Any]]:
        if self._links is None:
            code, out, err = self.host.command(["ip", "-j", "link", "show"])
            if code:
                raise RestoreError(f"ip -j link show: {' '.join(err.split()) or f'exit status {code}'}")
            self._links = {str(link["ifname"]): link for link in json.loads(out or "[]")}
        return self._links

    # The number of VFs.

    def eswitch(self, pci: str) -> str | None:
        """Return a function's eswitch mode; None if it has none or it is unknown. Only mlx5 is queried."""
        if self.host.driver(pci) == "mlx5_core":
            code, out, _err = self.host.command(["devlink", "-j", "dev", "eswitch", "show", f"pci/{pci}"])
            with contextlib.suppress(ValueError, AttributeError):
                mode = None if code else json.loads(out or "{}").get("dev", {}).get(f"pci/{pci}", {}).get("mode")
                return str(mode) if mode else None
        return None

    def count(self, function: Entry) -> None:
        """Set a function's MTU, link and number of VFs. VFs are created without drivers: a driver must find the MAC already set."""
        host, pci, slot, wanted = self.host, str(function["pci"]), str(function["slot"]), function.get("vf_count")
        name = host.netdev(pci)
        # The function's MTU and link come first: a VF needs both from its first moment on.
        if name:
            self._link(slot, name, function)
        mode = function.get("eswitch")
        other_mode = mode is not None and self.eswitch(pci) not in (None, mode)
        path = host.pci(pci, "sriov_numvfs")
        current = _number(host.read(path))
        if wanted is None or (current == wanted and not other_mode):
            return
        if current is None:
            if wanted:
                raise RestoreError(f"{pci} offers no VFs: {path} does not exist")
            return
        if wanted and name is None:
            raise RestoreError(f"{pci} has no network interface (driver {host.driver(pci) or 'none'})")
        away = [i for i in range(current) if self._away(host.vf(pci, i))]
        if away:
            which = ", ".join(f"{slot}v{i}" for i in away)
            raise RestoreError(f"{pci}: not changing {current} VFs to {wanted} while {which} is not on the host")
        if current:
            host.write(path, "0")
        if other_mode:
            code, _out, err = host.command(["devlink", "dev", "eswitch", "set", f"pci/{pci}", "mode", str(mode)])
            if code:
                raise RestoreError(f"{pci}: eswitch mode {mode}: {' '.join(err.split())}")
            self.done.append(f"{slot} eswitch mode = {mode}")
        if wanted:
            probe = host.pci(pci, "sriov_drivers_autoprobe")
            before = host.read(probe)
            if before is not None:
                host.write(probe, "0")
            try:
                host.write(path, str(wanted))
            finally:
                if before is not None:
                    # Without autoprobe no driver could be bound to the VFs at all.
                    host.write(probe, "1")
        there = [f for i in range(max(current, wanted)) if (f := host.vf(pci, i))]
        self._forget(there)
        self.made.update(there)
        self.done.append(f"{slot} VFs = {wanted}")

    def _away(self, vf: str | None) -> bool:
        """Whether a VF has a network driver but no interface here: it is in another network namespace.

        A VF that this run created is not: a driver that is still loading is already listed, its interface appears later.
        """
        if vf is None or vf in self.made or self.host.netdev(vf) is not None:
            return False
        driver = self.host.driver(vf)
        return driver is not None and not driver.startswith(("vfio", "pci-stub"))

    # The function's settings for its VFs.

    def admin(self, function: Entry, only: t.Container[str] | None = None) -> None:
        """Set MAC, trust and spoof check of VFs through their function, where they differ."""
        name = self.host.netdev(str(function["pci"]))
        if name is None or not function.get("vfs"):
            return
        held = {int(vf["vf"]): vf for vf in self._links_now().get(name, {}).get("vfinfo_list", [])}
        lines = []
        for vf in function["vfs"]:
            index, address = int(vf["index"]), self.host.vf(str(function["pci"]), int(vf["index"]))
            if address is None or self._away(address) or (only is not None and address not in only):
                continue
            now = held.get(index, {})
            # igb names the key "mac", others "address".
            if vf.get("mac") and now.get("mac", now.get("address")) != vf["mac"]:
                lines.append(f"link set dev {name} vf {index} mac {vf['mac']}")
            for key, option in (("trust", "trust"), ("spoof_check", "spoofchk")):
                if vf.get(key) is not None and now.get(option) != vf[key]:
                    lines.append(f"link set dev {name} vf {index} {option} {'on' if vf[key] else 'off'}")
        self._ip(lines)

    # Drivers.

    def stale(self, function: Entry, only: t.Container[str] | None = None) -> list[str]:
        """Return VFs without a driver, and those whose interface lacks the MAC (or whose HCA lacks a GUID)."""
        host, stale = self.host, []
        for vf in function.get("vfs", ()):
            address = host.vf(str(function["pci"]), int(vf["index"]))
            if address is None or (only is not None and address not in only):
                continue
            name = host.netdev(address)
            if name is None:
                if host.driver(address) is None or address in self.made:
                    stale.append(address)
                continue
            mac = vf.get("mac")
            hcas = host.entries(host.pci(address, "infiniband"))
            guids = [host.read(host.pci(address, f"infiniband/{hca}/node_guid")) or "?" for hca in hcas]
            if mac and (host.read(host.net(name, "address")) != mac or any(not g.strip("0:") for g in guids)):
                stale.append(address)
        return stale

    def bind(self, addresses: t.Sequence[str]) -> None:
        """Rebind drivers, and wait until the interfaces exist and udev has finished with them."""
        host = self.host
        probe = f"{host.sysfs}/bus/pci/drivers_probe"
        self._forget(addresses)
        waiting = []
        for address in addresses:
            with self._noting(f"VF {address}"):
                try:
                    if host.driver(address) is not None:
                        host.write(host.pci(address, "driver/unbind"), address)
                except RestoreError:
                    # The link exists while a driver probes, and disappears if that fails (really_probe, drivers/base/dd.c).
                    if host.driver(address) is not None:
                        raise
                host.write(probe, address)
                waiting.append(address)
                self.done.append(f"VF {address} bound")
        until = host.clock() + NETDEV_WAIT
        while late := [a for a in waiting if not ((name := host.netdev(a)) and host.named(name))]:
            if host.clock() > until:
                without = [address for address in late if host.netdev(address) is None]
                self.problems += [f"VF {address}: no interface after {NETDEV_WAIT:.0f} s" for address in without]
                break
            host.sleep(0.1)
            for address in late:
                # udev may load the driver's module only now.
                if host.driver(address) is None:
                    with contextlib.suppress(RestoreError):
                        host.write(probe, address)
        # What udev still runs for them (such as systemd-sysctl) must not undo the settings that follow.
        until = min(until, host.clock() + 5)
        while host.exists(f"{host.udev}/queue") and host.clock() < until:
            host.sleep(0.1)

    # Interfaces.

    def _link(self, what: str, name: str, entry: Entry) -> None:
        """Set sysctls, MTU and link state of one interface of the host."""
        host = self.host
        for key, value in (entry.get("arp") or {}).items():
            self._set(f"{what} {key}", host.sysctl(name, key), value)
        self._set(f"{what} mtu", host.net(name, "mtu"), entry.get("mtu"))
        flags, up = _number(host.read(host.net(name, "flags"))), entry.get("up")
        if flags is not None and up is not None and bool(flags & IFF_UP) != up:
            with self._noting(f"{what} link"):
                host.write(host.net(name, "flags"), hex(flags ^ IFF_UP))
                self.done.append(f"{what} link {'up' if up else 'down'}")

    def interfaces(self, function: Entry, only: t.Container[str] | None = None) -> None:
        """Restore the interfaces' names and settings."""
        host, slot = self.host, str(function["slot"])
        name = host.netdev(str(function["pci"]))
        if name and only is None:
            self._link(slot, name, function)
        for vf in function.get("vfs", ()):
            address = host.vf(str(function["pci"]), int(vf["index"]))
            if address is not None and (only is None or address in only) and (name := host.netdev(address)):
                self._link(f"{slot}v{vf['index']}", self._named(address, name), vf)

    def names(self) -> dict[str, str]:
        """Return the names that VFs had at their creation, by PCI address."""
        with contextlib.suppress(ValueError):
            names = json.loads(self.host.read(os.path.join(self.host.run_dir, "names.json")) or "{}")
            return {str(address): str(name) for address, name in names.items()}
        return {}

    def _write_names(self, names: dict[str, str]) -> None:
        atomic_write(os.path.join(self.host.run_dir, "names.json"), json.dumps(names).encode(), 0o644)

    def _forget(self, addresses: t.Iterable[str]) -> None:
        self._write_names({a: n for a, n in self.names().items() if a not in set(addresses)})

    def _named(self, address: str, name: str) -> str:
        """Undo a pod's renaming: a VF may come back from a dead namespace as `net1`."""
        names = self.names()
        wanted = names.get(address)
        if wanted is None and self.host.named(name):
            self._write_names(names | {address: name})
        if wanted in (None, name) or self.host.exists(self.host.net(str(wanted), "")):
            return name
        self._ip([f"link set dev {name} down", f"link set dev {name} name {wanted}"])
        return str(self.host.netdev(address))


def restore(document: Document, host: KernelHost, only: str | None = None) -> tuple[list[str], list[str]]:
    """Bring the node to the document's state. Returns what was done, and what failed.

    only: the PCI address of one function, or of one VF (which then gets its settings; counts stay unchanged).
    """
    run = Restorer(host)
    functions = [f for f in document.get("functions", ()) if host.exists(host.pci(str(f["pci"])))]
    whole = [f for f in functions if only in (None, f["pci"])]
    with busy(host):
        if only is None:
            # From here on, the udev rule handles functions that appear late.
            with open(os.path.join(host.run_dir, "booted"), "w", encoding="utf-8"):
                pass
        if not whole:
            for function in functions:
                if only and host.target(host.pci(only, "physfn")) == function["pci"]:
                    vfs = {only}
                    with run._noting(str(function["slot"])):
                        if run.stale(function, vfs):
                            run.admin(function, vfs)
                            run.bind(run.stale(function, vfs))
                        run.interfaces(function, vfs)
            return run.done, run.problems
        for function in whole:
            with run._noting(str(function["slot"])):
                run.count(function)
        for function in whole:
            with run._noting(str(function["slot"])):
                run.admin(function)
        # Twice: a driver that was loaded between a VF's creation and the setting of its MAC has used another MAC.
        for _round in range(2):
            stale = [address for function in whole for address in run.stale(function)]
            if not stale:
                break
            run.bind(stale)
        for function in whole:
            run.interfaces(function)
    return run.done, run.problems


def wait_for(document: Document, host: KernelHost) -> list[str]:
    """Wait a bounded time for the functions' interfaces. Returns the slots that have not appeared.

    A function that is not on the PCI bus once udev has been idle for 3 seconds (no cable) is not waited for.
    """
    start = quiet_since = host.clock()
    while True:
        functions = [(str(f["slot"]), str(f["pci"])) for f in document.get("functions", ())]
        missing = [(slot, pci) for slot, pci in functions if not ((name := host.netdev(pci)) and host.named(name))]
        now = host.clock()
        if host.exists(f"{host.udev}/queue"):
            quiet_since = now
        coming = [pci for _slot, pci in missing if host.exists(host.pci(pci))]
        if not missing or now - start > PCI_WAIT or (not coming and now - quiet_since > 3):
            return [slot for slot, pci in missing if host.netdev(pci) is None]
        host.sleep(0.1)


def main(arguments: t.Sequence[str], host: KernelHost, config: str = CONFIG) -> int:
    """Run as `boot` or `dev NAME`. Returns the exit status; prints what was done to standard output."""
    if arguments[:1] not in (["boot"], ["dev"]) or len(arguments) != (1 if arguments[:1] == ["boot"] else 2):
        sys.stderr.write("usage: fabric-restore boot | dev NAME\n")
        return 2
    try:
        with open(config, encoding="utf-8") as file:
            document = document_of(file.read(MOST + 1))
    except (OSError, ValueError) as exc:
        sys.stderr.write(f"{config}: {exc}. Run role sriov_roce again, or remove it: sriov_roce_state=absent.\n")
        return 1
    only = None
    if arguments[0] == "boot":
        missing = wait_for(document, host)
        if missing:
            sys.stdout.write(f"missing (no cable, or switched off?): {', '.join(missing)}\n")
    else:
        only = host.target(host.net(arguments[1], "device"))
        if only is None:
            sys.stdout.write(f"{arguments[1]} has disappeared again\n")
            return 0
    try:
        done, problems = restore(document, host, only)
    except RestoreError as exc:
        done, problems = [], [str(exc)]
    sys.stdout.write("".join(f"{line}\n" for line in done) or "nothing to do\n")
    sys.stderr.write("".join(f"{line}\n" for line in problems))
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:], KernelHost()))
