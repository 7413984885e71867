"""A command that names the first rank is run with its address."""

from __future__ import annotations

import subprocess
import sys

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.rank import rendezvous


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(rendezvous.__file__), *arguments], check=False, capture_output=True, text=True
    )


def test_the_engine_is_given_an_address() -> None:
    ran = run("5", "localhost", "echo", "--dist-init-addr=localhost:50000", "--master-addr", "localhost")
    assert (ran.returncode, ran.stdout) == (0, "--dist-init-addr=127.0.0.1:50000 --master-addr 127.0.0.1\n")


def test_what_cannot_be_found_is_named() -> None:
    nowhere = run("0", "nowhere.invalid", "echo", "nowhere.invalid")
    assert nowhere.returncode == 1
    assert "nowhere.invalid has no address" in nowhere.stderr and "Traceback" not in nowhere.stderr
    missing = run("5", "localhost", "/no/such/engine")
    assert missing.returncode == 1 and "/no/such/engine: No such file" in missing.stderr
