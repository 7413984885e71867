# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HTTP on the controller: a client, complete responses of bounded size, and one-sentence errors that name the URL."""

from __future__ import annotations

import contextlib
import re
import time
import typing as t

try:
    import httpx
except ImportError as exc:
    httpx = None  # type: ignore[assignment,unused-ignore]
    HTTPX_ERROR: ImportError | None = exc
else:
    HTTPX_ERROR = None

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

SMALL = 16 * 2**20  # bytes; the largest page or manifest accepted


def needed() -> None:
    """Raise CollectionError if httpx is missing."""
    if httpx is None:
        raise CollectionError(
            f"The Python package httpx is missing on the controller ({HTTPX_ERROR}). Install it: pip install 'httpx>=0.27'"
        )


def client(connect: float = 20.0, environment: t.Mapping[str, str] | None = None) -> httpx.Client:
    """Return a client that follows redirects and uses the environment's proxies, or those of the given environment, if it has any.

    connect: seconds to wait for a connection.
    """
    needed()
    waits = httpx.Timeout(60.0, connect=connect)
    proxies = _proxies(environment or {})
    with named("proxy"):
        return httpx.Client(follow_redirects=True, timeout=waits, mounts=proxies, trust_env=not proxies)


def _proxies(environment: t.Mapping[str, str]) -> dict[str, httpx.HTTPTransport | None]:
    """Return the transports of an environment's proxies: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY, in either case."""
    given = {key.lower(): value for key, value in environment.items()}
    found: dict[str, httpx.HTTPTransport | None] = {}
    for scheme in ("http", "https", "all"):
        if url := given.get(f"{scheme}_proxy"):
            with named("proxy"):
                found[f"{scheme}://"] = httpx.HTTPTransport(proxy=url)
    for host in given.get("no_proxy", "").split(",") if found else ():
        if name := host.strip().lstrip("."):
            found[f"all://{name}"] = found[f"all://*.{name}"] = None
    return found


def _online(error: Exception) -> str:
    """Return what to look at where a server was not even reached, else ""."""
    return (
        " Is this machine online, or does it need a proxy (HTTPS_PROXY)?"
        if isinstance(error, httpx.ConnectError)
        else ""
    )


@contextlib.contextmanager
def named(url: str) -> t.Iterator[None]:
    """Turn the library's errors into one sentence. It omits query strings, because redirects carry signatures in them."""
    where = url.partition("?")[0]
    try:
        yield
    except httpx.HTTPStatusError as exc:
        raise CollectionError(
            f"{where}: the server says {exc.response.status_code} {exc.response.reason_phrase}."
        ) from exc
    except (httpx.HTTPError, httpx.InvalidURL) as exc:
        raise CollectionError(
            f"{where} could not be downloaded: {str(exc).partition('?')[0] or type(exc).__name__}.{_online(exc)}"
        ) from exc


def refused(error: CollectionError) -> bool:
    """Whether the server refused the request, so that a retry is useless."""
    cause = error.__cause__
    return isinstance(cause, httpx.HTTPStatusError) and cause.response.status_code < 500


def small(
    asked: httpx.Client,
    url: str,
    headers: t.Mapping[str, str] | None = None,
    most: int = SMALL,
    seconds: float | None = None,
) -> httpx.Response:
    """Return a complete response of at most `most` bytes, whatever its status. CollectionError if there is none.

    seconds: the most that the whole answer may take, however slowly it comes.
    """
    begun = time.monotonic()
    with named(url), asked.stream("GET", url, headers=dict(headers or {})) as answer:
        body = bytearray()
        for chunk in answer.iter_bytes():
            body += chunk
            if len(body) > most:
                raise CollectionError(f"{url}: the answer is larger than {most >> 20} MiB, the most that is read.")
            if seconds is not None and time.monotonic() - begun > seconds:
                raise CollectionError(f"{url}: the answer took more than {seconds:g} seconds.")
        headers_kept = [(key, value) for key, value in answer.headers.multi_items() if key != "content-encoding"]
        return httpx.Response(answer.status_code, headers=headers_kept, content=bytes(body), request=answer.request)


def page(asked: httpx.Client, url: str, headers: t.Mapping[str, str] | None = None) -> httpx.Response:
    """Return a complete response. CollectionError if the server refuses."""
    answer = small(asked, url, headers)
    with named(url):
        answer.raise_for_status()
    return answer


def size_of(asked: httpx.Client, url: str, headers: t.Mapping[str, str] | None = None) -> int | None:
    """Return the size of a URL in bytes, or None if the server does not say or does not allow HEAD."""
    with named(url):
        answer = asked.head(url, headers=dict(headers or {}))
        if answer.status_code in (403, 405, 501):
            return None
        answer.raise_for_status()
    said = answer.headers.get("content-length", "")
    return int(said) if re.fullmatch(r"[0-9]{1,15}", said) else None
