"""Each command of each guide can be typed: its playbook, variables and tags exist; the site of all guides has no loose end."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import typing as t

import pytest
import yaml

from ansible_collections.dgxspark.cluster.benchmarks import from_the_readme
from ansible_collections.dgxspark.cluster.tests.unit import guide
from ansible_collections.dgxspark.cluster.tests.unit.owner import BIN, NO_ANSIBLE, ROOT, Owner, can_run
from ansible_collections.dgxspark.cluster.tools import docs, troubleshooting

NAMES = sorted(path.stem for path in guide.GUIDES.glob("*.rst"))
TYPED = [
    (name, command)
    for name in NAMES
    for command in guide.commands(name, prompt=False)
    if command.split()[0] == "ansible-playbook"
]
OTHERS = {
    "cd",
    "echo",
    ".",
    "python3",
    "ansible-galaxy",
    "ansible-doc",
    "ansible-inventory",
    "tar",
    "umask",
    "make",
    "lab/lab",
    "kubectl",
    "curl",
    "sha256sum",
}


def code() -> str:
    """Return the text of everything that reads variables: playbooks, roles and plugins."""
    files = [path for folder in ("playbooks", "roles", "plugins") for path in (ROOT / folder).rglob("*")]
    return "\n".join(path.read_text(encoding="utf-8") for path in files if path.suffix in (".yml", ".py", ".j2"))


CODE = code()


def tags_of(playbook: pathlib.Path) -> set[str]:
    """Return the tags of a playbook and of those that it imports."""
    found: set[str] = set()
    for play in yaml.safe_load(playbook.read_text(encoding="utf-8")):
        parts = [play, *play.get("roles", []), *play.get("tasks", []), *play.get("pre_tasks", [])]
        for part in parts:
            tags = part.get("tags", []) if isinstance(part, dict) else []
            found |= {tags} if isinstance(tags, str) else set(tags)
        if other := play.get("ansible.builtin.import_playbook"):
            found |= tags_of(playbook.parent / other)
    return found


def words(command: str) -> list[str]:
    """Return a command's words; a process substitution <(…) counts as one."""
    return shlex.split(re.sub(r"<\([^)]*\)", "OUTPUT", command), comments=True)


def options(command: t.Sequence[str], *names: str) -> list[str]:
    """Return the values of an option."""
    return [command[place + 1] for place, word in enumerate(command[:-1]) if word in names]


def variables(given: str) -> list[str]:
    """Return the names that one `-e` sets: JSON, name=value …, or a file (none, as its names are unknown)."""
    if given.startswith("{"):
        return list(json.loads(given))
    return [] if given.startswith("@") else [part.partition("=")[0] for part in shlex.split(given)]


def test_a_guide_has_commands_of_programs_that_it_may_count_on() -> None:
    programs = {command.split()[0] for name in NAMES for command in guide.commands(name)}
    assert programs - OTHERS == {"ansible-playbook"}
    assert len(TYPED) > 60


def test_a_command_of_two_lines_can_be_pasted() -> None:
    """A second line without a backslash before it would be a command of its own, and the first would run without its options."""
    programs = OTHERS | {"ansible-playbook", "ansible", "#"}
    cut = [
        (name, line) for name in NAMES for line in guide.commands(name, prompt=False) if line.split()[0] not in programs
    ]
    assert not cut


@pytest.mark.parametrize(("name", "command"), TYPED)
def test_a_command_names_what_there_is(name: str, command: str) -> None:
    typed = words(command)
    [playbook] = [word for word in typed if word.startswith("dgxspark.cluster.") or word.endswith(".yml")][:1]
    place = ROOT / (playbook if playbook.endswith(".yml") else f"playbooks/{playbook.rpartition('.')[2]}.yml")
    assert place.is_file(), f"{name}: {playbook}"
    assert {tag for given in options(typed, "--tags") for tag in given.split(",")} <= tags_of(place)
    for variable in (name for value in options(typed, "-e") for name in variables(value)):
        assert re.search(rf"\b{re.escape(variable)}\b", CODE), f"{name}: nothing reads {variable}"


