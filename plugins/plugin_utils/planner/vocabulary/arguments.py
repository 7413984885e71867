# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings → the argument list and environment of one engine version, by table.

Two kinds of data decide everything. `knowledge/engines/` holds what each version's own parser accepts.
`knowledge/settings/` holds how to express a setting to an engine: a list of *ways* in order of preference; the first that
the version knows is used. A setting without such an entry is a flag of the engine in its own vocabulary, written with
underscores (`chunked_prefill_size`). Nothing is emitted that the version's table does not have, and flags are written in
full: both parsers accept prefixes, which may be ambiguous in the next version.
"""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, Finding
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import looks
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.versions import (
    counted,
    names_release,
    release,
    same_release,
)

from . import flag_table
from .settings import Tables, load_tables, read_layer

__all__ = ["Arguments", "Tables", "build_argv", "check_environment", "engine_parser", "load_tables", "render_argv"]
Entry = t.Mapping[str, t.Any]
NEWER = "engine.newer"  # the finding on a release that is newer than all tables

# Settings whose value a checkpoint replaces before the engine checks it: vLLM 0.20.0 config/model.py:977, where
# modelopt.py:1033 returns modelopt_fp4 regardless of the request; runs with --quantization fp4 were published.
_OF_CHECKPOINT = {"vllm": frozenset(["quantization"])}


@dataclass(frozen=True)
class Arguments:
    """How to start one rank: `program`, then `argv`, with `env`. `findings` are informational and block nothing."""

    argv: tuple[str, ...]
    env: dict[str, str]
    findings: tuple[Finding, ...] = ()
    program: tuple[str, ...] = ()


def engine_parser(engine: str, version: str, tables: Tables) -> flag_table.Parser:
    """Return one version's parser, or the nearest one's. Raises CollectionError for an unknown engine."""
    found = tables.nearest(engine, version)
    if found is None:
        raise CollectionError(f"engine {engine!r} is unknown. Known engines: sglang, vllm.")
    return found


def build_argv(engine: str, version: str, settings: t.Mapping[str, t.Any], tables: Tables) -> Arguments:
    """Build the arguments of one engine version from settings under any of their names.

    None means unset. Raises CollectionError whose `findings` name every setting that the version does not support, with
    version, flag and remedy.
    """
    engine_parser(engine, version, tables)
    own, _variables, faults, given = read_layer(settings, {}, tables.dialect(engine, version))
    return render_argv(
        engine, version, own, tables, faults, {key: name.partition(".")[2] for key, name in given.items()}
    )


def render_argv(
    engine: str,
    version: str,
    settings: t.Mapping[str, t.Any],
    tables: Tables,
    faults: t.Sequence[Finding] = (),
    written: t.Mapping[str, str] | None = None,
    accept: t.Collection[str] = (),
    mods: t.Sequence[str] = (),
) -> Arguments:
    """Build the arguments of one engine version from canonical settings. faults: earlier ones; written: the owner's names, for messages.

    accept: ids of findings (`arguments.unknown`) that the owner overrules: the settings concerned are passed on as written.
    mods: patches that a recipe expects in its image; they may add flags.
    """
    parser = engine_parser(engine, version, tables)
    build = _Build(engine, version, tables, parser, settings, written or {}, accept, mods)
    build.findings += faults
    for key in (
        *(k for k in tables.settings if k in settings),
        *sorted(k for k in settings if k not in tables.settings),
    ):
        if settings[key] is not None:
            build.setting(key, settings[key], tables.settings.get(key))
    return build.result()


def check_environment(engine: str, version: str, env: t.Mapping[str, str], tables: Tables) -> tuple[Finding, ...]:
    """Find variables with the engine's prefix (`SGLANG_`, `VLLM_`) that this version does not declare."""
    parser = engine_parser(engine, version, tables)
    declared = parser.environment
    tabled = same_release(parser.version, version)
    says = f"{engine} {version} does not declare it, so it has no effect."
    if not tabled:
        says = f"The table of {engine} {parser.version}, the nearest to {version}, does not declare it: it may have no effect."
    findings = []
    for name in sorted(env):
        if name.startswith(f"{engine.upper()}_") and name not in declared:
            having = [other.version for other in tables.versions(engine) if name in other.environment]
            findings.append(
                Finding(
                    "arguments.variable",
                    "warning",
                    f"environment.{name}",
                    f"{says} {flag_table.which(having)}".strip(),
                    flag_table.nearest(name, declared),
                )
            )
    return tuple(findings)


