# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shared by all HTML pages: escaping templates, the frame (frame.html.j2) and errors for damaged input.

Pages load no script, font or picture from anywhere; the frame's content security policy forbids it.
"""

from __future__ import annotations

import contextlib
import functools
import pathlib
import re
import typing as t

try:
    import jinja2
    import markupsafe
except ImportError as exc:  # it comes with ansible-core
    jinja2 = markupsafe = None  # type: ignore[assignment,unused-ignore]
    JINJA2_ERROR: ImportError | None = exc
else:
    JINJA2_ERROR = None

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

# A figure and its unit, or a command, which is to be copied as it is.
_FIGURE = re.compile(
    r"(?P<command><code>.*?</code>)"
    r"|(?P<figure>\d) (?P<unit>(?:[KMGT]i?B|[GM]b/s|[KMG]i?B/s|tok(?:ens)?/s|s|ms|\u00b5s|us|%|W|min|h)(?!\w))",
    re.DOTALL,
)
_NOTHING = ("", "-", "\u2013")


@functools.lru_cache(maxsize=16)
def _environment(filters: tuple[tuple[str, t.Callable[..., t.Any]], ...]) -> t.Any:
    """Return the Jinja environment for the pages' templates, which keeps those that it has compiled."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(pathlib.Path(__file__).resolve().parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=together,
    )
    made.filters |= {"commands": commands, "slashes": slashes, **dict(filters)}
    return made


def markup(text: str) -> t.Any:
    """Mark text as HTML, such as a drawing of svg.py."""
    return markupsafe.Markup(text)


def together(value: t.Any) -> t.Any:
    """Keep a text's figures on one line with their units; commands, and anything but text, are left as they are."""
    if not isinstance(value, str):
        return value
    made = _FIGURE.sub(lambda found: found["command"] or f"{found['figure']}\xa0{found['unit']}", value)
    return markup(made) if isinstance(value, markupsafe.Markup) else made


def filled(heads: t.Sequence[str], rows: t.Sequence[t.Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """Return a table without the columns in which no row has anything; the first, which names the rows, stays."""
    kept = [at for at in range(len(heads)) if not at or any(row[at] not in _NOTHING for row in rows)]
    return [heads[at] for at in kept], [[row[at] for at in kept] for row in rows]


def slashes(words: str) -> t.Any:
    """Let a long name break after a slash or an underscore, and nowhere else."""
    return markup("").join(
        markup("{}<wbr>").format(part) if part in ("/", "_") else markup("{}").format(part)
        for part in re.split(r"([/_])", words)
    )


def commands(words: str) -> t.Any:
    """Show backquoted text as code, and escape the rest as usual."""
    escape = markupsafe.escape
    parts = words.split("`")
    if len(parts) % 2 == 0:  # an unpaired backquote
        return escape(words)
    return markup("").join(
        escape(part) if number % 2 == 0 else markup("<code>{}</code>").format(part) for number, part in enumerate(parts)
    )


def render(template: str, content: t.Mapping[str, t.Any], filters: t.Mapping[str, t.Callable[..., t.Any]]) -> str:
    """Render a page. The frame needs `heading`, `sentence`, `facts` and `date` (None or a time)."""
    made = _environment(tuple(sorted(filters.items())))
    return str(made.get_template(template).render(**content))


@contextlib.contextmanager
def reading(damaged: str) -> t.Iterator[None]:
    """Turn the errors of damaged input into one CollectionError: `damaged` with {} for what is wrong.

    Also raises CollectionError if Jinja is missing.
    """
    if jinja2 is None:
        raise CollectionError(f"The Python package jinja2 is missing on the controller ({JINJA2_ERROR}).")
    try:
        yield
    except (KeyError, TypeError, StopIteration, jinja2.UndefinedError) as exc:
        raise CollectionError(damaged.format(exc)) from exc
