# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Get the weights of a repository onto one node: from the hub, or from a folder that has them; verified, with their list."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import time
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.beneath import Beneath
from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import from_json
from ansible_collections.dgxspark.cluster.plugins.module_utils.oserrors import cannot
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs import hub
from ansible_collections.dgxspark.cluster.plugins.module_utils.source import source_of
from ansible_collections.dgxspark.cluster.plugins.module_utils.transfer import parcel as parcels
from ansible_collections.dgxspark.cluster.plugins.module_utils.transfer.progress import Progress
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.module_utils.weights import cache
from ansible_collections.dgxspark.cluster.plugins.module_utils.weights.cache import Manifest

Plain = dict[str, t.Any]
GIT = 40  # hexadecimal digits of a non-LFS blob
_REMEDIES = {
    "token": "The hub requires a token (401): the repository is private or gated, or does not exist. Set "
    "k8s_dgx_hf_token to a token that may read it.",
    "gated": "The repository is gated, and this token may not read it. Accept its terms on its page as the token's owner, and "
    "make sure that the token may read gated repositories (k8s_dgx_hf_token).",
    "unknown": "The hub has no such repository, or hides it without a token (k8s_dgx_hf_token).",
    "revision": "The hub has no such revision. Name a commit of it in model_weights_revisions.",
    "disabled": "The hub has switched this repository off.",
    "name": "The hub does not accept this name.",
    "busy": "The hub limits the request rate (429). Run again later; a token (k8s_dgx_hf_token) has a higher limit.",
    "network": "The hub could not be reached. Check that this node can reach it (a proxy goes into model_weights_hub_environment), or "
    "give the weights in a folder (model_weights_source).",
    "full": "The disk is full. Free space on it and run again.",
    "library": "This Python has no huggingface_hub. Name one that has in model_weights_hub_python, or leave it empty to have one created.",
}


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """What to fetch. root: the folder of caches. revision: a commit, or a branch or tag (None: main).

    python: one that has huggingface_hub. source: a folder in the layout of the hub's cache, with our list; then nothing is
    downloaded. token: a file for HF_TOKEN_PATH. environment: for the library (proxies, HF_ENDPOINT). verify: read every file,
    and compare with the hub's list (or the source's), not with the node's own.
    """

    root: str
    repo: str
    revision: str | None = None
    python: str = "python3"
    ignore: tuple[str, ...] = ()
    source: str | None = None
    token: str | None = None
    reserve_gib: float = 0.0
    environment: dict[str, str] = field(default_factory=dict)
    verify: bool = False

    @property
    def coming(self) -> str:
        """Where downloads are written: only root has access."""
        return f"{self.root}/{cache.COMING}"


class HubError(CollectionError):
    """The hub was not reached, or refused. cause: one of _REMEDIES."""

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause


def ask(wanted: FetchRequest, what: Plain) -> Plain:
    """Run the hub's library; CollectionError names the cause and the remedy."""
    repo = wanted.repo
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING"))}
    environment = {
        **inherited,
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        # Shared blobs would be links out of the repository's own folder.
        "HF_HUB_DISABLE_SHARED_BLOBS": "1",
        "HF_HUB_CACHE": wanted.coming,
        "HF_HOME": f"{wanted.root}/{cache.OWN}",
        **wanted.environment,
        # Never use a token that someone left on the node.
        "HF_TOKEN_PATH": wanted.token or "/nonexistent",
    }
    told = json.dumps({"repo": repo, "ignore": list(wanted.ignore), "cache": wanted.coming, **what})
    try:
        ran = subprocess.run(  # pylint: disable=ansible-bad-function
            [wanted.python, "-", told],
            input=source_of(hub),
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as exc:
        raise HubError("library", f"{wanted.python}: {exc.strerror}. {_REMEDIES['library']}") from exc
    try:
        said = from_json(ran.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        last = " ".join(ran.stderr.split())[-400:]
        raise CollectionError(
            f"{repo}: the hub's library ended with status {ran.returncode}: {last or 'no output'}"
        ) from None
    if "cause" in said:
        remedy = _REMEDIES.get(said["cause"], "")
        raise HubError(said["cause"], f"{repo}: {remedy} ({said.get('kind', 'ImportError')}: {said['detail']})")
    return t.cast(Plain, said)


def listing(wanted: FetchRequest) -> Plain:
    """Return the hub's listing: `revision` (the commit) and `files`."""
    return ask(wanted, {"do": "list", "revision": wanted.revision or "main"})


def prospect(wanted: FetchRequest) -> Plain:
    """Return what a fetch would bring: `revision`, `total` and `missing` (bytes). Moves nothing; checks the room on disk."""
    there = cache.read(wanted.root, wanted.repo, wanted.revision)
    seen = parcels.state(cache.parcel(wanted.root, there)) if there else None
    if there and seen and not seen.missing:
        return {"revision": there.revision, "total": seen.total, "missing": 0}
    if wanted.source:
        manifest = source_manifest(wanted)
        seen = parcels.state(cache.parcel(wanted.root, manifest))
        found: Plain = {"revision": manifest.revision, "total": seen.total, "missing": seen.missing}
    else:
        told = listing(_pinned(wanted, there))
        total = sum({each["sha256"] or each["blob"]: each["size"] for each in told["files"]}.values())
        found = {"revision": told["revision"], "total": total, "missing": cache.missing(wanted.root, wanted.repo, told)}
    parcels.refuse_full_disk(wanted.root, found["missing"], wanted.reserve_gib, wanted.repo)
    return found


def fetch(wanted: FetchRequest, progress: Progress, warn: t.Callable[[str], None] = lambda _text: None) -> Manifest:
    """Get a commit onto this node, complete and verified; return its list. Existing files are read, not downloaded again."""
    there = cache.read(wanted.root, wanted.repo, wanted.revision)
    if there and wanted.verify:
        parcels.break_seal(cache.parcel(wanted.root, there))
        there = _confirmed(wanted, there, warn)
    known: parcels.Known = {}
    if there is None or not _right(cache.parcel(wanted.root, there), known, progress):
        there = (
            _copied(wanted, known, progress) if wanted.source else _downloaded(_pinned(wanted, there), known, progress)
        )
    parcels.lay(cache.parcel(wanted.root, there), known)
    return there


def _confirmed(wanted: FetchRequest, there: Manifest, warn: t.Callable[[str], None]) -> Manifest | None:
    """Return the node's list if it matches the source's, or the hub's; None if it differs and must be rebuilt."""
    if wanted.source:
        return there if source_manifest(wanted).files == there.files else None
    try:
        told = listing(_pinned(wanted, there))
    except HubError as exc:
        if exc.cause not in ("network", "library", "busy"):
            raise
        warn(f"The files were compared only with this node's own list, since the hub was not reached: {exc}")
        return there
    promised = {each["path"]: (each["sha256"] or each["blob"], each["size"]) for each in told["files"]}
    # A blob's name is the hub's promise: git's id, or the SHA-256.
    same = promised == {file.path: (file.blob, file.size) for file in there.files}
    return there if same and all(len(f.blob) == GIT or f.blob == f.sha256 for f in there.files) else None


def _pinned(wanted: FetchRequest, there: Manifest | None) -> FetchRequest:
    """Return the request with the commit that the node already has, unless it names a revision itself."""
    return dataclasses.replace(wanted, revision=wanted.revision or (there.revision if there else None))


def _right(goal: parcels.Parcel, known: parcels.Known, progress: Progress) -> bool:
    """Whether all files exist and are correct; incorrect ones have then been removed."""
    known.update(parcels.read_seal(goal))
    done = [0]
    progress.phase, progress.total, progress.bytes = "verify", sum(item.size for item in goal.items), lambda: done[0]

    def count(more: int) -> None:
        done[0] += more

    wrong = [item for item in goal.items if not parcels.verified(goal, item, known, count)]
    return not wrong


def _downloaded(wanted: FetchRequest, known: parcels.Known, progress: Progress) -> Manifest:
    told = listing(wanted)
    cache.sweep(wanted.root, wanted.repo, time.time())
    lacking = cache.lacking(wanted.root, wanted.repo, told)
    needed = sum(each["size"] for each in lacking)
    parcels.refuse_full_disk(wanted.root, needed, wanted.reserve_gib, wanted.repo)
    here = cache.arrived(wanted.root, wanted.repo)
    progress.phase, progress.total = "download", here + needed
    progress.bytes = lambda: cache.arrived(wanted.root, wanted.repo)
    if lacking:
        parcels.keep_own(cache.parcel(wanted.root, Manifest(wanted.repo, told["revision"], ())))
        ask(wanted, {"do": "download", "revision": told["revision"], "files": [each["path"] for each in lacking]})
    progress.phase, read = "verify", [0]
    progress.total = sum({each["sha256"] or each["blob"]: each["size"] for each in told["files"]}.values())

    def count(more: int) -> None:
        read[0] += more

    progress.bytes = lambda: read[0]
    made = cache.listed(wanted.root, wanted.repo, told, wanted.ignore, known, count)
    Beneath(wanted.root).clear(f"{cache.COMING}/{cache.folder(wanted.repo)}")
    return made


def source_manifest(wanted: FetchRequest) -> Manifest:
    """Return the list in the folder with the weights."""
    source = str(wanted.source)
    manifest = cache.brought(source, wanted.repo, wanted.revision)
    if manifest is None:
        raise CollectionError(
            f"{source} has no list of {wanted.repo}{f' at {wanted.revision}' if wanted.revision else ''} "
            f"({cache.folder(wanted.repo)}/dgxspark-COMMIT.json and refs/main), so its weights cannot be verified. Copy the folder "
            f"{cache.folder(wanted.repo)} as a whole (cp -a) from a node where this collection downloaded it."
        )
    return manifest


def _copied(wanted: FetchRequest, known: parcels.Known, progress: Progress) -> Manifest:
    manifest = source_manifest(wanted)
    there, here = cache.hub_parcel(str(wanted.source), manifest), cache.parcel(wanted.root, manifest)
    parcels.refuse_full_disk(wanted.root, parcels.state(here).missing, wanted.reserve_gib, wanted.repo)
    known.update(parcels.read_seal(here))
    done = [0]
    progress.phase, progress.total, progress.bytes = "copy", manifest.size, lambda: done[0]
    for source, item in zip(there.items, here.items, strict=True):
        if not parcels.verified(here, item, known):
            _copy(there, source.path, here, item, known)
        done[0] += item.size
    return manifest


def _copy(origin: parcels.Parcel, path: str, goal: parcels.Parcel, item: parcels.Item, known: parcels.Known) -> None:
    source = parcels.place(origin, path)
    try:
        stream = origin.files.open(path)
    except FileNotFoundError as exc:
        raise CollectionError(
            f"{source} is not there, though the list in that folder names it. Copy it again."
        ) from exc
    except OSError as exc:
        raise cannot("read", source, exc) from exc
    with stream:
        made = parcels.keep(goal, item, stream, known)
    if made != item.sha256:
        raise CollectionError(
            f"{source} has the SHA-256 {made}, but its list says {item.sha256}: it is damaged. Nothing of it was "
            "kept; copy it again."
        )
