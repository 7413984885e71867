"""support.yml as it is run: secrets planted on nodes, in the inventory and in reports are in no file of the archive."""

from __future__ import annotations

import base64
import json
import pathlib
import re
import shlex
import shutil
import stat
import subprocess
import tarfile
import typing as t
import urllib.parse
from dataclasses import dataclass

import pytest
import yaml

from ansible_collections.dgxspark.cluster.tests.unit import guide, leaks
from ansible_collections.dgxspark.cluster.tests.unit.owner import DOWN, HERE, NO_ANSIBLE, Owner, can_run

pytestmark = pytest.mark.skipif(not can_run(), reason=NO_ANSIBLE)

API_KEY = "Owner'5-own+key/with=signs"
HUB_TOKEN = "hf_ownersOwnTokenOfTheHub00"
FILED = "filed-secret-0042"
MAC, BARE = "5c:25:73:3c:12:34", "5c25733c1234"
PRIVATE = {
    "secrets": [API_KEY, HUB_TOKEN, FILED],
    "hosts": ["kitchen-spark", "cellar-spark", "gx10-7f3a", "attic-controller"],
    "domain": ["hidden.example"],
    "users": ["annabel", "mortimer"],
    "serials": ["MT2402XZ0ABC", "1660224000123"],
    "v4": ["203.0.113.77", "10.100.3.1", "0a64:0301", "0a640301"],
    "v6": ["2001:db8:77::9", "2001:0db8:0077:0000:0000:0000:0000:0009"],
    "mac": [MAC, BARE, "5c-25-73-3c-12-34", "5e25:73ff:fe3c:1234", "5c25:7303:003c:1234", "5c257303003c1234"],
}
JOURNAL = f"""2026-11-24T10:00:00 gx10-7f3a.hidden.example k3s[1]: dial tcp 203.0.113.77:6443 by annabel of /home/mortimer
2026-11-24T10:00:01 gx10-7f3a k3s[1]: {json.dumps({"key": API_KEY, "log": json.dumps({"t": API_KEY, "to": "kitchen-spark"})})}
2026-11-24T10:00:02 gx10-7f3a k3s[1]: GET /?key={urllib.parse.quote(API_KEY, safe="")}&at=%202001%3Adb8%3A77%3A%3A9
2026-11-24T10:00:03 gx10-7f3a k3s[1]: Authorization: Basic {base64.b64encode(f"annabel:{FILED}".encode()).decode()}
2026-11-24T10:00:04 gx10-7f3a k3s[1]: data {base64.b64encode(b'{"host": "cellar-spark", "a": "10.100.3.1"}').decode()} {HUB_TOKEN}
2026-11-24T10:00:05 gx10-7f3a kernel: mlx5_core 0000:01:00.0 enp1s0f0np0: Link up; serial number MT2402XZ0ABC {BARE}
2026-11-24T10:00:06 gx10-7f3a kernel: x {API_KEY.encode().hex()} {base64.b64encode(FILED.encode()).decode()}
"""
ADDRESSES = f"""2: enp1s0f0np0: <UP> mtu 9000
    link/ether {MAC} brd ff:ff:ff:ff:ff:ff
    inet 10.100.3.1/24 scope global enp1s0f0np0
    inet6 fe80::5e25:73ff:fe3c:1234/64 scope link
    inet6 2001:db8:77::9/64 scope global
"""
RDMA = """0: mlx5_0: node_type ca fw 28.45 node_guid 5c25:7303:003c:1234 sys_image_guid 5c257303003c1234
GID 0 fe80:0000:0000:0000:5e25:73ff:fe3c:1234 3 0000:0000:0000:0000:0000:ffff:0a64:0301
"""


@dataclass
class Archive:
    """What an owner ends up with."""

    output: str
    path: pathlib.Path
    texts: dict[str, str]

    def of(self, name: str) -> list[str]:
        return [text for path, text in self.texts.items() if path.rpartition("/")[2] == name]


