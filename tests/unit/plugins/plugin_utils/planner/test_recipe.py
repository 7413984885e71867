# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recipes of other tools: each form makes a profile, nothing in it is lost, and nothing of it is run."""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import shlex
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import pod
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.recipes import recipe, recipe_flags, recipe_shell
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.vocabulary.arguments import (
    build_argv,
    load_tables,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan
from ansible_collections.dgxspark.cluster.tests.support.properties import examples
from ansible_collections.dgxspark.cluster.tests.unit.kube_inputs import fabric

SPARKRUN = """
recipe_version: "2"
model: acme/Model-8B-FP8
runtime: vllm
container: ghcr.io/acme/vllm-nightly:latest
min_nodes: 2
mods: [mods/fix-template]
pre_exec: ["pip install thing"]
metadata: {description: a model}
defaults:
  port: 8123
  tensor_parallel: 2
  unused: 7
  speculative_config: '{"method": "mtp", "num_speculative_tokens": 2}'
env:
  VLLM_MARLIN_USE_ATOMIC_ADD: 1
  VLLM_NO_SUCH_THING: "1"
  lower_case: "x"
  NCCL_SOCKET_IFNAME: eth7
  HF_TOKEN: hf_secret
command: |
  vllm serve {model} \\
    --host 0.0.0.0 --port {port} \\
    --speculative-config '{speculative_config}' \\
    --distributed-executor-backend ray \\
    --api-key very-secret \\
    --a-new-flag yes \\
    -tp {tensor_parallel}
"""


def became(profile: dict[str, t.Any]) -> dict[str, str]:
    return {line["text"]: line["became"] for line in profile["recipe"]["lines"]}


def findings(profile: dict[str, t.Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for finding in launch_plan(profile)["findings"]:
        found.setdefault(finding["rule"], []).append(finding["message"])
    return found


def test_a_recipe_of_sparkrun_tells_each_of_its_lines() -> None:
    made = recipe.profile_of(SPARKRUN, "my recipe.yaml")
    assert made["model"] == "acme/Model-8B-FP8" and made["id"] == "my-recipe"
    assert made["engine"] == {"name": "vllm", "version": "latest", "image": "ghcr.io/acme/vllm-nightly:latest"}
    assert made["parallel"] == {"nodes": 2, "tp": 2, "pp": 1, "ep": 1}
    assert made["port"] == 8123 and made["mods"] == ["fix-template"]
    assert made["environment"] == {"VLLM_MARLIN_USE_ATOMIC_ADD": "1", "VLLM_NO_SUCH_THING": "1", "lower_case": "x"}
    assert made["settings"]["speculative_config"] == {"method": "mtp", "num_speculative_tokens": 2}
    said = became(made)
    assert said["-tp 2"] == "setting"
    assert said["--port 8123"] == said["--host 0.0.0.0"] == said["env NCCL_SOCKET_IFNAME=eth7"] == "ours"
    assert said["--a-new-flag yes"] == "passed on"
    assert (
        said["mods: mods/fix-template"]
        == said["pre_exec"]
        == said["--api-key …"]
        == said["env HF_TOKEN=…"]
        == "refused"
    )
    assert said["defaults.unused: 7"] == said["metadata"] == "not used"
    assert "secret" not in json.dumps(made).replace("a secret:", "")


def test_the_plan_of_a_recipe_says_what_the_owner_has_to_know() -> None:
    plan = launch_plan(recipe.profile_of(SPARKRUN, "r.yaml"))
    assert plan["verdict"] == "unproven"
    found = findings(recipe.profile_of(SPARKRUN, "r.yaml"))
    assert "ray is left out" in found["arguments.left-out"][0]
    assert [text for text in found["arguments.variable"] if "VLLM_NO_SUCH_THING" in text]
    assert len(found["arguments.variable"]) == 1
    assert any("mods/fix-template" in text for text in found["recipe.refused"])
    assert "newer than all" in found["arguments.table"][0]
    for rank in plan["ranks"]:
        assert "ray" not in rank["argv"] and rank["argv"][rank["argv"].index("--a-new-flag") + 1] == "yes"
        assert rank["env"]["lower_case"] == "x"


def test_a_recipe_of_version_1_has_doubled_braces_and_may_be_for_one_spark() -> None:
    text = """
recipe_version: "1"
name: My model
container: vllm-node
solo_only: true
defaults: {tensor_parallel: 2, tokens: 3, gpu_memory_utilization: 0.7}
command: |
  vllm serve acme/Model --gpu-memory-utilization {gpu_memory_utilization} -tp {tensor_parallel} \\
    --speculative-config '{{"method":"mtp","num_speculative_tokens":{tokens}}}' --max-model-len 128k
"""
    made = recipe.profile_of(text, "x.yml")
    assert made["parallel"]["nodes"] == made["parallel"]["tp"] == 1
    assert made["settings"]["speculative_config"] == {"method": "mtp", "num_speculative_tokens": 3}
    assert made["settings"]["max_model_len"] == 128_000
    assert made["settings"]["gpu_memory_utilization"] == 0.7
    assert launch_plan(made)["verdict"] == "unproven"


def test_a_recipe_without_a_command_is_told_by_its_defaults() -> None:
    text = """
model: acme/Model
model_revision: 0123456789012345678901234567890123456789
runtime: sglang
container: acme/sglang:0.5.12
defaults: {tensor_parallel: 2, gpu_memory_utilization: 0.8, max_model_len: 4096, cuda_graph_bs: [1, 2], revision: "{model_revision}",
  port: 8000, data_parallel: 1, chunked_prefill: 2048, api_key: k}
"""
    made = recipe.profile_of(text, "x.yaml")
    assert made["engine"]["version"] == "0.5.12" and made["revision"] == "0123456789012345678901234567890123456789"
    assert made["settings"] == {
        "mem_fraction_static": 0.8,
        "max_model_len": 4096,
        "cuda_graph_bs": [1, 2],
        "chunked_prefill_size": 2048,
    }
    assert made["parallel"]["nodes"] == 2


def test_an_owner_adds_names_and_variables_of_another_tool(tmp_path: pathlib.Path) -> None:
    text = """
model: acme/Model
runtime: vllm
container: acme/vllm:0.17.1
defaults: {context: 4096}
env: {ACME_NODE: "7", ACME_MODE: fast}
"""
    own = tmp_path / "recipes" / "acme.yml"
    own.parent.mkdir()
    own.write_text(
        "common: {source: [ours], verified: reported}\n"
        "entries:\n- {id: acme, settings: {context: {vllm: max_model_len}}}\n- {id: acme-node, variables: [ACME_NODE]}\n",
        encoding="utf-8",
    )
    made = recipe.profile_of(text, "x.yaml", [str(tmp_path)])
    assert made["settings"] == {"max_model_len": 4096} and made["environment"] == {"ACME_MODE": "fast"}
    assert became(made)["env ACME_NODE=7"] == "ours"
    assert recipe.profile_of(text, "x.yaml")["environment"] == {"ACME_NODE": "7", "ACME_MODE": "fast"}


def test_docker_run_is_unwrapped_and_exported_variables_are_known() -> None:
    text = """#!/bin/bash
set -e
export MODEL=acme/Model NOT_FOR_IT=1
export HF_TOKEN=hf_x
docker pull vllm/vllm-openai:v0.17.1
docker run -d --rm --gpus all -p 8000:8000 --name=x -e VLLM_LOGGING_LEVEL=DEBUG -e HF_TOKEN \\
  vllm/vllm-openai:v0.17.1 ${MODEL} \\
  --max-model-len=4096 -cc.cudagraph_mode=PIECEWISE --default-chat-template-kwargs.enable_thinking false \\
  --no-enable-prefix-caching 2>&1 | tee log
"""
    made = recipe.profile_of(text, "run.sh")
    assert made["model"] == "acme/Model"
    assert made["engine"] == {"name": "vllm", "version": "0.17.1", "image": "vllm/vllm-openai:v0.17.1"}
    assert made["environment"] == {"VLLM_LOGGING_LEVEL": "DEBUG"}
    assert made["settings"] == {
        "max_model_len": 4096,
        "compilation_config": {"cudagraph_mode": "PIECEWISE"},
        "default_chat_template_kwargs": {"enable_thinking": False},
        "enable_prefix_caching": False,
    }
    assert became(made)["docker pull vllm/vllm-openai:v0.17.1"] == "not used"
    argv = launch_plan(made)["ranks"][0]["argv"]
    assert "--no-enable-prefix-caching" in argv


def test_a_compose_service_of_several() -> None:
    text = """
services:
  web: {image: "nginx:1", command: nginx}
  llm:
    image: lmsysorg/sglang:${TAG:-v0.5.12}-cu130
    shm_size: 32g
    environment: ["SGLANG_LOG_MS=1", "A=$$5"]
    command: >
      python3 -m sglang.launch_server --model-path acme/Model
      --tp 1 --trust-remote-code
"""
    made = recipe.profile_of(text, "compose.yaml")
    assert made["engine"]["name"] == "sglang" and made["engine"]["version"] == "0.5.12-cu130"
    assert made["environment"]["A"] == "$5" and made["settings"] == {"trust_remote_code": True}
    assert became(made)["services.web"] == "not used" and became(made)["shm_size"] == "ours"


LAUNCH = """#!/usr/bin/env bash
set -euo pipefail
MODEL="${1:-acme/Model}"
IMAGE=${IMAGE:-${REGISTRY:-docker.io}/vllm/vllm-openai:v0.29.0}
: "${PORT:=8123}"
EXTRA="--max-num-seqs 4 --enforce-eager"
ENVS=(-e VLLM_LOGGING_LEVEL=DEBUG)
if [[ "$MODEL" == /* && -d "$MODEL" ]]; then
  MODEL=/models/x; ENVS+=(-e NEVER=1)
fi
for host in a b; do ssh "$host" true; done
die() { echo "vllm serve exited" >&2; exit 1; }
command -v docker >/dev/null || { echo none; exit 1; }
cat > notes <<'END'
vllm serve other/Model
END
ARGS=(
  --max-model-len 4096  # a comment
  --speculative-config '{"method": "mtp", "num_speculative_tokens": 2}'
)
ARGS+=(--trust-remote-code)
exec docker run -d --gpus all "${ENVS[@]}" ${NONE[@]+"${NONE[@]}"} \\
  "$IMAGE" \\
  bash -c -i "pip install x && vllm serve $MODEL --port $PORT $EXTRA --served-model-name a b" "$@" 2>&1 | tee log
"""


def test_a_launch_script_is_read_as_a_shell_reads_it() -> None:
    made = recipe.profile_of(LAUNCH, "run.sh")
    assert (made["model"], made["port"]) == ("acme/Model", 8123)
    assert made["engine"]["image"] == "docker.io/vllm/vllm-openai:v0.29.0" and made["engine"]["version"] == "0.29.0"
    assert made["environment"] == {"VLLM_LOGGING_LEVEL": "DEBUG"}
    assert made["settings"] == {"max_num_seqs": 4, "enforce_eager": True, "served_model_name": ["a", "b"]}
    said = became(made)
    assert said["MODEL=…"] == said["ENVS=…"] == said["pip install x"] == said["ssh ${host} true"] == "refused"
    direct = LAUNCH.replace("bash -c -i", 'vllm serve "$MODEL" "${ARGS[@]}" #')
    assert recipe.profile_of(direct, "run.sh")["settings"] == {
        "max_model_len": 4096,
        "speculative_config": {"method": "mtp", "num_speculative_tokens": 2},
        "trust_remote_code": True,
    }


@pytest.mark.parametrize(
    "around",
    [
        "{}",
        "uv run {}",
        "CUDA_VISIBLE_DEVICES=0 timeout 60 numactl -N 0 {}",
        "sudo -E {}",
        "ssh spark2 'cd x && {}'",
        'tmux new-session -d -s serve "{}"',
        "docker exec -it node bash -lc '{}'",
        "docker run --rm -it image bash -c -i '{}'",
        "docker run --entrypoint bash image -c 'x && {}'",
        "docker compose -f x.yml run --rm --service-ports -e A=b llm {}",
        "podman run --ipc=host image {}",
        "./launch-cluster.sh -n a,b --eth-if x exec {}",
        "if true; then\n  {}\nfi",
        "main() {{\n  {}\n}}\nmain",
        "( {} ) &",
        "{} --node-rank 0\n{} --node-rank 1",
        "{} --nnodes 2\nssh worker {} --nnodes 2 --node-rank 1 --headless",
    ],
)
@pytest.mark.parametrize(
    "command",
    ["vllm serve a/b", "/opt/bin/python3.12 -u -m vllm.entrypoints.openai.api_server --model a/b", "sglang serve --model-path a/b",
     "python3 -m sglang.launch_server --model-path=a/b"],
)  # fmt: skip
def test_what_stands_around_a_command_is_taken_off(around: str, command: str) -> None:
    made = recipe.profile_of(around.replace("{}", f"{command} --max-running-requests 3"), "x.sh")
    assert made["model"] == "a/b" and made["settings"] == {"max_running_requests": 3}
    assert made["engine"]["name"] == ("sglang" if "sglang" in command else "vllm")


def test_the_launcher_of_spark_vllm_docker_says_image_mods_and_variables() -> None:
    made = recipe.profile_of(
        "./launch-cluster.sh -t vllm-node-tf5 --apply-mod mods/fix-x --solo -e VLLM_A=1 exec vllm serve a/b -tp 2",
        "x.sh",
    )
    assert (made["engine"]["image"], made["mods"], made["environment"]) == ("vllm-node-tf5", ["fix-x"], {"VLLM_A": "1"})
    said = became(made)
    assert (said["mods: mods/fix-x"], said["--solo"]) == ("refused", "ours")
    assert recipe.profile_of("launch-cluster.sh exec vllm serve a/b", "x.sh")["engine"]["image"] == "vllm-node"


MOUNTED = [
    ("~/gemma4_patched.py:/usr/local/lib/python3.12/dist-packages/vllm/model_executor/models/gemma4.py:ro", "gemma4_patched.py replaces"),
    ("./fix.py:/sgl-workspace/sglang/python/sglang/srt/server_args.py", "fix.py replaces"),
    ("./chat.jinja:/templates/chat.jinja", "the pod does not get"),
    ("~/.cache/huggingface:/root/.cache/huggingface", ""),
    ("/mnt/models:/models", ""),
]  # fmt: skip


@pytest.mark.parametrize(("mount", "why"), MOUNTED)
def test_a_patch_or_a_file_that_a_recipe_mounts_is_named_as_left_out(mount: str, why: str) -> None:
    outside, inside = mount.split(":")[:2]
    service = {"image": "vllm/vllm-openai:v0.29.0", "command": "a/b"}
    long = {"services": {"llm": service | {"volumes": [{"type": "bind", "source": outside, "target": inside}]}}}
    for name, text in (
        ("x.sh", f"docker run -v {mount} vllm/vllm-openai:v0.29.0 a/b"),
        ("x.sh", f"docker run --mount type=bind,source={outside},target={inside} vllm/vllm-openai:v0.29.0 a/b"),
        ("x.sh", f"./launch-cluster.sh -v {mount} exec vllm serve a/b"),
        ("x.yml", json.dumps({"services": {"llm": service | {"volumes": [mount]}}})),
        ("x.yml", json.dumps(long)),
    ):
        made = recipe.profile_of(text, name)
        told = [line for line in made["recipe"]["lines"] if line["became"] == "refused"]
        assert [why in line["why"] for line in told] == ([True] if why else [])
        assert ("recipe.refused" in findings(made)) == bool(why)


def test_the_revision_that_a_recipe_asks_for_is_taken_and_said() -> None:
    text = 'recipe_version: "2"\nmodel: a/b\nruntime: vllm\nmodel_revision: {}\ncommand: vllm serve {{model}}\n'
    for revision, made in ((each, recipe.profile_of(text.format(each), "x.yaml")) for each in ("a" * 40, "v2")):
        assert became(made)[f"model_revision: {revision}"] == "setting"
        assert made.get("revision") or made["settings"]["revision"] == revision


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve /cache/hub/models--acme--Model-8B/snapshots/" + "a" * 40 + " --tensor-parallel-size 1",
        "docker run -v ~/.cache/huggingface/hub/models--acme--Model-8B/snapshots/" + "a" * 40 + ":/model:ro vllm/vllm-openai:v0.29.0 /model",
        "hf download acme/Model-8B --local-dir ~/m/x\ndocker run -v ~/m:/models vllm/vllm-openai:v0.29.0 --model /models/x",
    ],
)  # fmt: skip
def test_a_folder_whose_model_the_recipe_says_is_that_model(text: str) -> None:
    made = recipe.profile_of(text, "x.sh")
    assert made["model"] == "acme/Model-8B" and made.get("revision", "a" * 40) == "a" * 40
    told = [line for line in made["recipe"]["lines"] if "a folder for acme/Model-8B" in line["why"]]
    assert [line["became"] for line in told] == ["ours"]
    sparkrun = "model: acme/Model-8B\ncontainer: vllm/vllm-openai:v0.29.0\ncommand: vllm serve /models/x\n"
    assert recipe.profile_of(sparkrun, "x.yaml")["model"] == "acme/Model-8B"


SPECULATES = '{"method": "eagle3", "model": "/d/y", "num_speculative_tokens": 2}'


@pytest.mark.parametrize(
    ("name", "text", "values"),
    [
        (
            "x.sh",
            'IMG=$1\nMODEL=$(cat m)\nexport TP=${TP:-4} VLLM_X=1\nPORT=1\nARGS=(x)\ndocker run -e VLLM_X -e LOGS "$IMG" '
            f"vllm serve $MODEL -tp $TP --port $PORT --speculative-config '{SPECULATES}' $ARGS",
            {"IMG": "vllm/vllm-openai:v0.29.0", "MODEL": "/m", "/m": "acme/Model-8B", "ARGS": "--enforce-eager"},
        ),
        (
            "compose.yaml",
            "services: {one: {image: 'vllm/vllm-openai:${TAG}', environment: [LOGS, VLLM_X=1], "
            f"command: [vllm, serve, '$DIR/m/', -tp, '${{TP:-4}}', --port, $PORT, --enforce-eager, --speculative-config, '{SPECULATES}']}}}}",
            {"TAG": "v0.29.0", "DIR": "/models", "/models/m/": "acme/Model-8B"},
        ),
        (
            "recipe.yaml",
            "model: /m\ncontainer: vllm/vllm-openai:v0.29.0\ndefaults: {TP: 4, PORT: 8000}\nenv: {VLLM_X: 1, LOGS: '{LOGS}'}\n"
            "command: >-\n  vllm serve {model} -tp {TP} --port {PORT} --enforce-eager "
            f"--speculative-config '{SPECULATES.replace('{', '{{').replace('}', '}}')}'",
            {"/m": "acme/Model-8B"},
        ),
    ],
)  # fmt: skip
def test_what_a_recipe_leaves_open_its_owner_says(name: str, text: str, values: dict[str, t.Any]) -> None:
    values = {"TP": 2, "PORT": 8100, "VLLM_X": "7", "LOGS": 1, "/d/y": "acme/draft", **values}
    made = recipe.profile_of(text, name, values=values)
    assert (made["model"], made["port"], made["engine"]["version"]) == ("acme/Model-8B", 8100, "0.29.0")
    assert made["parallel"]["tp"] == 2 and made["environment"] == {"VLLM_X": "7", "LOGS": "1"}
    assert made["settings"]["speculative_config"]["model"] == "acme/draft" and made["settings"]["enforce_eager"] is True
    assert not [line for line in made["recipe"]["lines"] if line["became"] in ("refused", "passed on")]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"PRT": 1}, "the recipe has no variable PRT"),
        ({"/models/y": "a/b"}, "the recipe reads no model from /models/y. It serves acme/Model-8B"),
        ({"/models/x": "Model-8B"}, "such as org/name, not 'Model-8B'"),
        ({"PORT": True}, "PORT: a text or a number is needed"),
        ({"PORT": []}, "PORT: a text or a number is needed"),
        ({"a b": "x"}, "'a b' is not a variable's name"),
        ({"HF_TOKEN": "hf_x"}, "HF_TOKEN: a secret"),
    ],
)
def test_what_the_owner_says_and_no_recipe_has_is_refused(
    tmp_path: pathlib.Path, values: dict[str, t.Any], said: str
) -> None:
    script = tmp_path / "x.sh"
    script.write_text("vllm serve ${MODEL} --port $PORT # HF_TOKEN", encoding="utf-8")
    with pytest.raises(CollectionError) as caught:
        recipe.read(str(script), values={"MODEL": "/models/x", "/models/x": "acme/Model-8B", **values})
    assert f"recipe {script}: k8s_dgx_recipe_values" in str(caught.value).replace("recipe x.sh", f"recipe {script}")
    assert said in str(caught.value) and "hf_x" not in str(caught.value)


