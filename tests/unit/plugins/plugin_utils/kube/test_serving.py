"""The objects of an instance's ranks: where they run, what they are told, and when they would roll."""

from __future__ import annotations

import copy
import ipaddress
import itertools
import json
import re
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs import load_guard
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import networks
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.serving import load_seconds, serving
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import PLAN, RANK, checksum
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan
from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs as inputs
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import names

Plain = dict[str, t.Any]
VLLM = "qwen3.5-122b-a10b-nvfp4-vllm"


def serve(made: Plain | None = None, count: int = 4, **kubernetes: t.Any) -> Plain:
    made = made or inputs.plan(count=count, attachment=kubernetes.get("attachment", "vf"))
    return serving(made, inputs.fabric(count), {"image": inputs.PINNED, **kubernetes})


def pods(served: Plain) -> list[Plain]:
    """Return the pod templates in the order of ranks."""
    sets = sorted([*served["head"], *served["workers"]], key=lambda each: int(each["metadata"]["labels"][RANK]))
    return [each["spec"]["template"] for each in sets]


def named(served: Plain, kind: str, name: str) -> Plain:
    found = [each for each in served["common"] if each["kind"] == kind and each["metadata"]["name"].startswith(name)]
    assert len(found) == 1
    return dict(found[0])


def files(served: Plain) -> list[Plain]:
    """Return what each rank's supervisor is told."""
    data = named(served, "ConfigMap", f"{served['name']}-launch")["data"]
    return [json.loads(data[f"rank{number}.json"]) for number in range(len(pods(served)))]


def container(template: Plain) -> Plain:
    return dict(template["spec"]["containers"][0])


def networks_of(template: Plain) -> list[Plain]:
    return list(json.loads(template["metadata"]["annotations"].get(networks.NETWORKS, "[]")))


# --- what an engine would fetch for itself -----------------------------------------------------------------------------


def test_the_remedy_for_harmony_s_vocabulary_holds_for_ranks_that_may_ask_nobody() -> None:
    """Its folder on the nodes is mounted read-only in the ranks, at the path that the variable gets."""
    name, cluster = "gpt-oss-120b-vllm", {"hosts": ["spark1"]}
    told = [each for each in launch_plan(name, cluster)["findings"] if each["rule"] == "downloads.harmony-vocabulary"]
    (folder,) = re.findall(r"huggingface/\w+ under k8s_dgx_serving.cache_dir \((\S+)\)", told[0]["remedy"])
    (given,) = re.findall(r"TIKTOKEN_ENCODINGS_BASE: (/[\w/]+)", told[0]["remedy"])
    made = launch_plan(name, cluster, {"environment": {"TIKTOKEN_ENCODINGS_BASE": given}})
    assert not [each for each in made["findings"] if each["rule"] == "downloads.harmony-vocabulary"]
    (template,) = pods(serving(made, inputs.fabric(1), {"image": inputs.PINNED, "hub_offline": True}))
    assert {"name": "TIKTOKEN_ENCODINGS_BASE", "value": given} in container(template)["env"]
    (mount,) = [each for each in container(template)["volumeMounts"] if f"{given}/".startswith(f"{each['mountPath']}/")]
    (volume,) = [each for each in template["spec"]["volumes"] if each["name"] == mount["name"]]
    assert mount["readOnly"]
    assert volume["hostPath"]["path"] + given.removeprefix(mount["mountPath"]) == folder


# --- where a rank is, and how it gets its VFs --------------------------------------------------------------------------


