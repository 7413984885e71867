"""What nodes show becomes an inventory from which our own plan makes the same fabric, or a refusal that says why not."""

from __future__ import annotations

import configparser
import ipaddress
import itertools
import pathlib
import typing as t

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.link_probe import Heard
from ansible_collections.dgxspark.cluster.plugins.module_utils.facts import read_node
from ansible_collections.dgxspark.cluster.plugins.module_utils.lldp import Neighbour
from ansible_collections.dgxspark.cluster.plugins.module_utils.survey import Net, Stack, Survey
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    CollectionError,
    Netdev,
    NetplanFile,
    NetplanStanza,
    Place,
    Vf,
    to_plain,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.discover.discovery import Discovered, discover, lay_down
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.discover.inventory import GROUP, HOSTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.inventory import plan_of_inventory
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.plan import Plan
from ansible_collections.dgxspark.cluster.tests.support.properties import examples
from ansible_collections.dgxspark.cluster.tests.unit import fakes
from ansible_collections.dgxspark.cluster.tests.unit.discovered import CLASS, End, Site, address


def planned(made: Discovered, site: Site | None = None) -> Plan:
    """Plan from the written text alone, with the nodes' facts where a site is given."""
    hosts, group = (yaml.safe_load(made.files[name]) for name in (HOSTS, GROUP))
    spark = hosts["all"]["children"]["spark"]["children"]
    assert next(iter(spark)) == "spark_controller", "the controller is member 0"
    dgx = spark["dgx"]["hosts"]
    variables = {name: {**group, **own} for name, own in dgx.items()}
    if site:
        for plain, of_host in zip(site.hosts().values(), variables.values(), strict=True):
            of_host["dgxspark_roce"] = plain["roce"]
    return plan_of_inventory(list(dgx), group["dgxspark_fabric"], variables)


def segments(plan: Plan) -> set[frozenset[End]]:
    return {frozenset((int(m["host"][5:]), m["port"]) for m in segment["members"]) for segment in plan["segments"]}


def findings(made: Discovered, severity: str | None = None) -> dict[str, dict[str, t.Any]]:
    return {f["id"]: f for f in made.view["findings"] if severity in (None, f["severity"])}


def site_of(kind: str, count: int, order: t.Sequence[int], ports: t.Sequence[int], **more: t.Any) -> Site:
    """Return a wired site. order: the hosts' order in a ring; ports: those in use; in a ring, each host's outgoing port."""
    site = Site(count, **more)
    if kind == "switch":
        site.wire(*((host, port) for host in range(1, count + 1) for port in ports))
    elif kind == "direct":
        for port in ports:
            site.wire((1, port), (2, port))
    elif kind == "crossed":
        site.wire((1, 0), (2, 1))
        site.wire((1, 1), (2, 0))
    elif kind == "ring":
        out = dict(zip(order, itertools.cycle(ports), strict=False))
        for one, other in zip(order, [*order[1:], order[0]], strict=True):
            site.wire((one, out[one]), (other, 1 - out[other]))
    return site


KINDS = st.one_of(
    st.tuples(st.just("single"), st.just(1), st.just([1]), st.just([0])),
    st.tuples(st.sampled_from(["direct", "crossed"]), st.just(2), st.just([1, 2]), st.sampled_from([[0], [1], [0, 1]])),
    st.integers(3, 7).flatmap(
        lambda n: st.tuples(
            st.just("ring"),
            st.just(n),
            st.permutations(range(1, n + 1)),
            st.lists(st.integers(0, 1), min_size=n, max_size=n),
        )
    ),
    st.integers(2, 9)
    .flatmap(
        lambda n: st.tuples(
            st.just("switch"), st.just(n), st.just(list(range(1, n + 1))), st.sampled_from([[0], [1], [0, 1]])
        )
    )
    .filter(lambda each: each[1] > 2 or len(each[3]) > 1),
)
NETWORKS = st.lists(
    st.builds(
        lambda first, second, third, prefix: str(
            ipaddress.ip_network(f"{first}.{second}.{third}.0/{prefix}", strict=False)
        ),
        st.sampled_from([10, 172, 192]),
        st.one_of(st.integers(16, 31), st.integers(40, 45), st.integers(98, 110), st.just(168)),
        st.integers(0, 255),
        st.sampled_from([12, 14, 16, 20, 24, 28]),
    ),
    max_size=8,
)


