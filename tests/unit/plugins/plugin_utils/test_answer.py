"""The terminal of a run: changes, long steps, and each error once, without Ansible's frame."""

from __future__ import annotations

import types

import pytest

from ansible_collections.dgxspark.cluster.plugins.callback import answer as callback
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.answer import Told, ended, reason


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"msg": "Task failed: dgxspark.cluster.launch_plan: There is no profile 'x'."}, "There is no profile 'x'."),
        (
            {
                "msg": "Task failed: Finalization of task args for 'ansible.builtin.set_fact' failed: Error while resolving value "
                "for 'dgxspark_plan': The filter plugin 'dgxspark.cluster.fabric_plan' failed: dgxspark.cluster.fabric_plan: two reasons"
            },
            "two reasons",
        ),
        (
            {
                "msg": "Task failed: A 'when' expression failed: The filter plugin 'a.b' failed: dgxspark.cluster.facts_wanted: No x."
            },
            "No x.",
        ),
        (  # an exception, the one behind it, and what the system said
            {
                "msg": "dgxspark.cluster.explain: log: nothing.log: cannot be read: No such file: log: nothing.log: cannot be read: "
                "No such file: [Errno 2] No such file: 'nothing.log'"
            },
            "log: nothing.log: cannot be read: No such file",
        ),
        ({"msg": "non-zero return code", "stderr": "netplan: bad\nfile"}, "non-zero return code\nnetplan: bad\nfile"),
        (  # a shim of pyenv on the node
            {
                "msg": "Module result deserialization failed: No start of json char found",
                "module_stderr": "pyenv: python3.13: command not found\n\nThe `python3.13' command exists in these Python versions:\n",
                "rc": 127,
            },
            "The node's Python does not start: pyenv: python3.13: command not found. Name another one in the inventory, "
            "`ansible_python_interpreter: /usr/bin/python3`, or with -e ansible_python_interpreter=/usr/bin/python3.",
        ),
        ({"msg": "The key", "censored": "the output has been hidden"}, "the output has been hidden"),
        ({"msg": "bad \x1b[31mred"}, None),
        ({}, "it failed without a reason"),
    ],
)
def test_an_error_is_its_own_text(result: dict[str, str], said: str | None) -> None:
    text = reason(result)
    assert "\x1b" not in text
    assert said is None or text == said


def test_a_step_says_its_changes_and_each_error_once() -> None:
    told = Told()
    assert told.start("Read", 0.0) == []
    assert told.start("Write the file", 1.0) == []  # short, and nothing changed: not a word
    told.changed += ["spark1", "spark2"]
    assert told.start("Apply", 3.0) == ["changed  Write the file: spark1, spark2"]
    for host in ("spark1", "spark2", "spark3"):
        told.fail(host, {"msg": "No cable.\nPlug it in."})
    told.fail("spark4", {"msg": "Something else."})
    assert told.flush(10.0) == [
        "FAILED   Apply: spark1, spark2, spark3 (7 s)",
        "  No cable.",
        "  Plug it in.",
        "FAILED   Apply: spark4 (7 s)",
        "  Something else.",
    ]
    assert told.start("Pull", 100.0) == []
    assert told.start("Next", 300.0) == ["done     Pull (3 min 20 s)"]


def test_a_diff_names_its_hosts_and_the_same_one_is_said_once() -> None:
    told = Told()
    told.start("role : Write the file", 0.0)
    for host, diff in (("spark10", "-a\n+b\n"), ("spark2", "-a\n+b\n"), ("spark1", "-a\n+c\n"), ("spark1", "-d\n")):
        told.differ(host, diff)
        told.changed.append(host)
    assert told.flush(1.0) == [
        "Write the file: spark2, spark10",
        "-a\n+b\n",
        "Write the file: spark1",
        "-a\n+c\n",
        "Write the file: spark1",
        "-d\n",
        "changed  Write the file: spark1, spark2, spark10",
    ]
    assert told.flush(2.0) == []


def test_a_host_that_does_not_answer_is_one_line_in_a_run() -> None:
    told = Told()
    told.start("Read", 0.0)
    for host in ("spark1", "spark2"):
        told.lose(host, {"msg": "Failed to connect to the host via ssh:\nconnection timed out"})
    said = told.start("Read more", 1.0)
    assert said[0] == "not reached  spark1, spark2: ssh: connection timed out"
    assert "Is it on" in said[1] and len(said) == 2
    told.lose("spark1", {"msg": "Failed to connect to the host via ssh"})
    assert told.flush(2.0) == []