@pytest.mark.parametrize("count", inputs.COUNTS)
@pytest.mark.parametrize("attachment", inputs.ATTACHMENTS)
@pytest.mark.parametrize("rdma", inputs.ACCESSES)
def test_one_rank_on_each_node_with_its_planned_addresses(count: int, attachment: str, rdma: str) -> None:
    made = next(inputs.fitting("qwen3.5-397b-a17b-nvfp4", count, attachment))
    served = serve(made, count, attachment=attachment, rdma=rdma)
    templates = pods(served)
    hosts = [rank["host"] for rank in made["ranks"]]
    assert [template["spec"]["nodeSelector"]["kubernetes.io/hostname"] for template in templates] == hosts
    assert len(served["head"]) == 1
    for host, template, file in zip(hosts, templates, files(served), strict=True):
        planned = [f["vfs"][0] for f in inputs.fabric(count)[host]["functions"]] if count > 1 else []
        on_host = attachment == "host"
        assert template["spec"].get("hostNetwork", False) is on_host
        wanted = [] if on_host else [[f"{vf['address']}/{vf['prefix']}"] for vf in planned]
        assert [network["ips"] for network in networks_of(template)] == wanted
        assert [rail["address"] for rail in file["rails"]] == [vf["address"] for vf in planned]
        interfaces = [vf["netdev"] if on_host else f"net{n}" for n, vf in enumerate(planned, 1)]
        assert [rail["interface"] for rail in file["rails"]] == interfaces
        security = container(template)["securityContext"]
        devices = {name for name in container(template)["resources"]["limits"] if name.startswith("dgxspark.cluster/")}
        if rdma == "device_plugin":
            assert not security.get("privileged")
            assert security["capabilities"]["add"] == ["IPC_LOCK"]
            assert len(devices) == len(planned)
        else:
            assert security.get("privileged", False) is bool(planned)
            assert not devices


def test_vfs_and_resources_of_another_index() -> None:
    made = inputs.plan(instance={"name": "coder", "vf_index": 1, "port": 30001, "dist_port": 51000})
    template = pods(serve(made))[2]
    assert [network["name"] for network in networks_of(template)] == ["p0f0v1", "p0f1v1"]
    assert {"dgxspark.cluster/p0f0v1", "dgxspark.cluster/p0f1v1"} <= set(container(template)["resources"]["limits"])
    third = inputs.fabric(4)["spark3"]["functions"]
    assert [network["ips"] for network in networks_of(template)] == [
        [f"{f['vfs'][1]['address']}/{f['vfs'][1]['prefix']}"] for f in third
    ]


def test_instances_side_by_side_share_no_object_but_the_common_ones() -> None:
    first = serve()
    second = serve(inputs.plan(instance={"name": "coder", "vf_index": 1, "port": 30001, "dist_port": 51000}))

    def ids(served: Plain) -> set[tuple[str, str]]:
        return {
            (each["kind"], each["metadata"]["name"]) for key in ("common", "workers", "head") for each in served[key]
        }

    assert {kind for kind, _name in ids(first) & ids(second)} == {"Namespace", "PriorityClass"}
    ports = [{file["port"] for file in files(served)} for served in (first, second)]
    assert not ports[0] & ports[1]


def test_a_service_finds_the_head_alone_whatever_the_model() -> None:
    served, other = serve(), serve(inputs.plan("glm-4.7-nvfp4"))
    services = {each["metadata"]["name"]: each["spec"] for each in served["common"] if each["kind"] == "Service"}
    service = services["serve-default"]
    matching = [
        template for template in pods(served) if service["selector"].items() <= template["metadata"]["labels"].items()
    ]
    assert matching == pods(served)[:1]
    ports = {port["name"]: port["containerPort"] for port in container(matching[0])["ports"]}
    assert ports[service["ports"][0]["targetPort"]] == 30000
    assert service in [each.get("spec") for each in other["common"]]


def test_every_selector_fits_its_pods() -> None:
    served = serve()
    for made in [*served["head"], *served["workers"]]:
        own = made["spec"]["template"]["metadata"]["labels"]
        assert made["spec"]["selector"]["matchLabels"].items() <= own.items()
        others = [template for template in pods(served) if template["metadata"]["labels"] != own]
        assert not [
            o for o in others if made["spec"]["selector"]["matchLabels"].items() <= o["metadata"]["labels"].items()
        ]


# --- what a rank is told -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("profile", "count"), [("qwen3.5-397b-a17b-nvfp4", 4), (VLLM, 1), (VLLM, 4)])
def test_the_command_is_the_plan_s(profile: str, count: int) -> None:
    made = next(inputs.fitting(profile, count, "vf"))
    served = serve(made, count)
    for rank, template, file in zip(made["ranks"], pods(served), files(served), strict=True):
        assert file["argv"] == rank["argv"]
        env = {entry["name"]: entry["value"] for entry in container(template)["env"]}
        assert rank["env"].items() <= env.items()
        assert container(template)["command"][-1].endswith(f"/rank{rank['rank']}.json")