@settings(max_examples=examples(50))
@given(KINDS, NETWORKS, st.booleans(), st.integers(1, 16))
def test_the_written_inventory_is_planned_as_the_nodes_are_wired(
    kind: tuple[str, int, list[int], list[int]], networks: list[str], twins: bool, totalvfs: int
) -> None:
    site = site_of(*kind, twins=twins, totalvfs=totalvfs)
    for number, network in enumerate(networks):
        site.networks[number % site.count + 1].append(Net(network, f"br{number}", "route"))
    made = discover(site.hosts())
    assert made.files, made.view["headline"]
    assert made.page.index("What the inventory is based on") < made.page.index("dgxspark.cluster.site -i inventory")
    plan = planned(made, site)
    assert segments(plan) == {frozenset(wire) for wire in site.wires}
    used = [ipaddress.ip_network(network) for network in (*networks, "192.0.2.0/24")]
    settings = yaml.safe_load(made.files[GROUP])["dgxspark_fabric"]
    kept = [ipaddress.ip_network(settings["reserved_networks"][name]) for name in ("pods", "services")]
    ours = [ipaddress.ip_network(subnet["subnet"]) for subnet in plan["subnets"]]
    for one in (*ours, *kept):
        assert not [net for net in used if net.overlaps(one)], (one, made.files[GROUP])
    assert not [1 for a, b in itertools.combinations((*ours, *kept), 2) if a.overlaps(b)]
    assert all(len(function["vfs"]) <= totalvfs for host in plan["hosts"].values() for function in host["functions"])
    # Both functions of each port in use, and the same again from the same nodes.
    assert all(len(host["functions"]) % 2 == 0 for host in plan["hosts"].values())
    again = discover(site.hosts())
    assert (again.files, again.page) == (made.files, made.page)
    assert segments(planned(made)) == segments(plan), "the inventory holds without the nodes' facts"


def test_two_sparks_and_a_cable() -> None:
    site = Site(2)
    site.wire((1, 0), (2, 0))
    made = discover(site.hosts())
    group = yaml.safe_load(made.files[GROUP])
    assert group["dgxspark_fabric"] == {
        "hardware": "spark",
        "topology": "direct",
        "cables": [["spark1:0", "spark2:0"]],
        "vf_count": 4,
        "address_pool": "10.100.0.0/16",
        "management_networks": ["192.0.2.0/24"],
        "reserved_networks": {"pods": "10.42.0.0/16", "services": "10.43.0.0/16"},
    }
    assert (group["ansible_user"], group["ansible_become"]) == ("nvidia", True)
    hosts = yaml.safe_load(made.files[HOSTS])["all"]["children"]["spark"]["children"]["dgx"]["hosts"]
    assert hosts == {f"spark{n}": {"ansible_host": address(n)} for n in (1, 2)}
    assert "# Two ports that hear only each other" in made.files[GROUP]
    assert "# The firmware allows 16 on each function" in made.files[GROUP]
    assert made.view["verdict"] == "passed" and "2 Sparks: direct of 1 cable." in made.page
    assert "<svg" in made.page and "spark1 p0f1 on cable1" in made.page


def test_a_switch_that_lldp_names_is_one_though_two_ports_hear_each_other_alone() -> None:
    site = Site(2)
    site.wire((1, 0), (2, 0))
    for number in (1, 2):
        site.neighbours[number].append(Neighbour("enp1s0f0np0", "48:a9:8a:00:00:01", "qsfp1", "crs812", bridge=True))
    made = discover(site.hosts())
    fabric = yaml.safe_load(made.files[GROUP])["dgxspark_fabric"]
    assert (fabric["topology"], fabric["ports"]) == ("switch", [0])
    assert "# switch crs812: spark1:0, spark2:0" in made.files[GROUP]


