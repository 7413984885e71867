"""Settings passed to an engine version: with invented tables for the rules, with the shipped ones for what owners run."""

from __future__ import annotations

import json
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.recipes.recipe_flags import read_flags
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.vocabulary.arguments import (
    Arguments,
    Tables,
    build_argv,
    check_environment,
    load_tables,
    render_argv,
)

OLD = {
    "backend": {"type": "str", "choices": ["a", "b", "gone"]},
    "max-bs": {"type": "int"},
    "offset": {"type": "int"},
    "no-graphs": {"type": "switch"},
    "share": {"type": "float"},
    "shared-cache": {"type": "toggle", "off": "no-shared-cache"},
    "width": {"type": "int", "aliases": ["tensor-width", "w"]},
    "names": {"type": "str", "many": "some"},
    "plugin": {"type": "str", "repeat": True},
    "settings": {"type": "json"},
    "method": {"type": "str", "known": ["FAST", "SLOW"]},
    "dead": {"type": "switch", "deprecated": "no effect", "use": "--nothing"},
    "shut": {"type": "switch", "deprecated": "refused", "use": "--nothing"},
}
NEW = {
    **{name: spec for name, spec in OLD.items() if name != "no-graphs"},
    "backend": {"type": "str", "choices": ["b", "c"]},
    "max-bs": {"type": "int", "deprecated": True, "use": "--max-bs-decode"},
    "offset": {"type": "int", "deprecated": True, "use": "--start"},
    "max-bs-decode": {"type": "int"},
    "graphs-decode": {"type": "str", "choices": ["full", "disabled"]},
    "graphs-prefill": {"type": "str", "choices": ["full", "disabled"]},
}
NEEDED = {"model": {"type": "str", "required": True}}
WAYS: dict[str, dict[str, t.Any]] = {
    "eager": {
        "type": "bool",
        "sglang": [
            [
                {"flag": "graphs-decode", "values": {"true": "disabled", "false": None}},
                {"flag": "graphs-prefill", "values": {"true": "disabled", "false": None}},
            ],
            {"flag": "no-graphs"},
        ],
    },
    "largest": {"type": "int", "minimum": 1, "sglang": [{"flag": "max-bs-decode"}, {"flag": "max-bs"}]},
    "kernels": {"type": "str", "sglang": [{"flag": "backend", "synonyms": {"a": ["a", "c"]}}]},
    "part": {"type": "float", "above": 0, "below": 1, "sglang": [{"flag": "share"}], "instead": {"vllm": "other_part"}},
    "quick": {"type": "bool", "sglang": [{"env": "SGLANG_QUICK", "values": {"true": "1", "false": "0"}}, {"note": "It is always quick."}]},
    "depth": {"type": "int", "sglang": [{"flag": "settings", "key": "depth"}]},
    "meeting": {"type": "str", "pattern": "[a-z.]+:[0-9]+", "sglang": [[{"flag": "backend", "half": "host"}, {"flag": "width", "half": "port"}]]},
    "wire": {"type": "str", "plan_only": True},
    "jobs": {"type": "int", "sglang": [{"env": "MAX_JOBS", "foreign": True}]},
    "spelled": {"aliases": ["spelt"], "type": "int", "sglang": [{"flag": "width"}]},
}  # fmt: skip


def table(engine: str, version: str, flags: dict[str, t.Any], environment: list[str]) -> dict[str, t.Any]:
    facts = {"program": {"value": [engine]}, "known_values": {"settings.kind": ["x", "y"]}}
    return {"id": f"{engine}-{version}", "engine": engine, "version": version, "facts": facts, "positionals": [],
            "flags": flags, "environment": environment}  # fmt: skip


TABLES = Tables(
    {
        entry["id"]: entry
        for entry in (
            table("sglang", "1.9", OLD, ["SGLANG_QUICK", "SGLANG_OLD"]),
            table("sglang", "1.10", NEW, []),
            table("sglang", "2.0", {**NEW, **NEEDED}, []),
            table("vllm", "1.0", {"seqs": {"type": "int"}, "other-part": {"type": "float"}}, []),
        )
    },
    WAYS,
)


def said(version: str, **settings: t.Any) -> Arguments:
    return build_argv("sglang", version, settings, TABLES)


