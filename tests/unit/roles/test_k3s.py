"""The role k3s as an owner runs it, on hosts that are namespaces, with tests/stand_ins/k3s: REAL K3S IS NOT RUN HERE."""

from __future__ import annotations

import hashlib
import json
import pathlib
import re
import subprocess
import typing as t
from collections.abc import Iterator

import pytest
import yaml

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.tests.stand_ins.outside import Wall
from ansible_collections.dgxspark.cluster.tests.support.k3s_owner import PLACES, Owner, Run, pod
from ansible_collections.dgxspark.cluster.tests.unit import bundles, leaks
from ansible_collections.dgxspark.cluster.tests.unit.k3s_releases import (
    ARCHITECTURE,
    ARCHIVE,
    BINARY,
    NEW,
    NEWER,
    OLD,
    release,
)
from ansible_collections.dgxspark.cluster.tests.unit.namespaces import Host, Lan, needed

pytestmark = needed()
# What a Spark carries once a model is served: a rank, a benchmark's bare pod, and the platform's daemons.
PODS = [
    pod("rank-1", "StatefulSet", **{"dgxspark.cluster/rank": "1"}),
    pod("nccl-bench-rank1", None, **{"dgxspark.cluster/rank": "1"}),
    pod("multus", "DaemonSet", **{"dgxspark.cluster/part": "multus"}),
]


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Owner]:
    folder = tmp_path_factory.mktemp("k3s")
    lan = Lan(folder / "lan")
    for number in (1, 2, 3):
        lan.host(f"spark{number}", f"192.0.2.1{number}")
    yield Owner(folder, lan)
    lan.close()


@pytest.fixture
def bare(owner: Owner, tmp_path: pathlib.Path) -> Iterator[Host]:
    """A host with nothing installed, and still so after a failed run."""
    host = owner.lan.hosts["spark3"]
    before = host.tree(*PLACES)
    yield host
    assert host.tree(*PLACES) == before, "something was left half done"


@pytest.fixture(scope="module")
def cluster(owner: Owner) -> Owner:
    """The cluster of spark1 (server) and spark2 (agent), installed once."""
    before = owner.lan.hosts["spark1"].tree(*PLACES)
    owner.lan.before = before  # type: ignore[attr-defined]
    foretold = owner.run("--check", "--diff")
    assert foretold.code == 0, foretold.output
    assert all(foretold.changed.values())
    assert owner.lan.hosts["spark1"].tree(*PLACES) == before, "check mode changed something"
    with leaks.Watch() as watch:
        made = owner.run("-vvv", "--diff")
    assert made.code == 0, made.output
    owner.first_run, owner.watch = made, watch  # type: ignore[attr-defined]
    return owner


def test_what_is_there_after_the_first_run(cluster: Owner) -> None:
    server, agent = cluster.lan.hosts["spark1"], cluster.lan.hosts["spark2"]
    for host, role in ((server, "server"), (agent, "agent")):
        assert host.sh("stat -c %a /etc/rancher/k3s/config.yaml /etc/rancher/k3s/token /etc/rancher/k3s/registries.yaml").split() == ["600"] * 3  # fmt: skip
        config = yaml.safe_load(host.sh("cat /etc/rancher/k3s/config.yaml"))
        assert (config["node-ip"], config["flannel-iface"]) == (host.address, "mgmt0")
        assert host.sh("ls /var/lib/rancher/k3s/agent/images") == ARCHIVE
        unit = "k3s" if role == "server" else "k3s-agent"
        assert "ActiveState=active" in host.sh(f"systemctl show --property=ActiveState {unit}.service")
    assert agent.sh("cat /etc/rancher/k3s/token") == server.sh("cat /var/lib/rancher/k3s/server/agent-token")
    # A compromised agent cannot become a server with it.
    theirs = server.sh("cat /etc/rancher/k3s/token")
    assert agent.sh(f"grep -rl {theirs} /etc /var/lib/rancher /var/lib/dgxspark 2>/dev/null", check=False) == ""
    assert set(cluster.nodes()) == {"spark1", "spark2"}
    assert cluster.kubeconfig.stat().st_mode & 0o777 == 0o600
    assert (
        yaml.safe_load(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]["server"] == "https://192.0.2.11:6443"
    )


