"""GRUB's menu, and the trial of a kernel, on the file that Debian's and Ubuntu's update-grub write."""

from __future__ import annotations

import pathlib
import re
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils import grub
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.modules import boot_trial
from ansible_collections.dgxspark.cluster.tests.unit.fakes import FakeRun

OLD, NEW = "6.12.117+deb13-amd64", "6.12.118+deb13-amd64"
ID = "ff7875cc-537f-4db1-96b2-9c498d002030"
HEAD = """\
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
   save_env next_entry
   set boot_once=true
else
   set default="%s"
fi
function savedefault {
  if [ -z "${boot_once}" ]; then
    saved_entry="${chosen}"
    save_env saved_entry
  fi
}
"""
TAIL = """\
if [ "$grub_platform" = "efi" ]; then
	fwsetup --is-supported
	if [ "$?" = 0 ]; then
		menuentry 'UEFI Firmware Settings' $menuentry_id_option 'uefi-firmware' {
			fwsetup
		}
	fi
fi
"""


def entry(title: str, ident: str, kernel: str, options: str = "quiet") -> str:
    return (
        f"menuentry '{title}' --class debian --class os $menuentry_id_option '{ident}' {{\n"
        "\tif [ x$grub_platform = xxen ]; then insmod xzio; insmod lzopio; fi\n"
        f"\techo\t'Loading Linux {kernel} ...'\n\tlinux\t/boot/vmlinuz-{kernel} root=UUID={ID} ro {options}\n}}\n"
    )


def menu(*kernels: str, default: str = "0", submenu: bool = True) -> str:
    """A grub.cfg with these kernels, the newest first."""
    text = HEAD % default + entry("Debian GNU/Linux", f"gnulinux-simple-{ID}", kernels[0])
    if submenu:
        text += f"submenu 'Advanced options for Debian GNU/Linux' $menuentry_id_option 'gnulinux-advanced-{ID}' {{\n"
    for kernel in kernels:
        name = f"Debian GNU/Linux, with Linux {kernel}"
        text += entry(name, f"gnulinux-{kernel}-advanced-{ID}", kernel)
        text += entry(f"{name} (recovery mode)", f"gnulinux-{kernel}-recovery-{ID}", kernel, "single")
    return text + ("}\n" if submenu else "") + TAIL


def path(kernel: str, submenu: bool = True) -> str:
    return (f"gnulinux-advanced-{ID}>" if submenu else "") + f"gnulinux-{kernel}-advanced-{ID}"


def test_a_kernel_has_the_entry_below_the_submenu_and_not_the_recovery_one() -> None:
    entries = grub.entries(menu(NEW, OLD))
    assert grub.entry_of(entries, OLD) == path(OLD)
    # The first entry is this kernel's only as long as no newer one is installed.
    assert grub.entry_of(entries, NEW) == path(NEW)
    assert grub.entry_of(grub.entries(menu(NEW, OLD, submenu=False)), OLD) == path(OLD, submenu=False)
    assert grub.entry_of(entries, "6.1.0-1-amd64") is None


@pytest.mark.parametrize(
    ("default", "kernel"),
    [
        ("0", NEW),
        ("1>2", OLD),
        ("1>3", OLD),
        (path(OLD), OLD),
        (f"Advanced options for Debian GNU/Linux>Debian GNU/Linux, with Linux {OLD}", OLD),
        (f"gnulinux-simple-{ID}", NEW),
        ("1", None),
        ("7", None),
        ("uefi-firmware", None),
        ("nothing", None),
    ],
)
def test_a_default_leads_to_a_kernel_by_number_title_or_id(default: str, kernel: str | None) -> None:
    text = menu(NEW, OLD, default=default)
    assert grub.default(text) == default
    assert grub.kernel_of(grub.entries(text), default) == kernel


def test_a_kernel_of_a_boot_partition_of_its_own_is_found() -> None:
    text = menu(NEW, OLD).replace("/boot/vmlinuz-", "/vmlinuz-")
    assert grub.entry_of(grub.entries(text), OLD) == path(OLD)