@pytest.mark.skipif(not can_run(), reason=NO_ANSIBLE)
def test_ansible_takes_each_command_as_it_is_printed(tmp_path: pathlib.Path) -> None:
    """Of guides and README: inventory, limit, tags and variables, up to the list of what it would do. Whole runs are in the tests of the playbooks."""
    owner = Owner(tmp_path)
    shutil.copytree(ROOT / "inventories" / "example", tmp_path / "inventory")
    shutil.copytree(tmp_path / "inventory", tmp_path / "my-cluster" / "inventory")
    more = {f"spark{number}": {"ansible_host": f"192.0.2.{10 + number}"} for number in range(1, 9)}
    groups = {"dgx": {"hosts": more}, "k3s_server": {"hosts": {"spark1": {}}}, "k3s_agent": {"hosts": {"spark2": {}}}}
    (tmp_path / "inventory/more.yml").write_text(yaml.safe_dump(groups), encoding="utf-8")
    readme = [command for command in from_the_readme.typed() if command.startswith("ansible-playbook ")]
    order = [re.findall(r"cluster\.(\w+)", command)[0] for command in readme]
    # Answers first, without a Spark; then Sparks.
    assert order == ["models", "plan", "explain", "discover", "plan", "site", "site", "verify", "serve"]
    typed = sorted({command for _name, command in TYPED} | set(readme))
    asked = [words(command) for command in typed]
    for command in asked:
        for given in options(command, "-e"):
            if given.startswith("@"):
                (tmp_path / given[1:]).parent.mkdir(exist_ok=True)
                (tmp_path / given[1:]).write_text("{}", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, pathlib.Path(__file__).parent / "taken.py"],
        input=json.dumps(asked),
        cwd=tmp_path,
        env={
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(tmp_path / "collections"),
            "ANSIBLE_CONFIG": str(owner.folder / "ansible.cfg"),
        },
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    ended = zip(typed, json.loads(done.stdout), strict=True)
    wrong = [
        f"{command}: {said}"
        for command, (code, said) in ended
        if code or re.search("Traceback|Unable to parse", said) or "TAGS: [" not in said
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.skipif(not can_run(), reason=NO_ANSIBLE)
def test_an_owners_knowledge_is_no_inventory_as_the_guide_says(tmp_path: pathlib.Path) -> None:
    shutil.copytree(ROOT / "inventories" / "example", tmp_path / "inventory")
    place = tmp_path / "inventory" / "dgxspark" / "model_profiles"
    place.mkdir(parents=True)
    shutil.copy(ROOT / "roles" / "k8s_dgx" / "model_profiles" / "gemma-4-31b-it.yml", place)
    seen = []
    for told in ("", *guide.blocks("guide_serving", "ini")):
        (tmp_path / "ansible.cfg").write_text(told, encoding="utf-8")
        done = subprocess.run(
            [BIN / "ansible-inventory", "-i", "inventory", "--list"],
            cwd=tmp_path,
            env={**os.environ, "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg")},
            check=True,
            capture_output=True,
            text=True,
        )
        seen.append("WARNING" in done.stderr)
    assert seen == [True, False]


@pytest.mark.parametrize("name", ["guide_first_evening", "guide_airgapped"])
def test_a_guide_names_all_that_a_controller_needs(name: str) -> None:
    needed = [line for line in (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    pip = [line for line in guide.commands(name, prompt=False) if line.startswith("python3 -m pip ")]
    assert pip
    for command in pip:
        assert {line.split(">=")[0] for line in needed if line} | {"ansible-core>=2.19"} <= set(words(command)), command


def test_the_readme_installs_all_that_a_controller_needs() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    needed = [line for line in (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    names = {line.split(">=")[0] for line in needed if line}
    [pip] = [line for line in from_the_readme.typed() if line.startswith("pip install ")]
    assert names | {"ansible-core>=2.19"} == set(words(pip)[2:])
    [uv] = re.findall(r"`(uv tool install [^`]+)`", text)
    assert names == set(options(words(uv), "--with")[0].split(","))
    [pipx] = re.findall(r"pipx inject ansible-core ([^`]+)`", text)
    assert names == set(words(pipx))
    assert len(text.splitlines()) <= 150
    assert " -l " not in text.split("## With your Sparks")[1].split("No limit is needed")[0]


def test_the_guide_of_lines_is_what_the_signatures_say() -> None:
    assert troubleshooting.GUIDE.read_text(encoding="utf-8") == troubleshooting.document(), (
        "run tools/troubleshooting.py"
    )


@pytest.mark.more
def test_the_site_is_built_without_a_warning(tmp_path: pathlib.Path) -> None:
    index = docs.build(tmp_path)
    listed = yaml.safe_load((ROOT / "docs" / "docsite" / "extra-docs.yml").read_text(encoding="utf-8"))
    assert sorted(page for section in listed["sections"] for page in section["toctree"]) == NAMES
    front = index.read_text(encoding="utf-8")
    pages = [f"docsite/{name}.html" for name in NAMES]
    pages += [f"{path.stem}_module.html" for path in (ROOT / "plugins" / "modules").glob("*.py")]
    pages += [f"{path.name}_role.html" for path in (ROOT / "roles").iterdir() if path.is_dir()]
    for page in pages:
        assert page in front
        assert (index.parent / page).is_file()