@pytest.mark.long  # `make test-more` has it of Molecule's scenario
def test_the_second_run_changes_nothing(cluster: Owner) -> None:
    again = cluster.run()
    assert again.code == 0, again.output
    assert again.changed == {"spark1": 0, "spark2": 0}
    checked = cluster.run("--check")
    assert checked.code == 0, checked.output
    assert checked.changed == {"spark1": 0, "spark2": 0}


def test_no_secret_is_in_argv_environment_output_facts_or_files_that_others_can_read(cluster: Owner) -> None:
    server = cluster.lan.hosts["spark1"]
    token = server.sh("cat /etc/rancher/k3s/token")
    password = re.findall(r"password: (\S+)", cluster.kubeconfig.read_text())[0]
    secrets = [
        token,
        server.sh("cat /etc/rancher/k3s/agent-token"),
        server.sh("cat /var/lib/rancher/k3s/server/token"),
        "registry-Passw0rd",
        password,
    ]
    assert len(token) == len(secrets[1]) == 64 and token != secrets[1]
    for secret in secrets:
        assert not leaks.lines(cluster.first_run.output, secret), "in the output of -vvv --diff"  # type: ignore[attr-defined]
        assert not cluster.watch.holding(secret), "with a process, while it ran"  # type: ignore[attr-defined]
        for host in cluster.lan.hosts.values():
            places = "/etc/rancher /etc/systemd /var/lib/rancher /var/lib/dgxspark /usr/local/bin /run"
            assert (
                host.sh(f"find {places} -type f -perm /044 -exec grep -l {secret} {{}} + 2>/dev/null", check=False)
                == ""
            )
            assert host.sh(f"grep -l {secret} /proc/[0-9]*/environ 2>/dev/null", check=False) == ""
            argv = host.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '", check=False).replace(f"grep -l {secret}", "")
            assert secret not in argv
    remains = subprocess.run(
        ["grep", "-rl", token, str(pathlib.Path.home() / ".ansible")], check=False, capture_output=True, text=True
    )
    assert remains.stdout == ""


@pytest.mark.long
def test_an_agent_joins_a_server_that_the_limit_leaves_out(cluster: Owner) -> None:
    joined = cluster.run(limit="spark3")
    assert joined.code == 0, joined.output
    assert set(joined.changed) == {"spark3"}
    assert set(cluster.nodes()) == {"spark1", "spark2", "spark3"}
    gone = cluster.run("-e", "k3s_state=absent", limit="spark3")
    assert gone.code == 0, gone.output
    assert set(cluster.nodes()) == {"spark1", "spark2"}, "the cluster still knows the node"


