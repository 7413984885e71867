"""verify.yml as it is run, as far as it goes without Sparks: verdict, report file, exit status, and who is down."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

import pytest
import yaml

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report.page import page
from ansible_collections.dgxspark.cluster.tests.unit.chat_server import Answer, ChatServer, ManyServer, Request, sse
from ansible_collections.dgxspark.cluster.tests.unit.owner import DOWN, HERE, NO_ANSIBLE, ROOT, Owner, can_run
from ansible_collections.dgxspark.cluster.tests.unit.sound_server import sound
from ansible_collections.dgxspark.cluster.tests.unit.stand_in import install
from ansible_collections.dgxspark.cluster.tests.unit.tls import speaks_tls

pytestmark = pytest.mark.skipif(not can_run(), reason=NO_ANSIBLE)


@pytest.fixture
def owner(tmp_path: pathlib.Path) -> Owner:
    return Owner(tmp_path)


@pytest.mark.more
def test_a_single_spark_passes_and_says_that_nothing_was_tested(owner: Owner) -> None:
    code, output, report = owner.verify({"spark1": HERE}, topology="single")
    assert code == 0, output
    assert report["verdict"] == "passed"
    assert report["headline"].startswith("NOTHING TO PROVE")
    assert "changed=0" in output
    written = sorted((owner.folder / "reports").iterdir())
    assert [path.suffix for path in written] == [".html", ".json"]
    assert written[0].stem == written[1].stem
    assert {path.stat().st_mode & 0o777 for path in written} == {0o644}
    assert written[0].read_text(encoding="utf-8") == page(report)


@pytest.mark.more
def test_a_node_without_its_functions_fails_with_the_cause_and_a_report(owner: Owner) -> None:
    """This machine has none: the plan refuses its facts, and verify goes on to report that."""
    code, output, report = owner.verify({"spark1": HERE, "spark2": HERE}, topology="switch")
    assert code not in (0, 250), output
    assert report["verdict"] == "failed"
    assert {cause["id"] for cause in report["causes"]} == {"function.missing"}
    assert "spark1" in json.dumps(report["causes"])
    assert "CAUSE 1" in output
    shown = next((owner.folder / "reports").glob("*.html")).read_text(encoding="utf-8")
    assert "function.missing" in shown
    assert f"Page: {owner.folder}/reports/" in output
    # What the mode does not require is not begun.
    assert first_messages(report)["nccl"] == first_messages(report)["pod"] == "mode full does not require it."
    assert "Start a rank" not in output and "Query the cluster" not in output


@pytest.mark.more
def test_nodes_that_are_down_leave_it_incomplete_and_do_not_end_the_run(owner: Owner) -> None:
    file = owner.folder / "reports" / "fabric-here.json"
    code, output, report = owner.verify(
        {"spark1": DOWN, "spark2": DOWN}, "-e", f"dgxspark_report_file={file}", topology="switch"
    )
    assert code != 0, output
    assert report["verdict"] == "incomplete"
    assert report["headline"].startswith("INCOMPLETE")
    assert output.count(report["headline"]) == 1 and output.count("Report: ") == 1
    assert [host["status"] for host in report["hosts"]] == ["not seen", "not seen"]
    assert "127.0.0.1" in report["hosts"][0]["reason"]


@pytest.mark.long
def test_a_hardware_class_of_the_owner_s_is_known_here_too(owner: Owner) -> None:
    """As in plan.yml and site.yml: the folder beside the inventory, and the one named by a variable."""
    entry = {key: value for key, value in knowledge.get("hardware", "lab").items() if key != "origin"}
    limits = {key: value for key, value in knowledge.get("thresholds", "lab").items() if key != "origin"}
    for kind, own in (("hardware", entry), ("thresholds", limits)):
        (owner.folder / "dgxspark" / kind).mkdir(parents=True)
        text = yaml.safe_dump({**own, "id": "mine"})
        (owner.folder / "dgxspark" / kind / "mine.yml").write_text(text, encoding="utf-8")
    code, output, report = owner.verify({"spark1": HERE}, topology="single", hardware="mine")
    assert code == 0, output
    assert report["verdict"] == "passed"
    (owner.folder / "dgxspark").rename(owner.folder / "elsewhere")
    elsewhere = json.dumps({"dgxspark_knowledge_dirs": [str(owner.folder / "elsewhere")]})
    code, output, _report = owner.verify({"spark1": HERE}, "-e", elsewhere, topology="single", hardware="mine")
    assert code == 0, output


KEY = "sk-not-to-be-seen"


def sound_after(first: Answer) -> ManyServer:
    """A server that gives the canary this answer, and every later request a sound one."""
    answers = [first]

    def answer(request: Request) -> Answer:
        return answers.pop() if answers and request.path.endswith("/chat/completions") else sound(request)

    return ManyServer(answering=answer)


def ask(owner: Owner, server: ChatServer, *more: str) -> tuple[int, str, Any]:
    groups = [{"name": "default", "url": server.url, "hosts": ["spark1"]}]
    extra = {
        "dgxspark_verify_mode": "strict", "dgxspark_verify_groups": groups, "dgxspark_verify_api_key": KEY,
        "dgxspark_verify_requests": 4,
    }  # fmt: skip
    return owner.verify({"spark1": HERE}, "-e", json.dumps(extra), *more, topology="single")


@pytest.mark.older_core
def test_a_model_that_answers_proves_the_last_step(owner: Owner) -> None:
    """The server is a stand-in on loopback; one Spark has no fabric, so tokens are all that strict asks of it."""
    with sound_after(sse("One, ", "two, ", "three.", tokens=6, pause=0.01)) as server:
        code, output, report = ask(owner, server, "-vvv")
    assert code == 0, output
    assert (report["verdict"], report["mode"]) == ("passed", "strict")
    tokens = next(step for step in report["steps"] if step["id"] == "tokens")
    assert tokens["status"] == "pass"
    assert tokens["results"][0]["figures"]["tokens"] == 6
    assert {request.headers.get("authorization") for request in server.requests} == {f"Bearer {KEY}"}
    assert server.most > 1
    assert KEY not in output
    assert not [path for path in (owner.folder / "reports").iterdir() if KEY in path.read_text(encoding="utf-8")]


@pytest.mark.long
def test_the_key_that_the_model_is_served_with_is_sent(owner: Owner) -> None:
    """Over TLS here, with a certificate signed only by the authority that the owner names."""
    (owner.folder / "key").write_text(f"{KEY}\n", encoding="utf-8")
    given: dict[str, Any] = {
        "k8s_dgx_api_key_file": str(owner.folder / "key"),
        "dgxspark_verify_ca_path": "authority.pem",
    }
    server = sound_after(sse("One, ", "two.", tokens=6, pause=0.01))
    server.tls = speaks_tls(owner.folder / "authority.pem")
    with server:
        groups = [{"name": "default", "url": server.url, "hosts": ["spark1"]}]
        given |= {"dgxspark_verify_mode": "strict", "dgxspark_verify_groups": groups, "dgxspark_verify_requests": 4}
        code, output, _report = owner.verify({"spark1": HERE}, "-vvv", "-e", json.dumps(given), topology="single")
    assert code == 0, output
    assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in output


@pytest.mark.more
def test_a_model_that_collapses_fails_the_proof_with_its_cause(owner: Owner) -> None:
    with ChatServer() as server:
        server.answer(sse(*["! "] * 60, reason="length"))
        code, output, report = ask(owner, server)
    assert code != 0
    assert [cause["id"] for cause in report["causes"]] == ["tokens.garbage"]
    assert "tokens.garbage" in output


@pytest.mark.long
def test_strict_without_its_steps_is_incomplete_and_an_unknown_mode_refused(owner: Owner) -> None:
    code, output, report = owner.verify({"spark1": HERE}, "-e", "dgxspark_verify_mode=strict", topology="single")
    assert code != 0
    assert report["verdict"] == "incomplete"
    assert report["headline"].startswith("INCOMPLETE: tokens not run as required: the Kubernetes API ")
    code, output, report = owner.verify({"spark1": HERE}, "-e", "dgxspark_verify_mode=quik", topology="single")
    assert code != 0
    assert "dgxspark_verify_mode: 'quik' is not one of quick, full, strict. Did you mean quick?" in " ".join(
        output.split()
    )


@pytest.mark.long
def test_what_was_measured_elsewhere_is_judged(owner: Owner) -> None:
    results = {"nccl": {"reason": "no GPU here"}, "pod": {"reason": "no pod here"}}
    extra = {"dgxspark_verify_mode": "strict", "dgxspark_verify_results": results}
    _code, output, report = owner.verify({"spark1": DOWN, "spark2": DOWN}, "-e", json.dumps(extra), topology="switch")
    assert report["verdict"] == "incomplete", output
    found = {step["id"]: step["results"][0]["message"] for step in report["steps"]}
    assert (found["nccl"], found["pod"]) == ("no GPU here.", "no pod here.")


def first_messages(report: Any) -> dict[str, str]:
    return {step["id"]: step["results"][0]["message"] for step in report["steps"] if step["results"]}


@pytest.mark.more
@pytest.mark.older_core
def test_strict_tries_every_step_and_says_why_it_could_not_be_run(owner: Owner) -> None:
    """This machine has no fabric, no cluster and no model: none of that ends the run."""
    code, output, report = owner.verify(
        {"spark1": HERE, "spark2": HERE}, "-e", "dgxspark_verify_mode=strict", topology="switch"
    )
    assert code != 0
    assert {cause["id"] for cause in report["causes"]} == {"function.missing"}, output
    said = first_messages(report)
    assert said["nccl"].startswith("spark1: ") and "spark2: " in said["nccl"]
    for step in ("pod", "tokens"):
        assert said[step].startswith("the Kubernetes API ")
    assert {step["status"] for step in report["steps"] if step["id"] in ("nccl", "pod", "tokens")} == {"not run"}


@pytest.mark.long
def test_a_step_beyond_the_mode_is_run_when_it_is_asked_for_and_only_then(owner: Owner) -> None:
    two = {"spark1": HERE, "spark2": HERE}
    asked = json.dumps({"dgxspark_verify_run": ["nccl"], "dgxspark_verify_mode": "quick"})
    _code, output, report = owner.verify(two, "-e", asked, "--check", topology="switch")
    assert first_messages(report)["nccl"] == "nothing is measured in check mode."
    assert "Query the cluster" not in output
    given = json.dumps({"dgxspark_verify_run": ["nccl"], "dgxspark_verify_results": {"nccl": {"reason": "not today"}}})
    _code, output, report = owner.verify(two, "-e", given, topology="switch")
    assert first_messages(report)["nccl"] == "not today."
    assert "Start a rank" not in output


@pytest.mark.more
@pytest.mark.parametrize(
    "asked", [["ncll"], *(pytest.param(each, marks=pytest.mark.long) for each in ("nccl", {"nccl": True}, ["wire"]))]
)
def test_a_step_that_there_is_not_is_refused_before_anything_is_read(owner: Owner, asked: Any) -> None:
    code, output, report = owner.verify(
        {"spark1": HERE}, "-e", json.dumps({"dgxspark_verify_run": asked}), topology="single"
    )
    assert code != 0
    assert report is None
    assert "dgxspark_verify_run: set a list of steps from rdma, nccl, pod, tokens" in " ".join(output.split())


@pytest.mark.more
def test_fewer_forks_than_hosts_are_refused_before_anything_is_sent(owner: Owner) -> None:
    code, output, report = owner.verify({"spark1": HERE, "spark2": HERE}, "--forks", "1", topology="switch")
    assert code != 0
    assert report is None
    assert "--forks 2" in output
    assert "Read the nodes" not in output


@pytest.mark.more
def test_a_round_runs_both_ends_at_the_same_time_and_keeps_what_each_said(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three hosts on loopback, two rounds: a host without a peer in a round waits, and the answers of all rounds add up."""
    install(owner.folder)
    monkeypatch.setenv("PATH", f"{owner.folder}{os.pathsep}{os.environ['PATH']}")
    address = {"spark1": "127.0.0.11", "spark2": "127.0.0.12", "spark3": "127.0.0.13"}

    def ends(client: str, server: str) -> dict[str, Any]:
        common = {"id": f"write/{client}>{server}", "program": "ib_write_bw", "hca": "x", "gid_index": 1}
        common |= {"port": 18700, "size": 64, "iterations": 20}
        return {
            client: [common | {"role": "client", "address": address[client], "peer": address[server]}],
            server: [common | {"role": "server", "address": address[server], "peer": address[client]}],
        }

    tasks: list[dict[str, Any]] = [
        {
            "ansible.builtin.set_fact": {
                "__verify_seen": {},
                "__verify_thresholds": {"rdma": {"meet_s": 60, "test_s": 20}},
            }
        },
        {
            "ansible.builtin.include_tasks": str(ROOT / "playbooks" / "tasks" / "verify_round.yml"),
            "loop": [ends("spark1", "spark2"), ends("spark3", "spark1")],
            "loop_control": {"loop_var": "__verify_round"},
        },
        {
            "ansible.builtin.copy": {
                "content": "{{ __verify_seen | to_json }}",
                "dest": f"{owner.folder}/{{{{ inventory_hostname }}}}.json",
            }
        },
    ]
    play = [{"name": "Rounds", "hosts": "all", "gather_facts": False, "tasks": tasks}]
    (owner.folder / "play.yml").write_text(yaml.safe_dump(play), encoding="utf-8")
    inventory = {"all": {"hosts": dict.fromkeys(address, HERE)}}
    (owner.folder / "inventory.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
    done = owner.play(owner.folder / "play.yml")
    assert done.returncode == 0, done.stdout
    found = {name: json.loads((owner.folder / f"{name}.json").read_text(encoding="utf-8"))["rdma"] for name in address}
    assert {name: [(a["role"], a["status"]) for a in answers] for name, answers in found.items()} == {
        "spark1": [("client", "ok"), ("server", "ok")],
        "spark2": [("server", "ok")],
        "spark3": [("client", "ok")],
    }
    assert found["spark3"][0]["figures"]["gbps"] > 0


@pytest.mark.more
def test_a_clock_limit_that_the_inventory_asks_for_is_looked_at(owner: Owner) -> None:
    """This machine has none. Nothing is installed meanwhile."""
    wanted = '{"spark_power_state": "present", "spark_power_clock_mhz": 2200}'
    code, output, report = owner.verify({"spark1": HERE}, "-e", wanted, topology="single")
    assert code not in (0, 250), output
    assert report, output
    assert [cause["id"] for cause in report["causes"]] == ["power.limit"]
    assert "dgxspark-gpu-clock.service is missing" in report["causes"][0]["message"]
    assert "changed=0" in output and not pathlib.Path("/etc/systemd/system/dgxspark-gpu-clock.service").exists()