def test_peers_are_who_is_on_the_same_wire() -> None:
    told = files(serve())
    for file in told:
        for rail in file["rails"]:
            assert [peer["rank"] for peer in rail["peers"]] == [r for r in range(4) if r != file["rank"]]
            own = ipaddress.ip_interface(f"{rail['address']}/{rail['prefix']}").network
            assert all(ipaddress.ip_address(peer["address"]) in own for peer in rail["peers"])
    assert {file["head"] for file in told[1:]} == {told[0]["rails"][0]["address"]}


def test_on_a_ring_a_rank_asks_its_neighbours_and_finds_a_far_head_over_the_pod_network() -> None:
    made, ring = inputs.plan(topology="ring"), inputs.fabric(4, 2, "ring")
    told = files(serving(made, ring, {"image": inputs.PINNED}))
    neighbours = {file["rank"]: {peer["rank"] for rail in file["rails"] for peer in rail["peers"]} for file in told}
    assert neighbours == {0: {1, 3}, 1: {0, 2}, 2: {1, 3}, 3: {0, 2}}
    assert told[2]["head"] == "serve-default-rank0-0.serve-default-ranks.dgx-serving.svc"
    own = [rail["address"] for rail in told[0]["rails"]]
    assert told[1]["head"] in own
    assert told[3]["head"] in own


MEETING = "serve-default-rank0-0.serve-default-ranks"


@pytest.mark.parametrize(("topology", "count"), [("ring", 4), ("triangle", 3)])
@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@pytest.mark.parametrize("attachment", inputs.ATTACHMENTS)
def test_where_cables_lead_to_different_neighbours_ranks_start_up_over_the_pod_network(
    topology: str, count: int, engine: str, attachment: str
) -> None:
    own = [profile for profile in inputs.PROFILES if launch_engine(profile) == engine]
    made = next(one for profile in own for one in inputs.fitting(profile, count, attachment, topology))
    served = serving(made, inputs.fabric(count, 2, topology), {"image": inputs.PINNED, "attachment": attachment})
    start_up = "eth0" if attachment == "vf" else "enP7s7"
    for rank, file in zip(made["ranks"], files(served), strict=True):
        assert rank["env"]["NCCL_SOCKET_IFNAME"] == f"={start_up}"
        assert rank["env"]["GLOO_SOCKET_IFNAME"] == start_up
        # The engine is given an address: ZMQ, as SGLang uses it with data parallelism, cannot bind to a host name.
        name = f"{MEETING}.dgx-serving.svc"
        assert file["argv"][:4] == ["python3", "/dgxspark/rendezvous.py", "600", name]
        assert "rendezvous.py" in named(served, "ConfigMap", "serve-default-launch")["data"]
        given = [word for word in file["argv"][4:] if name in word]
        assert given in ([name], [f"{name}:{made['instance']['dist_port']}"])


def test_the_transport_is_said_where_the_plan_judges_it() -> None:
    """With sockets only in cluster.nccl, the plan's verdict would be one for RoCE."""
    cluster = {"hosts": names(4), "fabric": inputs.fabric(4), "nccl": {"transport": "socket"}}
    with pytest.raises(CollectionError, match=r"Give settings\.nccl_transport"):
        launch_plan("glm-4.7-nvfp4", cluster)
    made = launch_plan("glm-4.7-nvfp4", cluster, {"settings": {"nccl_transport": "socket"}})
    assert made["ranks"][0]["env"]["NCCL_IB_DISABLE"] == "1"


def test_neighbours_of_a_ring_meet_on_their_cable_and_need_no_name() -> None:
    cluster = {"hosts": ["spark1", "spark2"], "fabric": inputs.fabric(4, 2, "ring"), "nccl": {"attachment": "vf"}}
    made = launch_plan("glm-4.7-nvfp4", cluster, {"parallel": {"nodes": 2, "tp": 2, "pp": 1, "ep": 1}})
    told = files(serving(made, inputs.fabric(4, 2, "ring"), {"image": inputs.PINNED}))
    assert not [word for file in told for word in file["argv"] if "serve-default" in word]