@pytest.mark.parametrize("folder", ["/m", "./m", "m", "Model-8B", "${HOME}/m", "~/m/", "a/b/c"])
def test_the_remedy_for_a_folder_works_whatever_its_name(folder: str) -> None:
    text = f"vllm serve {folder}"
    values = {"HOME": "/home/x"} if "HOME" in folder else {}
    with pytest.raises(CollectionError) as caught:
        recipe.profile_of(text, "x.sh", values=values)
    (key,) = re.findall(r"k8s_dgx_recipe_values \{(.*): org/name\}", str(caught.value))
    assert recipe.profile_of(text, "x.sh", values={**values, key: "acme/Model-8B"})["model"] == "acme/Model-8B"


def test_the_remedy_for_what_is_open_works(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "x.sh"
    script.write_text("vllm serve $MODEL --port $PORT", encoding="utf-8")
    with pytest.raises(CollectionError, match=r"sets \$\{MODEL\}: give it a value, k8s_dgx_recipe_values \{MODEL: …\}"):
        recipe.read(str(script))
    with pytest.raises(CollectionError, match=r"name its model, k8s_dgx_recipe_values \{/m: org/name\}"):
        recipe.read(str(script), values={"MODEL": "/m"})
    made = recipe.read(str(script), values={"MODEL": "/m", "/m": "a/b"})
    (line,) = [line for line in made["recipe"]["lines"] if line["became"] == "refused" and "PORT" in line["text"]]
    assert line["why"] == "nothing in the recipe sets ${PORT}: give it a value, k8s_dgx_recipe_values {PORT: …}."
    assert recipe.read(str(script), values={"MODEL": "/m", "/m": "a/b", "PORT": 8100})["port"] == 8100


def test_one_of_several_is_named_behind_the_file(tmp_path: pathlib.Path) -> None:
    compose = tmp_path / "compose.yml"
    compose.write_text(
        "x-base: &base {image: 'vllm/vllm-openai:v0.29.0', environment: [HF_TOKEN, LOGS]}\n"
        "services:\n  one: {<<: *base, command: [--model, a/one]}\n"
        "  two:\n    extends: one\n    command: >-\n      serve a/two\n      --served-model-name x\n    volumes: ['./x:/y']\n"
        "networks: {n: {}}\n",
        encoding="utf-8",
    )
    with pytest.raises(CollectionError, match=r"compose.yml#one or #two"):
        recipe.read(str(compose))
    made = recipe.read(f"{compose}#two")
    assert made["model"] == "a/two" and made["environment"] == {}
    said = became(made)
    assert (
        said["services.one"] == said["networks"] == "not used"
        and said["env LOGS=${LOGS}"] == said["env HF_TOKEN=…"] == "refused"
    )
    with pytest.raises(CollectionError, match="service three starts none"):
        recipe.read(f"{compose}#three")
    script = tmp_path / "two.sh"
    script.write_text("vllm serve a/one\nvllm serve a/two\n", encoding="utf-8")
    with pytest.raises(CollectionError, match=r"two.sh#1 or #2"):
        recipe.read(str(script))
    assert recipe.read(f"{script}#2")["model"] == "a/two"
    several = tmp_path / "r.yaml"
    several.write_text("model: a/b\nruntime: vllm\ncommand_fast: vllm serve a/b --enforce-eager\n", encoding="utf-8")
    with pytest.raises(CollectionError, match=r"r.yaml#fast"):
        recipe.read(str(several))
    assert recipe.read(f"{several}#fast")["settings"] == {"enforce_eager": True}


@pytest.mark.parametrize("profile", ["gemma-4-31b-it", "qwen3.5-122b-a10b-nvfp4-vllm"])
def test_what_is_proven_as_a_profile_is_proven_as_a_recipe(profile: str) -> None:
    plan = launch_plan(profile)
    rank = plan["ranks"][0]
    variables = [word for name, value in rank["env"].items() for word in ("-e", f"{name}={value}")]
    text = shlex.join(["docker", "run", *variables, plan["engine"]["image"], *rank["argv"]])
    again = launch_plan(recipe.profile_of(text, "x.sh"))
    assert plan["verdict"] == again["verdict"] == "proven"
    assert again["ranks"][0]["argv"] == rank["argv"]


def test_a_method_that_the_checkpoint_replaces_blocks_nothing() -> None:
    made = recipe.profile_of("docker run vllm/vllm-openai:v0.20.0 a/b --quantization fp4", "x.sh")
    plan = launch_plan(made)
    assert plan["verdict"] == "unproven" and "--quantization" in plan["ranks"][0]["argv"]
    assert "A checkpoint that states its own method overrides it" in findings(made)["arguments.choice"][0]
    made = recipe.profile_of("docker run vllm/vllm-openai:v0.20.0 a/b --kv-cache-dtype fp77", "x.sh")
    assert launch_plan(made)["verdict"] == "blocked"


def test_a_variable_of_another_release_is_a_warning_and_is_handed_on() -> None:
    text = "docker run -e VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS={} vllm/vllm-openai:v{} a/b"
    for value in "10":
        plan = launch_plan(recipe.profile_of(text.format(value, "0.17.1"), "x.sh"))
        assert plan["verdict"] == "unproven"
        assert plan["ranks"][0]["env"]["VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"] == value
        assert [f["severity"] for f in plan["findings"] if f["rule"] == "arguments.variable"] == ["warning"]
        assert "estimate_cudagraphs" not in plan["settings"]
    known = launch_plan(recipe.profile_of(text.format(1, "0.20.0"), "x.sh"))
    assert known["settings"]["estimate_cudagraphs"] is True
    assert not [f for f in known["findings"] if f["rule"] == "arguments.variable"]


def test_a_flag_that_a_mod_may_bring_is_passed_on_with_that_reason() -> None:
    text = "model: a/b\ncontainer: acme/vllm:v0.17.1\n{}command: vllm serve a/b --gpu-memory-utilization-gb 112{}\n"
    modded = recipe.profile_of(text.format("mods: [mods/memory-in-gb]\n", ""), "x.yaml")
    plan = launch_plan(modded)
    assert plan["verdict"] == "unproven"
    argv = plan["ranks"][0]["argv"]
    assert argv[argv.index("--gpu-memory-utilization-gb") + 1] == "112"
    assert "memory-in-gb" in findings(modded)["arguments.passed-on"][0]
    line = next(x for x in modded["recipe"]["lines"] if x["became"] == "passed on")
    assert "memory-in-gb" in line["why"]
    assert launch_plan(recipe.profile_of(text.format("", ""), "x.yaml"))["verdict"] == "blocked"
    # A flag of another release, or of the other engine, belongs to no mod.
    mods = "mods: [mods/memory-in-gb]\n"
    for other in (" --mem-fraction-static 0.8", " --attention-backend NOPE"):
        assert launch_plan(recipe.profile_of(text.format(mods, other), "x.yaml"))["verdict"] == "blocked", other


def test_a_recipe_of_nvidia_is_its_serve_command_in_its_image() -> None:
    text = """
schema_version: 3
title: Model on two Sparks
model: acme/model
backend: vllm
checkpoint: {target_label: acme/Model-8B}
topology: {node_count: 2}
runtime:
  image: acme/vllm:latest
  setup_command: |
    export ETH_IF="<connectx-interface>"
    docker run --rm -it --network host -e NCCL_SOCKET_IFNAME="$ETH_IF" -e VLLM_A=1 -e HF_TOKEN=$HF_TOKEN --entrypoint /bin/bash "$IMAGE"
serve:
  port: 8000
  command: |
    export VLLM_B="1" # why
    vllm serve acme/Model-8B --tensor-parallel-size 2 --kv-cache-dtype fp8 --nnodes 2 --node-rank 0 --master-addr "$HEAD_IP"
  additional_commands: [{command: vllm serve acme/Model-8B --headless}]
"""
    made = recipe.profile_of(text, "recipe.yaml")
    assert made["engine"]["image"] == "acme/vllm:latest" and made["parallel"]["nodes"] == 2
    assert made["environment"] == {"VLLM_A": "1", "VLLM_B": "1"} and made["settings"] == {"kv_cache_dtype": "fp8"}
    said = became(made)
    assert said["serve.additional_commands"] == said["topology"] == said["--node-rank 0"] == "ours"
    assert said["schema_version"] == "not used" and said["env HF_TOKEN=…"] == "refused"


BARE = st.text("abcxyz019_./", min_size=1, max_size=7).filter(lambda x: not x.startswith(("-", ".", "/")))


@given(
    st.lists(st.tuples(BARE.map(lambda x: f"--{x.replace('/', '').replace('.', '') or 'x'}"), st.lists(BARE, max_size=2)), max_size=6),
    st.dictionaries(st.from_regex(r"\A[a-zA-Z_][a-zA-Z0-9_]{0,8}\Z"), BARE, max_size=3),
    st.dictionaries(st.from_regex(r"\A[a-z]{1,6}\Z"), BARE, max_size=3),
    st.dictionaries(st.from_regex(r"\A[a-z]{1,6}_[a-z]{1,6}\Z"), BARE, max_size=3),
    st.sampled_from(["vllm", "sglang"]),
)  # fmt: skip
@settings(max_examples=examples(150), deadline=None)
def test_no_word_of_a_recipe_is_lost(
    flags: list[tuple[str, list[str]]],
    variables: dict[str, str],
    defaults: dict[str, str],
    keys: dict[str, str],
    engine: str,
) -> None:
    """Each word is a setting, ours, passed on or refused with its reason; nothing is dropped silently."""
    words = [word for flag, values in flags for word in (flag, *values)]
    document = {**keys, "model": "a/b", "runtime": engine, "env": variables, "defaults": defaults, "command": shlex.join(
        [engine, "serve", *(["--model-path"] if engine == "sglang" else []), "a/b", *words])}  # fmt: skip
    try:
        made = recipe.profile_of(json.dumps(document), "x.yaml")
    except CollectionError as exc:
        assert str(exc).startswith("recipe x.yaml: ")
        return
    told = " \n".join(line["text"] for line in made["recipe"]["lines"])
    secret = [line for line in made["recipe"]["lines"] if "a secret" in line["why"]]
    for name in (*words, *variables, *defaults, *keys):
        assert name in told.replace("=", " ").replace("\n", " ").replace(":", " ").split() or name in told or secret, (
            name,
            told,
        )
    assert all(line["why"] for line in made["recipe"]["lines"]), made["recipe"]["lines"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.sh", "vllm serve $(cat model)", "nothing in the recipe sets ${what a command prints}"),
        ("a.sh", "vllm serve `cat model", "a backquote is not closed"),
        ("a.sh", "if true; then vllm serve a/b", "if is not closed"),
        ("a.sh", "if true; then M=a/b; fi; vllm serve $M", "nothing in the recipe sets ${M}"),
        ("a.sh", "vllm serve a/b || true)", "a parenthesis that nothing opens"),
        ("a.sh", "cat <<EOF\nvllm serve a/b", "a here-document without its end, EOF"),
        ("a.sh", "vllm serve $MODEL", "nothing in the recipe sets ${MODEL}"),
        ("a.sh", "vllm serve /models/x", "is not a model's name on the hub"),
        ("a.sh", "echo hello", "no command that starts an engine"),
        ("a.sh", "vllm serve a/b\nvllm serve c/d", "2 commands that start an engine. Leave one"),
        ("a.sh", "llama-server -hf a/b", "llama.cpp: only vLLM and SGLang can be served"),
        ("a.sh", "vllm serve 'a/b", "a single quote is not closed"),
        ("a.yaml", "model: a/b\nruntime: atlas\n", "atlas: only vLLM and SGLang"),
        ("a.yaml", "model: a/b:Q4_K_M\nruntime: vllm\n", "file for llama.cpp"),
        ("a.yaml", "model: !!python/object/apply:os.system [id]\n", "not valid YAML"),
        (
            "a.yaml",
            "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40)),
            "expand to more",
        ),
        (
            "a.yaml",
            "a0: &a0 {k: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 40)),
            "expand to",
        ),
        ("a.yaml", "model: &a [*a]\n", "expand to more"),
        ("a.yaml", "[" * 2000, "not valid YAML"),
        ("a.yaml", "key: value\n", "neither model nor command"),
        ("a.yaml", "services: {web: {image: nginx}}", "vLLM and SGLang are known"),
        ("a.yaml", "model: a/b\nruntime: vllm\ndefaults: [1]\n", "defaults: a mapping is needed"),
        ("a.yaml", "model: a/b\nruntime: vllm\nmin_nodes: two\n", "min_nodes: 'two'"),
        ("a.yaml", "model: a/b\n", "which engine it is for"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_reason(name: str, text: str, said: str) -> None:
    with pytest.raises(CollectionError, match=r"^recipe ") as caught:
        recipe.profile_of(text, name)
    assert said in str(caught.value)


def _file(path: pathlib.Path, data: bytes) -> pathlib.Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("code", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_file_that_begins_with_a_mark_is_read_as_it_says(tmp_path: pathlib.Path, code: str) -> None:
    """As Windows' programs write text."""
    made = recipe.read(str(_file(tmp_path / "a.sh", "vllm serve acme/Model-8B --port 8123\r\n".encode(code))))
    assert made["model"] == "acme/Model-8B"


POST = """Hey all, I don't know why, but this works on my two Sparks:

```bash
docker run --gpus all nvcr.io/nvidia/vllm:25.11-py3 \\
  vllm serve acme/Model-8B --max-model-len 65536
```
Gives about 40 t/s. Isn't that nice?
"""
SERVICE = (
    "services:\n  a: {image: 'vllm/vllm-openai:v0.17.1', command: '--model acme/Model-8B --max-model-len 65536'}\n"
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("post.txt", POST),
        ("post.md", POST.replace("```bash", "  ```")),
        ("compose.txt", SERVICE),
        ("post.sh", f"Mine:\n```yaml\n{SERVICE}```\n"),
    ],
)
def test_a_recipe_is_taken_out_of_the_text_of_a_forum_whatever_its_file_is_called(name: str, text: str) -> None:
    made = recipe.profile_of(text, name)
    assert (made["model"], made["settings"]["max_model_len"]) == ("acme/Model-8B", 65536)
    around = [how for line, how in became(made).items() if "```" in line]
    assert around == (["not used"] if "```" in text else []), "every line of a recipe is accounted for"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "a.yml",
            "model: acme/Mine-8B\nruntime: vllm\ndescription: |\n  Try\n  ```\n  vllm serve acme/Other-8B\n  ```\ncommand: vllm serve acme/Mine-8B\n",
        ),
        ("a.sh", "vllm serve acme/Mine-8B --port 1234\ncat <<'EOF'\n```\nvllm serve acme/Other-8B\n```\nEOF\n"),
    ],
)
def test_a_block_in_a_recipe_that_is_whole_is_part_of_its_text(name: str, text: str) -> None:
    made = recipe.profile_of(text, name)
    assert made["model"] == "acme/Mine-8B" and "(what surrounds the blocks between ```)" not in became(made)


