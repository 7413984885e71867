# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the command that starts an engine in a script or command line: its wrappers (docker run, ssh, launchers) and its words."""

from __future__ import annotations

import itertools
import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

from . import recipe_shell
from .recipe_source import TEMPLATE, Line, Source, mount_of, mounted

OTHER_ENGINES = {
    "llama-server": "llama.cpp",
    "llama-cli": "llama.cpp",
    "trtllm-serve": "TensorRT-LLM",
    "mpirun": "TensorRT-LLM",
    "atlas": "Atlas",
    "ollama": "Ollama",
    "lmdeploy": "LMDeploy",
    "text-generation-launcher": "TGI",
}
# Images of theirs, whose entry point is their server.
_OTHER_IMAGES = {
    "ggml-org/llama.cpp": "llama.cpp",
    "nvidia/tensorrt-llm": "TensorRT-LLM",
    "ollama/ollama": "Ollama",
    "nvcr.io/nim/": "NIM",
    "openmmlab/lmdeploy": "LMDeploy",
    "text-generation-inference": "TGI",
}
KNOWN = (
    "vllm serve, python3 -m vllm.entrypoints.openai.api_server, sglang serve, python3 -m sglang.launch_server, each with or "
    "without docker run, docker compose, ssh or launch-cluster.sh around it"
)
NO_FILE = "no file that a recipe names is read. Write its variables into the recipe."
_MODULES = {
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.cli.main": "vllm",
    "sglang.launch_server": "sglang",
    "sglang.srt.entrypoints.http_server": "sglang",
}
_OF_RAY = (("ray", "start"), ("ray", "stop"), ("ray", "status"))
_RAY = "the plan starts each rank itself; none joins a Ray cluster."
_SHELL = "a shell command: nothing in a recipe is run. What it creates must be in the image."
_LOOSE = "it follows the end of a command, as a shell reads it: what precedes it ends the line."
_HARMLESS = frozenset(
    [
        "set",
        "cd",
        "echo",
        "printf",
        "mkdir",
        "sleep",
        "wait",
        "curl",
        "tee",
        "tail",
        "trap",
        ":",
        "true",
        "shopt",
        "umask",
        "shift",
        "exit",
        "return",
        "[",
        "[[",
        "((",
    ]
)
_PREFIXES = frozenset(["sudo", "exec", "nohup", "time", "env", "command", "stdbuf", "setsid"])
# Programs that mention an engine's command in text for people, or search for it.
_SPEAKS = frozenset(
    ["echo", "printf", "cat", "grep", "pgrep", "pkill", "read", "alias", "sed", "awk", "log", "info", "die"]
)
_ENGINE = re.compile(
    r"\b(?:vllm|sglang)\s+serve\s+(?:-|\\|[\"']?\$|\S*/)|-m\s+(?:vllm\.entrypoints\.(?:openai\.api_server|cli\.main)|sglang\.launch_server)\b"
)
# Arguments of an image's own entry point: a flag, or the model.
_ARGUMENT = re.compile(r"-.*|/(?!bin/|usr/|opt/).*|[\w.-]+/[\w.:-]+|\$\{[^}]*\}", re.DOTALL)
# Docker options that take no value; all others take one.
_DOCKER_SWITCHES = frozenset(
    [
        "--detach",
        "--interactive",
        "--tty",
        "--rm",
        "--init",
        "--privileged",
        "--read-only",
        "--no-healthcheck",
        "--publish-all",
        "--quiet",
        "--oom-kill-disable",
        "--no-deps",
        "--service-ports",
        "--build",
        "--remove-orphans",
        "--no-TTY",
        "--use-aliases",
    ]
)
_SWITCHES = re.compile(r"-[ditPqT]+")
_LAUNCHER = re.compile(r"launch-cluster(?:\.sh)?")
_LAUNCHER_VALUES = frozenset(
    [
        "-n",
        "--nodes",
        "-t",
        "-e",
        "--env",
        "-p",
        "-j",
        "--eth-if",
        "--ib-if",
        "--nccl-debug",
        "--apply-mod",
        "--launch-script",
        "--name",
        "--master-port",
        "--head-port",
        "--mem-limit-gb",
        "--mem-swap-limit-gb",
        "--pids-limit",
        "--shm-size-gb",
        "--config",
        "-v",
        "--volume",
        "--network",
    ]
)


