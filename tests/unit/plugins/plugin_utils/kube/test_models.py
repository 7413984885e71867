"""All instances as one picture: read back from the objects that the role makes, and what the planner would put beside them."""

from __future__ import annotations

import functools
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report import models_page
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import models, models_text
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.instances import instances
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import MEMORY
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan
from ansible_collections.dgxspark.cluster.tests.support.properties import examples
from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs as inputs
from ansible_collections.dgxspark.cluster.tests.unit.served_models import (
    FEW,
    FIRST,
    HOSTS,
    SECOND,
    everywhere,
    nodes,
    objects,
    planned,
    seen,
    two,
)

Plain = dict[str, t.Any]
picture = functools.partial(models.picture, profiles=FEW)  # all profiles would show nothing more


def fit(made: models.Picture, profile: str) -> models.Fit:
    return next(each for each in made.fits if each.profile == profile)


@pytest.mark.parametrize("access", [{}, {"attachment": "host", "rdma": "privileged"}])
def test_instances_are_read_back_as_the_role_made_them(access: Plain) -> None:
    first, second = two(loading=["second"], **access)
    assert (first.name, first.profile, first.port, first.dist_port) == ("default", FIRST, 30000, 50000)
    assert (second.name, second.profile, second.port, second.dist_port) == ("second", SECOND, 30001, 51000)
    assert first.gib == planned(FIRST, "default")["memory"]["used_gib"]
    assert [rank.host for rank in first.ranks] == HOSTS
    assert {rank.vfs for rank in second.ranks} == {("p0f0v1", "p0f1v1")}
    assert [{rank.ready for rank in each.ranks} for each in (first, second)] == [{True}, {False}]
    assert all(rank.gpu for each in (first, second) for rank in each.ranks)


@pytest.mark.more
def test_the_picture_has_shares_vfs_gpus_and_what_would_fit_beside() -> None:
    made = models.picture(seen(everywhere(25.0)), two(), nodes(), floor_gib=8.0)
    assert len(made.fits) == len(inputs.PROFILES)
    [spark, *_others] = made.sparks
    assert spark.shares == {each.name: each.gib for each in made.instances}
    assert (spark.free_vfs, spark.gpu, spark.gpu_taken) == ((2,), 3, 2)
    assert (spark.free_gib, spark.room_gib, made.unseen) == (25.0, 25.0, ())
    fits = fit(made, SECOND)
    # It leaves less than the memory guard keeps free, and is counted so.
    assert (fits.state, fits.hosts, fits.reasons) == ("tight", tuple(HOSTS), ())
    assert fits.start["k8s_dgx_overrides"]["instance"] == {
        "name": SECOND.replace(".", "-"), "vf_index": 2, "port": 30002, "dist_port": 52000
    }  # fmt: skip
    assert fits.left_gib == pytest.approx(25.0 - (fits.gib or 0.0))
    assert fits.note == "less than the memory guard's floor of 8.0 GiB"
    # A model that lacks memory says how much, and the planner agrees within a fifth of a GiB.
    lacks = fit(made, FIRST)
    assert lacks.state == "does not fit" and lacks.missing_gib
    for gib, verdict in ((0.1, False), (-0.2, True)):
        plan = launch_plan(FIRST, {"hosts": HOSTS, "free_gib": 25.0 + lacks.missing_gib + gib})
        assert (plan["verdict"] == "blocked") is verdict
    text, page = "\n".join(models_text.lines(made)), models_page.page(made).replace("\N{NO-BREAK SPACE}", " ")
    for words in ("default", "second", FIRST, "GiB short: 25.0 GiB are left", "VF index free: 2"):
        assert words in text and words in page
    first = made.fits[0].profile
    assert f'"k8s_dgx_model_profile": "{first}"' in text
    assert models_page.page(made).replace("\N{NO-BREAK SPACE}", " ") == page
    tight = sum(each.state == "tight" for each in made.fits)
    assert f"{tight} of them with little memory left" in page and ">tight</td>" in page


def test_what_is_short_is_named() -> None:
    many = picture(seen(everywhere(115.0), vfs=2), two(), nodes(gpu=2))
    assert {each.state for each in many.fits if each.nodes == 4} == {"does not fit"}
    everyone = ", ".join(HOSTS)
    assert fit(many, SECOND).reasons == (
        f"no GPU share is left on {everyone}: raise k8s_platform_gpu_shares",
        f"no VF index is free on all of {everyone}: raise dgxspark_fabric.vf_count",
    )
    alone = {**seen(everywhere(115.0)), "hosts": HOSTS[:1]}
    few = picture(alone, (), nodes())
    assert fit(few, SECOND).reasons == ("it needs 4 Sparks, and this run has 1",)
    assert any(each.state == "fits" and each.nodes == 1 for each in few.fits)
    apart = picture({**seen(everywhere(115.0)), "fabric": {}}, (), nodes())
    assert "no 4 Sparks are joined" in fit(apart, SECOND).reasons[0]


def test_what_was_not_seen_says_so_and_leaves_open_what_hangs_on_it() -> None:
    free = everywhere(60.0)
    del free["spark3"]
    made = picture(seen(free), two(), [])
    assert "spark3: free memory is not known: it did not answer." in made.unseen
    assert "spark1: its node does not report its memory." in made.unseen
    assert (fit(made, SECOND).state, fit(made, SECOND).reasons) == (
        "not known", ("spark3: its free memory is not known",)
    )  # fmt: skip
    said = models_text.lines(made)
    assert [line for line in said if "does not report its memory" in line] == [
        "  spark1, spark2, spark3, spark4: its node does not report its memory."
    ]
    # One Spark is enough for the others: they are placed where the memory is known.
    assert {each.hosts for each in made.fits if each.nodes == 1 and each.state == "fits"} == {("spark1",)}
    # An instance that an older version started does not say its share; while it loads, nobody knows what is left.
    old = objects(loading=["second"])
    for each in old["StatefulSet"]:
        each["metadata"]["annotations"] = {
            key: value for key, value in each["metadata"]["annotations"].items() if key != MEMORY
        }
    made = picture(seen(everywhere(60.0)), instances(old, {}), nodes())
    assert {each.room_gib for each in made.sparks} == {None}
    assert "second: does not state its memory" in "\n".join(models_text.lines(made))
    assert {each.state for each in made.fits} <= {"not known", "does not fit"}


