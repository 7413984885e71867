"""The examples that ansible-doc shows: those of filters and lookups run as printed, those of modules fit the module's arguments."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import typing as t

import pytest
import yaml

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import to_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.update import Turn
from ansible_collections.dgxspark.cluster.tests.support.documents import ansible_doc
from ansible_collections.dgxspark.cluster.tests.unit import bundles, matrix_driven, reports
from ansible_collections.dgxspark.cluster.tests.unit.owner import NO_ANSIBLE, ROOT, Owner, can_run
from ansible_collections.dgxspark.cluster.tests.unit.verify_inputs import Cluster

BENCH = '{"operation": "all_reduce", "bytes": 1073741824, "ranks": 2, "calls": 2, "rounds_us": [50000.0]}'
# Variables that the owner of these examples has registered or set earlier.
GIDS = [
    {
        "slot": "p0f0",
        "vf": 0,
        "hca": "rocep1s0f0v0",
        "port": 1,
        "netdev": "enp1s0f0v0",
        "address": "10.100.0.1",
        "index": 3,
        "place": "host",
    }
]
BEFORE = {
    "k8s_dgx_api_key": "0123456789abcdef0123456789abcdef",
    "k8s_dgx_model_profile": "gemma-4-31b-it",
    "bench": {"stdout": f"NCCL_BENCH {BENCH}\n"},
    "checked1": {"gids": GIDS},
    "checked2": {"gids": GIDS},
    "dgxspark_plan_file": "plan.json",
    "dgxspark_plan": Cluster(2).plan,
    "turn": to_plain(Turn("spark1", ("zstd=1.5.6",), False, {"zstd": "1.5.5"}, {"zstd": "1.5.6"}, None)),
    "tried": {"trial": {}},
    "packages": {"stdout_lines": ["zstd|1.5.6|install|installed"]},
}
for host in BEFORE["dgxspark_plan"]["hosts"].values():  # type: ignore[index]
    for function in host["functions"]:
        for vf in function["vfs"]:
            vf["hca"] = f"roce{function['slot']}v{vf['index']}"  # as the role saw it there
# Not used for examples that set `plan` themselves.
PLANNED = "{{ k8s_dgx_model_profile | dgxspark.cluster.launch_plan({'hosts': groups['dgx']}) }}"


def examples(kind: str, folder: str) -> dict[str, list[dict[str, t.Any]]]:
    """Return the tasks (or plays) that the plugins of a kind show, by plugin."""
    names = [f"dgxspark.cluster.{path.stem}" for path in sorted((ROOT / "plugins" / folder).glob("*.py"))]
    return {name: yaml.safe_load(str(found["examples"])) for name, found in ansible_doc("-t", kind, *names).items()}


def owner_with_all(folder: pathlib.Path) -> Owner:
    """An owner whose folder has the files that the examples name."""
    owner = Owner(folder)
    shutil.copytree(ROOT / "inventories" / "example", folder / "inventory")
    for name in ("reports", "logs", "inventory/dgxspark/evidence", "matrix/own-model"):
        (folder / name).mkdir(parents=True)
    (folder / "reports/fabric.json").write_text(json.dumps(reports.report_of(Cluster(2), "full")), encoding="utf-8")
    known = knowledge.load("signatures")["nccl.gid-empty"]["example"]
    for rank in (0, 1):
        (folder / f"logs/rank{rank}.log").write_text(f"{known}\n", encoding="utf-8")
    (folder / "recipe.yaml").write_text("model: Qwen/Qwen3-32B\ncontainer: vllm\ncommand: vllm serve {model} -tp 1\n")
    (folder / "serve.sh").write_text("vllm serve /models/mine --port $PORT\n")
    matrix_driven.run(folder / "matrix/own-model", matrix_driven.Scripted(folder / "matrix/own-model"))
    bundles.lay(folder / "bundle", {"k3s": "v1.99.0+k3s1", "architectures": ["arm64"]})
    return owner


@pytest.mark.more
@pytest.mark.skipif(not can_run(), reason=NO_ANSIBLE)
def test_examples_of_filters_and_lookups_run(tmp_path: pathlib.Path) -> None:
    owner = owner_with_all(tmp_path)
    plays, asked = [], []
    for name, shown in {**examples("filter", "filter"), **examples("lookup", "lookup")}.items():
        for number, each in enumerate(shown):
            asked.append(f"{name} {number}")
            local = {"gather_facts": False, "connection": "local"}
            if "hosts" in each:
                plays.append({**each, **local, "tasks": [{"ansible.builtin.debug": {"msg": "here"}, "run_once": True}]})
                continue
            own = {"run_once": True, "delegate_to": "localhost", "become": False, **each}
            plays.append({"name": asked[-1], "hosts": "spark1", **local, "vars": {"plan": PLANNED}, "tasks": [own]})
    text = yaml.safe_dump(plays, sort_keys=False, width=1000).replace("/srv/bundle", str(tmp_path / "bundle"))
    (tmp_path / "examples.yml").write_text(text, encoding="utf-8")
    (tmp_path / "before.json").write_text(json.dumps(BEFORE), encoding="utf-8")
    done = owner.typed("examples.yml", "-i", "inventory", "-e", "@before.json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(asked) > 18 and done.stdout.count("PLAY [") == len(asked)
    assert "nccl.gid-empty" in done.stdout and "--allow-change-held-packages zstd=1.5.5" in done.stdout
    for made in ("reports/fabric.html", "own-model.html", "inventory/dgxspark/evidence/mine.yml", "plan.json"):
        assert (tmp_path / made).stat().st_size > 100, made
    knowledge.load("evidence", [str(tmp_path / "inventory/dgxspark")])


def tasks(shown: t.Any) -> t.Iterator[dict[str, t.Any]]:
    """Yield the tasks of a list, those of blocks and plays among them."""
    for each in shown or ():
        yield each
        for key in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks"):
            yield from tasks(each.get(key))


def test_examples_of_modules_fit_what_the_modules_take() -> None:
    names = [f"dgxspark.cluster.{path.stem}" for path in sorted((ROOT / "plugins" / "modules").glob("*.py"))]
    documents = ansible_doc("-t", "module", *names)
    for name in names:
        shown = list(tasks(yaml.safe_load(str(documents[name]["examples"]))))
        assert any(name in each for each in shown), f"{name}: no example calls it"
        for each in shown:
            for module in documents.keys() & each.keys():
                options: dict[str, t.Any] = documents[module]["doc"]["options"]  # type: ignore[index]
                given = each[module] or {}
                aliases = {alias for option in options.values() for alias in option.get("aliases", ())}
                assert given.keys() <= options.keys() | aliases, f"{name}: {module} has no such option"
                needed = {key for key, option in options.items() if option.get("required")}
                assert needed <= given.keys(), f"{name}: {module} needs {needed - given.keys()}"
                for key, value in given.items():
                    choices = options.get(key, {}).get("choices")
                    if choices and isinstance(value, str) and not re.search(r"\{\{", value):
                        assert value in choices, f"{name}: {key}={value}"