def test_lldp_alone_says_who_is_at_the_other_end() -> None:
    """LLDP gives the port at the other end; the probe was heard by nobody."""
    site = Site(2)
    site.wire((1, 0), (2, 1))
    hosts = site.hosts()
    far = next(function for function in hosts[address(2)]["roce"]["functions"] if function["pci"] == "0000:01:00.1")
    for plain in hosts.values():
        plain["links"] = []
    hosts[address(1)]["survey"]["neighbours"] = [
        to_plain(Neighbour("enp1s0f0np0", "aa:bb:cc:dd:ee:ff", far["netdev"]["mac"], "spark-2"))
    ]
    made = discover(hosts)
    assert yaml.safe_load(made.files[GROUP])["dgxspark_fabric"]["cables"] == [["spark1:0", "spark2:1"]]


def test_vfs_that_are_there_keep_their_number_and_their_network() -> None:
    site = Site(2)
    site.wire((1, 0), (2, 0))
    for number, functions in site.functions.items():
        for place, function in enumerate(functions[:2]):
            netdevs = [
                Netdev(f"v{place}{index}", ipv4=(f"10.55.{place * 8 + index}.{number}/24",)) for index in range(8)
            ]
            vfs = tuple(Vf(i, f"0000:0{place}:01.{i}", netdev=n, place=Place("host")) for i, n in enumerate(netdevs))
            object.__setattr__(function, "vfs", vfs)
            object.__setattr__(function, "numvfs", 8)
            site.networks[number] += [
                Net(f"10.55.{place * 8 + i}.0/24", n.name, "route") for i, n in enumerate(netdevs)
            ]
    fabric = yaml.safe_load(discover(site.hosts()).files[GROUP])["dgxspark_fabric"]
    assert (fabric["vf_count"], fabric["address_pool"]) == (8, "10.55.0.0/16")
    assert set(fabric["reserved_networks"]) == {"pods", "services"}


def test_what_site_made_of_it_changes_nothing() -> None:
    """Once the planned VFs are there with their addresses, the same files come out, comments included."""
    site = Site(3)
    site.wire((1, 0), (2, 0), (3, 0))
    site.networks[2].append(Net("10.100.9.0/24", "docker0", "route"))
    made = discover(site.hosts())
    for name, host in planned(made)["hosts"].items():
        functions = site.functions[int(name[5:])]
        for function, plan in zip(functions[:2], host["functions"], strict=True):
            vfs = tuple(
                Vf(
                    vf["index"],
                    f"{function.pci[:-4]}01.{vf['index']}",
                    netdev=Netdev(
                        f"v{plan['slot']}{vf['index']}", mac=vf["mac"], ipv4=(f"{vf['address']}/{vf['prefix']}",)
                    ),
                    place=Place("host"),
                )
                for vf in plan["vfs"]
            )
            object.__setattr__(function, "vfs", vfs)
            object.__setattr__(function, "numvfs", len(vfs))
            for vf, of_plan in zip(vfs, plan["vfs"], strict=True):
                assert vf.netdev
                site.networks[int(name[5:])].append(Net(of_plan["subnet"], vf.netdev.name, "route"))
    assert discover(site.hosts()).files == made.files