@pytest.mark.more
def test_a_change_restarts_its_node_alone_and_drains_it_when_it_carries_ranks(cluster: Owner) -> None:
    server, agent = cluster.lan.hosts["spark1"], cluster.lan.hosts["spark2"]
    pid = "python3 -c \"import json; print(json.load(open('/run/systemd-stand-in/{}.service.json'))['pid'])\""
    before = server.sh(pid.format("k3s")), agent.sh(pid.format("k3s-agent"))
    put = (
        "import json,pathlib; p=pathlib.Path('/var/lib/rancher/k3s/server/db/state.db'); n=json.loads(p.read_text()); "
    )
    server.sh(f"python3 -c \"{put} n['spark2'].update(pods={PODS}); p.write_text(json.dumps(n))\"")
    cluster.variables["spark2"] = {"k3s_labels": {"rack": "a"}}
    labelled = cluster.run("--diff")
    assert labelled.code == 0, labelled.output
    assert "rack=a" in labelled.output
    after = server.sh(pid.format("k3s")), agent.sh(pid.format("k3s-agent"))
    assert after[0] == before[0] and after[1] != before[1]
    assert server.sh("cat /var/lib/rancher/k3s/server/drained").split("\n") == [
        "cordon spark2",
        "drain spark2",
        "uncordon spark2",
    ]
    assert cluster.nodes()["spark2"]["metadata"]["labels"]["rack"] == "a"
    left = json.loads(server.sh("cat /var/lib/rancher/k3s/server/db/state.db"))["spark2"]["pods"]
    assert [each["metadata"]["name"] for each in left] == ["multus"], "drained of what serves, and of that alone"
    assert cluster.run().changed == {"spark1": 0, "spark2": 0}
    # A run that was cut off after it had drained spark2; and a cordon of the owner's own.
    mark = {"cordoned": True, "annotations": {"dgxspark.cluster/drained": "by the role k3s"}}
    server.sh(
        f"python3 -c \"{put} n['spark2'].update({mark}); n['spark1']['cordoned']=True; p.write_text(json.dumps(n))\""
    )
    again = cluster.run()
    assert again.code == 0, again.output
    nodes = cluster.nodes()
    assert (nodes["spark2"]["spec"]["unschedulable"], nodes["spark2"]["metadata"]["annotations"]) == (False, {})
    assert nodes["spark1"]["spec"]["unschedulable"], "the owner's own cordon"
    server.sh("/usr/local/bin/k3s kubectl uncordon spark1")


@pytest.mark.long
def test_ranks_that_nobody_can_ask_for_are_no_empty_node_unless_the_server_is_down(cluster: Owner) -> None:
    server, agent = cluster.lan.hosts["spark1"], cluster.lan.hosts["spark2"]
    pid = "python3 -c \"import json; print(json.load(open('/run/systemd-stand-in/k3s-agent.service.json'))['pid'])\""
    before = agent.sh(pid), agent.tree("/etc/rancher", "/usr/local/bin")
    # kubectl is then refused, as with an expired certificate or an API that is too busy.
    server.sh("mv /etc/rancher/k3s/k3s.yaml /etc/rancher/k3s/aside")
    cluster.variables["spark2"] = {"k3s_labels": {"rack": "c"}}
    refused = cluster.run()
    assert refused.code != 0 and (agent.sh(pid), agent.tree("/etc/rancher", "/usr/local/bin")) == before
    for said in (
        "spark1 cannot tell whether spark2 runs ranks",
        "The connection to the server localhost:8080 was refused",
        "k3s.service there is active",
        "Nothing was changed on spark2",
    ):
        assert said in refused.plain, refused.output
    # If the server is down, such a run starts it; its kubectl answers again before the agent's turn.
    server.sh("systemctl stop k3s.service")
    up = cluster.run()
    assert up.code == 0 and agent.sh(pid) != before[0], up.output
    assert "ActiveState=active" in server.sh("systemctl show --property=ActiveState k3s.service")
    server.sh("rm /etc/rancher/k3s/aside")


