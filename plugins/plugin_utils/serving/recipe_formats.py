# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What other tools start an engine with, each form read into the same few things: command, image, variables, and the rest.

Forms: recipes of sparkrun (recipe_version 2) and spark-vllm-docker (1), a Compose service, and a command line with or
without `docker run` around it. A file is a stranger's text: nothing in it is run, and no path in it is opened.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import recipe_shell

Became = t.Literal["setting", "ours", "passed on", "refused", "not used"]
Plain = t.Mapping[str, t.Any]
_PLACEHOLDER = re.compile(r"\{(?:config\.|launch\.)?([A-Za-z_][A-Za-z0-9_]*)\}")
_HOOK = "it runs commands on nodes or in the container, and nothing of a recipe is run. An image that needs it has to be built with it."
_OTHER_ENGINES = {
    "llama-server": "llama.cpp",
    "trtllm-serve": "TensorRT-LLM",
    "mpirun": "TensorRT-LLM",
    "atlas": "Atlas",
    "ollama": "Ollama",
}
_RUNTIMES = {"sglang": "sglang", "vllm": "vllm", "vllm-distributed": "vllm", "vllm-ray": "vllm", "eugr-vllm": "vllm"}
# What the tools say of a recipe to people, to their download, or to their own container engine.
_TOLD = {
    "not used": "name description metadata recipe_version sparkrun_version min_sparkrun_version runtime_version benchmark mode "
    "maintainer pull_image distribution_config builder builder_config stop_after_post",
    "ours": "executor_config solo_only cluster_only min_nodes max_nodes runtime",
    "refused": "pre_exec post_exec post_commands",
}
_WHY = {
    "not used": "it tells people or the other tool, not the engine.",
    "ours": "the plan and the pod's template say how many Sparks there are and how the container runs.",
    "refused": _HOOK,
}
# What an image's own entry point is given: a flag, or the model.
_ARGUMENT = re.compile(r"-.*|[\w.-]+/[\w.:-]+|\$\{\w+\}", re.DOTALL)
_SHELL = "a command of a shell: nothing of a recipe is run. What it makes has to be in the image."
_HARMLESS = frozenset(["set", "cd", "echo", "mkdir", "sleep", "wait", "curl", "tee", "tail", "trap"])
# docker run's options that take a value; those that do not name one are switches.
_DOCKER_SWITCHES = frozenset(
    [
        "-d",
        "--detach",
        "-i",
        "--interactive",
        "-t",
        "--tty",
        "-it",
        "-ti",
        "-dit",
        "-itd",
        "-di",
        "--rm",
        "--init",
        "--privileged",
        "--read-only",
        "--no-healthcheck",
    ]
)


@dataclass(frozen=True)
class Line:
    """How one thing in a recipe was used."""

    text: str
    became: Became
    why: str = ""


@dataclass
class Source:
    """A recipe in the form that all have in common. words: of the engine's command; options: settings beside it."""

    words: list[str] = field(default_factory=list)
    options: dict[str, t.Any] = field(default_factory=dict)
    engine: str = ""
    image: str = ""
    model: str = ""
    revision: str = ""
    title: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    exported: dict[str, str] = field(default_factory=dict)  # by a script, for what it starts outside of a container
    least: int = 1
    most: int | None = None
    mods: list[str] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)

    def told(self, text: str, became: Became, why: str = "") -> None:
        """Note how one thing was used."""
        self.lines.append(Line(text, became, why))


def read(text: str, name: str) -> Source:
    """Read a recipe of any form. name: the file's, which tells a script from YAML. Raises CollectionError."""
    if not name.lower().endswith((".yaml", ".yml")):
        return _script(text)
    document = knowledge.parse_yaml(text, name, aliases=20)
    if isinstance(document, str):
        return _script(document)
    if not isinstance(document, dict):
        raise CollectionError("a mapping with model and command, a Compose file or a command is needed.")
    if isinstance(document.get("services"), dict):
        return _compose(document["services"])
    if "model" in document or "command" in document:
        return _recipe(document)
    raise CollectionError(
        "it is no recipe: neither model nor command (sparkrun, spark-vllm-docker) nor services (Compose) is in it. "
        f"Found: {', '.join(sorted(map(str, document))[:8])}."
    )


def _mapping(document: Plain, key: str) -> dict[str, t.Any]:
    value = document.get(key) or {}
    if not isinstance(value, dict):
        raise CollectionError(f"{key}: a mapping is needed, not {type(value).__name__}.")
    return {str(name): item for name, item in value.items()}


def _list(document: Plain, key: str) -> list[t.Any]:
    value = document.get(key) or []
    return list(value) if isinstance(value, list) else [value]


def _text(value: t.Any) -> str:
    return value.strip() if isinstance(value, str) else "" if value is None else str(value)


def _count(document: Plain, key: str) -> int | None:
    value = document.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not str(value).isdigit() or int(value) < 1:
        raise CollectionError(f"{key}: {value!r} is not a whole number of at least 1.")
    return int(value)


