"""The API key: what is a valid one, and what its Secret's name reveals."""

from __future__ import annotations

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.api_key import secret_name

KEY = "3b" * 32


def test_a_name_is_of_the_key_and_of_where_it_is_for() -> None:
    name = secret_name(KEY, "dgx-serving", "default")
    assert name == secret_name(KEY, "dgx-serving", "default")
    assert name.startswith("serve-default-api-")
    assert KEY[:8] not in name
    others = [("4b" * 32, "dgx-serving", "default"), (KEY, "other", "default"), (KEY, "dgx-serving", "coder")]
    assert len({name, *(secret_name(*other) for other in others)}) == 4


@pytest.mark.parametrize(
    "key", ["", " ", "short", KEY + "\n", "with a space " * 3, "x" * 1025, "ü" * 20, '"quoted"' * 4]
)
def test_what_is_no_key_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(CollectionError, match="openssl rand") as caught:
        secret_name(key, "dgx-serving", "default")
    assert not key.strip() or key.strip() not in str(caught.value)
