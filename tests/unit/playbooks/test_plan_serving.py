"""plan.yml with a model, as it is run: four nodes in the inventory, some of which come with what roce_info would have read."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.weights import cache
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import find_profile
from ansible_collections.dgxspark.cluster.tests.support.http_answers import Answering, served
from ansible_collections.dgxspark.cluster.tests.support.inventories import Inventory, shown
from ansible_collections.dgxspark.cluster.tests.support.playbooks import collections_path
from ansible_collections.dgxspark.cluster.tests.unit.owner import NO_ANSIBLE, PROGRAM, ROOT, can_run

MODEL = "nemotron-3-ultra-550b-nvfp4"
POD = {"index": 0, "pci": "0000:01:01.0", "netdev": {"name": "enp1s0f0v0"}, "place": {"state": "pod", "pids": 2}}

pytestmark = pytest.mark.skipif(not can_run(), reason=NO_ANSIBLE)


def plan(folder: pathlib.Path, nodes: dict[str, dict[str, t.Any]], **extra: t.Any) -> tuple[int, str]:
    """Run plan.yml; a host that is not in `nodes` does not answer: ssh is a program that fails."""
    folder.mkdir(exist_ok=True)
    ssh = folder / "ssh"
    ssh.write_text("#!/bin/sh\nexit 255\n", encoding="utf-8")
    ssh.chmod(0o755)
    inventory = Inventory()
    for host, facts in nodes.items():
        inventory.hosts[host]["dgxspark_roce"] = facts
    named = {} if "k8s_dgx_recipe" in extra else {"k8s_dgx_model_profile": MODEL}
    given = {"ansible_ssh_executable": str(ssh), **named, **extra}
    done = subprocess.run(
        [
            PROGRAM,
            ROOT / "playbooks" / "plan.yml",
            "-i",
            inventory.write(folder / "inventory"),
            "-e",
            json.dumps(given),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": collections_path(), "ANSIBLE_NOCOLOR": "1"},
    )
    output = done.stdout + done.stderr
    assert "Traceback" not in output
    serving = output[output.find("PLAY [Show the serving plan]") :]
    return done.returncode, " ".join(serving.split())


@pytest.mark.more
def test_the_poorest_of_the_nodes_that_answered_counts(tmp_path: pathlib.Path) -> None:
    nodes = {f"spark{number}": shown(110 + number) for number in (1, 2, 4)} | {"spark3": shown(104.5)}
    code, output = plan(tmp_path, nodes)
    assert code == 0, output
    assert "of 104.5 GiB free per node" in output
    assert "assumed" not in output
    assert "verdict PROVEN" in output


@pytest.mark.more
@pytest.mark.older_core
def test_nodes_that_are_down_are_named_and_count_with_the_default(tmp_path: pathlib.Path) -> None:
    code, output = plan(tmp_path, {"spark1": shown(110)})
    assert code == 0, output
    assert "of 101 GiB free per node (assumed: not measured)" in output
    assert "spark2, spark3, spark4 did not answer: the default for an unmeasured Spark is used there" in output


@pytest.mark.more
def test_while_a_model_runs_its_rest_is_not_believed(tmp_path: pathlib.Path) -> None:
    nodes = {f"spark{number}": shown(9.0, "7.0.0-1019-nvidia", POD) for number in (1, 2, 3, 4)}
    for facts in nodes.values():
        facts["functions"] = [{**function, "numvfs": 4} for function in facts["functions"]]
    code, output = plan(tmp_path, nodes)
    assert code == 0, output
    assert "of 101 GiB free per node" in output
    assert "spark2 is serving something: enp1s0f0v0 (2 processes)" in output
    assert "spark1, spark2, spark3, spark4: Kernel 7.0.0-1019" in output


@pytest.mark.more
def test_a_full_node_ends_the_run(tmp_path: pathlib.Path) -> None:
    nodes = {f"spark{number}": shown(110) for number in (1, 2, 3)} | {"spark4": shown(52)}
    code, output = plan(tmp_path, nodes)
    assert code != 0
    assert "spark4 has 52.0 GiB free" in output
    assert "blocked" in output
    assert plan(tmp_path / "again", nodes, k8s_dgx_free_gib={"spark4": 110})[0] == 0


def bare_profile() -> dict[str, t.Any]:
    """A profile that states nothing of its model's make-up."""
    shipped = find_profile("glm-4.7-nvfp4")
    own = {key: value for key, value in shipped.items() if key not in ("origin", "facts", "variants", "shapes")}
    return own | {
        "id": "mine",
        "precision": {},
        "settings": {**own["settings"], "fp4_gemm_backend": "flashinfer_cutlass"},
    }


