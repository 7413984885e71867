# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Image names as owners write them, and their place in a registry."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.image import DIGEST, full

_NAME = re.compile(r"^(?P<repository>[^@\s]+?)(?::(?P<tag>[\w][\w.-]{0,127}))?(?:@(?P<digest>\S+))?$")


@dataclass(frozen=True, slots=True)
class Reference:
    """registry: as in names, such as docker.io. repository: within it. tag: derived from the digest if none was given."""

    registry: str
    repository: str
    tag: str
    digest: str | None

    @property
    def name(self) -> str:
        """The full name by tag: K3s imports no other name, and adds the one by digest itself (retagImages)."""
        return f"{self.registry}/{self.repository}:{self.tag}"

    @property
    def tag_or_digest(self) -> str:
        """What to request from a registry: a digest takes precedence over a tag."""
        return self.digest or self.tag


def parse(text: str) -> Reference:
    """Parse a reference. CollectionError if it is not one."""
    found = _NAME.match(text)
    if not found or (found["digest"] and not DIGEST.match(found["digest"])):
        raise CollectionError(f"{text!r} is not an image that can be pulled: REPOSITORY:TAG or REPOSITORY@sha256:…")
    registry, _slash, rest = full(found["repository"]).removesuffix(":latest").partition("/")
    digest = found["digest"]
    return Reference(registry, rest, found["tag"] or (f"sha256-{digest[7:19]}" if digest else "latest"), digest)
