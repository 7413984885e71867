# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Converts another tool's recipe into one of our profiles, and reports how it used each line."""

from __future__ import annotations

import functools
import os
import pathlib
import re
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils import foreign, secret_names, secrets_in_text
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.versions import release

from ..profile.profile import KIND, entries, extended
from ..vocabulary import flag_table
from ..vocabulary.hub_names import model_key
from ..vocabulary.images import find_image, load_images
from ..vocabulary.settings import SET_BY_PLAN, Dialect, Tables, load_tables
from . import recipe_commands, recipe_flags, recipe_formats, recipe_source
from .recipe_shell import unset

Plain = dict[str, t.Any]
_KIND = "recipes"  # kind of knowledge: other tools' names for our settings, and variables of one machine
_HUB = re.compile(r"[A-Za-z0-9][^/\s]*/[^/\s:]+")
_CACHED = re.compile(r"(?:^|/)models--([\w.-]+?)--([\w.-]+)(?:/snapshots/([0-9a-f]{40})(?:/|$))?")
_RELEASE = re.compile(r"(?:^|[-_])v?(\d{1,3}\.\d{1,3}\.\d{1,3}(?![.\d])[A-Za-z0-9.+_-]*)")
_SHORT = re.compile(r"(?:^|[-_])v?(\d{1,3}\.\d{1,3})(?![.\d])")  # as NVIDIA's images have it: a year and a month
# The repositories of the engines' own images, whose tags are releases.
_RELEASED = {"vllm": "vllm/vllm-openai", "sglang": "lmsysorg/sglang"}
_LEFT = re.compile(r"\{(?:config\.|launch\.)?[A-Za-z_]\w*\}")
# Dashes and quotes as printers have them: forums and word processors make them of those that were typed.
_PRINTERS = re.compile("[\u2010-\u2015\u2212\u2018-\u201f]")
_PRINTED_SO = (
    "a forum or word processor has replaced its dashes or quotes, which no shell understands. Type them anew: -- and '."
)
_NO_FILE = "there is no such file. A relative path starts at the folder where the playbook is called."
VALUES = "k8s_dgx_recipe_values"
_VARIABLE = re.compile(r"[A-Za-z_]\w*")
_HASH = re.compile(r"[0-9a-f]{40}")


def read(path: str, overlays: t.Sequence[str] = (), values: t.Mapping[str, t.Any] | None = None) -> Plain:
    """Return the profile made from a recipe file; its `recipe` key says how each line was used.

    CollectionError names the file and the fault: unreadable, too large, another engine, a command that only a shell could evaluate.
    The file is read once, and no other file that it names is opened. FILE#NAME selects one service of a Compose file or one of several
    commands (#2 is a script's second). values: what the recipe leaves open, see `profile_of`.
    """
    file, choice = pathlib.Path(path), ""
    if "#" in file.name and not os.path.exists(path):  # noqa: PTH110 - raises nothing, however long the path is
        path, _mark, choice = path.rpartition("#")
        file = pathlib.Path(path)
    try:
        text = _content(file)
        given = tuple(_words(values or {}).items())
    except CollectionError as exc:
        raise CollectionError(f"recipe {path}: {exc}") from exc
    return dict(_made(text, file.name, choice, tuple(overlays), given, knowledge.stamp(overlays)))


def _content(file: pathlib.Path) -> str:
    """Return a recipe's text. CollectionError says what the file is instead."""
    if recipe_commands.is_command(str(file)) and not os.path.exists(file):  # noqa: PTH110
        raise CollectionError("it is a command line, not a file. Save it in a file, and give that file's path.")
    try:
        if file.is_dir():
            raise CollectionError("it is a folder. Name the recipe's file in it.")
        if not file.is_file():
            raise CollectionError(_NO_FILE)
        if file.stat().st_size > knowledge.LARGEST:
            raise CollectionError(f"it is larger than {knowledge.LARGEST // 1024} KiB. Name a recipe.")
        data = file.read_bytes()
    except OSError as exc:
        raise CollectionError(f"cannot be read: {exc.strerror}. Check its permissions.") from exc
    if not data.strip():
        raise CollectionError("it is empty. Name a recipe.")
    return foreign.decoded(data)


@functools.lru_cache(maxsize=32)
def _made(
    text: str,
    name: str,
    choice: str,
    overlays: tuple[str, ...],
    values: tuple[tuple[str, str], ...],
    _stamp: tuple[tuple[str, int], ...],
) -> Plain:
    return profile_of(text, name, overlays, choice, dict(values))


