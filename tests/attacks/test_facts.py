"""A node lies: hostile text is planted in every fact that a node reports, and every output that the facts reach is looked at."""

from __future__ import annotations

import json
import typing as t

import yaml

from ansible_collections.dgxspark.cluster.plugins.filter import fabric_plan
from ansible_collections.dgxspark.cluster.plugins.module_utils import foreign
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.discover.discovery import discover, lay_down
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.discover.inventory import GROUP, HOSTS
from ansible_collections.dgxspark.cluster.tests.attacks import nodes
from ansible_collections.dgxspark.cluster.tests.attacks.nodes import look
from ansible_collections.dgxspark.cluster.tests.unit.actions import play, run
from ansible_collections.dgxspark.cluster.tests.unit.verify_inputs import Cluster

PLAN = fabric_plan.FilterModule().filters()["fabric_plan"]

Plain = dict[str, t.Any]

TEMPLATE = "{{ lookup('pipe', 'touch /tmp/owned') }}"
# Ends a comment or a line, then sets variables; moves the cursor and retitles the terminal; ends a tag and an attribute.
LIES = {
    "everything": f'v1\nall:\n  vars:\n    ansible_python_interpreter: "{TEMPLATE}"\nx\r\x1b]0;owned\x07\x1b[2J\x9b31m\u2028\u202e{TEMPLATE}'
    "\"'><script>alert(1)</script><img src=x onerror=alert(1)>",
    "template": TEMPLATE,
    "long": "é" * 200_000,
}


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads a file as Ansible does, and keeps apart what it would not evaluate."""


class _Marked(str):
    pass


_Loader.add_constructor("!unsafe", lambda loader, node: _Marked(loader.construct_scalar(node)))


def evaluated(value: t.Any) -> list[str]:
    """Return the texts of a file that Ansible would evaluate."""
    if isinstance(value, dict):
        return [text for pair in value.items() for each in pair for text in evaluated(each)]
    if isinstance(value, list):
        return [text for each in value for text in evaluated(each)]
    return [value] if isinstance(value, str) and not isinstance(value, _Marked) and foreign.templated(value) else []


def look_at_page(page: str) -> None:
    assert "<script>alert" not in page and "<img src=x" not in page
    look(page, "the page")


HONEST = discover(nodes.hosts())
WRITTEN = (HOSTS, GROUP)
PATHS = [path for path in nodes.leaves(next(iter(nodes.hosts().values()))) if path[0] != "reach"]


def test_the_nodes_fill_in_every_text_that_a_node_can_report() -> None:
    host = next(iter(nodes.hosts().values()))
    for part, cls in nodes.REPORTED.items():
        value = foreign.read_in(cls, host[part], part)
        assert nodes.texts_of(cls) - nodes.filled(value, cls) == set()


def look_at(hosts: dict[str, Plain], where: str) -> None:
    """Look at everything that discover makes of these hosts. Raises CollectionError if it refuses them."""
    found = discover({name: foreign.facts(plain, name) | {"reach": plain["reach"]} for name, plain in hosts.items()})
    told = lay_down(found, "/nowhere/at/all", overwrite=False, check=True)
    look("\n".join([*told["lines"], told["msg"]]), where)
    look_at_page(found.page)
    for name in WRITTEN if found.files else ():
        look(found.files[name], where)
        document = yaml.load(found.files[name], _Loader)
        assert evaluated(document) == (["{{ ansible_playbook_python }}"] if name == HOSTS else []), where
        assert name == HOSTS or "ansible_python_interpreter" not in json.dumps(document), where
    if found.files:
        made, meant = (yaml.load(text[HOSTS], _Loader)["all"] for text in (found.files, HONEST.files))
        assert set(made) == {"children"} and set(made["children"]) <= set(meant["children"]), where
        assert set(made["children"]["spark"]["children"]["dgx"]["hosts"]) == {"spark1", "spark2"}, where


def test_what_a_node_reports_reaches_no_file_terminal_or_template_unchecked() -> None:
    plain = []
    for path in PATHS:
        hosts = nodes.hosts()
        liar = next(iter(hosts))
        hosts[liar] = nodes.planted(hosts[liar], path, LIES["everything"])
        try:
            look_at(hosts, str(path))
            plain.append(path)
        except CollectionError as exc:
            look(str(exc), str(path))
            assert str(exc).startswith(liar), "it names the node that lies"
    assert len(PATHS) > 100 and len(plain) > 0.8 * len(PATHS), "an odd name is made plain, and does not stop a run"
    for lie in ("template", "long"):
        hosts = nodes.hosts()
        liar = next(iter(hosts))
        for path in sorted(plain, key=lambda path: path[-1] is None):
            hosts[liar] = nodes.planted(hosts[liar], path, LIES[lie])
        look_at(hosts, lie)


FORMS: list[t.Any] = [5, -1, True, "x", [["x"]], {"a": {"b": TEMPLATE}}, float("nan"), 10**30]


def test_what_has_another_form_is_refused_by_the_node_s_name_or_made_plain() -> None:
    """Each part of what a node reports, and each part of these."""
    honest = nodes.hosts()
    liar = next(iter(honest))
    for part, value in honest[liar].items():
        if part == "reach":
            continue
        for key in (None, *(value if isinstance(value, dict) else ())):
            for form in FORMS:
                changed = form if key is None else value | {key: form}
                try:
                    look_at({**honest, liar: honest[liar] | {part: changed}}, f"{part}: {key}: {form}")
                except CollectionError as exc:
                    look(str(exc), str(form))
                    assert liar in str(exc)


def test_a_report_of_the_doctor_and_of_verify_is_plain() -> None:
    for lie in LIES.values():
        cluster = Cluster(2)
        seen = cluster.hosts["spark1"]
        host = nodes.hosts()
        health = next(iter(host.values()))["health"]
        for path in nodes.leaves(health):
            health = nodes.planted(health, path, lie) if path[-1] is not None else health
        facts = nodes.planted(seen["facts"], ("kernel",), lie)
        for path in (
            ("functions", 0, "vfs", 0, "netdev", "name"),
            ("functions", 0, "driver"),
            ("functions", 1, "netdev", "mac"),
        ):
            facts = nodes.planted(facts, path, lie)
        hostvars: Plain = {
            "spark1": {"dgxspark_roce": facts, "__doctor_health": {"changed": False, "health": health}},
            "spark2": {
                "__sriov_roce_read": {"changed": False, "unreachable": True, "msg": lie},
                "__doctor_health": {"skipped": True},
            },
        }
        made = run("doctor_report", play(hostvars, dgxspark_plan=cluster.plan), started="2026-11-21T16:02:11Z")
        look("\n".join(made.get("table", [made.get("msg", "")])), "doctor")
        verify = {
            name: {"__verify_seen": {"facts": facts if name == "spark1" else None, "error": lie}}
            for name in cluster.hosts
        }
        told = run("fabric_report", play(verify, dgxspark_plan=cluster.plan), started="2026-11-21T16:02:11Z")
        look("\n".join(told.get("table", [told.get("msg", "")])), "verify")
        for topology in ("switch", "single"):
            planned = PLAN(["spark1"], {"topology": topology}, {})
            here = {"ansible_play_hosts": ["spark1"], "dgxspark_plan": planned}
            port = nodes.planted(facts, ("functions", 0, "netdev", "name"), lie)
            ended = run("fabric_table", play({"spark1": {"dgxspark_roce": port}}, **here))
            look("\n".join(ended.get("ended", [ended.get("msg", "")])), topology)