@pytest.mark.long
def test_archives_of_images_are_imported_while_k3s_runs(cluster: Owner) -> None:
    agent, engine = cluster.lan.hosts["spark2"], cluster.folder / "engine.tar.zst"
    folder, unit = "/var/lib/rancher/k3s/agent/images", "k3s-agent.service"

    def laid() -> list[str]:
        return [name for name in agent.sh(f"ls {folder}").split() if name != ARCHIVE]

    def run(*arguments: str, **entry: str) -> Run:
        cluster.variables.setdefault("spark2", {})["k3s_image_archives"] = [{"path": "engine.tar.zst", **entry}]
        return cluster.run(*arguments, limit="spark2")

    engine.write_bytes(b"an engine")
    digest = hashlib.sha256(b"an engine").hexdigest()
    foretold = run("--check")
    assert foretold.changed == {"spark2": 1} and "engine.tar.zst goes to" in foretold.plain
    assert laid() == [], foretold.output
    wrong = run(sha256="0" * 64)
    assert wrong.code != 0 and f"its SHA-256 is {digest}, but must be {'0' * 64}" in wrong.plain
    assert laid() == [], wrong.output
    made = run(sha256=digest)
    assert made.code == 0, made.output
    assert laid() == [f"engine-{digest[:12]}.tar.zst"]

    def imported_after_a_restart() -> int:
        state = f"systemctl show --property=ActiveState --value {unit}"
        agent.sh(f"systemctl restart {unit}; until {state} | grep -qx active; do sleep 0.2; done")
        return agent.sh(f"journalctl -u {unit}").count(f"Importing images from {folder}/engine-")

    # At its first start K3s may not know yet what it has imported while it ran.
    assert imported_after_a_restart() == imported_after_a_restart(), "25 GB are imported again before each start"
    assert run().changed == {"spark2": 0}, "whether its digest is given or read, it is the same"
    # An archive of the same name and size has changed, which K3s would not notice by itself.
    engine.write_bytes(b"an_engine")
    again = run()
    assert again.code == 0, again.output
    newer = hashlib.sha256(b"an_engine").hexdigest()
    assert laid() == [f"engine-{newer[:12]}.tar.zst"]
    assert f"Imported images from {folder}/{laid()[0]} in" in agent.sh(f"journalctl -u {unit}")
    engine.write_bytes(b"")
    spoilt = run()
    assert spoilt.code != 0 and "unrecognized image format" in spoilt.plain
    assert laid() == [f"engine-{newer[:12]}.tar.zst"], "what K3s cannot import is not left there"
    nowhere = run(path="elsewhere.tar")
    assert nowhere.code != 0 and "elsewhere.tar: it does not exist on the controller" in nowhere.plain
    del cluster.variables["spark2"]["k3s_image_archives"]
    assert cluster.run().changed == {"spark1": 0, "spark2": 0}
    assert laid() == [f"engine-{newer[:12]}.tar.zst"], "what is no longer listed stays"


@pytest.mark.long
def test_a_node_whose_ranks_do_not_go_is_left_alone(cluster: Owner) -> None:
    server, agent = cluster.lan.hosts["spark1"], cluster.lan.hosts["spark2"]
    put = (
        "import json,pathlib; p=pathlib.Path('/var/lib/rancher/k3s/server/db/state.db'); n=json.loads(p.read_text()); "
    )
    server.sh(f"python3 -c \"{put} n['spark2'].update(pods={PODS},stubborn=1); p.write_text(json.dumps(n))\"")
    before = agent.tree("/etc/rancher", "/usr/local/bin")
    cluster.variables["spark2"] = {"k3s_labels": {"rack": "b"}}
    refused = cluster.run()
    assert refused.code != 0
    assert "pod/rank-1" in refused.plain and "k8s_dgx_state=absent" in refused.plain
    assert agent.tree("/etc/rancher", "/usr/local/bin") == before
    assert not cluster.nodes()["spark2"]["spec"]["unschedulable"]
    server.sh(f"python3 -c \"{put} n['spark2'].update(pods=[],stubborn=0); p.write_text(json.dumps(n))\"")
    cluster.variables["spark2"] = {"k3s_labels": {"rack": "a"}}


# --- what fails by name, and leaves nothing ------------------------------------------------------------------------------


@pytest.mark.long
def test_a_wrong_token(cluster: Owner, bare: Host) -> None:
    server = cluster.lan.hosts["spark1"]
    kept = server.sh("cat /var/lib/rancher/k3s/server/agent-token")
    server.sh(f"echo '{kept.rpartition(':')[0]}:{'0' * 64}' > /var/lib/rancher/k3s/server/agent-token")
    try:
        failed = cluster.run(limit="spark3")
    finally:
        server.sh(f"echo '{kept}' > /var/lib/rancher/k3s/server/agent-token")
    assert failed.code != 0
    assert "The server does not know the token." in failed.plain
    assert "401 Unauthorized" in failed.plain
    assert "the node is in its previous state" in failed.plain


