"""The role k3s on a host that joins a cluster which is there already: REAL K3S IS NOT RUN HERE, its agent and server are stand-ins."""

from __future__ import annotations

import copy
import os
import pathlib
import shlex
import subprocess
import sys
import typing as t
from collections.abc import Iterator

import pytest
import yaml

from ansible_collections.dgxspark.cluster.tests.api.harness import NOT_RUN, can_run
from ansible_collections.dgxspark.cluster.tests.stand_ins import kube_api
from ansible_collections.dgxspark.cluster.tests.support.k3s_nodes import node
from ansible_collections.dgxspark.cluster.tests.support.k3s_owner import PLACES, Owner, Run, pod
from ansible_collections.dgxspark.cluster.tests.support.k3s_server import MADE, PASSWORD, Server, go_network
from ansible_collections.dgxspark.cluster.tests.unit import leaks
from ansible_collections.dgxspark.cluster.tests.unit.k3s_releases import OLD
from ansible_collections.dgxspark.cluster.tests.unit.namespaces import Lan, needed

pytestmark = [needed(), pytest.mark.skipif(not can_run(), reason=NOT_RUN)]
RELAY = """
import socket, socketserver, sys, threading

class Relay(socketserver.BaseRequestHandler):
    def handle(self):
        with socket.socket(socket.AF_UNIX) as there:
            there.connect(sys.argv[2])
            threading.Thread(target=self.copy, args=(there, self.request), daemon=True).start()
            self.copy(self.request, there)

    def copy(self, one, other):
        while data := one.recv(65536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)

socketserver.ThreadingTCPServer(("127.0.0.1", int(sys.argv[1])), Relay).serve_forever()
"""
Plain = dict[str, t.Any]


class Theirs:
    """A cluster of somebody else, and an owner with one Spark that is not in it yet."""

    def __init__(self, folder: pathlib.Path) -> None:
        lan = Lan(folder / "lan")
        self.host = lan.host("spark1", "192.0.2.11")
        self.owner = Owner(folder, lan)
        self.owner.servers, self.owner.agents = [], ["spark1"]
        self.server = Server(folder)
        self.cluster = kube_api.Cluster([])
        self.put(node("box", version=OLD, address="192.0.2.1"), **{"node-role.kubernetes.io/control-plane": "true"})
        self.kubeconfig = folder / "theirs.yml"
        self.api = kube_api.serve(self.cluster, self.kubeconfig)
        self.server.came = lambda came: self.put(node(came["name"], version=came["version"], address=came["ip"]))
        relay = [sys.executable, "-c", RELAY, str(self.server.port), str(self.server.plain)]
        self.relay = subprocess.Popen(["nsenter", "-t", str(self.host.process.pid), "-n", "--", *relay])
        self.token = folder / "token"
        self.bare = self.host.tree(*PLACES)

    def put(self, made: Plain, **labels: str) -> None:
        made["metadata"]["labels"] = labels
        name = made["metadata"]["name"]
        self.cluster.put(("v1", "nodes", "", name), {"apiVersion": "v1", "kind": "Node", "spec": {}, **made})

    def run(self, *arguments: str, token: str | None = None, mode: int = 0o600, **variables: t.Any) -> Run:
        self.token.write_text((self.server.token() if token is None else token) + "\n", encoding="ascii")
        self.token.chmod(mode)
        path = os.environ["ANSIBLE_COLLECTIONS_PATH"]
        given = {"k3s_url": self.server.url, "k3s_token_file": str(self.token), "k3s_kubeconfig": str(self.kubeconfig)}
        more = {"ANSIBLE_COLLECTIONS_PATH": f"{self.owner.folder / 'collections'}:{path}"}
        return self.owner.run(*arguments, limit="spark1", environment=more, **{**given, **variables})

    def close(self) -> None:
        self.relay.kill()
        self.relay.wait()
        self.owner.lan.close()
        self.server.close()
        self.api.shutdown()


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theirs]:
    made = Theirs(tmp_path_factory.mktemp("k3s"))
    yield made
    made.close()