@dataclass
class Served:
    """One command that starts an engine, with its container's settings."""

    engine: str
    words: list[str]
    image: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    mods: list[str] = field(default_factory=list)
    mounts: dict[str, str] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    inside: str = ""

    def record(self, *line: t.Any) -> None:
        """Record how one thing around the command was used."""
        self.lines.append(Line(*line))

    @property
    def rank(self) -> str:
        """The rank number that it starts: 0 if it states none."""
        words = [piece for word in self.words for piece in word.split("=", 1)]
        for flag in ("--node-rank", "--node_rank", "-r"):
            if flag in words[:-1]:
                return words[words.index(flag) + 1]
        return "1" if "--headless" in words else "0"


def not_ours(engine: str) -> str:
    """Return why an engine cannot be served."""
    return f"runtime: {engine}: only vLLM and SGLang can be served here."


def other_engine(text: str) -> str:
    """Return the engine that is not ours of which an image or a program is in a text, or ""."""
    words = {word.rpartition("/")[2] for word in text.split()}
    named = [engine for image, engine in _OTHER_IMAGES.items() if image in text]
    return next(iter([*named, *(engine for program, engine in OTHER_ENGINES.items() if program in words)]), "")


def mentioned(text: str) -> bool:
    """Whether a command that starts an engine is anywhere in a text, whether or not a shell could read it."""
    return _ENGINE.search(text) is not None


def is_command(text: str) -> bool:
    """Whether a text that should be a path is rather a command that starts an engine, or a container."""
    return " " in text and re.search(r"\b(?:vllm|sglang|docker|podman)\b", text) is not None


def take(found: Source, text: str, choice: str = "", where: str = "") -> None:
    """Put a text's engine command into a source. choice: which of several, from 1. Raises CollectionError if there is none."""
    served = _of_text(found, text, found.exported)
    if not served:
        engine = other_engine(text)
        raise CollectionError(
            not_ours(engine) if engine else f"there is no command that starts an engine. Known: {KNOWN}."
        )
    one = chosen(served, choice, where)
    if found.engine and found.engine != one.engine:
        raise CollectionError(f"runtime: {found.engine}, but the command starts {one.engine}.")
    put(found, one)


def put(found: Source, one: Served) -> None:
    """Put a command into a source."""
    found.engine, found.words, found.image = one.engine, one.words, one.image or found.image
    found.environment = {**found.environment, **one.environment}
    found.mods += [mod for mod in one.mods if mod not in found.mods]
    found.mounts |= one.mounts
    found.lines += one.lines
    if one.inside:
        found.record(
            f"(its command is in a branch, {one.inside})",
            "not used",
            "only a shell could tell whether it runs: it is assumed to run.",
        )


def chosen(served: list[Served], choice: str = "", where: str = "", names: t.Sequence[str] = ()) -> Served:
    """Return the intended command: the choice, else the only one, else the first rank of one model."""
    called = list(names) or [str(number) for number in range(1, len(served) + 1)]
    if choice:
        if choice not in called:
            raise CollectionError(f"#{choice}: there is no such command in it. There are {', '.join(called)}.")
        return served[called.index(choice)]
    sure = [one for one in served if not one.inside] or served
    first = [one for one in sure if one.rank in ("0", "") or one.rank.startswith("$")] or sure
    if len(first) != 1:
        raise CollectionError(
            f"there are {len(first)} commands that start an engine. Leave one, or say which: {where or 'FILE'}#"
            f"{' or #'.join(called[served.index(one)] for one in first)}."
        )
    for other in sure:
        if other is not first[0]:
            first[0].record(f"(the command of rank {other.rank})", "ours", "the plan starts each rank itself.")
    for number, other in enumerate(served):
        if other not in sure:
            first[0].record(
                f"(command {called[number]}, in a branch, {other.inside})",
                "not used",
                "another command runs in any case.",
            )
    return first[0]


def _of_text(found: Source, text: str, exported: dict[str, str]) -> list[Served]:
    """Return the commands of a text that start an engine; record what the others do."""
    out = []
    for command in recipe_shell.commands(text, found.given):
        one = _of_command(found, command, exported)
        if one:
            one.inside = one.inside or command.inside
            out.append(one)
    return out


def _of_command(found: Source, command: recipe_shell.Command, exported: dict[str, str]) -> Served | None:
    words = list(command.words)
    if words and words[0] in recipe_shell.DECLARES:
        said = [word.partition("=") for word in words[1:]]
        if not command.inside:
            exported |= {name: value for name, equals, value in said if equals}
    if not words or words[0] in recipe_shell.DECLARES:
        if command.inside:
            found.record(
                str(command)[:80],
                "refused",
                f"it is in a branch ({command.inside}): only a shell could tell whether it runs.",
            )
        return None  # variables that are assigned but not exported are local to the text
    _downloads(found, words)
    own = {**exported, **dict(command.assigned)}
    before = len(found.lines)
    one = served(found, words, own)
    if one is None and any(pair in _OF_RAY for pair in itertools.pairwise(words)):
        found.record(" ".join(words)[:80], "ours", _RAY)
    elif one is None and len(found.lines) == before:  # otherwise what stands inside it has been told
        harmless = words[0] in _HARMLESS or words[:2] in (["docker", "pull"], ["docker", "rm"], ["docker", "stop"])
        why = _LOOSE if words[0].startswith("-") else _SHELL
        found.record(" ".join(words)[:80], "not used" if harmless else "refused", why)
    return one