@pytest.mark.long
def test_a_server_without_a_token_for_agents_gives_no_agent_its_own(cluster: Owner, bare: Host) -> None:
    """As with K3s installed by a version that had no such token."""
    server = cluster.lan.hosts["spark1"]
    server.sh("mv /etc/rancher/k3s/agent-token /etc/rancher/k3s/aside")
    try:
        failed = cluster.run(limit="spark3")
    finally:
        server.sh("mv /etc/rancher/k3s/aside /etc/rancher/k3s/agent-token")
    assert failed.code != 0
    assert "spark1: it has no agent token yet" in failed.plain and "-l spark1,spark3" in failed.plain


@pytest.mark.long
def test_images_that_are_not_the_release_s_are_refused(cluster: Owner, bare: Host) -> None:
    release(cluster.releases / "spoilt", OLD)
    (cluster.releases / "spoilt" / OLD / ARCHIVE).write_bytes(b"other images")
    failed = cluster.run(limit="spark3", k3s_source=str(cluster.releases / "spoilt"))
    assert failed.code != 0
    assert f"{ARCHIVE} of K3s {OLD} is corrupted" in failed.plain and "the release's list says" in failed.plain


@pytest.mark.long
def test_a_token_of_another_cluster(cluster: Owner, bare: Host) -> None:
    server = cluster.lan.hosts["spark1"]
    kept = server.sh("cat /var/lib/rancher/k3s/server/agent-token")
    server.sh(f"echo 'K10{'a' * 64}::node:{kept.rpartition(':')[2]}' > /var/lib/rancher/k3s/server/agent-token")
    try:
        failed = cluster.run(limit="spark3")
    finally:
        server.sh(f"echo '{kept}' > /var/lib/rancher/k3s/server/agent-token")
    assert failed.code != 0
    assert "The token belongs to another cluster." in failed.plain


@pytest.mark.long
def test_an_unreachable_server(cluster: Owner, bare: Host) -> None:
    failed = cluster.run(limit="spark3", k3s_url="https://192.0.2.11:6999", k3s_start_timeout=4)
    assert failed.code != 0
    assert "The server cannot be reached." in failed.plain
    assert "connection refused" in failed.plain


@pytest.mark.more
def test_a_corrupted_binary(cluster: Owner, bare: Host) -> None:
    release(cluster.releases, NEWER, corrupt=True)
    failed = cluster.run(limit="spark3", k3s_version=NEWER)
    assert failed.code != 0
    # An agent newer than its server is refused first; so the server's release is what is corrupted here.
    assert "must not be newer" in failed.plain
    release(cluster.releases / "bad", OLD, corrupt=True)
    failed = cluster.run(limit="spark3", k3s_source=str(cluster.releases / "bad"))
    assert failed.code != 0
    assert "is corrupted: its SHA-256 is" in failed.plain


@pytest.mark.long
def test_no_archive_of_images(cluster: Owner, bare: Host) -> None:
    release(cluster.releases / "poor", OLD, images=False)
    failed = cluster.run(limit="spark3", k3s_source=str(cluster.releases / "poor"))
    assert failed.code != 0
    assert "the archive of images is missing" in failed.plain


@pytest.mark.long
def test_a_mirror_that_lacks_a_file(cluster: Owner, bare: Host) -> None:
    release(cluster.releases / "mirror", OLD, images=False)
    failed = cluster.run(limit="spark3", k3s_source=cluster.lan.serve(cluster.releases / "mirror"))
    assert failed.code != 0
    assert "could not be fetched from http://192.0.2.1:8000" in failed.plain and "404" in failed.plain


@pytest.mark.long
def test_a_full_disk(cluster: Owner) -> None:
    host = cluster.lan.host("spark4", "192.0.2.14", var_mib=64)
    cluster.agents.append("spark4")
    before = host.tree(*PLACES)
    failed = cluster.run(limit="spark4")
    assert failed.code != 0
    assert "the disk is full" in failed.plain and "/var/lib/rancher/k3s" in failed.plain
    assert host.tree(*PLACES) == before
    cluster.agents.remove("spark4")


