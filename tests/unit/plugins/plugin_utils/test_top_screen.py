"""The screen of `top` as its own program in a real pty: sizes, colours, keys, and the terminal as it was afterwards."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import hardware, top, top_screen
from ansible_collections.dgxspark.cluster.tests.support.tty import Tty

Plain = dict[str, t.Any]
LIMITS = hardware.health("spark")
SOUND = {"utilisation": 96.0, "clock_mhz": 2405.0, "power_w": 48.12, "temperature_c": 71.0}


def read(free_gib: float = 31.0, lost: int = 0, **gpu: float) -> Plain:
    counts = {"port_xmit_data": 10**9, "port_rcv_data": 10**9, "out_of_sequence": lost}
    said = {"memory": {"MemAvailable": free_gib * 2**20, "MemTotal": 119 * 2**20}, "gpus": [{**SOUND, **gpu}]}
    return top.node(said, [{"hca": "a", "guid": "b", "counts": counts}])


def page(nodes: Plain, *groups: Plain) -> t.Any:
    """Return what is drawn of two readings, the first of which has lost nothing."""
    first = {"at": 1.0, "nodes": {host: read() for host in nodes}, "groups": list(groups)}
    return top.page(top.view({**first, "at": 11.0, "nodes": nodes}, first), "14:02:11", LIMITS)


def sparks(count: int) -> Plain:
    return {f"spark-{number}.lan": read() for number in range(1, count + 1)}


def group(name: str, hosts: t.Sequence[str], **said: t.Any) -> Plain:
    figures = {"running": 8, "waiting": 2, "cache": 0.43, "prompt_tokens": 7, "output_tokens": 9, "requests": 3}
    return top.group(name, hosts, said or figures)


class Shown:
    """The program, with its folder, and a process that stands for the playbook."""

    def __init__(self, folder: pathlib.Path, first: t.Any, columns: int = 80, lines: int = 24, **env: str) -> None:
        self.folder = folder / "screen"
        self.folder.mkdir()
        self.show(first)
        self.playbook = subprocess.Popen(["sleep", "300"])
        command = [sys.executable, top_screen.__file__, str(self.folder), str(self.playbook.pid)]
        self.tty = Tty(command, folder, {"PATH": os.environ["PATH"], **env}, columns, lines)

    def show(self, what: t.Any) -> None:
        (self.folder / "next").write_text(json.dumps(what), encoding="utf-8")
        (self.folder / "next").replace(self.folder / top_screen.PAGE)

    def close(self) -> None:
        self.playbook.kill()
        self.playbook.wait()


@pytest.fixture
def shown(tmp_path: pathlib.Path) -> t.Iterator[t.Callable[..., Shown]]:
    made: list[Shown] = []

    def start(*what: t.Any, **env: t.Any) -> Shown:
        made.append(Shown(tmp_path, *what, **env))
        return made[-1]

    yield start
    for each in made:
        each.close()


def test_a_page_follows_the_reading_and_the_window_and_q_gives_the_terminal_back(
    shown: t.Callable[..., Shown],
) -> None:
    one = shown(page(sparks(4), group("coder", list(sparks(4)))))
    first = one.tty.until(lambda text: "q ends" in text)
    assert "4 of 4 Sparks, 1 group, rates over 10 s" in first and "spark-4.lan" in first
    one.show(page(sparks(8), group("coder", list(sparks(8)))))
    one.tty.until(lambda text: "spark-8.lan" in text)
    # Shorter, then wider than before: nothing of the old size stays, and what does not fit is said.
    one.tty.resize(80, 10)
    short = one.tty.until(lambda text: "lines more in a larger window" in text).splitlines()
    assert len(short) == 10 and "spark-5.lan" in short[7] and "spark-6.lan" not in "".join(short)
    one.tty.resize(200, 50)
    wide = one.tty.until(lambda text: "coder" in text and "more in a larger window" not in text)
    assert ",".join(sparks(8)) in wide
    one.tty.type(b"\x1b[A")  # an arrow: goes on
    one.tty.type(b"x")
    one.tty.read(0.6)
    assert one.folder.exists()
    one.tty.type(b"q")
    assert (one.tty.end(), one.tty.restored, one.folder.exists()) == (0, True, False)


@pytest.mark.parametrize("count", [4, 8])
def test_eighty_columns_have_all_figures(shown: t.Callable[..., Shown], count: int) -> None:
    hosts = list(sparks(count))
    groups = [
        group(f"a-rather-long-name-of-a-model-{number}", hosts[2 * number : 2 * number + 2])
        for number in range(count // 2)
    ]
    one = shown(page(sparks(count), *groups))
    text = one.tty.until(lambda text: "q ends" in text)
    (line,) = [each for each in text.splitlines() if hosts[-1] in each and "31.0/119.0" in each]
    assert line.split()[1:6] == ["31.0/119.0", "96", "2405", "48.1", "71"]
    rows = [each.split() for each in text.splitlines() if each.startswith("a-")]
    assert [row[-6:] for row in rows] == [["8", "2", "43", "0.0", "0.0", "0.0"]] * (count // 2)
    assert all(len(each) <= 80 for each in text.splitlines())


@pytest.mark.parametrize(("columns", "lines"), [(40, 12), (20, 5), (5, 2), (1, 1)])
def test_a_tiny_window_has_the_host_and_what_was_lost_as_long_as_they_fit(
    shown: t.Callable[..., Shown], columns: int, lines: int
) -> None:
    one = shown(page({"spark1": read(lost=7)}), columns, lines)
    if columns == 40:
        text = one.tty.until(lambda text: "spark1" in text)
        assert "31.0/119.0" in text and text.splitlines()[3].endswith("7") and "columns more" in text
    one.tty.until(lambda _text: b"\x1b[?1049h" in one.tty.raw)
    one.tty.type(b"\x03")
    assert (one.tty.end(), one.tty.restored) == (0, True)


def test_figures_past_their_limits_are_coloured_and_no_others(shown: t.Callable[..., Shown]) -> None:
    nodes = {
        "good": read(),
        "full": read(free_gib=2.0),
        "lossy": read(lost=3),
        "stuck": read(clock_mhz=799, power_w=19.5),
        "hot": read(temperature_c=95),
        "feeble": read(power_w=15.0),
        "gone": top.node({}, (), "no route"),
    }
    one = shown(page(nodes))
    one.tty.until(lambda text: "q ends" in text)
    seen = {host: one.tty.colours(f"{host} ") for host in nodes}
    assert seen == {
        "good": {"default"},
        "full": {"default", "brown"},
        "lossy": {"default", "red"},
        "stuck": {"default", "red"},
        "hot": {"default", "red"},
        "feeble": {"default", "brown"},
        "gone": {"red"},
    }


def test_no_colour_if_the_owner_wants_none(shown: t.Callable[..., Shown]) -> None:
    one = shown(page({"lossy": read(lost=3)}), NO_COLOR="1")
    one.tty.until(lambda text: "q ends" in text)
    assert one.tty.colours("lossy ") == {"default"}


def test_foreign_words_are_shown_as_they_are(shown: t.Callable[..., Shown]) -> None:
    name, why = "[red]m[/red] :smile:", "[link=https://a.example]x[/link] \x1b]0;owned\x07 [/]"
    one = shown(page({"[bold]s1[/bold]": read()}, group(name, ["[/]"]), group("other", [], why=why)), 120)
    text = one.tty.until(lambda text: "q ends" in text)
    assert "[bold]s1[/bold]" in text and name in text and "[/]" in text
    assert "[link=https://a.example]x[/link]" in text and b"owned\x07" not in one.tty.raw
    assert one.tty.screen.title == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_gives_the_terminal_back(shown: t.Callable[..., Shown], number: signal.Signals) -> None:
    one = shown(page(sparks(2)))
    one.tty.until(lambda text: "q ends" in text)
    one.tty.kill(number)
    assert (one.tty.end(), one.tty.restored, one.folder.exists()) == (0, True, False)


def test_the_playbook_s_end_gives_the_terminal_back(shown: t.Callable[..., Shown]) -> None:
    one = shown(page(sparks(2)))
    one.tty.until(lambda text: "q ends" in text)
    one.close()  # as SIGKILL ends it
    assert (one.tty.end(5), one.tty.restored, one.folder.exists()) == (0, True, False)


def test_a_closed_window_ends_it(shown: t.Callable[..., Shown]) -> None:
    one = shown(page(sparks(2)))
    one.tty.until(lambda text: "q ends" in text)
    one.tty.close()
    end = time.monotonic() + 10
    while one.folder.exists() and time.monotonic() < end:
        time.sleep(0.1)
    assert not one.folder.exists()


def test_what_ansible_writes_between_is_drawn_over(shown: t.Callable[..., Shown]) -> None:
    one = shown(page(sparks(2)))
    one.tty.until(lambda text: "q ends" in text)
    inside = os.open(f"/proc/{one.tty.pid}/fd/1", os.O_WRONLY | os.O_NOCTTY)
    os.write(inside, b"\r\n" * 30 + b"TASK [Read the nodes' state] *****\r\n" * 3)
    os.close(inside)
    one.tty.until(lambda text: "TASK" in text, 5)
    text = one.tty.until(lambda text: "TASK" not in text and "q ends" in text, 5)
    assert text.startswith("14:02:11")
