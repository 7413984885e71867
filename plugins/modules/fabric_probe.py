#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_probe
short_description: Probe the RoCE fabric from a node with ARP, ping and RDMA traffic
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Sends test traffic from a node's VFs to those of its peers and returns the results. It judges nothing;
    M(dgxspark.cluster.fabric_report) does.
  - It changes nothing on the node. In check mode it sends the same traffic, on the fabric only.
  - With O(links) it finds out which interfaces share a wire. That needs no addresses, only interfaces that are up, and all nodes
    have to do it at the same time.
  - ARP requests and pings of all targets run at the same time. RDMA tests need a peer that runs the other end at the same
    time; M(dgxspark.cluster.fabric_schedule) says who runs which.
  - Everything ends within the given times, and no program is left running.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  arp:
    description: Addresses to send ARP requests for. Every reply within the window is returned, not only the first.
    type: list
    elements: dict
    default: []
    suboptions:
      netdev:
        description: The VF's netdev to send the request from.
        type: str
        required: true
      source:
        description: The VF's own IPv4 address.
        type: str
        required: true
      address:
        description: The IPv4 address to resolve.
        type: str
        required: true
  ping:
    description: Peers to ping, with a small packet and with one of O(ping[].mtu) bytes that must not be fragmented.
    type: list
    elements: dict
    default: []
    suboptions:
      netdev:
        description: The VF's netdev to ping from.
        type: str
        required: true
      source:
        description: The VF's own IPv4 address.
        type: str
        required: true
      address:
        description: The peer's IPv4 address.
        type: str
        required: true
      mtu:
        description: The size of the large packet in bytes, headers included.
        type: int
        required: true
  rdma:
    description: This end of each RDMA test, in order. All are with the same peer.
    type: list
    elements: dict
    default: []
    suboptions:
      id:
        description: The test's name, the same at both ends.
        type: str
        required: true
      role:
        description: Which end this is.
        type: str
        choices: [server, client]
        required: true
      program:
        description: The test program, the same at both ends.
        type: str
        choices: [ib_write_bw, ib_send_lat, ibv_rc_pingpong]
        required: true
      hca:
        description: The RDMA device.
        type: str
        required: true
      hca_port:
        description: The RDMA device's port.
        type: int
        default: 1
      gid_index:
        description: The index of this end's GID.
        type: int
        required: true
      address:
        description: This end's IPv4 address.
        type: str
        required: true
      peer:
        description: The other end's IPv4 address.
        type: str
        required: true
      port:
        description: TCP port at which the ends meet. The program uses the next one.
        type: int
        required: true
      size:
        description: Message size in bytes.
        type: int
        required: true
      iterations:
        description: How many messages. Not used with O(rdma[].duration).
        type: int
      duration:
        description: How long to send, in seconds.
        type: int
      path_mtu:
        description: RDMA path MTU in bytes. The program's own choice by default.
        type: int
      run:
        description: This verify in words, the same at both ends. Two at once take turns.
        type: str
        default: ""
      together:
        description: Consecutive tests with the same value here run at the same time.
        type: str
  links:
    description: Interfaces (of physical functions) on which to send broadcast frames, and to listen for those of others.
    type: list
    elements: str
    default: []
  links_word:
    description: A word that identifies this run. Only frames with the same word are counted.
    type: str
    default: any
  links_window:
    description: How long to send and listen, in seconds. The windows of all nodes must overlap.
    type: float
    default: 10.0
  arp_window:
    description: How long to collect ARP replies, in seconds.
    type: float
    default: 1.0
  ping_timeout:
    description: How long to wait for answers to one round of pings, in seconds.
    type: float
    default: 1.0
  ping_tries:
    description: How often to send a ping that is not answered. The first large one after a change of MTU may be lost.
    type: int
    default: 2
  meet_timeout:
    description: How long the ends of an RDMA test wait for each other, in seconds.
    type: float
    default: 60.0
  test_timeout:
    description: How long one RDMA test may take, in seconds.
    type: float
    default: 30.0
requirements:
  - perftest on the node, for O(rdma)
notes:
  - Needs root (C(become)) for O(arp), O(ping) and O(links).
seealso:
  - module: dgxspark.cluster.fabric_schedule
  - module: dgxspark.cluster.fabric_report
"""

EXAMPLES = r"""
- name: See who answers for the peer's address, and whether a full-size packet gets through
  dgxspark.cluster.fabric_probe:
    arp:
      - {netdev: enp1s0f0v0, source: 10.100.0.1, address: 10.100.0.2}
    ping:
      - {netdev: enp1s0f0v0, source: 10.100.0.1, address: 10.100.0.2, mtu: 9000}
  register: probe

- name: See who is at the other end of the cables
  dgxspark.cluster.fabric_probe:
    links: [enp1s0f0np0, enP2p1s0f0np0]
  register: probe

- name: Write over RDMA, with this node as the client
  dgxspark.cluster.fabric_probe:
    rdma:
      - id: spark1-spark2-p0f0v0
        role: client
        program: ib_write_bw
        hca: rocep1s0f0v0
        gid_index: 3
        address: 10.100.0.1
        peer: 10.100.0.2
        port: 18600
        size: 65536
        duration: 2
