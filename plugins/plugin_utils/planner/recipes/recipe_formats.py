# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Readers of other tools' launch recipes. Each form yields the same parts: command, image, environment variables, and the rest.

Forms: recipes of sparkrun (recipe_version 2) and spark-vllm-docker (1), a Compose service, and a command line with or
without `docker run` around it. Files are untrusted: nothing in them is run, and no path in them is opened.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge

from . import recipe_commands, recipe_shell
from .recipe_source import TEMPLATE, Became, Line, Source, mount_of, mounted

Plain = t.Mapping[str, t.Any]
_PLACEHOLDER = re.compile(r"\{(?:config\.|launch\.)?([A-Za-z_][A-Za-z0-9_]*)\}")
_KEYS = re.compile(r"^(?:services|recipe_version|command|model):(?:\s|$)", re.MULTILINE)
_HOOK = "it runs commands on nodes or in the container, but nothing in a recipe is run. Build it into an image that needs it."
_RUNTIMES = {"sglang": "sglang", "vllm": "vllm", "vllm-distributed": "vllm", "vllm-ray": "vllm", "eugr-vllm": "vllm"}
# Recipe keys that are for people, for the tool's download, or for its own container engine.
_TOLD = {
    "not used": "name description metadata recipe_version sparkrun_version min_sparkrun_version runtime_version benchmark mode "
    "maintainer pull_image distribution_config builder builder_config stop_after_post",
    "ours": "executor_config solo_only cluster_only min_nodes max_nodes runtime",
    "refused": "pre_exec post_exec post_commands",
}
_WHY = {
    "not used": "it is for people or the other tool, not for the engine.",
    "ours": "the plan and the pod's template say how many Sparks there are and how the container runs.",
    "refused": _HOOK,
}


def read(text: str, name: str, choice: str = "", given: t.Mapping[str, str] | None = None) -> Source:
    """Read a recipe of any form. name: the file name, which tells a script from YAML. choice: which of several commands or services.
    given: recipe variables that the owner sets.

    Raises CollectionError.
    """
    try:
        return _read(text, name, choice, Source(given=dict(given or {})))
    except CollectionError:
        # A whole recipe may have such a block in its description, and a script in what it prints: its own fault is told then.
        blocks, around = _fenced(text)
        if not blocks or _is_mapping(text) or recipe_commands.mentioned(around):
            raise
    found = _read(blocks, name, choice, Source(given=dict(given or {})))
    found.record("(what surrounds the blocks between ```)", "not used", "it is for people.")
    return found


def _read(text: str, name: str, choice: str, found: Source) -> Source:
    if not name.lower().endswith((".yaml", ".yml")) and not _is_yaml(text):
        return _script(found, text, choice, name)
    document = knowledge.parse_yaml(text, "", written_out=20_000)
    if isinstance(document, str):
        return _script(found, document, choice, name)
    if not isinstance(document, dict):
        raise CollectionError("a mapping with model and command, a Compose file or a command is needed.")
    if isinstance(document.get("services"), dict):
        return _compose(found.given, document, choice, name)
    if isinstance(document.get("serve"), dict) and isinstance(document.get("runtime"), dict):
        return _nvidia(found, document, choice, name)
    if "model" in document or "command" in document:
        return _recipe(found, document, choice, name)
    raise CollectionError(
        "it is not a recipe: neither model nor command (sparkrun, spark-vllm-docker), services (Compose) nor serve (NVIDIA) is in it. "
        f"Found: {', '.join(sorted(map(str, document))[:8])}."
    )


def _fenced(text: str) -> tuple[str, str]:
    """Return the blocks between ``` in a text for people, as forums and model cards have them, and the text around them.

    A block that does not end is none.
    """
    blocks: list[str] = []
    around: list[str] = []
    inside: list[str] | None = None
    for line in text.split("\n"):
        mark = line.strip()
        if inside is None and mark.startswith("```") and "`" not in mark[3:]:
            inside = []
        elif inside is not None and mark == "```":
            blocks += [*inside, ""]
            inside = None
        else:
            (around if inside is None else inside).append(line)
    return "\n".join(blocks), "\n".join([*around, *(inside or [])])


def _is_mapping(text: str) -> bool:
    """Whether a text is a YAML mapping."""
    try:
        return isinstance(knowledge.parse_yaml(text, "", written_out=20_000), dict)
    except knowledge.KnowledgeError:
        return False


def _is_yaml(text: str) -> bool:
    """Whether a file of another name is YAML: a Compose file, say, saved as recipe.txt."""
    return _KEYS.search(text) is not None and _is_mapping(text)


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
    if isinstance(value, bool) or not re.fullmatch(r"[0-9]{1,6}", str(value)) or int(value) < 1:
        raise CollectionError(f"{key}: {value!r} is not a whole number of at least 1.")
    return int(value)


