"""What the doctor finds: nothing on a healthy cluster, and each single fault with its cause, whatever the others show."""

from __future__ import annotations

import base64
import contextlib
import json
import pathlib
import socket
import threading
import time
import typing as t

import jsonschema
import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Change
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import doctor_certificates, doctor_report
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric import changes as fabric_changes
from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT
from ansible_collections.dgxspark.cluster.tests.unit.tls import speaks_tls
from ansible_collections.dgxspark.cluster.tests.unit.verify_inputs import Cluster

REPORT = jsonschema.Draft202012Validator(
    json.loads((ROOT / "docs" / "schema" / "doctor-report.json").read_text(encoding="utf-8"))
)
GIB = 1024**2
Plain = dict[str, t.Any]


def healthy() -> Plain:
    return {
        "uptime_s": 90000.0,
        "cmdline": "quiet",
        "versions": {"kernel": "6.17.0-1021-nvidia", "driver": "580.159.03", "bios": "5.36", "nccl": "2.29.7-1"},
        "memory": {"MemTotal": 121 * GIB, "MemAvailable": 100 * GIB, "CmaTotal": 32768, "CmaFree": 1000},
        "gpus": [
            {"name": "NVIDIA GB10", "clock_mhz": 2411.0, "power_w": 61.0, "temperature_c": 70.0, "utilisation": 96.0}
        ],
        "links": [{"pci": "0000:01:00.0", "width": 4, "gtps": 32.0}],
        "journals": [{"name": "kernel, this boot", "lines": 900, "hits": []}],
    }


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    # Other tests cover the files on a node's disk: here they are as planned.
    monkeypatch.setattr(fabric_changes.vfs, "drift", lambda *_a, **_k: [])
    monkeypatch.setattr(fabric_changes.netplan_file, "changes", lambda *_a, **_k: [])
    made = Cluster(4)
    for seen in made.hosts.values():
        seen["health"] = healthy()
        seen["facts"]["kernel"] = healthy()["versions"]["kernel"]
    return made


def examine(cluster: Cluster, **meta: t.Any) -> Plain:
    built = doctor_report.build(cluster.plan, cluster.hosts, "spark", meta)
    REPORT.validate(built["report"])
    assert all(len(line) < 2000 and "\n" not in line for line in built["table"])
    return t.cast(Plain, built["report"] | {"table": built["table"]})


def found(cluster: Cluster, **meta: t.Any) -> list[tuple[str, str, str]]:
    report = examine(cluster, **meta)
    for finding in report["findings"]:
        assert finding["cause"] and finding["remedy"], finding
        assert any(finding["symptom"] in line for line in report["table"])
    worst = [
        severity for severity in ("error", "warning") if any(f["severity"] == severity for f in report["findings"])
    ]
    assert report["verdict"] == (worst[0] if worst else "well")
    return [(f["severity"], f["id"], f["where"]) for f in report["findings"]]


def test_of_a_healthy_cluster_nothing_is_said(cluster: Cluster) -> None:
    assert found(cluster) == []
    assert examine(cluster)["headline"] == "WELL: nothing wrong was seen on 4 hosts of 4."
    assert examine(cluster)["not_judged"] == []


def test_a_node_that_is_down_is_a_finding_and_the_others_are_still_judged(cluster: Cluster) -> None:
    cluster.hosts["spark3"] = {"facts": None, "error": "Connection timed out", "health": None, "health_error": None}
    cluster.hosts["spark2"]["health"]["memory"]["MemAvailable"] = 2 * GIB
    assert found(cluster) == [("error", "node.down", "spark3"), ("warning", "memory.low", "spark2")]
    assert "Connection timed out" in examine(cluster)["headline"]
    cluster.limit("spark1", "spark2")
    assert [what for _s, what, _w in found(cluster)] == ["memory.low"]


