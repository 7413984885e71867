"""A module that documents an action plugin: its arguments are checked, and running it on a host says where the work is done."""

from __future__ import annotations

import json
import typing as t

import pytest
from ansible.module_utils import basic
from ansible.module_utils.testing import patch_module_args

from ansible_collections.dgxspark.cluster.plugins.modules import kube_wait

WAIT = {"namespace": "dgx-serving", "instance": "default", "plan": "p", "ranks": 2}


def refused(capfd: t.Any, **arguments: t.Any) -> str:
    own = {"_ansible_module_name": "dgxspark.cluster.kube_wait"}
    with patch_module_args({**arguments, **own}), pytest.raises(SystemExit):
        kube_wait.main()
    said = json.loads(capfd.readouterr().out)
    assert said["failed"]
    return str(said["msg"])


def test_a_host_that_runs_it_says_what_does_the_work(capfd: t.Any) -> None:
    assert "kube_wait runs on the controller" in refused(capfd, **WAIT)
    assert "Call it as dgxspark.cluster.kube_wait." in refused(capfd, **WAIT)


def test_arguments_are_checked_with_their_rules(capfd: t.Any) -> None:
    assert "Unsupported parameters" in refused(capfd, **WAIT, instanc="default")
    assert "missing: plan" in refused(capfd, **{key: value for key, value in WAIT.items() if key != "plan"})


def test_a_linter_sees_the_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """ansible-lint replaces AnsibleModule where modules import it from, and asks `main`."""
    seen: dict[str, t.Any] = {}

    def instead(**given: t.Any) -> t.NoReturn:
        seen.update(given)
        raise KeyboardInterrupt

    monkeypatch.setattr(basic, "AnsibleModule", instead)
    with pytest.raises(KeyboardInterrupt):
        kube_wait.main()
    assert seen["argument_spec"] == kube_wait.ARGUMENTS
    assert seen["required_if"] == kube_wait.REQUIRED_IF
