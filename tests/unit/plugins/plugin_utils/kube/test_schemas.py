"""Every object of every shipped profile, against Kubernetes' strict schemas; attachments against a schema of our own."""

from __future__ import annotations

import copy
import functools
import json
import pathlib
import typing as t

import jsonschema
import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import checksum
from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs as inputs

validator = pytest.importorskip("kubernetes_validate", reason="not run: kubernetes-validate is not installed")
NEWEST = "1.37"
NAD = jsonschema.Draft202012Validator(
    json.loads(pathlib.Path(__file__).with_name("nad.json").read_text(encoding="utf-8"))
)
Plain = dict[str, t.Any]
# Where Kubernetes allows arbitrary keys, so that no schema can detect a typo.
FREE = ("labels", "annotations", "matchLabels", "nodeSelector", "limits", "requests", "data", "config.json")
seen: dict[str, set[str]] = {}


@pytest.fixture(autouse=True, scope="module")
def read_schemas_once() -> t.Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validator.utils, "schema_contents", functools.cache(validator.utils.schema_contents))
        yield


def valid(made: Plain, version: str = NEWEST) -> None:
    if made["kind"] == "NetworkAttachmentDefinition":
        NAD.validate({**made, "spec": {**made["spec"], "config": json.loads(made["spec"]["config"])}})
    else:
        validator.validate(made, version, strict=True)


def all_objects(profile: str, count: int) -> t.Iterator[Plain]:
    for attachment in inputs.ATTACHMENTS:
        for made in inputs.fitting(profile, count, attachment):
            for rdma in inputs.ACCESSES:
                yield from inputs.objects(made, count, attachment, rdma)


def few(names: t.Sequence[str]) -> list[t.Any]:
    """Return every tenth for `make test`, and the others for `make test-more`."""
    return [name if at % 10 == 0 else pytest.param(name, marks=pytest.mark.more) for at, name in enumerate(names)]


@pytest.mark.parametrize("count", inputs.COUNTS)
@pytest.mark.parametrize("profile", few(inputs.PROFILES))
@pytest.mark.parametrize("version", [NEWEST, *(pytest.param(v, marks=pytest.mark.long) for v in ("1.35", "1.36"))])
def test_every_object_of_every_profile(version: str, profile: str, count: int) -> None:
    known = seen.setdefault(version, set())
    made = list(all_objects(profile, count))
    if not made:
        pytest.skip(f"{profile} cannot be cut over {count} nodes")
    for each in made:
        digest = checksum(each)
        if digest not in known:  # equal objects once
            valid(each, version)
            known.add(digest)


def test_the_newest_schemas_are_meant() -> None:
    assert validator.latest_version().startswith(NEWEST)


def test_every_profile_fits_somewhere() -> None:
    for profile in inputs.PROFILES:
        assert any(list(inputs.fitting(profile, count, "vf")) for count in inputs.COUNTS), profile


def keys(node: t.Any, path: tuple[t.Any, ...] = ()) -> t.Iterator[tuple[t.Any, ...]]:
    """Yield the path to every key whose spelling a schema can check."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield (*path, key)
            if key not in FREE:
                yield from keys(value, (*path, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from keys(value, (*path, index))


def misspelt(made: Plain, path: tuple[t.Any, ...]) -> Plain:
    broken = copy.deepcopy(made)
    place: t.Any = broken
    for key in path[:-1]:
        place = place[key]
    place[f"{path[-1]}x"] = place.pop(path[-1])
    return broken


def kinds() -> dict[str, Plain]:
    """Return one object of each kind and purpose, the rank with every optional part."""
    made = inputs.plan()
    more = {"hf_token_secret": "hf", "image_pull_secrets": ["registry"]}
    offline = [each for each in inputs.objects(made, hub_offline=True) if each["kind"] == "NetworkPolicy"]
    return {
        f"{each['kind']} {each['metadata']['name']}": each
        for each in (*inputs.objects(made, **more), *inputs.objects(made, attachment="host", rdma="privileged"))
        if "rank1" not in each["metadata"]["name"]
    } | {f"NetworkPolicy of {each['metadata']['name']} that does not ask the hub": each for each in offline}


@pytest.mark.parametrize("name", kinds())
def test_a_misspelt_key_is_refused(name: str) -> None:
    made = kinds()[name]
    valid(made)
    # A CRD's own schema and a Service's selector have arbitrary keys, too.
    free = {"openAPIV3Schema", *(["selector"] if made["kind"] == "Service" else [])}
    tried = [path for path in keys(made) if path[0] not in ("apiVersion", "kind") and not free & set(path[:-1])]
    assert tried
    for path in tried:
        with pytest.raises((jsonschema.ValidationError, KeyError)):
            valid(misspelt(made, path))