def test_a_host_s_interface_for_start_up_is_asked_for_by_its_variable() -> None:
    cluster = {"hosts": names(4), "fabric": inputs.fabric(4, 2, "ring"), "nccl": {"attachment": "host"}}
    with pytest.raises(CollectionError, match="k8s_dgx_nccl_bootstrap"):
        launch_plan("qwen3.5-397b-a17b-nvfp4", cluster)


def launch_engine(profile: str) -> str:
    return str(launch_plan(profile)["engine"]["name"])


def test_ranks_with_vfs_may_delete_their_own_pods_and_nothing_else() -> None:
    made = serve()
    (role,) = [each for each in made["common"] if each["kind"] == "Role"]
    (binding,) = [each for each in made["common"] if each["kind"] == "RoleBinding"]
    (account,) = [each for each in made["common"] if each["kind"] == "ServiceAccount"]
    own = [f"{each['metadata']['name']}-0" for each in [*made["head"], *made["workers"]]]
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"], "resourceNames": own}
    assert role["rules"] == [rule]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [each["name"] for each in binding["subjects"]] == [account["metadata"]["name"]]
    for each in [*made["head"], *made["workers"]]:
        assert each["spec"]["template"]["spec"]["automountServiceAccountToken"]
    # On the host network nothing is moved into a pod: no rank needs to ask for another one.
    made = serve(attachment="host")
    assert not [each for each in made["common"] if each["kind"].startswith("Role")]
    assert not any(each["spec"]["template"]["spec"]["automountServiceAccountToken"] for each in made["workers"])


def test_a_single_rank_has_no_network_and_no_peers() -> None:
    served = serve(next(inputs.fitting("qwen3-vl-8b-instruct-fp8", 1, "vf")), 1)
    assert networks_of(pods(served)[0]) == []
    assert files(served)[0]["rails"] == []
    assert not served["workers"]


def test_the_start_is_given_the_load_s_time() -> None:
    small = load_seconds({"weights_gib": 10.0})
    assert load_seconds({"weights_gib": 90.0}) > small >= 1200
    served = serve(load_timeout_s=77)
    probe = container(pods(served)[0])["startupProbe"]
    assert files(served)[0]["bounds"]["load_s"] == 77
    # The supervisor's own limits come first, so that the cause is named: meeting (twice) and load; and three starts that
    # ended so count for the kubelet as failures of the fourth.
    assert probe["failureThreshold"] * probe["periodSeconds"] > 4 * (2 * 600 + 77)


def test_a_dead_supervisor_is_noticed_within_a_minute() -> None:
    probe = container(pods(serve())[1])["livenessProbe"]
    assert probe["failureThreshold"] * (probe["periodSeconds"] + probe["timeoutSeconds"]) <= 60


def test_shared_memory_service_links_and_caches() -> None:
    template = pods(serve(shm="4Gi", cache_dir="/data"))[0]
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    mounts = {mount["mountPath"]: mount["name"] for mount in container(template)["volumeMounts"]}
    assert volumes[mounts["/dev/shm"]]["emptyDir"] == {"medium": "Memory", "sizeLimit": "4Gi"}
    assert template["spec"]["enableServiceLinks"] is False
    env = {entry["name"]: entry["value"] for entry in container(template)["env"]}
    assert volumes[mounts[env["HF_HOME"]]]["hostPath"]["path"] == "/data/huggingface"


def test_ranks_tell_the_node_s_memory_guard_and_write_nothing_there() -> None:
    coder = inputs.plan(instance={"name": "coder", "vf_index": 1, "port": 30001, "dist_port": 51000})
    names = []
    for served in (serve(), serve(coder)):
        for template, file in zip(pods(served), files(served), strict=True):
            volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
            mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container(template)["volumeMounts"]}
            # Created where there is no guard: a node without one serves, too.
            there = {"path": load_guard.FOLDER, "type": "DirectoryOrCreate"}
            assert mounts[file["guard"]["folder"]]["hostPath"] == there
            (mount,) = (m for m in container(template)["volumeMounts"] if m["mountPath"] == file["guard"]["folder"])
            assert mount["readOnly"] is True
            names.append(file["guard"]["name"])
    assert len(set(names)) == 8


