"""What an agent is told: each playbook in one class, and none that changes a node in a class that may be run without asking."""

from __future__ import annotations

import re

from ansible_collections.dgxspark.cluster.tests.support import reached
from ansible_collections.dgxspark.cluster.tests.unit import guide
from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT

PLAYBOOKS = {path.stem: path for path in (ROOT / "playbooks").glob("*.yml")}
TEXT = (guide.GUIDES / "guide_agents.rst").read_text(encoding="utf-8")


def rows(section: str) -> list[list[str]]:
    """Return the rows of the table below a title, without its head."""
    table = TEXT.split(f"\n{section}\n")[1].split(".. list-table::")[1]
    table = re.split(r"\n\S", table)[0]
    found = [re.split(r"\n     - ", row) for row in table.split("\n   * - ")[1:]]
    assert {len(row) for row in found} == {len(found[0])}  # else the site is not built
    return [[" ".join(cell.split()) for cell in row] for row in found[1:]]


def classes() -> dict[str, list[str]]:
    return {name: re.findall(r"``(\w+)``", listed) for name, listed, *_ in rows("Which playbook does what to nodes")}


def test_every_playbook_is_in_one_class() -> None:
    assert sorted(name for listed in classes().values() for name in listed) == sorted(PLAYBOOKS)


def test_a_playbook_that_a_text_names_is_there() -> None:
    """A remedy is followed: `dgxspark.cluster.x` or `playbooks/x.yml` in a message, a task or an entry of knowledge."""
    texts = [
        path for top in ("plugins", "roles", "knowledge", "playbooks") for path in (ROOT / top).rglob("*.*")
        if path.suffix in (".py", ".yml", ".json", ".j2")
    ]  # fmt: skip
    named = {
        (name, str(path.relative_to(ROOT)))
        for path in texts
        for name in re.findall(
            r"(?:playbooks/|(?:[Rr]un|with|first|see why:) \(?dgxspark\.cluster\.)(\w+)(?:\.yml| |\.$|[;:,)]|\. )",
            path.read_text(encoding="utf-8"),
        )
    }
    assert len(named) > 10
    assert sorted(each for each in named if each[0] not in PLAYBOOKS) == []


def test_what_runs_without_asking_reaches_no_module_that_changes_a_node() -> None:
    changes = {name: reached.changes(path) for name, path in PLAYBOOKS.items()}
    # The walk sees roles of a play, included roles, and files that an expression names.
    assert {"sriov_vf", "netplan_vf", "k3s_node", "kube_apply", "weights_fetch"} <= changes["site"]
    assert "unit_files" in changes["metrics"]
    assert "matrix" in changes["matrix"]
    free = {name for kind in ("answer", "read") for name in classes()[kind]}
    assert len(free) > 6
    assert {name: sorted(changes[name]) for name in free if changes[name]} == {}


def test_the_short_tables_say_the_same() -> None:
    listed = classes()
    table = (ROOT / "AGENTS.md").read_text(encoding="utf-8").split("| playbooks |")[1].split("\n\n")[0]
    short = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in table.splitlines()[2:]]
    assert sorted(name for row in short for name in row) == sorted(set(PLAYBOOKS) - set(listed["part"]))
    for row in short:
        assert [kind for kind, names in listed.items() if set(row) <= set(names)], row
    text = " ".join((ROOT / "llms.txt").read_text(encoding="utf-8").split("\n## ")[0].split())
    for kinds, told in (
        (["read"], r"Read-only on nodes: ([^.]*)\."),
        (["load"], r"before ([^(]*) \(load\)"),
        (["change", "remove"], r"\(load\) and before ([^(]*) \(changes\)"),
    ):
        (names,) = re.findall(told, text)
        assert re.findall(r"`(\w+)`", names) == [name for kind in kinds for name in listed[kind]]


def test_a_result_is_where_the_page_says() -> None:
    read = rows("Read a result")
    assert {name for row in read for name in re.findall(r"docs/schema/([\w-]+\.json)", row[2])} == {
        path.name for path in (ROOT / "docs" / "schema").glob("*-report.json")
    }
    for name, where, _form in read:
        playbook = PLAYBOOKS[name.strip("`")].read_text(encoding="utf-8")
        for variable in re.findall(r"-e (\w+)=", where):
            assert variable in playbook
        for start in re.findall(r"(reports/\w+-)DATE", where):
            assert f"'{start}'" in playbook


def test_the_index_for_agents_names_each_guide_by_its_title() -> None:
    links = re.findall(r"(?m)^- \[([^\]]+)\]\(([^)]+)\): \S", (ROOT / "llms.txt").read_text(encoding="utf-8"))
    titles = {
        f"docs/docsite/rst/{page.name}": re.findall(r"(?m)^(\S.*)\n=+$", page.read_text(encoding="utf-8"))[0]
        for page in guide.GUIDES.glob("*.rst")
    }
    assert {place: title for title, place in links if place in titles} == titles
    assert len({place for _title, place in links}) == len(links)
    assert all((ROOT / place).is_file() for _title, place in links)
