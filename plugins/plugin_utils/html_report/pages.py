# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chooses a report's page by its form."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report import bench, matrix_page, page


def of_report(report: t.Any, knowledge_dirs: t.Sequence[str] = ()) -> str:
    """Return the page of a report: of verify or a benchmark as written, or of a matrix by its folder, journal or id.

    knowledge_dirs: the owner's, to find a matrix of theirs. Raises CollectionError for anything else.
    """
    if isinstance(report, str):
        return matrix_page.of_log(report, [str(path) for path in knowledge_dirs])
    if isinstance(report, t.Mapping) and "format" in report:
        return bench.page(report)
    return page.page(report)
