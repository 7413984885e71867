"""Readers of files from elsewhere, with a clock: each ends soon, in little memory, with one error that names the file."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import pathlib
import re
import resource
import time
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils import foreign
from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl import files
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, lines
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge, metrics, signatures
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import profile_of_recipe, read_model_files
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.recipes import recipe_shell

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS = 10.0  # of this process, on a busy machine; the attacks took minutes, or never ended
MIB = 2**20


@contextlib.contextmanager
def soon(mib: int = 300) -> t.Iterator[None]:
    """Check that what happens here takes little time and memory."""
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert time.process_time() - began < SECONDS
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < mib


SERVE = "\nvllm serve org/model --port 8000 $A\n"
SCRIPTS = {
    "doubling": "A=xxxxxxxx\n" + "A=$A$A\n" * 26 + SERVE,
    "doubling array": "A=(x y)\n" + "A=(${A[@]} ${A[@]})\n" * 26 + SERVE,
    "growing": "A=x\n" + "A+=$A\n" * 40 + SERVE,
    "array grows": "A=(x)\n" + "A+=(${A[@]})\n" * 40 + SERVE,
    "default": "B=" + "x" * 5000 + "\n" + "echo ${C:-$B$B$B$B$B}\n" * 4000 + SERVE,
    "many": "B=" + "x" * 60000 + "\n" + "A=$B\n" * 20000 + SERVE,
    "nested braces": "A=" + "${A:-" * 20000 + "}" * 20000 + SERVE,
    "unclosed braces": "A=" + "${" * 60000 + SERVE,
    "dollars": "A=" + "$" * 200_000 + SERVE,
    "subshells": "(" * 100_000 + SERVE,
    "branches": "if x; then\n" * 20000 + SERVE,
    "arrays in arrays": "A=(" * 20000 + SERVE,
    "quotes": "'\"" * 60_000 + SERVE,
    "one word": "x" * 250_000 + SERVE,
    "here": "cat <<E\n" * 20_000 + SERVE,
    "backslashes": "\\\n" * 100_000 + SERVE,
    "redirects": "<" * 100_000 + SERVE,
}


@pytest.mark.parametrize("text", SCRIPTS.values(), ids=SCRIPTS)
def test_no_script_of_a_recipe_exhausts_the_controller(text: str) -> None:
    with soon():
        try:
            made = recipe_shell.commands(text)
        except CollectionError as exc:
            assert len(str(exc)) < 1000 and str(exc).startswith("line ")
        else:
            assert sum(len(word) for command in made for word in command.words) < 10 * MIB


@given(st.text(alphabet="AB$(){}[]@=+ \n\"'`\\<>&|;:-x", max_size=120))
def test_every_script_ends(text: str) -> None:
    began = time.process_time()
    with contextlib.suppress(CollectionError):
        recipe_shell.commands(text)
    assert time.process_time() - began < 2


def recipe(**keys: t.Any) -> str:
    return json.dumps(
        {"model": "org/model", "command": "vllm serve org/model", "container": "vllm/vllm-openai:v0.17.0", **keys}
    )


RECIPES = {
    "digits": "model: org/m\ncommand: vllm serve org/m\nmin_nodes: " + "9" * 400,
    "more digits": "model: org/m\ncommand: vllm serve org/m\nmin_nodes: " + "9" * 6000,
    "superscript": "model: org/m\ncommand: vllm serve org/m\nmin_nodes: '\u00b2'",
    "no date": "model: org/m\ncommand: vllm serve org/m\ndate: 2026-02-30",
    "no time": "model: org/m\ncommand: vllm serve org/m\ndate: 2026-02-03 99:99:99",
    "sexagesimal": "model: org/m\ncommand: vllm serve org/m\nx: " + "1:" * 3000 + "1",
    "deep": "model: " + "[" * 5000 + "]" * 5000,
    "deeper": "model: " + "{a: " * 100_000,
    "less deep": "model: org/m\ncommand: vllm serve org/m\nx: " + "[" * 300 + "]" * 300,
    "laughs": "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefghi", "bcdefghij", strict=True)),
    "itself": "a: &a [*a]\nmodel: org/m",
    "key": "? [a, b]\n: c",
    "object": "model: !!python/object/apply:os.system [id]",
    "fills": recipe(command="vllm serve {a}" + "{a}" * 60000, defaults={"a": "x" * 200_000}),
    "fills itself": recipe(command="vllm serve {a}", defaults={"a": "{a}{a}{a}{a}{a}{a}{a}{a}"}),
    "surrogate": 'model: "\\ud800"',
    "null": "model: \x00",
    "blocks that do not end": "```x\n" * 50_000,
    "flag": recipe(command="vllm serve org/model --max-model-len " + "9" * 5000),
    "many flags": recipe(command="vllm serve org/model " + "--a " * 100_000),
    "many other flags": recipe(command="vllm serve org/model " + " ".join(f"--a{n}=x" for n in range(30_000))),
    "json flag": recipe(
        command="vllm serve org/model --speculative-config '" + '{"a":' * 3000 + "1" + "}" * 3000 + "'"
    ),
}


@pytest.mark.parametrize("text", RECIPES.values(), ids=RECIPES)
def test_no_recipe_ends_in_a_traceback_or_without_its_name(text: str) -> None:
    with soon():
        try:
            profile_of_recipe(text, "hostile.yaml")
        except CollectionError as exc:
            assert "hostile.yaml" in str(exc) and len(str(exc)) < 3000


CONFIGS = {
    "digits": '{"architectures": ["X"], "hidden_size": ' + "9" * 400 + "}",
    "more digits": '{"hidden_size": ' + "9" * 6000 + "}",
    "fraction": '{"hidden_size": 1e999}',
    "nan": '{"hidden_size": NaN}',
    "deep": "[" * 100_000,
    "less deep": '{"a": ' * 500 + "1" + "}" * 500,
    "binary": "\x00\x01",
    "list": "[]",
}


@pytest.mark.parametrize("text", CONFIGS.values(), ids=CONFIGS)
def test_no_file_of_a_model_ends_in_a_traceback_or_without_its_name(text: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with soon(), pytest.raises(CollectionError, match=str(tmp_path)):
        read_model_files(str(tmp_path))


def bomb(mib: int = 2048) -> bytes:
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=9) as file:
        for _each in range(mib // 16):
            file.write(b"x" * (16 * MIB - 1) + b"\n")
    return packed.getvalue()


@pytest.fixture(scope="module")
def packed() -> bytes:
    return bomb(16)


BAD = {
    "cut": lambda data: data[: len(data) // 2],
    "bomb": lambda data: data,
    "flipped": lambda data: data[:500] + b"\xff" * 40 + data[540:],
}


@pytest.mark.parametrize("how", BAD)
def test_both_readers_of_logs_stop_at_a_bomb_and_name_it(
    how: str, packed: bytes, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign, "FREELY", MIB // 4)  # what is read before the limit is scanned for every pattern
    monkeypatch.setattr(foreign, "RATIO", 20)
    path = tmp_path / "rank0.log.gz"
    path.write_bytes(BAD[how](packed))
    table = signatures.load_table([])
    with soon():
        with pytest.raises(CollectionError, match=str(path)):
            signatures.read_path(str(path), table)
        with pytest.raises(CollectionError, match=str(path)):
            for _line in files.read_lines(str(path)):
                pass


def test_a_packed_log_is_read_as_the_plain_one(tmp_path: pathlib.Path) -> None:
    lines = [f"line {number} " + "word " * (number % 50) for number in range(20_000)] + [
        "x" * 200_000,
        "end without a newline",
    ]
    plain, packed = tmp_path / "a.log", tmp_path / "b.log.gz"
    plain.write_text("\n".join(lines))
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert "".join(files.read_lines(str(plain))) == "\n".join(lines)
    assert list(files.read_lines(str(packed))) == list(files.read_lines(str(plain)))


@pytest.mark.parametrize("finished", ["2026-02-30T00:00:00Z", "9" * 5000, "10000-01-01T00:00:00Z", "²"])
def test_a_date_that_does_not_exist_is_refused_with_the_file_s_name(finished: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps({"verdict": "passed", "finished": finished}))
    with pytest.raises(CollectionError, match=str(path)):
        metrics.outcome(str(path))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    )
)
def test_json_is_read_as_json_or_refused(value: t.Any) -> None:
    text = json.dumps(value)
    try:
        made = foreign.from_json(text, "here")
    except foreign.Unreadable as exc:
        assert str(exc).startswith("here: ")
        assert re.search(r"NaN|Infinity|[0-9]{21}|e\+", text)
    else:
        assert made == value


@given(st.text())
def test_what_is_plain_is_plain(text: str) -> None:
    for made in (foreign.line(text), lines(text).replace("\n", "").replace("\t", "")):
        assert made.isprintable() or not re.search("[\x00-\x1f\x7f-\x9f]", made)
    assert foreign.line(foreign.line(text)) == foreign.line(text)


# Where text is parsed without the shared limits, and why that is right there.
OWN = {
    "plugins/action/matrix.py": "from one plain form into another",
    "plugins/action/serving_groups.py": "from one plain form into another",
    "plugins/action/update_proof.py": "from one plain form into another",
    "plugins/plugin_utils/discover/inventory.py": "from one plain form into another",
    "plugins/plugin_utils/k3s/plan.py": "from one plain form into another",
    "plugins/plugin_utils/kube/ask.py": "from one plain form into another",
    "plugins/plugin_utils/planner/profile/profile_text.py": "from one plain form into another",
    "plugins/plugin_utils/planner/profile/profile.py": "what this process wrote",
    "plugins/plugin_utils/planner/judgement/conditions.py": "what jmespath's compiled form says",
    "plugins/plugin_utils/kube/instances.py": "an object that this collection made",
    "plugins/plugin_utils/kube/platform.py": "what this process wrote",
    "plugins/plugin_utils/planner/vocabulary/settings.py": "true and false",
    "plugins/plugin_utils/fabric/settings.py": "a shipped schema",
    "plugins/plugin_utils/bundle/registry.py": "the owner's own logins",
    "plugins/plugin_utils/doctor_certificates.py": "the owner's own kubeconfig",
    "plugins/plugin_utils/knowledge.py": "shipped files; YAML is bounded there",
    "plugins/plugin_utils/kube/bench_pod.py": "a shipped schema",
    "plugins/module_utils/foreign.py": "the reader itself",
    "plugins/module_utils/programs/fabric/document.py": "bounded there: it runs alone on a node",
    "plugins/module_utils/programs/fabric/rollback.py": "bounded there: it runs alone on a node",
    "plugins/module_utils/programs/fabric/restore.py": "what iproute2 and this program print",
    "plugins/module_utils/fabric/netplan_change.py": "what this module recorded, and its own program prints",
    "plugins/module_utils/nccl/host.py": "what this module recorded",
    "plugins/module_utils/node_files.py": "what our modules recorded",
    "plugins/module_utils/k3s/machine.py": "what our module recorded",
    "plugins/module_utils/netns.py": "what this module's own child writes",
    "plugins/module_utils/programs/load_guard.py": "our own settings on the node",
    "plugins/module_utils/metrics.py": "our own settings on the node",
    "plugins/module_utils/programs/hub.py": "our own request, in the hub's own environment",
    "plugins/module_utils/programs/engine_parser/reader.py": "our own request, in the image",
    "plugins/module_utils/programs/engine_parser/run.py": "our own request, in the image",
    "plugins/module_utils/programs/rank/preflight.py": "our own settings, in the pod",
    "plugins/module_utils/programs/rank/engine_api.py": "an engine's own answers, in the pod",
    "plugins/module_utils/programs/rank/supervisor.py": "our own settings, and ranks with the pod's secret, in the pod",
    "plugins/module_utils/programs/rank/patches.py": "our own patches, in the pod",
    "plugins/module_utils/system.py": "netplan's files on the node, which root writes",
    "plugins/plugin_utils/top_screen.py": "our own pages, from a folder of ours",
    "plugins/plugin_utils/role_arguments.py": "the roles' own specifications",
    "plugins/plugin_utils/variable_names.py": "a shipped schema",
    "plugins/plugin_utils/version_tables.py": "the shipped flag tables",
    "plugins/plugin_utils/bench": "the client's own limits: its answers are bounded in bench/http1.py",
}
PARSES = re.compile(
    r"\b(?:json\.loads?\(|yaml\.(?:safe_)?load\(|gzip\.open\(.*\"rb\"|GzipFile\((?!fileobj=raw, mode=\"wb\"|fileobj=out)|\.isnumeric\(\))"
)


def test_every_reader_of_text_from_elsewhere_has_its_limits() -> None:
    found = {}
    for path in sorted((ROOT / "plugins").rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if PARSES.search(path.read_text(encoding="utf-8")) and not name.startswith("plugins/plugin_utils/bench/"):
            found[name] = path
    assert set(found) - set(OWN) == set(), "use module_utils/foreign.py, or say why not"
    assert set(OWN) - set(found) - {"plugins/plugin_utils/bench"} == set(), "no longer needed in this list"


def test_no_digit_that_int_refuses_passes_for_a_number() -> None:
    doubtful = re.compile(r"int\([^()]*\) if [^\n]*\.isdigit\(\)|isdigit\(\) and int\(")
    for path in sorted((ROOT / "plugins").rglob("*.py")):
        for found in doubtful.finditer(path.read_text(encoding="utf-8")):
            assert str(path.relative_to(ROOT)) in (
                "plugins/module_utils/programs/rank/preflight.py",  # names in sysfs
            ), found[0]


assert knowledge.LARGEST <= MIB


HOSTILE_LINES = [
    "error " * 200_000,
    'File "' + "a" * 1_000_000 + '", line 1, in f\n' + "XError: " + "b" * 100_000,
    ('  File "/x.py", line 999999999, in f\nYError: \x1b]0;title\x07 \x1b[2J gone\n') * 20_000,
    "a" * 400 + " CUDA " + "kernel failed " * 100_000,
    "NOT NOT " * 100_000 + ": an illegal memory access was encountered",
    ("Value " + "{" * 2000 + "\n") * 500,
    "error: argument --a: Value " + "x" * 500_000,
]


@pytest.mark.parametrize("text", HOSTILE_LINES)
def test_a_log_s_last_error_is_found_soon_and_shown_plain(text: str) -> None:
    table = signatures.load_table()
    with soon():
        report = signatures.explain([signatures.read_text(text, table)], table)["report"]
    for one in report["ended"]:
        assert not re.search(r"[\x00-\x1f\x7f]", one["excerpt"] + one["frame"])
        assert len(one["excerpt"]) < 400 and len(one["frame"]) <= 160


MOUNTS = [
    "/a" * 50_000 + ":/b.py",
    ":" * 1000,
    "a:/x/dist-packages/" + "y" * 100_000,
    "$(rm -rf /):/x.py",
    "source=a,target=b," * 20_000,
]


@pytest.mark.parametrize("mount", MOUNTS)
@pytest.mark.parametrize("option", ["-v", "--mount"])
def test_a_mount_of_a_recipe_is_only_read(option: str, mount: str) -> None:
    with soon(), contextlib.suppress(CollectionError):
        profile_of_recipe(f"docker run {option} '{mount}' vllm/vllm-openai:v0.29.0 org/model", "x.sh")