def model_files() -> dict[str, bytes]:
    held = json.loads((ROOT / "tests" / "oracle" / "models" / "glm4_moe.json").read_text(encoding="utf-8"))
    quant = {"quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head", "*self_attn*"]}}
    files = {"config.json": held["config.json"], "hf_quant_config.json": quant}
    return {name: json.dumps(content).encode() for name, content in files.items()}


@pytest.mark.more
def test_facts_of_the_model_s_own_config_named_where_the_playbook_is_called(tmp_path: pathlib.Path) -> None:
    (tmp_path / "model").mkdir()
    for name, content in model_files().items():
        (tmp_path / "model" / name).write_bytes(content)
    nodes = {f"spark{number}": shown(110) for number in (1, 2, 3, 4)}
    code, output = plan(tmp_path / "without", nodes, k8s_dgx_model_profile=bare_profile(), k8s_dgx_model_config="")
    assert code == 0, output
    assert "the model is not known, and not every rule could be judged" in output
    code, output = plan(tmp_path, nodes, k8s_dgx_model_profile=bare_profile(), k8s_dgx_model_config="model")
    assert code == 0, output
    assert "not every rule could be judged" not in output
    assert "of 110 GiB free per node" in output


@pytest.mark.more
@pytest.mark.parametrize("where", ["auto", pytest.param("weights", marks=pytest.mark.long)])
def test_facts_of_the_weights_that_a_spark_has(tmp_path: pathlib.Path, where: str) -> None:
    root, repo = tmp_path / "cache", bare_profile()["model"]
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in model_files().items()}
    made = cache.Manifest(
        repo, "a" * 40, tuple(cache.File(name, hashes[name], len(content), hashes[name]) for name, content in model_files().items())
    )  # fmt: skip
    goal = cache.parcel(str(root), made)
    for path, text in goal.texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    for name, content in model_files().items():
        blob = root / cache.HUB / cache.folder(repo) / "blobs" / hashes[name]
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(content)
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
    nodes = {f"spark{number}": shown(110) for number in (1, 2, 3, 4)}
    given: dict[str, t.Any] = {
        "k8s_dgx_model_profile": bare_profile(), "k8s_dgx_model_config": where, "k8s_dgx_serving": {"cache_dir": str(root)},
    }  # fmt: skip
    code, output = plan(tmp_path / "run", nodes, **local, **given)
    assert code == 0, output
    assert "not every rule could be judged" not in output
    assert "weights derived from the model's facts" in output
    assert "come from the weights on the nodes" in output or where == "weights"