def _filled(template: str, values: Plain, doubled: bool) -> str:
    """Substitute `{name}`; unknown names stay. doubled: one pass, with `{{` and `}}` as literal braces; else repeat until stable."""
    pattern = re.compile(rf"\{{\{{|\}}\}}|{_PLACEHOLDER.pattern}") if doubled else _PLACEHOLDER

    left = [knowledge.LARGEST]

    def put(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0][0]
        value = _text(values[found[1]]) if found[1] in values else found[0]
        left[0] -= len(value)
        if left[0] < 0:
            raise CollectionError(
                f"its variables expand to more than {knowledge.LARGEST} characters. Write the result there."
            )
        return value

    for _round in range(1 if doubled else 8):
        after = pattern.sub(put, template)
        if after == template or len(after) > knowledge.LARGEST:
            break
        template = after
    return template


def _recipe(found: Source, document: Plain, choice: str, file: str) -> Source:
    """Read sparkrun's and spark-vllm-docker's recipes."""
    defaults, config = _mapping(document, "defaults"), _mapping(document, "runtime_config")
    defaults |= {name: value for name, value in found.given.items() if name in defaults}
    found.image, found.title = _text(document.get("container")), _text(document.get("name"))
    found.model, found.revision = _text(document.get("model")), _text(document.get("model_revision"))
    runtime = _text(document.get("runtime")).lower()
    if runtime and runtime not in _RUNTIMES:
        raise CollectionError(recipe_commands.not_ours(runtime))
    found.engine = _RUNTIMES.get(runtime, "")
    found.least = 2 if document.get("cluster_only") else _count(document, "min_nodes") or 1
    found.most = 1 if document.get("solo_only") or document.get("mode") == "solo" else _count(document, "max_nodes")
    values = {"model": found.model, "model_revision": found.revision, **defaults, **found.given}
    for name, value in _mapping(document, "env").items():
        found.environment[name] = _filled(_text(value), values, False)
    for key in ("mods", "build_args"):
        for item in _list(document, key) or _list(config, key):
            _change(found, key, _text(item))
    others = [str(key) for key in document if str(key).startswith("command_") and isinstance(document[key], str)]
    key = f"command_{choice}" if f"command_{choice}" in others else "command"
    if others and not document.get(key):
        raise CollectionError(
            f"it has several commands and no default one. Say which: {file}#"
            f"{' or #'.join(name.removeprefix('command_') for name in others)}."
        )
    command = _text(document.get(key))
    for other in others:
        if other != key:
            found.record(other, "not used", f"another of its commands is used, {key}.")
    for key in document:
        if key in others:
            continue
        became = next((kind for kind, names in _TOLD.items() if str(key) in names.split()), None)
        if became and document[key]:
            found.record(str(key), t.cast(Became, became), _WHY[became])
        elif key not in _READ:
            found.record(str(key), "refused", "no recipe of sparkrun or spark-vllm-docker is known to have it.")
    if not command:
        found.options = defaults
        return found
    recipe_commands.take(
        found, _filled(command, values, "{{" in command), choice if re.fullmatch(r"[0-9]{1,6}", choice) else "", file
    )
    used = set(
        _PLACEHOLDER.findall("\n".join(map(_text, [command, *defaults.values(), *_mapping(document, "env").values()])))
    )
    for name in sorted(defaults.keys() - used):
        found.record(f"defaults.{name}: {_text(defaults[name])}", "not used", "the command does not use it.")
    return found


_READ = frozenset(
    ["model", "model_revision", "container", "defaults", "env", "command", "mods", "build_args", "runtime_config"]
) | {name for names in _TOLD.values() for name in names.split()}


def _change(found: Source, key: str, item: str) -> None:
    """Record a change that the other tool makes to the image."""
    name = item.rstrip("/").rpartition("/")[2]
    if key == "mods" and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) and name not in found.mods:
        found.mods.append(name)
    what = "a patch of the image" if key == "mods" else "an option of the image's build"
    found.record(f"{key}: {item}", "refused", f"{what}, which nothing here applies: name an image that has it.")


def _script(found: Source, text: str, choice: str, file: str) -> Source:
    """Read a command line, or a script that contains one."""
    recipe_commands.take(found, text, choice, file)
    return found


