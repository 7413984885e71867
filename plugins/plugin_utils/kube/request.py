# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How to ask the served model: its URL and name, a curl, a line of Python, where the key is, and how to measure it; what was stopped."""

from __future__ import annotations

import collections
import json
import shlex
import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import HOSTNAME, MANAGER, RANK, Plain

HELLO = "What is InfiniBand? One sentence."
MOST_TOKENS = 200


def model_name(plan: Plain) -> str:
    """Return the name under which the API serves a plan's model: the engine's own setting, else the model."""
    settings = plan["ranks"][0].get("settings") or {}
    named = settings.get("served_model_name") or settings.get("model") or plan["model"]
    return str(named[0] if isinstance(named, list) else named.split()[0] if isinstance(named, str) else named)


def lines(
    running: Plain,
    plan: Plain,
    instance: str,
    *,
    key_file: str = "",
    has_key: bool = False,
    reach: t.Sequence[str] = (),
) -> list[str]:
    """Return how to ask what runs.

    running: what kube_running returns. plan: of `launch_plan`. key_file: the file on the controller with the API key, if it is in
    one; has_key: whether the API requires one; reach: kubectl's options that reach the cluster. The key itself is never shown, nor
    passed as an argument of a command.
    """
    model, port = model_name(plan), plan["instance"]["port"]
    url = running["groups"][0]["url"] if running["groups"] else f"http://127.0.0.1:{port}/v1"
    made = [f"{model} answers at {url}"]
    if not running["groups"]:
        namespace = running["pods"]["namespace"]
        made = [
            f"{model} answers within the cluster at {running['inside']}. From here, in another terminal:",
            f"  {shlex.join(['kubectl', *reach])} -n {namespace} port-forward svc/serve-{instance} {port}:{port}",
            'or serve it with -e \'{"k8s_dgx_serving": {"service_type": "NodePort"}}\', for all machines that reach a Spark.',
        ]
    ask: Plain = {"model": model, "messages": [{"role": "user", "content": HELLO}], "max_tokens": MOST_TOKENS}
    curl = f"curl {url}/chat/completions -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(ask))}"
    key = "'none'"
    if has_key:
        key = f"open({key_file!r}).read().strip()" if key_file else "THE_KEY"
        read = f'"$(cat {shlex.quote(key_file)})"' if key_file else '"$THE_KEY"'
        # printf is the shell's own: other processes do not see the key.
        curl = f"printf 'header = \"Authorization: Bearer %s\"\\n' {read} | curl -K -{curl.removeprefix('curl')}"
    made += ["", f"  {curl}", "", f"  from openai import OpenAI; client = OpenAI(base_url={url!r}, api_key={key})"]
    made += [
        f"  client.chat.completions.create(model={model!r}, messages=[{{'role': 'user', 'content': {HELLO!r}}}])",
        "",
    ]
    if has_key:
        made.append(f"The key is in {key_file}." if key_file else "The key is the value of k8s_dgx_api_key.")
    else:
        made.append("It requires no key; k8s_dgx_api_key_file sets one.")
    return made


def measured(inventory: t.Sequence[str], running: Plain) -> list[str]:
    """Return the command that measures it in a minute, and what that says."""
    given = "".join(f" -i {shlex.quote(each)}" for each in inventory)
    pod = "" if running["groups"] else " -e dgxspark_bench_from=pod"
    return [
        "How fast it is, how many users can share it, and what limits it, in a minute:",
        f"  ansible-playbook dgxspark.cluster.bench{given} -e dgxspark_bench_mode=quick{pod}",
    ]


def stopped(
    objects: t.Sequence[Plain],
    instance: str,
    namespace: str,
    node_names: t.Mapping[str, str],
    weights: str,
    *,
    dry: bool,
) -> list[str]:
    """Return what was removed, and what stays.

    objects: those of the instance, as the cluster had them. node_names: the nodes of hosts that have another name. weights: what the
    role does about them. dry: whether this only shows what it would do.
    """
    if not objects:
        return [f"No instance {instance} is served in namespace {namespace}: there was nothing to stop."]
    ranks = sorted(
        (each for each in objects if each["kind"] == "StatefulSet"),
        key=lambda one: int(one["metadata"]["labels"][RANK]),
    )
    told = "Would stop" if dry else "Stopped"
    made = []
    if ranks:
        hosts = {node: host for host, node in node_names.items()}
        nodes = [str(each["spec"]["template"]["spec"]["nodeSelector"][HOSTNAME]) for each in ranks]
        *most, last = [hosts.get(node, node) for node in nodes]
        named = str((ranks[0]["metadata"].get("annotations") or {}).get(f"{MANAGER}/profile") or "the model")[:120]
        where = f"{', '.join(most)} and {last}" if most else last
        made.append(f"{told} {named} (instance {instance}): {len(ranks)} rank{'s' if most else ''}, on {where}.")
    counts = collections.Counter(str(each["kind"]) for each in objects)
    what = ", ".join(f"{count} {_plural(kind) if count > 1 else kind}" for kind, count in counts.items())
    made.append(
        f"{'Would be removed' if dry else 'Removed'} from namespace {namespace}: {what}, and its Secrets, if it had any."
    )
    if weights == "present":
        stays = "The platform, the engine's image and the model's weights stay"
        made.append(
            f"{stays}: to serve it again downloads nothing. -e k8s_dgx_weights=absent removes the weights, too."
        )
    return made


def _plural(kind: str) -> str:
    return f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