def test_k3s_s_own_networks_are_kept_and_its_role_is_told() -> None:
    site = Site(2)
    site.wire((1, 0), (2, 0))
    hosts = site.hosts()
    k3s = {"version": "v1.36.3+k3s1", "role": "server", "active": "active"}
    hosts[address(1)]["machine"] = {"architecture": "aarch64", "k3s": k3s}
    hosts[address(1)]["survey"] = to_plain(
        Survey(
            networks=(Net("10.100.0.0/24", "cni0", "route"), Net("172.17.0.0/16", "docker0", "route")),
            k3s={"pods": "10.100.0.0/16", "services": "10.101.0.0/16"},
            stacks=(Stack("k3s", ("unit k3s.service",), 12, 30 * 1024, (6443, 10250), (7,)),),
        )
    )
    made = discover(hosts)
    fabric = yaml.safe_load(made.files[GROUP])["dgxspark_fabric"]
    assert fabric["address_pool"] == "10.102.0.0/16"
    assert fabric["reserved_networks"] == {
        "pods": "10.100.0.0/16",
        "services": "10.101.0.0/16",
        "docker0": "172.17.0.0/16",
    }
    assert "pods: chosen since K3s uses it." in made.files[GROUP]
    assert "# K3s is installed, but not by this collection: spark1 server v1.36.3+k3s1." in made.files[HOSTS]
    assert "\n    # k3s_server:\n" in made.files[HOSTS]
    message = findings(made)["stack.k3s"]["message"]
    assert "it holds 30 GiB of memory, TCP ports 6443, 10250" in message


def test_foreign_netplan_files_and_bad_versions_are_told() -> None:
    site = Site(2)
    site.wire((1, 0), (2, 0))
    hosts = site.hosts()
    stanza = NetplanStanza("ethernets", "enp1s0f0np0")
    files = [to_plain(NetplanFile("/etc/netplan/40-cx7.yaml", "", "0600", (stanza,)))]
    hosts[address(2)]["roce"]["netplan"] = {"files": files}
    hosts[address(2)]["health"] = {
        "versions": {"driver": "590.44.01", "dgx_os": "7.4.0"},
        "memory": {"MemAvailable": 2**26},
    }
    made = discover(hosts)
    assert findings(made, "warning").keys() == {"netplan.foreign", "platform.driver-590"}
    assert "# netplan_vf_foreign_stanzas: absorb" in made.files[GROUP]
    assert "/etc/netplan/40-cx7.yaml on spark2" in made.files[GROUP]
    assert "7.4.0" in made.page and "64 GiB" in made.page and made.view["verdict"] == "incomplete"


def test_functions_by_other_names_are_named_in_the_inventory() -> None:
    site = Site(2)
    site.wire((1, 0), (2, 0))
    for function in site.functions[2]:
        object.__setattr__(function, "pci", function.pci.replace(":01:", ":81:"))
        object.__setattr__(function, "netdev", to_netdev(function.netdev, "eth" + function.pci[3] + function.pci[-1]))
    hosts = site.hosts()
    for heard, function in zip(hosts[address(2)]["links"], site.functions[2], strict=True):
        heard["netdev"] = function.netdev.name  # type: ignore[union-attr]
    made = discover(hosts)
    own = yaml.safe_load(made.files[HOSTS])["all"]["children"]["spark"]["children"]["dgx"]["hosts"]["spark2"]
    assert own["dgxspark_fabric_functions"]["p1f1"] == {"pci": "0002:81:00.1"}
    assert segments(planned(made)) == {frozenset({(1, 0), (2, 0)})}


def to_netdev(netdev: Netdev | None, name: str) -> Netdev:
    assert netdev
    return Netdev(name, mac=netdev.mac)


def test_nodes_as_they_are_read_and_the_class_by_their_devices(tmp_path: pathlib.Path) -> None:
    """Three lab nodes with VFs, through the reader that runs on nodes; every function hears every other one, as on the lab's switch."""
    nodes = {f"node{number}": fakes.lab(tmp_path / str(number), vfs=2) for number in (1, 2, 3)}
    for number, node in enumerate(nodes.values(), 1):
        for device in node.devices.values():
            device.mac = f"52:54:0{number}{device.mac[8:]}"
        node.sync()
    macs = [device.mac for node in nodes.values() for device in node.devices.values() if device.pci in node.vf_pattern]
    hosts: dict[str, dict[str, t.Any]] = {}
    for name, node in nodes.items():
        facts = read_node(Sysfs(node.sysfs), node.run, device_ids=node.device_ids, **node.roots, enter=node.enter)
        own = [function.netdev for function in facts.functions if function.netdev]
        links = [Heard(netdev.name, tuple(mac for mac in macs if mac != netdev.mac)) for netdev in own]
        hosts[name] = {"roce": to_plain(facts), "links": to_plain(links)}
    fabric = yaml.safe_load(discover(hosts).files[GROUP])["dgxspark_fabric"]
    assert {key: fabric[key] for key in ("hardware", "topology", "ports", "vf_count")} == {
        "hardware": "lab",
        "topology": "switch",
        "ports": [0],
        "vf_count": 2,
    }


