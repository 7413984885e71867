# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turn a fresh Debian tree into the lab's image: run by mmdebstrap as its last hook, `rootfs.py TREE OUT KEYS [ADDED [COMMAND_LINE]]`.

It runs where the tree's owners are right (as root, or inside mmdebstrap's user namespace), so everything that reads
the tree, making the file system included, is done here. OUT gets `root.ext4`, `vmlinuz` and `initrd`.
ADDED is a folder like guest/, whose lists and files come on top. With a kernel's COMMAND_LINE, GRUB boots the node: OUT gets a whole
disk, `disk.raw`, in place of `root.ext4`.
"""

from __future__ import annotations

import lzma
import shutil
import struct
import subprocess
import sys
from pathlib import Path

GUEST = Path(__file__).resolve().parent.parent / "guest"
FREE_MIB, ADDED_FREE_MIB = 600, 4096
"""Room on the root file system beyond what the image fills: without and with a folder that comes on top."""
PARTITION_BYTES = 1 << 20
"""Where the one partition of a disk begins that GRUB boots from."""
VFS = 7
FUNCTIONS = (("0000:01", "enp1s0f0"), ("0000:02", "enP2p1s0f0"))
"""PCI domain and bus behind each root port, and the name that the same function has on a Spark."""
MANAGEMENT = "enP7s7"
BOOT_MODULES = ("crc32c_generic", "virtio_blk", "ext4", "virtio_net")
INIT = """#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev
echo "dgxspark-lab: the kernel runs" >/dev/console
for m in $($b cat /modules/order); do $b insmod /modules/$m; done
i=0
while [ ! -b /dev/vda ] && [ $i -lt 200 ]; do $b usleep 10000; i=$((i+1)); done
$b mount -t ext4 -o rw,noatime /dev/vda /root || { echo "dgxspark-lab: the root disk cannot be mounted"; $b sleep 9999; }
$b mount --move /dev /root/dev
exec $b switch_root /root /sbin/init
"""


def entries(name: str, added: Path | None = None) -> list[str]:
    """Words of a list file in guest/, and in the folder that is added to it, without comments."""
    files = [GUEST / name, *([added / name] if added and (added / name).exists() else [])]
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    return [word for line in lines if not line.startswith("#") for word in line.split()]


def vf_address(bus: str, index: int) -> str:
    """PCI address of a VF of QEMU's igb: the first at offset 0x80 of the function, then every second one."""
    slot = 0x80 + 2 * index
    return f"{bus}:{slot >> 3:02x}.{slot & 7}"


def link_files() -> dict[str, str]:
    """systemd .link files, by name: each fabric interface named after its place on the PCI bus, as on a Spark."""
    names = {f"pci-{bus}:00.0": f"{stem}np0" for bus, stem in FUNCTIONS}
    names |= {f"pci-{vf_address(bus, vf)}": f"{stem}v{vf}" for bus, stem in FUNCTIONS for vf in range(VFS)}
    files = {f"10-{name}.link": f"[Match]\nPath={path}\n\n[Link]\nName={name}\n" for path, name in names.items()}
    files[f"10-{MANAGEMENT}.link"] = f"[Match]\nDriver=virtio_net\n\n[Link]\nName={MANAGEMENT}\n"
    return files


def dependencies(base: Path) -> dict[str, list[str]]:
    """modules.dep: each module's path and the paths it needs, relative to the modules folder."""
    lines = (base / "modules.dep").read_text(encoding="utf-8").splitlines()
    return {path: needed.split() for path, _sep, needed in (line.partition(":") for line in lines)}


def module_name(path: str) -> str:
    """The module's name as the kernel writes it."""
    return Path(path).name.split(".ko")[0].replace("-", "_")


def keep_modules(base: Path, added: Path | None) -> None:
    """Keep the listed modules and their dependencies, uncompressed (modprobe need not unpack on an emulated core)."""
    needs = dependencies(base)
    wanted = {path for path in needs if module_name(path) in set(entries("modules.txt", added))}
    wanted |= {need for path in wanted for need in needs[path]}
    kept = base.with_name(base.name + ".kept")
    for path in sorted(wanted):
        target = kept / path.removesuffix(".xz")
        target.parent.mkdir(parents=True, exist_ok=True)
        data = (base / path).read_bytes()
        target.write_bytes(lzma.decompress(data) if path.endswith(".xz") else data)
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        shutil.copy(base / name, kept / name)
    shutil.rmtree(base)
    kept.rename(base)