def test_a_token_is_a_file_and_nowhere_else() -> None:
    served = serve(hf_token_secret="hub")
    for template in pods(served):
        env = {entry["name"]: entry["value"] for entry in container(template)["env"]}
        assert env["HF_TOKEN_PATH"] == "/run/secrets/dgxspark/token"
        assert "HF_TOKEN" not in env
        secret = next(volume["secret"] for volume in template["spec"]["volumes"] if "secret" in volume)
        assert secret["secretName"] == "hub"
        assert secret["items"][0]["mode"] == 0o400
    assert "secret" not in json.dumps(pods(serve()))


@pytest.mark.parametrize("attachment", inputs.ATTACHMENTS)
@pytest.mark.parametrize("profile", ["qwen3.5-397b-a17b-nvfp4", VLLM])
def test_an_api_with_a_key_listens_on_loopback_behind_its_door(profile: str, attachment: str) -> None:
    made = next(inputs.fitting(profile, 4, attachment))
    served = serve(made, attachment=attachment, api_key_secret="serve-default-api-1")
    port = str(made["instance"]["port"])
    for number, (template, file, before) in enumerate(zip(pods(served), files(served), made["ranks"], strict=True)):
        argv, told = file["argv"], dict(itertools.pairwise(file["argv"]))
        secrets = [volume["secret"] for volume in template["spec"]["volumes"] if "secret" in volume]
        env = {entry["name"]: entry["value"] for entry in container(template)["env"]}
        # No rank of the group can be reached except over loopback, and not on the API's own port.
        assert "0.0.0.0" not in argv
        assert told.get("--host", "127.0.0.1") == "127.0.0.1"
        assert told.get("--port", "49998") == "49998"
        assert file["api"] == made["instance"]["port"]
        if number:
            assert not secrets
            assert "DGXSPARK_API_KEY_FILE" not in env
            assert len(argv) == len(before["argv"])
            continue
        assert argv[:4] == ["python3", "/dgxspark/auth_proxy.py", port, told["--port"]]
        assert [word for word in argv[4:] if word not in ("127.0.0.1", "49998")] == [
            word for word in before["argv"] if word not in ("0.0.0.0", port)
        ]
        assert secrets == [
            {"secretName": "serve-default-api-1", "items": [{"key": "key", "path": "key", "mode": 0o400}]}
        ]
        (mount,) = (m for m in container(template)["volumeMounts"] if m["name"] == "api-key")
        assert env["DGXSPARK_API_KEY_FILE"] == f"{mount['mountPath']}/key"
        assert mount["readOnly"] is True
        assert {"name": "http", "containerPort": made["instance"]["port"], "protocol": "TCP"} in container(template)[
            "ports"
        ]
    texts = named(served, "ConfigMap", "serve-default-launch")["data"]
    assert "auth_proxy.py" in texts
    # Another key, or none, are other ranks.
    others = [serve(made, attachment=attachment, api_key_secret=name) for name in ("serve-default-api-2", None)]
    assert len({each["plan"] for each in (served, *others)}) == 3


def test_a_ring_s_first_rank_has_its_address_and_its_door() -> None:
    made = next(inputs.fitting("qwen3.5-397b-a17b-nvfp4", 4, "vf", "ring"))
    served = serving(made, inputs.fabric(4, topology="ring"), {"image": inputs.PINNED, "api_key_secret": "s"})
    argv = files(served)[0]["argv"]
    assert argv.index("/dgxspark/auth_proxy.py") < argv.index("/dgxspark/rendezvous.py")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--host", "0.0.0.0"], "--host 2 times"),
        (["--port=1"], "--port 2 times"),
        (["--uds", "/tmp/s"], "--uds opens another way into the API"),
    ],
)
def test_an_api_that_cannot_be_shut_is_refused_and_not_served_openly(more: list[str], said: str) -> None:
    made = copy.deepcopy(inputs.plan(VLLM))
    made["ranks"][0]["argv"] += more
    with pytest.raises(CollectionError, match=said):
        serve(made, api_key_secret="s")
    made["ranks"][0]["argv"] = ["vllm", "serve", "m"]
    with pytest.raises(CollectionError, match="rank 0: its command has --host 0 times"):
        serve(made, api_key_secret="s")