def _filled(template: str, values: Plain, doubled: bool) -> str:
    """Put values into `{name}`; unknown names stay. doubled: once, and `{{` and `}}` stand for braces; else as often as it takes."""
    pattern = re.compile(rf"\{{\{{|\}}\}}|{_PLACEHOLDER.pattern}") if doubled else _PLACEHOLDER

    def put(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0][0]
        return _text(values[found[1]]) if found[1] in values else found[0]

    for _round in range(1 if doubled else 8):
        after = pattern.sub(put, template)
        if after == template or len(after) > knowledge.LARGEST:
            break
        template = after
    return template


def _recipe(document: Plain) -> Source:
    """Read sparkrun's and spark-vllm-docker's recipes."""
    defaults, config = _mapping(document, "defaults"), _mapping(document, "runtime_config")
    image = document.get("container")
    found = Source(
        image=_text(image),
        model=_text(document.get("model")),
        revision=_text(document.get("model_revision")),
        title=_text(document.get("name")),
    )
    runtime = _text(document.get("runtime")).lower()
    if runtime and runtime not in _RUNTIMES:
        raise CollectionError(_not_ours(runtime))
    found.engine = _RUNTIMES.get(runtime, "")
    found.least = 2 if document.get("cluster_only") else _count(document, "min_nodes") or 1
    found.most = 1 if document.get("solo_only") or document.get("mode") == "solo" else _count(document, "max_nodes")
    values = {"model": found.model, "model_revision": found.revision, **defaults}
    for name, value in _mapping(document, "env").items():
        found.environment[name] = _filled(_text(value), values, False)
    for key in ("mods", "build_args"):
        for item in _list(document, key) or _list(config, key):
            _change(found, key, _text(item))
    for key in document:
        became = next((kind for kind, names in _TOLD.items() if str(key) in names.split()), None)
        if became and document[key]:
            found.told(str(key), t.cast(Became, became), _WHY[became])
        elif key not in _READ:
            found.told(str(key), "refused", "no recipe of sparkrun or spark-vllm-docker is known to have it.")
    command = _text(document.get("command"))
    if not command:
        found.options = defaults
        return found
    _command(found, _filled(command, values, "{{" in command))
    used = set(
        _PLACEHOLDER.findall("\n".join(map(_text, [command, *defaults.values(), *_mapping(document, "env").values()])))
    )
    for name in sorted(defaults.keys() - used):
        found.told(f"defaults.{name}: {_text(defaults[name])}", "not used", "the command does not have it.")
    return found


_READ = frozenset(
    ["model", "model_revision", "container", "defaults", "env", "command", "mods", "build_args", "runtime_config"]
) | {name for names in _TOLD.values() for name in names.split()}


def _change(found: Source, key: str, item: str) -> None:
    """Keep a change that the other tool makes to the image."""
    name = item.rstrip("/").rpartition("/")[2]
    if key == "mods" and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) and name not in found.mods:
        found.mods.append(name)
    what = "a patch of the image" if key == "mods" else "an option of the image's build"
    found.told(f"{key}: {item}", "refused", f"{what}, which nothing here applies: name an image that has it.")


def _not_ours(engine: str) -> str:
    return f"runtime: {engine}: vLLM and SGLang can be served here, and no other engine."


def _script(text: str) -> Source:
    """Read a command line, or a script that has one."""
    found = Source()
    _command(found, text)
    return found


def _command(found: Source, text: str) -> None:
    """Find the engine's command in a text."""
    servers = [c for c in recipe_shell.commands(text) if _take(found, c)]
    if not servers:
        raise CollectionError(
            "there is no command that starts an engine. Known: vllm serve, python3 -m vllm.entrypoints.openai.api_server, "
            "sglang serve, python3 -m sglang.launch_server, each with or without docker run."
        )
    if len(servers) > 1:
        raise CollectionError(f"there are {len(servers)} commands that start an engine. Leave one.")


def _take(found: Source, command: recipe_shell.Command) -> bool:
    """Take one command: True for the engine's own, else note how it was used."""
    words = list(command.words)
    if not words or words[0] in ("export", "declare", "readonly"):
        said = [word.partition("=") for word in words[1:]] if words else []
        found.exported |= {name: value for name, eq, value in said if eq}
        return False  # what is assigned and not exported is for the text itself
    while words and words[0] in ("sudo", "exec", "nohup", "time", "env", "command"):
        words = words[1:]
        while words and re.match(r"[A-Za-z_]\w*=", words[0]):
            name, _eq, value = words.pop(0).partition("=")
            found.exported[name] = value
    if words[:2] in (["docker", "run"], ["podman", "run"]):
        return _docker(found, words[2:])
    if words[:2] in (["docker", "exec"], ["podman", "exec"]):
        words = words[2:]
        while words and words[0].startswith("-"):
            words = words[2 if words[0] in ("-e", "--env", "-w", "--workdir", "-u", "--user") else 1 :]
        words = words[1:]
    if not _engine(found, words):
        harmless = bool(words) and (words[0] in _HARMLESS or words[:2] == ["docker", "pull"])
        found.told(" ".join(words)[:80], "not used" if harmless else "refused", _SHELL)
        return False
    found.environment = {**found.exported, **found.environment, **dict(command.assigned)}
    return True


