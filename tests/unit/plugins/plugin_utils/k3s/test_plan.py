"""The plan of K3s for one node: from inventory, variables and what the node shows to configuration and refusals."""

from __future__ import annotations

import copy
import re
import typing as t

import pytest
import yaml

from ansible_collections.dgxspark.cluster.plugins.module_utils.k3s import layout
from ansible_collections.dgxspark.cluster.plugins.module_utils.k3s.machine import Installed
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, to_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.k3s.plan import plan_of_inventory, turns
from ansible_collections.dgxspark.cluster.tests.support.k3s_machine import machine

VERSION = "v1.36.4+k3s1"
Plain = dict[str, t.Any]


def installed(version: str = VERSION, role: str = "agent", **more: t.Any) -> Plain:
    there = Installed(
        version=version, role=role, active="active", enabled="enabled", token=True, registries=True, data=True,
        sha256=knowledge.get("k3s", VERSION)["sha256"]["arm64"], ours={"version": version, "data": layout.DATA},
    )  # fmt: skip
    return {**t.cast(Plain, to_plain(there)), **more}


class Cluster:
    """An inventory of four Sparks; spark1 is the server unless a test says otherwise."""

    def __init__(self) -> None:
        self.servers, self.agents = ["spark1"], ["spark2", "spark3", "spark4"]
        self.hostvars: dict[str, Plain] = {f"spark{n}": {"ansible_host": f"192.0.2.1{n}"} for n in range(1, 5)}
        self.fabric: Plain = {"hardware": "spark", "topology": "switch"}
        self.settings: Plain = {"version": VERSION, "source": "https://mirror.example/k3s"}
        self.server: Plain | None = None
        self.archives_seen: list[Plain] = []
        self.joined: Plain | None = None

    def plan(self, name: str, seen: Plain | None = None, **settings: t.Any) -> Plain:
        given = {
            "settings": {**self.settings, "node_ip": self.hostvars[name].get("k3s_node_ip"), **settings},
            "servers": self.servers,
            "agents": self.agents,
            "fabric": self.fabric,
            "sparks": [host for host in self.hostvars if host.startswith("spark")],
            "machine": seen if seen is not None else machine(str(self.hostvars[name].get("ansible_host"))),
            "server": self.server,
            "archives_seen": self.archives_seen,
            "joined": self.joined,
        }
        return t.cast(Plain, plan_of_inventory(name, given, self.hostvars))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def ids(plan: Plain) -> set[str]:
    return {finding["id"] for finding in plan["findings"]}


def test_a_server_and_its_agents(cluster: Cluster) -> None:
    server, agent = cluster.plan("spark1"), cluster.plan("spark3")
    assert server["refusals"] == agent["refusals"] == []
    assert (server["role"], server["first"], agent["role"], agent["first"]) == ("server", True, "agent", False)
    assert server["config"] == {
        "agent-token-file": "/etc/rancher/k3s/agent-token",
        "cluster-cidr": "10.42.0.0/16",
        "cluster-dns": "10.43.0.10",
        "flannel-iface": "enP7s7",
        "kubelet-arg": server["config"]["kubelet-arg"],
        "node-ip": "192.0.2.11",
        "node-label": ["dgxspark.cluster/spark=true"],
        "node-name": "spark1",
        "service-cidr": "10.43.0.0/16",
        "tls-san": ["192.0.2.11"],
        "token-file": "/etc/rancher/k3s/token",
        "write-kubeconfig-mode": "0600",
    }
    assert agent["config"]["server"] == "https://192.0.2.11:6443"
    assert not set(agent["config"]) & {"cluster-cidr", "tls-san", "disable", "cluster-init"}
    assert yaml.safe_load(agent["text"]) == agent["config"]