def refused(version: str, engine: str = "sglang", **settings: t.Any) -> list[tuple[str, str, str]]:
    with pytest.raises(CollectionError) as caught:
        build_argv(engine, version, settings, TABLES)
    assert str(caught.value)
    return [(f.id.removeprefix("arguments."), f.subject, f"{f.message} {f.remedy}") for f in caught.value.findings]


@pytest.mark.parametrize(
    ("version", "settings", "argv"),
    [
        ("1.9", {"eager": True}, ["--no-graphs"]),
        ("1.10", {"eager": True}, ["--graphs-decode", "disabled", "--graphs-prefill", "disabled"]),
        ("1.9", {"eager": False}, []),
        ("1.10", {"eager": False}, []),
        ("1.9", {"largest": 8}, ["--max-bs", "8"]),
        ("1.10", {"largest": 8}, ["--max-bs-decode", "8"]),
        ("1.9", {"kernels": "a"}, ["--backend", "a"]),
        ("1.10", {"kernels": "a"}, ["--backend", "c"]),
        ("1.9", {"part": 0.9}, ["--share", "0.9"]),
        ("1.9", {"part": None, "wire": "roce"}, []),
        ("1.9", {"shared_cache": True}, ["--shared-cache"]),
        ("1.9", {"shared_cache": False}, ["--no-shared-cache"]),
        ("1.9", {"spelt": 4}, ["--width", "4"]),
        ("1.9", {"tensor_width": 4}, ["--width", "4"]),
        ("1.9", {"names": ["x", "y"]}, ["--names", "x", "y"]),
        ("1.9", {"names": "x"}, ["--names", "x"]),
        ("1.9", {"names": []}, []),
        ("1.9", {"plugin": ["x", "y"]}, ["--plugin", "x", "--plugin", "y"]),
        ("1.9", {"offset": -1}, ["--offset=-1"]),
        ("1.9", {"names": "-x"}, ["--names=-x"]),
        ("1.9", {"depth": 3, "settings": {"kind": "x"}}, ["--settings", '{"depth": 3, "kind": "x"}']),
        ("1.9", {"settings": '{"a": 1}'}, ["--settings", '{"a": 1}']),
        ("1.9", {"names": {"b": 1, "a": 2}}, ["--names", '{"a": 2, "b": 1}']),
        ("1.9", {"method": "fast"}, ["--method", "fast"]),
        ("1.9", {"meeting": "b:29500"}, ["--backend", "b", "--width", "29500"]),
    ],
)
def test_what_is_said(version: str, settings: dict[str, t.Any], argv: list[str]) -> None:
    assert list(said(version, **settings).argv) == argv


def test_a_variable_where_the_version_takes_one_and_a_note_where_there_is_nothing_to_say() -> None:
    assert said("1.9", quick=True).env == {"SGLANG_QUICK": "1"}
    assert said("1.9", quick=False).env == {"SGLANG_QUICK": "0"}
    later = said("1.10", quick=True)
    assert (later.argv, later.env) == ((), {})
    assert [(f.id, f.severity, f.message) for f in later.findings] == [
        ("arguments.implied", "info", "It is always quick.")
    ]
    assert said("1.10", quick=False).findings == ()
    assert said("1.10", jobs=4).env == {"MAX_JOBS": "4"}


def test_a_deprecated_flag_is_said_with_its_successor() -> None:
    found = said("1.10", offset=8)
    assert found.argv == ("--offset", "8")
    assert [f.severity for f in found.findings] == ["info"]
    assert "--start" in found.findings[0].message


def test_a_flag_that_stands_for_a_setting_is_another_name_of_it() -> None:
    assert said("1.10", max_bs=8).argv == said("1.10", largest=8).argv == ("--max-bs-decode", "8")