@pytest.mark.parametrize("how", ["reached", "health"])
def test_a_node_that_answered_is_not_told_to_have_its_power_cut(cluster: Cluster, how: str) -> None:
    """Without root its files cannot be read, but it is up."""
    seen = cluster.hosts["spark3"]
    seen |= {"facts": None, "error": "/etc/netplan/01.yaml cannot be read: Permission denied."}
    seen |= {"reached": True, "health": None} if how == "reached" else {}
    (finding,) = (f for f in examine(cluster)["findings"] if f["where"] == "spark3")
    assert (finding["severity"], finding["id"]) == ("error", "node.refused")
    assert "Permission denied" in finding["symptom"] and "become: true" in finding["remedy"]
    assert "power" not in finding["cause"] + finding["remedy"]


def test_when_all_are_down_that_is_what_it_says(cluster: Cluster) -> None:
    for name in cluster.hosts:
        cluster.hosts[name] = {"facts": None, "error": "off"}
    assert {what for _s, what, _w in found(cluster)} == {"node.down"}


@pytest.mark.parametrize(
    ("said", "finding", "remedy"),
    [
        ("ssh: Could not resolve hostname spark3: Name or service not known", "node.name", "ansible_host"),
        ("ssh: Could not resolve hostname spark3: Temporary failure in name resolution", "node.name", "ansible_host"),
        ("ssh: connect to host 192.0.2.3 port 2222: Connection refused", "node.no-ssh", "ansible_port"),
        ("kex_exchange_identification: Connection closed by remote host", "node.no-ssh", "ssh server"),
        ("me@192.0.2.3: Permission denied (publickey,password).", "node.login", "ssh-copy-id"),
        ("Received disconnect from 192.0.2.3 port 22:2: Too many authentication failures", "node.login", "ssh-copy-id"),
        ("Host key verification failed.", "node.host-key", "ssh-keygen -R"),
        ("WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!", "node.host-key", "ssh-keygen -R"),
        ("ssh: connect to host 192.0.2.3 port 22: Connection timed out", "node.down", "power"),
        ("ssh: connect to host 192.0.2.3 port 22: No route to host", "node.down", "power"),
        ("Connection timed out during banner exchange", "node.hangs", "power"),
        (
            "to use the 'ssh' connection type with passwords, you must install the sshpass program",
            "node.down",
            "by hand",
        ),
    ],
)
def test_what_is_advised_for_a_node_that_was_not_reached_fits_why(
    cluster: Cluster, said: str, finding: str, remedy: str
) -> None:
    cluster.hosts["spark3"] = down(f"Failed to connect to the host via ssh: {said}")
    cluster.hosts["spark4"] = down("off")  # why is unknown: no advice but to look
    (one,) = (f for f in examine(cluster)["findings"] if f["where"] == "spark3")
    assert (one["severity"], one["id"]) == ("error", finding)
    assert remedy in one["remedy"] and said in one["symptom"]
    assert ("power" in one["remedy"]) is (remedy == "power") is bool(one["follows"])


def test_a_node_whose_health_could_not_be_read(cluster: Cluster) -> None:
    cluster.hosts["spark1"] |= {"health": None, "health_error": "boom"}
    assert found(cluster) == [("warning", "node.unread", "spark1")]


def fabric(cluster: Cluster, what: str) -> None:
    vf, function = cluster.vf("spark2", 0, 0), cluster.function("spark2", 1)
    if what == "stranded":
        vf["place"] = {"state": "stranded", "netns": "/run/netns/cni-1"}
    elif what == "mtu":
        function["netdev"]["mtu"] = 1500
    elif what == "vfs":
        function["numvfs"], function["vfs"] = 0, []
    elif what == "address":
        vf["netdev"]["ipv4"] = []
        vf["hca"]["ports"][0]["gids"] = vf["hca"]["ports"][0]["gids"][:1]
    elif what == "cable":
        function["netdev"] |= {"carrier": False, "operstate": "down"}


@pytest.mark.parametrize(
    ("what", "cause", "where"),
    [
        ("stranded", "vf.stranded", "spark2 p0f0v0"),
        ("mtu", "link.mtu", "spark2 p0f1"),
        ("vfs", "vf.count", "spark2 p0f1"),
        ("address", "gid.no-ipv4", "spark2 p0f0v0"),
        ("cable", "link.down", "spark2 p0f1"),
    ],
)
def test_what_drifted_of_the_fabric_has_one_cause(cluster: Cluster, what: str, cause: str, where: str) -> None:
    fabric(cluster, what)
    assert [row for row in found(cluster) if row[0] == "error"] == [("error", cause, where)]