def test_agents_of_a_cluster_that_is_there_already(cluster: Cluster) -> None:
    cluster.servers = []
    (none,) = cluster.plan("spark2")["refusals"]
    assert "k3s_token_file" in none, "how to join one is said"
    cluster.joined = {
        "url": "https://k3s.example:6443", "accepted": True, "pods": ["192.0.2.0/24"], "services": ["10.43.0.0/16"],
        "server": VERSION, "nodes": ["box"],
    }  # fmt: skip
    (wrong,) = cluster.plan("spark2")["refusals"]
    assert "its address 192.0.2.12 is in the network of the pods, 192.0.2.0/24" in wrong, "of their pods, not ours"
    cluster.joined["pods"] = ["10.7.0.0/16"]
    made = cluster.plan("spark2")
    assert made["refusals"] == [] and (made["role"], made["server"], made["first"]) == ("agent", "", False)
    assert made["config"]["server"] == "https://k3s.example:6443"
    assert "cluster-cidr" not in made["config"]
    # K3s is not restarted under a rank; a node that stays as it is may have some.
    cluster.joined["ranks"] = {"spark2": ["serve-coder-rank1-0"]}
    (held,) = cluster.plan("spark2", machine("192.0.2.12", k3s=installed()))["refusals"]
    assert "it runs ranks (serve-coder-rank1-0)" in held and "k8s_dgx_state=absent" in held


def test_nodes_share_images_where_they_are_told_to(cluster: Cluster) -> None:
    server, agent = cluster.plan("spark1", embedded_registry=True), cluster.plan("spark3", embedded_registry=True)
    assert server["config"]["embedded-registry"] is True
    assert "embedded-registry" not in agent["config"], "K3s knows it of servers alone"
    taken = machine("192.0.2.13", listening=(5001,))
    assert "port 5001" in cluster.plan("spark3", taken, embedded_registry=True)["refusals"][0]
    assert cluster.plan("spark3", taken)["refusals"] == []
    own = cluster.plan("spark1", config={"embedded-registry": True})
    assert "Use k3s_embedded_registry." in own["refusals"][0]


DIGEST = "ab" * 32


def archives(cluster: Cluster, entries: list[Plain], stats: list[Plain], **seen: t.Any) -> Plain:
    cluster.archives_seen = stats
    try:
        return cluster.plan("spark2", machine("192.0.2.12", **seen), image_archives=entries)
    finally:
        cluster.archives_seen = []


def test_archives_of_images_get_a_name_with_their_digest(cluster: Cluster) -> None:
    stat = {"exists": True, "isreg": True, "path": "/o/engine.tar.zst", "size": 3 * 2**20 + 1, "checksum": DIGEST}
    (made,) = archives(cluster, [{"path": "engine.tar.zst"}], [stat])["archives"]
    assert (made["name"], made["path"], made["sha256"], made["mib"]) == (
        f"engine-{DIGEST[:12]}.tar.zst", "/o/engine.tar.zst", DIGEST, 4,
    )  # fmt: skip
    assert re.search(made["older"], f"engine-{'0' * 12}.tar.zst") and not re.search(made["older"], "engine.tar.zst")
    # An archive that is there already is not copied; a given digest is not computed from the file.
    given = [{"path": "engine.tar.zst", "sha256": DIGEST, "name": "e.tgz"}]
    there = to_plain(Installed(archives=(f"e-{DIGEST[:12]}.tgz",)))
    assert archives(cluster, given, [{**stat, "checksum": None}], k3s=there)["archives"] == []


@pytest.mark.parametrize(
    ("entry", "stat", "words"),
    [
        ({"path": "a.tar"}, {"exists": False}, "a.tar: it does not exist on the controller"),
        ({"path": "a.zip"}, {}, "a.zip is not a name that K3s imports"),
        ({"path": "a.tar", "name": "../a.tar"}, {}, "is not a name that K3s imports"),
        ({"path": "a.tar", "sha256": "1234"}, {}, "1234 is not a SHA-256"),
    ],
)
def test_an_archive_that_is_none_is_refused(cluster: Cluster, entry: Plain, stat: Plain, words: str) -> None:
    whole = {"exists": True, "isreg": True, "path": "/o/a.tar", "size": 1, "checksum": DIGEST}
    made = archives(cluster, [entry], [stat if "exists" in stat else whole])
    assert words in made["refusals"][0]


