"""explain.yml as an owner runs it: without any inventory, with one and a limit, with good and bad logs."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import typing as t

import jsonschema
import pytest

from ansible_collections.dgxspark.cluster.tests.unit.owner import NO_ANSIBLE, PROGRAM, ROOT, can_run

SCHEMA = json.loads((ROOT / "docs" / "schema" / "explain-report.json").read_text(encoding="utf-8"))
TIMEOUT = (
    "[rank0]:[E321 02:07:08.408 ProcessGroupNCCL.cpp:607] [Rank 2] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600060 milliseconds before timing out."
)
KILLED = "kernel: Out of memory: Killed process 4242 (python3) total-vm:98765432kB"

pytestmark = pytest.mark.skipif(not can_run(), reason=NO_ANSIBLE)


@pytest.fixture
def run(tmp_path: pathlib.Path) -> t.Callable[..., tuple[int, str]]:
    collection = tmp_path / "collections" / "ansible_collections" / "dgxspark"
    collection.mkdir(parents=True)
    (collection / "cluster").symlink_to(ROOT)
    (tmp_path / "ansible.cfg").write_text("[defaults]\nlocalhost_warning = False\n", encoding="utf-8")

    def playbook(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [str(PROGRAM), str(ROOT / "playbooks" / "explain.yml"), *arguments],
            cwd=tmp_path,
            check=False,
            capture_output=True,
            text=True,
            timeout=900,
            env={
                **os.environ,
                "PWD": str(tmp_path),
                "ANSIBLE_COLLECTIONS_PATH": str(tmp_path / "collections"),
                "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"),
                "ANSIBLE_NOCOLOR": "1",
            },
        )
        output = " ".join((done.stdout + done.stderr).split())
        assert "Traceback" not in output
        return done.returncode, output

    return playbook


@pytest.mark.older_core
def test_logs_are_explained_without_an_inventory_and_written_as_json(
    tmp_path: pathlib.Path, run: t.Callable[..., tuple[int, str]]
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "rank2.log").write_text(f"{TIMEOUT}\n", encoding="utf-8")
    (tmp_path / "logs" / "spark4.log").write_text(
        f"{{{{ 1 }}}} hf_0123456789abcdefghijklmn {KILLED}\n", encoding="utf-8"
    )
    code, output = run("-e", "log=logs", "-e", "dgxspark_report_file=out.json")
    assert code == 0, output
    assert "CAUSE 1 (error): The node ran out of memory" in output
    assert "rank2.log:1" in output and "remedy:" in output and "source:" in output
    assert "hf_0123" not in output
    assert "changed=0" in output
    written = tmp_path / "out.json"
    report = json.loads(written.read_text(encoding="utf-8"))
    jsonschema.validate(report, SCHEMA)
    assert [f["id"] for f in report["findings"] if f["root"]] == ["kernel.oom-kill"]
    assert report["findings"][0]["seen"][0]["excerpt"].startswith("{{ 1 }} *** kernel:")
    assert written.stat().st_mode & 0o777 == 0o600


@pytest.mark.more
def test_pasted_lines_and_a_limit_and_check_mode(tmp_path: pathlib.Path, run: t.Callable[..., tuple[int, str]]) -> None:
    (tmp_path / "pasted.yml").write_text(f"log_text: |\n  {TIMEOUT}\n  nothing\n", encoding="utf-8")
    (tmp_path / "hosts.yml").write_text(
        "all: {hosts: {spark1: {ansible_host: 127.0.0.1, ansible_port: 1}, spark2: {}}}\n", encoding="utf-8"
    )
    code, output = run("-i", "hosts.yml", "-l", "spark2", "-e", "@pasted.yml", "--check")
    assert code == 0, output
    assert "A collective hung" in output and "pasted text:1" in output


@pytest.mark.more
def test_an_unknown_log_is_no_failure_and_says_so(
    tmp_path: pathlib.Path, run: t.Callable[..., tuple[int, str]]
) -> None:
    (tmp_path / "my.log").write_text("all my own\n", encoding="utf-8")
    code, output = run("-e", "log=my.log")
    assert code == 0, output
    assert "NOTHING KNOWN FOUND in 1 line of 1 log" in output


@pytest.mark.more
@pytest.mark.parametrize(
    ("arguments", "needle"),
    [
        ((), "There is nothing to explain. Name a log"),
        (("-e", "log=absent.log"), "log: absent.log: cannot be read: No such file"),
        (("-e", "log=-"), "Ansible gives its tasks no standard input"),
        (("-e", "log="), "paths of logs are needed"),
    ],
)
def test_what_cannot_be_read_is_one_clear_error(
    run: t.Callable[..., tuple[int, str]], arguments: tuple[str, ...], needle: str
) -> None:
    code, output = run(*arguments)
    assert code != 0
    assert needle in output


@pytest.mark.older_core
@pytest.mark.parametrize("gone", ["pipe", "disk"])
def test_a_run_whose_output_nobody_takes_ends_as_it_would(tmp_path: pathlib.Path, gone: str) -> None:
    """`| head`, `q` in a pager, a full disk: ansible-core's thread that reads results ends with the write, and the run waited for ever."""
    collection = tmp_path / "collections" / "ansible_collections" / "dgxspark"
    collection.mkdir(parents=True)
    (collection / "cluster").symlink_to(ROOT)
    (tmp_path / "rank0.log").write_text(f"{KILLED}\n", encoding="utf-8")
    read, write = os.pipe()
    os.close(read)
    out = write if gone == "pipe" else os.open("/dev/full", os.O_WRONLY)
    done = subprocess.run(
        [
            str(PROGRAM),
            str(ROOT / "playbooks" / "explain.yml"),
            "-e",
            "log=rank0.log",
            "-e",
            "dgxspark_report_file=o.json",
        ],
        cwd=tmp_path,
        check=False,
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        env={
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(tmp_path / "collections"),
            "ANSIBLE_STDOUT_CALLBACK": "dgxspark.cluster.answer",
            "ANSIBLE_LOCALHOST_WARNING": "no",
            "ANSIBLE_INVENTORY_UNPARSED_WARNING": "no",
            "PYTHONUNBUFFERED": "1",
        },
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "o.json").read_text(encoding="utf-8"))["findings"]
    full = "The output could not be written (No space left on device); the run goes on.\n"
    assert done.stderr == (full if gone == "disk" else "")