def profile_of(
    text: str, name: str, overlays: t.Sequence[str] = (), choice: str = "", values: t.Mapping[str, t.Any] | None = None
) -> Plain:
    """Return the profile made from a recipe's text. name: its file name. choice: which of its services or commands.

    values: the recipe's variables by name, which override the recipe, and hub names of models keyed by the folder the recipe
    reads them from.
    """
    try:
        words = _words(values or {})
        folders = {_folder(key): value for key, value in words.items() if not _VARIABLE.fullmatch(key)}
        given = {key: value for key, value in words.items() if _VARIABLE.fullmatch(key)}
        if strange := [key for key in given if not re.search(rf"(?<!\w){key}(?!\w)", text)]:
            raise CollectionError(f"{VALUES}: the recipe has no variable {', '.join(strange)}.")
        return _Maker(recipe_formats.read(text, name, choice, given), name, overlays, folders).profile()
    except CollectionError as exc:
        raise CollectionError(f"recipe {name}: {exc}") from exc


def _words(values: t.Mapping[str, t.Any]) -> dict[str, str]:
    """Check the owner's values for a recipe's variables and folders; return them as strings."""
    for key, value in values.items():
        if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
            raise CollectionError(f"{VALUES}.{key}: a text or a number is needed. Put true and false in quotes.")
        if not _VARIABLE.fullmatch(str(key)):
            if not _HUB.fullmatch(str(value)):
                raise CollectionError(
                    f"{VALUES}: {key!r} is not a variable's name, and as a folder it needs a model's name on the hub, such as org/name, "
                    f"not {value!r}."
                )
        elif secret_names.secret(str(key)):
            raise CollectionError(f"{VALUES}.{key}: a secret: give it by k8s_dgx_hf_token or k8s_dgx_api_key.")
    return {str(key): str(value) for key, value in values.items()}


def _folder(name: str) -> str:
    """Normalize a folder for comparison. `./` marks a folder whose name could be a variable's."""
    return name.removeprefix("./").rstrip("/")


def _open(text: str) -> str:
    """Return the first placeholder in a text that nothing sets, or an empty string."""
    left = _LEFT.search(text)
    return f"${{{missing}}}" if (missing := unset(text)) else left[0] if left else ""


def _nothing_sets(missing: str) -> str:
    """Return a message that the recipe leaves something open, and how to set it if it has a name."""
    name = missing.strip("${}").rpartition(".")[2]
    more = f": give it a value, {VALUES} {{{name}: …}}" if _VARIABLE.fullmatch(name) else ""
    return f"nothing in the recipe sets {missing}{more}."


def _of_machine(recipes: t.Collection[knowledge.Entry], engine: str) -> dict[str, tuple[recipe_source.Became, str]]:
    """Return the variables of one machine or rank, and what becomes of them; what is said of this engine counts first."""
    found: dict[str, tuple[recipe_source.Became, str]] = {}
    for each in sorted(recipes, key=lambda entry: "engines" in entry):
        if engine in each.get("engines", (engine,)):
            said = each.get("became", "ours"), each.get("why", "the plan sets it for each rank.")
            found |= dict.fromkeys(each.get("variables", ()), said)
    return found


def _released(tables: Tables, engine: str, version: str) -> bool:
    """Whether an engine may have such a release: none older than the oldest table, and none of another major version."""
    known = [release(parser.version) for parser in tables.versions(engine)]
    return not known or (known[0] <= release(version) and release(version).major == known[-1].major)


