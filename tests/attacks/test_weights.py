"""Lists of weights that lie about names, places and sizes."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.module_utils.weights import cache

FILE = {"path": "a/b.safetensors", "blob": "a" * 64, "size": 5, "sha256": "b" * 64}
LIST = {"repo": "org/model", "revision": "c" * 40, "files": [FILE], "ignore": []}


def test_a_list_is_read() -> None:
    assert cache.checked(LIST, "here").size == 5


@pytest.mark.parametrize(
    "change",
    [
        *(
            {"path": path}
            for path in ("/etc/passwd", "../x", "a/../../x", "", "a//b", "./a", "a\n", "a\x1b[2J", "a/", "x" * 5000)
        ),
        *({"blob": blob} for blob in ("a" * 64 + "\n", "../a", "A" * 64, "a" * 63)),
        *({"sha256": digest} for digest in ("b" * 64 + "\n", "b" * 63, "")),
        *({"size": size} for size in (-1, 2**60, 10**400, True, "5", 1.5)),
    ],
    ids=str,
)
def test_a_list_that_lies_is_refused(change: dict[str, t.Any]) -> None:
    with pytest.raises(CollectionError, match="here") as caught:
        cache.checked(LIST | {"files": [FILE | change]}, "here")
    assert str(caught.value).isprintable() and len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "change",
    [{"revision": "c" * 40 + "\n"}, {"repo": "org/model\n"}, {"repo": "/org"}, {"files": [None]}, {"files": {}}],
    ids=str,
)
def test_so_is_one_of_another_repository_or_form(change: dict[str, t.Any]) -> None:
    with pytest.raises(CollectionError):
        cache.checked(LIST | change, "here")