"""

RETURN = r"""
arp:
  description: For each of O(arp), the C(macs) that replied, and an C(error) if no request could be sent.
  returned: success
  type: list
  elements: dict
  sample: [{netdev: enp1s0f0v0, address: 10.100.0.2, macs: ["02:d6:00:00:02:00"], error: null}]
ping:
  description: >-
    For each of O(ping), the outcome of the C(small) and the C(large) packet (V(ok), V(no reply), V(not sent), V(too large),
    V(no address), V(no route), V(down) …), and the small one's round trip in milliseconds.
  returned: success
  type: list
  elements: dict
  sample: [{netdev: enp1s0f0v0, address: 10.100.0.2, small: ok, large: ok, rtt_ms: 0.2}]
rdma:
  description: >-
    For each of O(rdma), its C(status) (V(ok), V(error), V(hang), V(no peer), V(missing), V(peer)), C(message), C(figures), and in
    C(lost) the RDMA device's error counters that increased during the test.
  returned: success
  type: list
  elements: dict
  sample: [{id: spark1-spark2-p0f0v0, role: client, program: ib_write_bw, status: ok, message: "", figures: {gbps: 106.2}, lost: {}}]
links:
  description: For each of O(links), the C(macs) received there, in order, and an C(error) if none could be received.
  returned: success
  type: list
  elements: dict
  sample: [{netdev: enp1s0f0np0, macs: ["4c:bb:47:00:00:01"], error: null}]
programs:
  description: The path of each RDMA test program on the node, null for one that it lacks.
  returned: success
  type: dict
  sample: {ib_write_bw: /usr/bin/ib_write_bw, ib_send_lat: /usr/bin/ib_send_lat, ibv_rc_pingpong: null}
"""

from concurrent.futures import ThreadPoolExecutor

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.arp_ping import ArpTest, PingTest, ask_arp, ping
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.link_probe import listen
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.perftest import RdmaTest
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.probe import Bounds, programs, run_tests
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    CollectionError,
    from_plain,
    lines,
    to_plain,
)

TEXT = {"type": "str", "required": True}
NUMBER = {"type": "int", "required": True}
LIST = {"type": "list", "elements": "dict", "default": []}
ARP = {"netdev": TEXT, "source": TEXT, "address": TEXT}
RDMA = {
    "id": TEXT,
    "role": {**TEXT, "choices": ["server", "client"]},
    "program": {**TEXT, "choices": ["ib_write_bw", "ib_send_lat", "ibv_rc_pingpong"]},
    "hca": TEXT,
    "hca_port": {"type": "int", "default": 1},
    "gid_index": NUMBER,
    "address": TEXT,
    "peer": TEXT,
    "port": NUMBER,
    "size": NUMBER,
    "iterations": {"type": "int"},
    "duration": {"type": "int"},
    "path_mtu": {"type": "int"},
    "together": {"type": "str"},
    "run": {"type": "str", "default": ""},
}


def main() -> None:
    """Send the requested probes and return the results."""
    module = AnsibleModule(
        argument_spec={
            "arp": {**LIST, "options": ARP},
            "ping": {**LIST, "options": {**ARP, "mtu": NUMBER}},
            "rdma": {**LIST, "options": RDMA},
            "links": {"type": "list", "elements": "str", "default": []},
            "links_word": {"type": "str", "default": "any"},
            "links_window": {"type": "float", "default": 10.0},
            "arp_window": {"type": "float", "default": 1.0},
            "ping_timeout": {"type": "float", "default": 1.0},
            "ping_tries": {"type": "int", "default": 2},
            "meet_timeout": {"type": "float", "default": 60.0},
            "test_timeout": {"type": "float", "default": 30.0},
        },
        supports_check_mode=True,
    )
    given = module.params
    try:
        asked = [from_plain(ArpTest, test, "arp") for test in given["arp"]]
        pinged = [from_plain(PingTest, test, "ping") for test in given["ping"]]
        tests = [from_plain(RdmaTest, test, "rdma") for test in given["rdma"]]
        with ThreadPoolExecutor(2) as pool:
            arp = pool.submit(ask_arp, asked, given["arp_window"] if asked else 0.0)
            echo = pool.submit(ping, pinged, given["ping_timeout"], given["ping_tries"])
            answers = {"arp": to_plain(arp.result()), "ping": to_plain(echo.result())}
        answers["links"] = to_plain(listen(given["links"], given["links_word"], given["links_window"]))
        answers["rdma"] = to_plain(run_tests(tests, Bounds(given["meet_timeout"], given["test_timeout"])))
    except CollectionError as exc:
        module.fail_json(msg=str(exc))
    except PermissionError as exc:
        module.fail_json(msg=lines(f"Raw sockets are refused ({exc}). Run this task as root (become: true)."))
    module.exit_json(changed=False, programs=programs(), **answers)


if __name__ == "__main__":
    main()