class _Maker:
    """A profile under construction."""

    def __init__(
        self, source: recipe_source.Source, name: str, overlays: t.Sequence[str], folders: t.Mapping[str, str]
    ) -> None:
        self.source, self.name, self.folders = source, name, folders
        self.read_from: set[str] = set()  # the folders that the recipe reads from
        self.lines: list[recipe_source.Line] = []
        self.settings: Plain = {}
        self.parallel = {"nodes": 1, "tp": 1, "pp": 1, "ep": 1}
        self.model, self.revision = source.model, source.revision
        self.port: int | None = None
        self.profiles = entries(overlays)
        self.images = load_images(overlays)
        recipes = knowledge.shared(_KIND, tuple(overlays)).values()
        self.names = {theirs: ours for each in recipes for theirs, ours in each.get("settings", {}).items()}
        self.own_release = ""  # an image's tag that is its own number, and not the engine's release
        self.engine, self.version = self.engine_of(load_tables(overlays))
        self.of_machine = _of_machine(recipes, self.engine)
        self.dialect: Dialect = load_tables(overlays).dialect(self.engine, self.version)

    def record(self, text: str, became: recipe_source.Became, why: str = "") -> None:
        self.lines.append(recipe_source.Line(text, became, why))

    def engine_of(self, tables: Tables) -> tuple[str, str]:
        """Return the engine and version: a known image's, else from the image's tag, which may name no release.

        A number that no release of the engine can have is the image's own.
        """
        if _open(self.source.image):
            self.record(
                f"image {self.source.image}",
                "refused",
                f"{_nothing_sets(_open(self.source.image))[:-1]}, or name one, k8s_dgx_image.",
            )
            self.source.engine = self.source.engine or next(
                (e for e in ("sglang", "vllm") if e in self.source.image), ""
            )
            self.source.image = ""
        image = self.source.image
        if named := find_image(self.images, image).get("engine"):
            return named["name"], named["version"]
        repository, _at, digest = image.partition("@")
        tag = repository.rpartition("/")[2].partition(":")[2]
        engine = self.source.engine or next((e for e in ("sglang", "vllm") if e in repository), "")
        if not engine:
            raise CollectionError("it does not say which engine it is for. Add runtime: vllm, or runtime: sglang.")
        found = _RELEASE.search(tag)
        found = found or _SHORT.search(tag)
        if found and not repository.startswith(_RELEASED[engine]) and not _released(tables, engine, found[1]):
            self.own_release = found[1]
            return engine, "unknown"
        return engine, found[1] if found and found.re is _RELEASE else tag or ("unknown" if digest else "latest")

    def profile(self) -> Plain:
        """Assemble the profile."""
        self.record(f"image {self.source.image or '(none)'}", *self.image_said())
        parser = self.dialect.parser
        alone, given = recipe_flags.read_flags(self.source.words, parser)
        if alone and "model_tag" in parser.table["positionals"]:
            self.model = alone.pop(0) if not unset(alone[0]) or not self.model else self.model
        for word in alone:
            what = f"it is a positional argument, which {parser.engine} does not accept."
            self.record(word, "refused", _PRINTED_SO if _PRINTERS.search(word) else what)
        kept = recipe_flags.merged(given, parser)
        for one in given:
            if one.text not in kept[one.name].text:
                shown = f"--{one.name} …" if secret_names.secret(one.name.replace("-", "_")) else one.text
                self.record(shown, "not used", "it is given again later, and the engine uses the last one.")
        if self.source.revision:
            self.put("revision", self.source.revision, f"model_revision: {self.source.revision}", True)
        for one in kept.values():
            self.flag(one)
        for name, value in self.source.options.items():
            self.option(name, value)
        self.spread()
        environment = self.environment()
        known = self.known_model()
        if strange := sorted(self.folders.keys() - self.read_from):
            raise CollectionError(
                f"{VALUES}: the recipe reads no model from {', '.join(strange)}. It serves {self.model}."
            )
        engine: Plain = {"name": self.engine, "version": self.version}
        if self.source.image:
            engine["image"] = self.source.image
        made: Plain = {
            "id": re.sub(r"[^a-z0-9_.-]+", "-", pathlib.PurePath(self.name).stem.lower()).strip("-._") or "recipe",
            "title": self.source.title or self.model,
            "model": self.model,
            "proven": "untested",
            "precision": {},
            **known,
            "engine": engine,
            "parallel": self.parallel,
            "settings": self.settings,
            "environment": environment,
            "source": [{"of": "settings", "from": f"The recipe {self.name}", "verified": "reported"}],
        }
        for key, value in (("port", self.port), ("mods", self.source.mods)):
            if value:
                made[key] = value
        if _HASH.fullmatch(self.revision):
            made["revision"] = self.revision
        lines = [{"text": x.text, "became": x.became, "why": x.why} for x in (*self.lines, *self.source.lines)]
        made["recipe"] = {"file": self.name, "lines": lines}
        knowledge.validate(KIND, made, "the resulting profile")
        return made

    def image_said(self) -> tuple[recipe_source.Became, str]:
        said = f"engine {self.engine} {self.version}"
        if self.own_release:
            said += (
                f": {self.own_release} is the image's own number, since {self.engine} has no such release. Name the release that it "
                "has (k8s_dgx_overrides: {engine: {version: …}}), or have the image read (k8s_dgx_inspect_image)"
            )
        if not self.source.image:
            return "not used", f"{said}: name one, k8s_dgx_image."
        if "/" not in self.source.image.partition(":")[0]:
            said += "; registries usually have no such name: put it into the nodes' image folder, or name another (k8s_dgx_image)"
        return "setting", said

    def flag(self, one: recipe_flags.Given) -> None:
        """Apply one flag."""
        name = one.name.replace("-", "_")
        if secret_names.secret(name) or secrets_in_text.formed(one.text):
            self.record(f"--{one.name} …", "refused", "a secret: give it by k8s_dgx_api_key or k8s_dgx_hf_token.")
            return
        missing = _open(one.text) if not isinstance(one.value, dict) or unset(one.text) else ""
        if one.fault or missing:
            self.record(one.text, "refused", f"{one.fault}." if one.fault else _nothing_sets(missing))
            return
        self.put(name, one.value, one.text, one.known)

    def option(self, name: str, value: t.Any) -> None:
        """Apply one value from a recipe without a command."""
        own = self.names.get(name, name)
        key = own if isinstance(own, str) else own.get(self.engine, name)
        text = f"defaults.{name}: {value}"
        if secret_names.secret(key):
            self.record(f"defaults.{name}", "refused", "a secret: give it by k8s_dgx_api_key or k8s_dgx_hf_token.")
        elif isinstance(value, str) and "{" in value and _LEFT.search(value):
            filled = value.replace("{model_revision}", self.revision).replace("{model}", self.model)
            self.put(key, filled, text, True)
        elif not re.fullmatch(r"[a-z][a-z0-9_]*", key):
            self.record(text, "refused", "no setting has such a name.")
        else:
            spec = self.dialect.parser.spec(key.replace("_", "-"))
            kind = flag_table.expected(spec).removeprefix("list of ") if spec else "str"
            typed = recipe_flags.typed(value, kind, self.engine) if isinstance(value, str) else value
            self.put(key, typed, text, spec is not None or key in self.dialect.tables.names)

    def put(self, name: str, value: t.Any, text: str, known: bool) -> None:
        """Store one setting under its name here."""
        if isinstance(value, dict):
            value = {inner: self.in_folder(each) for inner, each in value.items()}
        key, _turned = self.dialect.named(name)
        if key == "model":
            self.model = str(value)
            self.record(text, "setting", "model")
        elif key == "revision":
            self.revision = str(value)
            if not _HASH.fullmatch(self.revision):
                self.settings["revision"] = self.revision
            self.record(text, "setting", "revision")
        elif key == "host":
            self.record(text, "ours", "the server listens on all addresses of its pod.")
        elif key == "port" and isinstance(value, int) and 1024 <= value <= 65535:
            self.port = value
            self.record(text, "ours", f"instance.port {value}")
        elif key in ("tp_size", "pp_size", "ep_size", "dp_size", "enable_expert_parallel"):
            self.parallelism(key, value, text)
        elif key in SET_BY_PLAN:
            self.record(text, "ours", f"set for each rank by {SET_BY_PLAN[key]}.")
        elif not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            self.record(text, "refused", "no flag has such a name.")
        elif known or key in self.dialect.tables.settings:
            self.settings[name] = value
            self.record(text, "setting", name if name == key else f"{name}, which is {key}")
        else:
            self.settings[name] = value
            why = f"not in the flag table of {self.dialect.parser.engine} {self.dialect.parser.version}."
            if self.source.mods:
                why += f" A patch of the image may add it: {', '.join(self.source.mods)}."
            self.record(text, "passed on", why)

    def parallelism(self, key: str, value: t.Any, text: str) -> None:
        """Store the parallelism across Sparks, each with one GPU."""
        if key == "enable_expert_parallel":
            self.parallel["ep"] = 0 if value else 1  # 0: set to the TP size once that is known
            self.record(text, "setting", "parallel.ep")
        elif isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self.record(text, "refused", f"{value!r} is not a whole number of at least 1.")
        elif key == "dp_size":
            why = "each Spark has one GPU, and the plan spreads one copy of the model: serve a second instance."
            self.record(text, *(("ours", "one copy of the model") if value == 1 else ("refused", why)))
        else:
            short = key.removesuffix("_size")
            self.parallel[short] = value
            self.record(text, "setting", f"parallel.{short}")

    def spread(self) -> None:
        """Compute the number of Sparks."""
        tp, pp = self.parallel["tp"], self.parallel["pp"]
        most = self.source.most
        if most == 1 and tp * pp > 1:
            self.record(f"tp {tp}, pp {pp}", "not used", "the recipe is for a single Spark, for which its tool sets 1.")
            self.parallel |= {"tp": 1, "pp": 1, "ep": min(self.parallel["ep"], 1)}
        elif self.source.least > 1 and tp * pp == 1:
            self.record(f"at least {self.source.least} nodes", "not used", "its command uses one GPU: tp and pp are 1.")
        self.parallel["ep"] = self.parallel["ep"] or self.parallel["tp"]
        self.parallel["nodes"] = self.parallel["tp"] * self.parallel["pp"]

    def environment(self) -> dict[str, str]:
        """Keep the variables that belong to the model or the engine."""
        kept: dict[str, str] = {}
        for name, said in self.source.environment.items():
            value = self.source.given.get(name, said)
            missing = _open(value)
            if not _VARIABLE.fullmatch(name):
                self.record(f"env {name}", "refused", "it is not a valid name of a variable.")
            elif secret_names.secret(name) or secrets_in_text.formed(f"{name}={value}"):
                self.record(f"env {name}=…", "refused", "a secret: give it by k8s_dgx_hf_token or k8s_dgx_api_key.")
            elif name in self.of_machine:
                self.record(f"env {name}={value}", *self.of_machine[name])
            elif missing:
                self.record(f"env {name}={value}", "refused", _nothing_sets(missing))
            else:
                kept[name] = value
                self.record(f"env {name}={value}", "setting", "environment")
        return kept

    def in_folder(self, value: t.Any) -> t.Any:
        """Return the hub's name for a folder whose model the owner names."""
        folder = _folder(value) if isinstance(value, str) else ""
        if folder not in self.folders:
            return value
        self.read_from.add(folder)
        return self.folders[folder]

    def found_model(self) -> None:
        """Set the hub's name if the command names a folder and the recipe says which model is in it."""
        inside = self.model.rstrip("/")
        mounts = self.source.mounts
        base = max((m for m in mounts if m and (inside == m or inside.startswith(m + "/"))), key=len, default=None)
        outside = inside if base is None else mounts[base] + inside[len(base) :]
        name = self.source.downloads.get(inside) or self.source.downloads.get(outside)
        own = next((self.in_folder(x) for x in (inside, outside) if _folder(x) in self.folders), "")
        cached = next((found for found in map(_CACHED.search, (inside, outside)) if found), None)
        said = self.source.model if _HUB.fullmatch(self.source.model) else ""
        if own:
            name = own
        elif cached:
            name = f"{cached[1]}/{cached[2]}"
            self.revision = self.revision or cached[3] or ""
        if found := name if name and _HUB.fullmatch(name) else said:
            self.record(
                f"model {self.model}",
                "ours",
                f"a folder for {found}, according to {VALUES if own else 'the recipe'}: the weights come from the hub by name.",
            )
            self.model = found

    def known_model(self) -> Plain:
        """Return what an existing profile knows about the model. Raises CollectionError if the recipe names no hub model."""
        if not _HUB.fullmatch(self.model) or _folder(self.model) in self.folders:
            self.found_model()
        if missing := _open(self.model):
            raise CollectionError(f"model: {_nothing_sets(missing)} Or write the model's name there.")
        if not _HUB.fullmatch(self.model):
            folder = f"./{self.model}" if _VARIABLE.fullmatch(self.model) else self.model
            more = " It is a file for llama.cpp, which is not served here." if ":" in self.model else ""
            raise CollectionError(
                f"model: {self.model!r} is not a model's name on the hub, such as org/name.{more} Weights come from the hub, "
                f"and a folder in a container says nothing about them: name its model, {VALUES} {{{folder}: org/name}}."
            )
        for entry in self.profiles.values():
            whole = extended(entry, self.profiles)
            if model_key(whole.get("model", "")) == model_key(self.model) and "facts" in whole:
                self.record(f"model {self.model}", "setting", f"its facts are those of profile {whole['id']}")
                return {key: whole[key] for key in ("facts", "precision", "checkpoint_gb", "drafter") if key in whole}
        self.record(
            f"model {self.model}",
            "setting",
            "no profile knows it: its facts are those of its own config.json, if that can be read (facts.from, facts.not-found)",
        )
        return {}
