# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model that nobody here knew, from its config.json to a verdict, as an owner plans it: one command, one recipe, one token file.

The hub is the stand-in of the tests on loopback (tests/stand_ins/hub.py), over TLS with a certificate of its own: a gated repository of a made-up name,
whose files are those of a hybrid model with experts, doubled in depth and said to be quantised by ModelOpt. Needs openssl. Usage, from the repository's
root: python benchmarks/new_model.py [FOLDER]
"""

from __future__ import annotations

import json
import os
import pathlib
import runpy
import ssl
import subprocess
import sys
import tempfile
import time
import typing as t

runpy.run_path(str(pathlib.Path(__file__).resolve().parent.parent / "tools" / "own_collection.py"))
from ansible_collections.dgxspark.cluster.tests.stand_ins.hub import Hub, Repo  # noqa: E402
from ansible_collections.dgxspark.cluster.tests.support.playbooks import collections_path  # noqa: E402
from ansible_collections.dgxspark.cluster.tests.unit.owner import BIN, ROOT  # noqa: E402

NAME = "acme/Nobody-Knows-70B-A9B-NVFP4"
TOKEN = "hf_made_up_for_this_run"
IMAGE = "vllm/vllm-openai:v0.30.0"


def files() -> dict[str, bytes]:
    """Return the repository's small files: its configuration, how it is quantised, and the index of its weights."""
    known = json.loads((ROOT / "tests" / "oracle" / "models" / "granitemoehybrid.json").read_text(encoding="utf-8"))
    config: dict[str, t.Any] = known["config.json"]
    config["num_hidden_layers"] *= 2
    if kinds := config.get("layer_types"):
        config["layer_types"] = kinds * 2
    quantised = {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": None, "exclude_modules": ["lm_head"]}}
    index = {
        "metadata": {"total_size": 38_000_000_000},
        "weight_map": {"lm_head.weight": "model-00001-of-00001.safetensors"},
    }
    config["quantization_config"] = {"quant_method": "modelopt", **quantised["quantization"]}
    return {
        "config.json": json.dumps(config).encode(),
        "hf_quant_config.json": json.dumps(quantised).encode(),
        "model.safetensors.index.json": json.dumps(index).encode(),
    }


def over_tls(hub: Hub, folder: pathlib.Path) -> str:
    """Serve the stand-in over TLS; return its address. A token goes nowhere else."""
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=hub",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
    ]
    subprocess.run([*command, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    hub.server.socket = context.wrap_socket(hub.server.socket, server_side=True)
    return hub.url.replace("http:", "https:")


def main(folder: pathlib.Path) -> int:
    """Plan the model, and print what was typed, what was asked of the hub and what was answered."""
    hub = Hub()
    url = over_tls(hub, folder)
    hub.repos[NAME] = Repo(files(), gated=True, allowed=(TOKEN,))
    (folder / "new.sh").write_text(
        f"docker run --gpus all {IMAGE} vllm serve {NAME} --max-model-len 65536 --max-num-seqs 8 --gpu-memory-utilization 0.8\n",
        encoding="utf-8",
    )
    (folder / "token").write_text(TOKEN + "\n", encoding="utf-8")
    (folder / "token").chmod(0o600)
    typed = ["plan", "-e", "sparks=1", "-e", "k8s_dgx_recipe=new.sh", "-e", "dgxspark_hub_token_file=token"]
    began = time.monotonic()
    done = subprocess.run(
        [
            str(BIN / "ansible-playbook"), str(ROOT / "playbooks" / "plan.yml"), *typed[1:],
            "-e", json.dumps({"dgxspark_hub_endpoint": url, "model_weights_hub_environment": {"HF_HUB_OFFLINE": "0"}}),
        ],
        capture_output=True, text=True, check=False, cwd=folder,
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": collections_path(), "ANSIBLE_NOCOLOR": "1", "SSL_CERT_FILE": str(folder / "cert.pem")},
    )  # fmt: skip
    hub.stop()
    print(f"$ ansible-playbook dgxspark.cluster.{' '.join(typed)}    (and the stand-in's address)")
    print(done.stdout + done.stderr[-2000:])
    print(f"{time.monotonic() - began:.0f} s, exit status {done.returncode}. Asked of the hub:")
    for request in hub.requests:
        print(f"  {request}")
    sent = sum(hub.sent.values())
    print(
        f"  {sent} bytes in all; the token is {'shown' if TOKEN in done.stdout + done.stderr else 'not shown'} anywhere."
    )
    return done.returncode


if __name__ == "__main__":
    if len(sys.argv) > 1:
        raise SystemExit(main(pathlib.Path(sys.argv[1]).resolve()))
    with tempfile.TemporaryDirectory() as made:
        raise SystemExit(main(pathlib.Path(made)))