@pytest.mark.parametrize(
    ("version", "settings", "kind", "words"),
    [
        ("1.10", {"no_graphs": True}, "unknown", ["1.10", "--no-graphs", "1.9"]),
        ("1.9", {"max_bs_decode": 8}, "unknown", ["--max-bs-decode", "1.10"]),
        ("1.9", {"max_bss": 8}, "unknown", ["max-bs"]),
        ("1.9", {"seqs": 8}, "unknown", ["--seqs", "vllm"]),
        ("1.10", {"kernels": "gone"}, "choice", ["'gone'", "1.9", "b, c"]),
        ("1.9", {"kernels": "c"}, "choice", ["'c'", "1.10"]),
        ("1.9", {"method": "nope"}, "choice", ["FAST, SLOW"]),
        ("1.9", {"settings": {"kind": "z"}}, "choice", ["'z'", "x, y"]),
        ("1.9", {"part": 1.7}, "range", ["1.7", "below 1"]),
        ("1.9", {"part": 0}, "range", ["above 0"]),
        ("1.9", {"largest": 0}, "range", ["at least 1"]),
        ("1.9", {"largest": "8"}, "type", ["'8'", "whole number"]),
        ("1.9", {"largest": True}, "type", ["whole number"]),
        ("1.9", {"part": float("nan")}, "type", ["a number"]),
        ("1.9", {"eager": 1}, "type", ["true or false"]),
        ("1.9", {"shared_cache": "yes"}, "type", ["true or false"]),
        ("1.9", {"width": 4.5}, "type", ["whole number"]),
        ("1.9", {"names": [1]}, "type", ["a text"]),
        ("1.9", {"settings": "{"}, "type", ["JSON"]),
        ("1.9", {"meeting": "b"}, "type", ["form"]),
        ("1.9", {"shut": True}, "removed", ["--shut", "--nothing"]),
        ("1.9", {"spelled": 4, "spelt": 8}, "conflict", ["spelled"]),
        ("1.9", {"spelled": 4, "tensor_width": 8}, "conflict", ["spelled"]),
        ("1.9", {"depth": 3, "settings": {"depth": 4}}, "conflict", ["depth"]),
        ("2.0", {"largest": 8}, "missing", ["--model"]),
    ],
)
def test_what_is_refused_names_setting_version_and_remedy(
    version: str, settings: dict[str, t.Any], kind: str, words: list[str]
) -> None:
    found = refused(version, **settings)
    assert [f[0] for f in found] == [kind]
    assert found[0][1] in {f"settings.{name}" for name in (*settings, "model")}
    assert [word for word in words if word not in found[0][2]] == []


def test_the_other_engine_has_something_else() -> None:
    assert refused("1.0", engine="vllm", part=0.5)[0][0] == "engine"
    assert "other_part" in refused("1.0", engine="vllm", part=0.5)[0][2]


def test_all_faults_are_found_at_once() -> None:
    assert {f[0] for f in refused("1.9", part=1.7, kernels="x", nonsense=1)} == {"range", "choice", "unknown"}


def test_an_engine_without_a_table() -> None:
    with pytest.raises(CollectionError, match="sglang, vllm"):
        build_argv("tgi", "1.0", {"largest": 8}, TABLES)


def told(made: Arguments, rule: str) -> list[str]:
    return [
        f"{f.message} {f.remedy}"
        for f in made.findings
        if f.id in (f"arguments.{rule}", "engine.newer") and f.severity != "error"
    ]


@pytest.mark.parametrize(
    ("version", "settings", "argv", "words"),
    [
        ("1.9.5", {"eager": True}, ["--no-graphs"], ["the table of 1.9 is used", "1.9 and 1.10 differ in --no-graphs"]),
        ("1.9.5", {"spelled": 4}, ["--width", "4"], ["the table of 1.9 is used", "1.9 and 1.10 agree"]),
        ("1.8", {"largest": 8}, ["--max-bs", "8"], ["the table of 1.9 is used", "1.9 and 1.10 differ in --max-bs"]),
        ("3.0", {"model": "m"}, ["--model", "m"], ["3.0 is newer than the newest table, 2.0", "that table is used"]),
        ("1.10-dev", {"largest": 8}, ["--max-bs-decode", "8"], []),
    ],
)
def test_a_release_without_a_table_is_told_in_the_words_of_the_nearest(
    version: str, settings: dict[str, t.Any], argv: list[str], words: list[str]
) -> None:
    made = said(version, **settings)
    assert list(made.argv) == argv
    assert [word for word in words if word not in " ".join(told(made, "table"))] == []
    assert bool(told(made, "table")) is bool(words)


@pytest.mark.parametrize(
    ("settings", "argv"),
    [
        ({"newest": True}, ["--newest"]),
        ({"newest": False}, []),
        ({"newest_size": 4}, ["--newest-size", "4"]),
        ({"newest_list": [1, 2]}, ["--newest-list", "1", "2"]),
        ({"newest_json": {"a": 1}}, ["--newest-json", '{"a": 1}']),
    ],
)
def test_a_flag_that_no_table_has_is_passed_on_to_a_release_without_one(
    settings: dict[str, t.Any], argv: list[str]
) -> None:
    assert list(said("1.11", **settings).argv) == argv
    assert "as it is written" in told(said("1.11", **settings), "passed-on")[0]
    assert [f[0] for f in refused("1.10", **settings)] == ["unknown"]