def test_a_vf_in_a_live_pod_is_the_normal_state(cluster: Cluster) -> None:
    for name in cluster.hosts:
        cluster.vf(name, 0, 0)["place"] = {"state": "pod", "netns": "/proc/77/ns/net", "pids": 3}
    assert found(cluster) == []


def test_gid_indexes_that_differ_matter_only_where_one_is_pinned(cluster: Cluster) -> None:
    cluster.vf("spark4", 1, 1)["hca"]["ports"][0]["gids"][1]["index"] = 5
    assert [(s, w) for s, w, _words in found(cluster)] == [("info", "gid.index-differs")]
    assert examine(cluster)["verdict"] == "well"
    assert [(s, w) for s, w, _words in found(cluster, pinned_gid=True)] == [("error", "gid.index-differs")]


def test_versions_that_differ_name_who_differs(cluster: Cluster) -> None:
    cluster.hosts["spark3"]["health"]["versions"] |= {"driver": "580.142", "nccl": "2.28.9-1"}
    for number in (0, 1):
        cluster.function("spark1", number)["firmware"] = "28.43.1000"
    for name in ("spark2", "spark3", "spark4"):
        cluster.function(name, 0)["firmware"] = "28.45.4028"
    assert found(cluster) == [
        ("warning", "versions.driver", "spark3"),
        ("warning", "versions.firmware", "spark1"),
        ("warning", "versions.nccl", "spark3"),
    ]
    assert "580.159.03 on spark1, spark2, spark4; 580.142 on spark3" in examine(cluster)["findings"][0]["symptom"]


def test_a_pending_restart_is_named_with_what_asks_for_it(cluster: Cluster) -> None:
    cluster.hosts["spark2"]["health"]["reboot_for"] = ["linux-image-6.17.0-1032-nvidia", "linux-base"]
    cluster.hosts["spark3"]["health"]["reboot_for"] = []
    report = examine(cluster)
    assert [(f["id"], f["severity"], f["where"]) for f in report["findings"]] == [
        ("node.reboot", "warning", "spark2"),
        ("node.reboot", "warning", "spark3"),
    ]
    assert "for linux-image-6.17.0-1032-nvidia, linux-base." in report["findings"][0]["symptom"]
    assert report["findings"][1]["symptom"] == "it is to be restarted."


def test_firmware_that_differs_awaits_a_restart_or_failed_is_named(cluster: Cluster) -> None:
    for name, seen in cluster.hosts.items():
        device = {"id": name, "guids": ["a-guid"], "name": "Embedded Controller", "version": "1.0"}
        seen["health"]["firmware"] = {"devices": [device], "error": None}
    assert found(cluster) == []
    first, second, third, _fourth = (seen["health"]["firmware"]["devices"][0] for seen in cluster.hosts.values())
    first["awaits"], second["failed"], third["version"] = "1.2", "1.2: failed to write", "0.9"
    report = {f["id"]: f for f in examine(cluster)["findings"]}
    assert {key: f["where"] for key, f in report.items()} == {
        "firmware.awaits": "spark1", "firmware.failed": "spark2", "firmware.differs": "spark3",
    }  # fmt: skip
    assert "1.2 awaits a restart" in report["firmware.awaits"]["symptom"]
    assert "1.0 on spark1, spark2, spark4; 0.9 on spark3" in report["firmware.differs"]["symptom"]
    cluster.hosts["spark1"]["health"]["firmware"] = {"devices": [], "error": "fwupdmgr is not installed"}
    assert [f["id"] for f in examine(cluster)["findings"]] == ["firmware.failed", "firmware.differs"]