@pytest.mark.parametrize("secret", [None, "s"])
def test_a_key_that_everybody_would_read_is_refused(secret: str | None) -> None:
    changes: list[tuple[str, dict[str, t.Any]]] = [
        ("k8s_dgx_api_key", {"argv": ["--api-key", "sesame"]}),
        ("k8s_dgx_api_key", {"argv": ["--admin-api-key=sesame"]}),
        ("k8s_dgx_api_key", {"env": {"VLLM_API_KEY": "sesame"}}),
        ("k8s_dgx_hf_token", {"argv": ["--hf-token=sesame"]}),
        ("k8s_dgx_hf_token", {"env": {"HF_TOKEN": "sesame"}}),
        ("k8s_dgx_hf_token", {"env": {"HUGGING_FACE_HUB_TOKEN": "sesame"}}),
    ]
    for setting, change in changes:
        made = copy.deepcopy(inputs.plan(VLLM))
        made["ranks"][0]["argv"] += change.get("argv", [])
        made["ranks"][0]["env"] |= change.get("env", {})
        with pytest.raises(CollectionError, match=setting) as caught:
            serve(made, api_key_secret=secret)
        assert "sesame" not in str(caught.value)


def test_ranks_that_do_not_ask_the_hub_get_no_token_and_read_weights_alone() -> None:
    coder = inputs.plan(instance={"name": "coder", "vf_index": 1, "port": 30001, "dist_port": 51000})
    writable: list[set[str]] = []
    for made in (inputs.plan(), coder):
        for template in pods(serve(made, hub_offline=True, hf_token_secret="hub", cache_dir="/data")):
            assert "hub" not in json.dumps(template["spec"]["volumes"])
            env = {entry["name"]: entry["value"] for entry in container(template)["env"]}
            assert "HF_TOKEN_PATH" not in env
            mounts = {mount["mountPath"]: mount for mount in container(template)["volumeMounts"]}
            assert mounts[env["HF_HOME"]]["readOnly"] is True
            volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
            ours = {
                volumes[mount["name"]]["hostPath"]["path"]
                for mount in mounts.values()
                if "hostPath" in volumes[mount["name"]] and not mount.get("readOnly")
            }
            writable.append({path for path in ours if path.startswith("/data")})
            # Compilers and a model's own code have a place that can be written to.
            for name in ("HF_MODULES_CACHE", "TRITON_CACHE_DIR", "VLLM_CACHE_ROOT"):
                (place,) = (path for path in mounts if env[name].startswith(f"{path}/"))
                assert not mounts[place].get("readOnly")
    # Two instances on a node never run code that the other one compiled.
    assert not writable[0] & writable[-1]
    # A rank that downloads for itself can write.
    (mount,) = (m for m in container(pods(serve())[0])["volumeMounts"] if m["mountPath"] == "/cache/huggingface")
    assert "readOnly" not in mount


def test_ranks_are_reached_by_their_group_and_the_api_by_anybody() -> None:
    served = serve()
    policy = named(served, "NetworkPolicy", "serve-default")["spec"]
    own = pods(served)[0]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= own.items()
    assert "Egress" not in policy["policyTypes"]
    open_to_all = [rule for rule in policy["ingress"] if "from" not in rule]
    assert [rule["ports"] for rule in open_to_all] == [[{"port": "http", "protocol": "TCP"}]]
    # Only the head has a port of that name; supervisors and engines are for the group.
    named_ports = [{port["name"] for port in container(template)["ports"]} for template in pods(served)]
    assert ["http" in names for names in named_ports] == [True, False, False, False]
    (group,) = (rule["from"] for rule in policy["ingress"] if "from" in rule)
    coder = inputs.plan(instance={"name": "coder", "vf_index": 1, "port": 30001, "dist_port": 51000})
    other = pods(serve(coder))[0]["metadata"]["labels"]
    (peers,) = group
    assert set(peers) == {"podSelector"}, "no other namespace"
    assert peers["podSelector"]["matchLabels"].items() <= own.items()
    assert not peers["podSelector"]["matchLabels"].items() <= other.items()
    # On the host network no policy is enforced: there is none that pretends otherwise.
    assert "NetworkPolicy" not in {made["kind"] for made in serve(attachment="host")["common"]}


