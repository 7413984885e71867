"""Every command of README and of every guide is typed as it is printed, where the text has it typed, and ends as it says.

typed.yml has a row for each, in the text's order: what must be printed and the exit status, which other test types it, or why it is
not typed.
"""

from __future__ import annotations

import pathlib
import re
import typing as t

import pytest
import yaml

from ansible_collections.dgxspark.cluster.benchmarks import from_the_readme
from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.support.typing_worlds import Guide
from ansible_collections.dgxspark.cluster.tests.unit import guide, namespaces
from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT

ROWS: dict[str, dict[str, t.Any]] = yaml.safe_load(
    (pathlib.Path(__file__).parent / "typed.yml").read_text(encoding="utf-8")
)
UGLY = re.compile(r"Traceback|Finalization of task args|object at 0x|\{\{ |\[WARNING\]")


def printed(name: str) -> list[str]:
    if name == "README":
        return from_the_readme.typed()
    return [command for command in guide.commands(name, prompt=False) if not command.startswith("#")]


def test_each_command_has_its_row() -> None:
    names = ["README", *(path.stem for path in sorted(guide.GUIDES.glob("*.rst")))]
    told = {name: printed(name) for name in names}
    rows = {name: [" ".join(row["type"].split()) for row in own["rows"]] for name, own in ROWS.items()}
    assert rows == {name: [" ".join(command.split()) for command in own] for name, own in told.items() if own}
    for own in ROWS.values():
        for row in own["rows"]:
            assert len({"not", "by", "says"} & set(row)) == 1, row
            places = re.findall(r"(?:\b(?:tests|benchmarks)|\.github)/[\w./]*\w", row.get("not", row.get("by", "")))
            assert places or "by" not in row, row
            for place in places:
                assert (ROOT / place).exists(), f"{row['type']}: {place}"


@pytest.mark.long
@namespaces.needed()
@pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN)
@pytest.mark.parametrize(
    "name", sorted(name for name, own in ROWS.items() if any("says" in row for row in own["rows"]))
)
def test_a_guides_commands_end_as_it_says(name: str, tmp_path: pathlib.Path) -> None:
    own = ROWS[name]
    served = (
        [block for block in guide.blocks(name, "yaml") if "k8s_dgx_model_profile" in block] if name != "README" else []
    )
    place, wrong = (
        Guide(tmp_path, own.get("files", {}), own.get("sparks", 2), "".join(served[:1]), own.get("engines", ())),
        [],
    )
    try:
        for command in own.get("before", []):
            typed = place.type(command, own["at"])
            assert not typed.status, f"$ {command}\n{typed.printed}"
        for row, command in zip(own["rows"], printed(name), strict=True):
            if "says" not in row:
                continue
            for each in row.get("before", []):
                done = place.type(each, row.get("at", own["at"]))
                assert not done.status, f"$ {each}\n{done.printed}"
            typed = place.type(command, row.get("at", own["at"]))
            print(f"{typed.seconds:5.1f} s [{typed.status}] {command}")
            if typed.status != row.get("ends", 0):
                wrong.append(f"$ {command}\n{typed.printed[-3000:]}\n[{typed.status}]")
            elif not re.search(row["says"], typed.printed):
                wrong.append(f"$ {command}\n{typed.printed[-3000:]}\n{row['says']!r} is not said")
            elif UGLY.search(typed.printed):
                wrong.append(f"$ {command}\n{typed.printed[-3000:]}\nreads badly")
            elif "asks" in row:
                asked = place.ask(typed.printed, row.get("at", own["at"]))
                print(f"{asked.seconds:5.1f} s [{asked.status}] the curl that it prints: {asked.printed}")
                if not re.search(row["asks"], asked.printed):
                    wrong.append(f"$ {command}\n{typed.printed[-3000:]}\nits curl: {asked.printed}")
    finally:
        place.close()
    assert not wrong, "\n\n".join(wrong)
