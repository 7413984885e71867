"""k8s_dgx_free_gib means the same to every playbook that takes it: one number for all Sparks, or by host."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.support.kube_owner import Owner
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import names

PROFILE = "glm-4.7-nvfp4"
PLAYBOOKS = ("plan", "models", "serve", "groups")
FORMS = {"a text": '"100"', "by host": json.dumps(dict.fromkeys(names(4), 100))}
TOO_LITTLE = "9"

pytestmark = [pytest.mark.long, pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN)]


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Owner]:
    made = Owner(tmp_path_factory.mktemp("free"))
    yield made
    made.server.shutdown()


def told(owner: Owner, playbook: str, given: str) -> tuple[int, str]:
    owner.choose(f"{playbook}.yml")
    options = ["--check", "-e", f'{{"k8s_dgx_free_gib": {given}}}'] + (
        ["--tags", "serving"] if playbook == "plan" else []
    )
    code, said, _changed = owner.run(*options, k8s_dgx_model_profile=PROFILE)
    return code, said


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_each_form_is_taken_and_means_the_same(playbook: str, owner: Owner) -> None:
    ended = {form: told(owner, playbook, given)[0] for form, given in FORMS.items()}
    assert ended == dict.fromkeys(FORMS, 0)


@pytest.mark.parametrize("playbook", ["plan", "serve"])
def test_too_little_is_too_little_for_all_of_them(playbook: str, owner: Owner) -> None:
    code, said = told(owner, playbook, TOO_LITTLE)
    assert code and "9" in said and "weights" in said, said


def test_the_playbooks_that_take_it_are_these() -> None:
    """What plans for a cluster reads it by the role's variables; `profile` and `matrix` plan by the same function."""
    playbooks = pathlib.Path(harness.ROOT / "playbooks")
    direct = {path.stem for path in playbooks.rglob("*.yml") if "k8s_dgx_free_gib" in path.read_text(encoding="utf-8")}
    assert direct <= {*PLAYBOOKS, "profile"}