# --- upgrades --------------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_an_upgrade_by_changing_the_version_from_the_release_s_own_checksums(cluster: Owner) -> None:
    upgraded = cluster.run(k3s_version=NEW, k3s_checksums={})
    assert upgraded.code == 0, upgraded.output
    assert {n["status"]["nodeInfo"]["kubeletVersion"] for n in cluster.nodes().values()} == {NEW}
    again = cluster.run(k3s_version=NEW, k3s_checksums={})
    assert again.code == 0 and again.changed == {"spark1": 0, "spark2": 0}, again.output


@pytest.mark.long
def test_a_downgrade_is_refused(cluster: Owner) -> None:
    refused = cluster.run(k3s_version=OLD)
    assert refused.code != 0
    assert "downgrade" in refused.plain
    assert {n["status"]["nodeInfo"]["kubeletVersion"] for n in cluster.nodes().values()} == {NEW}


@pytest.mark.long
def test_a_failed_upgrade_goes_back_to_the_release_before_and_stops_there(cluster: Owner) -> None:
    server = cluster.lan.hosts["spark1"]
    before = server.tree("/etc/rancher", "/usr/local/bin")
    release(cluster.releases, NEWER, broken="starting kubernetes: failed to find memory cgroup (v2)")
    failed = cluster.run(k3s_version=NEWER)
    assert failed.code != 0
    assert "The kernel does not offer the cgroup controllers" in failed.plain
    assert f"The node is back on {NEW}, which is running." in failed.plain
    assert server.tree("/etc/rancher", "/usr/local/bin") == before
    assert {n["status"]["nodeInfo"]["kubeletVersion"] for n in cluster.nodes().values()} == {NEW}
    assert "ActiveState=active" in server.sh("systemctl show --property=ActiveState k3s.service")
    assert cluster.run(k3s_version=NEW).changed == {"spark1": 0, "spark2": 0}


# --- the way back ----------------------------------------------------------------------------------------------------------


@pytest.mark.more
def test_absent_leaves_nothing_and_touches_nothing_else(cluster: Owner) -> None:
    server = cluster.lan.hosts["spark1"]
    had = server.sh("ls -d /etc/cni", check=False)  # its /etc is a copy of this machine's
    server.sh("mkdir -p /etc/cni/net.d /var/lib/other && echo mine > /etc/cni/net.d/10-mine.conf")
    foretold = cluster.run("--check", "-e", "k3s_state=absent")
    assert foretold.code == 0 and cluster.nodes(), foretold.output
    gone = cluster.run("-e", "k3s_state=absent")
    assert gone.code == 0, gone.output
    server.sh("rm /etc/cni/net.d/10-mine.conf && rm -r /var/lib/other" + ("" if had else " && rm -r /etc/cni"))
    assert server.tree(*PLACES) == cluster.lan.before  # type: ignore[attr-defined]
    assert not cluster.kubeconfig.exists()
    assert server.sh("pgrep --ns $$ --nslist net -f '/usr/local/bin/k3s (server|agent)'", check=False) == ""
    again = cluster.run("-e", "k3s_state=absent")
    assert again.code == 0 and again.changed == {"spark1": 0, "spark2": 0}, again.output


@pytest.mark.long
def test_three_servers(owner: Owner, cluster: Owner) -> None:
    assert owner.run("-e", "k3s_state=absent").code == 0
    owner.servers, owner.agents = ["spark1", "spark2", "spark3"], []
    made = owner.run(limit="all")
    assert made.code == 0, made.output
    configs = [yaml.safe_load(owner.lan.hosts[name].sh("cat /etc/rancher/k3s/config.yaml")) for name in owner.servers]
    assert [config.get("cluster-init") for config in configs] == [True, None, None]
    assert owner.run(limit="all").changed == dict.fromkeys(owner.servers, 0)
    assert owner.run("-e", "k3s_state=absent", limit="all").code == 0