def cpio_entry(name: str, mode: int, data: bytes, number: int) -> bytes:
    """One member of a "newc" cpio archive."""
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    head = b"070701" + "".join(f"{value:08x}" for value in fields).encode() + name.encode() + b"\0"
    return head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4)


def initrd(root: Path, base: Path) -> bytes:
    """An initramfs that mounts the virtio disk and nothing else."""
    needs = dependencies(base)
    paths = {module_name(path): path for path in needs}
    order: list[str] = []
    for name in BOOT_MODULES:
        for path in [*reversed(needs.get(paths.get(name, ""), [])), paths.get(name, "")]:
            if path and path not in order:
                order.append(path)
    members = [(folder, 0o040755, b"") for folder in ("bin", "dev", "modules", "proc", "root")]
    members += [("bin/busybox", 0o100755, (root / "usr/bin/busybox").read_bytes()), ("init", 0o100755, INIT.encode())]
    members += [(f"modules/{Path(path).name}", 0o100644, (base / path).read_bytes()) for path in order]
    members += [("modules/order", 0o100644, "\n".join(Path(path).name for path in order).encode())]
    members += [("TRAILER!!!", 0, b"")]
    return b"".join(cpio_entry(name, mode, data, number) for number, (name, mode, data) in enumerate(members, 1))


def copy_files(root: Path, folder: Path) -> None:
    """The files of a folder, owned by root, with modes that do not depend on the checkout's."""
    for source in sorted(folder.rglob("*")):
        target = root / source.relative_to(folder)
        if source.is_dir():
            target.mkdir(exist_ok=True)
            continue
        data = source.read_bytes()
        target.write_bytes(data)
        secret = target.parent.name == "netplan"
        target.chmod(0o600 if secret else 0o755 if data.startswith((b"#!", b"\x7fELF")) else 0o644)


def copy_guest_files(root: Path, added: Path | None) -> None:
    """The files of guest/files and of what is added, and the interfaces' names."""
    for folder in (GUEST, added):
        if folder:
            copy_files(root, folder / "files")
    for name, text in link_files().items():
        (root / "etc/systemd/network" / name).write_text(text, encoding="utf-8")