@pytest.mark.parametrize("rdma", inputs.ACCESSES)
@pytest.mark.parametrize("count", [1, 3, 4])
def test_ranks_that_do_not_ask_the_hub_reach_no_more_than_they_need(count: int, rdma: str) -> None:
    served = serve(next(inputs.fitting("qwen3.6-27b-nvfp4", count, "vf")), count, hub_offline=True, rdma=rdma)
    policy = named(served, "NetworkPolicy", "serve-default")["spec"]
    assert sorted(policy["policyTypes"]) == ["Egress", "Ingress"]
    own = [{"podSelector": policy["podSelector"]}]
    group, names, *api = policy["egress"]
    assert group == {"to": own}, "their group on every port, and nobody else's"
    system = {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}
    assert names["to"] == [{"namespaceSelector": system}]
    assert sorted((port["port"], port["protocol"]) for port in names["ports"]) == [(53, "TCP"), (53, "UDP")]
    # Ranks with VFs delete their own pods. The plan does not know the API server's address, only its ports.
    ports = [{"port": 6443, "protocol": "TCP"}]
    assert api == ([{"ports": ports}] if any(map(networks_of, pods(served))) else [])
    assert bool(api) == (count > 1) == ("Role" in {made["kind"] for made in served["common"]})


def test_ranks_that_ask_the_hub_reach_everything_and_those_on_the_host_have_no_policy() -> None:
    fetching, offline = (
        named(serve(hub_offline=value), "NetworkPolicy", "serve-default")["spec"] for value in (False, True)
    )
    assert fetching["policyTypes"] == ["Ingress"]
    assert "egress" not in fetching
    assert fetching["ingress"] == offline["ingress"]
    made = serve(attachment="host", hub_offline=True)
    assert "NetworkPolicy" not in {each["kind"] for each in made["common"]}


def test_the_plan_s_patches_are_applied_before_the_engine() -> None:
    made = inputs.plan() | {"patches": [{"id": "a", "package": "sglang", "file": "x.py", "edits": []}]}
    served = serve(made)
    data = named(served, "ConfigMap", "serve-default-launch")["data"]
    assert json.loads(data["patches.json"]) == made["patches"]
    assert files(served)[3]["before"] == [["python3", "/dgxspark/patches.py", "/dgxspark/patches.json"]]
    assert "argparse" in data["patches.py"]
    none = serve(inputs.plan() | {"patches": []})
    assert files(none)[3]["before"] == []
    assert served["plan"] != none["plan"]


# --- when it rolls -----------------------------------------------------------------------------------------------------


def test_equal_plans_are_equal_objects() -> None:
    assert serve(copy.deepcopy(inputs.plan())) == serve()


def rolls(**kubernetes: t.Any) -> bool:
    return bool(serve(**kubernetes)["plan"] != serve()["plan"])


@pytest.mark.parametrize(
    ("kubernetes", "wanted"),
    [
        ({"shm": "9Gi"}, True),
        ({"image": "registry.example/engine:2"}, True),
        ({"rdma": "privileged"}, True),
        ({"lost_after_s": 20}, True),
        ({"service_type": "NodePort"}, False),
        ({"service_port": 80}, False),
        ({"max_unavailable": 0}, False),
    ],
)
def test_only_what_ranks_are_started_with_makes_them_roll(kubernetes: Plain, wanted: bool) -> None:
    assert rolls(**kubernetes) is wanted