def test_hosts_that_fail_alike_are_one_line_with_their_addresses_and_what_to_try() -> None:
    told = Told()
    told.start("Read", 0.0)
    for number in (10, 2, 1):
        why = f"connect to host 192.0.2.{number} port 22: Connection timed out"
        told.lose(f"spark{number}", {"msg": f"Task failed: Failed to connect to the host via ssh: ssh: {why}"})
    told.lose(
        "192.0.2.4", {"msg": "Failed to connect to the host via ssh: ssh: connect to host 192.0.2.4 port 22: refused"}
    )
    told.lose("spark3", {"msg": "Failed to connect to the host via ssh: me@192.0.2.3: Permission denied (publickey)."})
    unknown = "Failed to connect to the host via ssh: ssh: Could not resolve hostname node5: Name or service not known"
    told.lose("spark5", {"msg": unknown})
    first, address, second, name, *tips = told.flush(2.0)
    assert first == (
        "not reached  spark1 (192.0.2.1), spark2 (192.0.2.2), spark10 (192.0.2.10): ssh, port 22: Connection timed out"
    )
    assert address == "not reached  192.0.2.4: ssh, port 22: refused"  # an address of -i is its own name
    assert second.startswith("not reached  spark3: ") and "Permission denied" in second
    assert name == "not reached  spark5: ssh: Could not resolve hostname node5: Name or service not known"
    assert len(tips) == 4 and "ssh-copy-id" in tips[2] and "ansible_host" in tips[3]
    assert [tip for tip in tips if "power" in tip] == tips[:1]


def test_check_mode_says_what_would_change_and_that_nothing_has() -> None:
    told = Told()
    told.start("Write the file", 0.0)
    told.would += ["spark2", "spark1"]
    assert told.start("Read", 1.0) == ["would    Write the file: spark1, spark2"]
    assert told.flush(2.0) == []
    counts = {"failures": 0, "unreachable": 0, "changed": 1}
    assert ended({"spark1": counts, "spark2": counts}, 3.0, told.not_made) == "Done in 3 s: 2 changes would be made."
    # What is only read is written on this machine all the same.
    said = ended({"spark1": counts, "spark2": counts, "controller": counts}, 3.0, told.not_made)
    assert said == "Done in 3 s: 1 change; 2 changes would be made."
    assert ended({"spark1": {**counts, "changed": 0}}, 3.0) == "Done in 3 s: 0 changes."


def test_what_a_role_says_is_said_once_with_the_hosts_that_it_is_about() -> None:
    told = Told()
    told.start("Say that perftest is missing", 0.0)
    for host in ("spark10", "spark2"):
        told.note("perftest is not on the node.\nInstall it.", host)
    told.note("Platform and serving: skipped.")
    told.note({"p0f0": 3})  # a program's value is no sentence
    told.note([])
    assert told.flush(1.0) == [
        "note     spark2, spark10: perftest is not on the node.",
        "         Install it.",
        "note     Platform and serving: skipped.",
    ]
    assert told.flush(1.0) == []


def test_the_last_line_says_how_it_ended() -> None:
    none = {"failures": 0, "unreachable": 0, "changed": 0}
    assert ended({"spark1": {**none, "changed": 1}}, 61.0) == "Done in 1 min 1 s: 1 change."
    said = ended({"spark1": {**none, "failures": 1}, "spark2": {**none, "unreachable": 1}}, 3.0)
    assert said == "Failed in 3 s: failed on spark1; spark2 not reached; 0 changes."


def test_the_callback_says_nothing_of_what_went_well(monkeypatch: pytest.MonkeyPatch) -> None:
    made = callback.CallbackModule()
    said: list[str] = []
    monkeypatch.setattr(
        made, "_display", types.SimpleNamespace(verbosity=0, display=lambda text, **_: said.append(text))
    )
    monkeypatch.setattr(made, "_watch", lambda wait: None)
    task = types.SimpleNamespace(
        get_name=lambda: "dgxspark.cluster.k3s : Install",
        loop=None,
        ignore_errors=False,
        run_once=False,
        action="x",
        check_mode=False,
    )

    def result(host: str, **values: object) -> types.SimpleNamespace:
        return types.SimpleNamespace(task=task, result=values, host=types.SimpleNamespace(get_name=lambda: host))

    monkeypatch.setattr(made, "host_label", lambda given: given.host.get_name())
    made.v2_playbook_on_task_start(task, False)
    made.v2_runner_on_ok(result("spark1"))
    made.v2_runner_on_skipped(result("spark2"))
    assert said == []
    task.action = "ansible.builtin.debug"
    made.v2_runner_on_ok(result("spark1", msg="Log in again."))
    made.v2_runner_item_on_ok(result("spark2", msg="Log in again."))
    made.v2_runner_on_ok(result("spark2", msg="All items completed", results=[]))
    made.v2_playbook_on_task_start(task, False)
    assert said == ["note     spark1, spark2: Log in again."]
    said.clear()
    task.action = "x"
    made.v2_runner_on_ok(result("spark1", changed=True, msg="not by a task that says something"))
    for host in ("spark2", "spark1"):
        made.v2_on_file_diff(result(host, changed=True, diff={"before": "x\n", "after": "y\n"}))
    assert said == []
    made.v2_runner_on_failed(result("spark2", msg="broken"), ignore_errors=True)
    made.v2_runner_on_failed(result("spark3", msg="broken"))
    made.v2_playbook_on_task_start(task, False)
    assert said[0] == "Install: spark1, spark2" and "\n-x\n" in said.pop(1) and "Install" in said.pop(0)
    assert said == ["changed  Install: spark1", "FAILED   Install: spark3", "  broken"]
    said.clear()
    task.check_mode = True
    made.v2_runner_on_ok(result("spark1", changed=True))
    made.v2_playbook_on_task_start(task, False)
    assert said == ["would    Install: spark1"]