def refused(hosts: dict[str, dict[str, t.Any]]) -> dict[str, dict[str, t.Any]]:
    made = discover(hosts)
    assert not made.files and made.view["settings"] is None
    assert (
        "No inventory" in made.page
        and "dgxspark.cluster.site" not in made.page
        and made.view["headline"].startswith("NO INVENTORY")
    )
    errors = [finding for finding in made.view["findings"] if finding["severity"] == "error"]
    more = {1: "", 2: "And 1 more reason, below."}.get(len(errors), f"And {len(errors) - 1} more reasons, below.")
    assert more in made.page and ("more reason" in made.page) is bool(more)
    assert made.page.index("<h2>What stands in the way") < made.page.index("<h2>Next, when that is mended")
    return findings(made, "error")


def test_a_host_that_does_not_answer_is_named_and_the_others_are_described() -> None:
    site = Site(3)
    site.wire((1, 0), (2, 0))
    site.more[3] = {"roce": None, "survey": None, "links": [], "error": "ssh: connect to host: timed out"}
    found = refused(site.hosts())
    assert found.keys() == {"nodes.unread"}
    assert "spark3 (192.0.2.13)" in found["nodes.unread"]["subject"] and "timed out" in found["nodes.unread"]["message"]
    made = discover(site.hosts())
    assert "spark1:0 - spark2:0" in made.page and "enp1s0f0np0" in made.page


@given(st.integers(1, 4).flatmap(lambda count: st.tuples(st.just(count), st.sets(st.integers(1, count), min_size=1))))
@settings(max_examples=examples(20))
def test_whichever_hosts_are_unread_each_is_named_and_nothing_else_is_wrong(case: tuple[int, set[int]]) -> None:
    count, unread = case
    site = Site(count)
    site.wire(*((number, 0) for number in range(1, count + 1)))
    for number in unread:
        why = "Task failed: Failed to connect to the host via ssh: ssh: No route to host"
        site.more[number] = {"roce": None, "survey": None, "links": [], "error": why}
    made = discover(site.hosts())
    named = [each["subject"] for each in made.view["findings"] if each["id"] == "nodes.unread"]
    assert named == [", ".join(f"spark{number} (192.0.2.{10 + number})" for number in sorted(unread))], "once for all"
    assert refused(site.hosts()).keys() == {"nodes.unread"}
    assert not any("Task failed" in each["message"] for each in made.view["findings"])


def test_one_machine_under_two_names() -> None:
    site = Site(2)
    site.wire((1, 0), (2, 0))
    hosts = site.hosts()
    hosts[address(2)]["roce"]["functions"] = hosts[address(1)]["roce"]["functions"]
    assert "one machine under two names" in refused(hosts)["hosts.one-machine"]["message"]


def test_no_adapter_no_link_no_cable_no_topology() -> None:
    site = Site(2)
    site.wire((1, 0), (2, 0))
    hosts = site.hosts()
    hosts[address(2)]["roce"]["functions"] = []
    assert "ConnectX-7" in refused(hosts)["nodes.no-adapter"]["message"]
    hosts = Site(2).hosts()
    assert "no port has a link" in refused(hosts)["nodes.links-down"]["message"]
    for function in hosts[address(1)]["roce"]["functions"]:
        function["netdev"]["carrier"] = None
    assert "ip link set enp1s0f0np0 up" in discover(hosts).view["findings"][0]["remedy"]

    site = Site(2)
    site.wire((1, 0), (2, 0))
    hosts = site.hosts()
    for plain in hosts.values():
        plain["links"] = []
    assert "dgxspark_discover_window" in refused(hosts)["cables.none"]["remedy"]

    chain = Site(3)
    chain.wire((1, 1), (2, 0))
    chain.wire((2, 1), (3, 0))
    assert "spark1 has cables to spark2" in refused(chain.hosts())["segments.shape"]["message"]