def test_one_rank_s_change_rolls_the_group() -> None:
    made = copy.deepcopy(inputs.plan())
    made["ranks"][2]["env"]["NCCL_DEBUG"] = "INFO"
    stamps = {template["metadata"]["annotations"][PLAN] for template in pods(serve(made))}
    assert len(stamps) == 1
    assert stamps != {template["metadata"]["annotations"][PLAN] for template in pods(serve())}


def test_files_of_two_plans_lie_side_by_side_and_never_change() -> None:
    one, two = serve(), serve(shm="9Gi")
    maps = [named(served, "ConfigMap", "serve-default-launch") for served in (one, two)]
    assert maps[0]["metadata"]["name"] != maps[1]["metadata"]["name"]
    assert all(made["immutable"] for made in maps)
    for served, made in zip((one, two), maps, strict=True):
        used = {
            v["configMap"]["name"] for template in pods(served) for v in template["spec"]["volumes"] if "configMap" in v
        }
        assert used == {made["metadata"]["name"]}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda n: st.lists(n) | st.dictionaries(st.text(), n)
    )
)
def test_a_checksum_is_of_the_data_and_not_of_its_order(data: t.Any) -> None:
    def turned(node: t.Any) -> t.Any:
        if isinstance(node, dict):
            return {key: turned(node[key]) for key in reversed(list(node))}
        return [turned(item) for item in node] if isinstance(node, list) else node

    assert checksum(turned(data)) == checksum(data)
    assert checksum([data]) != checksum(data)


# --- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kubernetes", "text"),
    [
        ({"colour": 1}, "unknown key 'colour'"),
        ({"namespace": "Dgx"}, r"namespace: 'Dgx' cannot be a name"),
        ({"attachment": "bridge"}, "bridge"),
        ({"workload": "per_rank"}, "unknown key 'workload'"),
        ({"image": "built by hand, with care"}, "not an image that can be pulled"),
        ({"shm": "lots"}, "shm: 'lots' is not a quantity"),
        ({"requests": {"cpu": "1 core"}}, r"requests\.cpu"),
        ({"node_names": {"spark1": "Spark_1"}}, "cannot be the name of a node"),
        ({"node_names": {"spark1": "spark2"}}, "both node 'spark2'"),
        ({"lost_after_s": 1}, "lost_after_s"),
        ({"cache_dir": "cache"}, "cache_dir"),
    ],
)
def test_a_bad_choice_is_refused(kubernetes: Plain, text: str) -> None:
    with pytest.raises(CollectionError, match=text):
        serve(**kubernetes)


def test_a_recipe_instead_of_an_image_is_refused() -> None:
    made = inputs.plan(VLLM, 1)
    assert serving(made, {}, {})
    made = made | {"engine": made["engine"] | {"image": "spark-vllm-docker, built by hand"}}
    with pytest.raises(CollectionError, match="k8s_dgx_image"):
        serving(made, {}, {})


def test_ranks_without_fabric_are_refused() -> None:
    with pytest.raises(CollectionError, match="spark1 is not in the fabric plan"):
        serving(inputs.plan(), {}, {"image": inputs.PINNED})


def test_a_vf_that_nobody_planned_is_refused() -> None:
    made = inputs.plan() | {"instance": {"vf_index": 7}}
    with pytest.raises(CollectionError, match="no VF 7"):
        serve(made)


def test_an_unseen_hca_is_refused() -> None:
    fabric = copy.deepcopy(inputs.fabric(4))
    fabric["spark4"]["functions"][1]["vfs"][0]["hca"] = None
    with pytest.raises(CollectionError, match="spark4: p0f1v0: the name of its HCA"):
        serving(inputs.plan(), fabric, {"image": inputs.PINNED})


def test_a_plan_without_commands_is_refused() -> None:
    made = copy.deepcopy(inputs.plan())
    made["ranks"][1]["argv"] = []
    with pytest.raises(CollectionError, match="rank 1 has no argv"):
        serve(made)


@pytest.mark.parametrize("instance", ["Upper", "a" * 41, "-x", ""])
def test_an_instance_name_that_cannot_be_one_is_refused(instance: str) -> None:
    with pytest.raises(CollectionError, match=r"instance\.name"):
        serve(inputs.plan() | {"instance": {"name": instance}})