BLOCK = "```\nvllm serve acme/Other-8B\n```\n"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "a.yml",
            "model: acme/Mine-8B\nruntime: vllm\nmin_nodes: two\ndescription: |\n  ```\n  vllm serve a/b\n  ```\n",
            "min_nodes",
        ),
        ("a.sh", f"vllm serve acme/Mine-8B --port 'open\n{BLOCK}", "quote is not closed"),
    ],
)
def test_a_recipe_with_a_fault_tells_the_fault_and_takes_no_block_for_it(name: str, text: str, said: str) -> None:
    with pytest.raises(CollectionError, match=said):
        recipe.profile_of(text, name)


def test_a_script_that_writes_yaml_is_a_script() -> None:
    text = f"cat > compose.yml <<EOF\n{SERVICE}EOF\nvllm serve acme/Other-8B --port 1234\n"
    assert recipe.profile_of(text, "a.sh")["model"] == "acme/Other-8B"


def test_dashes_and_quotes_of_a_word_processor_are_said_to_be_so() -> None:
    made = recipe.profile_of("vllm serve acme/Model-8B \u2014max-model-len 65536 \u201c--port 8000\u201d", "a.sh")
    said = {line["text"]: line["why"] for line in made["recipe"]["lines"]}
    assert "Type them anew" in said["\u2014max-model-len"] and "Type them anew" in said["\u201c--port"]
    assert "positional" in said["65536"]