@pytest.mark.parametrize(
    ("kind", "settings", "argv"),
    [
        ("unknown", {"newest": 4}, ["--newest", "4"]),
        ("unknown", {"graphs_decode": "full"}, ["--graphs-decode", "full"]),
        ("choice", {"backend": "d"}, ["--backend", "d"]),
        ("choice", {"settings": {"kind": "z"}}, ["--settings", '{"kind": "z"}']),
        ("removed", {"shut": True}, ["--shut"]),
        (
            "conflict",
            {"depth": 3, "settings": {"depth": 4}},
            ["--settings", '{"depth": 3}'],
        ),  # one place: the first is passed
    ],
)
def test_what_is_wrong_with_an_argument_is_said_all_the_same_where_the_owner_accepts_it(
    kind: str, settings: dict[str, t.Any], argv: list[str]
) -> None:
    assert [f[0] for f in refused("1.9", **settings)] == [kind]
    made = render_argv("sglang", "1.9", settings, TABLES, accept=[f"arguments.{kind}"])
    assert list(made.argv) == argv
    assert told(made, kind)[0].startswith("Accepted by the owner: ")


def test_what_cannot_be_said_at_all_is_a_warning_where_the_owner_accepts_it() -> None:
    made = render_argv("vllm", "1.0", {"part": 0.5}, TABLES, accept=["arguments.engine"])
    assert made.argv == () and told(made, "engine")
    made = render_argv("sglang", "2.0", {"largest": 8}, TABLES, accept=["arguments.missing"])
    assert made.argv == ("--max-bs-decode", "8") and told(made, "missing")


def test_a_flag_that_is_kept_without_effect_is_a_warning_and_left_out() -> None:
    made = said("1.9", dead=True)
    assert made.argv == ()
    assert "Its successor: --nothing." in told(made, "removed")[0]


def test_variables_that_a_version_does_not_declare() -> None:
    env = {"SGLANG_OLD": "1", "SGLANG_QUICK": "1", "NCCL_DEBUG": "INFO"}
    assert check_environment("sglang", "1.9", env, TABLES) == ()
    found = check_environment("sglang", "1.10", env, TABLES)
    assert [(f.subject, "1.9" in f.message) for f in found] == [
        ("environment.SGLANG_OLD", True),
        ("environment.SGLANG_QUICK", True),
    ]


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-10, 10)
    | st.floats(allow_nan=True)
    | st.sampled_from(["a", "c", "b:1", "-x", ""])
)
values = (
    scalars | st.lists(scalars, max_size=3) | st.dictionaries(st.sampled_from(["kind", "depth"]), scalars, max_size=2)
)
names = st.sampled_from([*WAYS, *(flag.replace("-", "_") for flag in NEW), "spelt", "no_graphs", "nonsense"])


@settings(deadline=None)
@given(st.sampled_from(["1.9", "1.10"]), st.dictionaries(names, values, max_size=6))
def test_nothing_that_the_version_does_not_know_is_ever_said(version: str, settings: dict[str, t.Any]) -> None:
    """Any settings: either refused with a finding for a given setting, or passed with flags of the table alone."""
    own = TABLES.engines[f"sglang-{version}"]
    try:
        found = build_argv("sglang", version, settings, TABLES)
    except CollectionError as exc:
        assert exc.findings
        assert {f.subject.removeprefix("settings.") for f in exc.findings} <= set(settings)
        return
    known = {
        f"--{name}" for flag, spec in own["flags"].items() for name in (flag, *spec.get("aliases", ()), spec.get("off"))
    }
    assert {word.partition("=")[0] for word in found.argv if word.startswith("--")} <= known
    assert set(found.env) <= {*own["environment"], "MAX_JOBS"}
    assert all(isinstance(word, str) for word in (*found.argv, *found.env.values()))


@settings(deadline=None)
@given(st.permutations(["eager", "largest", "kernels", "part", "depth", "jobs", "shared_cache", "names"]))
def test_the_order_of_settings_does_not_matter(order: list[str]) -> None:
    given_values = {
        "eager": True,
        "largest": 8,
        "kernels": "a",
        "part": 0.5,
        "depth": 2,
        "jobs": 1,
        "shared_cache": True,
        "names": ["x"],
    }
    assert said("1.10", **{name: given_values[name] for name in order}) == said("1.10", **given_values)


