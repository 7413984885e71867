"""Run by test_guides.py: have Ansible parse commands up to their task lists, in one process that forks for each.

A process for each command would take a second or two, most of it imports. Reads a JSON list of argument lists from stdin
and writes a list of [exit status, output].
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback

from ansible.cli.playbook import PlaybookCLI
from ansible.errors import AnsibleError


def take(words: list[str]) -> tuple[int, str]:
    """Return the command's exit status and output."""
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if not child:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            code = 1
            try:
                code = PlaybookCLI([*words, "--list-tasks"]).run()
            except (AnsibleError, SystemExit) as error:
                print(error)
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            os._exit(code)
        _pid, status = os.waitpid(child, 0)
        said.seek(0)
        return os.waitstatus_to_exitcode(status), said.read().decode()


if __name__ == "__main__":
    print(json.dumps([take(words) for words in json.load(sys.stdin)]))