@dataclass
class _Build:
    """An argument list under construction."""

    engine: str
    version: str
    tables: Tables
    parser: flag_table.Parser
    given: t.Collection[str] = ()
    written: t.Mapping[str, str] = field(default_factory=dict)
    accept: t.Collection[str] = ()
    mods: t.Sequence[str] = ()
    positionals: list[str] = field(default_factory=list)
    flags: dict[str, list[str]] = field(default_factory=dict)
    objects: dict[str, dict[str, t.Any]] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    owner: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def what(self) -> str:
        return f"{self.engine} {self.version}"

    @property
    def tabled(self) -> bool:
        """Whether the table is for exactly this release."""
        return same_release(self.parser.version, self.version)

    def refuse(self, kind: str, name: str, message: str, remedy: str) -> bool:
        """Record a fault in a setting; return whether it is refused. If not (accepted, or no table), the setting is still written."""
        rule, where = f"arguments.{kind}", f"settings.{self.written.get(name, name)}"
        refused = rule not in self.accept
        message = message if refused else f"Accepted by the owner: {message}"
        if refused and not self.tabled and kind in ("unknown", "choice", "removed"):
            refused, remedy = (
                False,
                f"{remedy} If the image is older or newer than that, nothing needs to be done.".strip(),
            )
            message = f"{message} This is what the table of {self.parser.version} says, but the image has another version: it is passed on."
        if refused and kind == "choice" and name in _OF_CHECKPOINT.get(self.engine, ()):
            refused = False
            message = f"{message} A checkpoint that states its own method overrides it; without one the engine does not start. It is passed on."
        self.findings.append(Finding(rule, "error" if refused else "warning", where, message, remedy))
        return refused

    def pass_on(self, name: str, flag: str, value: t.Any) -> None:
        """Write a flag that no table has, unchanged; false omits a switch."""
        if value is not False:
            self.put(name, f"--{flag}", flag_table.written(flag, {"type": "switch" if value is True else "any"}, value))

    def setting(self, name: str, value: t.Any, entry: Entry | None) -> None:
        """Write one setting, or record why it cannot be written."""
        if entry is None:
            self.native(name, value)
            return
        if entry.get("plan_only"):
            return
        ways = entry.get(self.engine)
        if ways is None:
            other = entry.get("instead", {}).get(self.engine)
            remedy = f"{self.engine} has {other}, which means something else." if other else "Leave it out."
            self.refuse("engine", name, f"{self.engine} has no such setting.", remedy)
            return
        for way in ways:
            parts = way if isinstance(way, list) else [way]
            if all(self.parser.knows(part) for part in parts):
                for part in parts:
                    self.write(name, value, part)
                return
        self.unknown(name, value, [part for way in ways for part in (way if isinstance(way, list) else [way])])

    def write(self, name: str, value: t.Any, part: Entry) -> None:
        """Write a value as one part of a way specifies."""
        if "note" in part:
            if value is not False:
                self.findings.append(Finding("arguments.implied", "info", f"settings.{name}", part["note"]))
            return
        if why := part.get("left_out", {}).get(str(value)):
            text = f"{value} is left out. {why}"
            self.findings.append(
                Finding("arguments.left-out", "warning", f"settings.{name}", text, "Leave it out here, too.")
            )
            return
        spec = self.parser.spec(part["flag"]) if "flag" in part else None
        said = flag_table.translate(value, part, spec)
        if said is None:
            return
        if "positional" in part:
            self.positionals.append(str(said))
        elif "env" in part:
            self.put(name, part["env"], str(said))
        elif "key" in part:
            self.inside(name, part["flag"], part["key"], said)
        elif spec is not None:  # always: Parser.knows() has checked it
            self.flag(name, part["flag"], spec, said)

    def native(self, name: str, value: t.Any) -> None:
        """Write a setting that is a flag in the engine's own vocabulary."""
        flag = name.replace("_", "-")
        spec = self.parser.spec(flag)
        if spec is None:
            self.unknown(name, value, [{"flag": flag}])
        elif spec.get("deprecated") == "no effect":
            text = f"{self.what} still accepts --{flag}, but ignores it, so it is left out."
            use = f"Its successor: {spec['use']}." if spec.get("use") else "It may be left out here, too."
            self.findings.append(Finding("arguments.removed", "warning", f"settings.{name}", text, use))
        elif spec.get("deprecated") == "refused" and self.refuse(
            "removed", name, f"{self.what} refuses --{flag}.", f"{spec.get('use', 'Leave it out')}."
        ):
            return
        elif flag_table.is_default(value, spec) and flag_table.fault(value, flag_table.expected(spec)):
            return  # it cannot be passed on a command line, and need not be
        elif spec["type"] == "json" and isinstance(value, dict):
            for key, item in value.items():
                self.inside(name, flag, str(key), item)
        else:
            self.flag(name, flag, spec, value)

    def flag(self, name: str, flag: str, spec: Entry, value: t.Any) -> None:
        """Write a flag in full, after checking its choices."""
        if isinstance(value, dict) and spec["type"] == "str":
            value = json.dumps(value, sort_keys=True)  # a string flag that the engine itself parses as JSON
        wrong = self.choice(flag, spec, value)
        if wrong:
            kind, why, remedy = wrong
            if self.refuse(kind, name, f"--{flag} of {self.what}: {why}", remedy):
                return
        if spec.get("deprecated"):
            use = f"Its successor: {spec['use']}." if spec.get("use") else ""
            text = f"{self.what} still takes --{flag}, but a later version will not. {use}".strip()
            self.findings.append(Finding("arguments.deprecated", "info", f"settings.{name}", text))
        written = flag_table.written(flag, spec, value)
        if written:
            self.put(name, f"--{self.parser.primary(flag)}", written)

    def choice(self, flag: str, spec: Entry, value: t.Any) -> flag_table.Fault | None:
        """Check a value against what the parser, or a later check, accepts."""
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if flag_table.accepted(item, spec) or (spec.get("known") and self.plugged(flag)):
                continue
            having = [
                other.version
                for other in self.tables.versions(self.engine)
                if flag_table.accepted(item, other.spec(flag) or {"choices": []})
            ]
            choices = spec.get("choices") or spec["known"]
            remedy = f"Choose one of {', '.join(map(str, choices))}."
            return "choice", f"{item!r} is not one of its choices. {flag_table.which(having)}".strip(), remedy
        return None

    def plugged(self, flag: str) -> bool:
        """Whether a plugin may add values (vLLM's parsers)."""
        return f"{flag}-plugin".replace("-", "_") in self.given

    def inside(self, name: str, flag: str, key: str, value: t.Any) -> None:
        """Put a value into a flag's JSON object."""
        whole = f"{flag}.{key}"
        known = self.parser.table["facts"].get("known_values", {}).get(whole)
        wrong = known and isinstance(value, str) and not flag_table.accepted(value, {"known": known})
        why = f"{key} of --{flag}: {self.what} does not know {value!r}."
        if wrong and self.refuse("choice", name, why, f"Choose one of {', '.join(known)}."):
            return
        held = self.objects.setdefault(flag, {})
        if key in held and held[key] != value:
            self.clash(name, whole, f"{key} in --{flag}")
            return
        held[key] = value
        self.owner.setdefault(whole, name)

    def put(self, name: str, place: str, value: list[str] | str) -> None:
        """Store one flag or variable; two settings must not give the same one different values."""
        held = self.flags.get(place) if isinstance(value, list) else self.env.get(place)
        if held is not None and held != value:
            self.clash(name, place, place)
            return
        self.owner.setdefault(place, name)
        if isinstance(value, list):
            self.flags[place] = value
        else:
            self.env[place] = value

    def clash(self, name: str, owned: str, place: str) -> None:
        self.refuse(
            "conflict",
            name,
            f"{place} is set to something else by settings.{self.owner[owned]}.",
            "Give one of the two.",
        )

    def unknown(self, name: str, value: t.Any, parts: t.Sequence[Entry]) -> None:
        """Report a setting that this version does not support, with what the other tables say about it.

        A flag that no table has is passed on to a release without a table, and to any release if the owner accepts it.
        """
        flags = [part["flag"] for part in parts if "flag" in part]
        variables = [part["env"] for part in parts if "env" in part]
        having, successors, others = [], [], set()
        versions = self.tables.versions(self.engine)
        for parser in versions:
            specs = [spec for spec in map(parser.spec, flags) if spec is not None]
            if specs or any(variable in parser.environment for variable in variables):
                having.append(parser.version)
            successors += [spec["use"] for spec in specs if spec.get("use")]
        said = " or ".join([*(f"--{flag}" for flag in flags), *variables])
        remedy = f"Use its successor {successors[-1]}." if successors else ""
        if not having:
            others = {p.engine for p in self.tables.parsers.values() if any(map(p.spec, flags))} - {self.engine}
            if others:
                remedy = f"It is a flag of {', '.join(sorted(others))}. " + self.meant(flags)
            remedy = remedy or flag_table.nearest(
                name, [*self.tables.names, *(flag for parser in versions for flag in parser.flags)]
            )
        nowhere = not (having or others or variables)
        if self.mods and nowhere and self.tabled:
            text = (
                f"No flag table has {said}. The recipe's image is patched ({', '.join(self.mods)}), and a patch may add it: "
                "it is passed on unchanged. Without the patch the engine does not start."
            )
            remedy = f"Name an image that has the patch (k8s_dgx_image), or leave it out. {remedy}".strip()
            self.findings.append(Finding("arguments.passed-on", "warning", f"settings.{name}", text, remedy))
        elif not (having or self.tabled or variables):
            text = f"No flag table has {said}: it is passed on to {self.what} as it is written."
            self.findings.append(Finding("arguments.passed-on", "warning", f"settings.{name}", text, remedy))
        elif self.refuse(
            "unknown",
            name,
            f"{self.what} has no {said}. {flag_table.which(having)}".strip(),
            f"{remedy or 'Leave it out.'} To pass it on all the same, accept arguments.unknown.",
        ):
            return
        if flags:
            self.pass_on(name, flags[0], value)

    def meant(self, flags: t.Sequence[str]) -> str:
        """Name the setting that expresses another engine's flag here."""
        for key, entry in self.tables.settings.items():
            ways = [w for e in ("sglang", "vllm") if e != self.engine for w in entry.get(e, ())]
            parts = [part for way in ways for part in (way if isinstance(way, list) else [way])]
            if entry.get(self.engine) and any(part.get("flag") in flags for part in parts):
                return f"The setting {key} works for both engines."
        return ""

    def untabled(self) -> Finding:
        """Report that another version's table is used, and where the tables on both sides differ in the flags used."""
        sides = self.tables.neighbours(self.engine, self.version)
        newest = sides[-1].version
        if names_release(self.version) and counted(self.version) > release(newest):
            return Finding(
                NEWER,
                "info",
                "engine.version",
                f"{looks.newer_engine(self.engine, self.version, newest)}: that table is used, and rules count the release as newer than "
                "all others.",
                "Have the image read with dgxspark.cluster.inspect_image (or k8s_dgx_inspect_image: true).",
                source=("knowledge/looks",),
            )
        used = [*(place.removeprefix("--") for place in self.flags), *self.objects]
        differ = sorted({f"--{flag}" for flag in used if sides[0].spec(flag) != sides[-1].spec(flag)})
        between = " and ".join(side.version for side in sides)
        newer = (
            ", and rules count the version as newer than all others"
            if counted(self.version) > release(sides[-1].version)
            else ""
        )
        told = f"differ in {', '.join(differ)}" if differ else "agree on all flags in use"
        return Finding(
            "arguments.table",
            "warning",
            "engine.version",
            f"There is no flag table for {self.what}, so the table of {self.parser.version} is used{newer}. The tables of {between} {told}.",
            "Look at these flags in the image (--help)." if differ else "Nothing needs to be done.",
        )

    def result(self) -> Arguments:
        """Assemble the list. Raises CollectionError if anything was rejected or a required flag is missing."""
        for flag, held in self.objects.items():
            text = json.dumps(held, sort_keys=True)
            self.put(self.owner[f"{flag}.{next(iter(held))}"], f"--{flag}", [f"--{flag}", text])
        for flag in self.parser.required:
            if f"--{flag}" not in self.flags and not any(f.severity == "error" for f in self.findings):
                self.refuse("missing", flag.replace("-", "_"), f"{self.what} needs --{flag}.", "Set it.")
        errors = [finding for finding in self.findings if finding.severity == "error"]
        if errors:
            more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
            raise CollectionError(f"{errors[0]}{more}", findings=errors)
        argv = (*self.positionals, *(word for written in self.flags.values() for word in written))
        if not self.tabled:
            self.findings.append(self.untabled())
        program = tuple(self.parser.table["facts"]["program"]["value"])
        return Arguments(argv, dict(self.env), tuple(self.findings), program)
