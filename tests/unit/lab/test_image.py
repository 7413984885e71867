# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What names an image, and what goes into it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from labkit import config, image, qemu, rootfs

Parts = dict[str, bytes]
PARTS = st.dictionaries(st.text(max_size=8), st.binary(max_size=8), max_size=4)


@given(PARTS, PARTS)
def test_the_digest_is_the_same_for_the_same_content_only(one: Parts, two: Parts) -> None:
    assert (image.digest(one.items()) == image.digest(two.items())) == (one == two)


def test_the_digest_does_not_depend_on_the_order() -> None:
    assert image.digest([("a", b"1"), ("b", b"2")]) == image.digest([("b", b"2"), ("a", b"1")])


def test_content_cannot_slip_from_one_part_into_the_next() -> None:
    assert image.digest([("a", b"bc")]) != image.digest([("ab", b"c")])


def test_the_image_depends_on_packages_guest_files_code_suite_and_keys(tmp_path: Path) -> None:
    lab = config.load({"DGXSPARK_LAB_CACHE": str(tmp_path)}, 0)
    for name in ("id_lab.pub", "host_key.pub"):
        (tmp_path / name).write_text("one", encoding="utf-8")
    names = {name for name, _content in image.sources()}
    assert {"suite", "rootfs.py", "image.py", "guest/packages.txt", "guest/modules.txt"} <= names
    assert any(name.startswith("guest/files/etc/udev/") for name in names)
    before = image.key(lab)
    (tmp_path / "id_lab.pub").write_text("two", encoding="utf-8")
    assert image.key(lab) != before


def test_what_is_added_to_the_guest_comes_on_top_and_makes_another_image(tmp_path: Path) -> None:
    added = tmp_path / "added"
    (added / "files/etc").mkdir(parents=True)
    (added / "packages.txt").write_text("# for this\ncontainerd runc\n", encoding="utf-8")
    (added / "files/etc/x").write_text("one", encoding="utf-8")
    lab = config.load({"DGXSPARK_LAB_CACHE": str(tmp_path), "DGXSPARK_LAB_GUEST": str(added)}, 0)
    for name in ("id_lab.pub", "host_key.pub"):
        (tmp_path / name).write_text("one", encoding="utf-8")
    assert rootfs.entries("packages.txt", lab.guest) == [*rootfs.entries("packages.txt"), "containerd", "runc"]
    assert rootfs.entries("modules.txt", lab.guest) == rootfs.entries("modules.txt")
    keys = {image.key(lab), image.key(config.load({"DGXSPARK_LAB_CACHE": str(tmp_path)}, 0))}
    (added / "files/etc/x").write_text("two", encoding="utf-8")
    assert len(keys | {image.key(lab)}) == 3
    hook = next(word for word in image.bootstrap_command(lab, tmp_path / "out") if word.startswith("--customize-hook"))
    assert hook.endswith(f'"{added}"')


def test_files_are_copied_with_the_mode_that_their_content_asks_for(tmp_path: Path) -> None:
    (tmp_path / "files/bin").mkdir(parents=True)
    (tmp_path / "root").mkdir()
    for name, data in {"script": b"#!/bin/sh\n", "program": b"\x7fELF...", "text": b"text"}.items():
        (tmp_path / "files/bin" / name).write_bytes(data)
    rootfs.copy_files(tmp_path / "root", tmp_path / "files")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "root/bin").iterdir()}
    assert modes == {"script": 0o755, "program": 0o755, "text": 0o644}


def test_a_build_that_ends_badly_leaves_nothing(tmp_path: Path) -> None:
    lab = config.load({"DGXSPARK_LAB_CACHE": str(tmp_path)}, 0)
    with pytest.raises(RuntimeError), image.building(lab, "images", "x") as folder:
        (folder / "half").touch()
        raise RuntimeError
    assert list(tmp_path.rglob("*")) == [tmp_path / "images"]


def test_a_build_that_was_killed_is_swept_by_the_next(tmp_path: Path) -> None:
    lab = config.load({"DGXSPARK_LAB_CACHE": str(tmp_path)}, 0)
    (tmp_path / "build-dead").mkdir()
    with image.building(lab, "images", "x") as folder:
        (folder / "root.ext4").touch()
    assert not (tmp_path / "build-dead").exists()
    assert (tmp_path / "images" / "x" / "root.ext4").exists()


def test_vfs_are_where_the_card_has_them() -> None:
    addresses = [rootfs.vf_address("0000:01", index) for index in range(7)]
    assert addresses == [f"0000:01:{end}" for end in ("10.0", "10.2", "10.4", "10.6", "11.0", "11.2", "11.4")]


