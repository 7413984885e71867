# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wraps core functions as Jinja filters: an expected error becomes an Ansible error that names the filter."""

from __future__ import annotations

import importlib
import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, to_plain

CORE = __name__.rpartition(".")[0]


def as_filter(name: str, function: t.Callable[..., t.Any] | str, *, convert: bool = True) -> t.Callable[..., t.Any]:
    """Make a Jinja filter from a core function: it returns plain data, and turns CollectionError into AnsibleFilterError.

    function: the function, or `module:function` below plugin_utils, imported on the filter's first call.
    To find one filter, Ansible imports every filter file of a collection, in each process that uses one, and compiles each
    module from source: a filter file must not import at module level what it needs only when called.
    convert: False if the result is already plain (and large).
    """

    def front(*args: t.Any, **kwargs: t.Any) -> t.Any:
        try:
            result = _function(function)(*args, **kwargs)
            return to_plain(result) if convert else result
        except CollectionError as exc:
            raise AnsibleFilterError(f"dgxspark.cluster.{name}: {exc}") from exc

    front.__name__ = name
    return front


def _function(function: t.Callable[..., t.Any] | str) -> t.Callable[..., t.Any]:
    if not isinstance(function, str):
        return function
    module, _colon, attribute = function.partition(":")
    found: t.Callable[..., t.Any] = getattr(importlib.import_module(f"{CORE}.{module}"), attribute)
    return found
