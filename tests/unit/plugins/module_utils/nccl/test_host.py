"""What the node's own processes get: each file once, no other file touched, and all of it undone."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl import host as nccl
from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.host import HostSettings, NcclHost, texts
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.fabric.rollback import FileImage, Host
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

ENV = {"NCCL_NET": "IB", "NCCL_IB_HCA": "=rocep1s0f0v1:1,roceP2p1s0f0v1:1", "GLOO_SOCKET_IFNAME": "enp1s0f0v1"}
PORTS = "net.ipv4.ip_local_port_range"
WISH = HostSettings(ENV, "unlimited", 65536, sysctls={PORTS: "50000 51000"})


class Node(Host):
    """A node in a folder. It counts reloads of systemd, and may refuse to write a file."""

    def __init__(self, root: pathlib.Path) -> None:
        super().__init__(str(root))
        self.reloads = 0
        self.refused: str | None = None
        (root / "etc").mkdir()
        (root / "proc/sys/net/ipv4").mkdir(parents=True)
        (root / "proc/sys/net/ipv4/ip_local_port_range").write_text("32768\t60999\n")

    def command(self, argv: t.Sequence[str], timeout: float = 1) -> tuple[int, str, str]:
        assert list(argv) == ["systemctl", "daemon-reload"]
        self.reloads += 1
        return 0, "", ""

    def put(self, path: str, image: FileImage) -> None:
        if path == self.refused:
            raise OSError(30, "Read-only file system", path)
        super().put(path, image)

    def run(self, wish: HostSettings | None, **more: bool) -> nccl.Outcome:
        return NcclHost(self, f"{self.root}/proc").run(wish, **more)

    def tree(self) -> dict[str, str]:
        """Every file and folder but the kernel's, and the sysctl."""
        root = pathlib.Path(self.root)
        found = {}
        for path in sorted(root.rglob("*")):
            name = str(path.relative_to(root))
            if not name.startswith("proc") or path.name == "ip_local_port_range":
                text = " ".join(path.read_text().split()) if path.is_file() else "folder"
                found[name] = f"{path.stat().st_mode & 0o7777:o} {text}"
        return found


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


def read(node: Node, path: str) -> list[str]:
    return node.path(path).read_text().splitlines()[1:]


def test_a_bare_node_gets_all_and_a_second_run_changes_nothing(node: Node) -> None:
    first = node.run(WISH)
    assert {change.subject for change in first.changes} == {*nccl.PATHS, PORTS}
    assert first.restart
    assert node.reloads == 1
    before = node.tree()
    assert node.run(WISH).changes == ()
    assert node.tree() == before
    assert node.reloads == 1


def test_nccl_reads_its_own_variables_and_others_stand_beside_them(node: Node) -> None:
    node.run(WISH)
    assert read(node, nccl.CONF) == ["NCCL_IB_HCA==rocep1s0f0v1:1,roceP2p1s0f0v1:1", "NCCL_NET=IB"]
    assert read(node, nccl.ENVIRONMENT)[0] == "GLOO_SOCKET_IFNAME=enp1s0f0v1"