def planted(owner: Owner) -> dict[str, t.Any]:
    """Plant secrets in the folder, in the nodes' output, and in variables; return the inventory."""
    owner.tool("journalctl", JOURNAL)
    owner.tool("ip", ADDRESSES)
    owner.tool("rdma", RDMA)
    owner.tool("hostname", "gx10-7f3a.hidden.example\n")
    owner.tool("getent", "annabel:x:1000:1000:Annabel,,,:/home/annabel:/bin/bash\n")
    for silent in ("k3s", "nvidia-smi", "systemctl", "sysctl", "lspci", "devlink"):
        owner.tool(silent, f"{silent}: DGX_SERIAL_NUMBER=1660224000123 {FILED}\n")
    (owner.folder / "key").write_text(FILED + "\n", encoding="utf-8")
    reports = owner.folder / "reports"
    reports.mkdir()
    said = {"where": "kitchen-spark", "gid": "::ffff:10.100.3.1", "why": f"mortimer@{'hidden.example'} \n{API_KEY}"}
    (reports / "doctor-20261124-000000.json").write_text(json.dumps(said), encoding="utf-8")
    (reports / "fabric-20261124-000000.json").write_text(json.dumps(said, indent=1), encoding="utf-8")
    return {
        "all": {
            "hosts": {"attic-controller": {"ansible_host": "203.0.113.78"}},
            "children": {
                "dgx": {
                    "hosts": {
                        "kitchen-spark": {**HERE, "ansible_host": "203.0.113.77"},
                        "cellar-spark": {**DOWN, "ansible_user": "mortimer"},
                    },
                    "vars": {
                        "dgxspark_fabric": {"hardware": "lab", "topology": "switch", "vf_count": 2},
                        "the_key": API_KEY,
                        "k8s_dgx_serving": {"api_key": "{{ the_key }}", "environment": {"HF_TOKEN": HUB_TOKEN}},
                        "k8s_dgx_api_key_file": "key",
                    },
                }
            },
        }
    }


SHOW, MAKE, LOOK = (shlex.split(command) for command in guide.commands("guide_doctor"))