def test_ports_that_do_not_match_on_a_switch_and_a_cable_beside_it() -> None:
    site = Site(3)
    site.wire((1, 0), (2, 0), (3, 1))
    assert "no port connects all hosts" in refused(site.hosts())["cables.ports"]["message"]
    site = Site(3)
    site.wire((1, 0), (2, 0), (3, 0))
    site.wire((1, 1), (2, 1))
    made = discover(site.hosts())
    assert "spark1:1 - spark2:1" in findings(made, "warning")["cables.left-out"]["subject"]
    assert segments(planned(made)) == {frozenset({(1, 0), (2, 0), (3, 0)})}


def test_no_vfs_in_the_firmware_and_no_free_network() -> None:
    site = Site(2, totalvfs=0)
    site.wire((1, 0), (2, 0))
    assert "mstconfig" in refused(site.hosts())["hosts.no-vfs"]["remedy"]
    site = Site(2)
    site.wire((1, 0), (2, 0))
    site.networks[1] = [Net(text, "tun0", "route") for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")]
    assert "tun0" in refused(site.hosts())["networks.none-free"]["message"]


def test_no_host_at_all() -> None:
    with pytest.raises(CollectionError, match="-i '192"):
        discover({})


def test_the_class_has_the_slots_that_these_tests_count_on() -> None:
    assert [slot["slot"] for slot in CLASS["slots"]] == ["p0f0", "p0f1", "p1f0", "p1f1"]


def test_a_configuration_is_written_once_and_only_for_an_owner_who_has_none(tmp_path: pathlib.Path) -> None:
    site = Site(2)
    site.wire((1, 0), (2, 0))
    made = discover(site.hosts())
    assert not lay_down(made, str(tmp_path / "without"), False, False)["diff"][2:]
    assert not (tmp_path / "without" / "ansible.cfg").exists()
    place = tmp_path / "with"
    assert lay_down(made, str(place), False, False, config=True)["changed"]
    config = configparser.ConfigParser()
    config.read(place / "ansible.cfg")
    assert config["defaults"]["stdout_callback"] == "dgxspark.cluster.answer"
    # Who copies a shipped inventory gets the same.
    copied = (knowledge.COLLECTION / "inventories" / "ansible.cfg").read_text()
    assert copied.splitlines()[1:] == (place / "ansible.cfg").read_text().splitlines()[1:]
    (place / "ansible.cfg").write_text("[defaults]\nforks = 9\n")
    again = lay_down(made, str(place), False, False, config=True)
    assert (again["ok"], again["changed"]) == (True, False)
    assert (place / "ansible.cfg").read_text() == "[defaults]\nforks = 9\n"
    assert not [line for line in again["lines"] if " -l " in line]


def test_the_groups_file_names_the_schema_of_this_installation_which_is_no_change_elsewhere(
    tmp_path: pathlib.Path,
) -> None:
    site = Site(2)
    site.wire((1, 0), (2, 0))
    made = discover(site.hosts())
    assert lay_down(made, str(tmp_path), False, False)["changed"]
    group = tmp_path / GROUP
    text = group.read_text()
    (named,) = [
        line.removeprefix(knowledge.EDITORS) for line in text.splitlines() if line.startswith(knowledge.EDITORS)
    ]
    assert pathlib.Path(named.removeprefix("file://")).is_file()
    group.write_text(text.replace(named, "file:///of/a/colleague/group-vars.json"))
    again = lay_down(made, str(tmp_path), False, False)
    assert (again["ok"], again["changed"]) == (True, False)
