# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a model for a new profile: from a folder on the controller, a node's cache, or the hub.

It reads only configuration and the list of tensors, never weights.
"""

from __future__ import annotations

import pathlib
import re
import stat
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import from_json
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.module_utils.weights.cache import JSON_MOST

from ..profile.model_files import CONFIG, QUANT, read_json

GENERATION, INDEX = "generation_config.json", "model.safetensors.index.json"
FILES = (CONFIG, QUANT, GENERATION, INDEX)
ENDPOINT = "https://huggingface.co"
_HEADER = 100 * 2**20  # the format's own limit
_SMALL = 4 * 2**20  # bytes of a configuration; only the list of tensors is larger
_POINTER = b"version https://git-lfs.github.com/spec/"
CONNECT_S, ANSWER_S = 10.0, 120.0
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
Plain = dict[str, t.Any]


@dataclass(frozen=True)
class Source:
    """A model's files, parsed, by name. where: their name in errors and sources; model: the hub's name, if known."""

    files: t.Mapping[str, Plain]
    where: str
    model: str | None = None
    revision: str | None = None
    headers: tuple[Plain, ...] = field(default=(), repr=False)


def is_folder(model: str) -> bool:
    """Whether a model is given as a path: an existing folder, or a string that can only be a path."""
    return model.startswith(("/", "./", "../", "~")) or pathlib.Path(model).is_dir()


def checked(files: t.Mapping[str, t.Any], where: str, model: str | None, revision: str | None) -> Source:
    """Return files as a source. Raises CollectionError if config.json is missing or a file is not an object."""
    for name, content in files.items():
        if not isinstance(content, dict):
            raise CollectionError(f"{where}: {name}: an object is needed, not {type(content).__name__}.")
    if CONFIG not in files:
        raise CollectionError(
            f"{where} has no {CONFIG}. Name the folder of the model itself, a cached model, or the model by its name on the hub (org/name)."
        )
    return Source(dict(files), where, model, revision)


def folder(path: str, headers: bool = True) -> Source:
    """Read a model's folder: its own, a snapshot in the hub's cache, or the cache's folder of the model (models--org--name).

    headers: whether to read those of its safetensors files.
    """
    place = pathlib.Path(path).expanduser()
    named = next((each for each in (place, *place.parents[:2]) if each.name.startswith("models--")), None)
    if named == place:
        place = _snapshot(place)
    if not place.is_dir():
        raise CollectionError(
            f"{path}: there is no such folder on the controller. Name a folder, or the model by its name on the hub (org/name)."
        )
    files = {name: read_json(place / name) for name in FILES if (place / name).is_file()}
    model = named.name.removeprefix("models--").replace("--", "/", 1) if named else None
    revision = place.name if named and re.fullmatch(r"[0-9a-f]{40}", place.name) else None
    source = checked(files, str(place), model, revision)
    read = tuple(_header(file) for file in sorted(place.glob("*.safetensors"))) if headers else ()
    return Source(source.files, source.where, model, revision, read)


def _snapshot(cached: pathlib.Path) -> pathlib.Path:
    """Return the snapshot of a cached model's main branch, else its only one."""
    try:
        commit = (cached / "refs" / "main").read_text(encoding="utf-8").strip()
        if re.fullmatch(r"[0-9a-f]{40}", commit):
            return cached / "snapshots" / commit
    except OSError:
        pass
    held = sorted(each for each in (cached / "snapshots").glob("*") if each.is_dir())
    if len(held) != 1:
        raise CollectionError(
            f"{cached}: it has {len(held)} snapshots and no refs/main. Name the folder of one, below snapshots/."
        )
    return held[0]


def _header(file: pathlib.Path) -> Plain:
    try:
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            if not 2 <= length <= _HEADER:
                raise CollectionError(
                    f"{file}: it is not a safetensors file: its header would have {length} bytes. Fetch it again."
                )
            header = from_json(opened.read(length), most=_HEADER)
    except (OSError, ValueError) as exc:
        raise CollectionError(
            f"{file}: its header cannot be read: {exc}. Fetch it again, or leave the weights out."
        ) from exc
    if not isinstance(header, dict):
        raise CollectionError(f"{file}: its header is not an object. Fetch it again.")
    return header


