"""Two runs in one log: one over RDMA, whole or cut, and a piece of another kind before or behind it."""

from __future__ import annotations

import dataclasses
import random
import re
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl import lines
from ansible_collections.dgxspark.cluster.tests.unit import nccl_logs as made

# What the reader ignores when it stands alone in a process that has a whole run: it contradicts nothing.
_QUIET = re.compile(
    r"Connected |P2P Chunksize|NCCL_\w+ set |NCCL version|MNNVL|Trees? \d|Ring \d|Pattern|threadThreshold"
)


@dataclasses.dataclass(frozen=True)
class Spliced:
    """The logs, and the two parts that they were made from; `same`: in processes of the same names."""

    logs: made.Logs
    parts: tuple[made.Logs, made.Logs]
    same: bool

    def may_be_ib(self, verdict: t.Callable[[made.Logs], str]) -> bool:
        """Whether one part is a whole run over RDMA, and the other is one too, or says nothing about any run."""
        over = [bool(part) and verdict(part) == "ib" for part in self.parts]
        nothing = [all(_says_nothing(log, self.same) for log in part) for part in self.parts]
        return any(over) and all(o or n for o, n in zip(over, nothing, strict=True))


def _identity(line: str) -> tuple[str, str] | None:
    match = lines.HEADER.search(line)
    return (match["host"], match["pid"]) if match else None


def _renamed(logs: made.Logs, like: made.Logs) -> made.Logs:
    """Give the processes of some logs the host and PID of those of others, as a restarted container has."""
    wanted = list(dict.fromkeys(name for log in like for line in log if (name := _identity(line))))
    given: dict[tuple[str, str], tuple[str, str]] = {}
    renamed = []
    for log in logs:
        own = []
        for line in log:
            if match := lines.HEADER.search(line):
                name = match["host"], match["pid"]
                host, pid = given.setdefault(name, wanted[len(given) % len(wanted)])
                tid = pid if match["tid"] == match["pid"] else match["tid"]
                rest = line[match.end("tid") :]
                own.append(f"{line[: match.start()]}{host}:{pid}:{tid}{rest}")
            else:
                own.append(line)
        renamed.append(own)
    return renamed


def _piece(log: list[str], chance: random.Random) -> list[str]:
    """Cut a log's beginning, its end, both or neither."""
    begin = chance.choice((0, chance.randrange(len(log) + 1)))
    return log[begin : chance.choice((len(log), chance.randrange(begin, len(log) + 1)))]


def _says_nothing(log: t.Iterable[str], same: bool) -> bool:
    for line in log:
        for said in lines.split(line):
            if said.host is not None and not (same and (lines.parse(said.text) is None or _QUIET.match(said.text))):
                return False
            if said.host is None and " via " in said.text:
                return False
    return True


def spliced(
    good: t.Sequence[tuple[made.Logs, int]], others: t.Sequence[made.Logs], chance: random.Random
) -> tuple[Spliced, int]:
    """Return a splice and the number of ranks of its RDMA run."""
    logs, ranks = chance.choice(good)
    other = chance.choice(others)
    if same := chance.random() < 0.5:
        other = _renamed(other, logs)
    run = [list(log) for log in logs]
    if chance.random() < 0.3:
        run = [_piece(log, chance) for log in run]
    pieces = [_piece(log, chance) for log in other]
    ahead = chance.random() < 0.5
    if chance.random() < 0.5:  # each rank's own file
        files = []
        for number in range(max(len(run), len(pieces))):
            both = [x[number] if number < len(x) else [] for x in ((pieces, run) if ahead else (run, pieces))]
            files.append([*both[0], *both[1]])
    else:
        both = [made.joined(pieces, chance), made.joined(run, chance)]
        files = [[*both[0], *both[1]] if ahead else [*both[1], *both[0]]]
    parts = [log for log in run if log], [log for log in pieces if log]
    return Spliced([log for log in files if log], parts, same), ranks
