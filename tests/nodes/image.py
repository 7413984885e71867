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


def archive(
    place: pathlib.Path,
    name: str,
    files: t.Mapping[str, bytes],
    root: pathlib.Path | None = None,
    entrypoint: t.Sequence[str] = (),
) -> None:
    """Write an image of one layer. files: path → content, executable; root: a folder that is its file system."""
    blob = io.BytesIO()
    with tarfile.open(fileobj=blob, mode="w", format=tarfile.PAX_FORMAT) as layer:
        if root is not None:
            layer.add(root, arcname=".", filter=_keep)
        for path, data in files.items():
            _file(layer, path, data, 0o755)
    data = blob.getvalue()
    layer_id = hashlib.sha256(data).hexdigest()
    env = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": env, "Entrypoint": list(entrypoint) or None},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_id}"]},
    }
    text = json.dumps(config, sort_keys=True).encode()
    own = hashlib.sha256(text).hexdigest()
    manifest = [{"Config": f"{own}.json", "RepoTags": [name], "Layers": [f"{layer_id}/layer.tar"]}]
    with tarfile.open(place, "w") as made:
        _file(made, f"{own}.json", text, 0o644)
        _file(made, f"{layer_id}/layer.tar", data, 0o644)
        _file(made, "manifest.json", json.dumps(manifest).encode(), 0o644)


def join(place: pathlib.Path, archives: t.Iterable[pathlib.Path]) -> None:
    """Write several such archives as one."""
    manifest: list[t.Any] = []
    with tarfile.open(place, "w") as made:
        for archive_place in archives:
            with tarfile.open(archive_place) as one:
                for member in one:
                    data = t.cast(io.BufferedReader, one.extractfile(member)).read()
                    if member.name == "manifest.json":
                        manifest += json.loads(data)
                    else:
                        _file(made, member.name, data, 0o644)
        _file(made, "manifest.json", json.dumps(manifest).encode(), 0o644)