@pytest.mark.long
def test_what_prevents_it_is_said_before_anything_is_changed(theirs: Theirs) -> None:
    fabric = {"hardware": "spark", "topology": "switch", "address_pool": "10.42.0.0/17"}
    theirs.server.config["ServiceIPRange"] = go_network("10.43.0.0/16")
    for said, given in {
        "cannot be reached from the controller": {"k3s_url": "https://127.0.0.1:1"},
        "does not know the token in k3s_token_file": {"token": theirs.server.token("node:other")},
        "belongs to another cluster": {"token": f"K10{'a' * 64}::{MADE}"},
        "others can read the token": {"mode": 0o644},
        "the servers' token": {"token": theirs.server.token(f"server:{PASSWORD}")},
        "pods, 10.42.0.0/16, overlaps with the fabric's, 10.42.0.0/17": {"dgxspark_fabric": fabric},
        "must not be newer than its server. Set k3s_version to": {"k3s_version": "v1.36.104+k3s1"},
        "set k3s_url and k3s_token_file": {"k3s_url": ""},
    }.items():
        refused = theirs.run(**t.cast(t.Any, given))
        assert refused.code != 0 and said in refused.plain, refused.output
        assert PASSWORD not in refused.output
    assert theirs.host.tree(*PLACES) == theirs.bare
    assert set(theirs.cluster.nodes()) == {"box"}


@pytest.mark.more
def test_a_node_joins_stays_as_it_is_and_leaves(theirs: Theirs) -> None:
    theirs.cluster.objects["v1", "pods", "n", "other"] = {"apiVersion": "v1", "kind": "Pod", **pod("other", None)}
    before = copy.deepcopy(theirs.cluster.objects)
    foretold = theirs.run("--check", "--diff")
    assert foretold.code == 0 and foretold.changed["spark1"] > 0, foretold.output
    assert theirs.cluster.objects == before and theirs.host.tree(*PLACES) == theirs.bare
    with leaks.Watch() as watch:
        made = theirs.run("-vvv", "--diff")
    assert made.code == 0, made.output
    secret = theirs.server.token()
    assert not leaks.lines(made.output, PASSWORD) and not watch.holding(PASSWORD)
    assert theirs.host.sh("cat /etc/rancher/k3s/token") == secret
    assert theirs.host.sh("stat -c %a /etc/rancher/k3s/token /etc/rancher/k3s/config.yaml").split() == ["600", "600"]
    config = yaml.safe_load(theirs.host.sh("cat /etc/rancher/k3s/config.yaml"))
    assert config["server"] == theirs.server.url and "cluster-cidr" not in config
    assert theirs.cluster.nodes()["spark1"]["status"]["nodeInfo"]["kubeletVersion"] == OLD
    others = {key: each for key, each in theirs.cluster.objects.items() if key[3] != "spark1"}
    assert others == before, "nothing else of the cluster was touched"
    # A token that has expired does not matter to who has joined, and none is needed.
    for again in (theirs.run(token=theirs.server.token("node:expired")), theirs.run(k3s_token_file="")):
        assert again.code == 0 and again.changed["spark1"] == 0, again.output
    rank = pod("rank-1", None, **{"dgxspark.cluster/rank": "1"})
    rank["spec"]["nodeName"] = "spark1"
    theirs.cluster.objects["v1", "pods", "n", "rank-1"] = {"apiVersion": "v1", "kind": "Pod", **rank}
    held = theirs.run(k3s_labels={"rack": "a"})
    assert held.code != 0 and "spark1: it runs ranks (rank-1)" in held.plain, held.output
    del theirs.cluster.objects["v1", "pods", "n", "rank-1"]
    gone = theirs.run("-e", "k3s_state=absent")
    assert gone.code == 0, gone.output
    assert set(theirs.cluster.nodes()) == {"box"} and theirs.kubeconfig.is_file()
    assert theirs.host.tree(*PLACES) == theirs.bare
    assert shlex.quote(PASSWORD) not in gone.output