def test_the_running_kernel_is_the_default_while_the_newest_is_tried_once() -> None:
    tried = grub.trial(menu(NEW, OLD), OLD, None, None)
    assert tried == grub.Trial(NEW, OLD, path(OLD), "0")
    assert grub.noted(tried.text()) == (NEW, OLD, "0")
    assert f"GRUB_DEFAULT='{path(OLD)}'" in tried.text()


def test_there_is_nothing_to_try_where_the_default_s_kernel_runs() -> None:
    assert grub.trial(menu(NEW, OLD), NEW, None, None) is None
    assert grub.trial(menu(NEW, OLD, default="1>2"), OLD, None, None) is None


@pytest.mark.parametrize(
    ("text", "running", "reason"),
    [
        (menu(NEW, OLD, default="${saved_entry}"), OLD, "saved"),
        (menu(NEW, OLD, default="9"), OLD, "leads to no kernel"),
        (menu(NEW), OLD, "no entry of the running kernel"),
        ("", OLD, "saved"),
    ],
)
def test_where_there_can_be_no_trial_it_says_why(text: str, running: str, reason: str) -> None:
    assert reason in str(grub.trial(text, running, None, None))


@given(st.text())
def test_any_file_is_read(text: str) -> None:
    for found in grub.entries(text):
        assert found.path
    grub.default(text)
    grub.kernel_of(grub.entries(menu(NEW, OLD)), text)


class Node:
    """A node's files, and its GRUB's programs; update-grub writes the menu again."""

    def __init__(self, root: pathlib.Path, running: str, *kernels: str) -> None:
        self.root, self.kernels, self.running, self.env = root, list(kernels), running, {}
        self.fs = ("ext2", "")
        self.reads_folder = True
        (root / "boot/grub").mkdir(parents=True)
        self.run = FakeRun()
        self.run.on(["update-grub"], lambda _argv: self.update())
        self.run.on(["grub-reboot"], lambda argv: self.set_next(argv[1]))
        self.run.on(
            ["grub-editenv", "-", "list"], lambda _argv: (0, "".join(f"{k}={v}\n" for k, v in self.env.items()), "")
        )
        self.run.on(["grub-editenv", "-", "unset"], lambda _argv: self.set_next(None))
        self.run.on(["grub-probe", "--target=fs"], lambda _argv: (0, self.fs[0] + "\n", ""))
        self.run.on(["grub-probe", "--target=abstraction"], lambda _argv: (0, self.fs[1], ""))
        self.update()

    @property
    def file(self) -> pathlib.Path:
        return self.root / grub.TRIAL.lstrip("/")

    def update(self) -> tuple[int, str, str]:
        default = "0"
        if self.reads_folder and self.file.exists():
            default = re.findall(r"GRUB_DEFAULT='?(.*?)'?$", self.file.read_text("utf-8"), re.MULTILINE)[0]
        (self.root / "boot/grub/grub.cfg").write_text(menu(*self.kernels, default=default), "utf-8")
        return 0, "", ""

    def set_next(self, entry: str | None) -> tuple[int, str, str]:
        self.env = {"next_entry": entry} if entry else {}
        return 0, "", ""

    def boot(self) -> str:
        """What GRUB does: the entry of the next boot, once, or the default."""
        text = (self.root / "boot/grub/grub.cfg").read_text("utf-8")
        entry = self.env.pop("next_entry", None) or grub.default(text) or ""
        self.running = grub.kernel_of(grub.entries(text), entry) or ""
        return self.running

    def present(self, kernel: str | None = None, *, check: bool = False) -> tuple[bool, dict[str, t.Any], str | None]:
        changes, trial, reason = grub.Boot(self.run, str(self.root)).present(self.running, kernel, check=check)
        return bool(changes), trial, reason

    def absent(self) -> bool:
        return bool(grub.Boot(self.run, str(self.root)).absent(check=False))


def test_a_new_kernel_boots_once_and_is_the_default_when_it_is_proven(tmp_path: pathlib.Path) -> None:
    node = Node(tmp_path, OLD, NEW, OLD)
    assert node.present(check=True)[0] and not node.file.exists()
    changed, trial, _reason = node.present()
    assert changed and trial == {"kernel": NEW, "before": OLD, "entry": path(OLD)}
    assert not node.present()[0], "it is prepared already"
    assert node.boot() == NEW
    # A second run while it runs keeps the older one as the default.
    assert node.present() == (False, {"kernel": NEW, "before": OLD, "entry": path(OLD)}, None)
    assert node.absent() and not node.absent()
    assert not node.file.exists() and node.boot() == NEW