def test_versions_known_to_be_bad_are_named_once_for_all_nodes(cluster: Cluster) -> None:
    for seen in cluster.hosts.values():
        seen["health"]["versions"]["kernel"] = "7.0.0-1019-nvidia"
    assert found(cluster) == [("error", "platform.kernel-7.0.0-1019", "spark1, spark2, spark3, spark4")]
    for seen in cluster.hosts.values():
        seen["health"]["cmdline"] = "quiet kho=off"
    assert found(cluster) == []


def test_versions_newer_than_the_knowledge_are_named_once_for_all_nodes(cluster: Cluster) -> None:
    for seen in cluster.hosts.values():
        seen["health"]["versions"] |= {"kernel": "8.0.0-1001-nvidia", "k3s": "v1.99.0+k3s1"}
    (said,) = [each for each in examine(cluster)["findings"] if each["id"] == "versions.newer"]
    assert said["severity"] == "info" and said["where"].count("spark") == len(cluster.hosts)
    assert "8.0.0-1001-nvidia is newer" in said["symptom"] and "v1.99.0+k3s1" in said["symptom"]


def test_a_version_that_is_no_number_is_no_crash(cluster: Cluster) -> None:
    for seen in cluster.hosts.values():
        seen["health"]["versions"]["driver"] = "unknown"
    assert found(cluster) == []


@pytest.mark.parametrize(("gib", "severity"), [(0.5, "error"), (3, "warning"), (4.1, None)])
def test_free_memory(cluster: Cluster, gib: float, severity: str | None) -> None:
    cluster.hosts["spark1"]["health"]["memory"]["MemAvailable"] = int(gib * GIB)
    assert found(cluster) == ([(severity, "memory.low", "spark1")] if severity else [])


def test_free_memory_against_a_plan_of_serving_counts_on_idle_nodes_only(cluster: Cluster) -> None:
    cluster.hosts["spark1"]["health"]["gpus"][0]["utilisation"] = 0.0
    cluster.hosts["spark2"]["health"]["memory"]["MemAvailable"] = 20 * GIB
    assert found(cluster, needed_gib=105.0) == [("warning", "memory.below-plan", "spark1")]
    cluster.vf("spark1", 0, 0)["users"] = ["python3 (4242)"]
    assert found(cluster, needed_gib=105.0) == []


def test_memory_that_rdma_cannot_use(cluster: Cluster) -> None:
    cluster.hosts["spark1"]["health"]["memory"] |= {"CmaTotal": 0, "CmaFree": 9 * GIB}
    assert found(cluster) == [("error", "memory.kho", "spark1")]


def test_the_low_power_state_shows_at_work_only(cluster: Cluster) -> None:
    gpu = cluster.hosts["spark2"]["health"]["gpus"][0]
    gpu |= {"clock_mhz": 799.0, "power_w": 19.5}
    assert found(cluster) == [("error", "gpu.low-power", "spark2")]
    gpu["utilisation"] = 10.0
    assert found(cluster) == []
    assert [entry["host"] for entry in examine(cluster)["not_judged"]] == ["spark2"]
    gpu |= {"utilisation": 96.0, "clock_mhz": 1300.0, "power_w": 70.0}
    assert found(cluster) == []


def test_a_busy_gpu_that_draws_little_is_slow_or_only_waits(cluster: Cluster) -> None:
    gpu = cluster.hosts["spark2"]["health"]["gpus"][0]
    gpu |= {"clock_mhz": 2411.0, "power_w": 22.0}
    assert found(cluster) == [("warning", "gpu.weak", "spark2")]
    gpu["power_w"] = 31.0
    assert found(cluster) == []
    gpu |= {"power_w": 12.0, "utilisation": 0.0}
    assert found(cluster) == []