# --- the shipped tables ---------------------------------------------------------------------------------------------

SEED_002: dict[str, t.Any] = {
    "model": "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4", "trust_remote_code": True, "quantization": "modelopt_fp4",
    "tp_size": 4, "pp_size": 1, "ep_size": 4, "nnodes": 4, "node_rank": 0, "dist_init_addr": "10.100.1.1:50000",
    "context_length": 262144, "kv_cache_dtype": "fp8_e4m3", "mem_fraction_static": 0.9, "attention_backend": "flashinfer",
    "moe_runner_backend": "flashinfer_cutlass", "max_mamba_cache_size": 48, "cuda_graph_max_bs": 8,
    "disable_piecewise_cuda_graph": True, "disable_deep_gemm": True, "reasoning_parser": "nemotron_3",
    "tool_call_parser": "qwen3_coder", "mamba_scheduler_strategy": "extra_buffer",
}  # fmt: skip
RENAMED = {
    "graphs": ({"--disable-piecewise-cuda-graph", "--cuda-graph-max-bs", "--mamba-scheduler-strategy"},
               {"--cuda-graph-backend-prefill", "--cuda-graph-max-bs-decode", "--mamba-radix-cache-strategy"}),
}  # fmt: skip


@pytest.mark.parametrize("version", [f"0.5.{patch}" for patch in range(10, 24)])
def test_a_published_command_in_the_vocabulary_of_each_version(version: str) -> None:
    found = build_argv("sglang", version, SEED_002, load_tables())
    flags = {word for word in found.argv if word.startswith("--")}
    old, new = RENAMED["graphs"]
    minor = int(version.rpartition(".")[2])
    assert flags & (old | new) == (old if minor < 14 else new)
    assert "--disable-deep-gemm" not in flags
    assert found.env == {"SGLANG_ENABLE_JIT_DEEPGEMM": "false"}
    assert found.program == ("python3", "-m", "sglang.launch_server")
    assert found.argv[found.argv.index("--mem-fraction-static") + 1] == "0.9"


def test_one_spark_under_vllm() -> None:
    settings = {
        "model": "sehyo/Qwen3.5-122B-A10B-NVFP4", "max_model_len": 32768, "gpu_memory_utilization": 0.8, "tp_size": 1,
        "enable_prefix_caching": True, "max_num_seqs": 8, "speculative_algorithm": "NEXTN", "speculative_num_steps": 3,
        "disable_deep_gemm": True,
    }  # fmt: skip
    found = build_argv("vllm", "0.17.0", settings, load_tables())
    assert found.program == ("vllm", "serve")
    assert found.argv[0] == "sehyo/Qwen3.5-122B-A10B-NVFP4"
    draft = found.argv[found.argv.index("--speculative-config") + 1]
    assert json.loads(draft) == {"method": "mtp", "num_speculative_tokens": 3}
    assert found.env == {"VLLM_USE_DEEP_GEMM": "0"}


def test_a_rank_of_vllm_on_four_nodes() -> None:
    settings = {
        "model": "m",
        "tp_size": 4,
        "ep_size": 4,
        "nnodes": 4,
        "node_rank": 2,
        "dist_init_addr": "10.0.0.1:29501",
        "headless": True,
    }
    words = " ".join(build_argv("vllm", "0.33.0", settings, load_tables()).argv)
    assert words == ("m --tensor-parallel-size 4 --enable-expert-parallel --nnodes 4 --node-rank 2 --master-addr 10.0.0.1 "
                     "--master-port 29501 --headless")  # fmt: skip