def test_every_interface_has_one_name_and_one_place() -> None:
    files = rootfs.link_files()
    assert len(files) == 2 * (1 + rootfs.VFS) + 1
    fabric = [text for text in files.values() if "Path=" in text]
    assert len({text.split("\n")[1] for text in fabric}) == len(fabric)
    assert "Path=pci-0000:02:10.2\n\n[Link]\nName=enP2p1s0f0v1\n" in files["10-enP2p1s0f0v1.link"]
    assert all(len(name.removeprefix("10-").removesuffix(".link")) <= 15 for name in files), "IFNAMSIZ"


def test_the_guest_and_the_machine_agree_on_the_functions() -> None:
    assert tuple(f"{stem}np0" for _path, stem in rootfs.FUNCTIONS) == config.FUNCTIONS


def test_lists_have_no_comments_and_no_doubles() -> None:
    for name in ("packages.txt", "modules.txt", "masked-units.txt", "masked-rules.txt"):
        words = rootfs.entries(name)
        assert words
        assert not [word for word in words if "#" in word]
        assert len(words) == len(set(words)), name


def test_cpio_members_are_aligned_and_carry_their_data() -> None:
    member = rootfs.cpio_entry("init", 0o100755, b"12345", 1)
    assert len(member) % 4 == 0
    assert member.startswith(b"070701")
    assert int(member[54:62], 16) == 5
    assert b"init\0" in member and b"12345" in member


def test_a_machine_keeps_to_loopback_and_unix_sockets(tmp_path: Path) -> None:
    machine = qemu.Machine("m", tmp_path, tmp_path / "disk", tmp_path, None, "tcg", 22201, 512)
    words = " ".join(qemu.command(machine))
    assert "hostfwd=tcp:127.0.0.1:22201-:22" in words
    assert "restrict=on" in words
    assert "mcast" not in words
    netdev, device = qemu.card(3, 1, tmp_path / "wire", {})
    assert netdev["addr"] == {"type": "unix", "path": str(tmp_path / "wire")}
    assert device["mac"] == config.card_mac(3, 1)
    assert device["bus"] == "slot1"


def test_a_machine_that_boots_by_grub_is_given_no_kernel(tmp_path: Path) -> None:
    given, own = (
        qemu.command(qemu.Machine("m", image_, tmp_path / "disk", tmp_path, None, "tcg", None, 512))
        for image_ in (tmp_path, None)
    )
    assert "-kernel" in given and qemu.KERNEL_COMMAND_LINE in given
    assert not {"-kernel", "-initrd", "-append"} & set(own)
    lab = config.load({"DGXSPARK_LAB_CACHE": str(tmp_path), "DGXSPARK_LAB_BOOT": "grub"}, 0)
    hook = next(word for word in image.bootstrap_command(lab, tmp_path / "out") if word.startswith("--customize-hook"))
    assert hook.endswith(f'"{qemu.KERNEL_COMMAND_LINE}"')


def test_a_disk_that_grub_boots_has_its_sectors_before_the_one_partition(tmp_path: Path) -> None:
    grub = tmp_path / "boot/grub"
    (grub / "i386-pc").mkdir(parents=True)
    (grub / "i386-pc/boot.img").write_bytes(b"B" * 512)
    (grub / "core.img").write_bytes(b"C" * 3000)
    disk = tmp_path / "disk.raw"
    with disk.open("wb") as file:
        file.truncate(rootfs.PARTITION_BYTES + 512 * 5000)
        file.seek(rootfs.PARTITION_BYTES)
        file.write(b"F")
    rootfs.write_boot_sectors(disk, tmp_path)
    data = disk.read_bytes()
    assert data[:440] == b"B" * 440 and data[510:512] == b"\x55\xaa" and data[512:3512] == b"C" * 3000
    assert struct.unpack("<B3xB3xII", data[446:462]) == (0x80, 0x83, 2048, 5000) and data[462:510] == bytes(48)
    assert data[rootfs.PARTITION_BYTES :][:1] == b"F"
    (grub / "core.img").write_bytes(b"C" * rootfs.PARTITION_BYTES)
    with pytest.raises(AssertionError, match="fit"):
        rootfs.write_boot_sectors(disk, tmp_path)


def test_a_saved_memory_is_written_once_and_only_read_by_copies(tmp_path: Path) -> None:
    machine = qemu.Machine("m", tmp_path, tmp_path / "disk", tmp_path, tmp_path / "memory", "tcg", None, 768)
    assert "size=768M,mem-path=" in " ".join(qemu.command(machine))
    assert "share=off" in " ".join(qemu.command(machine))
    assert "share=on" in " ".join(qemu.command(machine, shared_memory=True))
