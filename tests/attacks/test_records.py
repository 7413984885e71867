"""Records of changes that are empty, cut off or damaged: what cannot be read is a failure that keeps everything."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils import node_files, values
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import netplan_change, netplan_wait, persist
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.sriov import Sriov
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.fabric import restore, rollback
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.fabric.rollback import FileImage, Host
from ansible_collections.dgxspark.cluster.plugins.module_utils.unit_files import UnitFiles
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

JOURNAL = f"{rollback.BASE}/journal.json"
DAMAGES = {
    "empty": b"",
    "object": b"{}",
    "list": b"[]",
    "null": b"null",
    "word": b'"x"',
    "number": b"1" * 5000,
    "cut": b'{"id": "t1", "deadline": 1e9, "files": {"/etc/netplan/90.yaml": {"before": {"data"',
    "deep": b"[" * 100_000,
    "binary": b"\x00\xff\xfe",
    "infinite": b'{"id": "t1", "deadline": Infinity, "files": []}',
}


class Node(Host):
    """A node on which a change is pending."""

    def __init__(self, root: pathlib.Path) -> None:
        super().__init__(str(root))
        self.calls: list[list[str]] = []
        self.now = 0.0
        self.put("/etc/netplan/90.yaml", FileImage(b"old"))
        asked = rollback.ChangeRequest("s")
        rollback.prepare(self, "t1", {"/etc/netplan/90.yaml": FileImage(b"new")}, b"", self.clock() - 1, asked)

    def command(self, argv: t.Sequence[str], timeout: float = 60) -> tuple[int, str, str]:
        self.calls.append(list(argv))
        return 0, "", ""

    def start(self, argv: t.Sequence[str], log: str) -> t.Any:
        raise AssertionError("netplan was started")

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def damage(self, path: str, data: bytes) -> None:
        self.path(path).write_bytes(data)

    def everything(self) -> dict[str, bytes]:
        files = (place for place in self.path("/").rglob("*") if place.is_file() and place.parent.name != "run")
        return {str(place): place.read_bytes() for place in files if place.name not in ("started", "apply.json")}


def damaged_more() -> dict[str, bytes]:
    """Whole JSON of the right form, in which one thing is wrong."""
    good = FileImage(b"old").to_json()
    pair = {"before": good, "after": good}
    whole: dict[str, t.Any] = {"id": "t1", "deadline": 5.0, "summary": "s", "files": {"/etc/netplan/90.yaml": pair}}
    wrong = {
        "other": whole | {"id": "t2"},
        "deadline": whole | {"deadline": None},
        "files": whole | {"files": None},
        "no time": whole | {"deadline": float("nan")},
        "pair": whole | {"files": {"/etc/netplan/90.yaml": {"before": good}}},
        "content": whole | {"files": {"/etc/netplan/90.yaml": pair | {"before": good | {"data": "b2xE"}}}},
        "base64": whole | {"files": {"/etc/netplan/90.yaml": pair | {"before": good | {"data": "b2xk!"}}}},
        "mode": whole | {"files": {"/etc/netplan/90.yaml": pair | {"before": good | {"mode": 10**400}}}},
        "owner": whole | {"files": {"/etc/netplan/90.yaml": pair | {"before": good | {"uid": -1}}}},
        "path": whole | {"files": {"etc/../90.yaml": pair}},
        "summary": whole | {"summary": []},
    }
    return {name: json.dumps(value).encode() for name, value in wrong.items()}


@pytest.mark.parametrize("program", [["boot"], ["guard", "t1"]], ids=["boot", "guard"])
@pytest.mark.parametrize("damage", [*DAMAGES.values(), *damaged_more().values()], ids=[*DAMAGES, *damaged_more()])
def test_a_rollback_by_a_damaged_journal_fails_and_keeps_everything(
    damage: bytes, program: list[str], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = Node(tmp_path)
    node.damage(JOURNAL, damage)
    before = node.everything()
    assert rollback.main(program, node) == 1
    assert node.everything() == before
    assert node.calls == [], "netplan was not asked"
    assert not rollback.ended(node, "t1")
    said = capsys.readouterr().err
    assert JOURNAL in said and "Traceback" not in said and len(said) < 1000
    node.path(f"{rollback.BASE}/pending").unlink()  # the remedy
    assert rollback.main(["boot"], node) == 0


@pytest.mark.parametrize("damage", [b"", b"\n", b"t2"])
def test_a_damaged_name_of_the_pending_change_is_a_failure_too(damage: bytes, tmp_path: pathlib.Path) -> None:
    node = Node(tmp_path)
    node.damage(f"{rollback.BASE}/pending", damage)
    before = node.everything()
    assert rollback.main(["boot"], node) == 1
    assert node.everything() == before and rollback.leftovers(node) == []


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_the_next_run_says_so_and_confirms_nothing(damage: bytes, tmp_path: pathlib.Path) -> None:
    node = Node(tmp_path)
    rollback.applied(node, "t1", 0, "")
    node.damage(JOURNAL, damage)
    before = node.everything()
    node.command = lambda argv, timeout=60: (3, "", "")  # type: ignore[method-assign]
    request = netplan_change.Request("/etc/netplan/90.yaml", None, "t1", connection="c")
    with pytest.raises(CollectionError, match=JOURNAL):
        netplan_change.confirm(node, request)
    with pytest.raises(CollectionError, match=JOURNAL):
        netplan_wait.settle(node, [], None, float("inf"))
    assert node.everything() == before


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_list_of_absorbed_files_gives_nothing_back_and_removes_nothing(
    damage: bytes, tmp_path: pathlib.Path
) -> None:
    host = Host(str(tmp_path))
    host.put(netplan_change.INDEX, FileImage(damage))
    with pytest.raises(CollectionError, match=netplan_change.INDEX):
        netplan_change._give_back(host)


DOCUMENT = {
    "version": 1,
    "functions": [
        {"slot": "p0f0", "pci": "0000:01:00.0", "vf_count": 2, "vfs": [{"index": 0, "mac": "02:d6:00:00:00:01"}]}
    ],
}


def documents() -> dict[str, bytes]:
    def wrong(**change: t.Any) -> bytes:
        return json.dumps({"version": 1, "functions": [DOCUMENT["functions"][0] | change]}).encode()  # type: ignore[index]

    return DAMAGES | {
        "version": json.dumps(DOCUMENT | {"version": 2}).encode(),
        "function": b'{"version": 1, "functions": [null]}',
        "no pci": wrong(pci=None),
        "pci": wrong(pci="../../x"),
        "count": wrong(vf_count="²"),
        "huge": wrong(vf_count=10**400),
        "vfs": wrong(vfs={}),
        "vf": wrong(vfs=[3]),
        "mac": wrong(vfs=[{"index": 0, "mac": "a\n"}]),
        "arp": wrong(arp=[1]),
        "sysctl": wrong(arp={"../x": 1}),
        "up": wrong(up="yes"),
        "long": b" " * 2**20 + json.dumps(DOCUMENT).encode(),
    }


class Untouchable(restore.KernelHost):
    def write(self, path: str, value: str) -> None:
        raise AssertionError(path)

    def command(self, argv: t.Sequence[str], text: str = "", timeout: float = 60) -> tuple[int, str, str]:
        raise AssertionError(argv)


@pytest.mark.parametrize("program", [["boot"], ["dev", "eth0"]], ids=["boot", "dev"])
@pytest.mark.parametrize("damage", documents().values(), ids=documents())
def test_a_damaged_document_restores_nothing_and_says_so(
    damage: bytes, program: list[str], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "fabric.json"
    config.write_bytes(damage)
    host = Untouchable(str(tmp_path), str(tmp_path), str(tmp_path / "run"), str(tmp_path / "udev"))
    assert restore.main(program, host, str(config)) == 1
    said = capsys.readouterr()
    assert str(config) in said.err and "Traceback" not in said.err and "nothing to do" not in said.out


def test_a_whole_document_is_read() -> None:
    assert restore.document_of(json.dumps(DOCUMENT)) == DOCUMENT


@pytest.mark.parametrize("place", [persist.JOURNAL, persist.CONFIG])
@pytest.mark.parametrize("damage", documents().values(), ids=documents())
def test_teardown_by_a_damaged_record_is_refused(damage: bytes, place: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / place[1:]
    path.parent.mkdir(parents=True)
    path.write_bytes(damage)
    with pytest.raises(CollectionError, match=place):
        Sriov(restore.KernelHost(), str(tmp_path)).journal(values.Node())
    assert path.read_bytes() == damage


RECORDS: dict[str, t.Callable[[str], t.Any]] = {
    "units": lambda path: UnitFiles(lambda *_a, **_k: (0, "", ""), path),
    "installation": lambda path: node_files.Undo(str(pathlib.Path(path).parent)).resume(),
}


@pytest.mark.parametrize("reader", RECORDS.values(), ids=RECORDS)
@pytest.mark.parametrize("damage", [each for name, each in DAMAGES.items() if name not in ("object", "infinite")])
def test_other_records_of_a_node(damage: bytes, reader: t.Callable[[str], t.Any], tmp_path: pathlib.Path) -> None:
    path = tmp_path / node_files._LIST
    path.write_bytes(damage)
    with pytest.raises(CollectionError, match=str(path)):
        reader(str(path))
    assert path.read_bytes() == damage
