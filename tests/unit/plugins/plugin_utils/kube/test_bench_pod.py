"""The bench pod: its spec and rights, that the ranks' policy lets it in, which run gives way, and what its log says."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench import known
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.in_pod import MARK, PROGRAM
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.wanted import BenchRequest
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import bench_pod
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.bench_pod import Served
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.running import selectors
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.serving import serving
from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs as inputs

Plain = dict[str, t.Any]
WHERE = "acme/engine on spark1"


def made(secret: str | None = "serve-default-api-0123456789abcdef", **choices: t.Any) -> tuple[Plain, Plain]:
    served = Served("default", inputs.PINNED, secret)
    wanted = BenchRequest("http://10.43.0.7:30000/v1", key_file=bench_pod.key_file(served), place="pod")
    document = bench_pod.program_input(wanted, known.load())
    (_space, files), pod = bench_pod.objects(served, document, "spark1", choices, 60, "0a1b")
    return files, pod


def chosen(selector: t.Mapping[str, str], labels: t.Mapping[str, str]) -> bool:
    return selector.items() <= labels.items()


def test_it_has_no_more_than_it_needs() -> None:
    files, pod = made(image_pull_secrets=["login"], node_names={"spark1": "gb10-one"})
    spec, (container,) = pod["spec"], pod["spec"]["containers"]
    assert spec["restartPolicy"] == "Never" and spec["activeDeadlineSeconds"] == 60
    assert not spec["automountServiceAccountToken"] and not spec["hostNetwork"] and "runtimeClassName" not in spec
    assert spec["nodeSelector"] == {"kubernetes.io/hostname": "gb10-one"}
    assert spec["imagePullSecrets"] == [{"name": "login"}]
    assert {kind for volume in spec["volumes"] for kind in volume if kind != "name"} == {
        "configMap", "emptyDir", "secret",
    }  # fmt: skip
    assert "nvidia.com/gpu" not in json.dumps(container["resources"])
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in container["env"]
    security = container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]} and security["readOnlyRootFilesystem"]
    assert not security["allowPrivilegeEscalation"] and security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["image"] == inputs.PINNED and container["command"][-1].endswith(f"/{PROGRAM}")
    assert len(json.dumps(files)) < 900_000, "a ConfigMap holds 1 MiB"


def test_the_key_is_a_file_of_the_instance_s_secret_or_none() -> None:
    files, pod = made()
    (volume,) = (each for each in pod["spec"]["volumes"] if "secret" in each)
    assert volume["secret"] == {
        "secretName": "serve-default-api-0123456789abcdef", "items": [{"key": "key", "path": "key", "mode": 0o400}],
    }  # fmt: skip
    (mount,) = (m for m in pod["spec"]["containers"][0]["volumeMounts"] if m["name"] == volume["name"])
    assert mount["readOnly"]
    assert json.loads(files["data"]["asked.json"])["wanted"]["key_file"] == f"{mount['mountPath']}/key"
    files, pod = made(secret=None)
    assert "secret" not in json.dumps(pod["spec"]["volumes"])
    assert json.loads(files["data"]["asked.json"])["wanted"]["key_file"] is None


def test_every_file_lies_where_an_import_looks_for_it_and_no_path_of_the_controller_is_told() -> None:
    files, pod = made()
    items = pod["spec"]["volumes"][0]["configMap"]["items"]
    assert {item["key"] for item in items} == set(files["data"])
    assert "ansible_collections/dgxspark/cluster/plugins/plugin_utils/bench/run.py" in {item["path"] for item in items}
    assert "origin" not in json.dumps(
        [list(each.values()) for each in json.loads(files["data"]["asked.json"])["known"].values()]
    )


@pytest.mark.parametrize("offline", [True, False])
def test_the_ranks_policy_lets_it_in_and_it_is_none_of_them(offline: bool) -> None:
    _files, pod = made()
    labels = pod["metadata"]["labels"]
    common = serving(inputs.plan(), inputs.fabric(4), {"image": inputs.PINNED, "hub_offline": offline})["common"]
    for each in common:
        for name in ("selector", "podSelector"):
            select = each.get("spec", {}).get(name)
            assert not select or not chosen(select.get("matchLabels", select), labels), each["metadata"]["name"]
    (policy,) = (each for each in common if each["kind"] == "NetworkPolicy")
    assert {"ports": [{"port": "http", "protocol": "TCP"}]} in policy["spec"]["ingress"], "anybody at the API's port"
    # Nor is it selected as a part of the instance.
    assert not chosen(dict(each.split("=") for each in selectors("default")), labels)
    assert chosen(dict(each.split("=") for each in bench_pod.selector("default")), labels)


def pod_of(name: str, made_at: str, phase: str = "Running", **metadata: str) -> Plain:
    named = {"name": name, "namespace": "dgx-serving", "creationTimestamp": made_at, **metadata}
    return {"metadata": named, "status": {"phase": phase}}


def test_one_run_measures_and_the_later_one_gives_way() -> None:
    first, second = pod_of("bench-b", "2026-01-01T00:00:00Z"), pod_of("bench-a", "2026-01-01T00:00:01Z")
    with pytest.raises(CollectionError, match=r"in the pod bench-b: .* kubectl delete pod bench-b -n dgx-serving"):
        bench_pod.alone([first])
    with pytest.raises(CollectionError, match="in the pod bench-b"):
        bench_pod.alone([first, second], "bench-a")
    bench_pod.alone([first, second], "bench-b")
    twin = pod_of("bench-c", "2026-01-01T00:00:00Z")
    bench_pod.alone([first, twin], "bench-b")
    with pytest.raises(CollectionError, match="in the pod bench-b"):
        bench_pod.alone([first, twin], "bench-c")
    bench_pod.alone([pod_of("bench-d", "2026", "Failed"), pod_of("bench-e", "2026", deletionTimestamp="2026")])
    bench_pod.alone([])
    bench_pod.alone([first], "bench-gone")  # that it was deleted is reported elsewhere


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("exec: python3: no such file\n", "the pod returned no report. Its last output: exec: python3: no such file"),
        ("", r"Its last output: \(none\)"),
        (f"{MARK}\n" + '{"error":"no\\u001b[31m httpx"}\n', r"on spark1: no \[31m httpx$"),
        (
            f"{MARK}\n" + '{"report":{"format":1}}\n',
            "is not a report: .top level.: .* See docs/schema/bench-report.json",
        ),
        (f"{MARK}\n" + '{"report":{"form', "is not a complete report"),
        (f"{MARK}\n[]\n", "is not a complete report"),
    ],
)
def test_what_is_no_report_is_one_sentence(log: str, words: str) -> None:
    with pytest.raises(CollectionError, match=words) as caught:
        bench_pod.report(log, WHERE)
    assert str(caught.value).startswith(WHERE) and "\x1b" not in str(caught.value)


def test_progress_is_told_once_in_whole_lines_and_without_the_report() -> None:
    assert bench_pod.progress("one\ntwo\nthr", 0) == ["one", "two"]
    assert bench_pod.progress(f"one\ntwo\nthree\x1b[2J\n{MARK}\n{{}}\n", 2) == ["three [2J"]
    assert bench_pod.progress("", 3) == []


def test_a_server_takes_its_objects() -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="not run: kubernetes-validate is not installed")
    for each in made(image_pull_secrets=["login"]):
        validator.validate(each, "1.37", strict=True)