RECIPES = {
    "recipe.yaml": (
        "recipe_version: '2'\nmodel: acme/Model\nruntime: vllm\ncontainer: ghcr.io/acme/vllm:latest\nmods: [mods/fix]\n"
        "defaults: {tensor_parallel: 2}\nenv: {VLLM_MADE_UP: 1}\n"
        "command: |\n  vllm serve {model} -tp {tensor_parallel} --distributed-executor-backend ray --brand-new 3\n"
    ),
    "run.sh": "export MODEL=acme/Model\ndocker run --gpus all vllm/vllm-openai:nightly $MODEL --max-model-len 4096\n",
    "sglang.txt": "python3 -m sglang.launch_server --model-path acme/Model \\\n  --tp 2 --nnodes 2 --node-rank 0\n",
    "compose.yaml": "services:\n  llm: {image: 'vllm/vllm-openai:v0.17.1', command: --model acme/Model --port 8000}\n",
}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "recipe.yaml",
            [
                "engine vllm latest",
                "recipe setting: -tp 2 (parallel.tp)",
                "recipe passed on: --brand-new 3",
                "warning recipe.refused: mods: mods/fix: a patch of the image",
                "warning arguments.left-out: settings.distributed_executor_backend: ray is left out",
                "warning arguments.variable: environment.VLLM_MADE_UP",
                "--tensor-parallel-size 2 --nnodes 2",
            ],
        ),
        pytest.param(
            "run.sh", ["recipe ours: --gpus all", "vllm serve acme/Model --max-model-len 4096"], marks=pytest.mark.more
        ),
        pytest.param(
            "sglang.txt",
            ["engine sglang latest", "recipe ours: --node-rank 0", "sglang.launch_server --model-path acme/Model"],
            marks=pytest.mark.more,
        ),
        pytest.param(
            "compose.yaml",
            ["engine vllm 0.17.1", "recipe ours: --port 8000 (instance.port 8000)", "--port 8000"],
            marks=pytest.mark.more,
        ),
    ],
)
def test_a_recipe_of_another_tool_is_planned_like_a_profile(tmp_path: pathlib.Path, name: str, said: list[str]) -> None:
    (tmp_path / name).write_text(RECIPES[name], encoding="utf-8")
    nodes = {f"spark{number}": shown(110) for number in (1, 2, 3, 4)}
    code, output = plan(tmp_path, nodes, k8s_dgx_recipe=name)
    assert code == 0, output
    for text in ["verdict UNPROVEN", *said]:
        assert text in output, output


@pytest.mark.more
@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({}, "recipe a.sh: model: nothing in the recipe sets ${what a command prints}"),
        ({"k8s_dgx_model_profile": MODEL}, "Set k8s_dgx_model_profile or k8s_dgx_recipe, not both"),
    ],
)
def test_a_recipe_that_cannot_be_planned_is_one_error(
    tmp_path: pathlib.Path, extra: dict[str, t.Any], said: str
) -> None:
    (tmp_path / "a.sh").write_text("vllm serve $(touch ran)\n", encoding="utf-8")
    code, output = plan(tmp_path, {"spark1": shown(110)}, k8s_dgx_recipe="a.sh", **extra)
    assert code != 0
    assert said in output, output
    assert not (tmp_path / "ran").exists()


@pytest.mark.long
def test_what_a_recipe_leaves_open_is_said_beside_it(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.sh").write_text("docker run $IMG vllm serve /m --port $PORT\n", encoding="utf-8")
    values = {"IMG": "vllm/vllm-openai:v0.17.1", "PORT": 8100, "/m": "acme/Model-8B"}
    code, output = plan(tmp_path, {"spark1": shown(110)}, k8s_dgx_recipe="a.sh", k8s_dgx_recipe_values=values)
    assert code == 0 and "serve acme/Model-8B" in output and "--port 8100" in output, output


NOBODYS = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": 151936, "hidden_size": 3072, "num_hidden_layers": 40,
    "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 8192, "moe_intermediate_size": 1024,
    "num_experts": 96, "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": [], "max_position_embeddings": 131072,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip


class Hub(Answering):
    """A hub with one model that no profile knows."""

    def do_GET(self) -> None:
        known = self.path.startswith("/acme/Nobody-Knows-38B/") and self.path.endswith("/config.json")
        self.answer(200 if known else 404, json.dumps(NOBODYS).encode() if known else b"Entry not found")


@pytest.mark.long
def test_a_recipe_of_a_model_that_nobody_knew_goes_from_its_config_to_a_verdict_in_one_command(
    tmp_path: pathlib.Path,
) -> None:
    command = "vllm serve acme/Nobody-Knows-38B --max-model-len 65536 --max-num-seqs 8 --gpu-memory-utilization 0.8"
    (tmp_path / "new.sh").write_text(f"docker run --gpus all vllm/vllm-openai:v0.28.0 {command}\n", encoding="utf-8")
    with served(Hub) as url:
        hub = {"dgxspark_hub_endpoint": url, "model_weights_hub_environment": {"HF_HUB_OFFLINE": "0"}}
        code, output = plan(tmp_path, {"spark1": shown(110)}, k8s_dgx_recipe="new.sh", **hub)
    assert code == 0, output
    assert "verdict UNPROVEN" in output and "not every rule could be judged" not in output
    for said in ("GiB free per node", "estimate n=1", "config.json", "--max-model-len 65536"):
        assert said in output, output