def _downloads(found: Source, words: list[str]) -> None:
    """Record the folders a script downloads from the hub, so that a folder names its model."""
    at = next(
        (i for i in range(len(words) - 2) if words[i] in ("hf", "huggingface-cli") and words[i + 1] == "download"), None
    )
    if at is not None and "--local-dir" in words[:-1]:
        found.downloads[words[words.index("--local-dir") + 1].rstrip("/")] = words[at + 2]


def served(found: Source, words: list[str], exported: dict[str, str], image: str = "") -> Served | None:
    """Return the engine's command in one command's words; None if there is none.

    exported: its variables. image: the image whose entry point is the program if the words name none.
    """
    while words and words[0] in _PREFIXES:
        words = words[1:]
        while words and (re.match(r"[A-Za-z_]\w*=", words[0]) or re.fullmatch(r"-\w+", words[0])):
            name, equals, value = words[0].partition("=")
            exported |= {name: value} if equals else {}
            words = words[1:]
    program = words[0].rpartition("/")[2] if words else ""
    if program in ("docker", "podman", "nerdctl") and words[1:2] in (["run"], ["exec"], ["create"]):
        return _docker(found, words[2:], exported, of_image=words[1] != "exec")
    if [program, *words[1:2]] in (["docker", "container"], ["docker", "compose"]) or program == "docker-compose":
        return _compose(found, words[1 if program == "docker-compose" else 2 :], exported)
    if _LAUNCHER.fullmatch(program):
        return _launcher(found, words[1:], exported)
    if program in OTHER_ENGINES and not image:
        raise CollectionError(not_ours(OTHER_ENGINES[program]))
    if program in ("bash", "sh", "zsh") and (inner := _inner(words)) is not None:
        inside = _of_text(found, inner, exported)
        return chosen(inside) if inside else None
    if (engine := _engine(words, image)) is not None:
        return Served(*engine, environment=dict(exported))
    return _somewhere(found, words, exported) if program not in _SPEAKS else None


def _inner(words: list[str]) -> str | None:
    """Return the text that a shell gets with -c, whatever other switches it has."""
    at = next((i for i, word in enumerate(words) if re.fullmatch(r"-[a-z]*c[a-z]*", word)), None)
    after = [] if at is None else [word for word in words[at + 1 :] if not re.fullmatch(r"-[a-z]+", word)]
    return after[0] if after else None


def _engine(words: list[str], image: str) -> tuple[str, list[str]] | None:
    """Return the engine and its words, without the program."""
    program = words[0].rpartition("/")[2] if words else ""
    if program in ("vllm", "sglang") and words[1:2] == ["serve"]:
        return program, words[2:]
    if re.fullmatch(r"python[0-9.]*", program):
        rest = words[1:]
        while rest and rest[0].startswith("-") and rest[0] != "-m":
            rest = rest[1:]
        if rest[:1] == ["-m"] and len(rest) > 1 and rest[1] in _MODULES:
            after = rest[2:]
            return _MODULES[rest[1]], after[1:] if rest[1].endswith("cli.main") and after[:1] == ["serve"] else after
        return None
    engine = re.search("vllm|sglang", image)
    if engine and words[:1] == ["serve"]:
        return engine[0], words[1:]
    if engine and words and _ARGUMENT.fullmatch(words[0]) and not re.fullmatch(r".*\.(sh|py)", words[0]):
        return engine[0], words
    return None


def _somewhere(found: Source, words: list[str], exported: dict[str, str]) -> Served | None:
    """Find the engine behind an unknown program (timeout, numactl, ssh HOST, tmux, uv run …)."""
    for at in range(1, len(words)):
        if _ENGINE.search(words[at] + " ") and re.search(r"\s", words[at]):
            inside = _of_text(found, words[at], exported)
            one = chosen(inside) if inside else None
        elif words[at].rpartition("/")[2] in (
            "docker",
            "podman",
            "docker-compose",
            "bash",
            "sh",
            "vllm",
            "sglang",
        ) or re.fullmatch(r"(.*/)?python[0-9.]*", words[at]):
            one = served(found, words[at:], exported)
        else:
            continue
        if one:
            one.record(
                " ".join(words[:at]),
                "not used",
                "it starts the command in another place or way; here the plan does that.",
            )
            return one
    return None


