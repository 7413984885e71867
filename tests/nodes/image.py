"""Container images without docker or registry: OCI archives, made of files."""

from __future__ import annotations

import hashlib
import io
import json
import pathlib
import re
import shutil
import subprocess
import tarfile
import typing as t

NAME = "io.containerd.image.name"  # where containerd reads an image's name in an archive


def lean(
    root: pathlib.Path,
    place: pathlib.Path,
    programs: t.Iterable[str],
    files: t.Iterable[str],
    lacks: t.Iterable[str],
) -> None:
    """Make of a Debian root with Python one that has only these programs of /usr/bin, what they load, and these files.

    lacks: patterns of names of Python's library that it does not have.
    """
    for name in ("dev", "proc", "root", "run", "sys", "tmp"):
        (place / name).mkdir(parents=True)
    for name in files:
        _copy(root / name, place / name)
    library = next(root.glob("usr/lib/python3.*")).relative_to(root)
    shutil.copytree(root / library, place / library, symlinks=True, ignore=shutil.ignore_patterns(*lacks))
    kept = {f"usr/bin/{name}" for name in programs}
    kept |= {f"usr/bin/{(root / name).readlink()}" for name in kept if (root / name).is_symlink()}
    for name in kept:
        _copy(root / name, place / name)
    kept |= {str(path.relative_to(place)) for path in place.glob(f"{library}/lib-dynload/*.so")}
    for name in sorted(kept):
        command = ["chroot", str(root), "/lib64/ld-linux-x86-64.so.2", "--list", f"/{name}"]
        said = subprocess.run(command, check=False, capture_output=True, text=True).stdout
        for needed in re.findall(r"(/lib\S*/\S+) \(0x", said):
            (place / f"usr{needed}").parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / f"usr{needed}", place / f"usr{needed}")


def _copy(path: pathlib.Path, place: pathlib.Path) -> None:
    """Copy a file, a link as a link, or a folder."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        shutil.copytree(path, place, symlinks=True)
    else:
        shutil.copy2(path, place, follow_symlinks=False)


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
    layers = [*parts, _layer(files)]
    env = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": env, "Entrypoint": list(entrypoint) or None},
        "rootfs": {"type": "layers", "diff_ids": [_digest(data) for data in layers]},
    }
    blobs: list[bytes] = []

    def blob(kind: str, data: bytes) -> dict[str, t.Any]:
        blobs.append(data)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": _digest(data), "size": len(data)}

    described = [blob("layer.v1.tar", data) for data in layers]
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob("config.v1+json", _json(config)),
        "layers": described,
    }
    entry = blob("manifest.v1+json", _json(manifest)) | {"annotations": {NAME: name}}
    _write(place, {_digest(data): data for data in blobs}, [entry])


def join(place: pathlib.Path, archives: t.Iterable[pathlib.Path]) -> None:
    """Write several such archives as one."""
    entries: list[t.Any] = []
    blobs: dict[str, bytes] = {}
    for each in archives:
        with tarfile.open(each) as one:
            for member in one:
                data = t.cast(io.BufferedReader, one.extractfile(member)).read()
                if member.name == "index.json":
                    entries += json.loads(data)["manifests"]
                elif member.name.startswith("blobs/"):
                    blobs[_digest(data)] = data
    _write(place, blobs, entries)


def _write(place: pathlib.Path, blobs: t.Mapping[str, bytes], entries: t.Sequence[t.Any]) -> None:
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": entries}
    with tarfile.open(place, "w") as made:
        _file(made, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}), 0o644)
        _file(made, "index.json", _json(index), 0o644)
        for digest, data in blobs.items():
            _file(made, f"blobs/{digest.replace(':', '/')}", data, 0o644)


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _json(value: t.Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