@pytest.mark.long
def test_a_k3s_that_somebody_else_laid_there_is_left_alone(owner: Owner) -> None:
    host = owner.lan.hosts["spark1"]
    host.sh(f"install -m 755 {owner.releases}/{OLD}/{BINARY} /usr/local/bin/k3s")
    before = host.tree(*PLACES)
    for arguments in ((), ("-e", "k3s_state=absent")):
        refused = owner.run(*arguments, limit="spark1")
        assert refused.code != 0
        assert "k3s-uninstall.sh" in refused.plain
    assert host.tree(*PLACES) == before


@pytest.mark.long
def test_all_of_k3s_comes_from_a_bundle_and_a_host_without_a_way_out_needs_nothing_else(
    tmp_path: pathlib.Path,
) -> None:
    """The hosts are namespaces on a network of their own, and every request to the controller's proxy is refused and recorded."""
    lan, wall = Lan(tmp_path / "lan"), Wall()
    for number in (1, 2):
        lan.host(f"spark{number}", f"192.0.2.1{number}")
    try:
        own = Owner(tmp_path, lan)
        own.agents = ["spark2"]
        release(tmp_path / "made", OLD)
        contents = {path.name: path.read_bytes() for path in (tmp_path / "made" / OLD).iterdir()}
        sums = {ARCHITECTURE: hashlib.sha256(contents[BINARY]).hexdigest()}
        choices = {"k3s": OLD, "architectures": [ARCHITECTURE], "checksums": sums, "kubernetes": {}}
        overlay = tmp_path / "dgxspark" / "k3s"
        overlay.mkdir(parents=True)
        entry = {key: value for key, value in knowledge.get("k3s", OLD).items() if key != "origin"}
        entry |= {"sha256": sums, "images_sha256": {}, "replaces": OLD}
        (overlay / "own.yml").write_text(yaml.safe_dump(entry), encoding="utf-8")
        images = {"multus": b"multus' archive", "sriov_device_plugin": b"sriov", "nvidia_device_plugin": b"nvidia"}
        choices["kubernetes"] = {"parts": {"cni_plugins": "unmanaged"}}
        bundles.lay(tmp_path / "bundle", choices, contents | images, [str(tmp_path / "dgxspark")])
        given: dict[str, t.Any] = {"dgxspark_bundle": "bundle", "dgxspark_fabric": {"group": "k3s_agent"}}
        # Nodes are not reached by proxy: real units do not inherit it from Ansible's environment, the stand-in's systemd does.
        near = ",".join(("127.0.0.1", "localhost", *(host.address for host in lan.hosts.values())))
        environment = wall.environment | {"no_proxy": near, "NO_PROXY": near}
        dropped = ("k3s_source", "k3s_airgap", "k3s_checksums")
        assert "unreachable" in lan.hosts["spark2"].sh("ip route get 203.0.113.1 2>&1", check=False)
        made = own.run(dropped=dropped, environment=environment, **given)
        assert made.code == 0, made.output
        laid = lan.hosts["spark2"].sh("ls /var/lib/rancher/k3s/agent/images").split()
        assert [name.partition("-")[0] for name in laid] == ["ghcr.io", "ghcr.io", "k3s", "nvcr.io"]
        # Ranks and the platform's daemons run only on Sparks.
        assert lan.hosts["spark1"].sh("ls /var/lib/rancher/k3s/agent/images").split() == [ARCHIVE]
        again = own.run(dropped=dropped, environment=environment, **given)
        assert (again.code, again.changed) == (0, {"spark1": 0, "spark2": 0}), again.output
        assert wall.asked == []
        (tmp_path / "bundle" / "k3s" / OLD / BINARY).unlink()
        for host in ("spark1", "spark2"):
            lan.hosts[host].sh("rm /usr/local/bin/k3s")
        lacking = own.run(dropped=dropped, environment=environment, **given)
        assert lacking.code != 0
        assert f"bundle/k3s/{OLD}/{BINARY}" in lacking.plain
    finally:
        lan.close()
        wall.stop()