def test_a_fault_of_yaml_is_told_once_with_its_line() -> None:
    with pytest.raises(CollectionError) as told:
        recipe.profile_of("services:\n  a: {image: 'x'\n", "a.yml")
    assert str(told.value).count("a.yml") == 1 and "at line 2" in str(told.value) and "<unicode" not in str(told.value)


def test_a_file_is_bounded_and_no_other_is_opened(tmp_path: pathlib.Path) -> None:
    large = tmp_path / "large.sh"
    large.write_text("vllm serve a/b " + "x" * 300_000, encoding="utf-8")
    for path, said in (
        (large, "larger than 256 KiB"),
        (tmp_path / "none.yaml", "no such file"),
        (tmp_path, "it is a folder"),
        (f"vllm serve acme/model --port {'8' * 300}", "a command line, not a file"),
        (tmp_path / ("x" * 300), "cannot be read: File name too long"),
        (_file(tmp_path / "empty.sh", b" \n"), "it is empty. Name"),
        (_file(tmp_path / "latin.sh", b"vllm serve a/b # caf\xe9\n"), "it is not UTF-8 text"),
    ):
        with pytest.raises(CollectionError, match=re.escape(said)):
            recipe.read(str(path))
    outside = tmp_path / "outside"
    outside.write_text("SECRET=1\n", encoding="utf-8")
    inner = tmp_path / "inner.sh"
    inner.write_text(
        f"docker run --env-file {outside} vllm/vllm-openai:v0.17.1 a/b --chat-template ../outside; touch {tmp_path}/ran",
        "utf-8",
    )
    made = recipe.read(str(inner))
    assert "SECRET" not in json.dumps(made) and not (tmp_path / "ran").exists()
    assert became(made)[f"--env-file {outside}"] == "refused"


