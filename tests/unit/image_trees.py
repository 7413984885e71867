"""A package tree that stands for an engine's image, small enough for the harness to load without any real package."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import inspect

REPO, DIGEST = "registry.example/fork:nightly", f"sha256:{'ab' * 32}"
FLAG: dict[str, t.Any] = {
    "options": ["--x"], "dest": "x", "action": "_StoreAction", "type": "str", "default": None, "choices": None, "nargs": None,
    "const": None, "required": False, "new_flag": None, "const_value": None, "error_message": None, "deprecated": False, "help": None,
}  # fmt: skip
PARSER: dict[str, t.Any] = {
    "flags": [
        {**FLAG, "options": [], "dest": "model_tag", "nargs": "?"},
        {**FLAG, "options": ["--fork-only"], "type": "int", "default": 7},
        {
            **FLAG,
            "options": ["--enable-x", "--no-enable-x"],
            "action": "BooleanOptionalAction",
            "nargs": 0,
            "default": True,
        },
        {**FLAG, "options": ["--attention-backend"], "choices": ["B", "A"]},
    ],
    "facts": {
        "program": {"value": ["vllm", "serve"], "source": "vllm/entrypoints/cli/serve.py:1"},
        "free_memory": {"value": "host_available", "source": "vllm/utils/mem_utils.py:1"},
        "defaults_on_gb10": {"tp1": {"block_size": 16}, "tp4": {"block_size": 16}},
        "known_values": {"attention-backend": ["A"]},
    },
    "environment": ["VLLM_FORK"],
}
SAID: dict[str, t.Any] = {
    "engine": "vllm", "version": "0.17.1", "requires": {"torch": "==2.10.0"}, "packages": {"vllm": "0.17.1", "torch": "2.10.0+cu130"},
    "cudnn_frontend": False, "architectures": ["sm_121a"], "libraries": {"nccl": "2.28.9"}, "patches": {"vllm-wna16-ep": "there"},
    "parser": PARSER, "unread": [],
}  # fmt: skip


def lay(folder: pathlib.Path, files: t.Mapping[str, str]) -> None:
    """Write files below a folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def about(name: str, version: str, *requires: str) -> dict[str, str]:
    """Return the metadata of an installed package."""
    lines = [
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}",
        *(f"Requires-Dist: {each}" for each in requires),
    ]
    return {f"{name.replace('-', '_')}-{version}.dist-info/METADATA": "\n".join([*lines, ""])}


def run(site: str | pathlib.Path, programs: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Run the program of a pod on a tree (or several, separated by colons), as the pod does: its files in one folder."""
    lay(programs, {**inspect.sources(), inspect.ASKED: inspect.reader_input()})
    return subprocess.run(
        [sys.executable, "-S", str(programs / "reader.py"), str(programs / inspect.ASKED)],
        env={"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin"},
        cwd=programs,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
