# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of images, as owners write them and as containerd keeps them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import FabricError

DIGEST = re.compile(r"^sha256:[0-9a-f]{64}$")
_NAME = re.compile(r"^(?P<repository>[^@\s]+?)(?::(?P<tag>[\w][\w.-]{0,127}))?(?:@(?P<digest>\S+))?$")


@dataclass(frozen=True, slots=True)
class Reference:
    """spelled: as the owner wrote it, without a digest. repository: with its registry, as containerd has it."""

    spelled: str
    repository: str
    tag: str | None
    digest: str | None

    @property
    def asked(self) -> str:
        """What is asked for, in containerd's spelling: by digest where there is one (a tag beside it says nothing)."""
        return self.kept(self.digest) if self.digest else f"{self.repository}:{self.tag}"

    def kept(self, digest: str) -> str:
        """Return the name under which the kubelet looks for a digest, and under which it is kept."""
        return f"{self.repository}@{digest}"

    def pinned(self, digest: str) -> str:
        """Return what a pod shall ask for: the owner's own words, and the digest."""
        return f"{self.spelled}@{digest}"


def parse(text: str) -> Reference:
    """Return a reference; FabricError for what is none.

    The first word is a registry where it has a dot, a port, or is localhost; else the registry is Docker Hub, whose
    one-word repositories are below library/ (the rule of the reference grammar in distribution/reference).
    """
    found = _NAME.match(text)
    if not found or (found["digest"] and not DIGEST.match(found["digest"])):
        raise FabricError(
            f"{text!r} is no image that can be pulled: REPOSITORY:TAG or REPOSITORY@sha256:… (k8s_dgx_image)."
        )
    repository, tag, digest = found["repository"], found["tag"], found["digest"]
    registry, slash, rest = repository.partition("/")
    if not slash or not (set(registry) & {".", ":"} or registry == "localhost"):
        registry, rest = "docker.io", repository
    registry = "docker.io" if registry == "index.docker.io" else registry
    rest = f"library/{rest}" if registry == "docker.io" and "/" not in rest else rest
    tag = tag or (None if digest else "latest")
    return Reference(text.partition("@")[0], f"{registry}/{rest}", tag, digest)