def test_a_clock_limit_that_does_not_hold(cluster: Cluster) -> None:
    for seen in cluster.hosts.values():
        seen["health"]["clock_limit"] = {"mhz": 2200, "active": True}
        seen["health"]["gpus"][0]["clock_mhz"] = 2210.0  # a step above
    assert found(cluster, clock_limit=2200) == found(cluster) == []
    cluster.hosts["spark1"]["health"]["gpus"][0]["clock_mhz"] = 2405.0
    cluster.hosts["spark2"]["health"]["clock_limit"]["active"] = False
    cluster.hosts["spark2"]["facts"]["failed"] = ["dgxspark-gpu-clock.service"]
    cluster.hosts["spark3"]["health"]["clock_limit"] = None
    cluster.hosts["spark4"]["health"]["clock_limit"]["mhz"] = 2300
    here = [("warning", "gpu.limit-lifted", "spark1"), ("warning", "gpu.limit-inactive", "spark2")]
    differs = [("warning", "gpu.limit-differs", "spark3"), ("warning", "gpu.limit-differs", "spark4")]
    assert sorted(found(cluster, clock_limit=2200)) == sorted(here + differs)
    assert found(cluster) == here


NOW = 1_800_000_000.0  # 2027-01-15 08:00 UTC


@pytest.mark.parametrize(
    ("days", "severity", "said"),
    [
        (15, "", ""),
        (13.9, "warning", "expires on 2027-01-29 05:36 UTC, in 14 days."),
        (0.2, "warning", "expires on 2027-01-15 12:48 UTC, in 1 day."),
        (-1, "error", "has expired on 2027-01-14 08:00 UTC."),
    ],
)
def test_certificates_that_end_are_told_before_they_do(cluster: Cluster, days: float, severity: str, said: str) -> None:
    end, far = NOW + days * 86400, NOW + 300 * 86400
    folder = "/var/lib/rancher/k3s"
    cluster.hosts["spark1"]["health"]["certificates"] = {
        f"{folder}/server/tls/b.crt": end,
        f"{folder}/agent/a.crt": far,
    }
    cluster.hosts["spark2"]["health"]["certificates"] = {f"{folder}/agent/a.crt": end}
    for seen in cluster.hosts.values():
        seen["health"]["time_s"] = NOW
    ours = {"the gateway": end, "the controller's kubeconfig": far}
    report = examine(cluster, now_s=NOW, certificates=ours)
    told = [each for each in report["findings"] if each["id"].startswith("certificate.")]
    everywhere = [(severity, where) for where in ("spark1", "spark2", "the gateway")]
    assert [(each["severity"], each["where"]) for each in told] == (everywhere if severity else [])
    assert all(said in each["symptom"] for each in told)
    remedies = [each["remedy"] for each in told]
    assert not told or (
        "restart k3s there" in remedies[0] and "k3s-agent" in remedies[1] and "gateway.yml" in remedies[2]
    )


