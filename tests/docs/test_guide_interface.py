"""What the page calls stable, or not, is there; and of each kind it names all."""

from __future__ import annotations

import re

from ansible_collections.dgxspark.cluster.tests.unit import guide
from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT

TEXT = (guide.GUIDES / "guide_interface.rst").read_text(encoding="utf-8")
STABLE, OPEN = TEXT.split("\nStable\n")[1].split("\nNot stable\n")


def stable(kind: str) -> list[str]:
    """Return the names of a row."""
    (row,) = re.findall(rf"\* - {kind}\n((?:     .*\n)+)", STABLE)
    return re.findall(r"``([\w./-]+)``", row)


def unstable(before: str, after: str) -> list[str]:
    (listed,) = re.findall(rf"{before}(.*?){after}", " ".join(OPEN.split()))
    return re.findall(r"``(\w+)``", listed)


def there(folder: str, ending: str) -> list[str]:
    return sorted(path.stem for path in (ROOT / folder).glob(f"*.{ending}"))


def test_each_of_what_an_owner_can_call_is_stable_or_is_not() -> None:
    assert sorted(stable("Playbooks") + unstable("the playbooks ", r"\. ")) == there("playbooks", "yml")
    assert sorted(stable("Filters") + unstable("the filters ", ", the lookups")) == there("plugins/filter", "py")
    assert sorted(stable("Lookups") + unstable("the lookups ", ", the callback")) == there("plugins/lookup", "py")
    assert sorted(stable("Callbacks") + unstable("the callback ", ", and the playbooks")) == there(
        "plugins/callback", "py"
    )


def test_the_forms_are_all_there() -> None:
    forms = stable("Forms of reports") + stable("Forms of your files")
    assert all((ROOT / form).exists() for form in forms)
    assert {f"docs/schema/{name}.json" for name in there("docs/schema", "json")} == {
        form for form in forms if form.startswith("docs/")
    }
    for form in stable("Forms of reports"):
        assert re.search(r'"const": (?:1|"[\w./-]+/1")', (ROOT / form).read_text(encoding="utf-8")), form