def test_a_model_that_a_profile_knows_has_its_memory_planned() -> None:
    made = recipe.profile_of(
        "vllm serve Qwen/Qwen3.6-27B-FP8 --gpu-memory-utilization 0.8 --max-model-len 32768", "a.txt"
    )
    assert launch_plan(made)["memory"]["weights_gib"] > 20


@given(st.text(alphabet=st.sampled_from("ab $'\"\\\n{}#;|&<>()`=-~é"), max_size=40))
@settings(max_examples=examples(300), deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(CollectionError):
        recipe.profile_of(text, "a.sh")


WORD = st.text(alphabet=st.characters(exclude_characters="$\x00\r", exclude_categories=["Cs"]), max_size=12)


@given(st.lists(WORD, min_size=1, max_size=6))
@settings(max_examples=examples(300), deadline=None)
def test_words_that_are_quoted_come_back_as_they_were(words: list[str]) -> None:
    (command,) = recipe_shell.commands("program " + shlex.join(words))
    assert list(command.words) == ["program", *words]


TABLES = load_tables()
# What the plan passes to each rank itself, or one id passes together with another flag.
_NOT_ALONE = {"model-path", "model", "json-model-override-args", "config"}


def _flags(engine: str, version: str) -> st.SearchStrategy[dict[str, t.Any]]:
    parser = TABLES.parsers[f"{engine}-{version}"]
    values = {
        "switch": st.just(True),
        "toggle": st.booleans(),
        "int": st.integers(1, 2**31),
        "float": st.floats(0.01, 0.99),
        "str": st.text(alphabet="abc/._-{}\"' é", min_size=1, max_size=8).filter(
            lambda x: not x.startswith("-") and x.strip()
        ),
        "json": st.dictionaries(
            st.text("ab", min_size=1, max_size=3),
            st.integers(-(2**63), 2**63) | st.booleans() | st.text("xy ", max_size=4),
            min_size=1,
            max_size=3,
        ),
    }
    names = sorted(
        name
        for name, spec in parser.table["flags"].items()
        if name not in _NOT_ALONE and "deprecated" not in spec and "known" not in spec and not spec.get("required")
    )

    def value(name: str) -> st.SearchStrategy[t.Any]:
        spec = parser.table["flags"][name]
        one = (
            st.sampled_from([c for c in spec["choices"] if c is not None])
            if "choices" in spec
            else values[spec["type"]]
        )
        if spec["type"] == "json" and (spec.get("many") or spec.get("repeat")):
            return st.lists(one, min_size=1, max_size=1)
        return st.lists(one, min_size=1, max_size=3) if spec.get("many") or spec.get("repeat") else one

    return st.lists(st.sampled_from(names), unique=True, min_size=1, max_size=8).flatmap(
        lambda chosen: st.fixed_dictionaries({name: value(name) for name in chosen})
    )


def _same_words(engine: str, flags: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return flags with the first of the engine's synonyms for a value (nsa is dsa)."""
    ways = [way for entry in TABLES.settings.values() for way in entry.get(engine, ())]
    parts = [part for way in ways for part in (way if isinstance(way, list) else [way])]
    words = {part["flag"]: part["synonyms"] for part in parts if "flag" in part and "synonyms" in part}
    return {k: words.get(k, {}).get(v, [v])[0] if isinstance(v, str) else v for k, v in flags.items()}


@pytest.mark.parametrize(
    ("engine", "version"), [("vllm", "0.33.0"), ("vllm", "0.17.1"), ("sglang", "0.5.12"), ("sglang", "0.5.23")]
)
@given(data=st.data())
@settings(max_examples=examples(60), deadline=None)
def test_a_command_line_becomes_settings_and_the_same_command_line_again(
    data: st.DataObject, engine: str, version: str
) -> None:
    """Command line → settings → argv → settings: no flag and no value is lost on the way."""
    parser = TABLES.parsers[f"{engine}-{version}"]
    wanted = data.draw(_flags(engine, version))
    words: list[str] = []
    for name, value in wanted.items():
        spec = parser.table["flags"][name]
        words += recipe_flags.flag_table.written(name, spec, value)
    (command,) = recipe_shell.commands("program " + shlex.join(words))
    alone, first = recipe_flags.read_flags(command.words[1:], parser)
    assert alone == []
    read = {one.name: one.value for one in recipe_flags.merged(first, parser).values()}
    assert read == wanted
    model = {"model": "a/b"}
    try:
        argv = build_argv(
            engine, version, model | {name.replace("-", "_"): value for name, value in read.items()}, TABLES
        ).argv
    except CollectionError:
        return  # other tests cover what the version refuses, and two names of one setting
    positional, again = recipe_flags.read_flags(argv, parser)
    assert positional == (["a/b"] if engine == "vllm" else [])
    back = {one.name: one.value for one in recipe_flags.merged(again, parser).values() if one.name != "model-path"}
    kept = _same_words(engine, {k: v for k, v in wanted.items() if k in back})
    assert _same_words(engine, {k: v for k, v in back.items() if k in wanted}) == kept
    missing = {name for name in wanted if name not in back and wanted[name] not in (False, {}, [])}
    assert not {
        name
        for name in missing
        if name.replace("-", "_") not in TABLES.names
        and parser.primary(name) not in TABLES.dialect(engine, version).flags
    }


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_only_what_the_plan_sets_for_each_rank_is_called_ours(engine: str) -> None:
    every = sorted({name for each in knowledge.load("recipes").values() for name in each.get("variables", ())})
    text = f"runtime: {engine}\ncontainer: acme/{engine}:latest\nmodel: own/model\nenv:\n"
    made = recipe.profile_of(text + "".join(f"  {name}: a\n" for name in every), "x.yaml")
    said = {line["text"]: line for line in made["recipe"]["lines"]}
    ours = {name for name in every if said[f"env {name}=a"]["became"] == "ours"}
    cluster = {"hosts": ["spark1", "spark2"], "fabric": fabric(2)}
    for rank in launch_plan(made, cluster, {"parallel": {"nodes": 2, "tp": 2}})["ranks"]:
        assert ours == set(every) & ({*rank["env"]} | {*pod.CACHES})
    assert all(said[f"env {name}=a"]["why"] for name in every)
    assert not made["environment"]


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("ghcr.io/acme/dspark-vllm-gx10:0.1.1", "unknown"),  # the image's own number
        ("acme/vllm:25.09.1", "unknown"),
        ("nvcr.io/nvidia/vllm:26.01-py3", "unknown"),
        ("nvcr.io/nvidia/sglang:spark-25.10", "unknown"),
        ("acme/vllm:0.17", "0.17"),
        ("acme/vllm:cu12.9-nightly", "cu12.9-nightly"),
        ("acme/sglang:v1.2.0-cu130", "unknown"),
        ("acme/vllm:v0.17.1-cu130", "0.17.1-cu130"),
        ("acme/vllm:0.99.0", "0.99.0"),  # a release that may have come since
        ("vllm/vllm-openai:v0.10.1", "0.10.1"),  # the engine's own images have its releases
        ("lmsysorg/sglang:v0.4.9", "0.4.9"),
    ],
)
def test_a_number_that_the_engine_never_had_is_the_image_s_own(image: str, version: str) -> None:
    made = recipe.profile_of(f"container: {image}\nmodel: own/model\n", "x.yaml")
    assert made["engine"]["version"] == version
    (line,) = [line for line in made["recipe"]["lines"] if line["text"] == f"image {image}"]
    assert ("image's own number" in line["why"] and "k8s_dgx_inspect_image" in line["why"]) == (version == "unknown")