def _engine(found: Source, words: list[str], image: str = "") -> bool:
    """Take an engine's words, its program left out. image: whose entry point is the program where none is named."""
    start = words[:3]
    program = start[0].rpartition("/")[2] if start else ""
    if program in _OTHER_ENGINES:
        raise CollectionError(_not_ours(_OTHER_ENGINES[program]))
    if program in ("bash", "sh") and any(word in ("-c", "-lc") for word in words):
        inner = words[next(i for i, word in enumerate(words) if word in ("-c", "-lc")) + 1 :]
        return bool(inner) and sum(_take(found, c) for c in recipe_shell.commands(inner[0])) == 1
    if [program, *start[1:2]] in (["vllm", "serve"], ["sglang", "serve"]):
        engine, rest = program, words[2:]
    elif re.fullmatch(r"python[0-9.]*", program) and start[1:2] == ["-m"] and len(start) == 3:
        engine, rest = start[2].partition(".")[0], words[3:]
        if start[2] not in ("vllm.entrypoints.openai.api_server", "sglang.launch_server"):
            return False
    elif re.search("vllm|sglang", image) and words and _ARGUMENT.fullmatch(words[0]):
        engine, rest = ("sglang" if "sglang" in image else "vllm"), words
    else:
        return False
    if found.engine and found.engine != engine:
        raise CollectionError(f"runtime: {found.engine}, but the command starts {engine}.")
    found.engine, found.words = engine, rest
    return True


def _docker(found: Source, words: list[str]) -> bool:
    """Take `docker run`: its variables and its image; how the container is run is the pod's template's."""
    entry: list[str] = []
    at = 0
    while at < len(words) and words[at].startswith("-"):
        option, equals, value = words[at].partition("=")
        at += 1
        if option in _DOCKER_SWITCHES:
            continue
        if not equals:
            value = words[at] if at < len(words) else ""
            at += 1
        if option in ("-e", "--env"):
            name, given, own = value.partition("=")
            found.environment[name] = own if given else found.exported.get(name, f"${{{name}}}")
        elif option == "--entrypoint":
            entry = [value] if value else []
        elif option == "--env-file":
            found.told(
                f"{option} {value}",
                "refused",
                "no file that a recipe names is read. Write its variables into the recipe.",
            )
        else:
            found.told(f"{option} {value}", "ours", "the pod's template says how the container runs.")
    if at >= len(words):
        raise CollectionError("docker run: the image is missing.")
    found.image = words[at]
    return _engine(found, [*entry, *words[at + 1 :]], found.image)


def _compose(services: Plain) -> Source:
    """Read the one service of a Compose file that starts an engine."""
    made: dict[str, Source] = {}
    left: list[str] = []
    for name, service in services.items():
        found = _service(service) if isinstance(service, dict) else None
        if found is None:
            left.append(str(name))
        else:
            made[str(name)] = found
    if len(made) != 1:
        which = f"several do: {', '.join(made)}. Leave one" if made else "vLLM and SGLang are known"
        raise CollectionError(f"services: one that starts an engine is needed; {which}.")
    name, found = next(iter(made.items()))
    found.title = found.title or name
    found.lines += [Line(f"services.{other}", "not used", "it starts no engine.") for other in left]
    return found


def _service(service: Plain) -> Source | None:
    found = Source(image=recipe_shell.expanded(_text(service.get("image")), {}))
    given = service.get("environment") or {}
    pairs = given.items() if isinstance(given, dict) else [_text(item).partition("=")[::2] for item in given]
    for name, value in pairs:
        found.environment[str(name)] = recipe_shell.expanded(_text(value), {})
    words: list[str] = []
    for key in ("entrypoint", "command"):
        value = service.get(key)
        if isinstance(value, list):
            words += [recipe_shell.expanded(_text(item), {}) for item in value]
        elif value:
            parts = recipe_shell.commands(recipe_shell.expanded(_text(value).replace("\n", " "), {}))
            words += parts[0].words if parts else ()
    try:
        taken = _engine(found, words, found.image if re.search("vllm|sglang", found.image) else "")
    except CollectionError:
        if re.search("vllm|sglang", found.image):
            raise
        return None
    if not taken:
        return None
    for key in service:
        if key == "env_file":
            found.told(
                "env_file", "refused", "no file that a recipe names is read. Write its variables into the recipe."
            )
        elif key not in ("image", "environment", "command", "entrypoint"):
            found.told(str(key), "ours", "the pod's template says how the container runs.")
    return found