@pytest.mark.parametrize(
    ("engine", "version", "settings", "words"),
    [
        ("sglang", "0.5.23", {"cutlass_mla": 1}, ["--cutlass-mla"]),
        ("sglang", "0.5.10", {"moe_runner_backend": "marlin"}, ["0.5.12"]),
        ("sglang", "0.5.20", {"attention_backend": "cutlass_mla"}, ["0.5.17"]),
        ("sglang", "0.5.12", {"speculative_algorithm": "NONSENSE"}, ["EAGLE"]),
        ("sglang", "0.5.13", {"mem_fraction_static": 1.7}, ["below 1"]),
        ("vllm", "0.33.0", {"swap_space": 4}, ["0.17.0"]),
        ("vllm", "0.17.0", {"attention_backend": "NOPE"}, ["FLASHINFER"]),
        ("vllm", "0.17.0", {"mem_fraction_static": 0.8}, ["gpu_memory_utilization"]),
        ("sglang", "0.5.17", {"gpu_memory_utilization": 0.8}, ["mem_fraction_static"]),
    ],
)
def test_a_shipped_version_refuses(engine: str, version: str, settings: dict[str, t.Any], words: list[str]) -> None:
    with pytest.raises(CollectionError) as caught:
        build_argv(engine, version, {"model": "m", **settings}, load_tables())
    text = "; ".join(map(str, caught.value.findings))
    assert len(caught.value.findings) == 1
    assert [word for word in (*words, *settings) if word not in text] == []


OFF = [
    ("0.32.0", "--no-enable-prefix-caching", "--no-enable-prefix-caching"),
    ("0.33.0", "--no-enable-prefix-caching", "--disable-prefix-caching"),
    ("0.33.0", "--disable-prefix-caching", "--disable-prefix-caching"),
    ("0.33.0", "--no-disable-custom-all-reduce", ""),
    ("0.33.0", "--no-enable-expert-parallel", ""),
]


@pytest.mark.parametrize(("version", "flag", "said"), OFF)
def test_whatever_turns_a_toggle_off_is_the_same_setting(version: str, flag: str, said: str) -> None:
    """vLLM 0.33.0 shows `--disable-x` for `--enable-x`, and its parser still takes `--no-enable-x`."""
    shipped = load_tables()
    _alone, (given_flag,) = read_flags([flag], shipped.parsers[f"vllm-{version}"])
    assert given_flag.known and given_flag.value is False
    base = {"model": "x"}
    by_name = build_argv("vllm", version, base | {flag.strip("-").replace("-", "_"): True}, shipped)
    assert by_name == build_argv("vllm", version, base | {given_flag.name: False}, shipped)
    assert not said or said in by_name.argv


def test_every_toggle_of_vllm_0_33_has_the_opposite_of_0_32() -> None:
    """Those that 0.33.0 kept; its help shows another opposite for half of them."""
    before, after = (load_tables().parsers[f"vllm-{version}"] for version in ("0.32.0", "0.33.0"))
    gone = {off for off, name in before.off.items() if name in after.flags} - after.off.keys()
    assert gone == set()


def test_every_flag_of_the_settings_table_is_a_flag_of_some_version() -> None:
    """A flag that no version knows is a typo."""
    tables = load_tables()
    for key, entry in tables.settings.items():
        for engine in ("sglang", "vllm"):
            parts = [p for way in entry.get(engine, ()) for p in (way if isinstance(way, list) else [way])]
            for part in parts:
                versions = tables.versions(engine)
                if "flag" in part:
                    assert any(parser.spec(part["flag"]) for parser in versions), f"{key}: --{part['flag']}"
                if "env" in part and not part.get("foreign"):
                    assert any(part["env"] in parser.environment for parser in versions), f"{key}: {part['env']}"


@pytest.mark.parametrize(
    ("kind", "change", "where"),
    [
        ("engines", {"flags": {"x": {"type": "number"}}}, "flags.x.type"),
        ("engines", {"flags": {"x": {"type": "int", "choice": [1]}}}, "flags.x"),
        ("engines", {"environment": ["A", "A"]}, "environment"),
        ("engines", {"id": "tgi-1.0"}, "id"),
        ("settings", {"type": "number"}, "type"),
        ("settings", {"sglang": [{"flag": "a", "env": "B"}]}, "sglang.0"),
        ("settings", {"sglang": [{"flags": "a"}]}, "sglang.0"),
        ("settings", {"sglang": []}, "sglang"),
    ],
)
def test_the_schemas_refuse_a_bad_entry(kind: str, change: dict[str, t.Any], where: str) -> None:
    tables = load_tables()
    entry = dict({"engines": tables.engines["vllm-0.17.0"], "settings": tables.settings["tp_size"]}[kind])
    del entry["origin"]
    knowledge.validate(kind, entry, "shipped")
    with pytest.raises(knowledge.KnowledgeError, match=where):
        knowledge.validate(kind, {**entry, **change}, "changed")