@pytest.mark.parametrize(
    ("line", "engine"),
    [
        (
            "docker run -it --gpus all nvcr.io/nvidia/tensorrt-llm/release:1.2.0 trtllm-serve org/m --port 8355",
            "TensorRT-LLM",
        ),
        ("docker run -d --gpus all -p 11434:11434 ollama/ollama", "Ollama"),
        ("docker run --gpus all -p 8000:8000 nvcr.io/nim/meta/llama-3.1-8b-instruct:latest", "NIM"),
        ("docker run --gpus all ghcr.io/ggml-org/llama.cpp:server-cuda -m /models/m.gguf -ngl 99", "llama.cpp"),
        ("docker run --gpus all ghcr.io/huggingface/text-generation-inference:3 --model-id org/m", "TGI"),
        ("text-generation-launcher --model-id org/m", "TGI"),
        ("sudo llama-cli -m m.gguf", "llama.cpp"),
        ("lmdeploy serve api_server org/m", "LMDeploy"),
        ("services: {llm: {image: 'ollama/ollama:latest', ports: ['11434:11434']}}", "Ollama"),
    ],
)
def test_another_engines_command_is_named_as_such(line: str, engine: str) -> None:
    """In a container too: that it starts nothing known is no answer to one who starts it every day."""
    with pytest.raises(CollectionError, match=f"{re.escape(engine)}: only vLLM and SGLang can be served here"):
        recipe.profile_of(line, "x.yml" if line.startswith("services") else "x.sh")