def test_archives_need_two_names_and_room_for_what_comes_of_them(cluster: Cluster) -> None:
    stat = {"exists": True, "isreg": True, "path": "/o/a.tar", "size": 400 * 2**20, "checksum": DIGEST}
    twins = archives(cluster, [{"path": "a.tar"}, {"path": "b/a.tar"}], [stat, {**stat, "path": "/o/b/a.tar"}])
    assert "/o/a.tar has the name a.tar, too" in twins["refusals"][0]
    full = archives(cluster, [{"path": "a.tar"}], [stat], free_mib={"/var/lib/rancher/k3s": 1500})
    assert "1500 MiB free, and 1600 MiB are needed" in full["refusals"][0]


def test_what_the_fabric_keeps_clear_is_what_k3s_uses(cluster: Cluster) -> None:
    cluster.fabric["reserved_networks"] = {"pods": "172.20.0.0/16", "services": "172.21.0.0/17"}
    config = cluster.plan("spark1")["config"]
    assert (config["cluster-cidr"], config["service-cidr"]) == ("172.20.0.0/16", "172.21.0.0/17")
    assert config["cluster-dns"] == "172.21.0.10"


def test_memory_is_reserved_on_sparks_and_the_owner_has_the_last_word(cluster: Cluster) -> None:
    known = knowledge.get("memory_guard", "spark")["kubelet"]
    arguments = dict(a.split("=", 1) for a in cluster.plan("spark2")["config"]["kubelet-arg"])
    assert arguments == known
    more = {"eviction-hard": None, "max-pods": 50, "fail-swap-on": False}
    arguments = dict(a.split("=", 1) for a in cluster.plan("spark2", kubelet_args=more)["config"]["kubelet-arg"])
    assert arguments == {k: v for k, v in known.items() if k != "eviction-hard"} | {
        "max-pods": "50",
        "fail-swap-on": "false",
    }


def test_a_server_of_another_architecture_without_a_gpu(cluster: Cluster) -> None:
    cluster.servers, cluster.agents = ["box"], ["spark1", "spark2", "spark3", "spark4"]
    cluster.hostvars["box"] = {"ansible_host": "192.0.2.5"}
    box = cluster.plan("box", machine("192.0.2.5", "x86_64"))
    assert box["refusals"] == []
    assert (box["file"], box["architecture"], box["cdi"]) == ("k3s", "amd64", False)
    assert "node-label" not in box["config"], "no rank may be sent there"
    assert cluster.plan("spark1")["file"] == "k3s-arm64"
    assert cluster.plan("spark1")["config"]["server"] == "https://192.0.2.5:6443"


def test_three_servers_share_etcd(cluster: Cluster) -> None:
    cluster.servers, cluster.agents = ["spark1", "spark2", "spark3"], ["spark4"]
    first, second = cluster.plan("spark1")["config"], cluster.plan("spark2")["config"]
    assert first["cluster-init"] is True and "server" not in first
    assert second["server"] == "https://192.0.2.11:6443" and "cluster-init" not in second
    for key in ("cluster-cidr", "service-cidr", "cluster-dns"):
        assert first[key] == second[key], "K3s wants these alike on every server"
    etcd = machine("192.0.2.12", listening=(22, 2379))
    assert ids(cluster.plan("spark2", etcd)) == {"k3s.port"}


@pytest.mark.parametrize(
    ("servers", "agents", "found"),
    [
        ([], ["spark1"], "k3s.no-server"),
        (["spark1"], ["spark1", "spark2"], "k3s.both-groups"),
        (["spark1", "spark2"], ["spark3"], "k3s.even-servers"),
        (["spark2"], ["spark3"], "k3s.no-group"),
    ],
)
def test_groups_that_make_no_cluster(cluster: Cluster, servers: list[str], agents: list[str], found: str) -> None:
    cluster.servers, cluster.agents = servers, agents
    plan = cluster.plan("spark1")
    assert ids(plan) == {found}
    assert plan["refusals"] and not plan["seen"]