def put(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file of the guest, replacing a link that may be in its place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def configure(root: Path, keys: Path, added: Path | None) -> None:
    """Names, keys and units of the guest."""
    copy_guest_files(root, added)
    put(root / "etc/hostname", "spark\n")
    put(root / "etc/hosts", "127.0.0.1 localhost\n127.0.1.1 spark\n")
    put(root / "etc/resolv.conf", "nameserver 10.0.2.3\n")
    put(root / "etc/machine-id", "uninitialized\n")
    put(root / "root/.ssh/authorized_keys", (keys / "id_lab.pub").read_text(encoding="utf-8"), 0o600)
    (root / "root/.ssh").chmod(0o700)
    for stale in (root / "etc/ssh").glob("ssh_host_*"):
        stale.unlink()
    host_key = root / "etc/ssh/ssh_host_ed25519_key"
    put(host_key, (keys / "host_key").read_text(encoding="utf-8"), 0o600)
    put(host_key.with_suffix(".pub"), (keys / "host_key.pub").read_text(encoding="utf-8"))
    masks = [("etc/systemd/system", name) for name in entries("masked-units.txt", added)]
    masks += [("etc/udev/rules.d", f"{name}.rules") for name in entries("masked-rules.txt", added)]
    for folder, name in masks:
        link = root / folder / name
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")
    in_guest(root, "systemctl", "--quiet", "enable", "systemd-networkd.service", "ssh.service")
    in_guest(root, "systemctl", "--quiet", "disable", "nftables.service")
    in_guest(root, "systemctl", "--quiet", "set-default", "multi-user.target")
    # systemd rebuilds its catalogues at boot when /usr looks newer than these.
    for marker in ("etc/.updated", "var/.updated"):
        put(root / marker, "")


def in_guest(root: Path, *command: str) -> None:
    """Run a command of the guest in its tree."""
    subprocess.run(["chroot", str(root), *command], check=True, stdout=subprocess.DEVNULL)


def shrink(root: Path) -> None:
    """Drop what only package management and translations need."""
    for folder in ("var/cache/apt", "var/lib/apt/lists", "usr/share/i18n", "usr/share/locale", "usr/lib/udev/hwdb.d"):
        shutil.rmtree(root / folder, ignore_errors=True)


def empty_boot(root: Path) -> None:
    """Drop the kernel, which QEMU is given."""
    for path in (root / "boot").glob("*"):
        path.unlink()


def add_grub(root: Path, kernel: str, command_line: str) -> None:
    """What grub-install and an initrd's first update would do on a running node.

    The menu has the image's own kernel alone; a kernel's package, or update-grub, writes the real one.
    """
    put(
        root / "etc/default/grub",
        "GRUB_DEFAULT=0\nGRUB_TIMEOUT=2\nGRUB_DISTRIBUTOR=Debian\nGRUB_TERMINAL=serial\n"
        f'GRUB_SERIAL_COMMAND="serial --speed=115200"\nGRUB_CMDLINE_LINUX="{command_line}"\n',
    )
    # What an initrd of a lab node has no use for; each costs seconds of an emulated core with every kernel.
    for hook in ("dmsetup", "fsck", "keymap", "resume", "thermal"):
        (root / "usr/share/initramfs-tools/hooks" / hook).chmod(0o644)
    (root / "usr/lib/udev/hwdb.bin").unlink(missing_ok=True)
    in_guest(root, "update-initramfs", "-c", "-k", kernel)
    shutil.copytree(root / "usr/lib/grub/i386-pc", root / "boot/grub/i386-pc")
    core = ("biosdisk", "part_msdos", "ext2")
    in_guest(root, "grub-mkimage", "-O", "i386-pc", "-p", "(hd0,msdos1)/boot/grub", "-o", "/boot/grub/core.img", *core)
    in_guest(root, "grub-editenv", "/boot/grub/grubenv", "create")
    put(
        root / "boot/grub/grub.cfg",
        f"linux /boot/vmlinuz-{kernel} root=LABEL=spark ro {command_line}\ninitrd /boot/initrd.img-{kernel}\nboot\n",
    )


def write_boot_sectors(disk: Path, root: Path) -> None:
    """Put GRUB before the one partition of a disk, as grub-install does on the disk that it runs from."""
    grub = root / "boot/grub"
    core = (grub / "core.img").read_bytes()
    first, sectors = PARTITION_BYTES // 512, (disk.stat().st_size - PARTITION_BYTES) // 512
    assert len(core) <= PARTITION_BYTES - 512, "GRUB does not fit before the partition"
    entry = struct.pack("<B3sB3sII", 0x80, b"\xfe\xff\xff", 0x83, b"\xfe\xff\xff", first, sectors)
    boot = (grub / "i386-pc/boot.img").read_bytes()[:440] + b"spk1\0\0" + entry.ljust(64, b"\0") + b"\x55\xaa"
    with disk.open("r+b") as file:
        file.write(boot + core)


def main() -> int:
    """Finish the tree and write the image's files."""
    root, out, keys = (Path(argument) for argument in sys.argv[1:4])
    added = Path(sys.argv[4]) if sys.argv[4:] else None
    command_line = sys.argv[5] if sys.argv[5:] else ""
    base = next((root / "usr/lib/modules").iterdir())
    keep_modules(base, added)
    in_guest(root, "depmod", base.name)
    (out / "initrd").write_bytes(initrd(root, base))
    shutil.copy(root / f"boot/vmlinuz-{base.name}", out / "vmlinuz")
    configure(root, keys, added)
    shrink(root)
    if command_line:
        add_grub(root, base.name, command_line)
    else:
        empty_boot(root)
    in_guest(root, "python3", "-m", "compileall", "-q", "-j0", "/usr/share/netplan", "/usr/lib/python3/dist-packages")
    used = int(subprocess.run(["du", "-sxm", str(root)], check=True, capture_output=True, text=True).stdout.split()[0])
    # A plain bind mount shows the tree without the /proc, /sys and /dev that mmdebstrap mounts for its hooks.
    bare = out / "tree"
    bare.mkdir()
    size = f"{used + (ADDED_FREE_MIB if added else FREE_MIB)}M"
    disk, offset = (out / "disk.raw", PARTITION_BYTES) if command_line else (out / "root.ext4", 0)
    script = 'mount --bind "$1" "$2" && exec mke2fs -q -t ext4 -J size=8 -L spark -E "offset=$5" -d "$2" "$3" "$4"'
    subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", str(root), str(bare), str(disk), size, str(offset)], check=True
    )
    if command_line:
        write_boot_sectors(disk, root)
    bare.rmdir()
    print(f"image: {used} MiB in the root file system", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
