"""When a rank refuses to start, each with its cause: a tree of files for the node, loopback for its peers."""

from __future__ import annotations

import contextlib
import http.server
import json
import pathlib
import socket
import ssl
import subprocess
import threading
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.rank import preflight

GID = "sys/class/infiniband/roce0v0/ports/1"
TREE = {
    "sys/class/infiniband_verbs/abi_version": "6",
    "sys/class/infiniband_verbs/uverbs2/ibdev": "roce0v0",
    "sys/class/net/net1/mtu": "9000",
    "sys/class/net/eth0/mtu": "1500",
    f"{GID}/gids/0": "fe80:0000:0000:0000:0000:00ff:fe00:0001",
    f"{GID}/gid_attrs/types/0": "RoCE v2",
    f"{GID}/gids/2": "0000:0000:0000:0000:0000:ffff:7f00:0105",
    f"{GID}/gid_attrs/types/2": "IB/RoCE v1",
    f"{GID}/gids/3": "0000:0000:0000:0000:0000:ffff:7f00:0105",
    f"{GID}/gid_attrs/types/3": "RoCE v2",
    f"{GID}/gids/4": "0000:0000:0000:0000:0000:0000:0000:0000",
    "dev/infiniband/uverbs2": "",
    "proc/sys/net/ipv4/conf/net1/arp_ignore": "1",
    "proc/sys/net/ipv4/conf/net1/arp_announce": "2",
    "proc/sys/net/ipv4/conf/net1/rp_filter": "2",
    "proc/sys/net/ipv4/conf/all/arp_ignore": "0",
    "proc/sys/net/ipv4/conf/all/arp_announce": "0",
    "proc/sys/net/ipv4/conf/all/rp_filter": "1",
}