Change = t.Callable[[Cluster], tuple[str, Plain | None, Plain]]


def on(name: str = "spark2", /, seen: Plain | None = None, **settings: t.Any) -> Change:
    return lambda _cluster: (name, seen, settings)


def with_host(**variables: t.Any) -> Change:
    def change(cluster: Cluster) -> tuple[str, Plain | None, Plain]:
        cluster.hostvars["spark2"] = variables
        return "spark2", machine("192.0.2.12"), {}

    return change


def bad_kernel() -> Plain:
    return machine("192.0.2.12", platform={"kernel": "7.0.0-1019-nvidia", "cmdline": "quiet"})


GPU = {"driver": "580.142", "toolkit": True, "runtime": True, "cdi": True}
REFUSED: dict[str, tuple[Change, str, str]] = {
    "name-of-host": (with_host(ansible_host="spark2.lan"), "k3s.node-ip", "k3s_node_ip"),
    "loopback": (with_host(ansible_host="127.0.0.1"), "k3s.node-ip", "k3s_node_ip"),
    "not-on-node": (with_host(ansible_host="192.0.2.99"), "k3s.node-ip", "192.0.2.99"),
    "fabric-address": (with_host(ansible_host="10.42.0.9"), "k3s.node-ip", "10.42.0.0/16"),
    "architecture": (on(seen=machine("192.0.2.12", "riscv64")), "k3s.architecture", "riscv64"),
    "cgroup": (on(seen=machine("192.0.2.12", memory_controller=False)), "k3s.cgroup", "cgroup"),
    "port": (on(seen=machine("192.0.2.12", listening=(22, 10250))), "k3s.port", "10250"),
    "disk": (on(seen=machine("192.0.2.12", free_mib={layout.DATA: 12})), "k3s.disk", "the disk is full"),
    "foreign": (on(seen=machine("192.0.2.12", k3s=installed(ours=None))), "k3s.foreign", "k3s-uninstall.sh"),
    "role": (on(seen=machine("192.0.2.12", k3s=installed(role="server"))), "k3s.role", "k3s_state=absent"),
    "data": (on(seen=machine("192.0.2.12", k3s=installed()), data_dir="/data/k3s"), "k3s.data-dir", layout.DATA),
    "downgrade": (on(seen=machine("192.0.2.12", k3s=installed("v1.36.9+k3s1"))), "k3s.downgrade", "v1.36.9+k3s1"),
    "skip": (on(seen=machine("192.0.2.12", k3s=installed("v1.34.1+k3s1"))), "k3s.skipped-minor", "v1.35"),
    "no-driver": (on(seen=machine("192.0.2.12"), gpu=True), "k3s.gpu", "nvidia-smi"),
    "no-toolkit": (on(seen=machine("192.0.2.12", gpu={**GPU, "toolkit": False})), "k3s.gpu", "nvidia-container-toolkit"),
    "no-runtime": (on(seen=machine("192.0.2.12", gpu={**GPU, "runtime": False})), "k3s.gpu", "container-runtime"),
    "kernel": (on(seen=bad_kernel()), "k3s.platform.kernel-7.0.0-1019", "k3s_known_bad=warn"),
    "secret": (on(config={"agent-token": "x"}), "k3s.secret", "agent-token-file"),
    "own-key": (on(config={"node-ip": "192.0.2.1"}), "k3s.own-key", "k3s_node_ip"),
    "other-port": (on("spark1", config={"https-listen-port": 7443}), "k3s.own-key", "use port 6443"),
    "typo": (on(config={"flannel-backnd": "none"}), "k3s.unknown-key", "k3s_config.flannel-backnd"),
    "typo-server": (on("spark1", config={"flannel-backnd": "none"}), "k3s.unknown-key", "Did you mean flannel-backend?"),
    "label": (on(labels={"no spaces": "x"}), "k3s.label", "k3s_labels.no spaces"),
    "own-label": (on(labels={"node-role.kubernetes.io/worker": "x"}), "k3s.label", "dgxspark.cluster/"),
    "gpu-type": (on(gpu="perhaps"), "k3s.type", "k3s_gpu"),
    "no-archive": (
        on(source="/srv/k3s", airgap=True, source_files=["k3s-arm64"]),
        "k3s.source",
        "archive of images is missing: /srv/k3s/v1.36.4+k3s1/k3s-airgap-images-arm64.tar.zst",
    ),
    "no-binary": (on(source="/srv/k3s", source_files=[]), "k3s.source", "binary is missing"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_where_why_and_what_to_do(cluster: Cluster, name: str) -> None:
    change, found, needle = REFUSED[name]
    host, seen, settings = change(cluster)
    plan = cluster.plan(host, copy.deepcopy(seen) if seen is not None else None, **settings)
    assert found in ids(plan)
    text = next(str(f) for f in plan["refusals"] if needle in f)
    assert host in text or "spark" in text
    assert all(finding["remedy"] for finding in plan["findings"])


def test_without_a_controller_of_policies_k3s_runs_and_it_is_said(cluster: Cluster) -> None:
    plan = cluster.plan("spark1", config={"disable-network-policy": True})
    assert not plan["refusals"]
    (found,) = (each for each in plan["findings"] if each["id"] == "k3s.no-policies")
    assert found["severity"] == "warning" and "the whole network" in found["message"]
    assert "k3s.no-policies" not in ids(cluster.plan("spark1", config={"disable-network-policy": False}))


@pytest.mark.parametrize("version", ["stable", "1.36.4", "", "v1.36.4"])
def test_a_version_that_is_none_is_refused(cluster: Cluster, version: str) -> None:
    with pytest.raises(CollectionError, match="k3s_version"):
        cluster.plan("spark2", version=version)


@pytest.mark.parametrize(("key", "value"), [("labels", ["a"]), ("disable", "traefik"), ("airgap", "no"), ("nodeip", 1)])
def test_a_variable_of_the_wrong_shape_is_named(cluster: Cluster, key: str, value: t.Any) -> None:
    with pytest.raises(CollectionError, match=key):
        cluster.plan("spark2", **{key: value})


def test_known_bad_versions_may_be_warned_of_alone(cluster: Cluster) -> None:
    plan = cluster.plan("spark2", bad_kernel(), known_bad="warn")
    assert plan["refusals"] == []
    assert any("ibv_reg_mr" in text for text in plan["notes"])
    cured = bad_kernel()
    cured["platform"]["cmdline"] = "quiet kho=off"
    assert "k3s.platform.kernel-7.0.0-1019" not in ids(cluster.plan("spark2", cured))


def test_an_agent_is_not_made_newer_than_a_server_that_the_limit_leaves_out(cluster: Cluster) -> None:
    cluster.server = machine("192.0.2.11", k3s=installed("v1.36.3+k3s1", "server"))
    assert "k3s.newer-agent" in ids(cluster.plan("spark2"))
    cluster.server = machine("192.0.2.11", k3s=installed(VERSION, "server"))
    assert cluster.plan("spark2")["refusals"] == []


@pytest.mark.parametrize(
    ("server", "found"),
    [({"active": "inactive"}, "k3s.server-down"), ({"token": False}, "k3s.no-agent-token")],
)
def test_no_node_joins_a_server_that_cannot_take_it(cluster: Cluster, server: Plain, found: str) -> None:
    cluster.server = machine("192.0.2.11", k3s=installed(VERSION, "server", **server))
    agent = cluster.plan("spark2")
    assert ids(agent) == {found} and "-l spark1,spark2" in agent["refusals"][0]
    assert cluster.plan("spark1", cluster.server)["refusals"] == [], "the server itself is mended by the role"


def test_what_is_fetched(cluster: Cluster) -> None:
    new = cluster.plan("spark2")
    assert new["fetch"] == [
        {"name": "k3s-arm64", "from": "https://mirror.example/k3s/v1.36.4%2Bk3s1/k3s-arm64", "url": True}
    ]
    assert re.fullmatch("[0-9a-f]{64}", new["sha256"]), "a pinned checksum needs no list"
    unpinned = cluster.plan("spark2", version="v1.36.5+k3s1", airgap=True)
    assert [f["name"] for f in unpinned["fetch"]] == [
        "k3s-arm64", "sha256sum-arm64.txt", "k3s-airgap-images-arm64.tar.zst"
    ]  # fmt: skip
    owners = cluster.plan("spark2", version="v1.36.5+k3s1", checksums={"arm64": "0" * 64})
    assert owners["sha256"] == "0" * 64 and len(owners["fetch"]) == 1
    folder = cluster.plan("spark2", source="/srv/k3s/", source_files=["k3s-arm64"])
    assert folder["fetch"] == [{"name": "k3s-arm64", "from": "/srv/k3s/v1.36.4+k3s1/k3s-arm64", "url": False}]


def converged(cluster: Cluster, name: str) -> Plain:
    """Return a machine that matches its plan."""
    plan = cluster.plan(name)
    seen = machine(cluster.hostvars[name]["ansible_host"])
    contents = {layout.CONFIG: (plan["text"], "0600")}
    contents |= {path: (text, "0644") for path, text in layout.fixed(plan["role"]).items()}
    files = [
        {"path": path, "sha256": __import__("hashlib").sha256(text.encode()).hexdigest(), "mode": mode}
        for path, (text, mode) in contents.items()
    ]
    seen["k3s"] = installed(role=plan["role"], files=files)
    return seen


@pytest.mark.parametrize("name", ["spark1", "spark4"])
def test_a_node_that_is_as_planned_changes_nothing(cluster: Cluster, name: str) -> None:
    seen = converged(cluster, name)
    plan = cluster.plan(name, seen)
    assert (plan["differs"], plan["fetch"], plan["step"], plan["refusals"]) == (False, [], "keep", [])
    for key, value in {"active": "failed", "enabled": "disabled", "token": False, "registries": False}.items():
        assert cluster.plan(name, {**seen, "k3s": {**seen["k3s"], key: value}})["differs"], key
    assert cluster.plan(name, seen, labels={"rack": "a"})["differs"]
    for lost in seen["k3s"]["files"]:
        rest = [file for file in seen["k3s"]["files"] if file != lost]
        assert cluster.plan(name, {**seen, "k3s": {**seen["k3s"], "files": rest}})["differs"], lost["path"]
    tampered = {**seen, "k3s": {**seen["k3s"], "sha256": "0" * 64}}
    assert cluster.plan(name, tampered)["fetch"], "a binary that is not the release's is replaced"


def test_the_plan_without_facts_is_what_the_inventory_says(cluster: Cluster) -> None:
    given = {
        "settings": cluster.settings,
        "servers": cluster.servers,
        "agents": cluster.agents,
        "fabric": cluster.fabric,
        "machine": None,
    }
    plan = plan_of_inventory("spark2", given, cluster.hostvars)
    assert plan == {"role": "agent", "first": False, "server": "spark1", "seen": False}


def test_turns() -> None:
    def of(role: str, changed: bool = True, there: bool = True) -> Plain:
        return {"role": role, "differs": changed, "installed": there}

    plans = {
        "s1": of("server", False), "s2": of("server"), "s3": of("server", there=False),
        "a1": of("agent"), "a2": of("agent", there=False), "a3": of("agent"), "a4": of("agent", there=False),
        "a5": of("agent", False),
    }  # fmt: skip
    assert turns(plans, list(plans)) == [["s2"], ["s3"], ["a2", "a4"], ["a1"], ["a3"]]
    assert turns({}, ["s1"]) == []