def test_what_loads_may_still_take_its_share() -> None:
    made = picture(seen(everywhere(60.0)), two(loading=["second"]), nodes())
    share = planned(SECOND, "second")["memory"]["used_gib"]
    assert [spark.room_gib for spark in made.sparks] == [pytest.approx(60.0 - share)] * 4


def test_an_instance_may_count_as_stopped_to_see_what_takes_its_place() -> None:
    beside = picture(seen(everywhere(10.0)), two(), nodes())
    instead = picture(seen(everywhere(10.0)), two(), nodes(), without="default")
    assert fit(beside, FIRST).state == "does not fit"
    found = fit(instead, FIRST)
    assert found.state == "fits"
    assert found.start["k8s_dgx_overrides"]["instance"]["vf_index"] == 0
    # Their shares add up to more than the node has: no more is freed than the other one leaves.
    first, second = (planned(*each)["memory"]["used_gib"] for each in ((FIRST, "default"), (SECOND, "second")))
    assert set(found.start["k8s_dgx_free_gib"]) == set(found.hosts)  # what serve takes: memory by host
    assert max(found.start["k8s_dgx_free_gib"].values()) == pytest.approx(min(10.0 + first, 121.7 - second), abs=0.11)
    with pytest.raises(CollectionError, match=r"no instance 'third' is served \(served: default, second\)"):
        picture(seen(everywhere(10.0)), two(), nodes(), without="third")


@pytest.mark.parametrize(("key", "value"), [("nodeSelector", {}), ("volumes", []), ("containers", [])])
def test_ranks_that_are_none_are_one_error(key: str, value: t.Any) -> None:
    broken = objects()
    broken["StatefulSet"][0]["spec"]["template"]["spec"][key] = value
    with pytest.raises(
        CollectionError, match=r"StatefulSet dgx-serving/serve-default-rank1 has the labels of .*, but is not a rank"
    ):
        instances(broken, {})


def test_two_instances_of_one_name_are_told_apart() -> None:
    both = objects()
    for kind in both:
        both[kind] += objects(namespace="other")[kind]
    assert [each.name for each in instances(both, {})] == [
        "dgx-serving/default", "dgx-serving/second", "other/default", "other/second"
    ]  # fmt: skip


gib = st.floats(0, 200, allow_nan=False)


@given(total=gib, free=gib, shares=st.dictionaries(st.sampled_from("abcdef"), st.none() | gib))
def test_shares_never_come_to_more_than_the_node_has(
    total: float, free: float, shares: dict[str, float | None]
) -> None:
    spark = models.Spark("spark1", total, free, None, shares=shares)
    drawn = dict(models_text.parts(spark))
    assert all(value >= 0 for value in drawn.values())
    assert sum(drawn.values()) == pytest.approx(total)


@settings(max_examples=examples(8))
@given(
    free=st.fixed_dictionaries({}, optional=dict.fromkeys(HOSTS, st.floats(0, 121, allow_nan=False))),
    gpu=st.integers(1, 3),
    vfs=st.integers(2, 3),
    topology=st.sampled_from(["switch", "ring"]),
    loading=st.sets(st.sampled_from(["default", "second"])),
)
def test_what_does_not_fit_has_a_reason_and_what_fits_is_planned(
    free: dict[str, float], gpu: int, vfs: int, topology: str, loading: set[str]
) -> None:
    cluster = seen(free, vfs, topology)
    made = picture(cluster, two(loading=loading), nodes(gpu))
    for each in made.fits:
        if each.state not in models.FITS:
            assert each.reasons and not each.start
            continue
        given_, place = each.start, {**cluster, "hosts": list(each.hosts)}
        plan = launch_plan(each.profile, {**place, "free_gib": given_["k8s_dgx_free_gib"]}, given_["k8s_dgx_overrides"])
        assert plan["verdict"] != "blocked"
        assert plan["instance"]["name"] not in {"default", "second"}
        assert plan["instance"]["port"] not in {30000, 30001}
    assert models_text.lines(made) and models_page.page(made)


def test_what_a_loading_instance_asks_beyond_what_is_free_is_said_and_drawn() -> None:
    short = picture(seen(everywhere(25.0)), two(loading=["second"]), nodes())
    held = short.sparks[0].shares["second"] or 0.0
    said = f"which asks for {held - 25:.1f} GiB more than is free"
    text, page = "\n".join(models_text.lines(short)), models_page.page(short).replace("\xa0", " ")
    assert said in text and said in page and 'class="beyond"' in page
    first = page.partition("<h2>")[0]
    assert f"On 4 of 4 Sparks, up to {held - 25:.1f} GiB more memory is asked for than is free." in first
    assert '<body class="incomplete">' in first, "it is not well"
    enough = picture(seen(everywhere(held + 1.0)), two(loading=["second"]), nodes())
    text, page = "\n".join(models_text.lines(enough)), models_page.page(enough).replace("\xa0", " ")
    assert "more than is free" not in text + page and "than is free." not in page and '<body class="passed">' in page
    assert 'class="beyond"' not in page and "room for another 1.0 GiB" in page