def run(owner: Owner, inventory: dict[str, t.Any], command: list[str], *more: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the guide."""
    (owner.folder / "inventory").write_text(yaml.safe_dump(inventory), encoding="utf-8")
    assert command[:2] == ["ansible-playbook", "dgxspark.cluster.support"]
    return owner.typed(*command[1:], *more)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    owner = Owner(tmp_path_factory.mktemp("support"))
    inventory = planted(owner)
    before = set(owner.folder.rglob("*"))
    done = run(owner, inventory, MAKE, "-vvv", "-e", "k8s_dgx_model_profile=qwen3-vl-8b-instruct-fp8")
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-4000:]
    path = owner.folder / "bug.tar.gz"
    assert MAKE[-1].endswith("=bug.tar.gz") and LOOK == ["tar", "-xzf", "bug.tar.gz"]
    subprocess.run(LOOK, cwd=owner.folder, check=True)
    assert (owner.folder / "bug" / "README.txt").is_file()
    shutil.rmtree(owner.folder / "bug")
    with tarfile.open(path) as tar:
        texts = {entry.name: tar.extractfile(entry).read().decode() for entry in tar.getmembers()}  # type: ignore[union-attr]
    new = {str(made.relative_to(owner.folder)) for made in set(owner.folder.rglob("*")) - before}
    assert new == {"inventory", "bug.tar.gz"}
    return Archive(output, path, texts)


@pytest.mark.more
@pytest.mark.older_core
@pytest.mark.parametrize("kind", PRIVATE, ids=str)
def test_nothing_of_it_is_in_the_archive_in_any_form(archive: Archive, kind: str) -> None:
    whole = "\n".join([*archive.texts, *archive.texts.values()])
    decoded = [whole, urllib.parse.unquote(whole)]
    for word in re.findall(r"[A-Za-z0-9+/]{8,}={0,2}", whole):
        try:
            decoded.append(base64.b64decode(word + "=" * (-len(word) % 4)).decode())
        except ValueError:
            continue
    for text in PRIVATE[kind]:
        forms = [*leaks.forms(text), json.dumps(text)[1:-1].encode(), urllib.parse.quote(text, safe="").encode()]
        forms += [text.encode().hex().encode()]
        for one in decoded:
            assert not [form for form in forms if form.lower() in one.lower().encode()], (kind, text)


@pytest.mark.more
@pytest.mark.older_core
def test_secrets_and_raw_logs_are_not_in_the_output_either(archive: Archive) -> None:
    assert not leaks.lines(archive.output, FILED, "dial tcp", "Link up")


@pytest.mark.more
@pytest.mark.older_core
def test_who_talks_to_whom_can_still_be_followed(archive: Archive) -> None:
    (journal,) = archive.of("journal-k3s.txt")
    assert "spark-2.domain-1 k3s[1]: dial tcp addr-" in journal
    (address,) = archive.of("ip-address.txt")
    ipv4 = re.search(r"inet (addr-\d+)/24", address)
    mac = re.search(r"link/ether (mac-\d+) brd ff:ff:ff:ff:ff:ff", address)
    assert ipv4 and mac
    (rdma,) = archive.of("rdma.txt")
    assert f"link-local({mac.group(1)}) 3 mapped({ipv4.group(1)})" in rdma
    assert f"node_guid guid({mac.group(1)}) sys_image_guid guid({mac.group(1)})" in rdma
    (kernel,) = archive.of("journal-kernel.txt")
    assert "mlx5_core 0000:01:00.0 enp1s0f0np0: Link up; serial number serial-" in kernel
    assert "dial tcp" not in kernel
    for report in archive.of("doctor-20261124-000000.json"):
        assert json.loads(report)["where"] == "spark-2"
        assert json.loads(report)["gid"] == f"mapped({ipv4.group(1)})"


@pytest.mark.more
@pytest.mark.older_core
def test_what_was_replaced_and_who_did_not_answer_is_said(archive: Archive) -> None:
    readme = archive.texts["bug/README.txt"]
    for said in (
        "secrets, tokens and keys",
        "names of the cluster's nodes",
        "IPv4 and IPv6 addresses",
        "Look through it before",
    ):
        assert said in readme and said in archive.output
    assert re.search(r"not read: spark-1: .*ssh.*Connection refused", readme), readme
    assert archive.texts["bug/spark-1/NOT-READ.txt"].startswith("spark-1 returned nothing: ")
    assert json.loads(archive.texts["bug/about.json"])["ansible_core"]
    assert json.loads(archive.texts["bug/plan.json"])["hosts"]
    assert json.loads(archive.texts["bug/plan-of-the-model.json"])["ranks"]
    assert archive.path.stat().st_mode & 0o777 == 0o600
    assert sorted(archive.texts) == list(archive.texts)


@pytest.mark.long
def test_check_mode_says_what_would_be_read_and_reads_nothing(tmp_path: pathlib.Path) -> None:
    owner = Owner(tmp_path)
    done = run(owner, planted(owner), SHOW, "-l", "kitchen-spark")
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert "From each of kitchen-spark, at most 512 KiB per file:" in output and "journal-k3s" in output
    assert not list(tmp_path.rglob("*.tar.gz"))


@pytest.mark.long
def test_one_spark_by_its_limit_with_a_fabric_that_is_refused(tmp_path: pathlib.Path) -> None:
    owner = Owner(tmp_path)
    inventory = planted(owner)
    inventory["all"]["children"]["dgx"]["vars"]["dgxspark_fabric"] = {"topology": "pyramid"}
    done = run(owner, inventory, MAKE[:-2], "-l", "kitchen-spark")
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (tmp_path / "reports").glob("support-*.tar.gz")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with tarfile.open(path) as tar:
        names = [name.partition("/")[2] for name in tar.getnames()]
        refused = tar.extractfile(f"{path.name[:-7]}/plan-refused.json").read().decode()  # type: ignore[union-attr]
    assert "pyramid" in refused
    assert "spark-1/journal-k3s.txt" in names and not [name for name in names if name.startswith("spark-2")]