def _nvidia(found: Source, document: Plain, choice: str, file: str) -> Source:
    """Read a recipe of NVIDIA's local-ai-inference-recipes (schema_version 3)."""
    runtime, serve = _mapping(document, "runtime"), _mapping(document, "serve")
    backend = _text(document.get("backend")).lower()
    if backend and backend not in _RUNTIMES:
        raise CollectionError(recipe_commands.not_ours(backend))
    found.engine, found.image = _RUNTIMES.get(backend, ""), _text(runtime.get("image"))
    found.title = _text(document.get("title"))
    label = _text(_mapping(document, "checkpoint").get("target_label"))
    # The setup command sets the container's variables; the second command starts the engine in it.
    around = Source(given=found.given)
    setup = _text(runtime.get("setup_command"))
    for command in recipe_shell.commands(setup, found.given):
        if one := recipe_commands.container(around, list(command.words)):
            found.environment |= one
    found.lines += around.lines
    image = found.image
    recipe_commands.take(found, _text(serve.get("command")), choice, file)
    found.image, found.model = image or found.image, label
    for key, value in (*document.items(), *((f"serve.{key}", value) for key, value in serve.items())):
        if key in ("runtime", "serve", "serve.command", "backend", "checkpoint", "title") or value in (None, "", []):
            continue
        if key == "serve.additional_commands":
            found.record(key, "ours", "the plan starts each rank itself.")
        elif key in ("topology", "serve.port"):
            found.record(key, "ours", "the command says it, and the plan spreads it.")
        else:
            found.record(str(key), "not used", _WHY["not used"])
    return found


def _compose(given: dict[str, str], document: Plain, choice: str, file: str) -> Source:
    """Read the one service of a Compose file that starts an engine."""
    services = document["services"]
    made: dict[str, tuple[Source, recipe_commands.Served]] = {}
    left: list[str] = []
    for name, service in services.items():
        if not isinstance(service, dict) or (choice and choice != str(name)):
            left.append(str(name))
            continue
        based = service.get("extends")
        based = based.get("service") if isinstance(based, dict) and not based.get("file") else based
        base = services.get(based) if isinstance(based, str) else None
        taken = _service(given, {**base, **service} if isinstance(base, dict) else service)
        if taken is None:
            left.append(str(name))
        else:
            made[str(name)] = taken
    if not made:
        images = " ".join(_text(service.get("image")) for service in services.values() if isinstance(service, dict))
        if engine := recipe_commands.other_engine(images):
            raise CollectionError(recipe_commands.not_ours(engine))
        which = f"service {choice} starts none" if choice else "vLLM and SGLang are known"
        raise CollectionError(f"services: one that starts an engine is needed; {which}.")
    one = recipe_commands.chosen([taken for _found, taken in made.values()], "", file, list(made))
    found = next(found for found, taken in made.values() if taken is one)
    recipe_commands.put(found, one)
    found.lines += [Line(f"services.{other}", "not used", "it is not the service that is used.") for other in left]
    found.lines += [Line(str(key), "not used", _WHY["not used"]) for key in document if key != "services"]
    return found


def _mount(mount: t.Any, variables: dict[str, str]) -> tuple[str, str]:
    """Return a Compose volume's path outside and inside the container, of its short and its long form."""
    if isinstance(mount, dict):
        outside, inside = (recipe_shell.expanded(_text(mount.get(key)), variables) for key in ("source", "target"))
        return outside, inside
    short = recipe_shell.expanded(mount, variables) if isinstance(mount, str) else ""
    return mount_of("--volume", short) or (short, "")


def _service(variables: dict[str, str], service: Plain) -> tuple[Source, recipe_commands.Served] | None:
    """Return a service's settings and its engine's command; None if it starts no engine."""
    found = Source(image=recipe_shell.expanded(_text(service.get("image")), variables), given=variables)
    given = service.get("environment") or {}
    pairs = given.items() if isinstance(given, dict) else [_text(item).partition("=")[::2] for item in given]
    bare = [] if isinstance(given, dict) else [_text(item) for item in given if "=" not in _text(item)]
    for name, value in pairs:
        handed = value is None or name in bare
        found.environment[str(name)] = recipe_shell.expanded(f"${{{name}}}" if handed else _text(value), variables)
    for mount in service.get("volumes") or []:
        outside, inside = _mount(mount, variables)
        found.mounts[inside.rstrip("/")] = outside.rstrip("/")
        became, why = mounted(outside, inside)
        if became != "ours":
            found.record(f"volumes: {outside}:{inside}", became, why)
    words: list[str] = []
    for key in ("entrypoint", "command"):
        value = service.get(key)
        if isinstance(value, list):
            words += [recipe_shell.expanded(_text(item), variables) for item in value]
        elif value:
            # Compose splits a string into words and runs no shell.
            for part in recipe_shell.commands(
                recipe_shell.expanded(_text(value).replace("\\\n", " ").replace("\n", " "), variables)
            ):
                words += [*(f"{name}={given}" for name, given in part.assigned), *part.words]
    ours = re.search("vllm|sglang", found.image)
    built = "vllm" if service.get("build") and not found.image and "serve" in words[:1] else ""
    try:
        one = recipe_commands.served(found, words, {}, found.image if ours else built)
    except CollectionError:
        if ours:
            raise
        return None
    if one is None:
        return None
    for key in service:
        if key == "env_file":
            found.record("env_file", "refused", recipe_commands.NO_FILE)
        elif key not in ("image", "environment", "command", "entrypoint"):
            found.record(str(key), "ours", TEMPLATE)
    return found, one