@contextlib.contextmanager
def echo(address: str, most: int = 65535) -> t.Iterator[int]:
    """Answer as a peer's supervisor does, packets of up to `most` bytes; yield the port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind((address, 0))

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    data, asker = peer.recvfrom(65535)
                    if data == b"stop":
                        return
                    if len(data) <= most:
                        peer.sendto(b"!" + data[1:], asker)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        port = int(peer.getsockname()[1])
        yield port
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stop:
            stop.sendto(b"stop", (address, port))
        thread.join(10)


def config(port: int = 9, seconds: float = 1, **changes: t.Any) -> dict[str, t.Any]:
    rail = {"name": "p0f0v0", "interface": "net1", "address": "127.0.1.5", "prefix": 24, "mtu": 9000, "hca": "roce0v0"}
    peers = [{"rank": 1, "host": "spark2", "address": "127.0.1.6"}]
    rail |= {"peers": peers} | changes
    return {"rank": 0, "rails": [rail], "verbs": True, "port": port, "bounds": {"peers_s": seconds}}


def tree(root: pathlib.Path, without: str = "") -> str:
    for path, text in TREE.items():
        if not (without and path.startswith(without)):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
    return str(root)


def refusal(made: dict[str, t.Any], root: str) -> preflight.Refusal:
    with pytest.raises(preflight.Refusal) as caught:
        preflight.check(made, root)
    return caught.value


def test_all_is_well(tmp_path: pathlib.Path) -> None:
    with echo("127.0.1.6") as port:
        preflight.check(config(port, 60), tree(tmp_path))


@pytest.mark.parametrize(
    ("without", "cause", "said"),
    [
        ("sys/class/infiniband_verbs/uverbs2", "verbs", "HCA roce0v0 has no verbs device here (seen: none)"),
        ("dev/infiniband", "verbs", "/dev/infiniband/uverbs2 of roce0v0: No such file"),
        ("sys/class/net/net1", "mtu", "no interface net1 (there are: eth0)"),
        ("proc/sys/net/ipv4/conf/net1/arp_ignore", "arp", "arp_ignore of net1 is 0, not 1"),
        (f"{GID}/gids/3", "gid", "no RoCE v2 GID of 127.0.1.5"),
        ("sys/class/infiniband/", "gid", "it has: none"),
    ],
)
def test_what_the_pod_lacks(tmp_path: pathlib.Path, without: str, cause: str, said: str) -> None:
    found = refusal(config(), tree(tmp_path, without))
    assert (found.cause, said in str(found)) == (cause, True), str(found)


def test_a_wrong_mtu(tmp_path: pathlib.Path) -> None:
    found = refusal(config(mtu=4200), tree(tmp_path))
    assert found.cause == "mtu"
    assert "net1 has MTU 9000, planned is 4200" in str(found)


def test_an_interface_without_carrier_is_the_cause_and_not_its_silent_peers(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "CARRIER_S", 0.0)
    root = tree(tmp_path)
    carrier = tmp_path / "sys/class/net/net1/carrier"
    carrier.write_text("0\n", encoding="ascii")
    found = refusal(config(), root)
    assert found.cause == "link"
    assert "p0f0v0: net1 has no carrier" in str(found)
    # A VF's link needs a moment after the VF has moved.
    monkeypatch.setattr(preflight, "CARRIER_S", 20.0)
    threading.Timer(0.7, lambda: carrier.write_text("1\n", encoding="ascii")).start()
    assert refusal(config(), root).cause == "peer"


def test_all_interfaces_setting_counts_as_the_kernel_counts_it(tmp_path: pathlib.Path) -> None:
    root = tree(tmp_path)
    (tmp_path / "proc/sys/net/ipv4/conf/all/arp_ignore").write_text("2")
    assert refusal(config(), root).cause == "arp"


def test_an_address_that_is_not_here(tmp_path: pathlib.Path) -> None:
    found = refusal(config(address="198.51.100.7"), tree(tmp_path))
    assert found.cause == "address"
    assert "198.51.100.7 is on no interface here" in str(found)


def test_a_peer_that_does_not_answer(tmp_path: pathlib.Path) -> None:
    found = refusal(config(), tree(tmp_path))
    assert found.cause == "peer"
    assert "rank 1 (spark2, 127.0.1.6, p0f0v0)" in str(found)


def test_a_path_that_is_too_narrow(tmp_path: pathlib.Path) -> None:
    with echo("127.0.1.6", most=1472) as port:
        found = refusal(config(port, 2), tree(tmp_path))
    assert found.cause == "path-mtu"
    assert "spark2" in str(found)


def test_an_answer_of_somebody_else_does_not_count(tmp_path: pathlib.Path) -> None:
    peers = [
        {"rank": 1, "host": "spark2", "address": "127.0.1.6"},
        {"rank": 2, "host": "spark3", "address": "127.0.1.7"},
    ]
    with echo("127.0.1.6") as port:
        found = refusal(config(port, 2, peers=peers), tree(tmp_path))
    assert "spark3" in str(found)
    assert "spark2" not in str(found)


def test_sockets_need_no_verbs(tmp_path: pathlib.Path) -> None:
    with echo("127.0.1.6") as port:
        preflight.check({**config(port, 60), "verbs": False}, tree(tmp_path, "sys/class/infiniband"))


def test_the_program_ends_with_the_cause_s_status(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "rank.json"
    place.write_text(json.dumps(config()))
    assert preflight.main([str(place), tree(tmp_path, "dev/infiniband")]) == preflight.STATUS["verbs"]
    assert capsys.readouterr().err.startswith("preflight: verbs: p0f0v0: ")
    assert preflight.main([str(tmp_path / "nothing.json")]) == preflight.STATUS["config"]
    place.write_text("{}")
    assert preflight.main([str(place)]) == preflight.STATUS["config"]
    assert "Traceback" not in capsys.readouterr().err


# --- a pod that was made without its VFs ------------------------------------------------------------------------------------


class Server(http.server.HTTPServer):
    """An API server as a pod sees it: TLS by the cluster's own CA. asked: the requests, and who made them."""

    def __init__(self, root: pathlib.Path, status: int) -> None:
        asked: list[tuple[str, str, str | None]] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_DELETE(self) -> None:
                asked.append((self.command, self.path, self.headers.get("Authorization")))
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_arguments: t.Any) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.asked = asked
        account = root / preflight.ACCOUNT
        account.mkdir(parents=True)
        (account / "token").write_text("the-token")
        command = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ]
        command += ["-subj", "/CN=cluster", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(root / "key")]
        subprocess.run([*command, "-out", str(account / "ca.crt")], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(account / "ca.crt", root / "key")
        self.socket = context.wrap_socket(self.socket, server_side=True)


@pytest.fixture
def server(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> t.Iterator[Server]:
    with Server(tmp_path, getattr(request, "param", 200)) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(made.server_port))
        yield made
        made.shutdown()


def start(root: pathlib.Path, **changes: t.Any) -> int:
    """Start a rank's container, as its kubelet does; /dev/shm is the pod's."""
    (root / "dev/shm").mkdir(parents=True, exist_ok=True)
    own = {"replace": {"namespace": "dgx-serving", "pod": "serve-default-rank1-0"}}
    (root / "rank.json").write_text(json.dumps({**config(**changes), **own}))
    return preflight.main([str(root / "rank.json"), tree(root)])


def test_a_pod_without_its_vfs_tells_it_and_is_then_remade(
    tmp_path: pathlib.Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    lacking = preflight.STATUS["address"]
    assert start(tmp_path, address="198.51.100.7") == lacking
    assert server.asked == []
    assert start(tmp_path, address="198.51.100.7") == lacking
    path = "/api/v1/namespaces/dgx-serving/pods/serve-default-rank1-0"
    assert server.asked == [("DELETE", path, "Bearer the-token")]
    *_before, last = capsys.readouterr().err.splitlines()
    assert last.startswith("preflight: address: p0f0v0: 198.51.100.7 is on no interface here"), (
        "the cause has the last word"
    )


def test_a_pod_with_its_vfs_is_never_remade_whatever_else_is_wrong(tmp_path: pathlib.Path, server: Server) -> None:
    for _start in range(3):
        assert start(tmp_path, mtu=4200) == preflight.STATUS["mtu"]
    assert server.asked == []


@pytest.mark.parametrize("server", [403], indirect=True)
def test_who_may_not_have_it_remade_is_told_the_command(
    tmp_path: pathlib.Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    start(tmp_path, address="198.51.100.7")
    start(tmp_path, address="198.51.100.7")
    assert server.asked
    assert "`kubectl delete pod serve-default-rank1-0` does it" in capsys.readouterr().err


def test_an_api_server_that_is_not_there_leaves_the_cause_as_it_is(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    for _start in range(2):
        assert start(tmp_path, address="198.51.100.7") == preflight.STATUS["address"]
    assert "cannot be replaced by itself" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("first", "cleared"), [("python3\0/opt/supervisor.py\0rank0.json", True), ("/sbin/init", False)]
)
def test_what_a_killed_engine_left_in_shared_memory_is_removed_and_nothing_that_it_points_to(
    tmp_path: pathlib.Path, first: str, cleared: bool
) -> None:
    """Where this is a container of ours: on a machine others use it, too."""
    shared, other = tmp_path / "dev/shm", tmp_path / "other"
    for place in (shared / "folder/deep", other, tmp_path / "proc/1"):
        place.mkdir(parents=True)
    (tmp_path / "proc/1/cmdline").write_text(first)
    for file in (shared / "folder/deep/file", shared / "psm_1234", tmp_path / preflight.NOTED, other / "file"):
        file.touch()
    (shared / "link").symlink_to(other)
    start(tmp_path)
    left = ["dgxspark-no-address"] if cleared else ["dgxspark-no-address", "folder", "link", "psm_1234"]
    assert sorted(each.name for each in shared.iterdir()) == left
    assert (other / "file").exists()
