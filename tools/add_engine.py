"""Add a release of an engine: its flags, its defaults on a GB10, its model classes, and whether the start-up patches still fit.

Usage: add_engine.py sglang|vllm VERSION [--later-classes]. Its wheel comes from pip; neither torch nor a GPU is needed. It writes
knowledge/engines/<engine>.json and knowledge/model_classes/<engine>.yml, and prints what a person must decide. The classes are read
from the wheels of all versions, which are kept in .cache/oracle: vLLM's are 10 GB the first time. With --later-classes they are left.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys

from packaging.version import InvalidVersion, Version

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from engine_parsers import decisions, tables
from engine_parsers.sources import ROOT, NotAvailable, source


def main(arguments: list[str]) -> int:
    """Write the tables and the classes; print the decisions."""
    named = [argument for argument in arguments if argument != "--later-classes"]
    if len(named) != 2 or named[0] not in tables.ENGINES:
        raise SystemExit(__doc__)
    engine, version = named
    try:
        version = str(Version(version))
        made = tables.entry(engine, version)
        folder = source(engine, version).folder
    except (NotAvailable, InvalidVersion) as exc:
        raise SystemExit(f"add_engine: {exc}") from exc
    held = tables.shipped(engine)
    older = [known for known in held if Version(known) < Version(version)]
    before = held[max(older, key=Version)] if older else None
    place = tables.path(engine)
    place.write_text(tables.text({**held, version: made}), encoding="utf-8")
    print(f"written: {place.relative_to(ROOT)}: {len(made['flags'])} flags, {len(made['environment'])} variables")
    if "--later-classes" not in arguments:
        subprocess.run([sys.executable, str(ROOT / "tools" / "engine_model_classes.py"), engine], check=True)
    decide = list(decisions.of_patches(engine, version, folder))
    if before is not None:
        print(f"\nFrom {before['version']} to {version}:")
        print("".join(f"  {line}\n" for line in decisions.of_flags(before, made)) or "  nothing differs\n", end="")
        decide += decisions.of_settings(before, made)
    if "--later-classes" in arguments:
        decide.append(f"model classes: not read yet. tools/engine_model_classes.py {engine}")
    decide.append(
        f"what the engine picks or overrides (knowledge/choices/{engine}.yml), and rules with an open range: do they still hold? "
        f"tests/oracle/test_profiles.py asks the real parser: pytest tests/oracle -k {version}"
    )
    print("\nTo decide:\n" + "".join(f"  - {line}.\n" for line in decide), end="")
    print("\nThen: pytest tests/unit/knowledge tests/unit/plugins/plugin_utils/test_version_tables.py")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
