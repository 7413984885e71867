"""Print the planner's verdict on every measured row: by rules alone, without rules based on mere summaries, and with evidence.

A bad row is *caught* if it is blocked, or has a warning from a rule that names a setting of the row; a stable row
is *passed* if it is not blocked and has at most one such warning. A rule's warning counts only if the rule
fires on at most a fifth of the stable rows.
"""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import runpy
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[1]
runpy.run_path(str(ROOT / "tools" / "own_collection.py"))

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.judgement import (  # noqa: E402
    evidence,
    knowledge_base,
    verdict,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model.model import Parallelism  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.profile import profile  # noqa: E402

SHARE = 0.2
# What a log names differently, or states beside its settings.
ALIASES = {"ep_size": "ep", "tp_size": "tp", "pp_size": "pp"}


def entry_of(row: evidence.Row) -> dict[str, t.Any]:
    """Return the shipped profile of a row's model; of several, the first of its engine; without any, one that has no facts."""
    known = knowledge.shared(profile.KIND)
    own = [name for name, entry in known.items() if entry.get("model") == row.run.model]
    same = [name for name in own if profile.find(name)["engine"]["name"] == row.run.engine]
    if own:
        return profile.find((same or own)[0])
    return {
        "id": row.id,
        "title": row.id,
        "model": row.run.model,
        "proven": "untested",
        "engine": {"name": row.run.engine, "version": row.run.version},
        "parallel": {"nodes": row.run.nodes, "tp": row.run.tp, "pp": row.run.pp, "ep": row.run.ep},
        "precision": {},
        "settings": {},
        "source": [{"of": "settings", "from": row.source[0], "verified": "reported"}],
    }


def profile_of(row: evidence.Row, entry: dict[str, t.Any]) -> profile.Profile:
    """Return a profile's model with the configuration of a row, and none of the profile's other settings."""
    run = row.run
    return dataclasses.replace(
        profile.resolve(entry),
        model=run.model,
        engine=profile.Engine(run.engine, run.version, "", run.image),
        nodes=run.nodes,
        parallelism=Parallelism(run.tp, run.pp, run.ep),
        settings=dict(run.settings),
        environment={key: str(value) for key, value in run.environment.items()},
        revision=run.revision,
    )


def judged(
    row: evidence.Row, entry: dict[str, t.Any], known: knowledge_base.Base, use_evidence: bool = False
) -> verdict.Judgement:
    """Judge one row."""
    return verdict.judge(profile_of(row, entry), known, use_evidence=use_evidence)


@dataclasses.dataclass
class Table:
    """Counts of one run over the rows."""

    bad: int = 0
    caught: int = 0
    crashes: int = 0
    crashes_blocked: int = 0
    garbage: int = 0
    garbage_blocked: int = 0
    stable: int = 0
    stable_blocked: int = 0
    passed: int = 0
    missed: list[str] = dataclasses.field(default_factory=list)
    failed: list[str] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"bad {self.caught}/{self.bad} caught (crashes blocked {self.crashes_blocked}/{self.crashes}, garbage "
            f"blocked {self.garbage_blocked}/{self.garbage}); stable {self.passed}/{self.stable} passed, "
            f"{self.stable_blocked} blocked"
        )


def names_of(row: evidence.Row) -> set[str]:
    """Return the settings that a row states, including its parallelism."""
    return set(row.run.settings) | {key for key, attribute in ALIASES.items() if getattr(row.run, attribute) > 1}


def confusion(rows: t.Sequence[evidence.Row], known: knowledge_base.Base, noise: t.Collection[str]) -> Table:
    """Count caught and passed rows by rules alone; `noise`: rules whose warnings do not count."""
    entries = {row.id: entry_of(row) for row in rows}
    table = Table()
    for row in rows:
        found = judged(row, entries[row.id], known)
        blocked = found.verdict == "blocked"
        warnings = [
            f for f in found.findings if f.severity == "warning" and f.id not in noise and set(f.names) & names_of(row)
        ]
        if row.verdict == "stable":
            table.stable += 1
            table.stable_blocked += blocked
            ok = not blocked and len(warnings) <= 1
            table.passed += ok
            if not ok:
                table.failed.append(f"{row.id}: {', '.join(f.id for f in found.findings if f.severity != 'info')}")
            continue
        table.bad += 1
        table.caught += blocked or bool(warnings)
        table.crashes += row.verdict == "crash"
        table.crashes_blocked += row.verdict == "crash" and blocked
        table.garbage += row.verdict == "garbage"
        table.garbage_blocked += row.verdict == "garbage" and blocked
        if not blocked:
            table.missed.append(f"{row.id}: {', '.join(f.id for f in warnings) or 'nothing'}")
    return table


def noisy(rows: t.Sequence[evidence.Row], known: knowledge_base.Base) -> dict[str, int]:
    """Return on how many stable rows each rule with a warning fires."""
    entries = {row.id: entry_of(row) for row in rows}
    fired: collections.Counter[str] = collections.Counter()
    for row in (row for row in rows if row.verdict == "stable"):
        found = judged(row, entries[row.id], known).findings
        fired.update({f.id for f in found if f.severity == "warning"})
    return dict(fired)


def main() -> int:
    """Print the tables; return 1 if a stable row is blocked."""
    known = knowledge_base.base()
    rows = evidence.load_rows()
    fired = noisy(rows, known)
    stable = sum(row.verdict == "stable" for row in rows)
    noise = {rule for rule, count in fired.items() if count > SHARE * stable}
    print("Warnings on stable rows:", ", ".join(f"{rule} {count}" for rule, count in sorted(fired.items())) or "none")
    print("Rules whose warnings do not count:", ", ".join(sorted(noise)) or "none")
    table = confusion(rows, known, noise)
    print("Rules alone:", table)
    for line in table.missed:
        print("  bad, not blocked:", line)
    for line in table.failed:
        print("  stable, not passed:", line)
    reduced = dataclasses.replace(known, rules=tuple(rule for rule in known.rules if not rule.summary))
    print("Without the rules whose only source is somebody's summary:", confusion(rows, reduced, noise))
    entries = {row.id: entry_of(row) for row in rows}
    right = 0
    for row in rows:
        found = judged(row, entries[row.id], known, use_evidence=True)
        right += (found.verdict == "proven") == (row.verdict == "stable")
    print(f"With evidence (a look-up): right on {right}/{len(rows)}")
    return 1 if table.stable_blocked else 0


if __name__ == "__main__":
    raise SystemExit(main())
