# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every front on the core shares: expected errors of ours become Ansible's, with the name of the front."""

from __future__ import annotations

import functools
import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import FabricError, to_plain

P = t.ParamSpec("P")


def as_filter(name: str, function: t.Callable[P, t.Any], *, convert: bool = True) -> t.Callable[P, t.Any]:
    """Make a Jinja filter of a core function: plain results, and AnsibleFilterError for a FabricError.

    convert: False where the function's result is plain already (and large).
    """

    @functools.wraps(function)
    def front(*args: P.args, **kwargs: P.kwargs) -> t.Any:
        try:
            result = function(*args, **kwargs)
            return to_plain(result) if convert else result
        except FabricError as exc:
            raise AnsibleFilterError(f"dgxspark.cluster.{name}: {exc}") from exc

    return front
