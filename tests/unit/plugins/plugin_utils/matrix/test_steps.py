from __future__ import annotations

import gzip
import json
import pathlib
import sys
import typing as t
from dataclasses import replace

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import children, knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.workloads import questions, workload_of
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import cases, steps
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.steps import Playbooks, Ran
from ansible_collections.dgxspark.cluster.tests.unit import matrix_driven

Plain = dict[str, t.Any]


def test_the_owners_options_go_on_without_the_playbook_and_check_mode() -> None:
    argv = [
        "ansible-playbook",
        "-i",
        "hosts.yml",
        "-l",
        "spark[1:4]",
        "playbooks/matrix.yml",
        "-e",
        "a=1",
        "-D",
        "--check",
        "-v",
    ]
    assert children.options_of(argv, ("playbooks/matrix.yml",)) == [
        "-i",
        "hosts.yml",
        "-l",
        "spark[1:4]",
        "-e",
        "a=1",
        "-v",
    ]


def played(tmp_path: pathlib.Path, code: str, limit_s: float = 60.0) -> Ran:
    """Run a program in place of ansible-playbook."""
    made = Playbooks(tmp_path, matrix_driven.matrix(), ["-i", "x"], {}, 0, {}, (sys.executable, "-c", code))
    return made.play("serve", tmp_path / "case", "switch", {"a": 1}, limit_s)


def test_a_step_is_told_its_variables_and_what_it_printed_is_kept(tmp_path: pathlib.Path) -> None:
    ran = played(tmp_path, "import sys; print(sys.argv[1:]); sys.exit(3)")
    assert (ran.status, ran.timed_out) == (3, False)
    told = str(["-i", "x", "-e", f"@{tmp_path / 'case/switch.vars.json'}", "dgxspark.cluster.serve"])
    assert ran.message == f"it ended with status 3: {told}"
    with gzip.open(tmp_path / "case/switch.log.gz", "rt") as log:
        assert log.read().strip() == told
    assert {path.name for path in (tmp_path / "case").iterdir()} == {"switch.log.gz", "switch.vars.json"}


PLAY = """
- hosts: away
  gather_facts: false
  ignore_unreachable: true
  tasks:
    - ansible.builtin.ping:
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.fail: {msg: not this}
      ignore_errors: true
    - ansible.builtin.set_stats: {data: {dgxspark_lost_hosts: [other]}}
    - ansible.builtin.fail: {msg: "why\\nit failed: fatal: [spark7]: UNREACHABLE! => {}"}
      loop: [1]
"""


def run_play(tmp_path: pathlib.Path, *more: str) -> Ran:
    (tmp_path / "play.yml").write_text(PLAY)
    (tmp_path / "hosts").write_text(
        "localhost ansible_connection=local\naway ansible_connection=ssh ansible_host=127.0.0.1 ansible_port=1\n"
    )
    argv = ["-m", "ansible", "playbook", *more, "-i", str(tmp_path / "hosts"), str(tmp_path / "play.yml")]
    return played(tmp_path, f"import sys, subprocess; sys.exit(subprocess.call([sys.executable, *{argv}]))")


