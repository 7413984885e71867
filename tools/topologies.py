"""Write the topologies of fabric/topologies.py where files list them: four schemas, and the guide's table.

Usage: python tools/topologies.py
"""

from __future__ import annotations

import json
import pathlib
import re
import runpy
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[1]
runpy.run_path(str(ROOT / "tools" / "own_collection.py"))

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.topologies import TOPOLOGIES  # noqa: E402

GUIDE = "docs/docsite/rst/guide_fabric.rst"
WIDTH = 132
ALL = json.dumps(list(TOPOLOGIES))
WITH_PORTS = [each.name for each in TOPOLOGIES.values() if each.by != "nothing"]


def rows() -> str:
    """Return the guide's rows."""
    lines = []
    for each in TOPOLOGIES.values():
        hosts = f"{each.least}" + ("" if each.least == each.most else " and more")
        lines += [f"   * - ``{each.name}``", f"     - {hosts}"]
        lines += textwrap.wrap(
            each.joins, WIDTH, initial_indent="     - ", subsequent_indent="       ", break_on_hyphens=False
        )
    return "\n".join(lines) + "\n"


def ports() -> str:
    """Return the properties of a hardware class's default ports, two a line."""
    each = [f'"{name}": {{"$ref": "#/$defs/ports"}}' for name in WITH_PORTS]
    return ",\n        ".join(", ".join(each[start : start + 2]) for start in range(0, len(each), 2))


def places() -> list[tuple[str, str, str]]:
    """Return each place: a file, a pattern whose first and last group stay, and what stands between."""
    chosen = r'("topology": \{"enum": )(?:\[[^\]]*\])(\W)'
    return [
        ("docs/schema/dgxspark-fabric.json", chosen, ALL),
        ("docs/schema/fabric-report.json", chosen, ALL),
        ("knowledge/schema/bands.json", r'("topologies": \{[^\n]*"enum": )(?:\[[^\]]*\])(\W)', json.dumps(WITH_PORTS)),
        (
            "knowledge/schema/hardware.json",
            r'("default_ports": \{[^[]*"required": )(?:\[[^\]]*\])(,)',
            json.dumps(WITH_PORTS),
        ),
        (
            "knowledge/schema/hardware.json",
            r'("default_ports": \{.*?"properties": \{\n        )(?:.*?)(\n      \}\n    \})',
            ports(),
        ),
        (GUIDE, r"(\n   \* - Topology\n     - Hosts\n     - Segments\n)(?:.*?)(\nOn a cable,)", rows()),
    ]


def main() -> None:
    """Write them."""
    for file, pattern, new in places():
        path = ROOT / file
        text = path.read_text(encoding="utf-8")
        made, count = re.subn(pattern, lambda found, new=new: found[1] + new + found[2], text, flags=re.DOTALL)
        if count != 1:
            raise SystemExit(f"topologies: {file} has its list {count} times, not once: correct tools/topologies.py.")
        path.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