def _token(path: str | None) -> str | None:
    """Read the hub token. Raises CollectionError if users other than its owner may read it."""
    if not path:
        return None
    place = pathlib.Path(path).expanduser()
    try:
        if stat.S_IMODE(place.stat().st_mode) & 0o077:
            raise CollectionError(
                f"token_file: {place} can be read by others. chmod 600 it, and create a new token if others should not have it."
            )
        token = place.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise CollectionError(
            f"token_file: {place} cannot be read: {exc}. Check the path and its permissions."
        ) from exc
    if not token or not token.isprintable() or " " in token:
        raise CollectionError(f"token_file: {place} has no token, or more than one line. Put only the hub token there.")
    return token


def is_on_hub(model: str) -> bool:
    """Whether a model's name may be one of the hub (org/name)."""
    return _REPO.fullmatch(model) is not None


@dataclass(frozen=True)
class Hub:
    """How to ask the hub. token: itself, or a file that has it. environment: proxies, as for the weights."""

    endpoint: str | None = None
    token_file: str | None = None
    token: str | None = field(default=None, repr=False)
    environment: t.Mapping[str, str] = field(default_factory=dict)


def hub(model: str, revision: str | None = None, where: Hub | None = None, names: t.Sequence[str] = FILES) -> Source:
    """Fetch a model's files from the hub. The token goes only to the endpoint: httpx drops it on redirects to another host.

    The list of tensors is fetched only if no other file says how they are stored, or if `names` are all files.
    """
    # Its library takes longer to import than all of the planner, and few plans ask the hub.
    from ansible_collections.dgxspark.cluster.plugins.plugin_utils import http_client

    where = where or Hub()
    if not is_on_hub(model):
        raise CollectionError(f"model: {model!r} is neither an existing folder nor a name on the hub (org/name).")
    base = (where.endpoint or ENDPOINT).rstrip("/")
    token = where.token or _token(where.token_file)
    if token and not base.startswith("https://"):
        raise CollectionError(
            f"endpoint: {base}: a token goes over https:// only. Leave token_file out, or name an https:// endpoint."
        )
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    files: dict[str, Plain] = {}
    commit = revision
    with http_client.client(CONNECT_S, where.environment) as asked:
        for name in names:
            if name == INDEX and names != FILES and (QUANT in files or _quantized(files[CONFIG])):
                continue
            url = f"{base}/{model}/resolve/{commit or 'main'}/{name}"
            answer = http_client.small(asked, url, headers, JSON_MOST if name == INDEX else _SMALL, ANSWER_S)
            if answer.status_code == 404 and name != CONFIG:
                continue
            files[name] = _answered(url, answer.status_code, answer.content)
            # All files come from the commit of the first one, whatever is pushed meanwhile.
            said = answer.headers.get("x-repo-commit", "")
            commit = said if re.fullmatch(r"[0-9a-f]{40}", said) else commit
    return checked(files, f"{base}/{model}", model, commit if re.fullmatch(r"[0-9a-f]{40}", commit or "") else None)


def _quantized(config: t.Any) -> bool:
    """Whether a config.json says how its model is quantised, itself or for its text model."""
    inner = config.get("text_config") if isinstance(config, dict) else None
    return any(isinstance(each, dict) and "quantization_config" in each for each in (config, inner))


def _answered(url: str, status: int, content: bytes) -> t.Any:
    """Return an answer's JSON. Raises CollectionError that says what the hub refused."""
    if status in (401, 403):
        raise CollectionError(
            f"{url}: the hub says {status}: the model does not exist, or access must be requested. Accept its terms on its "
            "page, and give the token of that account (dgxspark_hub_token_file)."
        )
    if status != 200:
        raise CollectionError(f"{url}: the hub says {status}. Check the name, the revision and dgxspark_hub_endpoint.")
    if content.startswith(_POINTER):
        raise CollectionError(
            f"{url}: it is a pointer of Git LFS, not the file: that mirror has no large files. Name another one (dgxspark_hub_endpoint)."
        )
    try:
        return from_json(content, most=JSON_MOST, of_python=True)
    except ValueError as exc:
        raise CollectionError(f"{url}: it is not JSON: {exc}. Check dgxspark_hub_endpoint.") from exc


def read(
    model: str,
    node_files: t.Mapping[str, t.Any] | None = None,
    revision: str | None = None,
    endpoint: str | None = None,
    token_file: str | None = None,
) -> Source:
    """Return a model's files: a node's cached files if given, else from a folder, else from the hub."""
    if node_files is not None:
        return checked(node_files, f"the node's cache of {model}", model, revision)
    return folder(model) if is_folder(model) else hub(model, revision, Hub(endpoint, token_file))
