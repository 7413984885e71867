"""What containerd says when an image cannot be had, and what an owner is told of it. The lines are containerd's; no containerd runs."""

from __future__ import annotations

import shlex

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.images.containerd import Containerd
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import FabricError

DIGEST = "sha256:" + "401403404429" * 5 + "0000"
NAME = f"registry.example/ours/engine-401@{DIGEST}"
HEAD = "unexpected status from HEAD request to https://registry.example/v2/ours/engine-429/manifests"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (f'ctr: failed to resolve reference "{NAME}": {NAME}: not found', "There is no such image"),
        (f"ctr: {HEAD}/{DIGEST}: 404 Not Found", "There is no such image"),
        (f"ctr: {HEAD}/1: 401 Unauthorized", "wants somebody known"),
        (
            f"ctr: unexpected status code https://registry.example/v2/a/blobs/{DIGEST}: 403 Forbidden",
            "wants somebody known",
        ),
        (f"ctr: {HEAD}/{DIGEST}: 429 Too Many Requests", "asks for patience"),
        (f"ctr: failed to copy: write /blobs/{DIGEST}: no space left on device", "The disk is full"),
    ],
)
def test_a_status_is_not_looked_for_in_names_and_digests(line: str, told: str) -> None:
    ctr = Containerd(("sh", "-c", f"echo {shlex.quote(line)} >&2; exit 1", "ctr"), "/nowhere")
    with pytest.raises(FabricError, match=told):
        ctr.run(["images", "pull", NAME])
