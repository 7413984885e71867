"""Container images without docker or registry: what `ctr images import` takes, made of files."""

from __future__ import annotations

import hashlib
import io
import json
import pathlib
import tarfile
import typing as t


def _file(layer: tarfile.TarFile, path: str, data: bytes, mode: int) -> None:
    info = tarfile.TarInfo(path)
    info.size, info.mode = len(data), mode
    layer.addfile(info, io.BytesIO(data))


def _keep(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if info.isdev() else info


def _layer(files: t.Mapping[str, bytes], root: pathlib.Path | None = None) -> bytes:
    blob = io.BytesIO()
    with tarfile.open(fileobj=blob, mode="w", format=tarfile.PAX_FORMAT) as layer:
        if root is not None:
            layer.add(root, arcname=".", filter=_keep)
        for path, data in files.items():
            _file(layer, path, data, 0o755)
    return blob.getvalue()


def archive(
    place: pathlib.Path,
    name: str,
    files: t.Mapping[str, bytes],
    root: pathlib.Path | None = None,
    entrypoint: t.Sequence[str] = (),
) -> None:
    """Write an image. files: path → content, executable; root: a folder that is its file system.

    The folder is a layer of its own: emulated nodes unpack it once for all images that have it.
    """
    parts = [_layer({}, root)] if root is not None else []
    layers = {hashlib.sha256(data).hexdigest(): data for data in [*parts, _layer(files)]}
    env = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": env, "Entrypoint": list(entrypoint) or None},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in layers]},
    }
    text = json.dumps(config, sort_keys=True).encode()
    own = hashlib.sha256(text).hexdigest()
    paths = [f"{digest}/layer.tar" for digest in layers]
    manifest = [{"Config": f"{own}.json", "RepoTags": [name], "Layers": paths}]
    with tarfile.open(place, "w") as made:
        _file(made, f"{own}.json", text, 0o644)
        for path, data in zip(paths, layers.values(), strict=True):
            _file(made, path, data, 0o644)
        _file(made, "manifest.json", json.dumps(manifest).encode(), 0o644)


def join(place: pathlib.Path, archives: t.Iterable[pathlib.Path]) -> None:
    """Write several such archives as one."""
    manifest: list[t.Any] = []
    there: set[str] = set()
    with tarfile.open(place, "w") as made:
        for archive_place in archives:
            with tarfile.open(archive_place) as one:
                for member in one:
                    data = t.cast(io.BufferedReader, one.extractfile(member)).read()
                    if member.name == "manifest.json":
                        manifest += json.loads(data)
                    elif member.name not in there:
                        there.add(member.name)
                        _file(made, member.name, data, 0o644)
        _file(made, "manifest.json", json.dumps(manifest).encode(), 0o644)