def test_the_controller_reads_what_a_port_and_a_kubeconfig_show(tmp_path: pathlib.Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as plain:
        authority = tmp_path / "ca.pem"
        context = speaks_tls(authority)

        def once() -> None:
            with contextlib.suppress(OSError):
                context.wrap_socket(plain.accept()[0], server_side=True).close()

        threading.Thread(target=once, daemon=True).start()
        port = plain.getsockname()[1]
        end = doctor_certificates.shown_at(["127.0.0.9", "127.0.0.1"], port)
    assert end is not None and 0 < end - time.time() < 3700
    assert doctor_certificates.shown_at(["127.0.0.1"], port) is None
    user = {"client-certificate-data": base64.b64encode(authority.read_bytes()).decode()}
    path = tmp_path / "config"
    for users, known in (([{"user": user}], True), ([{"user": {"token": "x"}}], False), ("x", False), ([1], False)):
        path.write_text(json.dumps({"users": users}), encoding="utf-8")
        assert (doctor_certificates.of_kubeconfig(str(path)) == end) is known
    assert doctor_certificates.of_kubeconfig(str(tmp_path / "none")) is None


def test_free_memory_in_small_blocks_is_told_of_idle_nodes(cluster: Cluster) -> None:
    health = cluster.hosts["spark2"]["health"]
    health["memory"]["MemFree"] = 90 * GIB
    health["blocks_mib"] = {"4": 80 * 1024, "32": 3 * 1024}
    assert found(cluster) == []
    health["gpus"][0]["utilisation"] = 0.0
    assert found(cluster) == [("info", "memory.fragmented", "spark2")]
    health["blocks_mib"]["32"] = 70 * 1024
    assert found(cluster) == []
    health["blocks_mib"] = {"4": 3 * 1024}  # a kernel without such blocks
    assert found(cluster) == []


def test_heat_narrow_links_and_a_gpu_that_cannot_be_read(cluster: Cluster) -> None:
    cluster.hosts["spark1"]["health"]["gpus"][0]["temperature_c"] = 92.0
    cluster.hosts["spark2"]["health"]["links"][0]["width"] = 2
    cluster.hosts["spark3"]["health"] |= {"gpus": [], "gpu_error": "nvidia-smi: No devices were found"}
    assert found(cluster) == [
        ("error", "gpu.unreadable", "spark3"),
        ("error", "function.narrow", "spark2 0000:01:00.0"),
        ("warning", "gpu.hot", "spark1"),
    ]


def test_no_power_is_cut_for_a_program_that_is_not_installed(cluster: Cluster) -> None:
    cluster.hosts["spark3"]["health"] |= {"gpus": [], "gpu_error": "nvidia-smi is not installed"}
    (finding,) = examine(cluster)["findings"]
    assert (finding["id"], finding["where"]) == ("gpu.unreadable", "spark3")
    assert "Install the driver" in finding["remedy"] and "power" not in finding["remedy"]


def hit(name: str, excerpt: str = "a line") -> Plain:
    return {"id": name, "first": 1, "last": 9, "count": 3, "excerpt": excerpt, "values": {}}


def test_journals_are_explained_across_nodes(cluster: Cluster) -> None:
    cluster.hosts["spark2"]["health"]["journals"][0]["hits"] = [hit("kernel.hung-task")]
    cluster.hosts["spark3"]["health"]["journals"][0]["hits"] = [
        hit("kernel.aer-fatal", "AER: Uncorrected"),
        hit("kernel.aer-corrected"),
    ]
    (finding,) = examine(cluster)["findings"]
    assert (finding["severity"], finding["id"], finding["where"]) == ("error", "kernel.aer-fatal", "spark3")
    assert finding["symptom"] == "kernel, this boot (3 lines): AER: Uncorrected"
    assert finding["source"] and "kernel.hung-task" in finding["follows"][0]


def test_what_an_earlier_boot_said_is_a_warning(cluster: Cluster) -> None:
    cluster.hosts["spark1"]["health"]["journals"].append(
        {"name": "kernel, earlier boot", "lines": 1000, "hits": [hit("kernel.nvrm-no-memory")]}
    )
    assert found(cluster) == [("warning", "kernel.nvrm-no-memory", "spark1")]


def test_a_journal_that_could_not_be_read_is_said(cluster: Cluster) -> None:
    cluster.hosts["spark1"]["health"]["journals"] = [{"name": "kernel, this boot", "error": "journalctl: denied"}]
    assert found(cluster) == []
    assert examine(cluster)["not_judged"] == [
        {"host": "spark1", "what": "the journal (kernel, this boot): journalctl: denied"}
    ]
    assert "NOT JUDGED:" in examine(cluster)["table"]


def test_what_site_would_change_is_told(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    one = [Change("p0f0", "trust", False, True)]
    monkeypatch.setattr(fabric_changes.vfs, "drift", lambda node, *_a, **_k: one)
    rows = found(cluster)
    assert {(severity, what) for severity, what, _where in rows} == {("warning", "plan.drift")} and len(rows) == 4
    assert "p0f0: trust False -> True" in examine(cluster)["findings"][0]["symptom"]


def test_what_the_gate_told_is_not_told_again_as_a_change(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    fabric(cluster, "mtu")
    both = [Change("p0f1", "MTU", 1500, 9000), Change("/etc/x", "file", None, "y")]
    monkeypatch.setattr(fabric_changes.vfs, "drift", lambda *_a, **_k: both)
    drifts = {f["where"]: f["symptom"] for f in examine(cluster)["findings"] if f["id"] == "plan.drift"}
    assert "p0f1" not in drifts["spark2"] and "/etc/x" in drifts["spark2"]
    assert "p0f1" in drifts["spark1"]


def test_a_plan_that_the_nodes_spoil_is_a_finding(cluster: Cluster) -> None:
    assert [what for _s, what, _w in found(cluster, plan_fault="The fabric cannot be planned: x.")] == ["plan.refused"]


def down(why: str) -> Plain:
    return {"facts": None, "error": why, "health": None, "health_error": None}


def test_forty_hosts_that_do_not_answer_are_one_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fabric_changes.vfs, "drift", lambda *_a, **_k: [])
    monkeypatch.setattr(fabric_changes.netplan_file, "changes", lambda *_a, **_k: [])
    many = Cluster(40)
    for number, name in enumerate(list(many.hosts)[2:]):
        many.hosts[name] = down(f"ssh: connect to host 10.0.0.{number} port 22: Connection timed out")
    ((severity, name, where),) = [f for f in found(many) if f[1].startswith("node.")]
    assert (severity, name) == ("error", "node.down") and where.startswith("spark3, ") and where.endswith("and 30 more")
    assert len(examine(many)["table"]) < 40 + 30


@pytest.mark.parametrize(
    ("service", "said"), [("masked", "unmask systemd-networkd"), ("inactive", "enable --now"), ("failed", "status")]
)
def test_a_service_without_which_no_interface_is_configured_is_named(cluster: Cluster, service: str, said: str) -> None:
    cluster.hosts["spark2"]["facts"].setdefault("netplan", {})["service"] = service
    assert ("error", "netplan.service", "spark2") in found(cluster)
    assert any(said in line for line in examine(cluster)["table"])


def test_a_unit_of_ours_that_has_failed_is_named(cluster: Cluster) -> None:
    cluster.hosts["spark2"]["facts"]["failed"] = ["dgxspark-fabric.service"]
    assert found(cluster) == [("warning", "unit.failed", "spark2")]
    assert any("journalctl -u dgxspark-fabric.service" in line for line in examine(cluster)["table"])


@pytest.mark.parametrize(("off", "said"), [(366 * 86400, "366 days ahead of"), (-7200, "2 hours behind"), (30, "")])
def test_a_wrong_clock_is_named(cluster: Cluster, off: float, said: str) -> None:
    cluster.hosts["spark3"]["health"]["time_s"] = 1.8e9 + off
    assert found(cluster, now_s=1.8e9) == ([("warning", "clock.wrong", "spark3")] if said else [])
    assert any(said in line for line in examine(cluster, now_s=1.8e9)["table"])


@pytest.mark.parametrize("where", ["pending", "changing"])
def test_a_run_under_way_is_not_called_a_change_by_hand(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(fabric_changes.netplan_file, "changes", lambda *_a, **_k: [Change("x", "MTU", 1, 2)])
    node = cluster.hosts["spark1"]["facts"]
    (node if where == "changing" else node.setdefault("netplan", {}))[where] = "the run of Alice"
    (told,) = [f for f in examine(cluster)["findings"] if f["where"] == "spark1"]
    assert told["id"] == "plan.changing" and "by hand" not in told["cause"]


def test_what_site_yml_would_refuse_is_named_with_its_own_remedy(cluster: Cluster) -> None:
    """A broken file of the owner: `site.yml` would fail on it."""
    broken = {"path": "/etc/netplan/50-mine.yaml", "sha256": "0", "mode": "0600", "error": "line 3: not valid YAML"}
    cluster.hosts["spark4"]["facts"].setdefault("netplan", {})["files"] = [broken]
    (told,) = examine(cluster)["findings"]
    assert (told["id"], told["severity"]) == ("netplan.unreadable", "error")
    assert "Correct it" in told["remedy"] and "cluster.site" not in told["remedy"]


def test_a_damaged_record_is_named(cluster: Cluster) -> None:
    cluster.hosts["spark4"]["facts"]["record_fault"] = "Expecting value: line 1 column 1 (char 0)"
    assert [(severity, name) for severity, name, _where in found(cluster)] == [("error", "sriov.record-damaged")]