def _options(words: list[str], takes: t.Callable[[str], bool]) -> tuple[list[tuple[str, str]], list[str]]:
    """Split words into options with their values, and the rest. takes: whether an option takes a value."""
    out, at = [], 0
    while at < len(words) and words[at].startswith("-"):
        option, equals, value = words[at].partition("=")
        at += 1
        if takes(option) and not equals:
            value = words[at] if at < len(words) else ""
            at += 1
        out.append((option, value))
    return out, words[at:]


def _docker_takes(option: str) -> bool:
    return option not in _DOCKER_SWITCHES and not _SWITCHES.fullmatch(option)


def container(found: Source, words: list[str]) -> dict[str, str] | None:
    """Return the variables that `docker run` sets in a container that starts no engine itself; None if it is not a docker run."""
    if words[:2] not in (["docker", "run"], ["podman", "run"]):
        return None
    out: dict[str, str] = {}
    for option, value in _options(words[2:], _docker_takes)[0]:
        if option in ("-e", "--env"):
            name, given, own = value.partition("=")
            out[name] = own if given else f"${{{name}}}"
        else:
            found.record(" ".join(filter(None, [option, value])), "ours", TEMPLATE)
    return out


def _docker(found: Source, words: list[str], exported: dict[str, str], of_image: bool = True) -> Served | None:
    """Read a container's settings; the pod template decides how it runs. of_image: the first word is an image, else a container."""
    options, rest = _options(words, _docker_takes)
    if not rest:
        raise CollectionError("docker run: the image is missing.")
    environment: dict[str, str] = {}
    entry: list[str] = []
    lines: list[Line] = []
    mounts: dict[str, str] = {}
    for option, value in options:
        said = " ".join(filter(None, [option, value]))
        if option in ("-e", "--env"):
            name, given, own = value.partition("=")
            environment[name] = own if given else exported.get(name, f"${{{name}}}")
        elif option == "--entrypoint":
            entry = value.split() if value else []
        elif option == "--env-file":
            lines.append(Line(said, "refused", NO_FILE))
        elif mount := mount_of(option, value):
            mounts[mount[1].rstrip("/")] = mount[0].rstrip("/")
            lines.append(Line(said, *mounted(*mount)))
        else:
            lines.append(Line(said, "ours", TEMPLATE))
    inner = {} if of_image else dict(exported)
    one = served(found, [*entry, *rest[1:]], inner, rest[0])
    if one:
        one.image = one.image or (rest[0] if of_image else "")
        one.environment = {**environment, **one.environment}
        one.mounts, one.lines = {**mounts, **one.mounts}, [*lines, *one.lines]
    return one


def _compose(found: Source, words: list[str], exported: dict[str, str]) -> Served | None:
    """Read `docker compose run SERVICE …`; the service's own file is not read."""
    _before, rest = _options(
        words, lambda option: option in ("-f", "--file", "-p", "--project-name", "--profile", "--env-file")
    )
    if rest[:1] not in (["run"], ["exec"]):
        return None
    one = _docker(found, rest[1:], exported, of_image=False)
    if one:
        one.record(
            "docker compose",
            "not used",
            "its file is not read: the image and the variables that the file sets are not known.",
        )
    return one


def _launcher(found: Source, words: list[str], exported: dict[str, str]) -> Served | None:
    """Read spark-vllm-docker's launch-cluster.sh: its image, mods and variables."""
    options, rest = _options(words, lambda option: option in _LAUNCHER_VALUES)
    if rest[:1] != ["exec"]:
        return None
    one = served(found, rest[1:], {})
    if one is None:
        return None
    one.image = one.image or "vllm-node"
    for option, value in options:
        said = " ".join(filter(None, [option, value]))
        if option == "-t":
            one.image = value
        elif option == "--apply-mod":
            name = value.rstrip("/").rpartition("/")[2]
            one.mods.append(name)
            one.record(
                f"mods: {value}",
                "refused",
                "a patch of the image, which nothing here applies: name an image that has it.",
            )
        elif option in ("-e", "--env"):
            name, given, own = value.partition("=")
            one.environment.setdefault(name, own if given else exported.get(name, f"${{{name}}}"))
        elif mount := mount_of(option, value):
            one.record(said, *mounted(*mount))
        else:
            one.record(said, "ours", TEMPLATE)
    return one