RAY = """
docker exec vllm bash -c "ray start --head --port 6379"
docker exec vllm bash -c "ray start --address=192.168.100.10:6379"
docker exec vllm ray status
docker exec vllm vllm serve org/m --tensor-parallel-size 2
"""


def test_a_ray_cluster_is_told_once_and_as_what_the_plan_does_itself() -> None:
    made = recipe.profile_of(RAY, "two.sh")
    ray = [line for line in made["recipe"]["lines"] if "ray s" in line["text"]]
    assert [line["became"] for line in ray] == ["ours"] * 3
    assert all("starts each rank itself" in line["why"] for line in ray)


def test_a_service_of_a_compose_file_is_called_by_its_model() -> None:
    """A service's name, most often the engine's, says nothing: the plan was headed "vllm"."""
    text = "services: {vllm: {image: 'vllm/vllm-openai:v0.12.0', command: '--model org/m --max-model-len 4096'}}"
    assert recipe.profile_of(text, "compose.yml")["title"] == "org/m"


@pytest.mark.parametrize("model", ["openai/gpt-oss-120b", "nvidia/Qwen3.6-35B-A3B-NVFP4"])
def test_a_format_that_the_checkpoint_does_not_have_is_no_warning(model: str) -> None:
    """An SGLang build without a release may choose any quantization, but not that of another checkpoint."""
    text = (
        f"docker run --gpus all lmsysorg/sglang:spark python3 -m sglang.launch_server --model-path {model} --port 30000"
    )
    assert "settings.moe-wna16" not in findings(recipe.profile_of(text, "run.sh"))