def test_a_playbook_notes_why_it_failed_and_which_hosts_are_lost(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ansible-playbook itself, and however an owner has it print."""
    monkeypatch.setenv("ANSIBLE_CALLBACK_FORMAT_PRETTY", "1")
    ran = run_play(tmp_path, "-vvv")
    assert ran.message == "why it failed: fatal: [spark7]: UNREACHABLE! => {}"
    assert (ran.status, ran.lost, ran.waited) == (2, ("away", "other"), False)


def test_old_ranks_that_are_not_gone_are_told_apart_from_new_ones_that_hang(tmp_path: pathlib.Path) -> None:
    noted = {"event": "failed", "host": "localhost", "why": "not gone", "timed_out": False, "not_gone": True}
    code = f"import os, sys; open(os.environ['DGXSPARK_OUTCOME_FILE'], 'w').write({json.dumps(noted)!r}); sys.exit(2)"
    made = Playbooks(tmp_path, matrix_driven.matrix(), [], {}, 0, {}, (sys.executable, "-c", code))
    step = made.switch(cases.planned(matrix_driven.matrix(), matrix_driven.planner)[0], tmp_path / "case")
    assert (step.message, step.timed_out, step.data) == ("not gone", False, {"not_gone": True})


def test_a_repeat_has_prompts_of_its_own(tmp_path: pathlib.Path) -> None:
    made = Playbooks(tmp_path, matrix_driven.matrix(), [], {}, 0, {}, (sys.executable, "-c", ""))
    case = cases.planned(matrix_driven.matrix(), matrix_driven.planner)[0]
    seeds = []
    for run in (1, 2, 3):
        made.bench(case, tmp_path / "case", run)
        given = json.loads((tmp_path / f"case/bench-{run}.vars.json").read_text())
        seeds.append(given.get("dgxspark_bench_seed"))
    assert seeds[0] is None, "the workload's own"
    works = knowledge.load("workloads")
    asked = [
        {q.text for q in questions(replace(work, seed=work.seed if seed is None else seed), 32)}
        for work in [workload_of("long-context", works)]
        for seed in seeds
    ]
    assert len(set.union(*asked)) == 3 * 32


@pytest.mark.parametrize("deaf", [False, True])
def test_a_step_that_does_not_end_is_ended(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, deaf: bool) -> None:
    monkeypatch.setattr(children, "_END_S", 1.0)
    ignore = "signal.signal(signal.SIGINT, signal.SIG_IGN);" if deaf else ""
    ran = played(tmp_path, f"import signal, time; {ignore} print('up', flush=True); time.sleep(60)", 1.5)
    assert ran.timed_out
    assert ran.status != 0


def pod(name: str, restarts: int, image: str, state: Plain | None = None) -> Plain:
    status = {"name": "rank", "restartCount": restarts, "imageID": image, "state": state or {"running": {}}}
    return {"metadata": {"name": name}, "status": {"containerStatuses": [status]}}


def test_pods_say_who_was_started_again_and_which_image_runs() -> None:
    image = "registry.example/engine@sha256:" + "ab" * 32
    ended = {"terminated": {"exitCode": 1}}
    assert steps.facts_of([pod("a", 0, image), pod("b", 2, image), pod("c", 0, image, ended)]) == {
        "restarts": {"a": 0, "b": 2, "c": 1},
        "digest": "sha256:" + "ab" * 32,
    }
    assert steps.facts_of([pod("a", 0, image), pod("b", 0, image.replace("ab", "cd"))])["digest"] is None
    assert steps.facts_of([]) == {"restarts": {}, "digest": None}


def test_the_ranks_logs_say_memory_and_acceptance() -> None:
    """Lines as SGLang 0.5.10 logs them; without --enable-metrics there is no other source."""
    engines = knowledge.load("metrics")
    rank = """[2026-05-26 13:38:21 TP0] Load weight end. elapsed=7.10 s, type=M, dtype=torch.bfloat16, avail mem=45.02 GB, mem usage={} GB.
[2026-05-26 13:38:22 TP0] KV Cache is allocated. #tokens: 300000, K size: 10.25 GB, V size: 10.25 GB
[2026-05-26 13:40:00 TP0] Decode batch, #running-req: 1, #token: 512, accept len: 2.50, accept rate: 0.50, cuda graph: True
"""
    logs = {"rank0": rank.format("59.18"), "rank1": rank.format("60.02")}
    found = steps.told_of(logs, engines)
    assert found["memory"] == {"weights_gib": 60.02, "kv_gib": 20.5}
    assert (found["acceptance"]["length"], found["acceptance"]["rate"]) == (2.5, 0.5)
    # A drafter's weights are not the model's, and with two KV pools neither is reported.
    drafting = rank.format("59.18") + rank.format("1.50")
    assert steps.told_of({"rank0": drafting}, engines)["memory"] == {"weights_gib": 59.18}
    vllm = (
        "(EngineCore pid=7) INFO 11-24 [gpu_model_runner.py:4365] Model loading took 17.2 GiB memory and 9.1 seconds\n"
    )
    vllm += "(EngineCore pid=7) INFO 11-24 [gpu_worker.py:425] Available KV cache memory: 63.55 GiB\n"
    assert steps.told_of({"rank0": vllm}, engines)["memory"] == {"weights_gib": 17.2, "kv_gib": 63.55}
    assert steps.told_of({"rank0": "loading"}, engines) == {"memory": {}, "acceptance": None}


def test_a_case_says_its_variant() -> None:
    """So that a better row, which may make another variant the default, does not change what the case is."""
    made = cases.planned(
        matrix_driven.matrix(), lambda overrides: {**matrix_driven.planner(overrides), "variant": "plain"}
    )
    assert {case.overrides["variant"] for case in made} == {"plain"}