def as_nccl_reads(text: str) -> dict[str, str]:
    """NCCL 2.21's setEnvFile (src/misc/param.cc): the name is what precedes the first `=`, the value is the rest."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, sign, value = line.partition("=")
        if sign:
            found.setdefault(name[:1023], value[:1023])
    return found


@given(
    st.dictionaries(
        st.from_regex(r"NCCL_[A-Z_]{1,20}", fullmatch=True),
        st.text("abcXYZ019_.,:=^/+@%-", min_size=1, max_size=1023),
    )
)
def test_nccl_reads_back_what_was_meant_also_where_it_knows_no_comments(env: dict[str, str]) -> None:
    wish = HostSettings(env)
    nccl.check(wish)
    assert as_nccl_reads(texts(wish).get(nccl.CONF, "")) == env


def test_limits_are_for_root_too_and_for_what_services_start(node: Node) -> None:
    node.run(WISH)
    limits = read(node, nccl.LIMITS)
    for domain in ("*", "root"):
        assert {f"{domain} soft memlock unlimited", f"{domain} hard memlock unlimited"} <= set(limits)
        assert f"{domain} soft stack 65536" in limits
        assert f"{domain} hard stack 65536" not in limits
    assert read(node, nccl.SYSTEMD) == ["[Manager]", "DefaultLimitMEMLOCK=infinity"]
    node.run(HostSettings(memlock="65536"))
    assert read(node, nccl.SYSTEMD) == ["[Manager]", "DefaultLimitMEMLOCK=65536K"]


def test_check_mode_tells_all_and_touches_nothing(node: Node) -> None:
    before = node.tree()
    told = node.run(WISH, check_mode=True)
    assert node.tree() == before
    assert node.reloads == 0
    assert told == node.run(WISH)
    assert (PORTS, "32768 60999\n", "50000 51000\n") in told.texts


def test_absent_brings_back_what_was_there_to_the_folder(node: Node) -> None:
    (node.path("/etc") / "security").mkdir()
    node.path("/etc/hostname").write_text("spark1\n")
    before = node.tree()
    node.run(WISH)
    assert node.run(None, check_mode=True).changes
    assert node.run(None).changes
    assert node.tree() == before
    assert node.reloads == 2
    assert node.run(None).changes == ()


def test_a_folder_that_others_use_by_now_stays(node: Node) -> None:
    node.run(WISH)
    node.path("/etc/dgxspark/other").write_text("x")
    node.run(None)
    assert node.path("/etc/dgxspark/other").is_file()
    assert not node.path(nccl.ENVIRONMENT).exists()


@pytest.mark.parametrize("path", nccl.PATHS)
def test_somebody_else_s_file_is_refused_and_nothing_is_touched(node: Node, path: str) -> None:
    node.path(path).parent.mkdir(parents=True, exist_ok=True)
    node.path(path).write_text("NCCL_DEBUG=INFO\n")
    before = node.tree()
    with pytest.raises(CollectionError, match=f"{path}: already present, and not written by this role"):
        node.run(WISH)
    assert node.run(None).changes == ()
    assert node.tree() == before


def test_somebody_else_s_file_is_no_trouble_where_this_part_is_left_out(node: Node) -> None:
    node.path(nccl.CONF).write_text("NCCL_DEBUG=INFO\n")
    node.run(HostSettings(memlock="unlimited"))
    node.run(None)
    assert node.path(nccl.CONF).read_text() == "NCCL_DEBUG=INFO\n"


def test_a_link_is_not_ours_whatever_it_points_at(node: Node) -> None:
    node.path("/etc/other.conf").write_text(nccl.MARK)
    node.path(nccl.CONF).symlink_to("other.conf")
    with pytest.raises(CollectionError, match=nccl.CONF):
        node.run(WISH)


def test_what_is_no_longer_wanted_goes(node: Node) -> None:
    node.run(WISH)
    told = node.run(HostSettings(memlock="unlimited"))
    assert {c.subject for c in told.changes} == {nccl.CONF, nccl.ENVIRONMENT, nccl.LIMITS, nccl.SYSCTL, PORTS}
    assert not node.path(nccl.CONF).exists()
    assert node.path("/proc/sys/net/ipv4/ip_local_port_range").read_text() == "32768 60999\n"


def test_a_sysctl_goes_back_to_the_first_value_after_many_runs(node: Node) -> None:
    for ports in ("50000 51000", "40000 41000"):
        node.run(HostSettings(sysctls={PORTS: ports}))
    node.run(None)
    assert node.path("/proc/sys/net/ipv4/ip_local_port_range").read_text() == "32768 60999\n"


def test_a_sysctl_that_the_kernel_has_not_is_refused_before_anything(node: Node) -> None:
    before = node.tree()
    with pytest.raises(CollectionError, match=r"net\.core\.nothing: this node's kernel has no such setting"):
        node.run(HostSettings(ENV, sysctls={"net.core.nothing": "1"}))
    assert node.tree() == before


@pytest.mark.parametrize("path", nccl.PATHS)
def test_a_write_that_fails_puts_the_rest_back(node: Node, path: str) -> None:
    node.run(HostSettings({"NCCL_NET": "Socket"}))
    before = {k: v for k, v in node.tree().items() if "nccl" in k and "before" not in k}
    node.refused = path
    with pytest.raises(CollectionError, match=f"{path}: Read-only file system, so the changes were rolled back"):
        node.run(WISH)
    node.refused = None
    assert {k: v for k, v in node.tree().items() if "nccl" in k and "before" not in k} == before
    node.run(None)
    assert not [name for name in node.tree() if "nccl" in name]


def test_a_mode_that_was_changed_by_hand_goes_back(node: Node) -> None:
    node.run(WISH)
    node.path(nccl.ENVIRONMENT).chmod(0o600)
    told = node.run(WISH)
    assert [(c.subject, c.what) for c in told.changes] == [(nccl.ENVIRONMENT, "mode")]
    assert node.path(nccl.ENVIRONMENT).stat().st_mode & 0o777 == 0o644
    assert not told.restart


def test_a_killed_run_is_simply_run_again(node: Node) -> None:
    """The sysctl was set and the journal written, but no file: the original value is in the journal."""
    node.refused = nccl.CONF
    with pytest.raises(CollectionError):
        node.run(WISH)
    node.path("/proc/sys/net/ipv4/ip_local_port_range").write_text("50000 51000\n")
    node.refused = None
    node.run(WISH)
    node.run(None)
    assert node.path("/proc/sys/net/ipv4/ip_local_port_range").read_text() == "32768 60999\n"


def test_a_spoilt_journal_is_one_error(node: Node) -> None:
    node.run(WISH)
    node.path(nccl.JOURNAL).write_text("[")
    with pytest.raises(CollectionError, match=nccl.JOURNAL):
        node.run(None)


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        (HostSettings({"NCCL_IB_GID_INDEX": ""}), "NCCL_IB_GID_INDEX is empty"),
        (HostSettings({"NCCL NET": "IB"}), "not a valid variable name"),
        (HostSettings({"NCCL_NET": "IB; reboot"}), "NCCL_NET: 'IB; reboot' would be read differently"),
        (HostSettings({"NCCL_NET": "'IB'"}), "NCCL_NET"),
        (HostSettings({"NCCL_IB_HCA": "x" * 1024}), "at most 1023"),
        (HostSettings({"NCCL_NET": "IB\nLD_PRELOAD=x"}), "NCCL_NET"),
        (HostSettings(memlock="lots"), "memlock: 'lots'"),
        (HostSettings(memlock="-1"), "memlock: '-1'"),
        (HostSettings(stack=1024), "stack: 1024 KiB is too small"),
        (HostSettings(domains=("a b",)), "domains: 'a b'"),
        (HostSettings(sysctls={"../etc/passwd": "x"}), "sysctls"),
        (HostSettings(sysctls={PORTS: " "}), "sysctls"),
    ],
)
def test_what_cannot_be_meant_is_one_error(node: Node, wish: HostSettings, told: str) -> None:
    before = node.tree()
    with pytest.raises(CollectionError, match=told):
        node.run(wish)
    assert node.tree() == before


def test_the_file_can_be_sourced(node: Node) -> None:
    """A shell reads the right values, without quotes, which Docker would pass on."""
    import subprocess

    node.run(WISH)
    script = f"set -a; . {node.path(nccl.ENVIRONMENT)}; env -0"
    out = subprocess.run(["/bin/sh", "-c", script], check=True, capture_output=True, text=True, env={}).stdout
    found = dict(line.split("=", 1) for line in out.split("\0") if line)
    assert {name: found[name] for name in ENV} == ENV


def test_files_are_owned_by_who_runs_it(node: Node) -> None:
    node.run(WISH)
    assert {node.path(path).stat().st_uid for path in nccl.PATHS} == {os.geteuid()}