def test_a_kernel_that_does_not_come_up_is_left_by_cutting_the_power_and_can_be_tried_again(
    tmp_path: pathlib.Path,
) -> None:
    node = Node(tmp_path, OLD, NEW, OLD)
    node.present()
    assert [node.boot(), node.boot(), node.boot()] == [NEW, OLD, OLD]
    assert node.present()[0] and node.boot() == NEW


def test_the_way_back_by_hand_ends_where_it_began(tmp_path: pathlib.Path) -> None:
    node = Node(tmp_path, OLD, NEW, OLD)
    node.present()
    assert [node.boot(), node.boot()] == [NEW, OLD]
    node.kernels.remove(NEW)  # apt-get remove, and its hook
    node.update()
    node.file.unlink()
    node.update()
    assert node.boot() == OLD and node.present() == (False, {}, None)


@pytest.mark.parametrize("running", [NEW, OLD])
def test_an_older_kernel_is_booted_so_that_the_newer_one_can_go(tmp_path: pathlib.Path, running: str) -> None:
    node = Node(tmp_path, running, NEW, OLD)
    changed, trial, _reason = node.present(OLD)
    assert changed and trial["kernel"] == OLD
    assert node.boot() == OLD
    assert not node.present(OLD)[0] or running == NEW
    node.kernels.remove(NEW)
    node.absent()
    assert node.boot() == OLD


def test_where_grub_cannot_write_or_does_not_read_the_folder_nothing_is_left(tmp_path: pathlib.Path) -> None:
    node = Node(tmp_path, OLD, NEW, OLD)
    node.fs = ("ext2", "lvm")
    assert node.present() == (False, {}, "GRUB cannot write to /boot (ext2 lvm)")
    node.fs = ("btrfs", "")
    assert node.present()[2] == "GRUB cannot write to /boot (btrfs)"
    node.fs, node.reads_folder = ("ext2", ""), False
    assert "does not read" in str(node.present()[2])
    assert not node.file.exists() and node.env == {} and node.boot() == NEW
    (tmp_path / "boot/grub/grub.cfg").unlink()
    assert node.present()[2] == "it has no /boot/grub/grub.cfg"


def test_a_program_that_fails_is_named(tmp_path: pathlib.Path) -> None:
    node = Node(tmp_path, OLD, NEW, OLD)
    node.run.on(["update-grub"], (1, "", "no space"))
    with pytest.raises(CollectionError, match="update-grub failed"):
        node.present()


class Module:
    """What the module sees of Ansible."""

    def __init__(self, node: Node, check: bool, **params: t.Any) -> None:
        (node.root / "proc/sys/kernel").mkdir(parents=True, exist_ok=True)
        (node.root / "proc/sys/kernel/osrelease").write_text(node.running + "\n", "utf-8")
        self.params = {
            "state": "present",
            "kernel": None,
            "proc_root": str(node.root / "proc"),
            "system_root": str(node.root),
            **params,
        }
        self.check_mode = check
        self.node = node

    def run_command(self, argv: list[str], **_more: t.Any) -> tuple[int, str, str]:
        return self.node.run(argv)


def test_the_module_tells_what_differed_and_what_is_on_trial(tmp_path: pathlib.Path) -> None:
    node = Node(tmp_path, OLD, NEW, OLD)
    would = boot_trial.run(Module(node, True))
    assert would["changed"] and not node.file.exists() and "GRUB_DEFAULT" in would["diff"]["after"]
    did = boot_trial.run(Module(node, False))
    assert did["trial"]["kernel"] == NEW and did["changes"] == would["changes"]
    node.boot()
    assert boot_trial.run(Module(node, True, state="absent"))["changed"] and node.file.exists()
    assert boot_trial.run(Module(node, False, state="absent"))["changed"] and not node.file.exists()
    assert not boot_trial.run(Module(node, False))["changed"]
