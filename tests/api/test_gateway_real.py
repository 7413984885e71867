"""The gateway's files in the real LiteLLM (PyPI: litellm[proxy], prisma), in front of scripted engines, each a process."""

from __future__ import annotations

import os
import pathlib
import signal
import ssl
import threading
import time
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.health import Health
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import doctor_certificates
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.client import ChatRequest
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.load import server_of
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.doctor_certificates import GATEWAY, shown_at
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import gateway as core
from ansible_collections.dgxspark.cluster.tests.support.gateway_stack import KEY, NOT_RUN, PROGRAM, Stack
from ansible_collections.dgxspark.cluster.tests.support.streams import COUNT, fault
from ansible_collections.dgxspark.cluster.tests.unit.tls import certified

Plain = dict[str, t.Any]
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not PROGRAM, reason=NOT_RUN),
]
PAIRS = 100


@pytest.fixture
def stack(tmp_path: pathlib.Path) -> t.Iterator[Stack]:
    made = Stack(tmp_path)
    yield made
    made.close()


def test_a_group_goes_down_and_the_gateway_is_replaced_under_streams(stack: Stack) -> None:
    """One start, many looks: names, keys, a group that is killed, a name of two groups, and the end of a pod."""
    for name, model in (("a", "org/a"), ("b", "org/b"), ("c1", "org/c"), ("c2", "org/c")):
        stack.engine(name, model)
    stack.gateway(a=["org/a", "gpt-4o"], b=["org/b"], c1=["org/c"], c2=["org/c"])
    for model in ("org/a", "gpt-4o", "org/b", "org/c"):
        assert stack.ask(model)[0] == 200
    assert stack.ask("org/a", "messages")[0] == 200
    assert stack.ask("org/none")[0] in (400, 404)
    assert 400 <= stack.ask("org/a", key="wrong-" * 6)[0] < 500
    assert stack.sign_in("admin", KEY) in (401, 403)
    # A long stream of one model, while another model's group and one of two groups of a third are killed.
    streams: list[tuple[int, str, float]] = []
    threads = [threading.Thread(target=lambda: streams.append(stack.ask("org/a", **COUNT))) for _number in range(8)]
    for each in threads:
        each.start()
    time.sleep(1)
    for name in ("b", "c2"):
        stack.running[name].kill()
        stack.running[name].wait()
    for place in ("chat/completions", "messages"):
        for stream in (False, True):
            status, said, seconds = stack.ask("org/b", place, stream=stream)
            assert (status, "none of its groups can be reached" in said) == (503, True), (place, stream, said)
            assert seconds < 5
    assert {stack.ask("org/c")[0] for _number in range(10)} == {200}
    # It is told to end, as the pod that a rollout replaces: nothing new, and the streams go on to their end.
    assert not streams
    stack.running["gateway"].send_signal(signal.SIGTERM)
    for each in threads:
        each.join()
    assert len(streams) == 8
    assert [fault(status, said) for status, said, _seconds in streams] == [""] * 8
    assert stack.running["gateway"].wait(30) in (0, -signal.SIGTERM)


