# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The source of a program of this collection, to install on a node or in a rank's container."""

from __future__ import annotations

import importlib
import importlib.util
import io
import re
import types
import typing as t
import zipfile

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError


def source_of(program: types.ModuleType) -> str:
    """Return a module's own source, from wherever Python loaded it (a module's zip included)."""
    spec = importlib.util.find_spec(program.__name__)
    read = getattr(spec.loader, "get_source", None) if spec else None
    text = read(program.__name__) if read else None
    if not text:
        raise CollectionError(f"The source of {program.__name__} cannot be read, so nothing can be installed from it.")
    # Ansible's collection loader returns bytes.
    return text.decode("utf-8") if isinstance(text, bytes) else str(text)


_SHEBANG = b"#!/usr/bin/python3 -IS\n"
_OURS = __name__.rpartition(".")[0]
_IMPORT = re.compile(rf"(?m)^( *)from ({re.escape(_OURS)}[\w.]*) import (\([^)]*\)|.+)$")
_PLUGINS = _OURS.rpartition(".")[0]
_ANY_IMPORT = re.compile(rf"(?m)^ *from ({re.escape(_PLUGINS)}[\w.]*) import (\([^)]*\)|.+)$")


def folder_of(program: types.ModuleType) -> dict[str, str]:
    """Return file name -> source of a program and all modules of the collection that it imports.

    They belong in one flat folder, the program as `__main__.py`: `python3 -I -S -B FOLDER` runs it.
    """
    found = flat([program])
    return {"__main__.py": found.pop(f"{_last(program.__name__)}.py"), **found}


def flat(programs: t.Iterable[types.ModuleType]) -> dict[str, str]:
    """Return file name -> source of programs and all modules of the collection that they import, for one flat folder."""
    found: dict[str, str] = {}
    wanted = [program.__name__ for program in programs]
    while wanted:
        name = wanted.pop()
        file = f"{_last(name)}.py"
        if file not in found:
            found[file] = _IMPORT.sub(lambda match: _flat(match, wanted), source_of(importlib.import_module(name)))
    return found


def archive_of(program: types.ModuleType) -> bytes:
    """Return a program and all modules of the collection that it imports as one file, which `python3 -I -S FILE` runs.

    As a file of its own it is replaced in one step: a node never has a half of it. The same bytes on every machine.
    """
    made = io.BytesIO(_SHEBANG)
    made.seek(0, io.SEEK_END)
    with zipfile.ZipFile(made, "w") as archive:  # not compressed: zlib's output differs between its versions
        for name, text in sorted(folder_of(program).items()):
            entry = zipfile.ZipInfo(name)  # of 1980
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            archive.writestr(entry, text)
    return made.getvalue()


def tree_of(program: types.ModuleType, file: str) -> dict[str, str]:
    """Return path -> source of a program and all modules of the collection that it imports, including the controller's.

    The program is at the top as `file`, the modules below it at the paths of their imports, with unchanged texts. No folder needs
    an __init__.py. The program adds the top to sys.path before its first import of a module.
    """
    found, wanted = {file: source_of(program)}, _imported(source_of(program))
    while wanted:
        name = wanted.pop()
        path = f"{name.replace('.', '/')}.py"
        if path not in found:
            found[path] = source_of(importlib.import_module(name))
            wanted += _imported(found[path])
    return found


def _imported(text: str) -> list[str]:
    names: list[str] = []
    for of, what in _ANY_IMPORT.findall(text):
        if hasattr(importlib.import_module(of), "__path__"):  # a folder: the imported names are modules
            names += [f"{of}.{name.split(' as ')[0]}" for name in _names(what)]
        else:
            names.append(of)
    return names


def _names(imported: str) -> list[str]:
    """Split what an import names, in parentheses and on several lines or not."""
    return [name.strip() for name in imported.strip("()").split(",") if name.strip()]


def _flat(match: re.Match[str], wanted: list[str]) -> str:
    """Rewrite an import from this collection, and record the module whose source it needs."""
    space, of, names = match.groups()
    if hasattr(importlib.import_module(of), "__path__"):  # a folder: the imported names are modules
        # `import` takes no parentheses.
        wanted += [f"{of}.{name.split(' as ')[0]}" for name in _names(names)]
        return f"{space}import {', '.join(_names(names))}"
    wanted.append(of)
    return f"{space}from {_last(of)} import {names}"


def _last(name: str) -> str:
    return name.rpartition(".")[2]
