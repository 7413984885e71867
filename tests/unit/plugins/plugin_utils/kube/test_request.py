"""How to ask the served model: commands that work as printed, and no key in any of them."""

from __future__ import annotations

import ast
import json
import shlex
import subprocess
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import request

PLAN = {
    "model": "org/model",
    "instance": {"port": 30000},
    "ranks": [{"settings": {"model": "org/model", "served_model_name": "model it's"}}],
}
OUTSIDE = {
    "groups": [{"url": "http://192.0.2.11:30080/v1"}],
    "pods": {"namespace": "dgx-serving"},
    "inside": "http://10.43.0.9:30000/v1",
}
INSIDE = {**OUTSIDE, "groups": []}


def typed(told: t.Sequence[str]) -> list[str]:
    """Return the curl's arguments as a shell passes them."""
    [line] = [line.strip() for line in told if "curl " in line]
    script = (
        f'curl() {{ printf "%s\\n" "$@"; cat 2>/dev/null; }}\n{line} </dev/null'
        if "|" not in line
        else f'curl() {{ printf "%s\\n" "$@"; cat; }}\n{line}'
    )
    return subprocess.run(["bash", "-c", script], check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.parametrize("running", [OUTSIDE, INSIDE])
def test_the_curl_is_a_request_that_an_engine_takes(running: dict[str, t.Any]) -> None:
    told = request.lines(running, PLAN, "default")
    url, *words = typed(told)
    assert (
        url
        == ("http://192.0.2.11:30080/v1" if running["groups"] else "http://127.0.0.1:30000/v1") + "/chat/completions"
    )
    body = json.loads(words[words.index("-d") + 1])
    assert body["model"] == "model" and body["messages"][0]["role"] == "user"
    assert ("port-forward svc/serve-default 30000:30000" in "\n".join(told)) == (not running["groups"])
    for line in told:
        if "OpenAI(" in line or "completions.create" in line:
            ast.parse(line.strip())


def test_what_reaches_the_pod_from_here_names_the_clusters_kubeconfig() -> None:
    told = request.lines(INSIDE, PLAN, "default", reach=("--kubeconfig", "/home/me/my clusters/dgxspark.yml"))
    [line] = [line.strip() for line in told if "port-forward" in line]
    assert shlex.split(line)[:3] == ["kubectl", "--kubeconfig", "/home/me/my clusters/dgxspark.yml"]


def test_a_key_is_read_where_it_is_and_never_an_argument(tmp_path: t.Any) -> None:
    place = tmp_path / "the key"
    place.write_text("s3cret\n")
    told = request.lines(OUTSIDE, PLAN, "default", key_file=str(place), has_key=True)
    said = typed(told)
    assert said[-1] == 'header = "Authorization: Bearer s3cret"' and "s3cret" not in " ".join(said[:-1])
    assert f"The key is in {place}." in told
    assert "The key is the value of k8s_dgx_api_key." in request.lines(OUTSIDE, PLAN, "default", has_key=True)


def test_the_measurement_is_of_this_inventory() -> None:
    line = shlex.split(request.measured(["my inventory"], INSIDE)[1])
    assert line[:4] == ["ansible-playbook", "dgxspark.cluster.bench", "-i", "my inventory"]
    assert line[4:] == ["-e", "dgxspark_bench_mode=quick", "-e", "dgxspark_bench_from=pod"]


def _rank(number: int, node: str) -> dict[str, t.Any]:
    about = {"annotations": {"dgxspark.cluster/profile": "small"}, "labels": {"dgxspark.cluster/rank": str(number)}}
    spec = {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": node}}}}
    return {"kind": "StatefulSet", "metadata": about, "spec": spec}


def test_what_was_stopped_is_said_with_where_it_ran_and_what_stays() -> None:
    files = [{"kind": "ConfigMap", "metadata": {}}] * 2
    told = request.stopped(
        [_rank(1, "b"), _rank(0, "a"), *files], "second", "dgx-serving", {"spark2": "b"}, "present", dry=False
    )
    assert told[0] == "Stopped small (instance second): 2 ranks, on a and spark2."
    assert "2 StatefulSets, 2 ConfigMaps" in told[1] and "dgx-serving" in told[1]
    assert "weights stay" in told[2] and "k8s_dgx_weights=absent" in told[2]
    dry = request.stopped([_rank(0, "a")], "default", "dgx-serving", {}, "absent", dry=True)
    assert dry[0].startswith("Would stop small (instance default): 1 rank, on a.") and dry[1].startswith(
        "Would be removed"
    )
    assert "weights" not in " ".join(dry)
    own = request.stopped([_rank(0, "a")], "default", "dgx-serving", {}, "unmanaged", dry=False)
    assert "k8s_dgx_weights" not in " ".join(own)


def test_nothing_to_stop_is_said() -> None:
    assert request.stopped([], "default", "dgx-serving", {}, "present", dry=False) == [
        "No instance default is served in namespace dgx-serving: there was nothing to stop."
    ]