def test_what_it_adds_to_a_request(stack: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    """Not a bound of speed, for a busy machine would break it: the figures are shown. Each request through it has one without, beside it."""
    stack.engine("a", "org/a")
    stack.gateway(a=["org/a"])
    direct = Stack(stack.folder)
    direct.port = stack.ports["a"]
    for _number in range(10):
        stack.ask("org/a")
    spent, pairs = cpu_s(stack.running["gateway"].pid), []
    for number in range(PAIRS):
        both = (stack, direct) if number % 2 else (direct, stack)
        took = {each.port: each.ask("org/a")[2] for each in both}
        pairs.append((took[direct.port], took[stack.port] - took[direct.port]))
    spent = cpu_s(stack.running["gateway"].pid) - spent
    alone, added = (sorted(column) for column in zip(*pairs, strict=True))
    at = [f"{added[int(PAIRS * share)] * 1000:.1f}" for share in (0.1, 0.5, 0.9)]
    with capsys.disabled():
        print(
            f"\n{PAIRS} pairs, load {os.getloadavg()[0]:.1f}: {alone[PAIRS // 2] * 1000:.1f} ms direct; the gateway adds {', '.join(at)} ms "
            f"(tenth, half, nine tenths), and takes {spent / PAIRS * 1000:.1f} ms of processor time for a request"
        )
    assert added[PAIRS // 2] < 5


def cpu_s(pid: int) -> float:
    """Return the processor time of a process and of its children that have ended, in seconds."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def test_64_streams_outlive_a_roll_to_a_new_key_and_a_group_that_is_killed(
    stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a rollout does it: the new gateway answers, requests go there, the old one is told to end. All that is lost is counted."""
    for name, model in (("a", "org/a"), ("c1", "org/c"), ("c2", "org/c")):
        stack.engine(name, model)
    names: dict[str, t.Sequence[str]] = {"a": ["org/a"], "c1": ["org/c"], "c2": ["org/c"]}
    stack.gateway(KEY, **names)
    streams: list[tuple[int, str, float]] = []
    threads = [threading.Thread(target=lambda: streams.append(stack.ask("org/a", **COUNT))) for _number in range(64)]
    others: list[int] = []
    going, place = threading.Event(), [(stack, KEY)]

    def ask_on() -> None:
        while not going.is_set():
            where, key = place[0]
            others.append(where.ask("org/c", key=key)[0])

    asking = [threading.Thread(target=ask_on) for _number in range(4)]
    for each in (*threads, *asking):
        each.start()
    time.sleep(2)
    stack.running["c2"].kill()
    second = Stack(stack.folder / "second")
    second.ports = stack.ports
    try:
        second.gateway(key=KEY[::-1], **names)
        place[0] = (second, KEY[::-1])
        time.sleep(core.STOP_S)
        stack.running["gateway"].send_signal(signal.SIGTERM)
        for each in threads:
            each.join()
        assert 400 <= second.ask("org/c", key=KEY)[0] < 500
        going.set()
        for each in asking:
            each.join()
    finally:
        going.set()
        second.close()
    whole = sum(not fault(status, said) for status, said, _seconds in streams)
    with capsys.disabled():
        print(
            f"\n{whole} of 64 streams whole; {others.count(200)} of {len(others)} requests of the other model answered"
        )
    assert whole == 64 and set(others) == {200}


def test_a_certificate_that_expires_under_streams_costs_new_connections_alone(
    stack: Stack, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was begun goes on to its end; new clients, doctor and the role say that it has expired; a renewed one is rolled out."""
    stack.engine("a", "org/a", token_s=0.8)
    stack.certificate, lasts = tmp_path / "tls.crt", 45.0
    while True:  # on a busy machine it starts slowly
        lasts *= 2
        ends = time.time() + lasts
        certified(stack.certificate, lasts)
        stack.gateway(a=["org/a"])
        if ends - time.time() > 25:
            break
        stack.running["gateway"].kill()
        stack.running["gateway"].wait()
    time.sleep(max(0.0, ends - time.time() - 20))
    streams: list[tuple[int, str, float]] = []
    threads = [threading.Thread(target=lambda: streams.append(stack.ask("org/a", **COUNT))) for _number in range(32)]
    for each in threads:
        each.start()
    time.sleep(max(0.0, ends - time.time() + 1.5))
    assert not streams
    # New clients that check it, and what the owner reads.
    refused = []
    for _number in range(20):
        with pytest.raises(ssl.SSLCertVerificationError) as said:
            stack.ask("org/a")
        refused.append(said.value.verify_message)
    assert set(refused) == {"certificate has expired"}
    url = f"https://127.0.0.1:{stack.port}/v1"
    with pytest.raises(CollectionError) as bench:
        server_of(ChatRequest("bench", url, "", 1, 30.0, api_key=KEY, ca_path=str(stack.certificate)))
    known = Known(time.time(), {}, {GATEWAY: shown_at(["127.0.0.1"], stack.port) or 0.0})
    (found,) = doctor_certificates.ends(known)
    assert (found.id, found.severity, found.where) == ("certificate.expired", "error", GATEWAY)
    with pytest.raises(CollectionError, match=r"it has expired on .* UTC") as role:
        tls = [each.read_text("utf-8") for each in (stack.certificate, stack.certificate.with_suffix(".key"))]
        asked = {"version": "1.108.7", "digest": "sha256:" + "1" * 64}
        core.gateway(asked, (), core.Keys(KEY, {}, *tls), "", now_s=time.time())
    for each in threads:
        each.join()
    whole = sum(not fault(status, said) for status, said, _seconds in streams)
    # The renewed one, as doctor says: another gateway answers before the old one is told to end.
    second = Stack(stack.folder / "second")
    second.ports, second.certificate = stack.ports, tmp_path / "renewed.crt"
    certified(second.certificate)
    try:
        second.gateway(a=["org/a"])
        stack.running["gateway"].send_signal(signal.SIGTERM)
        after = [second.ask("org/a")[0] for _number in range(20)]
    finally:
        second.close()
    with capsys.disabled():
        print(
            f"\n{whole} of 32 streams that had begun are whole; {len(refused)} of 20 new connections refused ({refused[0]}); "
            f"{after.count(200)} of 20 after the renewal answered\nclient: {bench.value}\ndoctor: {found.symptom} {found.cause} {found.remedy}\n"
            f"gateway: {role.value}"
        )
    assert (whole, after.count(200)) == (32, 20)


class Known(t.NamedTuple):
    """What doctor has read."""

    now_s: float | None
    health: t.Mapping[str, Health]
    certificates: t.Mapping[str, float]
